// SPDX-License-Identifier: Apache-2.0
/* denystorm - sends datagrams that are refused, as a sandbox does that tries everything.
 *
 *   denystorm ADDRESS PORTS RATE SECONDS CPU
 *
 * To PORTS ports of ADDRESS in turn, from 10000 on, RATE a second. One line of JSON: what
 * was sent, what the kernel refused, and what a packet cost the sender, the kernel's
 * refusal included. */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { FIRST_PORT = 10000, STEP_NS = 1000 * 1000 };

static int64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void wait_until(int64_t ns)
{
	const struct timespec t = { .tv_sec = ns / 1000000000,
				    .tv_nsec = ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void stay_on(long cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (cpu >= 0)
		sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint64_t sent = 0, refused = 0, wanted = 0;
	long ports, rate, seconds;
	int64_t begin, at, cpu;

	if (argc != 6 || fd < 0 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	ports = strtol(argv[2], NULL, 10);
	rate = strtol(argv[3], NULL, 10);
	seconds = strtol(argv[4], NULL, 10);
	stay_on(strtol(argv[5], NULL, 10));
	begin = at = now_ns(CLOCK_MONOTONIC);
	while (at - begin < seconds * INT64_C(1000000000)) {
		at += STEP_NS;
		wait_until(at);
		wanted = (uint64_t)((at - begin) / STEP_NS) * (uint64_t)rate / 1000;
		for (; sent < wanted; sent++) {
			to.sin_port =
				htons((uint16_t)(FIRST_PORT + sent % (uint64_t)ports));
			refused += sendto(fd, "storm", 5, MSG_DONTWAIT,
					  (struct sockaddr *)&to, sizeof(to)) < 0 &&
				   errno == EPERM;
		}
	}
	at = now_ns(CLOCK_MONOTONIC) - begin;
	cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	printf("{\"sent\": %lu, \"refused\": %lu, \"per_second\": %.0f, \"cpu_us\": "
	       "%.3f}\n",
	       (unsigned long)sent, (unsigned long)refused,
	       (double)sent * 1e9 / (double)at,
	       (double)cpu / 1e3 / (double)(sent > 0 ? sent : 1));
	return 0;
}
