// SPDX-License-Identifier: Apache-2.0
/* denystorm - sends datagrams that are refused, as a sandbox does that tries everything.
 *
 *   denystorm ADDRESS PORTS RATE SECONDS CPU [THREADS]
 *
 * To PORTS ports of ADDRESS in turn, from 10000 on, RATE a second; the first thread stays
 * on CPU, the others are where there is room. A refusal costs the sender 10 to 25 us, and
 * ends a sendmmsg(), and datagrams that the kernel cuts (UDP_SEGMENT) are refused as one:
 * more threads are the only way to more. One line of JSON: what was sent, what the kernel
 * refused, and what a packet cost the sender, the kernel's refusal included. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { FIRST_PORT = 10000, STEP_NS = 1000 * 1000, THREADS_MAX = 16 };

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

/* One thread's part. */
struct storm {
	pthread_t thread;
	struct sockaddr_in to;
	uint64_t first, step, ports, rate; /* of all threads together */
	long seconds, cpu;		   /* cpu -1: any */
	uint64_t sent, refused;
	int64_t begin, cpu_ns;
};

static void *send_all(void *data)
{
	struct storm *s = data;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = s->to;
	int64_t at = s->begin;

	stay_on(s->cpu);
	while (fd >= 0 && at - s->begin < s->seconds * INT64_C(1000000000)) {
		uint64_t wanted;

		at += STEP_NS;
		wait_until(at);
		wanted = (uint64_t)((at - s->begin) / STEP_NS) * s->rate / 1000 / s->step;
		for (; s->sent < wanted; s->sent++) {
			const uint64_t n = s->first + s->sent * s->step;

			to.sin_port = htons((uint16_t)(FIRST_PORT + n % s->ports));
			s->refused += sendto(fd, "storm", 5, MSG_DONTWAIT,
					     (struct sockaddr *)&to, sizeof(to)) < 0 &&
				      errno == EPERM;
		}
	}
	s->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct storm all[THREADS_MAX] = { 0 };
	uint64_t sent = 0, refused = 0;
	int64_t begin, took, cpu_ns = 0;
	long threads;

	if ((argc != 6 && argc != 7) || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	threads = argc == 7 ? strtol(argv[6], NULL, 10) : 1;
	if (threads < 1 || threads > THREADS_MAX)
		return 2;
	begin = now_ns(CLOCK_MONOTONIC);
	for (long i = 0; i < threads; i++) {
		all[i] = (struct storm){
			.to = to,
			.first = (uint64_t)i,
			.step = (uint64_t)threads,
			.ports = strtoul(argv[2], NULL, 10),
			.rate = strtoul(argv[3], NULL, 10),
			.seconds = strtol(argv[4], NULL, 10),
			.cpu = i == 0 ? strtol(argv[5], NULL, 10) : -1,
			.begin = begin,
		};
		if (pthread_create(&all[i].thread, NULL, send_all, &all[i]) != 0)
			return 1;
	}
	for (long i = 0; i < threads; i++) {
		pthread_join(all[i].thread, NULL);
		sent += all[i].sent;
		refused += all[i].refused;
		cpu_ns += all[i].cpu_ns;
	}
	took = now_ns(CLOCK_MONOTONIC) - begin;
	printf("{\"sent\": %lu, \"refused\": %lu, \"per_second\": %.0f, \"cpu_us\": "
	       "%.3f}\n",
	       (unsigned long)sent, (unsigned long)refused,
	       (double)sent * 1e9 / (double)took,
	       (double)cpu_ns / 1e3 / (double)(sent > 0 ? sent : 1));
	return 0;
}
