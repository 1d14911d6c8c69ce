// SPDX-License-Identifier: Apache-2.0
/* launch_driver - a stand-in for control and engine, so that the launch can be tested
 * without them.
 *
 *   launch_driver [--rw PATH] [--ro PATH] [--no-test] [--self-test full|strict]
 *                 [--denied-answer RCODE] [--open] [--silent] [--late] [--times] --
 * COMMAND ...
 *
 * prepare() brings lo up with 192.0.2.1 on it, and hands a DNS socket and a listener,
 * made inside, to this process, which serves them. --open: the address that the
 * self-test takes for denied accepts. --silent: no DNS answer. --late: the first one
 * comes after 1.5 s. --denied-answer: the code for the denied name. Exits like the
 * command, or with 125. */
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "launch/launch.h"
#include "launch/startup_files.h"

enum {
	RELAY_PORT = 4443,
	DENIED_PORT = 4444,
	PATHS_MAX = 600,
	OPT_SIZE = 11,
	FAILED = 125
};

struct driver {
	struct launch_spec spec;
	pid_t builder;
	const char *rw[PATHS_MAX], *ro[PATHS_MAX];
	int denied_rcode;
	bool open, silent, late, times;
	int serve[2]; /* sockets from the child [1] to us [0] */
	int channel;
	int dns, relay;
	struct timespec start;
};

static void mark(const struct driver *d, const char *what)
{
	struct timespec now;

	if (!d->times)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	fprintf(stderr, "time %s %.3f\n", what,
		(double)(now.tv_sec - d->start.tv_sec) * 1e3 +
			(double)(now.tv_nsec - d->start.tv_nsec) / 1e6);
}

/* --- inside --- */

static void set_address(const char *name, uint32_t address)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq req = { 0 };
	struct sockaddr_in *in = (void *)&req.ifr_addr;

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(address);
	if (ioctl(s, SIOCSIFADDR, &req) < 0)
		perror("launch_driver: SIOCSIFADDR");
	req.ifr_flags = IFF_UP;
	if (ioctl(s, SIOCSIFFLAGS, &req) < 0)
		perror("launch_driver: SIOCSIFFLAGS");
	close(s);
}

static int bound(int type, uint32_t address, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(address) };
	int s = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	if (bind(s, (struct sockaddr *)&in, sizeof(in)) < 0)
		perror("launch_driver: bind");
	if (type == SOCK_STREAM)
		listen(s, 16);
	return s;
}

static int send_fds(int sock, const int fds[3])
{
	char control[CMSG_SPACE(sizeof(int) * 3)] = { 0 };
	struct iovec iov = { control, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * 3);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * 3);
	return sendmsg(sock, &msg, 0) < 0 ? -errno : 0;
}

static int prepare(void *data, struct err *err)
{
	struct driver *d = data;
	int fds[3];

	set_address("lo", 0x7f000001);
	set_address("lo:1", 0xc0000201);
	fds[0] = bound(SOCK_DGRAM, 0x7f000001, 53);
	fds[1] = bound(SOCK_STREAM, 0xc0000201, RELAY_PORT);
	fds[2] = bound(SOCK_STREAM, 0xc0000201, d->open ? DENIED_PORT : 0);
	if (getenv("DRIVER_PREPARE_FAILS"))
		return err_set(err, -EIO, "the prepare step failed");
	return send_fds(d->serve[1], fds);
}

static int confirm(void *data, struct err *err)
{
	return getenv("DRIVER_CONFIRM_FAILS")
		       ? err_set(err, -EIO, "the confirm step failed")
		       : 0;
}

/* --- the engine's part --- */

static void receive_fds(struct driver *d)
{
	char control[CMSG_SPACE(sizeof(int) * 3)];
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fds[3];

	if (recvmsg(d->serve[0], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) {
		close(d->serve[0]);
		d->serve[0] = -1;
		return;
	}
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fds));
	d->dns = fds[0];
	d->relay = fds[1];
	if (!d->open)
		close(fds[2]);
	close(d->serve[0]);
	d->serve[0] = -1;
	mark(d, "prepared");
}

static void answer_dns(struct driver *d)
{
	static const uint8_t record[] = { 0xc0, 12, 0, 1, 0,   1, 0, 0,
					  0,	1,  0, 4, 192, 0, 2, 1 };
	uint8_t buf[512 + sizeof(record)];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	ssize_t n =
		recvfrom(d->dns, buf, 512, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
	bool allowed = n > 17 && memcmp(buf + 13, "ok", 2) == 0;

	if (n < 12 || d->silent)
		return;
	if (d->late)
		(void)!poll(NULL, 0, 1500);
	d->late = false;
	buf[2] = 0x81;
	buf[3] = allowed ? 0x80 : (uint8_t)(0x80 | d->denied_rcode);
	if (allowed) {
		n -= OPT_SIZE; /* the answer stands before the query's OPT record */
		buf[7] = 1;
		buf[11] = 0;
		memcpy(buf + n, record, sizeof(record));
		n += sizeof(record);
	}
	sendto(d->dns, buf, (size_t)n, 0, (struct sockaddr *)&from, len);
}

static void greet(const struct driver *d)
{
	int s = accept(d->relay, NULL, NULL);

	(void)!write(s, "W", 1);
	close(s);
}

/* --- control's part --- */

static void tell(const struct driver *d, enum launch_report_type type, int value)
{
	struct launch_report report = { .type = type, .value = value };

	send(d->channel, &report, sizeof(report), MSG_NOSIGNAL);
}

/* Return: -1 to go on, or the status to exit with. */
static int on_report(const struct driver *d)
{
	struct launch_report report;

	if (recv(d->channel, &report, sizeof(report), 0) != (ssize_t)sizeof(report)) {
		fprintf(stderr, "launch_driver: channel closed\n");
		return FAILED;
	}
	switch (report.type) {
	case LAUNCH_FAILED:
		fprintf(stderr, "failed: %s\n", report.text);
		return report.value;
	case LAUNCH_WARNING:
		fprintf(stderr, "warning: %s\n", report.text);
		return -1;
	case LAUNCH_TESTED:
		mark(d, "tested");
		waitpid(d->builder, NULL, 0);
		tell(d, LAUNCH_GO, 0);
		return -1;
	case LAUNCH_STOPPED:
		fprintf(stderr, "stopped %d\n", report.value);
		return -1;
	case LAUNCH_CONTINUED:
		fprintf(stderr, "continued\n");
		return -1;
	case LAUNCH_EXITED:
		mark(d, "exited");
		return WIFEXITED(report.value) ? WEXITSTATUS(report.value)
					       : 128 + WTERMSIG(report.value);
	default:
		return -1;
	}
}

static int serve(struct driver *d, int signals)
{
	for (;;) {
		struct pollfd p[] = {
			{ .fd = d->channel, .events = POLLIN },
			{ .fd = d->serve[0], .events = POLLIN },
			{ .fd = signals, .events = POLLIN },
			{ .fd = d->dns, .events = POLLIN },
			{ .fd = d->relay, .events = POLLIN },
		};
		struct signalfd_siginfo info;
		int status = -1;

		poll(p, ARRAY_SIZE(p), -1);
		if (p[0].revents)
			status = on_report(d);
		if (status >= 0)
			return status;
		if (p[1].revents)
			receive_fds(d);
		if (p[2].revents && read(signals, &info, sizeof(info)) > 0)
			tell(d, LAUNCH_SIGNAL, (int)info.ssi_signo);
		if (p[3].revents)
			answer_dns(d);
		if (p[4].revents)
			greet(d);
	}
}

static char **parse(struct driver *d, char **argv)
{
	for (argv++; *argv && strcmp(*argv, "--") != 0; argv++) {
		if (strcmp(*argv, "--rw") == 0)
			d->rw[d->spec.rw_count++] = *++argv;
		else if (strcmp(*argv, "--ro") == 0)
			d->ro[d->spec.ro_count++] = *++argv;
		else if (strcmp(*argv, "--no-test") == 0)
			d->spec.self_test = SELF_TEST_NONE;
		else if (strcmp(*argv, "--self-test") == 0)
			d->spec.self_test = strcmp(*++argv, "full") == 0
						    ? SELF_TEST_FULL
						    : SELF_TEST_STRICT;
		else if (strcmp(*argv, "--denied-answer") == 0)
			d->denied_rcode = atoi(*++argv);
		else if (strcmp(*argv, "--open") == 0)
			d->open = true;
		else if (strcmp(*argv, "--silent") == 0)
			d->silent = true;
		else if (strcmp(*argv, "--late") == 0)
			d->late = true;
		else if (strcmp(*argv, "--times") == 0)
			d->times = true;
	}
	return argv + 1;
}

static void fill_probe(struct launch_probe *probe)
{
	snprintf(probe->allowed_name, sizeof(probe->allowed_name), "ok.probe.test");
	snprintf(probe->denied_name, sizeof(probe->denied_name), "no.probe.test");
	snprintf(probe->first_name, sizeof(probe->first_name), "first.test");
	probe->relay = true;
	probe->allowed = (struct endpoint){ addr_v4(192, 0, 2, 1), RELAY_PORT };
	probe->denied = (struct endpoint){ addr_v4(192, 0, 2, 1), DENIED_PORT };
}

int main(int argc, char **argv)
{
	struct driver d = { .spec = { .self_test = SELF_TEST_DENY,
				      .prepare = prepare,
				      .confirm = confirm },
			    .denied_rcode = 3,
			    .dns = -1,
			    .relay = -1 };
	static struct startup_files startup;
	struct launch_machine machine;
	struct err err = { 0 };
	int pair[2], status, signals;
	sigset_t set;
	CLEAN(mem) char *cwd = getcwd(NULL, 0);
	pid_t child;

	clock_gettime(CLOCK_MONOTONIC, &d.start);
	d.spec.argv = parse(&d, argv);
	d.spec.environment = environ;
	d.spec.cwd = cwd;
	d.spec.rw = d.rw;
	d.spec.ro = d.ro;
	d.spec.startup = &startup;
	d.spec.prepare_data = &d;
	d.spec.builder = &d.builder;
	fill_probe(&d.spec.probe);
	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, d.serve);
	d.channel = pair[0];
	d.spec.control_fd = pair[1];
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	machine = launch_machine_probe();
	mark(&d, "probed");
	child = launch_start(&machine, &d.spec, &err);
	if (child < 0) {
		fprintf(stderr, "failed: %s\n", err.text);
		return FAILED;
	}
	mark(&d, "started");
	close(pair[1]);
	close(d.serve[1]);
	status = serve(&d, signals);
	close(d.channel);
	waitpid(child, NULL, 0);
	mark(&d, "reaped");
	return status;
}
