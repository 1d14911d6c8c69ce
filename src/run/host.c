// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The place is found or made, the daemon attaches it and answers when its filter was
 * tested, and only then is there a child. It joins, and becomes the command. Whatever
 * fails before that ends with failed_safety_setup, and takes back what was done.
 *
 * Nobody is set free: the daemon lets go of the place when nobody is left in it. A cgroup
 * that was made here is emptied for that; elsewhere who is left stays guarded, and is
 * told. If this process is killed the command dies with it, and its children stay guarded
 * where they are. */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/http_status.h"
#include "base/jansson.h"
#include "base/log.h"
#include "event/event.h"
#include "events/jsonl.h"
#include "launch/launch.h"
#include "launch/std_fds.h"
#include "outputs/client.h"
#include "policy/plan.h"
#include "policy/rule.h"
#include "run/needs.h"
#include "run/options.h"
#include "run/policies.h"
#include "run/report.h"
#include "sandbox/sandbox.h"
#include "settings/settings.h"
#include "supervisor/init.h"
#include "sys/cgroup.h"
#include "sys/confine.h"
#include "sys/process.h"
#include "sys/tasks.h"

/* === the daemon === */

enum { RUN_DAEMON_ID_SIZE = 64 };

struct run_daemon {
	const char *socket;	     /* NULL: as client_ask() has it */
	char id[RUN_DAEMON_ID_SIZE]; /* "": nothing is attached */
};

enum { DENIES_MAX = 1000, NEWEST = 64 };

/* ---- asking ---- */

static int read_reply(const struct client_reply *reply, struct arena *arena, json_t **ret,
		      struct err *err)
{
	if (reply->status >= HTTP_MULTIPLE)
		return err_set(err, -EPERM, "%s", client_reason(reply, arena));
	*ret = json_loadb(reply->body.ptr, reply->body.len, 0, NULL);
	return *ret ? 0 : err_set(err, -EBADMSG, "the daemon's answer is no JSON");
}

static int ask(const struct run_daemon *d, const char *method, const char *below,
	       json_t **ret, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "/sandboxes/%s%s", d->id, below);
	struct client_reply reply;
	int r;

	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	r = client_ask(d->socket, method, path, text_of(""), &arena, &reply, err);
	return r < 0 ? r : read_reply(&reply, &arena, ret, err);
}

/* ---- attach, detach ---- */

/* What is guarded: @cgroup, a directory, or, where that is NULL, @uid; as @id, NULL: by
 * one of its own. On success the daemon has read its filter back and tested it. */
static int run_daemon_attach(struct run_daemon *d, const char *id, const char *cgroup,
			     uint32_t uid, const struct run_policy *p, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) char *text = NULL;
	struct client_wish wish = { .cgroup = cgroup, .uid = cgroup ? 0 : uid };
	struct client_reply reply;
	CLEAN(json) json_t *answer = NULL;
	uint32_t number = 0;
	struct stat st;
	int r;

	if (!id && getrandom(&number, sizeof(number), 0) != sizeof(number))
		return err_sys(err, -errno, "cannot get a random number");
	if (id)
		snprintf(d->id, sizeof(d->id), "%s", id);
	else
		snprintf(d->id, sizeof(d->id), "run-%d-%08" PRIx32, (int)getpid(),
			 number);
	r = daemon_policy_json(&p->policy, &p->plan, &text);
	if (r < 0)
		err_set(err, r, "out of memory");
	wish.policy = text;
	if (r == 0)
		r = client_attach(d->socket, d->id, &wish, &arena, &reply, err);
	if (r == 0)
		r = read_reply(&reply, &arena, &answer, err);
	if (r < 0) {
		d->id[0] = '\0';
		return r;
	}
	/* What the host's filter doesn't meet it doesn't guard. */
	if (stat("/proc/self/ns/net", &st) == 0 &&
	    json_integer_value(json_object_get(answer, "network")) ==
		    (json_int_t)st.st_ino)
		return 0;
	return err_set(err, -EXDEV,
		       "this is another network namespace than the daemon's, whose "
		       "filter no packet from here meets");
}

/* ---- what was denied ---- */

static const char *text_at(const json_t *j, const char *key)
{
	const char *text = json_string_value(json_object_get(j, key));

	return text ? text : "";
}

static uint64_t number_at(const json_t *j, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(j, key));

	return n > 0 ? (uint64_t)n : 0;
}

static void add_denial(const json_t *j, const struct plan *plan, int64_t now_ms,
		       struct event_ring *ring)
{
	const char *ip = text_at(j, "remote_ip"), *rule = text_at(j, "rule");
	struct event e = {
		.ts_ms = now_ms,
		.packets = MAX(number_at(j, "packets"), UINT64_C(1)),
		.bytes = number_at(j, "bytes"),
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.port = (uint16_t)number_at(j, "remote_port"),
		.query_type = (uint16_t)number_at(j, "query_type"),
		.action = EVENT_DENY,
		.layer = (uint8_t)event_layer_find(text_at(j, "layer")),
		.protocol = event_protocol_find(text_at(j, "protocol")),
		.allowable = json_is_true(json_object_get(j, "allowable")),
	};

	/* The daemon's rules are ours, in another document. */
	for (uint32_t i = 0;
	     rule[0] && e.rule == EVENT_NO_RULE && i < plan_rule_count(plan); i++) {
		struct plan_rule r = plan_rule(plan, i);
		char text[320];

		snprintf(text, sizeof(text), "%s %s", policy_action_name(r.action),
			 r.target);
		if (strcmp(text, rule) == 0)
			e.rule = i;
	}
	(void)!timestamp_parse(text_of(text_at(j, "ts")), &e.ts_ms);
	if (json_is_integer(json_object_get(j, "uid")))
		e.uid = (uint32_t)number_at(j, "uid");
	if (ip[0] && !addr_parse(ip, strlen(ip), &e.remote))
		return;
	snprintf(e.name, sizeof(e.name), "%s", text_at(j, "name"));
	event_set_reason(&e, text_at(j, "reason"));
	snprintf(e.advice, sizeof(e.advice), "%s", text_at(j, "allow"));
	report_check_advice(&e);
	event_ring_add(ring, &e);
}

/* The newest are first there. */
static int read_denies(const struct run_daemon *d, const struct plan *plan, int most,
		       struct event_ring *ring, struct err *err)
{
	const int64_t now_ms = clock_wall_ms();
	CLEAN(json) json_t *j = NULL;
	const json_t *list;
	char below[64];
	int r;

	snprintf(below, sizeof(below), "/denies?limit=%d", most);
	r = ask(d, "GET", below, &j, err);
	if (r < 0)
		return r;
	list = json_object_get(j, "denies");
	for (size_t i = json_array_size(list); i-- > 0;)
		add_denial(json_array_get(list, i), plan, now_ms, ring);
	return 0;
}

/* The daemon has closed it: too much was denied. Who can't be asked hasn't said so. */
static bool run_daemon_is_closed(const struct run_daemon *d)
{
	CLEAN(json) json_t *j = NULL;
	struct err ignored = { 0 };

	return d->id[0] && ask(d, "GET", "/status", &j, &ignored) == 0 &&
	       json_is_string(json_object_get(j, "closed"));
}

/* === the child === */

/* In the one safe order: nothing open but 0 to 2, in the cgroup, the user's ids, no
 * capability, no new privileges, the calls of `weir run` alone, then the command.
 *
 * The child tells what failed through a pipe that the exec closes: when its end is read
 * without a word before it, the command runs. There is one thread, so the child may do
 * what any process may. What is closed first is closed for good: a socket of before the
 * cgroup would not be matched by it. */

/* Where it lives: the control group, made for it or not, or a user. */
struct run_place {
	struct cgroup cgroup; /* path "": by user id */
	int dir;      /* its directory, whatever becomes of the path; owned, -1: none */
	bool made;    /* the cgroup is ours to remove */
	uint32_t uid; /* whom the command runs as */
};

/* Who the command is: found before the fork, as much as can be. */
struct run_member {
	const struct run_place *place;
	char *const *argv, *const *environment; /* the command's */
	const char *name, *home, *shell; /* of whom --uid names; NULL: the caller's */
	uint32_t gid;
	gid_t *groups; /* owned */
	size_t group_count;
	bool becomes;			 /* ids are to be changed */
	struct sigaction on_closed_pipe; /* what the caller has it do at SIGPIPE */
};

/* ---- where the command lives ---- */

enum {
	CLEAR_MS = 5000, /* killed processes may be slow to go */
	CLEAR_LOOK_MS = 5,
	/* A process that forks and ends while /proc is read is found by the next look:
	 * its number only grows, but for when all have been used once more. */
	LOOKS = 3,
};

/* Find or make it, for @uid. */
static int run_place_open(const struct run_spec *spec, uint32_t uid,
			  struct run_place *ret, struct err *err)
{
	char path[CGROUP_PATH_MAX];

	*ret = (struct run_place){ .uid = uid, .dir = -1 };
	if (uid == 0)
		return err_set(err, -EPERM,
			       "the command would be root, whom nothing holds on a host: "
			       "name a user with --uid");
	if (!spec->cgroup)
		return 0;
	/* As `weir attach` has it: from the root of the hierarchy. */
	snprintf(path, sizeof(path), "%s%s", spec->cgroup[0] == '/' ? "" : "/",
		 spec->cgroup);
	if (cgroup_make(path, &ret->cgroup, &ret->made, err) < 0)
		return err->code;
	ret->dir = open(ret->cgroup.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? err_sys(err, -errno, "cannot open the cgroup") : 0;
}

/* ---- a cgroup ---- */

/* One by one, where the kernel has no cgroup.kill. */
static void kill_each(const struct run_place *p)
{
	CLEAN(fd) int fd = openat(p->dir, "cgroup.threads", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(TAKE_FD(fd), "r");
	char line[32];
	uint32_t pid;

	while (f && fgets(line, sizeof(line), f))
		if (text_to_u32(text_trim(text_of(line)), INT32_MAX, &pid) && pid > 1)
			kill((pid_t)pid, SIGKILL);
	if (f)
		fclose(f);
}

/* ---- a user ---- */

/* Whose processes are looked for. */
struct user_search {
	uint32_t uid;
	bool has_other; /* a thread of the process has other ids */
};

/* One of its four ids is @data's. A dead thread sends nothing. */
static int is_of(void *data, const struct task *t)
{
	struct user_search *s = data;
	CLEAN(fd) int fd = openat(t->dir, "status", O_RDONLY | O_CLOEXEC);
	char text[1024];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *state, *ids;
	struct text left, word;
	uint32_t number;

	if (n < 0)
		return -errno;
	text[n] = '\0';
	state = strstr(text, "\nState:\t");
	ids = strstr(text, "\nUid:\t");
	if (!state || !ids)
		return -EBADMSG;
	if (state[8] == 'Z' || state[8] == 'X')
		return 0;
	ids += 6;
	left = (struct text){ ids, strcspn(ids, "\n") };
	while (text_split(&left, '\t', &word))
		if (text_to_u32(word, UINT32_MAX, &number) && number == s->uid)
			return 1;
	s->has_other = true;
	return 0;
}

/* Threads of one process have different ids only where somebody else's rights gave them:
 * root's, or newuidmap's, which the command can't start. So a process of somebody else,
 * which makes threads faster than they are looked at, is not this user's. */
static int is_process_of(void *data, int proc, pid_t pid)
{
	struct user_search s = { .uid = *(const uint32_t *)data };
	int r = tasks_each(proc, pid, is_of, &s);

	return r == -ESRCH || (r == -EAGAIN && s.has_other) ? 0 : r;
}

/* ---- the end ---- */

/* Nobody is in the cgroup, nor in those below it; or the user has no process. What can't
 * be read counts as somebody, a cgroup that is gone does not. */
static bool is_clear(const struct run_place *p)
{
	uint32_t uid = p->uid;

	if (p->cgroup.path[0]) {
		CLEAN(fd)
		int fd = openat(p->dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
		char text[256];
		ssize_t n;

		if (fd < 0)
			return errno == ENOENT;
		n = read(fd, text, sizeof(text) - 1);
		if (n < 0)
			return errno == ENODEV;
		text[n] = '\0';
		return strstr(text, "populated 0");
	}
	for (int i = 0; i < LOOKS; i++)
		/* What can't be seen is a process. */
		if (tasks_each_process(is_process_of, &uid) != 0)
			return false;
	return true;
}

/* Kill who is left in a cgroup that was made for this; of others nobody is touched.
 * Return: whether nobody is left whom the sandbox would set free. */
static bool run_place_clear(const struct run_place *p)
{
	const struct timespec wait = { .tv_nsec = CLEAR_LOOK_MS * 1000000 };
	int64_t end_ms = clock_now_ms() + CLEAR_MS;

	/* What is not ours to end is looked at once. */
	if (!p->made)
		return is_clear(p);
	while (!is_clear(p)) {
		if (clock_now_ms() > end_ms)
			return false;
		if (cgroup_kill(p->cgroup.path, NULL) < 0)
			kill_each(p);
		nanosleep(&wait, NULL);
	}
	return true;
}

enum {
	GROUPS_MAX = 256,
	NOBODY = 65534,
	TELL_FD = 3, /* the pipe, in the child */
};

/* ---- who it is ---- */

/* @closed_gid: of the daemon's API, 0 when there is none: whoever had it could have the
 * daemon guard the command no more. */
static int run_member_find(const struct run_spec *spec, const struct run_place *place,
			   gid_t closed_gid, struct run_member *ret, struct err *err)
{
	const struct passwd *user;
	gid_t found[GROUPS_MAX];
	int found_count = GROUPS_MAX;
	bool closed;

	*ret = (struct run_member){ .place = place, .argv = spec->argv };
	ret->groups = calloc(GROUPS_MAX, sizeof(*ret->groups));
	if (!ret->groups)
		return err_set(err, -ENOMEM, "out of memory");
	if (!spec->uid || place->uid == geteuid()) {
		const int n = getgroups(GROUPS_MAX, ret->groups);

		if (n < 0)
			return err_sys(err, -errno, "cannot read the groups");
		ret->group_count = (size_t)n;
		ret->gid = getegid();
	} else {
		user = getpwuid(place->uid);
		ret->becomes = true;
		ret->gid = user ? user->pw_gid : NOBODY;
		/* A user without an entry has no group that anybody else has. */
		if (!user ||
		    getgrouplist(user->pw_name, user->pw_gid, found, &found_count) < 0)
			found_count = 0;
		for (int i = 0; i < found_count; i++)
			if (found[i] != closed_gid || closed_gid == 0)
				ret->groups[ret->group_count++] = found[i];
		if (found_count > 0) {
			ret->name = strdup(user->pw_name);
			ret->home = strdup(user->pw_dir);
			ret->shell = strdup(user->pw_shell);
		}
	}
	closed = ret->gid == closed_gid;
	for (size_t i = 0; i < ret->group_count; i++)
		closed = closed || ret->groups[i] == closed_gid;
	if (closed_gid != 0 && closed)
		return err_set(err, -EPERM,
			       "the command could ask the daemon to guard it no more: it "
			       "would be of the group that may");
	return 0;
}

/* ---- the child ---- */

_Noreturn static void fail(const char *what, int error)
{
	char text[ERR_TEXT_SIZE];
	int n = snprintf(text, sizeof(text), "cannot %s: %s", what, strerror(error));

	(void)!write(TELL_FD, text, MIN((size_t)n, sizeof(text) - 1));
	_exit(RUN_STATUS_FAILED);
}

static void become_user(const struct run_member *m)
{
	const uint64_t change = 1ULL << CAP_SETUID | 1ULL << CAP_SETGID;
	const uint32_t uid = m->place->uid;
	struct err err = { 0 };

	/* Nothing but this: the bounding set can be emptied with rights alone. */
	if (m->becomes && capabilities_keep(change, &err) < 0)
		fail("drop capabilities", -err.code);
	if (m->becomes &&
	    (setgroups(m->group_count, m->groups) < 0 ||
	     setresgid(m->gid, m->gid, m->gid) < 0 || setresuid(uid, uid, uid) < 0))
		fail("become the user", errno);
	if (geteuid() != uid || getuid() != uid)
		fail("become the user", EPERM);
	environ = (char **)(uintptr_t)m->environment;
	if (m->name) {
		setenv("USER", m->name, 1);
		setenv("LOGNAME", m->name, 1);
		setenv("HOME", m->home, 1);
		setenv("SHELL", m->shell, 1);
	}
}

static void give_up_rights(const struct run_member *m)
{
	struct err err = { 0 };
	int r;

	if (capabilities_keep(0, &err) < 0)
		fail("drop capabilities", -err.code);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("give up new privileges", errno);
	r = landlock_scope();
	/* By its user it is guarded whatever process it acts through. */
	if (r < 0 && (r != -EOPNOTSUPP || m->place->cgroup.path[0]))
		fail("keep it from acting through processes outside of the cgroup", -r);
	if (enter_filter(&err) < 0)
		fail("refuse the calls that no sandbox needs", -err.code);
}

_Noreturn static void child(const struct run_member *m, const sigset_t *mask, int tell,
			    pid_t parent)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	char path[CGROUP_PATH_MAX + 32];
	int fd;

	if (dup3(tell, TELL_FD, O_CLOEXEC) < 0 && tell != TELL_FD)
		_exit(RUN_STATUS_FAILED);
	if (syscall(SYS_close_range, TELL_FD + 1, ~0u, 0) < 0)
		fail("close what is inherited", errno);
	if (process_forbid_cores() < 0)
		fail("forbid cores", errno);
	if (m->place->cgroup.path[0]) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", m->place->cgroup.path);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			fail("join the cgroup", errno);
		close(fd);
	}
	become_user(m);
	give_up_rights(m);
	/* Changing ids forgets it, so it is the last. */
	if (!process_end_with(parent))
		fail("end along with weir", errno);
	sigaction(SIGXFSZ, &by_default, NULL);
	sigaction(SIGPIPE, &m->on_closed_pipe, NULL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	command_become(m->argv);
}

/* ---- the parent ---- */

/* Start it; signals are as in @mask for it. Return: its pid when everything before the
 * command itself has been done (that there is no such command is its exit status), or
 * -errno: nothing runs. */
static pid_t run_member_start(const struct run_member *m, const sigset_t *mask,
			      struct err *err)
{
	char text[ERR_TEXT_SIZE];
	pid_t parent = getpid(), pid;
	int ends[2];
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	pid = process_fork(NULL);
	if (pid == 0)
		child(m, mask, ends[1], parent);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return err_sys(err, pid, "cannot start a process");
	}
	while ((n = read(ends[0], text, sizeof(text) - 1)) < 0 && errno == EINTR)
		;
	close(ends[0]);
	if (n == 0)
		return pid;
	text[MAX(n, (ssize_t)0)] = '\0';
	process_reap(pid, true);
	return err_set(err, -EPERM, "%s", n > 0 ? text : "the child says nothing");
}

/* === the run === */

enum {
	EVENTS_KEPT = 512,
	STOP_MS = 2000,	  /* for a command that on_denies ends, until SIGKILL */
	LOOK_MS = 500,	  /* at what was denied, and at whether on_denies ends it */
	SETTLE_MS = 5000, /* the engine folds what is equal, for a second or two */
	SETTLE_EVERY_MS = 50,
};

struct host_run {
	struct run_spec *spec;
	struct run_place place;
	struct run_daemon daemon;
	struct run_member member;
	struct run_policy policy;
	struct event_ring *ring;
	struct environment environment;
	struct report_live first; /* that are denied */
	uint64_t counters[SANDBOX_COUNTER_COUNT];
	int64_t started_ms;
	sigset_t waited, before;
	struct sigaction on_closed_pipe; /* the caller's, of SIGPIPE */
	pid_t child;
	int wait_status;
	int failure;	 /* the exit status, if Weir failed; 0: it didn't */
	int parent_fd;	 /* --end-with; -1: nobody is watched */
	bool is_closed;	 /* by on_denies, and with it the command is over */
	bool is_ending;	 /* for that, or because the parent has ended */
	int64_t kill_ms; /* it had the time to end by itself */
};

/* ---- signals ---- */

/* What our caller ignores (nohup) stays ignored. */
static void block_signals(struct host_run *h)
{
	static const int forwarded[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
					 SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct sigaction old;

	sigaction(SIGCHLD, &by_default, NULL);
	/* As in control_run(). */
	sigaction(SIGPIPE, &ignore, &h->on_closed_pipe);
	sigemptyset(&h->waited);
	sigaddset(&h->waited, SIGCHLD);
	sigaddset(&h->waited, SIGCONT);
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(&h->waited, forwarded[i]);
	sigprocmask(SIG_BLOCK, &h->waited, &h->before);
}

/* Return: whether the command has ended. One that was stopped takes us along, so that
 * the shell sees a stopped job. */
static bool look_after(struct host_run *h)
{
	int status;

	while (waitpid(h->child, &status, WNOHANG | WUNTRACED) > 0) {
		if (!WIFSTOPPED(status)) {
			h->wait_status = status;
			return true;
		}
		if (h->parent_fd < 0)
			kill(getpid(), SIGTSTP);
	}
	return false;
}

/* The daemon kills what is in a cgroup that it has closed, and of a user nothing: the
 * command is ended as everywhere. */
static void look_at_closing(struct host_run *h, bool may_close)
{
	/* Before the daemon is asked, which may take its time. */
	const int64_t now_ms = clock_now_ms();
	struct pollfd parent = { .fd = h->parent_fd, .events = POLLIN };

	if (may_close && !h->is_closed)
		h->is_closed = run_daemon_is_closed(&h->daemon);
	if (!h->is_ending && (h->is_closed || poll(&parent, 1, 0) == 1)) {
		h->is_ending = true;
		h->kill_ms = now_ms + STOP_MS;
		kill(h->child, SIGTERM);
	} else if (h->is_ending && now_ms >= h->kill_ms) {
		kill(h->child, SIGKILL);
	}
}

/* The first denials are said while the command runs. */
static void look_at_denials(struct host_run *h)
{
	struct event_ring *newest = h->first.more ? NULL : event_ring_new(EVENTS_KEPT);
	struct err ignored = { 0 };

	/* Nothing more is said one by one. */
	if (!newest) {
		report_live_say(&h->first, &h->policy);
		return;
	}
	/* Who can't be asked has denied nothing. */
	(void)!read_denies(&h->daemon, &h->policy.plan, NEWEST, newest, &ignored);
	for (size_t i = 0; i < event_ring_count(newest); i++) {
		const struct event *e = event_ring_at(newest, i);

		if (report_live_note(&h->first, h->ring, e))
			event_ring_add(h->ring, e);
	}
	event_ring_free(newest);
	report_live_say(&h->first, &h->policy);
}

/* The terminal's the command gets by itself: it is in our process group. */
static void wait_for_command(struct host_run *h)
{
	const struct plan_on_denies on = plan_on_denies(&h->policy.plan);
	const bool may_close = on.count > 0 && on.action == ON_DENIES_STOP;
	const bool ends = may_close || h->parent_fd >= 0;
	const struct timespec look = { .tv_nsec = LOOK_MS * 1000000 };
	siginfo_t info;

	while (!look_after(h)) {
		const bool tells = !h->spec->quiet && !h->first.more_said;
		int sig = ends || tells ? sigtimedwait(&h->waited, &info, &look)
					: sigwaitinfo(&h->waited, &info);

		if (sig > 0 && sig != SIGCHLD &&
		    (info.si_code != SI_KERNEL || sig == SIGHUP))
			kill(h->child, sig);
		if (ends)
			look_at_closing(h, may_close);
		if (tells && sig < 0)
			look_at_denials(h);
	}
	h->is_closed = may_close && (h->is_closed || run_daemon_is_closed(&h->daemon));
	h->child = 0;
}

/* ---- the start ---- */

/* Return: 0 when the command runs, or the exit status. */
static int start_guarded(struct host_run *h, struct err *err)
{
	uint32_t uid = geteuid();
	int r = run_policy_build(h->spec, &h->policy, err);
	/* Whatever the policy is: all faults are told at once. */
	int user = h->spec->uid ? daemon_find_user(h->spec->uid, &uid) : 0;
	struct stat api;
	sigset_t pending;

	if (r != 0 || user != 0)
		return r != 0 ? r : user;
	h->ring = event_ring_new(EVENTS_KEPT);
	if (!h->ring)
		return err_set(err, -ENOMEM, "out of memory"), RUN_STATUS_FAILED;
	if (stat(client_socket(h->spec->socket), &api) < 0)
		api.st_gid = 0;
	if (process_watch_parent((pid_t)h->spec->parent, &h->parent_fd, err) < 0 ||
	    std_fds_check(-1, err) < 0 ||
	    run_place_open(h->spec, uid, &h->place, err) < 0 ||
	    run_member_find(h->spec, &h->place, api.st_gid, &h->member, err) < 0 ||
	    run_daemon_attach(&h->daemon, h->spec->id,
			      h->place.cgroup.path[0] ? h->place.cgroup.path : NULL,
			      h->place.uid, &h->policy, err) < 0)
		return RUN_STATUS_FAILED;
	if (environment_choose(h->spec, &h->environment, err) < 0)
		return RUN_STATUS_FAILED;
	h->member.environment = h->environment.list;
	h->member.on_closed_pipe = h->on_closed_pipe;
	/* A signal that came before there was a command is for us. */
	sigpending(&pending);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (sig != SIGCHLD && sig != SIGCONT && sig != SIGWINCH &&
		    sigismember(&h->waited, sig) && sigismember(&pending, sig)) {
			h->wait_status = W_EXITCODE(0, sig);
			return 0;
		}
	h->child = run_member_start(&h->member, &h->before, err);
	return h->child < 0 ? RUN_STATUS_FAILED : 0;
}

/* ---- the end ---- */

/* What was denied, into the ring, and the counters. It is asked for while there is
 * somebody to be asked. Where something was, the last of it may take a moment. */
static int ask_what_was_denied(struct host_run *h, struct err *err)
{
	const struct timespec wait = { .tv_nsec = SETTLE_EVERY_MS * 1000000 };
	const int64_t end_ms = clock_now_ms() + SETTLE_MS;

	for (;;) {
		struct event_ring *all = event_ring_new(EVENTS_KEPT);
		CLEAN(json) json_t *j = NULL;
		uint64_t reported = 0;
		int r;

		if (!all)
			return err_set(err, -ENOMEM, "out of memory");
		r = ask(&h->daemon, "GET", "/status", &j, err);
		for (size_t i = 0; r == 0 && i < SANDBOX_COUNTER_COUNT; i++)
			h->counters[i] =
				number_at(json_object_get(j, "counters"),
					  sandbox_counter_name((enum sandbox_counter)i));
		if (r == 0)
			r = read_denies(&h->daemon, &h->policy.plan, DENIES_MAX, all,
					err);
		/* What was told while the command ran stays where nobody answers. */
		if (r < 0) {
			event_ring_free(all);
			return r;
		}
		event_ring_free(h->ring);
		h->ring = all;
		for (size_t i = 0; i < event_ring_count(all); i++)
			reported += event_ring_at(all, i)->packets;
		/* All that was counted is there: the engine folds what is equal for a
		 * second. */
		if (reported >= sandbox_denied(h->counters) ||
		    event_ring_count(all) == EVENTS_KEPT || clock_now_ms() > end_ms)
			return 0;
		nanosleep(&wait, NULL);
	}
}

static void leave(struct host_run *h)
{
	bool clear = run_place_clear(&h->place);
	struct err err = { 0 };
	CLEAN(json) json_t *answer = NULL;

	if (h->daemon.id[0] && h->failure == 0 && ask_what_was_denied(h, &err) < 0) {
		log_warning("cannot ask what was denied: %s", err.text);
		/* Nobody can say that nothing was. */
		if (h->spec->fail_on_deny)
			h->failure = RUN_STATUS_FAILED;
	}
	/* A cgroup that is gone when it is detached leaves no socket that is free. */
	if (clear && h->place.made && rmdir(h->place.cgroup.path) < 0 && errno != ENOENT)
		log_warning("cannot remove the cgroup '%s': %s", h->place.cgroup.path,
			    strerror(errno));
	if (clear && h->place.cgroup.path[0])
		close(h->place.dir);
	err = (struct err){ 0 };
	if (h->daemon.id[0] && !clear)
		log_warning("processes are left: they stay guarded, until `weir detach "
			    "%s`",
			    h->daemon.id);
	else if (h->daemon.id[0] && ask(&h->daemon, "DELETE", "", &answer, &err) < 0)
		log_warning("cannot detach '%s': %s", h->daemon.id, err.text);
}

int run_host(struct run_spec *spec)
{
	struct host_run h = { .spec = spec,
			      .daemon.socket = spec->socket,
			      .parent_fd = -1,
			      .started_ms = clock_wall_ms() };
	struct err err = { 0 };
	struct std_state streams;
	struct report report;
	int status;

	std_state_read(&streams);
	block_signals(&h);
	h.failure = start_guarded(&h, &err);
	if (h.failure == RUN_STATUS_FAILED)
		log_error("failed_safety_setup: %s", err.text);
	else if (h.child > 0)
		wait_for_command(&h);
	std_state_restore(&streams);
	log_hold();
	leave(&h);
	report = (struct report){
		.spec = h.spec,
		.policy = &h.policy,
		.ring = h.ring,
		.failures = h.ring, /* the daemon is asked for none */
		.counters = h.counters,
		.started_ms = h.started_ms,
		.held = h.environment.held,
		.held_count = h.environment.held_count,
		.stopped = h.is_closed,
	};
	status = report_leave(report_end(&report, h.failure, h.wait_status),
			      h.wait_status);
	free(h.member.groups);
	free((void *)(uintptr_t)h.member.name);
	free((void *)(uintptr_t)h.member.home);
	free((void *)(uintptr_t)h.member.shell);
	event_ring_free(h.ring);
	run_policy_done(&h.policy);
	return status;
}
