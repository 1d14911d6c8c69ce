// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/request.h"
#include "base/clock.h"
#include "base/log.h"
#include "dns/name.h"
#include "event/json.h"
#include "events/draft.h"
#include "events/jsonl.h"
#include "events/ocsf.h"
#include "events/sqlite_file.h"
#include "filter/nflog.h"
#include "filter/ruleset.h"
#include "outputs/postgres_state.h"
#include "policy/advice.h"
#include "policy/load.h"
#include "supervisor/program.h"
#include "sys/print.h"
#include "sys/process.h"
#include "sys/sock.h"
#include "tools/events_show.h"

/* ---- events that are in PostgreSQL ---- */

/* @from names a database: "postgres", whose connection string is in WEIR_POSTGRES, or a
 * URI. Return: the connection string, borrowed; "": WEIR_POSTGRES isn't set; NULL: it
 * names a state directory. */
static const char *show_postgres(const char *from)
{
	static const char *const schemes[] = { "postgres://", "postgresql://" };

	if (strcmp(from, "postgres") == 0)
		return getenv("WEIR_POSTGRES") ?: "";
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (strncmp(from, schemes[i], strlen(schemes[i])) == 0)
			return from;
	return NULL;
}

/* Return: 0; -EPIPE: the program ends before. */
static int read_event(int fd, struct event *ret)
{
	uint8_t *to = (uint8_t *)ret;
	size_t have = 0;

	while (have < sizeof(*ret)) {
		ssize_t n = read(fd, to + have, sizeof(*ret) - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		have += (size_t)n;
	}
	return 0;
}

static pid_t start_reader(const char *conninfo, const struct show *s, int fd)
{
	CLEAN(mem) char *since = NULL, *where = strdup(conninfo);
	CLEAN(mem) char *sandbox = strdup(s->query.sandbox ?: "");
	char *args[] = { where, NULL, NULL, NULL };
	const struct helper helper = { .program = "weir-postgres",
				       .service = POSTGRES_READ,
				       .args = args,
				       .fds = &fd,
				       .fd_count = 1 };

	if (!where || !sandbox || asprintf(&since, "%" PRId64, s->query.since_ms) < 0)
		return -ENOMEM;
	args[1] = since;
	args[2] = s->query.sandbox ? sandbox : NULL;
	return helper_start(&helper);
}

/* Call @on_event for what @s->query finds in that database by its sandbox and since_ms;
 * outputs/postgres_state.h says what is one event. *@ret_unread: the occurrences in
 * events that were too many. Return: 0, or -errno with @err. */
static int show_read_postgres(const struct show *s, const char *conninfo,
			      void (*on_event)(void *data, const struct event *e),
			      void *data, uint64_t *ret_unread, struct err *err)
{
	CLEAN(fd) int from = -1, to = -1;
	struct event e = { .action = EVENT_ALLOW };
	int fds[2], status, r = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	from = fds[0];
	to = fds[1];
	pid = start_reader(conninfo, s, to);
	fd_close(&to);
	if (pid < 0)
		return err_sys(err, pid, "cannot start weir-postgres");
	while (r == 0 && e.action != EVENT_NONE) {
		r = read_event(from, &e);
		if (r == 0 && e.action != EVENT_NONE)
			on_event(data, &e);
	}
	if (r < 0 && r != -EPIPE)
		(void)!kill(pid, SIGKILL);
	status = process_wait(pid);
	/* weir-postgres has said why. */
	if (r < 0)
		return err_set(err,
			       WIFEXITED(status) &&
					       WEXITSTATUS(status) == RUN_STATUS_BAD_INPUT
				       ? -EINVAL
				       : -EIO,
			       "cannot read the events in PostgreSQL");
	*ret_unread = e.packets;
	return 0;
}

#define DAY_MS INT64_C(86400000)

static int is_not(struct err *err, const char *option, const char *value,
		  const char *what)
{
	return err_set(err, -EINVAL, "--%s: '%s' is not %s", option, SHOWN(value), what);
}

/* ---- what the options mean ---- */

static int read_times(struct show *s, struct err *err)
{
	const char *what = "a time: write 90s, 2h, 3d or 2026-11-20T10:06:43Z";
	const int64_t now_ms = clock_wall_ms();

	s->query.since_ms = now_ms - DAY_MS;
	if (s->spec.since &&
	    !request_time(text_of(s->spec.since), now_ms, &s->query.since_ms))
		return is_not(err, "since", s->spec.since, what);
	if (s->spec.until &&
	    !request_time(text_of(s->spec.until), now_ms, &s->query.until_ms))
		return is_not(err, "until", s->spec.until, what);
	if (s->spec.until && s->spec.follow)
		return err_set(err, -EINVAL, "--follow has no end, and --until is one");
	return 0;
}

static int read_name(struct show *s, struct err *err)
{
	static char name[DNS_NAME_TEXT_SIZE];
	struct dns_name n;
	size_t len;

	if (dns_name_parse(text_of(s->spec.name), &n) < 0)
		return is_not(err, "name", s->spec.name, "a name");
	dns_name_format(&n, name);
	len = strlen(name);
	if (len > 1 && name[len - 1] == '.')
		name[len - 1] = '\0'; /* as events have it */
	s->query.name = name;
	return 0;
}

/* The kernel's log knows no names and no past. */
static int check_collect(const struct events_spec *spec, struct err *err)
{
	const struct {
		const char *option;
		bool given;
	} all[] = { { "state-dir", spec->state_dir }, { "since", spec->since },
		    { "until", spec->until },	      { "name", spec->name },
		    { "action", spec->action },	      { "follow", spec->follow } };

	for (size_t i = 0; i < ARRAY_SIZE(all) && spec->collect; i++)
		if (all[i].given)
			return err_set(err, -EINVAL, "--%s: not with --collect",
				       all[i].option);
	return 0;
}

static int read_options(struct show *s, struct err *err)
{
	const struct events_spec *spec = &s->spec;
	int r = check_collect(spec, err);

	if (spec->json && spec->format && strcmp(spec->format, "json") != 0)
		return err_set(err, -EINVAL, "--json and --format %s: use one of them",
			       spec->format);
	if (r == 0)
		r = read_times(s, err);
	s->query.sandbox = spec->sandbox;
	s->by = SQLITE_BY_DESTINATION;
	if (r == 0 && spec->name)
		r = read_name(s, err);
	s->query.action = event_action_find(spec->action);
	if (r == 0 && spec->action && s->query.action == EVENT_NONE)
		r = is_not(err, "action", spec->action,
			   "one of allow, deny, panic, change, limit, fail, ask");
	if (r == 0 && spec->address &&
	    !addr_parse(spec->address, strlen(spec->address), &s->query.remote))
		r = is_not(err, "address", spec->address, "an address");
	if (r == 0 && spec->by && !sqlite_by_parse(spec->by, &s->by))
		r = is_not(err, "by", spec->by,
			   "one of destination, address, name, sandbox, rule, process");
	if (r < 0 || spec->collect)
		return r;
	s->database = spec->from ? show_postgres(spec->from) : NULL;
	if (s->database && !s->database[0])
		return err_set(err, -EINVAL,
			       "--from postgres: the connection string is to be in "
			       "WEIR_POSTGRES, which is not set");
	if (s->database)
		return 0;
	s->directory = cli_state_dir(spec->from ?: spec->state_dir, &s->arena, err);
	return s->directory ? 0 : -EINVAL;
}

/* ---- what both verbs use ---- */

/* The store, or why it can't be opened, said. Return: 0 or -errno. */
static int show_open(const struct show *s, struct sqlite_reader **ret)
{
	struct err err = { 0 };
	int r = sqlite_reader_open(s->directory, SHOW_TIMEOUT_MS, ret, &err);

	if (r < 0) {
		err_context(&err, "%s", SHOWN(s->directory));
		log_error("%s", err.text);
	}
	return r;
}

enum {
	PAGE_ROWS = 500,
	FOLLOW_MS = 200,
	TIME_COLUMNS = 21,
	SANDBOX_COLUMNS = 12,
	ACTION_COLUMNS = 7,
	TEXT_COLUMN = TIME_COLUMNS + SANDBOX_COLUMNS + 1 + ACTION_COLUMNS,
	LINE_SIZE = 2048,
};

struct list {
	struct show *show;
	struct sqlite_reader *reader;
	struct event_row *kept; /* a page of them, or --limit's; owned */
	size_t kept_count;
	struct sqlite_inode file; /* which one is read */
	bool failed;		  /* the output's reader has ended */
};

/* ---- one row ---- */

static const char *const colours[EVENT_ACTION_COUNT] = {
	[EVENT_ALLOW] = "\x1b[32m",   [EVENT_DENY] = "\x1b[31m",
	[EVENT_PANIC] = "\x1b[1;31m", [EVENT_CHANGE] = "\x1b[36m",
	[EVENT_LIMIT] = "\x1b[33m",   [EVENT_FAIL] = "\x1b[35m",
	[EVENT_ASK] = "\x1b[33m",
};

static void put_text(FILE *out, const struct event_row *row)
{
	const struct event *e = &row->event;
	char what[REPORT_WHAT_SIZE], shown[4 * REPORT_WHAT_SIZE];

	report_what(e, what);
	fputs(text_escape(text_of(what), shown, sizeof(shown)), out);
	if (e->packets > 1)
		fprintf(out, " x%llu", (unsigned long long)e->packets);
	/* ": no rule allows it", ": deny gist.github.com (policy.yaml:3)". A reason may
	 * be the rule, or as much of it as fits. */
	if (e->reason[0])
		fprintf(out, ": %s", SHOWN(e->reason));
	if (row->rule[0] &&
	    (!e->reason[0] || strncmp(e->reason, row->rule, strlen(e->reason)) != 0))
		fprintf(out, ": %s", SHOWN(row->rule));
	if (row->rule[0] && row->rule_file[0])
		fprintf(out, " (%s:%u)", SHOWN(row->rule_file), row->rule_line);
	if (e->command[0])
		fprintf(out, " [%s]", SHOWN(e->command));
	if (e->pid > 0)
		fprintf(out, " [pid %u]", e->pid);
}

static void print_line(const struct show *s, const struct event_row *row)
{
	const uint8_t action = row->event.action;
	const char *colour =
		s->colour && action < EVENT_ACTION_COUNT ? colours[action] ?: "" : "";
	char time[JTEXT_TIME_SIZE], text[LINE_SIZE] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");
	int used;

	if (out) {
		put_text(out, row);
		fclose(out);
		text[sizeof(text) - 1] = '\0';
	}
	used = printf("%s  %-*s ", jtext_time(row->event.ts_ms, false, time),
		      SANDBOX_COLUMNS, SHOWN(row->sandbox[0] ? row->sandbox : "-"));
	used += ACTION_COLUMNS;
	printf("%s%-*s%s", colour, ACTION_COLUMNS,
	       event_action_name((enum event_action)action), *colour ? "\x1b[0m" : "");
	if (s->wrap)
		term_wrap(stdout, text, (unsigned int)used, TEXT_COLUMN, s->width);
	else
		puts(text);
}

static void show_row(const struct show *s, const struct event_row *row)
{
	const char *format = s->spec.format ?: s->spec.json ? "json" : "text";
	char json[EVENT_OCSF_SIZE];

	static_assert(sizeof(json) >= EVENT_JSON_SIZE, "either form fits");
	if (strcmp(format, "text") == 0) {
		print_line(s, row);
		return;
	}
	if (strcmp(format, "ocsf") == 0)
		event_ocsf(row, json);
	else
		event_json(row, json);
	puts(json);
}

/* ---- weir events --collect ---- */

/* What the rules of `weir render` refuse, read from the kernel's log group while no
 * process of Weir's keeps them. One program at a time can read it, and nothing that
 * happened before is there. The rules log each address and port when it is first seen,
 * and the rest at a limited rate: so lines are no count of packets. */

struct collector {
	struct show *show;
	uint32_t count; /* that were printed */
};

static void on_packet(void *data, const struct nflog_packet *p)
{
	struct collector *c = data;
	const struct sqlite_query *q = &c->show->query;
	struct event_row row = { .event = nflog_event(p) };
	const size_t len = strlen(FILTER_PREFIX_REFUSED " ");
	const char *id = p->prefix + len;

	/* "weir out ID"; others are no rules of `weir render`. */
	if (strncmp(p->prefix, FILTER_PREFIX_REFUSED " ", len) != 0 || !id[0] ||
	    (c->show->spec.limit > 0 && c->count == c->show->spec.limit))
		return;
	row.event.ts_ms = clock_wall_ms();
	event_set_reason(&row.event, "refused by rendered rules");
	snprintf(row.sandbox, sizeof(row.sandbox), "%s", id);
	if ((q->sandbox && strcmp(q->sandbox, row.sandbox) != 0) ||
	    (q->remote.family != 0 && !addr_equal(&q->remote, &p->destination)))
		return;
	show_row(c->show, &row);
	c->count++;
}

static int show_collect(struct show *s)
{
	struct collector c = { .show = s };
	struct pollfd wait = { .events = POLLIN };
	CLEAN(fd) int fd = -1;
	struct err err = { 0 };
	int r = sandbox_netlink_open(&fd, &err);

	if (r == 0) {
		r = nflog_bind(fd, FILTER_NFLOG_GROUP, &err);
		/* The kernel says the same of a group that another program reads. */
		if (r == -EBUSY || r == -EPERM)
			err_set(&err, r,
				"log group %d can't be read: that takes root, and one "
				"program at a time can, such as `weir daemon`",
				FILTER_NFLOG_GROUP);
	}
	if (r < 0)
		return log_end(SHOW_FAILED, "%s", err.text);
	wait.fd = fd;
	/* Until there are as many as were asked for, or the output's reader has ended. */
	while ((s->spec.limit == 0 || c.count < s->spec.limit) && fflush(stdout) == 0) {
		r = poll(&wait, 1, -1) < 0 ? -errno : nflog_read(fd, on_packet, &c);
		if (r == -ENOBUFS)
			log_warning("some were lost: they came too fast");
		else if (r < 0 && r != -EAGAIN && r != -EINTR)
			return log_end(SHOW_FAILED, "cannot read the log: %s",
				       strerror(-r));
	}
	return SHOW_OK;
}

/* ---- weir events ---- */

/* Rows are read page by page, so that a slow reader of the output, such as a pager,
 * never holds up the store's writer. */

static bool keep_row(void *data, int64_t id, const struct event_row *row)
{
	struct list *l = data;

	l->show->query.above_id = MAX(l->show->query.above_id, id);
	l->kept[l->kept_count++] = *row;
	return true;
}

/* Print all rows from the next one on. Nothing is printed while the database is read:
 * the output's reader may pause, and the database's log would grow until it goes on. */
static int print_rest(struct list *l, struct err *err)
{
	struct sqlite_query *q = &l->show->query;
	int r;

	if (!l->kept)
		l->kept = calloc(PAGE_ROWS, sizeof(*l->kept));
	if (!l->kept)
		return err_sys(err, -ENOMEM, "cannot hold that many events");
	q->oldest_first = true;
	q->max = PAGE_ROWS;
	do {
		l->kept_count = 0;
		r = sqlite_find(l->reader, q, keep_row, l, err);
		for (size_t i = 0; r == 0 && i < l->kept_count && !l->failed; i++) {
			show_row(l->show, &l->kept[i]);
			l->failed = ferror(stdout);
		}
	} while (r == 0 && l->kept_count == PAGE_ROWS && !l->failed);
	return r;
}

/* The newest ones alone, the oldest of them first. */
static int print_newest(struct list *l, struct err *err)
{
	struct sqlite_query *q = &l->show->query;
	int r;

	l->kept = calloc(l->show->spec.limit, sizeof(*l->kept));
	if (!l->kept)
		return err_sys(err, -ENOMEM, "cannot hold that many events");
	q->max = l->show->spec.limit;
	r = sqlite_find(l->reader, q, keep_row, l, err);
	while (r == 0 && l->kept_count > 0)
		show_row(l->show, &l->kept[--l->kept_count]);
	free(l->kept);
	l->kept = NULL;
	return r;
}

static bool is_same_file(struct list *l)
{
	const struct sqlite_inode there = sqlite_file_inode(l->show->directory);

	/* Without a file, it is being moved aside. */
	if (there.number == 0 || sqlite_same_inode(&there, &l->file))
		return true;
	l->file = there;
	return false;
}

static int follow(struct list *l, struct err *err)
{
	struct sqlite_reader *again;
	int r = 0;

	l->show->query.since_ms = 0;
	while (r == 0 && !l->failed && fflush(stdout) == 0) {
		poll(NULL, 0, FOLLOW_MS);
		again = NULL;
		/* A broken file was moved aside and another begun: go on with that. */
		if (!is_same_file(l) &&
		    sqlite_reader_open(l->show->directory, SHOW_TIMEOUT_MS, &again, err) <
			    0)
			l->file = (struct sqlite_inode){ 0 }; /* another time */
		if (again) {
			sqlite_reader_close(l->reader);
			l->reader = again;
			l->show->query.above_id = 0;
		}
		r = print_rest(l, err);
		if (r == -EBUSY)
			r = 0; /* another time */
	}
	return r;
}

static int show_events(struct show *s)
{
	struct list l = { .show = s };
	struct err err = { 0 };
	int r;

	if (s->spec.collect)
		return show_collect(s);
	r = show_open(s, &l.reader);
	if (r < 0)
		return SHOW_FAILED;
	(void)!is_same_file(&l);
	r = sqlite_id_before(l.reader, s->query.since_ms, &s->query.above_id, &err);
	if (r == 0)
		r = s->spec.limit > 0 ? print_newest(&l, &err) : print_rest(&l, &err);
	if (r == 0 && s->spec.follow)
		r = follow(&l, &err);
	sqlite_reader_close(l.reader);
	free(l.kept);
	return r < 0 ? log_end(SHOW_FAILED, "%s", err.text) : SHOW_OK;
}

/* ---- weir denies ---- */

enum { LIMIT_DEFAULT = 50, KEY_JSON_SIZE = 4096, KEY_COLUMN = 42 };

struct table {
	const struct show *show;
	size_t rows;
};

static void print_denied(struct table *t, const struct sqlite_top *d)
{
	char time[JTEXT_TIME_SIZE], key[4 * EVENT_NAME_SIZE + 8];
	const char *shown = t->show->by == SQLITE_BY_RULE      ? "(the default action)"
			    : t->show->by == SQLITE_BY_PROCESS ? "(not known)"
							       : "-";

	if (t->rows == 0)
		printf("%9s %9s  %-20s  %s\n", "packets", "events", "last",
		       sqlite_by_name(t->show->by));
	if (d->key[0])
		shown = text_escape(text_of(d->key), key, sizeof(key));
	printf("%9" PRIu64 " %9" PRIu64 "  %s  ", d->packets, d->rows,
	       jtext_time(d->last_ms, false, time));
	/* On a terminal a row is a line; the end of a name tells the most. */
	if (t->show->wrap && t->show->width > KEY_COLUMN &&
	    strlen(shown) > t->show->width - KEY_COLUMN)
		printf("...%s\n",
		       shown + strlen(shown) - (t->show->width - KEY_COLUMN - 3));
	else
		puts(shown);
}

static bool on_denied(void *data, const struct sqlite_top *d)
{
	struct table *t = data;
	char buf[KEY_JSON_SIZE];
	struct jtext j;

	if (t->show->spec.json) {
		jtext_init(&j, buf, sizeof(buf));
		jtext_open(&j, NULL, '{');
		jtext_text(&j, sqlite_by_name(t->show->by), d->key, ROW_RULE_SIZE * 2);
		jtext_count(&j, "packets", d->packets);
		jtext_count(&j, "events", d->rows);
		jtext_when(&j, "last", d->last_ms);
		jtext_close(&j, '}');
		print_json_row(t->rows, (struct text){ buf, j.used });
	} else {
		print_denied(t, d);
	}
	t->rows++;
	return !ferror(stdout);
}

static int show_denies(struct show *s)
{
	CLEAN(reader) struct sqlite_reader *reader = NULL;
	struct table t = { .show = s };
	struct err err = { 0 };
	int r = show_open(s, &reader);

	if (r < 0)
		return SHOW_FAILED;
	s->query.max = s->spec.limit ? s->spec.limit : (size_t)LIMIT_DEFAULT;
	r = sqlite_top(reader, s->by, &s->query, on_denied, &t, &err);
	if (r < 0)
		return log_end(SHOW_FAILED, "%s", err.text);
	if (s->spec.json)
		print_json_end(t.rows);
	else if (t.rows == 0)
		puts("nothing was denied");
	return SHOW_OK;
}

/* ---- `weir learn --from` ----
 *
 * A policy, or the difference to one, from events that a sidecar, a
 * daemon or `weir run --state-dir` has stored. Nothing runs, and nothing is open. */

enum { KEPT = 8192 /* different ones of what passed, and of what was refused */ };

struct learner {
	struct event_ring *used, *refused;
	const struct plan *asked;
	uint64_t unread;
};

static void on_event(void *data, const struct event *given)
{
	const struct learner *l = data;
	struct event e = *given;

	/* What allowed it or refused it, and in which sandbox, doesn't matter. */
	e.rule = EVENT_NO_RULE;
	e.sandbox = 0;
	/* Not every store has it. */
	if (e.action == EVENT_DENY && !e.advice[0])
		advice_write(l->asked, &e, e.advice);
	if (e.action == EVENT_ALLOW)
		event_ring_add(l->used, &e);
	else if (e.action == EVENT_DENY)
		event_ring_add(l->refused, &e);
}

static bool on_row(void *data, int64_t id, const struct event_row *row)
{
	on_event(data, &row->event);
	return true;
}

static int read_rows(struct show *s, struct learner *l, struct err *err)
{
	CLEAN(reader) struct sqlite_reader *reader = NULL;
	int r;

	if (s->database)
		return show_read_postgres(s, s->database, on_event, l, &l->unread, err);
	r = show_open(s, &reader);
	if (r < 0)
		return r; /* said */
	s->query.max = SIZE_MAX / 2;
	s->query.oldest_first = true; /* of too many the oldest go */
	return sqlite_find(reader, &s->query, on_row, l, err);
}

static int print(const struct show *s, const struct learner *l, const struct plan *asked)
{
	const struct draft_args args = {
		.used = l->used,
		.refused = l->refused,
		.asked = asked,
		.refused_too = s->spec.diff != NULL,
		.program = s->spec.sandbox ?: "sandboxes",
		.unseen = event_ring_dropped(l->used) + event_ring_dropped(l->refused) +
			  l->unread,
	};
	struct draft d;

	if (draft_make(&d, &args) < 0)
		return log_end(SHOW_FAILED, "out of memory");
	if (s->spec.diff)
		draft_write_difference(&d, asked, s->spec.diff, stdout);
	else
		draft_write(&d, stdout);
	draft_done(&d);
	if (args.unseen > 0)
		log_warning("more different destinations than %d: the oldest are left "
			    "out",
			    KEPT);
	return SHOW_OK;
}

static int show_learn(struct show *s)
{
	const struct policy_args policy_args = { .file = s->spec.diff,
						 .verify = POLICY_VERIFY_TLS };
	struct plan asked;
	struct learner l = { event_ring_new(KEPT), event_ring_new(KEPT), &asked, 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct policy policy = { 0 };
	struct err err = { 0 };
	int r = 0, status = SHOW_FAILED;
	size_t size;

	if (!l.used || !l.refused)
		err_set(&err, -ENOMEM, "out of memory");
	else if ((r = cli_policy_build(&policy_args, &s->arena, true, &policy, &bytes,
				       &size)) < 0)
		status = run_status_of(r);
	else if (plan_open(bytes, size, &asked, &err) == 0 &&
		 (r = read_rows(s, &l, &err)) == 0)
		status = print(s, &l, &asked);
	else if (r == -EINVAL)
		status = SHOW_BAD_INPUT;
	if (status != SHOW_OK && err.text[0])
		log_error("%s", err.text);
	event_ring_free(l.used);
	event_ring_free(l.refused);
	return status;
}

/* ---- the program ---- */

static const struct verb {
	const char *name;
	int (*main)(struct show *s);
} verbs[] = { { "events", show_events },
	      { "denies", show_denies },
	      { "review", show_review },
	      { "learn", show_learn } };

static int run(struct show *s, int argc, char **argv)
{
	const struct verb *verb = argc > 0 ? TEXT_FIND(text_of(argv[0]), verbs) : NULL;
	struct err err = { 0 };
	int status;

	if (!verb)
		return log_end(
			SHOW_BAD_INPUT,
			"`weir events`, `denies`, `review` and `learn --from` start "
			"this program");
	if (cli_events_parse(argc, argv, &s->spec, &err) < 0 || read_options(s, &err) < 0)
		return log_end(SHOW_BAD_INPUT, "%s", err.text);
	status = verb->main(s);
	if (fflush(stdout) != 0 && status == SHOW_OK) {
		log_error("cannot write the output");
		status = SHOW_FAILED;
	}
	return status;
}

/* What other processes of Weir's start this program for: it alone has the store's library
 * and may write to it. */
static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
} services[] = { { "store", events_store }, { "review-command", review_command } };

int main(int argc, char **argv)
{
	struct show s = { .colour = term_has_colour(stdout),
			  .wrap = isatty(STDOUT_FILENO) == 1,
			  .width = term_width(stdout) };
	int status;

	if (settings_take(&argc, &argv) < 0)
		return SHOW_FAILED;
	for (size_t i = 0; i < ARRAY_SIZE(services); i++)
		if (argc > 1 && strcmp(argv[1], services[i].name) == 0)
			return services[i].main(argc - 1, argv + 1);
	prctl(PR_SET_NAME, PROGRAM_EVENTS);
	status = run(&s, argc - 1, argv + 1);
	arena_done(&s.arena);
	return status;
}
