// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "api/diff.h"
#include "base/clock.h"
#include "base/http_status.h"
#include "base/log.h"
#include "event/json.h"
#include "events/review.h"
#include "opensandbox/policy_file.h"
#include "outputs/client.h"
#include "policy/edit.h"
#include "policy/limits.h"
#include "policy/load.h"
#include "policy/node.h"
#include "policy/rule.h"
#include "proto/run_socket.h"
#include "sys/files.h"
#include "sys/print.h"
#include "tools/events_show.h"

/* ---- tasks ---- */

struct listing {
	const struct show *show;
	size_t count;
};

/* ---- showing ---- */

static const char *target_of(const struct review *t)
{
	return t->destination[0] ? t->destination : "(more destinations than are listed)";
}

static bool print_task_line(void *data, const struct review *t)
{
	struct listing *l = data;
	char time[JTEXT_TIME_SIZE];
	char json[REVIEW_JSON_SIZE];

	l->count++;
	if (l->show->spec.json) {
		review_json(t, false, json);
		print_json_row(l->count - 1, text_of(json));
		return !ferror(stdout);
	}
	if (l->count == 1)
		printf("%5s  %-9s %8s  %-20s  %-12s %s\n", "task", "state", "packets",
		       "last", "sandbox", "destination");
	printf("%5" PRId64 "  %-9s %8" PRIu64 "  %s  %-12s %s", t->id,
	       review_state_name(t->state), t->packets,
	       jtext_time(t->last_ms, false, time),
	       SHOWN(t->sandbox[0] ? t->sandbox : "-"), SHOWN(target_of(t)));
	if (t->port > 0)
		printf(" port %u", t->port);
	if (t->looks_like[0])
		printf(", looks like %s (allowed)", SHOWN(t->looks_like));
	putchar('\n');
	return !ferror(stdout);
}

static int list_tasks(struct show *s, struct review_store *store, struct err *err)
{
	struct listing l = { .show = s };
	enum review_state state = REVIEW_OPEN;
	int r;

	if (s->spec.state && strcmp(s->spec.state, "all") == 0)
		state = REVIEW_NONE;
	else if (s->spec.state && !review_state_parse(s->spec.state, &state))
		return err_set(err, -EINVAL,
			       "--state: it is one of open, accepted, dismissed, all");
	r = review_list(store, state, s->spec.sandbox, print_task_line, &l, err);
	if (r < 0)
		return r;
	if (s->spec.json)
		print_json_end(l.count);
	else if (l.count == 0)
		puts("nothing waits to be decided");
	return 0;
}

enum {
	ROWS_MAX = 200, /* of the newest */
	NAMED_MAX = 4,	/* commands; the others are many */
	LOOK_MS = 500,
};

struct whose {
	const struct review *task;
	char commands[NAMED_MAX][EVENT_COMMAND_SIZE];
	size_t count;
	bool more;
};

static bool on_task_row(void *data, int64_t id, const struct event_row *row)
{
	struct whose *w = data;

	if ((row->event.action != EVENT_DENY && row->event.action != EVENT_ASK) ||
	    !row->event.command[0] ||
	    (!w->task->is_name && w->task->port != row->event.port))
		return true;
	for (size_t i = 0; i < w->count; i++)
		if (strcmp(w->commands[i], row->event.command) == 0)
			return true;
	w->more = w->count == NAMED_MAX;
	if (!w->more)
		memcpy(w->commands[w->count++], row->event.command, EVENT_COMMAND_SIZE);
	return !w->more;
}

/* It is said as well as it can be seen: nothing depends on it. */
static void print_whose(const struct show *s, const struct review *t)
{
	struct sqlite_query q = { .sandbox = t->sandbox,
				  .since_ms = t->first_ms,
				  .max = ROWS_MAX };
	CLEAN(reader) struct sqlite_reader *reader = NULL;
	struct whose w = { .task = t };

	if (t->is_name)
		q.name = t->destination;
	else if (!addr_parse(t->destination, strlen(t->destination), &q.remote))
		return;
	if (sqlite_reader_open(s->directory, LOOK_MS, &reader, NULL) < 0)
		return;
	if (sqlite_find(reader, &q, on_task_row, &w, NULL) == 0 && w.count > 0) {
		printf("process      ");
		for (size_t i = 0; i < w.count; i++)
			printf("%s%s", i > 0 ? ", " : "", SHOWN(w.commands[i]));
		puts(w.more ? ", ..." : "");
	}
}

static void print_task(const struct show *s, const struct review *t)
{
	char time[JTEXT_TIME_SIZE], buf[REVIEW_JSON_SIZE];

	if (s->spec.json) {
		review_json(t, false, buf);
		puts(buf);
		return;
	}
	printf("task         %" PRId64 ", %s\n", t->id, review_state_name(t->state));
	printf("sandbox      %s\n", SHOWN(t->sandbox[0] ? t->sandbox : "-"));
	printf("destination  %s", SHOWN(target_of(t)));
	if (t->port > 0)
		printf(" %s/%u", event_protocol_name(t->protocol, buf), t->port);
	if (t->looks_like[0])
		printf("\nlooks like   %s (allowed)", SHOWN(t->looks_like));
	printf("\ndenied       %" PRIu64 " packets in %" PRIu64 " events\n", t->packets,
	       t->rows);
	printf("first        %s\n", jtext_time(t->first_ms, false, time));
	printf("last         %s\n", jtext_time(t->last_ms, false, time));
	if (t->decided_ms > 0)
		printf("decided      %s by %s\n", jtext_time(t->decided_ms, false, time),
		       SHOWN(t->who));
	print_whose(s, t);
	printf("rule         %s\n", review_rule(t, buf) ? buf : "no rule can allow this");
}

/* ---- the policy ---- */

/* On stderr: standard output may be a program's. */
static void show_diff(const json_t *diff)
{
	for (size_t i = 0; i < json_array_size(diff); i++)
		fprintf(stderr, "%s\n", json_string_value(json_array_get(diff, i)));
	if (diff && json_array_size(diff) == 0)
		fputs("the policy has this rule already\n", stderr);
}

static bool is_answered_yes(void)
{
	char answer[16];

	return fgets(answer, sizeof(answer), stdin) &&
	       (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0);
}

static void warn_of_lookalike(const struct review *t)
{
	if (t->looks_like[0])
		log_warning("'%s' looks like '%s', which is allowed",
			    SHOWN(t->destination), SHOWN(t->looks_like));
}

/* Somebody says so: --yes, or an answer; two answers for what looks like another name. */
static bool is_wanted(const struct show *s, const struct review *t)
{
	warn_of_lookalike(t);
	if (s->spec.yes)
		return true;
	if (isatty(STDIN_FILENO) != 1) {
		log_error("there is no terminal to ask at: --yes says that it is wanted");
		return false;
	}
	fputs("add it? [y/N] ", stderr);
	if (!is_answered_yes())
		return false;
	if (!t->looks_like[0])
		return true;
	fprintf(stderr, "%s is not %s. add it all the same? [y/N] ",
		SHOWN(t->destination), SHOWN(t->looks_like));
	return is_answered_yes();
}

enum { OPEN_TRIES = 50 };

/* Open and lock the file @path. Who waited for the lock may have that of a file which
 * another one has replaced meanwhile: then the new one is waited for. Return: it, or
 * -errno. */
static int open_locked(const char *path, struct err *err)
{
	/* To lock on NFS a file has to be open for writing. */
	static const int flags[] = { O_RDWR, O_RDONLY };
	struct file_how how = { .anybodys = true, .follow = true };
	struct stat locked, now;

	for (int tries = 0; tries < OPEN_TRIES; tries++) {
		CLEAN(fd) int fd = -1;
		int r;

		for (size_t i = 0; fd < 0 && i < ARRAY_SIZE(flags); i++) {
			how.flags = flags[i];
			fd = file_open(AT_FDCWD, path, &how, err);
		}
		if (fd < 0)
			return fd;
		r = file_lock(fd);
		if (r < 0)
			return err_set(err, r, "cannot lock %s: %s", SHOWN(path),
				       r == -EWOULDBLOCK ? "another process has it locked"
							 : strerror(-r));
		if (fstat(fd, &locked) == 0 && stat(path, &now) == 0 &&
		    stat_is_same(&locked, &now))
			return TAKE_FD(fd);
	}
	return err_set(err, -EWOULDBLOCK,
		       "cannot lock %s: others replace it all the time", SHOWN(path));
}

/* An answer has been waited for: what @file says must be @before still. Whoever else
 * accepts a task holds the same lock; an editor holds none. */
static int write_policy(struct show *s, struct policy_file *file, struct text before,
			struct text text, struct err *err)
{
	CLEAN(fd) int fd = open_locked(file->path, err);
	struct text now;
	int r;

	if (fd < 0)
		return fd;
	r = policy_file_prepare(file, text, err);
	if (r < 0)
		return r;
	r = policy_file_read(file, &s->arena, &now, err);
	if (r == 0 && text_same(now, before))
		return policy_file_commit(file, err);
	policy_file_abort(file);
	return r < 0 ? r
		     : err_set(err, -ESTALE,
			       "%s has changed meanwhile, and is left as it is: accept "
			       "the task again",
			       SHOWN(file->path));
}

/* As the API does it, of the document @old of OpenSandbox's form, which @text is. */
static int add_to_document(struct show *s, const struct review *t,
			   struct policy_file *file, struct text text,
			   const struct document *old, const char *rule, struct err *err)
{
	CLEAN(document) struct document *next = NULL;
	const char *rules = arena_printf(&s->arena, "[%s]", rule) ?: "";
	CLEAN(json) json_t *diff = NULL;
	CLEAN(mem) char *json = NULL;
	int r = document_grant(old, text_of(rules), clock_wall_ms(), &next, err);

	/* Closed, or with a rule that has to be changed by hand: the file is at fault. */
	if (r < 0)
		return r == -EPERM ? -EINVAL : r;
	diff = document_diff(old, next);
	show_diff(diff);
	json = document_json(next, true);
	return !json			   ? err_set(err, -ENOMEM, "out of memory")
	       : document_equal(old, next) ? 0
	       : is_wanted(s, t) ? write_policy(s, file, text, text_of(json), err)
				 : -ECANCELED;
}

static int add_to_text(struct show *s, const struct review *t, struct policy_file *file,
		       struct text text, const char *rule, struct err *err)
{
	struct policy_edited a;
	int r = policy_edit(s->spec.policy, text, &rule, 1, false, &s->arena, &a, err);

	if (r < 0)
		return r == -ENOTSUP ? -EINVAL : r;
	if (a.count == 0) {
		fputs("the policy has this rule already\n", stderr);
		return 0;
	}
	fprintf(stderr, "%s:%u:\n+ - %s\n", SHOWN(s->spec.policy), a.line, a.rule);
	return is_wanted(s, t) ? write_policy(s, file, text, a.text, err) : -ECANCELED;
}

/* A document of OpenSandbox's is written as the API writes it; of everything else the
 * text stays, also of what has one key more (`network_policy`, `run`): what the document
 * doesn't know would be gone. Return: 0; -ECANCELED: it wasn't wanted; or another -errno.
 */
static int add_rule(struct show *s, const struct review *t, const char *rule,
		    struct err *err)
{
	struct policy_file file = { .path = s->spec.policy, .is_shared = true };
	CLEAN(document) struct document *d = NULL;
	struct text text;
	int r = policy_file_read(&file, &s->arena, &text, err);

	if (r < 0)
		return r == -ENOMEM ? r : -EINVAL;
	if (text_trim(text).len > 0 && text_trim(text).ptr[0] == '{' &&
	    document_parse_strict(text, &d, NULL) == 0)
		return add_to_document(s, t, &file, text, d, rule, err);
	return add_to_text(s, t, &file, text, rule, err);
}

static const char *who_decides(const struct show *s)
{
	const struct passwd *me = s->spec.who ? NULL : getpwuid(getuid());

	if (s->spec.who)
		return s->spec.who;
	return me ? me->pw_name : "unknown";
}

/* --- deciding by who guards the sandbox, whose policy changes --- */

enum { PATH_SIZE = 1024 };

static int ask_guard(struct show *s, const char *socket, const char *method,
		     const char *path, const char *body, json_t **ret, struct err *err)
{
	struct client_reply reply;
	int r = client_ask(socket, method, path, text_of(body), &s->arena, &reply, err);

	if (r < 0)
		return r;
	if (reply.status != HTTP_OK)
		return err_set(err, -EIO, "it is refused: %s",
			       client_reason(&reply, &s->arena));
	*ret = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	return json_is_object(*ret) ? 0 : err_set(err, -EBADMSG, "the answer is no JSON");
}

/* Letters, digits and -_. as they are, all else as %XX. */
static void escape(const char *text, char *buf, size_t size)
{
	size_t used = 0;

	for (; *text && used + 4 <= size; text++) {
		if (strchr(TEXT_NAME_LETTERS, *text))
			buf[used++] = *text;
		else
			used += (size_t)snprintf(buf + used, 4, "%%%02X",
						 (unsigned char)*text);
	}
	buf[used] = '\0';
}

/* A run knows its tasks by other numbers: one open about the same. Return: its number, 0:
 * there is none. */
static int64_t task_of_run(const json_t *list, const struct review *t)
{
	const json_t *tasks = json_object_get(list, "tasks"), *task;
	char buf[8];
	const char *const protocol = event_protocol_name(t->protocol, buf);
	size_t i;

	json_array_foreach(tasks, i, task)
	{
		const char *d = json_string_value(json_object_get(task, "destination"));
		const char *by = json_string_value(json_object_get(task, "protocol"));
		const json_t *port = json_object_get(task, "port");

		if (d && strcmp(d, t->destination) == 0 &&
		    strcmp(by ?: "", protocol) == 0 &&
		    json_integer_value(port) == t->port)
			return json_integer_value(json_object_get(task, "id"));
	}
	return 0;
}

/* --for as a rule's `for`; "": not given. */
static const char *length_of(const struct show *s, char buf[POLICY_WINDOW_SIZE])
{
	buf[0] = '\0';
	if (s->spec.for_ms > 0)
		policy_window_text((uint32_t)(s->spec.for_ms / 1000), buf);
	return buf;
}

/* The number of @t where it is asked; what accepting it would change is shown. */
static int live_find(struct show *s, const struct review *t, const char *socket,
		     bool accept, int64_t *ret, struct err *err)
{
	const bool of_run = socket != s->spec.socket;
	char path[PATH_SIZE], rule[REVIEW_ENDED_SIZE], length[POLICY_WINDOW_SIZE];
	const char *destination;
	CLEAN(json) json_t *j = NULL;
	int r;

	snprintf(path, sizeof(path), "/sandboxes/%s/review", t->sandbox);
	if (!of_run)
		snprintf(path, sizeof(path), "/sandboxes/%s/review/%" PRId64, t->sandbox,
			 t->id);
	r = ask_guard(s, socket, "GET", path, "", &j, err);
	*ret = of_run && r == 0 ? task_of_run(j, t) : t->id;
	/* Another store has other tasks under the same numbers. */
	destination = json_string_value(json_object_get(j, "destination"));
	if (r == 0 && *ret == 0)
		r = err_set(err, -ENOENT, "the run asks for this no more");
	else if (r == 0 && !of_run &&
		 (!destination || strcmp(destination, t->destination) != 0))
		r = err_set(err, -ESTALE, "the daemon has another store than this one");
	if (r == 0 && accept && of_run &&
	    review_rule_until(t, "for", length_of(s, length), rule))
		fprintf(stderr, "+ %s\n", rule);
	else if (r == 0 && accept && !of_run)
		show_diff(json_object_get(j, "diff"));
	return r;
}

/* Have @t decided by who guards its sandbox: what waits for it goes on, or is refused.
 * Return: 0; -ECANCELED: it wasn't wanted; or another -errno. */
static int live_decide(struct show *s, const struct review *t, bool accept,
		       struct err *err)
{
	char path[PATH_SIZE], who[3 * REVIEW_WHO_SIZE], run[RUN_SOCKET_PATH_SIZE];
	char rule[REVIEW_RULE_SIZE], length[POLICY_WINDOW_SIZE];
	const char *socket = client_guard(s->spec.socket, t->sandbox, run), *body = "";
	CLEAN(json) json_t *j = NULL;
	int64_t id;
	int r;
	if (!ipc_is_sandbox_name(t->sandbox))
		return err_set(err, -EINVAL, "this is no sandbox of a daemon's");
	r = live_find(s, t, socket, accept, &id, err);
	if (r == 0 && accept && !is_wanted(s, t))
		r = -ECANCELED;
	if (r < 0)
		return r;
	escape(who_decides(s), who, sizeof(who));
	snprintf(path, sizeof(path), "/sandboxes/%s/review/%" PRId64 "/%s?who=%s",
		 t->sandbox, id, accept ? "accept" : "dismiss", who);
	/* The rule as it was shown, since the sandbox may have changed the task. */
	if (accept && review_rule(t, rule))
		body = length_of(s, length)[0]
			       ? arena_printf(&s->arena, "{\"rule\":%s,\"for\":\"%s\"}",
					      rule, length)
			       : arena_printf(&s->arena, "{\"rule\":%s}", rule);
	if (!body)
		return err_set(err, -ENOMEM, "out of memory");
	return ask_guard(s, socket, "POST", path, body, &j, err);
}

/* ---- deciding ---- */

static int accept_task(struct show *s, const struct review *t, struct err *err)
{
	char rule[REVIEW_ENDED_SIZE], end[JTEXT_TIME_SIZE] = "";

	if (s->spec.for_ms > 0)
		jtext_time(clock_wall_ms() + s->spec.for_ms, true, end);
	if (!review_rule_until(t, "until", end, rule))
		return err_set(err, -EINVAL, "no rule can allow this");
	if (s->spec.live)
		return live_decide(s, t, true, err);
	if (s->spec.policy)
		return add_rule(s, t, rule, err);
	warn_of_lookalike(t);
	if (!s->spec.json)
		printf("neither --policy nor --live is given; what it needs is this "
		       "rule:\n%s\n",
		       rule);
	return 0;
}

static int decide(struct show *s, struct review_store *store, const struct review *t,
		  struct err *err)
{
	const bool accept = strcmp(s->spec.word, "accept") == 0;
	struct review now;
	char run[RUN_SOCKET_PATH_SIZE];
	int r = accept	       ? accept_task(s, t, err)
		: s->spec.live ? live_decide(s, t, false, err)
			       : 0;

	/* The daemon has noted it. */
	if (r == 0 &&
	    !(s->spec.live && client_guard(s->spec.socket, t->sandbox, run) != run))
		r = review_decide(store, t->id,
				  accept ? REVIEW_ACCEPTED : REVIEW_DISMISSED,
				  who_decides(s), clock_wall_ms(), err);
	if (r == 0)
		r = review_find(store, t->id, &now, err);
	if (r == 0 && s->spec.json)
		print_task(s, &now);
	return r;
}

int show_review(struct show *s)
{
	CLEAN(review) struct review_store *store = NULL;
	struct err err = { 0 };
	struct review t;
	int r = review_open(s->directory, &store, &err);

	if (r < 0)
		err_context(&err, "%s", SHOWN(s->directory));
	else if (strcmp(s->spec.word, "list") == 0)
		r = list_tasks(s, store, &err);
	else if ((r = review_find(store, s->spec.id, &t, &err)) < 0)
		r = r == -ENOENT ? -EINVAL : r;
	else if (strcmp(s->spec.word, "show") == 0)
		print_task(s, &t);
	else
		r = decide(s, store, &t, &err);
	if (r < 0 && err.text[0])
		log_error("%s", err.text);
	return r == 0				? SHOW_OK
	       : r == -ECANCELED		? SHOW_UNWANTED
	       : r == -EINVAL || r == -EALREADY ? SHOW_BAD_INPUT
						: SHOW_FAILED;
}
