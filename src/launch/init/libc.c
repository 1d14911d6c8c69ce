// SPDX-License-Identifier: Apache-2.0
/* What weir-init calls of the C library, and nothing else.
 *
 * HOW IT WORKS
 *   weir-init is linked with this instead of libc. With libc it has 700 KB, and each
 * start of a sandbox copies all of it into a memfd, maps it, and sets up locales, threads
 *   and buffers that PID 1 doesn't need: a twentieth of the whole start. With this it
 *   has 20 KB. The functions have libc's declarations, so the rest of weir-init is plain
 *   C. Each does what its callers here need, and what it doesn't know ends the process.
 *   What needs no system call is in text.c.
 *
 *   Only on architectures whose entry and system call are written here
 *   (src/launch/meson.build); elsewhere weir-init is linked with libc. */
#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"

char **environ;
int main(int argc, char **argv);

/* -- the entry, and the system call -------------------------------------------------- */

#if defined(__x86_64__)
__asm__(".text\n.global _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n"
	"\tand $-16, %rsp\n\tcall begin\n\thlt\n");

static long call(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
__asm__(".text\n.global _start\n_start:\n\tmov x29, #0\n\tmov x30, #0\n\tmov x0, sp\n"
	"\tand sp, x0, #-16\n\tbl begin\n");

static long call(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#endif

static int last_error;

int *__errno_location(void)
{
	return &last_error;
}

/* Like libc's: -1 and errno. */
static long done(long r)
{
	if (r >= 0 || r < -4095)
		return r;
	last_error = (int)-r;
	return -1;
}

#define L(x)		       ((long)(x))
#define CALL(n, a, b, c, d, e) done(call(n, L(a), L(b), L(c), L(d), L(e), 0))

long syscall(long n, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, n);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return done(call(n, a[0], a[1], a[2], a[3], a[4], a[5]));
}

void _exit(int status)
{
	for (;;)
		call(SYS_exit_group, status, 0, 0, 0, 0, 0);
}

/* @stack: argc, the arguments, NULL, the environment. */
_Noreturn void begin(long *stack);

_Noreturn void begin(long *stack)
{
	char **argv = (char **)(stack + 1);

	environ = argv + stack[0] + 1;
	_exit(main((int)stack[0], argv));
}

#ifdef __GLIBC__
#define LINE unsigned int
#else
#define LINE int

uint16_t htons(uint16_t value)
{
	return htobe16(value);
}

uint32_t htonl(uint32_t value)
{
	return htobe32(value);
}
#endif
_Noreturn void __assert_fail(const char *what, const char *file, LINE line,
			     const char *function)
{
	_exit(EXIT_FAILURE);
}

/* -- system calls -------------------------------------------------------------------- */

ssize_t read(int fd, void *bytes, size_t size)
{
	return CALL(SYS_read, fd, bytes, size, 0, 0);
}

ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
	return CALL(SYS_pread64, fd, bytes, size, at, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	return CALL(SYS_writev, fd, parts, count, 0, 0);
}

int close(int fd)
{
	return (int)CALL(SYS_close, fd, 0, 0, 0, 0);
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)CALL(SYS_close_range, first, last, flags, 0, 0);
}

int access(const char *path, int mode)
{
	return (int)CALL(SYS_faccessat, AT_FDCWD, path, mode, 0, 0);
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	long r = call(SYS_mmap, L(at), L(size), prot, flags, fd, offset);

	return (void *)done(r);
}

int socket(int family, int type, int protocol)
{
	return (int)CALL(SYS_socket, family, type, protocol, 0, 0);
}

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
	return (int)CALL(SYS_connect, fd, to, size, 0, 0);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
	return CALL(SYS_sendto, fd, bytes, size, flags, 0);
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
	return CALL(SYS_recvfrom, fd, bytes, size, flags, 0);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	return (int)CALL(SYS_getsockopt, fd, level, name, value, size);
}

ssize_t getrandom(void *bytes, size_t size, unsigned int flags)
{
	return CALL(SYS_getrandom, bytes, size, flags, 0, 0);
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	struct timespec t = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };

	return (int)CALL(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &t, NULL, 0);
}

int prctl(int option, ...)
{
	va_list ap;
	long value;

	va_start(ap, option);
	value = va_arg(ap, long);
	va_end(ap);
	return (int)CALL(SYS_prctl, option, value, 0, 0, 0);
}

/* -- signals: the kernel's set is the first word of libc's --------------------------- */

enum { KERNEL_SET_SIZE = 8 };

int sigemptyset(sigset_t *set)
{
	memset(set, 0, sizeof(*set));
	return 0;
}

int sigfillset(sigset_t *set)
{
	memset(set, 0xff, sizeof(*set));
	return 0;
}

int sigaddset(sigset_t *set, int sig)
{
	((uint64_t *)set)[0] |= UINT64_C(1) << (sig - 1);
	return 0;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	return (int)CALL(SYS_rt_sigprocmask, how, set, old, KERNEL_SET_SIZE, 0);
}

int signalfd(int fd, const sigset_t *set, int flags)
{
	return (int)CALL(SYS_signalfd4, fd, set, KERNEL_SET_SIZE, flags, 0);
}

/* SIG_DFL and SIG_IGN alone: a handler would need a way back. */
int sigaction(int sig, const struct sigaction *action, struct sigaction *old)
{
	const struct {
		void (*handler)(int sig);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} kernels = { .handler = action->sa_handler };

	if (old || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN))
		_exit(EXIT_FAILURE);
	return (int)CALL(SYS_rt_sigaction, sig, &kernels, NULL, KERNEL_SET_SIZE, 0);
}

int kill(pid_t pid, int sig)
{
	return (int)CALL(SYS_kill, pid, sig, 0, 0, 0);
}

char *getenv(const char *name)
{
	size_t len = strlen(name);

	for (char **v = environ; *v; v++)
		if (strcspn(*v, "=") == len && memcmp(*v, name, len) == 0 && (*v)[len])
			return *v + len + 1;
	return NULL;
}

/* -- processes ----------------------------------------------------------------------- */

pid_t fork(void)
{
	return (pid_t)CALL(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return (pid_t)CALL(SYS_wait4, pid, status, options, NULL, 0);
}

/* A script whose first line names no interpreter is the shell's. */
static void execute(const char *path, char *const *argv)
{
	static char sh[] = "/bin/sh";
	size_t count = 1;
	char **list;

	CALL(SYS_execve, path, argv, environ, 0, 0);
	if (last_error != ENOEXEC)
		return;
	while (argv[count])
		count++;
	list = mmap(NULL, (count + 2) * sizeof(*list), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		return;
	list[0] = sh;
	list[1] = (char *)(uintptr_t)path;
	memcpy(list + 2, argv + 1, (count - 1) * sizeof(*list));
	CALL(SYS_execve, sh, list, environ, 0, 0);
}

int execvp(const char *name, char *const *argv)
{
	const char *path = getenv("PATH") ?: "/bin:/usr/bin";
	bool refused = false;
	char file[PATH_MAX];

	if (!*name) {
		last_error = ENOENT;
		return -1;
	}
	if (strchr(name, '/')) {
		execute(name, argv);
		return -1;
	}
	for (;; path++) {
		size_t len = strcspn(path, ":");
		const char *slash = len > 0 ? "/" : "";

		last_error = ENAMETOOLONG;
		if (snprintf(file, sizeof(file), "%.*s%s%s", (int)len, path, slash,
			     name) < (int)sizeof(file))
			execute(file, argv);
		switch (last_error) {
		/* Of one directory of PATH, these are no reason to leave out others. */
		case EACCES:
			refused = true;
			break;
		case ENAMETOOLONG:
		case ENOENT:
		case ENOTDIR:
		case ENODEV:
		case ESTALE:
		case ETIMEDOUT:
			break;
		default:
			return -1;
		}
		path += len;
		if (!*path)
			break;
	}
	if (refused)
		last_error = EACCES;
	return -1;
}
