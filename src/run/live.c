// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The API (api/plain.c) shows a run as a daemon shows one of its sandboxes, so that the
 * same verbs ask. Here is what it does to a run: api_ops.
 *
 * A policy is read and compiled here and given to the engine, which puts it into the
 * kernel in one transaction and cuts what it forbids; that is waited for, and then the
 * answer leaves. Whatever fails leaves the old policy. An engine that says nothing for
 * ENGINE_PATIENCE_MS is not waited for any more; what it says later holds all the same.
 * The engine is asked over a channel of its own, which is made for the first question: a
 * run that nobody asks has none. */
#include "run/live.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "dns/message.h"
#include "event/json.h"
#include "outputs/client.h"
#include "policy/names.h"
#include "sandbox/plan_file.h"
#include "sandbox/sandbox.h"
#include "sys/files.h"
#include "sys/process.h"

/* === the socket === */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

enum { BACKLOG = 16, STATUS_MAX = 1 << 20, OPEN_TRIES = 10 };

/* --- who --- */

/* How many seccomp filters hold the process @name; before Linux 5.9 nobody can say. */
static int count_filters(const char *name, uint32_t *ret)
{
	static const char key[] = "\nSeccomp_filters:\t";
	CLEAN(file_bytes) struct file_bytes status = { 0 };
	CLEAN(fd) int fd = -1;
	char path[64];
	const char *at;
	int r;

	snprintf(path, sizeof(path), "/proc/%s/status", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : file_read_fd(fd, STATUS_MAX, &status);
	if (r < 0)
		return r;
	*ret = 0;
	at = strstr(status.bytes, key);
	if (!at)
		return 0;
	at += strlen(key);
	return text_to_u32((struct text){ at, strcspn(at, "\n") }, UINT32_MAX, ret)
		       ? 0
		       : -EBADMSG;
}

/* May the process ask whose connection @fd is?
 * It is held by a descriptor while it is looked at: a number may be another process' by
 * then. Before Linux 6.5 the socket has no such descriptor, and one that is made from the
 * number may already be the other process'. */
static bool admits(void *data, int fd)
{
	const struct live *l = data;
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);
	CLEAN(fd) int pid_fd = -1;
	struct pollfd alive = { .events = POLLIN };
	struct stat ours, theirs;
	uint32_t filters;
	char name[16], path[64];
	int held = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0 ||
	    peer.uid != geteuid())
		return false;
	size = sizeof(held);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &held, &size) < 0)
		held = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	alive.fd = pid_fd = held;
	snprintf(name, sizeof(name), "%d", (int)peer.pid);
	snprintf(path, sizeof(path), "/proc/%s/ns/user", name);
	if (pid_fd < 0 || stat("/proc/self/ns/user", &ours) < 0 ||
	    stat(path, &theirs) < 0 || !stat_is_same(&ours, &theirs))
		return false;
	/* The command of a `weir run` on the host has a filter that its caller has not.
	 */
	return count_filters(name, &filters) == 0 && filters <= l->filters &&
	       poll(&alive, 1, 0) == 0;
}

/* --- where --- */

/* In the directory @directory, open at @fd, under its lock: between the look at who
 * answers there and the new socket nobody else does the same. Any process of the user may
 * keep the lock for ever. */
static int open_in(struct live *l, int fd, const char *directory)
{
	char path[RUN_SOCKET_PATH_SIZE];
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int s = -1;
	struct stat st;
	int r;

	if (!run_socket_path(directory, l->id, path))
		return -ENAMETOOLONG;
	r = file_lock(fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -ENOENT;
	if (run_socket_answers(path))
		return -EADDRINUSE;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	memcpy(sa.sun_path, path, strlen(path));
	if (s < 0 || bind(s, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(s, BACKLOG) < 0)
		return -errno;
	l->fd = TAKE_FD(s);
	memcpy(l->path, path, sizeof(l->path));
	return 0;
}

/* Another run that ends may take the directory away while it is empty. */
static int open_at(struct live *l, size_t place)
{
	char directory[RUN_SOCKET_PATH_SIZE];
	int r = -ENOENT;

	for (int tries = 0; r == -ENOENT && tries < OPEN_TRIES; tries++) {
		CLEAN(fd) int fd = run_socket_place(place, true, directory);

		if (fd < 0)
			return fd;
		r = open_in(l, fd, directory);
	}
	return r;
}

/* Make it, in the first place that is fit. -EADDRINUSE: a run of that id is under way;
 * else, with @err: there is no place where it would be safe. */
static int open_socket(struct live *l, struct err *err)
{
	char other[RUN_SOCKET_PATH_SIZE];
	int r;

	r = count_filters("self", &l->filters);
	if (r < 0)
		return err_sys(err, r, "cannot find out who may ask");
	/* open_at() passes over a place whose lock is kept: the id may be taken. */
	r = run_socket_find(l->id, other) ? -EADDRINUSE : -ENOENT;
	for (size_t i = 0; i < RUN_SOCKET_PLACES && !l->path[0]; i++) {
		if (r != -EADDRINUSE)
			r = open_at(l, i);
		if (r == -EADDRINUSE)
			return err_set(err, r, "--id: '%s' is a run that is under way",
				       l->id);
	}
	return l->path[0] ? 0 : err_sys(err, r, "there is no safe place for its socket");
}

/* === what is asked for === */

/* Room at the end of the table. */
static struct review *add_task(struct live *l)
{
	struct run_reviews *r = &l->reviews;
	size_t gone = 0;

	if (!r->tasks)
		r->tasks = calloc(RUN_REVIEWS_MAX, sizeof(*r->tasks));
	if (!r->tasks || r->count < RUN_REVIEWS_MAX)
		return r->tasks ? &r->tasks[r->count++] : NULL;
	while (gone < r->count && r->tasks[gone].state == REVIEW_OPEN)
		gone++;
	if (gone == r->count)
		for (gone = 0; gone < r->count - 1 && l->is_asked(l, r->tasks[gone].id);)
			gone++;
	memmove(&r->tasks[gone], &r->tasks[gone + 1],
		(r->count - gone - 1) * sizeof(*r->tasks));
	return &r->tasks[r->count - 1];
}

struct review *run_reviews_find(const struct run_reviews *r, int64_t id)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->tasks[i].id == id)
			return &r->tasks[i];
	return NULL;
}

enum {
	COMMAND_SHOWN = 200, /* bytes */
	BODY_MAX = 16 << 20, /* of a request */
	ENGINE_PATIENCE_MS = 5000,
};

static const struct run_policy *policy_of(const struct live *l)
{
	return *l->newest;
}

/* === what is done to the run === */

/* --- the engine --- */

static void on_engine_says(struct loop_source *source, uint32_t events);

static int reach_engine(struct live *l, struct err *err)
{
	const struct ipc_message m = { .type = IPC_PEER };
	CLEAN(fd) int end = -1;
	int fd, r;

	if (l->engine.fd >= 0)
		return 0;
	r = process_pair(&fd, &end, err);
	if (r < 0)
		return r;
	l->engine = (struct loop_source){ .fd = fd, .on_ready = on_engine_says };
	r = process_dont_wait(fd);
	if (r == 0)
		r = loop_add(l->loop, &l->engine, EPOLLIN);
	if (r == 0)
		r = ipc_send(l->engine_fd, &m, &end, 1);
	if (r < 0) {
		loop_remove(l->loop, &l->engine);
		close(fd);
		l->engine.fd = -1;
		return err_sys(err, r, "cannot ask the engine");
	}
	return 0;
}

static int send_engine(struct live *l, const struct ipc_message *m, int plan_fd,
		       struct err *err)
{
	int r = reach_engine(l, err);

	if (r < 0)
		return r;
	r = ipc_send(l->engine.fd, m, &plan_fd, plan_fd < 0 ? 0 : 1);
	return r < 0 ? err_sys(err, r, "cannot ask the engine") : 0;
}

/* --- what the engine says --- */

static void advise_anew(struct live *l);

static void on_change_answer(struct live *l, struct ipc_message *m)
{
	struct run_policy *next = l->next;

	if (!next)
		return;
	l->next = NULL;
	if (m->type == IPC_UNCHANGED) {
		ipc_sanitize(m->text, sizeof(m->text));
		if (l->fault)
			err_set(l->fault, -EIO, "%s", m->text);
		run_policy_free(next);
		return;
	}
	next->number = policy_of(l)->number + 1;
	document_free(l->document);
	l->document = TAKE_PTR(l->next_document);
	l->on_policy(l, next);
	advise_anew(l);
}

/* Return: 0 once there is nothing more to hear now, or -errno: there never will be. */
static int hear_engine(struct live *l)
{
	struct ipc_message m;
	size_t count;
	int r = 0;

	for (int i = 0; i < IPC_TURN_MAX; i++) {
		r = ipc_receive(l->engine.fd, &m, NULL, 0, &count);
		if (r < 0)
			break;
		if (m.type == IPC_CHANGED || m.type == IPC_UNCHANGED) {
			on_change_answer(l, &m);
			m.type = IPC_CHANGED;
		} else if (m.type == IPC_STATS && l->counts) {
			l->counts->stats = m.stats;
		}
		if (m.type == l->awaited)
			l->awaited = IPC_NONE;
	}
	return r == -EAGAIN ? 0 : r;
}

/* Its end shows on the other channel, and is the run's. */
static void on_engine_says(struct loop_source *source, uint32_t events)
{
	struct live *l = CONTAINER_OF(source, struct live, engine);

	if (hear_engine(l) < 0)
		loop_remove(l->loop, source);
}

/* Send @type and wait for its answer; the loop stands still meanwhile. */
static int ask_engine(struct live *l, uint32_t type, int plan_fd, struct err *err)
{
	const struct ipc_message m = { .type = type };
	const int64_t until_ms = clock_now_ms() + ENGINE_PATIENCE_MS;
	int r = send_engine(l, &m, plan_fd, err);
	struct pollfd p = { .fd = l->engine.fd, .events = POLLIN };
	int64_t left_ms;

	l->awaited = type == IPC_CHANGE ? IPC_CHANGED : type;
	while (r == 0 && l->awaited != IPC_NONE &&
	       (left_ms = until_ms - clock_now_ms()) > 0) {
		if (poll(&p, 1, (int)left_ms) > 0 && hear_engine(l) < 0)
			r = err_set(err, -EPIPE, "the engine has ended");
	}
	if (r == 0 && l->awaited != IPC_NONE)
		r = err_set(err, -ETIMEDOUT, "the engine does not answer%s",
			    type == IPC_CHANGE ? "; the change may still take effect"
					       : "");
	l->awaited = IPC_NONE;
	return r;
}

/* --- the policy --- */

/* Without what .weir.yaml denies, which is put in front of each policy that comes. */
static struct document *document_of(const struct live *l, const struct run_policy *p)
{
	const size_t narrow = l->spec->policy.narrow.count;
	struct policy own = p->policy;
	CLEAN(mem) char *text = NULL;
	struct document *d = NULL;
	struct err ignored = { 0 };

	own.rules += narrow;
	own.count -= narrow;
	if (daemon_policy_json(&own, &p->asked, &text) == 0 &&
	    document_parse(text_of(text), NULL, NULL, &d, &ignored) < 0)
		d = NULL;
	return d;
}

/* What is in force is there as a document, and room for what is counted. Return: false:
 * out of memory. */
static bool is_ready(struct live *l)
{
	if (!l->document)
		l->document = document_of(l, policy_of(l));
	if (!l->counts)
		l->counts = calloc(1, sizeof(*l->counts));
	return l->document && l->counts;
}

static int begin_change(struct live *l, struct text text, struct err *err)
{
	CLEAN(fd) int plan_fd = -1;
	int r = run_policy_read(l->spec, NULL, text, &l->next, err);

	if (r < 0)
		return r;
	/* The engine was told once and for all which name servers it asks. */
	if (run_policy_asks_names(l->spec, l->next) && l->spec->upstreams.count == 0)
		return err_set(
			err, -EINVAL,
			"the policy has names, and no name server was known when the "
			"run began");
	document_free(l->next_document);
	l->next_document = document_of(l, l->next);
	if (!l->next_document)
		return err_set(err, -ENOMEM, "out of memory");
	plan_fd = plan_file_make(l->next->plan.bytes, l->next->plan.size, err);
	return plan_fd < 0 ? plan_fd : ask_engine(l, IPC_CHANGE, plan_fd, err);
}

/* An engine that was late with a change may still put it in force. */
static int check_pending(const struct live *l, struct err *err)
{
	return l->next ? err_set(err, -EBUSY, "another change is under way") : 0;
}

/* Put the policy @text in force. */
static enum api_failure set_policy(void *data, struct text text, struct err *err)
{
	struct live *l = data;
	int r;

	err->code = 0;
	if (check_pending(l, err) < 0)
		return API_FAILED_APPLY;
	l->fault = err;
	r = begin_change(l, text, err);
	l->fault = NULL;
	/* An engine that is late may still do it. */
	if (r != -ETIMEDOUT) {
		run_policy_free(l->next);
		l->next = NULL;
	}
	return r == -EINVAL	    ? API_FAILED_POLICY
	       : r < 0 || err->code ? API_FAILED_APPLY
				    : API_FAILED_NOT;
}

/* @next is taken. */
static enum api_failure change(void *data, struct document *next, struct err *err)
{
	CLEAN(mem) char *text = document_json(next, false);

	document_free(next);
	if (text)
		return set_policy(data, text_of(text), err);
	err_set(err, -ENOMEM, "out of memory");
	return API_FAILED_APPLY;
}

static const struct document *policy(void *data)
{
	return ((struct live *)data)->document;
}

static const struct plan *plan(void *data)
{
	return &policy_of(data)->plan;
}

static void log_change(void *data, const char *rules_json, const char *error,
		       bool callers_fault)
{
	((struct live *)data)->failures += error != NULL;
}

/* --- review tasks --- */

static void settle_task(struct review *t, enum review_state state, const char *who)
{
	t->state = state;
	t->decided_ms = clock_wall_ms();
	snprintf(t->who, sizeof(t->who), "%s", who);
}

struct review *live_note(struct live *l, const struct event *e)
{
	struct run_reviews *r = &l->reviews;
	const char *destination = e->name[0] ? e->name : ADDR_SHOWN(&e->remote);
	struct review *t = NULL;

	if (e->action != EVENT_ASK || !e->advice[0])
		return NULL;
	for (size_t i = 0; !t && i < r->count; i++) {
		struct review *old = &r->tasks[i];

		if (old->port == e->port && old->protocol == e->protocol &&
		    strcmp(old->destination, destination) == 0)
			t = old;
	}
	if (!t) {
		t = add_task(l);
		if (!t)
			return NULL;
		*t = (struct review){ .id = ++r->last_id,
				      .is_name = e->name[0] != '\0',
				      .port = e->port,
				      .protocol = e->protocol,
				      .first_ms = e->ts_ms };
		snprintf(t->sandbox, sizeof(t->sandbox), "%s", l->id);
		snprintf(t->destination, sizeof(t->destination), "%s", destination);
	}
	t->state = REVIEW_OPEN;
	t->who[0] = '\0';
	t->decided_ms = 0;
	t->packets += e->packets;
	t->rows++;
	t->last_ms = e->ts_ms;
	snprintf(t->advice, sizeof(t->advice), "%s", e->advice);
	lookalike_find(&policy_of(l)->plan, e->name, t->looks_like);
	return t;
}

/* A grant is added to the rule that decides now: it need not say what that one opens. */
static bool is_decided_by_own_rule(const struct plan *p, const struct review *t)
{
	struct plan_verdict v = { .rule = PLAN_NO_RULE };
	struct dns_name name;

	if (t->is_name && dns_name_parse(text_of(t->destination), &name) == 0)
		v = plan_match_name(p, &name);
	return v.rule != PLAN_NO_RULE &&
	       text_equal_nocase(text_of(plan_rule(p, v.rule).target), t->destination);
}

/* Under another policy another rule grants what is open, or none does. */
static void advise_anew(struct live *l)
{
	struct plan plan = policy_of(l)->plan;
	char advice[EVENT_ADVICE_SIZE];

	plan_set_time(&plan, clock_wall_ms());
	for (size_t i = 0; i < l->reviews.count; i++) {
		struct review *t = &l->reviews.tasks[i];
		struct event e = {
			.layer = t->port == 0 ? EVENT_DNS : EVENT_ADDRESS,
			.protocol = t->protocol,
			.port = t->port,
			.query_type = DNS_TYPE_A,
		};

		if (t->state != REVIEW_OPEN)
			continue;
		if (t->is_name)
			snprintf(e.name, sizeof(e.name), "%s", t->destination);
		else if (!addr_parse(t->destination, strlen(t->destination), &e.remote))
			continue;
		advice_write(&plan, &e, advice);
		if (!advice[0] || !t->advice[0] || !is_decided_by_own_rule(&plan, t))
			snprintf(t->advice, sizeof(t->advice), "%s", advice);
		lookalike_find(&plan, e.name, t->looks_like);
	}
}

int live_dismiss(struct live *l, struct review *t, const char *who, struct err *err)
{
	struct ipc_message m = {
		.type = IPC_DISMISS,
		.dismissed = { .protocol = t->protocol, .port = t->port },
	};
	int r;

	snprintf(m.dismissed.destination, sizeof(m.dismissed.destination), "%s",
		 t->destination);
	/* It may be the grant of this task, which would win. */
	r = check_pending(l, err);
	if (r == 0)
		r = send_engine(l, &m, -1, err);
	if (r == 0)
		settle_task(t, REVIEW_DISMISSED, who);
	return r;
}

int live_accept(struct live *l, struct review *t, const char *length, const char *who,
		struct err *err)
{
	struct document *granted = NULL;
	char rules[REVIEW_GRANT_SIZE];
	int r;

	if (!review_grant(t, length, rules))
		return err_set(err, -EPERM, "no rule can allow this");
	r = is_ready(l) ? document_grant(l->document, text_of(rules), clock_wall_ms(),
					 &granted, err)
			: err_set(err, -ENOMEM, "out of memory");
	if (r == 0 && change(l, granted, err) != API_FAILED_NOT)
		r = err->code;
	if (r == 0)
		settle_task(t, REVIEW_ACCEPTED, who);
	else
		l->failures++;
	return r;
}

static int reviews(void *data, enum review_state state,
		   bool (*on_task)(void *to, const struct review *t), void *to,
		   struct err *err)
{
	const struct run_reviews *all = &((struct live *)data)->reviews;

	for (size_t i = all->count; i-- > 0;)
		if ((state == REVIEW_NONE || all->tasks[i].state == state) &&
		    !on_task(to, &all->tasks[i]))
			break;
	return 0;
}

static int review(void *data, int64_t id, struct review *ret, struct err *err)
{
	const struct review *t = run_reviews_find(&((struct live *)data)->reviews, id);

	if (!t)
		return err_set(err, -ENOENT, "there is no such task");
	*ret = *t;
	return 0;
}

static int decide(void *data, int64_t id, enum review_state state, const char *who,
		  struct err *err)
{
	struct live *l = data;
	struct review *t = run_reviews_find(&l->reviews, id);

	if (!t)
		return err_set(err, -ENOENT, "there is no such task");
	if (state == REVIEW_DISMISSED)
		return live_dismiss(l, t, who, err);
	settle_task(t, state, who);
	return 0;
}

/* --- how it is --- */

static enum api_mode mode_of(const struct live *l)
{
	return plan_verify(&policy_of(l)->plan) == POLICY_VERIFY_TLS
		       ? API_MODE_DNS_NFT_TLS
		       : API_MODE_DNS_NFT;
}

/* Ask for what is counted, once a turn. Return: 0, or -errno: it was told earlier. */
static int read_stats(struct live *l)
{
	struct err ignored = { 0 };

	if (l->stats_ms != loop_now_ms(l->loop))
		l->stats_fault = ask_engine(l, IPC_STATS, -1, &ignored);
	l->stats_ms = loop_now_ms(l->loop);
	return l->stats_fault;
}

static void put(void *data, struct jtext *j)
{
	const struct live *l = data;
	char line[COMMAND_SHOWN], shown[4 * COMMAND_SHOWN];
	size_t used = 0;

	jtext_member(j, "id", l->id);
	jtext_member(j, "kind", "run");
	/* On one line. What isn't UTF-8 is escaped. */
	line[0] = '\0';
	for (size_t i = 0; l->spec->argv[i] && used < sizeof(line) - 1; i++)
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s",
					 i > 0 ? " " : "", l->spec->argv[i]);
	for (char *c = line; *c; c++)
		if (text_is_blank(*c))
			*c = ' ';
	jtext_member(j, "run",
		     jtext_is_utf8(text_of(line))
			     ? line
			     : text_escape(text_of(line), shown, sizeof(shown)));
	jtext_count(j, "pid", (uint64_t)getpid());
	jtext_count(j, "denies", sandbox_denied(l->counts->stats.counters));
}

static bool show(void *data, const char *id, struct jtext *j)
{
	struct live *l = data;

	(void)!read_stats(l);
	jtext_open(j, NULL, '{');
	put(l, j);
	jtext_member(j, "mode", api_mode_name(mode_of(l)));
	jtext_member(j, "policyMode", document_mode(l->document));
	jtext_count(j, "rules", policy_of(l)->policy.count);
	jtext_close(j, '}');
	return true;
}

static void list(void *data, struct jtext *j)
{
	jtext_open(j, NULL, '{');
	jtext_open(j, "sandboxes", '[');
	if (is_ready(data))
		(void)!show(data, NULL, j);
	else
		j->full = true;
	jtext_close(j, ']');
	jtext_close(j, '}');
}

static void status(void *data, struct api_status *ret)
{
	struct live *l = data;
	const struct run_policy *p;

	/* The engine's answer to an earlier change may come first, and replace the
	 * policy.
	 */
	ret->full_isolation = read_stats(l) == 0;
	p = policy_of(l);
	if (!ret->full_isolation)
		ret->degradations[ret->degradation_count++] =
			(struct api_degradation){ .what = "engine",
						  .reason = "it does not answer" };
	api_status_count(ret, l->counts->stats.counters, l->counts->counters);
	ret->mode = mode_of(l);
	ret->enforcement_mode = "dns+nft+tls";
	ret->sandbox_id = l->id;
	ret->since_ms = l->started_ms;
	ret->generation = p->number + 1;
	ret->learned_names = l->counts->stats.names;
	ret->learned_addresses = l->counts->stats.addresses;
	ret->rule_count = p->policy.count;
	ret->policy_updates = p->number;
	ret->policy_failures = l->failures;
	ret->plan = &p->plan;
}

static const struct event_ring *events(void *data)
{
	return *((struct live *)data)->ring;
}

static void row(void *data, const struct event *e, struct event_row *ret)
{
	const struct live *l = data;

	event_row_fill(ret, e, l->id, &run_policy_of(policy_of(l), e)->plan);
}

/* --- the one sandbox of the API --- */

static bool find(void *data, const char *id, struct api_ops *ret, uint32_t *ret_number)
{
	struct live *l = data;

	*ret = (struct api_ops){ .data = l,
				 .policy = policy,
				 .change = change,
				 .replace = set_policy,
				 .status = status,
				 .put = put,
				 .events = events,
				 .row = row,
				 .log_change = log_change,
				 .plan = plan,
				 .reviews = reviews,
				 .review = review,
				 .decide = decide };
	*ret_number = 0;
	return strcmp(id, l->id) == 0 && is_ready(l);
}

/* --- from its start to its end --- */

int live_open(struct live *l, const struct run_spec *spec, struct err *err)
{
	l->spec = spec;
	l->fd = l->engine.fd = -1;
	if (spec->id)
		snprintf(l->id, sizeof(l->id), "%s", spec->id);
	else
		snprintf(l->id, sizeof(l->id), "run-%d", (int)getpid());
	/* A caller who named the run means to ask it. */
	return spec->id ? open_socket(l, err) : 0;
}

void live_open_unnamed(struct live *l)
{
	struct err untold = { 0 };

	if (!l->spec->id)
		(void)!open_socket(l, &untold);
}

int live_serve(struct live *l, struct loop *loop, int engine_fd)
{
	const struct api_config config = {
		.loop = loop,
		.is_run = true,
		.listen_fd = l->fd,
		.open = true,
		.body_max = BODY_MAX,
		.sandboxes = { .data = l,
			       .find = find,
			       .list = list,
			       .show = show,
			       .admits = admits },
	};
	struct err err = { 0 };

	l->loop = loop;
	l->engine_fd = engine_fd;
	if (!l->path[0])
		return 0;
	l->fd = -1; /* the API's */
	l->api = api_plain_new(&config, &err);
	return l->api ? 0 : err.code;
}

void live_close(struct live *l)
{
	if (l->path[0]) {
		unlink(l->path);
		*strrchr(l->path, '/') = '\0';
		run_socket_leave(l->path);
	}
	l->path[0] = '\0';
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	api_plain_free(l->api);
	l->api = NULL;
	run_policy_free(l->next);
	l->next = NULL;
	document_free(l->next_document);
	document_free(l->document);
	l->next_document = l->document = NULL;
	free(l->counts);
	l->counts = NULL;
	free(l->reviews.tasks);
	l->reviews = (struct run_reviews){ 0 };
	if (!l->loop || l->engine.fd < 0)
		return;
	loop_remove(l->loop, &l->engine);
	close(l->engine.fd);
	l->engine.fd = -1;
}
