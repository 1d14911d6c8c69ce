// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "control/control.h"
#include "sys/process.h"
#include "sys/sock.h"

enum {
	HEAR_MAX = 4, /* times IPC_TURN_MAX: more than a channel holds */
	/* Everybody else waits as long as an engine or a daemon that is away is waited
	 * for: at most so long at once, and a tenth of the time in the long run. */
	PATIENCE_MS = 1000,
	PATIENCE_SHARE = 10,
	/* An engine or a daemon that is away has a successor by then, or lives on. */
	AWAY_EVERY_MS = 500,
	AWAY_LOOKS = 4,
};

static void on_engine(struct loop_source *source, uint32_t events);
static void on_supervisor(struct loop_source *source, uint32_t events);
static void on_away(struct loop_timer *t);

void control_link_init(struct control *s)
{
	for (size_t i = 0; i < IPC_ENGINES_MAX; i++)
		s->links[i] = (struct control_link){
			.side = s,
			.engine = (uint32_t)i,
			.from_engine = { .fd = -1, .on_ready = on_engine },
			.from_supervisor = { .fd = -1, .on_ready = on_supervisor },
			.away = { .on_fire = on_away },
		};
	s->link = &s->links[0];
	s->link_count = 1;
	/* A daemon may still have an answer for the control before us. */
	(void)!getrandom(&s->ask, sizeof(s->ask), GRND_NONBLOCK);
	s->ask |= 1;
}

/* ---- messages ---- */

/* The number here of the sandbox that has @id in the engine of @l. */
static uint32_t id_here(const struct control_link *l, uint32_t id)
{
	id &= IPC_SANDBOXES_MAX;
	return id == 0 ? 0 : id | l->engine << IPC_ENGINE_SHIFT;
}

static int receive(const struct control_link *l, int sock, struct ipc_message *ret,
		   int *ret_fd)
{
	size_t count = 0;
	int fd = -1, r = ipc_receive(sock, ret, &fd, 1, &count);

	*ret_fd = r == 0 && count == 1 ? fd : -1;
	if (r < 0)
		return r;
	ret->sandbox = id_here(l, ret->sandbox);
	if (ret->type == IPC_EVENT)
		ret->event.sandbox = id_here(l, ret->event.sandbox);
	return 0;
}

static int send_to(int sock, const struct ipc_message *m, const int *fds, size_t count)
{
	struct ipc_message there = *m;

	there.sandbox &= IPC_SANDBOXES_MAX;
	return ipc_send(sock, &there, fds, count);
}

/* Is @m one of the answers to @ask? */
static bool is_wanted(const struct control_answer *a, const struct ipc_message *ask,
		      const struct ipc_message *m)
{
	return m->ask == ask->ask && m->type != IPC_NONE &&
	       (m->type == a->yes || m->type == a->no || m->type == a->neither);
}

/* ---- the engine ---- */

/* An engine that ends gets a successor, which the supervisor introduces. One that has
 * only closed its channel to control, and answers the supervisor, would never be asked
 * for anything again: the supervisor is told of it. So is the first daemon of another one
 * that has closed its channel, or whose channel was closed here as it didn't answer. */
static void on_away(struct loop_timer *t)
{
	struct control_link *l = CONTAINER_OF(t, struct control_link, away);
	const bool has_daemon = l->from_supervisor.fd >= 0;
	const struct ipc_message stuck = { .type = IPC_STUCK,
					   .sandbox = has_daemon ? 0 : l->engine };

	if (l->from_engine.fd >= 0)
		return;
	if (++l->away_looks % AWAY_LOOKS == 0)
		control_send_daemon(has_daemon ? l : l->side->link, &stuck);
	loop_timer_need(l->side->loop, t, AWAY_EVERY_MS);
}

static void lose_engine(struct control_link *l)
{
	if (l->from_engine.fd < 0)
		return;
	loop_remove(l->side->loop, &l->from_engine);
	fd_close(&l->from_engine.fd);
	l->heard = false;
	l->is_active = false;
	l->away_looks = 0;
	loop_timer_need(l->side->loop, &l->away, AWAY_EVERY_MS);
}

/* What comes without having been asked for. */
static void on_engine_message(struct control *s, struct ipc_message *m)
{
	switch (m->type) {
	case IPC_EVENT:
		/* Of a launch that failed the name is the sandbox's, and control's own to
		 * say: an engine could write, and push out, what others have in the
		 * store. */
		if (s->many && m->event.action == EVENT_PANIC)
			m->event.name[0] = '\0';
		control_on_event(s, &m->event);
		break;
	case IPC_TROUBLE:
		control_on_trouble(s, &m->trouble);
		break;
	case IPC_ANSWERED:
		control_on_answered(s, m->sandbox, &m->answered);
		break;
	case IPC_ACTIVE:
		if (!s->many)
			control_on_status(s, &m->status);
		break;
	default:
		break;
	}
}

void control_drop_engine(struct control_link *l, int error)
{
	const struct ipc_message stuck = { .type = IPC_STUCK };

	lose_engine(l);
	if (error != -EPIPE)
		control_send_daemon(l, &stuck);
}

static void on_engine(struct loop_source *source, uint32_t events)
{
	struct control_link *l = CONTAINER_OF(source, struct control_link, from_engine);
	struct ipc_message m;
	int fd, r;

	for (int i = 0; i < IPC_TURN_MAX; i++) {
		r = receive(l, source->fd, &m, &fd);
		if (r < 0)
			break;
		clean_fd(&fd);
		on_engine_message(l->side, &m);
		if (source->fd < 0)
			return;
	}
	if (r < 0 && r != -EAGAIN)
		control_drop_engine(l, r);
}

void control_hear_engine(struct control_link *l)
{
	for (int i = 0; i < HEAR_MAX && l->from_engine.fd >= 0; i++)
		on_engine(&l->from_engine, EPOLLIN);
}

/* Wait until @fd can be read, until @until_ms. */
static int wait_for(int fd, int64_t until_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left_ms = until_ms - clock_now_ms();
	int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

int control_ask_engine(struct control_link *l, const struct ipc_message *m, int fd,
		       const struct control_answer *wanted, struct ipc_message *ret,
		       int *ret_fd)
{
	int64_t until_ms = clock_now_ms() + CONTROL_ASK_MS;
	int came = -1, r;

	if (l->from_engine.fd < 0)
		return -EPIPE;
	r = send_to(l->from_engine.fd, m, &fd, fd >= 0 ? 1 : 0);
	/* This user's processes, the app's maybe, have as many descriptors under way as
	 * the kernel lets them. Nothing was sent, and the engine is as it was. */
	if (r == -ETOOMANYREFS)
		return r;
	while (r == 0) {
		/* Dealing with what came in between may have found that it is gone. */
		r = l->from_engine.fd < 0 ? -EPIPE
					  : wait_for(l->from_engine.fd, until_ms);
		if (r == 0)
			r = receive(l, l->from_engine.fd, ret, &came);
		if (r == -EAGAIN)
			r = 0;
		else if (r == 0 && is_wanted(wanted, m, ret))
			break;
		else if (r == 0) {
			clean_fd(&came);
			on_engine_message(l->side, ret);
		}
	}
	if (r < 0) {
		control_drop_engine(l, r);
		return r;
	}
	if (ret_fd)
		*ret_fd = came;
	else
		clean_fd(&came);
	return 0;
}

bool control_engine_is_same(struct control_link *l)
{
	struct pollfd p = { .fd = l->from_engine.fd, .events = POLLRDHUP };

	if (l->from_engine.fd >= 0 && poll(&p, 1, 0) > 0)
		lose_engine(l);
	return l->heard;
}

void control_send_engine(struct control_link *l, const struct ipc_message *m)
{
	int r = l->from_engine.fd < 0 ? 0 : send_to(l->from_engine.fd, m, NULL, 0);

	if (r < 0 && r != -EAGAIN)
		control_drop_engine(l, r);
}

/* Its daemon is gone, and the engine with it; the first one has another started. */
static void lose_supervisor(struct control_link *l)
{
	if (l->from_supervisor.fd < 0)
		return;
	loop_remove(l->side->loop, &l->from_supervisor);
	fd_close(&l->from_supervisor.fd);
	lose_engine(l);
	loop_timer_need(l->side->loop, &l->away, AWAY_EVERY_MS);
}

void control_send_daemon(struct control_link *l, const struct ipc_message *m)
{
	if (l->from_supervisor.fd >= 0)
		(void)!send_to(l->from_supervisor.fd, m, NULL, 0);
}

int control_borrow_socket(struct control *s, struct ipc_socket *socket)
{
	const struct control_answer answer = { IPC_SOCKET, IPC_SOCKET };
	const struct ipc_message ask = { .type = IPC_SOCKET, .socket = *socket };
	struct ipc_message m;
	int fd = -1;
	int r = control_ask_engine(s->link, &ask, -1, &answer, &m, &fd);

	if (r < 0)
		return r;
	if (fd < 0)
		return m.socket.error < 0 ? m.socket.error : -EBADMSG;
	/* The engine's word. On another kind of socket, and on one that waits, control
	 * could stand still for minutes. The engine has the socket, too, and might have
	 * it wait again between two calls here: these are short in any case. */
	if (!sock_is_of(fd, (enum addr_family)socket->family, socket->protocol) ||
	    sock_limit_wait(fd) < 0 || process_dont_wait(fd) < 0) {
		close(fd);
		return -EBADMSG;
	}
	socket->port = m.socket.port;
	return fd;
}

static void take_engine(struct control_link *l, int fd)
{
	lose_engine(l);
	loop_timer_stop(l->side->loop, &l->away);
	l->from_engine.fd = fd;
	if (process_dont_wait(fd) < 0 ||
	    loop_add(l->side->loop, &l->from_engine, EPOLLIN) < 0) {
		control_drop_engine(l, -ENOMEM);
		return;
	}
	if (l->side->many)
		control_sandboxes_on_engine(l);
}

/* ---- the supervisor, or a daemon ---- */

static void take_daemon(struct control *s, const struct ipc_message *m, int fd)
{
	struct control_link *l = &s->links[m->sandbox % IPC_ENGINES_MAX];

	/* They come in turn. */
	if (l == s->link || l->engine > s->link_count) {
		close(fd);
		return;
	}
	lose_supervisor(l);
	l->daemon_restarts = m->status.restarts;
	l->from_supervisor.fd = fd;
	if (process_dont_wait(fd) < 0 ||
	    loop_add(s->loop, &l->from_supervisor, EPOLLIN) < 0 ||
	    control_sandboxes_on_link(l) < 0) {
		loop_stop(s->loop);
		return;
	}
	s->link_count = MAX(s->link_count, (size_t)l->engine + 1);
}

static void on_status(struct control_link *l, struct ipc_status *status)
{
	struct control *s = l->side;

	char *weaker = s->many ? l->lacking : s->status.weaker;

	if (!s->many)
		control_note_enforced(s, status->enforced);
	l->restarts = status->restarts;
	s->status.restarts = status->restarts;
	ipc_sanitize(status->weaker, sizeof(status->weaker));
	memcpy(weaker, status->weaker, sizeof(status->weaker));
	/* The first rules stand, and the API's sockets listen. */
	control_secure_listen(s);
	if (api_listen(s->api) < 0)
		loop_stop(s->loop);
}

static void on_supervisor_message(struct control_link *l, struct ipc_message *m, int fd)
{
	if (m->type == IPC_PEER && fd >= 0) {
		take_engine(l, fd);
		return;
	}
	if (m->type == IPC_ENGINE && fd >= 0 && l->side->many && l == l->side->link) {
		take_daemon(l->side, m, fd);
		return;
	}
	if (l->side->many)
		control_sandboxes_on_daemon(l, m);
	if (m->type == IPC_WEBHOOK && fd >= 0) {
		control_webhook_attach(l->side, fd);
		return;
	}
	if (m->type == IPC_SOCKET_OWNER && fd >= 0) {
		control_socket_owner_attach(l->side, fd);
		return;
	}
	if (m->type == IPC_ACTIVE)
		on_status(l, &m->status);
	clean_fd(&fd);
}

static void on_supervisor(struct loop_source *source, uint32_t events)
{
	struct control_link *l =
		CONTAINER_OF(source, struct control_link, from_supervisor);
	struct ipc_message m;
	int fd, r = receive(l, source->fd, &m, &fd);

	if (r == 0)
		on_supervisor_message(l, &m, fd);
	else if (r != -EAGAIN && l == l->side->link)
		loop_stop(l->side->loop);
	else if (r != -EAGAIN)
		lose_supervisor(l);
}

/* What @l's daemon says, or, while that is away, what the first one does. */
static int hear_supervisor(struct control_link *l, int64_t until_ms)
{
	struct control_link *from = l->from_supervisor.fd >= 0 ? l : l->side->link;
	struct ipc_message m;
	int fd, r = wait_for(from->from_supervisor.fd, until_ms);

	if (r < 0)
		return r;
	r = receive(from, from->from_supervisor.fd, &m, &fd);
	if (r == 0)
		on_supervisor_message(from, &m, fd);
	else if (r != -EAGAIN && from != from->side->link)
		lose_supervisor(from);
	else if (r != -EAGAIN)
		return r;
	return 0;
}

/* Wait for @awaited, the channel to @l's engine or daemon, which is away. */
static int wait_for_link(struct control_link *l, const struct loop_source *awaited)
{
	int64_t until_ms, now_ms;
	int r = 0;

	if (awaited->fd >= 0)
		return 0;
	now_ms = clock_now_ms();
	if (l->patience_ms < PATIENCE_MS)
		l->patience_ms =
			MIN(l->patience_ms + (now_ms - l->waited_at_ms) / PATIENCE_SHARE,
			    (int64_t)PATIENCE_MS);
	l->waited_at_ms = now_ms;
	until_ms = now_ms + l->patience_ms;
	while (r == 0 && awaited->fd < 0)
		r = hear_supervisor(l, until_ms);
	now_ms = clock_now_ms();
	l->patience_ms = MAX(l->patience_ms - (now_ms - l->waited_at_ms), (int64_t)0);
	l->waited_at_ms = now_ms;
	return r;
}

int control_ask_supervisor(struct control_link *l, const struct ipc_message *m,
			   const int *fds, size_t count,
			   const struct control_answer *wanted, struct ipc_message *ret,
			   int *ret_fd)
{
	bool is_slow = m->type == IPC_ADD || m->type == IPC_AGAIN ||
		       m->type == IPC_DETACH;
	int r = wait_for_link(l, &l->from_supervisor), fd = -1;
	struct ipc_message ask = *m;
	int64_t until_ms;

	if (r < 0)
		return r;
	ask.ask = l->side->ask += 2;
	until_ms = clock_now_ms() + (is_slow ? CONTROL_ATTACH_MS : CONTROL_ASK_MS);
	r = send_to(l->from_supervisor.fd, &ask, fds, count);
	while (r == 0) {
		/* What was heard meanwhile may have been its end. */
		r = l->from_supervisor.fd < 0 ? -EPIPE
					      : wait_for(l->from_supervisor.fd, until_ms);
		if (r == 0)
			r = receive(l, l->from_supervisor.fd, ret, &fd);
		if (r == 0 && is_wanted(wanted, &ask, ret))
			break;
		if (r == 0)
			on_supervisor_message(l, ret, fd);
		else if (r == -EAGAIN)
			r = 0;
	}
	/* One that does not answer gets a successor. The first one's silence is for
	 * whoever asked: without it there is no control. */
	if (r < 0 && l != l->side->link)
		lose_supervisor(l);
	if (r < 0)
		return r;
	if (ret_fd)
		*ret_fd = fd;
	else
		clean_fd(&fd);
	return 0;
}

int control_order(struct control_link *l, const struct ipc_message *m, const int *fds,
		  size_t count, uint32_t done, struct ipc_message *ret, struct err *err)
{
	const struct control_answer answer = { done, IPC_REFUSED, IPC_FULL };
	int r = control_ask_supervisor(l, m, fds, count, &answer, ret, NULL);

	if (r < 0)
		return err_sys(err, r, "the supervisor does not answer");
	if (ret->type == done)
		return 0;
	ipc_sanitize(ret->text, sizeof(ret->text));
	return err_set(err, ret->type == IPC_FULL ? -EMFILE : -EPERM, "%s", ret->text);
}

bool control_await_engine(struct control_link *l)
{
	return wait_for_link(l, &l->from_engine) == 0;
}

int control_link_open(struct control *s, struct err *err)
{
	int supervisor = INHERITED_FIRST + INHERITED_SUPERVISOR,
	    r = process_dont_wait(supervisor);

	s->link->from_supervisor.fd = supervisor;
	if (r == 0)
		r = loop_add(s->loop, &s->link->from_supervisor, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot hear the supervisor") : 0;
}

/* -- which engine gets a sandbox ---------------------------------------------------- */

/* A control group or a user goes to the first engine, which looks after the host's own
 * namespace. A network namespace goes to the engine that has the fewest sandboxes. Unless
 * a number of engines is given, there is one at first, and one more is started when each
 * has NOVELTY of them and there is a processor for it, or when all are full.
 *
 * With one engine its daemon knows all names and namespaces. With more of them only
 * control does: it asks first which namespace is meant. */

/* So many are audited within 100 ms, see ENGINE_AUDITS_MAX. */
enum { NOVELTY = 500 };

void control_namespace_key(const struct ipc_sandbox *spec, char ret[CONTROL_KEY_SIZE])
{
	ret[0] = '\0';
	if (spec->kind == ATTACH_NETNS && spec->ns_ino != 0)
		snprintf(ret, CONTROL_KEY_SIZE, "%llx %llu",
			 (unsigned long long)spec->ns_dev,
			 (unsigned long long)spec->ns_ino);
}

/* One whose engine is away gets none that another can have. */
static bool is_better(const struct control_link *l, const struct control_link *best)
{
	const bool is_there = l->from_engine.fd >= 0;

	if (!best || is_there != (best->from_engine.fd >= 0))
		return !best || is_there;
	return l->control_sandbox_count < best->control_sandbox_count;
}

static struct control_link *emptiest(struct control *s)
{
	struct control_link *best = NULL;

	for (size_t i = 0; i < s->link_count; i++) {
		struct control_link *l = &s->links[i];

		if (l->from_supervisor.fd >= 0 && !l->full && is_better(l, best))
			best = l;
	}
	return best;
}

/* Its engine takes a moment; nobody is to see the daemon without it. */
static int start_one_more(struct control *s, struct err *err)
{
	const struct ipc_message ask = { .type = IPC_MORE };
	size_t count = s->link_count;
	struct ipc_message m;
	int r = control_order(s->link, &ask, NULL, 0, IPC_MORE, &m, err);

	if (r < 0)
		return r;
	/* Nothing was there before it, so nobody waits until it has that. */
	s->links[count % IPC_ENGINES_MAX].known = s->link_count > count;
	/* Once, for a start. */
	s->links[count % IPC_ENGINES_MAX].patience_ms = CONTROL_ASK_MS;
	if (s->link_count == count || !control_await_engine(&s->links[count]))
		return err_set(err, -EMFILE, "another engine does not start");
	return 0;
}

static int choose(struct control *s, struct control_link **ret, struct err *err)
{
	struct err why = { 0 };
	size_t processors = 1;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		processors = (size_t)CPU_COUNT(&set);
	*ret = emptiest(s);
	if (s->spec.engines == 0 && s->link_count < IPC_ENGINES_MAX &&
	    (!*ret ||
	     ((*ret)->control_sandbox_count >= NOVELTY && s->link_count < processors))) {
		(void)!start_one_more(s, &why);
		*ret = emptiest(s);
	}
	if (*ret)
		return 0;
	return err_set(err, -EMFILE, "%s",
		       why.code < 0 ? why.text : "all engines are full");
}

int control_engine_choose(struct control *s, struct ipc_sandbox *spec,
			  struct control_link **ret, struct err *err)
{
	struct ipc_message ask = { .type = IPC_WHO }, m;
	struct index_entry *e = NULL;
	char key[CONTROL_KEY_SIZE];
	int r = 0;

	*ret = s->link;
	if (spec->kind != ATTACH_NETNS)
		return 0;
	r = choose(s, ret, err);
	if (r == 0 && s->link_count > 1 && spec->ns_ino == 0) {
		/* Which namespace is it, and is it another sandbox already? */
		ask.attached = *spec;
		r = control_order(s->link, &ask, NULL, 0, IPC_WHO, &m, err);
		if (r == 0) {
			spec->ns_dev = m.attached.ns_dev;
			spec->ns_ino = m.attached.ns_ino;
			control_namespace_key(spec, key);
			e = index_find(&s->sandboxes_by_key, key);
		}
		if (e)
			r = err_set(err, -EEXIST,
				    "sandbox '%s' is that network namespace already",
				    CONTAINER_OF(e, struct control_sandbox, by_key)
					    ->spec.name);
	}
	spec->engines = (uint32_t)s->link_count;
	return r;
}
