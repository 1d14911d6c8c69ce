// SPDX-License-Identifier: Apache-2.0
/* confined_driver - what somebody could do who took the engine over: it confines itself
 * with the engine's own code (harden.c; built once per confinement that is to stand
 * alone), then tries one thing after the other. One line each: its name, and "done" or
 * the error's name. Before it confines itself it opens what the engine has open then.
 *
 * Arguments: a file that it may read and write as who it is; "keep" when the right to
 * change networks is to be kept, as it is in a network namespace that belongs to root. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/harden.h"

/* What there is before the confinement. */
struct victim {
	const char *file;
	int route_fd; /* rtnetlink, of this network namespace */
	int listener; /* an abstract unix socket, not ours by Landlock's rules */
	struct sockaddr_un abstract; /* its name */
	pid_t other;		     /* a process of the same user */
	int tcp;		     /* a listener at 127.0.0.1 */
	struct sockaddr_in server;   /* its address */
};

/* Return: @value, which is a descriptor or a failure, as 0 or -errno. */
static int closed(int value)
{
	if (value < 0)
		return -errno;
	close(value);
	return 0;
}

static int try_read(struct victim *v)
{
	return closed(open(v->file, O_RDONLY | O_CLOEXEC));
}

static int try_write(struct victim *v)
{
	return closed(open(v->file, O_WRONLY | O_CLOEXEC));
}

static int try_list(struct victim *v)
{
	return closed(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int try_remove(struct victim *v)
{
	return unlink(v->file) < 0 ? -errno : 0;
}

/* Where no process can be made, the call itself is tried: success would not come back. */
static int try_exec(struct victim *v)
{
	static char name[] = "true";
	char *const argv[] = { name, NULL }, *const envp[] = { NULL };
	pid_t pid = fork();
	int status;

	if (pid <= 0) {
		execve("/bin/true", argv, envp);
		if (pid == 0)
			_exit(errno);
		return -errno;
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -ECHILD;
	return -WEXITSTATUS(status);
}

static int try_fork(struct victim *v)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid < 0 || waitpid(pid, NULL, 0) != pid ? -errno : 0;
}

/* The link lo is taken down through the descriptor that the engine has. */
static int try_network(struct victim *v)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} ask = { .head = { .nlmsg_len = sizeof(ask),
			    .nlmsg_type = RTM_NEWLINK,
			    .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		  .link = { .ifi_index = 1, .ifi_change = IFF_UP } };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[512];
	} answer;

	if (send(v->route_fd, &ask, sizeof(ask), 0) < 0 ||
	    recv(v->route_fd, &answer, sizeof(answer), 0) < (ssize_t)NLMSG_LENGTH(4))
		return -errno;
	return answer.error.error;
}

static int try_netlink(struct victim *v)
{
	return closed(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
}

static int try_raw(struct victim *v)
{
	return closed(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP));
}

static int try_packet(struct victim *v)
{
	return closed(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
}

static int try_abstract(struct victim *v)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = connect(fd, (struct sockaddr *)&v->abstract, sizeof(v->abstract)) < 0 ? -errno
										  : 0;
	close(fd);
	return r;
}

static int try_signal(struct victim *v)
{
	return kill(v->other, 0) < 0 ? -errno : 0;
}

static int try_trace(struct victim *v)
{
	if (ptrace(PTRACE_SEIZE, v->other, NULL, NULL) < 0)
		return -errno;
	return 0;
}

static int try_mount(struct victim *v)
{
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

static int try_code(struct victim *v)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -errno : 0;
}

static int try_io_uring(struct victim *v)
{
	char params[120] = { 0 };

	return closed((int)syscall(SYS_io_uring_setup, 1, params));
}

/* What the engine needs goes on. */
static int try_connect(struct victim *v)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = connect(fd, (struct sockaddr *)&v->server, sizeof(v->server)) < 0 ? -errno
									      : 0;
	close(fd);
	return r;
}

/* Last: what follows would happen in namespaces of its own. */
static int try_namespace(struct victim *v)
{
	return unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ? -errno : 0;
}

static const struct {
	const char *name;
	int (*try)(struct victim *v);
} attempts[] = {
	{ "connect", try_connect },   { "read", try_read },
	{ "write", try_write },	      { "list", try_list },
	{ "exec", try_exec },	      { "fork", try_fork },
	{ "netlink", try_netlink },   { "raw", try_raw },
	{ "packet", try_packet },     { "abstract", try_abstract },
	{ "signal", try_signal },     { "trace", try_trace },
	{ "mount", try_mount },	      { "code", try_code },
	{ "io_uring", try_io_uring }, { "remove", try_remove },
	{ "network", try_network },   { "namespace", try_namespace },
};

/* A process that ends with us: the pipe does. A signal at our death would not come,
 * Landlock holds that back as well. */
static pid_t bystander(void)
{
	int ends[2];
	char byte;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid != 0) {
		close(ends[0]);
		return pid;
	}
	close(ends[1]);
	(void)!read(ends[0], &byte, 1);
	_exit(0);
}

static int prepare(struct victim *v)
{
	socklen_t size = sizeof(v->server);

	v->other = bystander();
	v->route_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	v->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	v->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (v->other < 0 || v->route_fd < 0 || v->listener < 0 || v->tcp < 0)
		return -errno;
	v->abstract.sun_family = AF_UNIX;
	snprintf(v->abstract.sun_path + 1, sizeof(v->abstract.sun_path) - 1, "weir-%d",
		 (int)getpid());
	v->server.sin_family = AF_INET;
	v->server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(v->listener, (struct sockaddr *)&v->abstract, sizeof(v->abstract)) < 0 ||
	    listen(v->listener, 8) < 0 ||
	    bind(v->tcp, (struct sockaddr *)&v->server, sizeof(v->server)) < 0 ||
	    listen(v->tcp, 8) < 0 ||
	    getsockname(v->tcp, (struct sockaddr *)&v->server, &size) < 0)
		return -errno;
	return 0;
}

int main(int argc, char **argv)
{
	struct victim v = { .file = argc > 1 ? argv[1] : "" };
	uint64_t keep = argc > 2 ? UINT64_C(1) << CAP_NET_ADMIN : 0;
	struct err err = { 0 };
	char missing[ERR_TEXT_SIZE];
	int r = prepare(&v);

	if (r < 0)
		err_sys(&err, r, "cannot prepare");
	else
		r = harden_engine(keep, missing, &err);
	if (r < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	dprintf(STDOUT_FILENO, "missing %s\n", missing);
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		r = attempts[i].try(&v);
		dprintf(STDOUT_FILENO, "%s %s\n", attempts[i].name,
			r == 0 ? "done" : strerrorname_np(-r));
	}
	return 0;
}
