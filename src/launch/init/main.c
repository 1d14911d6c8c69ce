// SPDX-License-Identifier: Apache-2.0
#include "base/exit_status.h"
#include "supervisor/init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the channel --- */

void init_report(enum launch_report_type type, int value, const char *text)
{
	struct launch_report report = { .type = type, .value = value };
	size_t len = strlen(text);

	if (len >= sizeof(report.text))
		len = sizeof(report.text) - 1;
	memcpy(report.text, text, len);
	if (send(INIT_FD_CHANNEL, &report, sizeof(report), MSG_NOSIGNAL) < 0)
		_exit(RUN_STATUS_FAILED);
}

/* Wait for a report from control. Return: false when the channel is closed. */
static bool receive(struct launch_report *ret)
{
	ssize_t n;

	do
		n = recv(INIT_FD_CHANNEL, ret, sizeof(*ret), 0);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*ret);
}

static _Noreturn void give_up(const char *why)
{
	init_report(LAUNCH_FAILED, RUN_STATUS_FAILED, why);
	_exit(RUN_STATUS_FAILED);
}

/* --- before the command --- */

/* Mapped, to stay: the command's environment is in it. */
static const struct init_orders *read_orders(void)
{
	struct init_orders orders;
	ssize_t n = pread(INIT_FD_ORDERS, &orders, sizeof(orders), 0);
	void *map;

	if (n != (ssize_t)sizeof(orders))
		give_up("weir-init got no orders");
	map = mmap(NULL, sizeof(orders) + orders.environment_size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE, INIT_FD_ORDERS, 0);
	if (map == MAP_FAILED)
		give_up("weir-init cannot read its orders");
	close_range(INIT_FD_ORDERS, ~0U, 0);
	return map;
}

static void take_environment(const struct init_orders *orders)
{
	char *text = (char *)(uintptr_t)(orders + 1);
	char **list = mmap(NULL, (orders->environment_count + 1) * sizeof(*list),
			   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (list == MAP_FAILED)
		give_up("weir-init cannot read its orders");
	for (size_t i = 0; i < orders->environment_count; i++) {
		list[i] = text;
		text += strlen(text) + 1;
	}
	environ = list;
}

/* Every signal waits for signalfd; the command gets its own mask. */
static int open_signals(void)
{
	sigset_t all;
	int fd;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		give_up("weir-init cannot wait for signals");
	return fd;
}

/* Make the command's process, before the self-test, so that what the process does by
 * itself happens meanwhile. It turns into the command when a byte comes by *@ret_go, and
 * ends when *@ret_go is closed before. */
static pid_t make_command(char **argv, uint64_t ignored, int *ret_go)
{
	int go[2];
	pid_t child;

	if (syscall(SYS_pipe2, go, O_CLOEXEC) < 0)
		give_up("cannot start the command: no descriptor is free");
	child = fork();
	if (child == 0) {
		close(go[1]);
		command_exec(argv, ignored, go[0]);
	}
	if (child < 0)
		give_up("cannot start the command: the process limit is reached");
	close(go[0]);
	*ret_go = go[1];
	return child;
}

static void start_command(int go)
{
	struct launch_report report;

	do {
		if (!receive(&report))
			_exit(RUN_STATUS_FAILED);
	} while (report.type != LAUNCH_GO);
	if (syscall(SYS_write, go, "", 1) != 1)
		give_up("cannot start the command: it doesn't hear");
	close(go);
	init_report(LAUNCH_STARTED, 0, "");
}

/* --- beside the command --- */

/* Reap whatever changed state. Leaves when the command ended. */
static void reap(pid_t command)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
		if (pid != command)
			continue;
		if (WIFSTOPPED(status)) {
			init_report(LAUNCH_STOPPED, WSTOPSIG(status), "");
		} else if (WIFCONTINUED(status)) {
			init_report(LAUNCH_CONTINUED, 0, "");
		} else {
			init_report(LAUNCH_EXITED, status, "");
			_exit(WIFEXITED(status) ? WEXITSTATUS(status)
						: 128 + WTERMSIG(status));
		}
	}
}

enum { HOLD_MS = 100 }; /* a control that doesn't stop says so sooner */

/* @is_held: whether all is stopped. */
static void obey(pid_t command, const struct launch_report *order, bool *is_held)
{
	struct pollfd channel = { .fd = INIT_FD_CHANNEL, .events = POLLIN };

	if (order->type == LAUNCH_SIGNAL && order->value > 0 && order->value < NSIG)
		kill(command, order->value);
	/* Stop all that is in the sandbox while control is stopped, which is not where no
	 * shell could continue it. */
	if (order->type == LAUNCH_HOLD)
		*is_held = poll(&channel, 1, HOLD_MS) == 0 && kill(-1, SIGSTOP) == 0;
	if (order->type == LAUNCH_GO_ON && *is_held) {
		kill(-1, SIGCONT);
		*is_held = false;
	}
}

static _Noreturn void guard(pid_t command, int signals)
{
	struct pollfd polled[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = INIT_FD_CHANNEL, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	struct launch_report report;
	bool is_held = false;

	for (;;) {
		if (poll(polled, ARRAY_SIZE(polled), -1) < 0)
			continue;
		if (polled[0].revents) {
			(void)!read(signals, &info, sizeof(info));
			reap(command);
		}
		if (!polled[1].revents)
			continue;
		if (!receive(&report))
			_exit(RUN_STATUS_FAILED);
		obey(command, &report, &is_held);
	}
}

/* Return: true when the command may start; else @why says why it may not. */
static bool self_test(const struct init_orders *orders, char *why, size_t size)
{
	if (orders->self_test == SELF_TEST_NONE)
		return true;
	if (!self_test_deny(&orders->probe, why, size))
		return false;
	if (orders->self_test == SELF_TEST_DENY ||
	    self_test_first(&orders->probe, why, size))
		return true;
	if (orders->self_test == SELF_TEST_STRICT)
		return false;
	init_report(LAUNCH_WARNING, 0, why);
	return true;
}

int main(int argc, char **argv)
{
	const struct init_orders *orders;
	char why[ERR_TEXT_SIZE];
	int signals, go;
	pid_t command;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "weir-init");
	if (argc < 2)
		return RUN_STATUS_FAILED;
	orders = read_orders();
	take_environment(orders);
	signals = open_signals();
	command = make_command(argv + 1, orders->ignored_signals, &go);
	if (!self_test(orders, why, sizeof(why)))
		give_up(why);
	init_report(LAUNCH_TESTED, 0, "");
	start_command(go);
	guard(command, signals);
}
