// SPDX-License-Identifier: Apache-2.0
/* filter_driver's commands for the table of a whole host. WHO is cgroup:ID:LEVEL or
 * uid:UID; FLAGS has r (relay).
 *
 *     hostopen DNS RELAY           ports; as a process that has just started
 *     hostclose                    as one that died: the rules stay
 *     hostload                     install everything that was set; how many are left
 * over hoststate learned|kept ADDR LIST MS   what the next "hostset" starts with hostset
 * ID WHO FLAGS     attach or change, with the driver's policy hostremove ID hostlearn ID
 * ADDR LIST MS COUNT   COUNT addresses from ADDR on, in one batch hosttidy until nothing
 * is left; how many calls hostverify, hostverifyone ID; hostlearned    what the
 * kernel has: ID|ADDR|LIST|SECONDS hostevents                   as "events", with
 * the sandbox hostlisten ADDR PORT         over TCP; hostwho: of the next connection, the
 *     cgroup PATH                  its id, level, path; cgroupcheck: may it be guarded?
 *     cgroupstrays PATH            sockets, processes, the first of them
 * sandbox hostbench FIRST COUNT        attach COUNT cgroups, read each back: p50 max
 *     hostlearnbench COUNT         learn in nanoseconds: p50 p99 */
#include "filter_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "filter/host_internal.h"
#include "filter/nflog.h"
#include "sys/cgroup.h"
#include "sys/ctmark.h"
#include "sys/sock.h"

enum { ITEMS_MAX = 64, TIMES_MAX = 20000 };

static struct filter_host *host;
static struct filter_learn learned[ITEMS_MAX], kept[ITEMS_MAX];
static size_t learned_count, kept_count;

static void on_open(struct driver *d, char **words)
{
	const struct filter_host_params params = {
		.dns_port = (uint16_t)atoi(words[1]),
		.relay_port = (uint16_t)atoi(words[2]),
	};
	struct err err = { 0 };
	int fd, r = sandbox_netlink_open(&fd, &err);

	if (r == 0)
		r = filter_host_new(fd, &params, &host, &err);
	answer(r, &err);
}

static void on_close(struct driver *d, char **words)
{
	filter_host_free(host);
	host = NULL;
	answer(0, NULL);
}

static void on_load(struct driver *d, char **words)
{
	struct err err = { 0 };

	if (filter_host_load(host, clock_now_ms(), &err) < 0)
		return answer(-EINVAL, &err);
	printf("ok %zu\n", host->left_over);
}

static void on_state(struct driver *d, char **words)
{
	bool is_kept = strcmp(words[1], "kept") == 0;
	struct filter_learn item = {
		.port_list = (uint8_t)atoi(words[3]),
		.lifetime_ms = (uint32_t)atoi(words[4]),
	};

	if (!addr_parse(words[2], strlen(words[2]), &item.addr) ||
	    learned_count == ITEMS_MAX || kept_count == ITEMS_MAX)
		return answer(-EINVAL, NULL);
	if (is_kept)
		kept[kept_count++] = item;
	else
		learned[learned_count++] = item;
	answer(0, NULL);
}

static void on_set(struct driver *d, char **words)
{
	const struct filter_state state = { .learned = learned,
					    .learned_count = learned_count,
					    .draining = kept,
					    .draining_count = kept_count };
	struct filter_host_sandbox s = {
		.id = (uint16_t)atoi(words[1]),
		.member = member_of(words[2]),
		.relay = strchr(words[3], 'r'),
		.state = &state,
	};
	struct err err = { 0 };
	struct plan plan;
	int r = build_plan(d, &plan, &err);

	s.plan = &plan;
	if (r == 0)
		r = filter_host_set(host, &s, clock_now_ms(), &err);
	learned_count = kept_count = 0;
	answer(r, &err);
}

static void on_remove(struct driver *d, char **words)
{
	struct err err = { 0 };

	answer(filter_host_remove(host, (uint16_t)atoi(words[1]), &err), &err);
}

static void next(struct addr *a)
{
	for (size_t k = addr_size(a); k-- > 0 && ++a->bytes[k] == 0;)
		;
}

static void on_learn(struct driver *d, char **words)
{
	static struct filter_learn items[FILTER_LEARN_MAX];
	size_t count = MIN((size_t)atoi(words[5]), (size_t)FILTER_LEARN_MAX);
	struct addr a = { 0 };

	if (!addr_parse(words[2], strlen(words[2]), &a))
		return answer(-EINVAL, NULL);
	for (size_t i = 0; i < count; i++, next(&a))
		items[i] = (struct filter_learn){
			.addr = a,
			.port_list = (uint8_t)atoi(words[3]),
			.lifetime_ms = (uint32_t)atoi(words[4]),
		};
	answer(filter_host_learn(host, (uint16_t)atoi(words[1]), items, count,
				 clock_now_ms()),
	       NULL);
}

static void on_tidy(struct driver *d, char **words)
{
	int calls = 1;

	while (filter_host_tidy(host, clock_now_ms()))
		calls++;
	printf("ok %d\n", calls);
}

static void on_verify(struct driver *d, char **words)
{
	struct err err = { 0 };

	answer(filter_host_verify(host, &err), &err);
}

static void on_verify_one(struct driver *d, char **words)
{
	struct err err = { 0 };

	answer(filter_host_verify_one(host, (uint16_t)atoi(words[1]), &err), &err);
}

static void print_learned(void *data, uint16_t id, const struct filter_learn *item)
{
	char text[ADDR_TEXT_SIZE];

	printf(" %u|%s|%u|%u", id, addr_format(&item->addr, text), item->port_list,
	       (item->lifetime_ms + 500) / 1000);
}

static void on_learned(struct driver *d, char **words)
{
	printf("ok");
	if (filter_learned_read(filter_host_conn(host), PLAN_PORT_LISTS_MAX,
				print_learned, NULL) < 0)
		printf(" failed");
	printf("\n");
}

static void print_event(void *data, const struct nflog_packet *p)
{
	struct endpoint e = { p->destination, p->destination_port };
	char text[ENDPOINT_TEXT_SIZE];

	printf(" %u|%s|%u|%u", p->mark >> 16, endpoint_format(&e, text), p->protocol,
	       p->uid);
}

static void on_events(struct driver *d, char **words)
{
	int r;

	printf("ok");
	while ((r = nflog_read(d->nflog, print_event, NULL)) != 0)
		if (r < 0)
			printf(" lost");
	printf("\n");
}

static int listener = -1;

static void on_listen(struct driver *d, char **words)
{
	struct endpoint e = { .port = (uint16_t)atoi(words[2]) };
	struct sockaddr_storage sa;
	socklen_t size;

	if (listener >= 0)
		close(listener);
	if (!addr_parse(words[1], strlen(words[1]), &e.addr))
		return answer(-EINVAL, NULL);
	size = endpoint_to_sockaddr(&e, &sa);
	listener = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	answer(bind(listener, (struct sockaddr *)&sa, size) < 0 ||
			       listen(listener, 16) < 0
		       ? -errno
		       : 0,
	       NULL);
}

static void on_who(struct driver *d, char **words)
{
	int fd = accept(listener, NULL, NULL), netlink, r;
	struct ctmark c = { .fd = -1 };
	struct err err = { 0 };
	uint32_t mark;

	r = sandbox_netlink_open(&netlink, &err);
	if (r == 0)
		r = ctmark_init(&c, netlink, &err);
	if (r == 0)
		r = ctmark_of_socket(&c, fd, &mark);
	fd_close(&c.fd);
	close(fd);
	if (r < 0)
		return answer(r, &err);
	printf("ok %u\n", mark >> 16);
}

static void on_bench(struct driver *d, char **words)
{
	static int64_t times[TIMES_MAX];
	int first = atoi(words[1]), count = MIN(atoi(words[2]), (int)TIMES_MAX);
	struct err err = { 0 };
	struct plan plan;
	int r = build_plan(d, &plan, &err);

	for (int i = 0; i < count && r == 0; i++) {
		const struct filter_host_sandbox s = {
			.id = (uint16_t)(first + i),
			.member = { .kind = MEMBER_CGROUP,
				    .cgroup = UINT64_C(1) << 40 | (uint64_t)i,
				    .level = 3 },
			.plan = &plan,
		};
		int64_t start = now_ns();

		r = filter_host_set(host, &s, clock_now_ms(), &err);
		if (r == 0)
			r = filter_host_verify_one(host, s.id, &err);
		times[i] = now_ns() - start;
	}
	if (r < 0)
		return answer(r, &err);
	print_times(times, count);
}

static void on_cgroup(struct driver *d, char **words)
{
	struct cgroup c;
	struct err err = { 0 };

	if (cgroup_open(words[1], &c, &err) < 0)
		return answer(-EINVAL, &err);
	printf("ok %llu %u %s\n", (unsigned long long)c.id, c.level, c.path);
}

static void on_cgroup_check(struct driver *d, char **words)
{
	CLEAN(fd) int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	struct cgroup c;
	struct err err = { 0 };
	int r = cgroup_open(words[1], &c, &err);

	answer(r < 0 ? r : cgroup_check(&c, net, &err), &err);
}

static void on_cgroup_strays(struct driver *d, char **words)
{
	struct cgroup_strays s = { 0 };
	struct cgroup c;
	struct err err = { 0 };

	if (cgroup_open(words[1], &c, &err) == 0)
		s = cgroup_strays(&c);
	printf("ok %s %u %u %d\n", s.known ? "known" : "unknown", s.sockets, s.processes,
	       (int)s.first);
}

static void on_learn_bench(struct driver *d, char **words)
{
	static int64_t times[TIMES_MAX];
	int count = MIN(atoi(words[1]), (int)TIMES_MAX);
	struct filter_learn item = { .lifetime_ms = 60000 };

	for (int i = 0; i < count; i++) {
		int64_t start = now_ns();

		item.addr =
			addr_v4(11, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i);
		if (filter_host_learn(host, 1, &item, 1, clock_now_ms()) < 0)
			return answer(-EINVAL, NULL);
		times[i] = now_ns() - start;
	}
	qsort(times, (size_t)count, sizeof(times[0]), compare_times);
	printf("ok %lld %lld\n", (long long)times[count / 2],
	       (long long)times[count * 99 / 100]);
}

const struct command host_commands[] = {
	{ "hostopen", 3, on_open },
	{ "hostclose", 1, on_close },
	{ "hostload", 1, on_load },
	{ "hoststate", 5, on_state },
	{ "hostset", 4, on_set },
	{ "hostremove", 2, on_remove },
	{ "hostlearn", 6, on_learn },
	{ "hosttidy", 1, on_tidy },
	{ "hostverify", 1, on_verify },
	{ "hostverifyone", 2, on_verify_one },
	{ "hostlearned", 1, on_learned },
	{ "hostevents", 1, on_events },
	{ "hostlisten", 3, on_listen },
	{ "hostwho", 1, on_who },
	{ "cgroup", 2, on_cgroup },
	{ "cgroupcheck", 2, on_cgroup_check },
	{ "cgroupstrays", 2, on_cgroup_strays },
	{ "hostbench", 3, on_bench },
	{ "hostlearnbench", 2, on_learn_bench },
	{ NULL, 0, NULL },
};
