// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "run/doctor.h"
#include "run/doctor_probe.h"

enum {
	OUTPUT_SIZE = 8192, /* of a program; the rest is not looked at */
	ANSWER_MS = 1500    /* as long as a sandbox would wait for a name server */
};

/* The last line of a message, which says why, without who says so. */
static const char *last_line(const char *output, char *buf, size_t size)
{
	struct text rest = text_trim(text_of(output)), line = rest, part;
	static const char prefix[] = "weir: ";

	while (text_split(&rest, '\n', &part))
		line = part;
	if (line.len > strlen(prefix) && memcmp(line.ptr, prefix, strlen(prefix)) == 0)
		line = (struct text){ line.ptr + strlen(prefix),
				      line.len - strlen(prefix) };
	return text_escape(line, buf, size);
}

/* What counts in the end: a sandbox with an empty policy, probed from inside. */
static int run_sandbox(int (*run)(struct run_spec *spec), char *output)
{
	static char program[] = "true";
	char *argv[] = { program, NULL };
	struct run_spec spec = { .quiet = true, .argv = argv };

	return doctor_run_sandbox(run, &spec, output, OUTPUT_SIZE);
}

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

static const struct container *container_find(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(containers); i++) {
		const struct container *c = &containers[i];

		if ((c->file && access(c->file, F_OK) == 0) ||
		    (c->variable && getenv(c->variable)))
			return c;
	}
	return NULL;
}

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

void doctor_container(struct doctor *d, struct doctor_row *row)
{
	const struct container *c = container_find();
	char output[OUTPUT_SIZE];

	if (!c || has_machines_namespaces()) {
		doctor_found(d, row, DOCTOR_OK, "none is seen%s%s%s",
			     c && c->file ? "; " : "", c && c->file ? c->file : "",
			     c && c->file ? " is left over from an image" : "");
		return;
	}
	doctor_found(d, row, DOCTOR_OK, "this is a container of %s", c->name);
	if (run_sandbox(d->run, output) == 0)
		return;
	row->state = DOCTOR_WARNING;
	row->follows = "its default profiles forbid user namespaces or a new /proc; the "
		       "container has to be started without them";
	doctor_mend(row, c->mend);
}

void doctor_directory(struct doctor *d, struct doctor_row *row)
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

/* A program that only a named uplink uses. */
static void optional_program(struct doctor *d, struct doctor_row *row,
			     const char *program, const char *apt, const char *dnf)
{
	const char *const argv[] = { program, "--version", NULL };
	char output[OUTPUT_SIZE];
	int r = doctor_run_program(argv, output, sizeof(output));
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
	doctor_mend_each(row, apt, apt, dnf);
}

void doctor_slirp4netns(struct doctor *d, struct doctor_row *row)
{
	optional_program(d, row, "slirp4netns", "sudo apt install slirp4netns",
			 "sudo dnf install slirp4netns");
}

void doctor_pasta(struct doctor *d, struct doctor_row *row)
{
	optional_program(d, row, "pasta", "sudo apt install passt",
			 "sudo dnf install passt");
}

/* --- name servers --- */

/* One question, for the root's name servers; any answer shows that somebody serves. */
static int ask_server(const struct endpoint *server)
{
	uint8_t query[] = { 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1 };
	struct sockaddr_storage to;
	socklen_t size = endpoint_to_sockaddr(server, &to);
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (getrandom(query, 2, 0) != 2 ||
	    connect(fd, (struct sockaddr *)&to, size) < 0 ||
	    send(fd, query, sizeof(query), 0) != sizeof(query)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Ask all at once. Return: how many answered in time. */
static size_t count_answers(const struct name_servers *servers)
{
	const int64_t until = clock_now_ms() + ANSWER_MS;
	struct pollfd fds[NAME_SERVERS_MAX];
	size_t open = 0, answered = 0;
	int64_t left;

	for (size_t i = 0; i < servers->count; i++) {
		fds[i] = (struct pollfd){ ask_server(&servers->items[i]), POLLIN, 0 };
		open += fds[i].fd >= 0;
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

void doctor_resolvers(struct doctor *d, struct doctor_row *row)
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

static bool may_write(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && access(path, W_OK) == 0;
}

static bool is_in_group(const char *name)
{
	const struct group *g = getgrnam(name);
	gid_t groups[256];
	int n = g ? getgroups(ARRAY_SIZE(groups), groups) : 0;

	for (int i = 0; i < n; i++)
		if (groups[i] == g->gr_gid)
			return true;
	return false;
}

void doctor_docker(struct doctor *d, struct doctor_row *row)
{
	static const char *const sockets[] = { "/var/run/docker.sock",
					       "/run/containerd/containerd.sock",
					       "/run/podman/podman.sock" };
	const char *open = NULL;

	for (size_t i = 0; !open && i < ARRAY_SIZE(sockets); i++)
		open = may_write(sockets[i]) ? sockets[i] : NULL;
	if (!open && geteuid() != 0 && is_in_group("docker"))
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

void doctor_sudo(struct doctor *d, struct doctor_row *row)
{
	static const char *const list[] = { "sudo", "-n", "-l", NULL };
	char output[OUTPUT_SIZE];

	if (geteuid() == 0) {
		doctor_found(d, row, DOCTOR_OK, "this is root already");
		return;
	}
	if (doctor_run_program(list, output, sizeof(output)) != 0 ||
	    !strstr(output, "NOPASSWD")) {
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

void doctor_sandbox(struct doctor *d, struct doctor_row *row)
{
	char output[OUTPUT_SIZE], shown[TEXT_ESCAPED_SIZE];
	int64_t began = clock_now_ms();

	if (run_sandbox(d->run, output) == 0) {
		doctor_found(d, row, DOCTOR_OK,
			     "started, probed from inside and ended in %lld ms",
			     (long long)(clock_now_ms() - began));
		return;
	}
	doctor_found(d, row, DOCTOR_FAILED, "%s",
		     output[0] ? last_line(output, shown, sizeof(shown))
			       : "it ended without a word");
	row->follows = "`weir run` can't work; a line above may say why";
}

bool cli_doctor_blames(int (*run)(struct run_spec *spec))
{
	char output[OUTPUT_SIZE];

	return run_sandbox(run, output) != 0;
}
