// SPDX-License-Identifier: Apache-2.0
#include "run/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "events/jsonl.h"
#include "policy/advice.h"
#include "sandbox/sandbox.h"
#include "supervisor/program.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/socket_owner.h"

enum {
	WHAT_COLUMNS_MAX = 48,
	TIMES_SIZE = 32,
	SUGGESTIONS_MAX = 10, /* more than that is no list for a person */
	SHELL_WORD_SIZE = EVENT_ADVICE_SIZE + 2,
};

size_t report_count(const struct event_ring *ring, event_kind_fn *is_kind)
{
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++)
		n += is_kind(event_ring_at(ring, i));
	return n;
}

bool report_is_would(const struct event *e)
{
	return e->action == EVENT_ALLOW;
}

const struct plan *report_plan(const struct run_policy *newest, const struct event *e)
{
	const struct run_policy *p = run_policy_of(newest, e);

	return report_is_would(e) ? &p->asked : &p->plan;
}

uint64_t report_missed(const struct report *r)
{
	uint64_t all = sandbox_denied(r->counters), listed = 0;

	for (size_t i = 0; i < event_ring_count(r->ring); i++)
		if (event_is_refusal(event_ring_at(r->ring, i)))
			listed += event_ring_at(r->ring, i)->packets;
	return all > listed ? all - listed : 0;
}

uint64_t report_unchecked(const struct report *r)
{
	return r->would ? r->counters[COUNT_PASSED_DROPPED] : 0;
}

const char *report_audit_lost(const struct report *r, char buf[REPORT_LOST_SIZE])
{
	const uint64_t unjudged = report_unchecked(r);

	buf[0] = '\0';
	if (r->would_lost > 0 || unjudged > 0)
		snprintf(buf, REPORT_LOST_SIZE,
			 "and %" PRIu64 " more would have been refused; %" PRIu64
			 " that have passed were not judged",
			 r->would_lost, unjudged);
	return buf;
}

void report_check_advice(struct event *e)
{
	char ignored[ADVICE_RULE_SIZE];

	if (e->advice[0] && !advice_rule(e->advice, ignored))
		e->advice[0] = '\0';
}

/* A shell takes brackets for a pattern. */
static const char *shell_word(const char *advice, char *buf)
{
	const char *quote = advice[0] == '[' ? "'" : "";

	snprintf(buf, SHELL_WORD_SIZE, "%s%s%s", quote, advice, quote);
	return buf;
}

static void print_suggestions(FILE *out, const struct event_ring *ring)
{
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);
		char word[SHELL_WORD_SIZE];
		size_t same = 0;

		if (!e->advice[0])
			continue;
		while (same < i &&
		       strcmp(event_ring_at(ring, same)->advice, e->advice) != 0)
			same++;
		if (same < i)
			continue;
		if (n == 0)
			fputs("weir: to allow what is wanted:\n", out);
		if (++n > SUGGESTIONS_MAX)
			continue;
		fprintf(out, "weir:   --allow %s\n", shell_word(e->advice, word));
	}
	if (n > SUGGESTIONS_MAX)
		fprintf(out, "weir:   and %zu more like these; see --report\n",
			n - SUGGESTIONS_MAX);
}

static void print_events(FILE *out, const struct run_policy *policy,
			 const struct event_ring *ring, event_kind_fn *is_kind)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE], times[TIMES_SIZE];
	size_t columns = 0;

	/* As wide as the longest, up to a limit that leaves room for the reasons. */
	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (is_kind(event_ring_at(ring, i)))
			columns = MAX(columns,
				      strlen(report_what(event_ring_at(ring, i), what)));
	columns = MIN(columns, WHAT_COLUMNS_MAX);

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (!is_kind(e))
			continue;
		snprintf(times, sizeof(times), "%" PRIu64 " time%s", e->packets,
			 e->packets == 1 ? "" : "s");
		fprintf(out, "weir:   %-*s  %-7s  %s\n", (int)columns,
			report_what(e, what), times,
			report_why(report_plan(policy, e), e, why));
	}
}

static void print_people(FILE *out, const struct report *r)
{
	uint64_t missed = report_missed(r);
	char lost[REPORT_LOST_SIZE];

	if (report_count(r->failures, report_is_failure) > 0) {
		fputs("weir: allowed, but failed:\n", out);
		print_events(out, r->policy, r->failures, report_is_failure);
	}
	report_audit_lost(r, lost);
	if (r->would && event_ring_count(r->would) == 0 && !lost[0]) {
		fputs("weir: audit: the policy would have refused nothing of what has "
		      "passed\n",
		      out);
	} else if (r->would) {
		fputs("weir: audit: this has passed, and the policy would have refused "
		      "it:\n",
		      out);
		print_events(out, r->policy, r->would, report_is_would);
		if (lost[0])
			fprintf(out, "weir:   %s\n", lost);
		print_suggestions(out, r->would);
	}
	if (report_count(r->ring, report_is_refusal) == 0 && missed == 0)
		return;
	fputs("weir: refused:\n", out);
	print_events(out, r->policy, r->ring, report_is_refusal);
	print_suggestions(out, r->ring);
	if (r->stopped)
		fputs("weir: the command was ended: the policy's on_denies says stop\n",
		      out);
	if (missed > 0)
		fprintf(out, "weir: %" PRIu64 " more were counted only\n", missed);
}

/* --- an audit --- */

void report_would_note(struct event_ring *would, const struct run_policy *newest,
		       const struct event *e)
{
	struct plan asked = run_policy_of(newest, e)->asked;
	struct event refusal;

	plan_set_time(&asked, clock_wall_ms()); /* what has ended meanwhile */
	if (e->packets == 0 || !policy_would_refuse(&asked, e, &refusal))
		return;
	refusal.action = EVENT_ALLOW;
	event_ring_add(would, &refusal);
}

/* A connection says that the addresses of its name were looked up. */
static bool is_said_by_connection(const struct event_ring *ring, const struct event *e)
{
	if (e->layer != EVENT_DNS || !plan_serves_type(0, e->query_type))
		return false;
	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (event_ring_at(ring, i)->layer != EVENT_DNS &&
		    strcmp(event_ring_at(ring, i)->name, e->name) == 0)
			return true;
	return false;
}

uint64_t report_would_settle(struct event_ring **would)
{
	struct event_ring *all = *would, *ret;
	uint64_t lost = event_ring_dropped(all);

	ret = event_ring_new(event_ring_count(all) + 1);
	for (size_t i = 0; ret && i < event_ring_count(all); i++)
		if (!is_said_by_connection(all, event_ring_at(all, i)))
			event_ring_add(ret, event_ring_at(all, i));
	if (!ret)
		return lost;
	lost += event_ring_dropped(ret);
	event_ring_free(all);
	*would = ret;
	return lost;
}

/* --- while the command runs --- */

bool report_live_note(struct report_live *l, const struct event_ring *ring,
		      const struct event *e)
{
	char what[REPORT_WHAT_SIZE], other[REPORT_WHAT_SIZE];

	if (!report_is_refusal(e) && !report_is_failure(e))
		return false;
	report_what(e, what);
	for (size_t i = 0; i < event_ring_count(ring) && !l->more; i++)
		if (event_ring_at(ring, i)->action == e->action &&
		    strcmp(report_what(event_ring_at(ring, i), other), what) == 0)
			return false;
	if (l->count < REPORT_LIVE_MAX)
		l->events[l->count++] = *e;
	else
		l->more = true;
	return l->said < l->count || !l->more_said;
}

static bool may_say_now(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct termios t;

	if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT))
		return false;
	return tcgetattr(STDERR_FILENO, &t) < 0 ||
	       (t.c_lflag & ICANON && !(t.c_lflag & TOSTOP));
}

bool report_say_now(const char *text)
{
	sigset_t stop, before;

	if (!may_say_now())
		return false;
	/* The command can set TOSTOP, or take the foreground, after the look. */
	sigemptyset(&stop);
	sigaddset(&stop, SIGTTOU);
	sigprocmask(SIG_BLOCK, &stop, &before);
	log_write("%s", text);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return true;
}

void report_live_say(struct report_live *l, const struct run_policy *policy)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE], word[SHELL_WORD_SIZE];
	char line[2048];

	for (; l->said < l->count; l->said++) {
		const struct event *e = &l->events[l->said];

		snprintf(line, sizeof(line), "%s %s: %s%s%s",
			 report_is_failure(e) ? "failed" : "refused",
			 report_what(e, what), report_why(report_plan(policy, e), e, why),
			 e->advice[0] ? "; allow with --allow " : "",
			 e->advice[0] ? shell_word(e->advice, word) : "");
		if (!report_say_now(line))
			return;
	}
	if (l->more && !l->more_said)
		l->more_said = report_say_now("more is refused or fails: the end of the "
					      "run says all");
}

/* --- the end --- */

int report_end(struct report *r, int failure, int wait_status)
{
	struct err err = { 0 };

	r->ended_ms = clock_wall_ms();
	r->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
	r->failed = failure != 0;
	if (failure != 0)
		r->exit_status = failure;
	else if (r->stopped)
		r->exit_status = RUN_STATUS_STOPPED;
	else if (r->spec->fail_on_deny &&
		 (report_count(r->ring, report_is_refusal) > 0 || report_missed(r) > 0))
		r->exit_status = RUN_STATUS_DENIED;
	else
		r->exit_status = r->signal > 0 ? 128 + r->signal
					       : WEXITSTATUS(wait_status);
	if (failure == 0 && !r->spec->quiet)
		print_people(log_stream(), r);
	if (r->ring && report_write(r, &err) < 0)
		return log_end(RUN_STATUS_FAILED, "%s", err.text);
	return r->exit_status;
}

int report_leave(int status, int wait_status)
{
	if (log_release() < 0)
		status = RUN_STATUS_FAILED;
	if (WIFSIGNALED(wait_status) && status == 128 + WTERMSIG(wait_status))
		process_die_by(WTERMSIG(wait_status));
	return status;
}

/* === the store === */

enum { OPEN_MS = 10000, CLOSE_MS = 3000, LOOK_MS = 5 };

static int open_store(struct run_store *s, const char *directory, const char *id,
		      struct err *err)
{
	CLEAN(mem) char *copy = strdup(directory);
	CLEAN(fd) int ours = -1, theirs = -1;
	char *args[] = { copy, NULL };
	const struct helper writer = { .program = PROGRAM_EVENTS,
				       .service = "store",
				       .args = args,
				       .fds = &theirs,
				       .fd_count = 1 };
	int r = helper_check(PROGRAM_EVENTS, err);
	pid_t pid;

	if (r == 0)
		r = process_pair(&ours, &theirs, err);
	if (r < 0)
		return r;
	pid = copy ? helper_start(&writer) : -ENOMEM;
	if (pid < 0)
		return err_sys(err, pid, "cannot start " PROGRAM_EVENTS);
	*s = (struct run_store){ .pid = pid, .fd = TAKE_FD(ours), .sandbox = id };
	return 0;
}

int run_store_open(struct run_store *s, const char *directory, const char *id,
		   struct err *err)
{
	CLEAN(path) struct path found = { .fd = -1 };
	int r;

	if (!directory)
		return 0;
	/* By its canonical name: SQLite opens files by name, and follows no link. */
	r = path_open_made(directory, &found, err);
	if (r == 0 && found.untrusted)
		r = err_set(err, -ELOOP,
			    "'%s' is a link; name the directory that it leads to",
			    found.untrusted);
	else if (r == 0 && !S_ISDIR(found.st.st_mode))
		r = err_set(err, -ENOTDIR, "'%s' is not a directory", found.name);
	else if (r == 0 && faccessat(found.fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		r = err_sys(err, -errno, "cannot write to '%s'", found.name);
	if (r == 0)
		r = open_store(s, found.name, id, err);
	return r < 0 ? err_context(err, "cannot keep events") : 0;
}

int run_store_wait(const struct run_store *s, struct err *err)
{
	struct pollfd answered = { .fd = s->fd, .events = POLLIN };
	char text[ERR_TEXT_SIZE];
	ssize_t n;

	if (s->pid == 0)
		return 0;
	if (poll(&answered, 1, OPEN_MS) != 1)
		return err_set(err, -ETIMEDOUT, "cannot keep events: no answer");
	n = recv(s->fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return err_set(err, -EIO, "cannot keep events: who keeps them has ended");
	text[n] = '\0';
	return text[0] ? err_set(err, -EIO, "cannot keep events: %s", text) : 0;
}

void run_store_see(struct run_store *s, int diag, pid_t in)
{
	if (s->diag > 0) {
		close(diag);
		return;
	}
	s->diag = diag;
	s->in = in;
}

void run_store_look(struct run_store *s, struct event *e)
{
	const int64_t begun_ms = clock_now_ms();
	struct socket_owner_question w;
	struct owner_question q = { .among = OWNER_NETWORK,
				    .until_ms = begun_ms + SOCKET_OWNER_LOOK_MS };
	char network[OWNER_NETWORK_SIZE], process[16];
	struct owner o;

	e->pid = 0;
	e->command[0] = '\0';
	if (s->diag <= 0 || !socket_owner_question_of(e, begun_ms, clock_wall_ms(), &w) ||
	    !socket_owner_may(&s->pace, begun_ms))
		return;
	q.protocol = w.protocol;
	q.from = w.from;
	q.to = w.to;
	q.age_ms = begun_ms - w.at_ms;
	q.network = network;
	socket_owner_look(&s->pace);
	snprintf(process, sizeof(process), "%d", (int)s->in);
	if (owner_network(process, network) && owner_find(s->diag, &q, &o) == 0)
		socket_owner_take(e, &o);
	socket_owner_looked(&s->pace, clock_now_ms());
}

void run_store_add(struct run_store *s, const struct event *e, const struct plan *plan)
{
	struct event_row row;

	/* What only begins to pass is told when it has. */
	if (s->pid == 0 || (e->action == EVENT_ALLOW && e->packets == 0))
		return;
	event_row_fill(&row, e, s->sandbox, plan);
	event_row_compare(&row, plan);
	if (send(s->fd, &row, sizeof(row), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(row))
		s->lost += e->packets;
}

void run_store_close(struct run_store *s)
{
	const int64_t until_ms = clock_now_ms() + CLOSE_MS;
	int status = 0;

	if (s->diag > 0)
		close(s->diag);
	if (s->pid == 0)
		return;
	close(s->fd); /* it writes what it has, and ends */
	while (waitpid(s->pid, &status, WNOHANG) == 0) {
		if (clock_now_ms() > until_ms)
			kill(s->pid, SIGKILL);
		poll(NULL, 0, LOOK_MS);
	}
	if (s->lost > 0)
		log_warning("%" PRIu64 " events could not be kept in the store", s->lost);
	else if (status != 0)
		log_warning("events could not be kept in the store, for it was not "
			    "written in time");
	s->pid = 0;
}
