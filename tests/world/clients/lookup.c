// SPDX-License-Identifier: Apache-2.0
/* lookup NAME… - getaddrinfo() of the C library it is built with; one line per name:
 * milliseconds, then the addresses or "failed". */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void print_all(const struct addrinfo *list)
{
	for (; list; list = list->ai_next) {
		const void *a =
			list->ai_family == AF_INET
				? (void *)&((struct sockaddr_in *)list->ai_addr)->sin_addr
				: (void *)&((struct sockaddr_in6 *)list->ai_addr)
					  ->sin6_addr;
		char text[64];

		printf(" %s", inet_ntop(list->ai_family, a, text, sizeof(text)));
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
		long from = now_ms();
		int r = getaddrinfo(argv[i], NULL, &hints, &found);

		printf("%ld", now_ms() - from);
		if (r == 0)
			print_all(found);
		else
			printf(" failed");
		putchar('\n');
		if (r == 0)
			freeaddrinfo(found);
	}
	return 0;
}
