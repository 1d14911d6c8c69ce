// SPDX-License-Identifier: Apache-2.0
#include "run/doctor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "launch/launch.h"
#include "sys/id_map.h"
#include "sys/options.h"
#include "sys/print.h"
#include "sys/process.h"

/* === a trial === */

struct trial {
	doctor_try_fn *fn;
	const struct launch_machine *maps; /* root: whose id maps; NULL: map itself */
	bool inside;
	uid_t uid;
	gid_t gid;
	int fd;	  /* the child's end */
	int proc; /* /proc */
};

/* --- the child --- */

/* Wait until the parent has written the maps, and become uid 0 of them. */
static int take_maps(const struct trial *t, struct err *err)
{
	char go;

	if (recv(t->fd, &go, 1, 0) != 1)
		return err_set(err, -ECANCELED, "the id maps could not be written");
	if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot become the sandbox's user");
	return 0;
}

static _Noreturn void attempt_main(const struct trial *t)
{
	struct doctor_attempt a = { 0 };
	struct err err = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (t->inside)
		a.code = t->maps ? take_maps(t, &err)
				 : id_map_self(t->proc, t->uid, t->gid, &err);
	if (a.code == 0)
		a.code = t->fn(&a.value, &err);
	memcpy(a.text, err.text, sizeof(a.text));
	(void)!send(t->fd, &a, sizeof(a), MSG_NOSIGNAL);
	_exit(0);
}

/* --- the parent --- */

static void failed(struct doctor_attempt *ret, int code, const char *what)
{
	struct err err = { 0 };

	ret->code = err_sys(&err, code, "%s", what);
	memcpy(ret->text, err.text, sizeof(ret->text));
}

static void wait_for(int fd, struct doctor_attempt *ret)
{
	const int64_t until = clock_now_ms() + DOCTOR_TRY_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left;
	int r = -1;

	while (r < 0 && (left = until - clock_now_ms()) > 0) {
		r = poll(&p, 1, (int)left);
		if (r < 0 && errno != EINTR)
			break;
	}
	if (r != 1)
		failed(ret, -ETIMEDOUT, "cannot finish the probe");
	else if (recv(fd, ret, sizeof(*ret), MSG_DONTWAIT) != sizeof(*ret))
		failed(ret, -EPIPE, "cannot finish the probe: its process died");
	ret->text[sizeof(ret->text) - 1] = '\0';
}

void doctor_try(const struct doctor *d, doctor_try_fn *fn, bool inside,
		struct doctor_attempt *ret)
{
	CLEAN(fd) int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct trial t = { .fn = fn,
			   .maps = inside && d->has_machine && d->machine.root
					   ? &d->machine
					   : NULL,
			   .inside = inside,
			   .uid = geteuid(),
			   .gid = getegid(),
			   .proc = proc };
	unsigned long flags = (inside ? enter_namespaces() : 0) | SIGCHLD;
	struct err err = { 0 };
	int fds[2], r = 0;
	long pid;

	*ret = (struct doctor_attempt){ 0 };
	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		failed(ret, -errno, "cannot make a socket pair");
		return;
	}
	t.fd = fds[1];
	pid = syscall(SYS_clone, flags, NULL, NULL, NULL, 0);
	if (pid == 0)
		attempt_main(&t);
	if (pid < 0)
		failed(ret, -errno, "cannot create the namespaces");
	close(fds[1]);
	if (pid > 0 && t.maps)
		r = launch_write_maps(t.maps, (pid_t)pid, &err);
	if (pid > 0 && t.maps && r == 0 && send(fds[0], "", 1, MSG_NOSIGNAL) != 1)
		r = err_sys(&err, -errno, "cannot start the probe");
	if (r < 0) {
		ret->code = r;
		memcpy(ret->text, err.text, sizeof(ret->text));
	} else if (pid > 0) {
		wait_for(fds[0], ret);
	}
	close(fds[0]);
	process_reap((pid_t)pid, true);
}

/* --- programs --- */

enum { OUTPUT_SIZE = 8192 }; /* of a program; the rest is not looked at */

static const char *const sandbox_command[] = { "true", NULL };

/* The child. What counts in the end is a sandbox with an empty policy, probed from
 * inside: @run, where it is given, starts it with the command @argv; else @argv is
 * executed. Return: the exit status. */
static int child_main(int (*run)(struct run_spec *spec), const char *const *argv)
{
	char *const *args = (char *const *)(uintptr_t)argv;
	struct run_spec spec = { .quiet = true, .argv = args };
	char path[PROGRAM_PATH_SIZE];

	if (run)
		return run(&spec);
	if (argv[0][0] == '/')
		execv(argv[0], args);
	else if (program_path(argv[0], path, NULL) == 0)
		execv(path, args);
	return 127;
}

/* Everything that comes until the end, or until it takes too long. */
static int gather(int fd, char *buf, size_t size)
{
	const int64_t until = clock_now_ms() + DOCTOR_TRY_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t used = 0;
	int64_t left;

	while ((left = until - clock_now_ms()) > 0) {
		char more[512];
		ssize_t n;
		size_t kept;

		if (poll(&p, 1, (int)left) != 1)
			continue;
		n = read(fd, more, sizeof(more));
		if (n <= 0)
			break;
		kept = MIN((size_t)n, size - 1 - used);
		memcpy(buf + used, more, kept);
		used += kept;
	}
	buf[used] = '\0';
	return left > 0 ? 0 : -ETIMEDOUT;
}

/* Run child_main() in a child, without input; the first OUTPUT_SIZE - 1 bytes of
 * what it says on either output are in @buf.
 * Return: the exit status, 128 and the signal's number, or -errno. */
static int catch_output(int (*run)(struct run_spec *spec), const char *const *argv,
			char buf[OUTPUT_SIZE])
{
	int fds[2], r;
	pid_t pid;

	buf[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	fflush(NULL);
	pid = process_fork(NULL);
	if (pid == 0) {
		const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
		    dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[1], STDERR_FILENO) < 0)
			_exit(127);
		_exit(child_main(run, argv));
	}
	r = MIN(pid, 0);
	close(fds[1]);
	if (pid > 0) {
		int status;

		r = gather(fds[0], buf, OUTPUT_SIZE);
		if (r < 0)
			kill(pid, SIGKILL);
		status = process_wait(pid);
		if (r < 0 || status < 0)
			r = MIN(r, status);
		else
			r = WIFEXITED(status) ? WEXITSTATUS(status)
					      : 128 + WTERMSIG(status);
	}
	close(fds[0]);
	return r;
}

/* --- rows --- */

static const char *keep_bytes(struct doctor *d, const char *fmt, va_list args)
{
	char text[1024];
	const char *kept;

	vsnprintf(text, sizeof(text), fmt, args);
	kept = arena_text(&d->arena, text_of(text));
	return kept ? kept : "(out of memory)";
}

const char *doctor_text(struct doctor *d, const char *fmt, ...)
{
	const char *kept;
	va_list args;

	va_start(args, fmt);
	kept = keep_bytes(d, fmt, args);
	va_end(args);
	return kept;
}

void doctor_found(struct doctor *d, struct doctor_row *row, enum doctor_state state,
		  const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	row->found = keep_bytes(d, fmt, args);
	va_end(args);
	row->state = state;
}

void doctor_mend(struct doctor_row *row, const char *command)
{
	doctor_mend_each(row, command, command, command);
}

void doctor_mend_each(struct doctor_row *row, const char *debian, const char *ubuntu,
		      const char *fedora)
{
	row->mend[DOCTOR_DEBIAN] = debian;
	row->mend[DOCTOR_UBUNTU] = ubuntu;
	row->mend[DOCTOR_FEDORA] = fedora;
}

/* === what is installed and set up === */

enum { ANSWER_MS = 1500 }; /* as long as a sandbox would wait for a name server */

/* --- where we are --- */

static const struct container {
	const char *name;
	const char *file, *variable; /* that shows it */
	const char *mend;
} containers[] = {
	{ "podman", "/run/.containerenv", NULL,
	  "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …" },
	{ "Docker", "/.dockerenv", NULL,
	  "docker run --security-opt seccomp=unconfined --security-opt "
	  "apparmor=unconfined --security-opt systempaths=unconfined …" },
	{ "Kubernetes", NULL, "KUBERNETES_SERVICE_HOST",
	  "securityContext: {seccompProfile: {type: Unconfined}, procMount: Unmasked}" },
};

/* The kernel numbers the namespaces that it starts with alike on every machine, and a
 * container has others. A file that shows a container may be left over from the image
 * that a machine was made of. */
static bool has_machines_namespaces(void)
{
	static const struct {
		const char *path;
		ino_t first;
	} kinds[] = {
		{ "/proc/self/ns/pid", 0xeffffffc },
		{ "/proc/self/ns/uts", 0xeffffffe },
		{ "/proc/self/ns/ipc", 0xefffffff },
		{ "/proc/self/ns/cgroup", 0xeffffffb },
	};
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (stat(kinds[i].path, &st) < 0 || st.st_ino != kinds[i].first)
			return false;
	}
	return true;
}

static void doctor_container(struct doctor *d, struct doctor_row *row)
{
	const struct container *c = NULL;
	char output[OUTPUT_SIZE];

	for (size_t i = 0; !c && i < ARRAY_SIZE(containers); i++)
		if ((containers[i].file && access(containers[i].file, F_OK) == 0) ||
		    (containers[i].variable && getenv(containers[i].variable)))
			c = &containers[i];
	if (!c || has_machines_namespaces()) {
		doctor_found(d, row, DOCTOR_OK, "none is seen%s%s%s",
			     c && c->file ? "; " : "", c && c->file ? c->file : "",
			     c && c->file ? " is left over from an image" : "");
		return;
	}
	doctor_found(d, row, DOCTOR_OK, "this is a container of %s", c->name);
	if (catch_output(d->run, sandbox_command, output) == 0)
		return;
	row->state = DOCTOR_WARNING;
	row->follows = "its default profiles forbid user namespaces or a new /proc; the "
		       "container has to be started without them";
	doctor_mend(row, c->mend);
}

static void doctor_directory(struct doctor *d, struct doctor_row *row)
{
	char cwd[PATH_MAX];

	if (getcwd(cwd, sizeof(cwd)) && access(cwd, X_OK) == 0) {
		doctor_found(d, row, DOCTOR_OK, "the current one is there");
		return;
	}
	doctor_found(d, row, DOCTOR_FAILED, "%s",
		     errno == ENOENT   ? "it has been removed"
		     : errno == EACCES ? "it or one above is closed to this user"
				       : strerror(errno));
	row->follows = "no sandbox can be started from it, though nothing may be wrong "
		       "with the machine";
	doctor_mend(row, "cd \"$HOME\"");
}

/* --- programs --- */

/* A program that only a named uplink uses: slirp4netns or pasta. */
static void doctor_uplink(struct doctor *d, struct doctor_row *row)
{
	const bool is_pasta = strcmp(row->name, "pasta") == 0;
	const char *apt = is_pasta ? "sudo apt install passt"
				   : "sudo apt install slirp4netns";
	const char *const argv[] = { row->name, "--version", NULL };
	char output[OUTPUT_SIZE];
	int r = catch_output(NULL, argv, output);
	CLEAN(fd) int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	const bool is_closed = tun < 0 && (errno == EACCES || errno == EPERM);

	if (r == 0 && tun >= 0) {
		doctor_found(d, row, DOCTOR_OK, "%s",
			     TEXT_SHOWN((struct text){ output, strcspn(output, "\n") }));
		return;
	}
	row->follows = "only `--uplink` of its name can't be used; the built-in relay is "
		       "the default";
	if (r == 0) {
		doctor_found(d, row, DOCTOR_ABSENT,
			     "installed, but /dev/net/tun can't be opened: %s",
			     strerror(errno));
		doctor_mend(row, is_closed ? "sudo chmod 666 /dev/net/tun"
					   : "sudo modprobe tun   # or --device "
					     "/dev/net/tun, for a container");
		return;
	}
	doctor_found(d, row, DOCTOR_ABSENT, "%s",
		     r == RUN_STATUS_NOT_FOUND ? "not installed"
					       : "installed, but it does not start");
	doctor_mend_each(row, apt, apt,
			 is_pasta ? "sudo dnf install passt"
				  : "sudo dnf install slirp4netns");
}

/* --- name servers --- */

/* Ask all at once one question, for the root's name servers; any answer shows that
 * somebody serves. Return: how many answered in time. */
static size_t count_answers(const struct name_servers *servers)
{
	uint8_t query[] = { 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1 };
	const int64_t until = clock_now_ms() + ANSWER_MS;
	struct pollfd fds[NAME_SERVERS_MAX];
	size_t open = 0, answered = 0;
	int64_t left;

	for (size_t i = 0; i < servers->count; i++) {
		struct sockaddr_storage to;
		socklen_t size = endpoint_to_sockaddr(&servers->items[i], &to);
		int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
				0);

		if (fd >= 0 && (getrandom(query, 2, 0) != 2 ||
				connect(fd, (struct sockaddr *)&to, size) < 0 ||
				send(fd, query, sizeof(query), 0) != sizeof(query)))
			fd_close(&fd);
		fds[i] = (struct pollfd){ fd, POLLIN, 0 };
		open += fd >= 0;
	}
	while (open > 0 && (left = until - clock_now_ms()) > 0) {
		if (poll(fds, servers->count, (int)left) < 0 && errno != EINTR)
			break;
		for (size_t i = 0; i < servers->count; i++) {
			uint8_t answer[512];

			if (fds[i].fd < 0 || fds[i].revents == 0)
				continue;
			/* A refusal by ICMP is an error here, and no answer. */
			answered += recv(fds[i].fd, answer, sizeof(answer), 0) > 0;
			close(fds[i].fd);
			fds[i].fd = -1;
			open--;
		}
	}
	for (size_t i = 0; i < servers->count; i++)
		if (fds[i].fd >= 0)
			close(fds[i].fd);
	return answered;
}

static void doctor_resolvers(struct doctor *d, struct doctor_row *row)
{
	struct name_servers servers = { 0 };
	struct err err = { 0 };
	size_t answered;

	if (name_servers_complete(&servers, &err) < 0) {
		doctor_found(d, row, DOCTOR_FAILED, "%s", err.text);
		row->follows = "a policy that allows a name can't run without --upstream";
		doctor_mend(row, "echo nameserver ADDRESS | sudo tee -a "
				 "/etc/resolv.conf");
		return;
	}
	answered = count_answers(&servers);
	doctor_found(d, row, answered > 0 ? DOCTOR_OK : DOCTOR_WARNING,
		     "%zu in /etc/resolv.conf, %zu of them answered", servers.count,
		     answered);
	if (answered == 0)
		row->follows = "allowed names can't be looked up now: the machine is "
			       "offline, or a firewall is in between; name another "
			       "server with --upstream";
}

/* --- ways around Weir --- */

static void doctor_docker(struct doctor *d, struct doctor_row *row)
{
	static const char *const sockets[] = { "/var/run/docker.sock",
					       "/run/containerd/containerd.sock",
					       "/run/podman/podman.sock" };
	const struct group *docker;
	const char *open = NULL;
	gid_t groups[256];
	struct stat st;
	int count;

	for (size_t i = 0; !open && i < ARRAY_SIZE(sockets); i++)
		if (stat(sockets[i], &st) == 0 && S_ISSOCK(st.st_mode) &&
		    access(sockets[i], W_OK) == 0)
			open = sockets[i];
	docker = !open && geteuid() != 0 ? getgrnam("docker") : NULL;
	count = docker ? getgroups(ARRAY_SIZE(groups), groups) : 0;
	for (int i = 0; i < count; i++)
		if (groups[i] == docker->gr_gid)
			open = "the group docker";
	if (!open) {
		doctor_found(d, row, DOCTOR_OK, "no container engine can be reached");
		return;
	}
	doctor_found(d, row, DOCTOR_WARNING, "this user may use %s", open);
	row->follows = "who talks to a container engine is root of this machine. In a "
		       "sandbox its socket is closed; what this user runs outside of "
		       "one can start a container that Weir doesn't guard";
	if (geteuid() != 0)
		doctor_mend(row, "sudo gpasswd -d \"$USER\" docker");
}

static void doctor_sudo(struct doctor *d, struct doctor_row *row)
{
	static const char *const list[] = { "sudo", "-n", "-l", NULL };
	char output[OUTPUT_SIZE];

	if (geteuid() == 0) {
		doctor_found(d, row, DOCTOR_OK, "this is root already");
		return;
	}
	if (catch_output(NULL, list, output) != 0 || !strstr(output, "NOPASSWD")) {
		doctor_found(d, row, DOCTOR_OK, "not without a password");
		return;
	}
	doctor_found(d, row, DOCTOR_WARNING,
		     "this user may run programs as root without a password");
	row->follows = "in a sandbox sudo has no effect; what this user runs outside of "
		       "one can change anything, Weir included";
	doctor_mend(row, "sudo visudo   # and take NOPASSWD out");
}

/* --- the whole --- */

static void doctor_sandbox(struct doctor *d, struct doctor_row *row)
{
	static const char prefix[] = "weir: ";
	char output[OUTPUT_SIZE], shown[TEXT_ESCAPED_SIZE];
	int64_t began = clock_now_ms();
	struct text rest, line, part;

	if (catch_output(d->run, sandbox_command, output) == 0) {
		doctor_found(d, row, DOCTOR_OK,
			     "started, probed from inside and ended in %lld ms",
			     (long long)(clock_now_ms() - began));
		return;
	}
	/* The last line of a message says why; without who says so. */
	rest = line = text_trim(text_of(output));
	while (text_split(&rest, '\n', &part))
		line = part;
	if (line.len > strlen(prefix) && memcmp(line.ptr, prefix, strlen(prefix)) == 0)
		line = (struct text){ line.ptr + strlen(prefix),
				      line.len - strlen(prefix) };
	doctor_found(d, row, DOCTOR_FAILED, "%s",
		     output[0] ? text_escape(line, shown, sizeof(shown))
			       : "it ended without a word");
	row->follows = "`weir run` can't work; a line above may say why";
}

bool cli_doctor_blames(int (*run)(struct run_spec *spec))
{
	char output[OUTPUT_SIZE];

	return catch_output(run, sandbox_command, output) != 0;
}

/* === all probes === */

enum { NAME_COLUMN = 8, TEXT_COLUMN = 26, STATUS_CANNOT_WORK = 1 };

/* In this order: what a probe stands on comes before it. */
static const struct {
	const char *name;
	doctor_probe_fn *probe;
} probes[] = {
	{ "user namespaces", doctor_user_namespaces },
	{ "limits", doctor_limits },
	{ "directory", doctor_directory },
	{ "container", doctor_container },
	{ "proc", doctor_needed },
	{ "link", doctor_link },
	{ "nf_tables", doctor_needed },
	{ "owner flag", doctor_owner },
	{ "NFLOG", doctor_needed },
	{ "overlay", doctor_needed },
	{ "id-mapped mounts", doctor_id_maps },
	{ "Landlock", doctor_landlock },
	{ "seccomp", doctor_needed },
	{ "name servers", doctor_resolvers },
	{ "slirp4netns", doctor_uplink },
	{ "pasta", doctor_uplink },
	{ "container engine", doctor_docker },
	{ "sudo", doctor_sudo },
	{ "a sandbox", doctor_sandbox },
};
static_assert(ARRAY_SIZE(probes) <= DOCTOR_ROWS_MAX, "every probe has a row");

static const struct {
	const char *word; /* in JSON */
	const char *mark; /* for people */
	const char *colour;
} states[] = {
	[DOCTOR_FAILED] = { "failed", "FAIL", "\x1b[1;31m" },
	[DOCTOR_WARNING] = { "warning", "warn", "\x1b[1;33m" },
	[DOCTOR_UNTRIED] = { "untried", "?", "" },
	[DOCTOR_ABSENT] = { "absent", "-", "" },
	[DOCTOR_OK] = { "ok", "ok", "\x1b[32m" },
};
static_assert(ARRAY_SIZE(states) == DOCTOR_STATE_COUNT, "every state has its words");

static const char *const systems[] = {
	[DOCTOR_DEBIAN] = "Debian",
	[DOCTOR_UBUNTU] = "Ubuntu",
	[DOCTOR_FEDORA] = "Fedora",
};
static_assert(ARRAY_SIZE(systems) == DOCTOR_SYSTEM_COUNT, "every system has a name");

static size_t count_state(const struct doctor *d, enum doctor_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < d->count; i++)
		n += d->rows[i].state == state;
	return n;
}

/* --- for people --- */

static void print_row(const struct doctor_row *row, bool colour, unsigned int width)
{
	const char *on = colour ? states[row->state].colour : "";
	bool done[DOCTOR_SYSTEM_COUNT] = { false };

	printf("  %s%-4s%s  %-*s", on, states[row->state].mark, *on ? "\x1b[0m" : "",
	       TEXT_COLUMN - NAME_COLUMN, row->name);
	term_wrap(stdout, row->found, TEXT_COLUMN, TEXT_COLUMN, width);
	if (row->follows) {
		printf("%*s", TEXT_COLUMN, "");
		term_wrap(stdout, row->follows, TEXT_COLUMN, TEXT_COLUMN, width);
	}
	/* "Debian, Ubuntu: command": systems with the same command share a line. The
	 * command is not wrapped: it is there to be copied. */
	for (size_t i = 0; i < DOCTOR_SYSTEM_COUNT; i++) {
		if (!row->mend[i] || done[i])
			continue;
		printf("%*smend (%s", TEXT_COLUMN, "", systems[i]);
		for (size_t j = i + 1; j < DOCTOR_SYSTEM_COUNT; j++) {
			if (!row->mend[j] || strcmp(row->mend[i], row->mend[j]) != 0)
				continue;
			printf(", %s", systems[j]);
			done[j] = true;
		}
		printf("):\n%*s%s\n", TEXT_COLUMN + 2, "", row->mend[i]);
	}
}

static void print_text(struct doctor *d, bool all)
{
	struct doctor_row absent = { .name = "not needed" };
	const char *names = "";
	bool colour = term_has_colour(stdout);
	unsigned int width = term_width(stdout);
	size_t failed = count_state(d, DOCTOR_FAILED);
	size_t warnings = count_state(d, DOCTOR_WARNING);

	for (size_t i = 0; i < d->count; i++)
		if (all || d->rows[i].state != DOCTOR_ABSENT)
			print_row(&d->rows[i], colour, width);
	/* One line for all that is missing and that nothing needs by default. */
	for (size_t i = 0; !all && i < d->count; i++)
		if (d->rows[i].state == DOCTOR_ABSENT)
			names = doctor_text(d, "%s%s%s", names, names[0] ? ", " : "",
					    d->rows[i].name);
	if (names[0]) {
		doctor_found(d, &absent, DOCTOR_ABSENT,
			     "%s; `weir doctor --all` says more", names);
		print_row(&absent, false, width);
	}
	if (failed > 0)
		printf("\nweir run can't work here: see the line%s marked FAIL\n",
		       failed == 1 ? "" : "s");
	else if (warnings > 0)
		printf("\nweir run works here; see the line%s marked warn\n",
		       warnings == 1 ? "" : "s");
	else
		puts("\nweir run works here");
}

/* --- for programs --- */

static int print_rows(const struct doctor *d)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < d->count; i++) {
		const struct doctor_row *row = &d->rows[i];
		json_t *mend = json_object();

		for (size_t s = 0; s < DOCTOR_SYSTEM_COUNT; s++)
			if (row->mend[s])
				json_object_set_new(mend, systems[s],
						    json_string(row->mend[s]));
		json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s?, s:o}",
						      "name", row->name, "state",
						      states[row->state].word, "found",
						      row->found, "follows", row->follows,
						      "mend", mend));
	}
	return print_json(json_pack("{s:s, s:b, s:o}", "version", WEIR_VERSION, "works",
				    count_state(d, DOCTOR_FAILED) == 0, "rows", rows),
			  0, stdout);
}

/* --- the verb --- */

struct doctor_spec {
	bool json, all;
};

static const struct cli_option options[] = {
	{ "json", NULL, "print JSON", OPTION_IN(FLAG, struct doctor_spec, json) },
	{ "all", NULL, "say how to get what is missing but not needed by default, too",
	  OPTION_IN(FLAG, struct doctor_spec, all) },
};
const struct cli_options cli_doctor_options = {
	OPTION_ROWS(options),
	.usage =
		"usage: weir doctor [OPTION]...\n\n"
		"Try what `weir run` needs of this machine, one by one: what was found,\n"
		"what follows, and the command that mends it.\n",
	.notes = "Exit status: 0 when `weir run` works here, 1 when it can't.\n",
};

int cli_doctor(int argc, char **argv, int (*run)(struct run_spec *spec))
{
	struct doctor d = { .run = run };
	struct doctor_spec spec = { 0 };
	struct err err = { 0 };
	int r = cli_options_only(&cli_doctor_options, &spec, argc, argv, NULL, &err);

	if (r < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "%s", err.text);
	d.machine = launch_machine_probe();
	d.has_machine = launch_choose_ids(&d.machine, &err) == 0;
	memcpy(d.machine_text, err.text, sizeof(d.machine_text));
	for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
		struct doctor_row *row = &d.rows[d.count++];

		row->name = probes[i].name;
		probes[i].probe(&d, row);
	}
	r = 0;
	if (spec.json)
		r = print_rows(&d);
	else
		print_text(&d, spec.all);
	if (r < 0) {
		log_error("cannot write the output");
		r = RUN_STATUS_FAILED;
	} else if (count_state(&d, DOCTOR_FAILED) > 0) {
		r = STATUS_CANNOT_WORK;
	}
	arena_done(&d.arena);
	return r;
}
