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

/* Send a report; the text is cut to fit. */
static void init_report(enum launch_report_type type, int value, const char *text)
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

/* --- becoming the command --- */

/* The command shares its caller's process group, for the terminal's sake, and a process
 * group knows no namespaces: kill(0, sig) would reach who started us. Landlock ends that
 * (ABI 6, Linux 6.12; its headers are younger than Debian 12). Older kernels can't, and
 * some containers refuse it: the threat model says so. no_new_privs, which it asks for,
 * has been set. Return: whether that is done, or can't be had here; else errno says
 * what failed. */
static bool keep_signals_inside(void)
{
	const struct {
		uint64_t handled_access_fs, handled_access_net, scoped;
	} attr = { .scoped = 1 << 1 /* LANDLOCK_SCOPE_SIGNAL */ };
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	if (fd < 0)
		return errno != EMFILE && errno != ENFILE && errno != ENOMEM;
	return syscall(SYS_landlock_restrict_self, fd, 0) == 0;
}

static _Noreturn void command_exec(char **argv, uint64_t ignored_signals)
{
	const unsigned long by_default[8] = { 0 };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct launch_report report;
	sigset_t none;

	if (!keep_signals_inside())
		give_up("cannot keep the command's signals in the sandbox");
	/* What the caller of weir had ignored stays ignored (nohup), all else is as new.
	 * By the system call: the C library keeps two signals to itself, which a caller
	 * may have had ignored as well. An action of zeros is SIG_DFL on every
	 * architecture. */
	for (int n = 1; n <= 64; n++) {
		if (ignored_signals >> (n - 1) & 1)
			sigaction(n, &ignore, NULL);
		else
			syscall(SYS_rt_sigaction, n, by_default, NULL, 8);
	}
	/* For the walk alone: the kernel has read the directories of PATH when the word
	 * comes. */
	(void)command_is_in_path(argv[0]);
	/* Control's word, which the command's process hears by itself: nobody else reads
	 * the channel before that process has become the command. */
	do {
		if (!receive(&report))
			_exit(RUN_STATUS_FAILED);
	} while (report.type != LAUNCH_GO);
	close_range(STDERR_FILENO + 1, ~0U, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	command_become(argv);
}

/* --- before the command --- */

/* Mapped, to stay: the command's environment is in it, and becomes ours. */
static const struct init_orders *read_orders(void)
{
	struct init_orders orders;
	ssize_t n = pread(INIT_FD_ORDERS, &orders, sizeof(orders), 0);
	char **list, *text;
	void *map;

	if (n != (ssize_t)sizeof(orders))
		give_up("weir-init got no orders");
	map = mmap(NULL, sizeof(orders) + orders.environment_size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE, INIT_FD_ORDERS, 0);
	if (map == MAP_FAILED)
		give_up("weir-init cannot read its orders");
	close_range(INIT_FD_ORDERS, ~0U, 0);
	list = mmap(NULL, (orders.environment_count + 1) * sizeof(*list),
		    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		give_up("weir-init cannot read its orders");
	text = (char *)map + sizeof(orders);
	for (size_t i = 0; i < orders.environment_count; i++) {
		list[i] = text;
		text += strlen(text) + 1;
	}
	environ = list;
	return map;
}

/* Make the command's process, before the self-test, so that what the process does by
 * itself happens meanwhile. The process turns into the command when control says so, and
 * *@ret_gone is a pipe that the process holds until then. */
static pid_t make_command(char **argv, uint64_t ignored, int *ret_gone)
{
	int gone[2];
	pid_t child;

	if (syscall(SYS_pipe2, gone, O_CLOEXEC) < 0)
		give_up("cannot start the command: no descriptor is free");
	child = fork();
	if (child == 0) {
		close(gone[0]);
		command_exec(argv, ignored);
	}
	if (child < 0)
		give_up("cannot start the command: the process limit is reached");
	close(gone[1]);
	*ret_gone = gone[0];
	return child;
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

static _Noreturn void guard(pid_t command, int signals)
{
	struct pollfd polled[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = INIT_FD_CHANNEL, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	struct launch_report report;
	struct pollfd channel = polled[1];
	bool is_held = false; /* all is stopped */

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
		if (report.type == LAUNCH_SIGNAL && report.value > 0 &&
		    report.value < NSIG)
			kill(command, report.value);
		/* Stop all that is in the sandbox while control is stopped, which is not
		 * where no shell could continue it. */
		if (report.type == LAUNCH_HOLD)
			is_held = poll(&channel, 1, HOLD_MS) == 0 &&
				  kill(-1, SIGSTOP) == 0;
		if (report.type == LAUNCH_GO_ON && is_held) {
			kill(-1, SIGCONT);
			is_held = false;
		}
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
	char why[ERR_TEXT_SIZE], byte;
	int signals, gone;
	sigset_t set;
	pid_t command;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "weir-init");
	if (argc < 2)
		return RUN_STATUS_FAILED;
	orders = read_orders();
	/* Every signal waits for signalfd; the command gets its own mask. */
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		give_up("weir-init cannot wait for signals");
	command = make_command(argv + 1, orders->ignored_signals, &gone);
	if (!self_test(orders, why, sizeof(why)))
		give_up(why);
	init_report(LAUNCH_TESTED, 0, "");
	/* The command's process alone hears the channel until @gone ends: that process is
	 * about to become the command then, or is dead. */
	(void)!read(gone, &byte, 1);
	close(gone);
	init_report(LAUNCH_STARTED, 0, "");
	guard(command, signals);
}
