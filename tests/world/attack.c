// SPDX-License-Identifier: Apache-2.0
/* System calls that no library would make, by number and by the other calling
 * conventions of the machine. Prints "ok" or the errno's name, one line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long raw(long number, long a, long b, long c)
{
	return syscall(number, a, b, c);
}

#ifdef __x86_64__
/* The 32-bit entry: a filter that looks at 64-bit numbers alone doesn't see it. */
static long int80(long number, long a, long b, long c)
{
	long r;

	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"(number), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	if (r < 0) {
		errno = (int)-r;
		return -1;
	}
	return r;
}
#endif

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	long n[4] = { 0 }, r = -1;

	for (int i = 0; i < 4 && i + 2 < argc; i++)
		n[i] = strtol(argv[i + 2], NULL, 0);
	errno = EINVAL;
	if (strcmp(how, "syscall") == 0)
		r = raw(n[0], n[1], n[2], n[3]);
	else if (strcmp(how, "uring") == 0) {
		char params[120] = { 0 };

		r = raw(SYS_io_uring_setup, 8, (long)params, 0);
	} else if (strcmp(how, "tty") == 0) {
		char c = 'x';

		r = ioctl(0, (unsigned long)n[0], &c);
	}
#ifdef __x86_64__
	else if (strcmp(how, "int80") == 0)
		r = int80(n[0], n[1], n[2], n[3]);
	else if (strcmp(how, "x32") == 0)
		r = raw(n[0] | 0x40000000, n[1], n[2], n[3]);
#endif
	puts(r >= 0 ? "ok" : strerrorname_np(errno));
	return 0;
}
