// SPDX-License-Identifier: Apache-2.0
#include "run/uplink_rules.h"

#include <errno.h>
#include <string.h>

#include "sys/host_addrs.h"
#include "sys/link.h"

/* What a packet of the sandbox's must not be sent to by a program on the host, whatever
 * range a rule allows: loopback, unspecified, multicast and reserved addresses, IPv4 in
 * IPv6 form. The relay refuses the same. */
static const char *const never[] = { "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/80",
				     "ff00::/8" };

enum { CLOSED_MAX = ARRAY_SIZE(never) + 2 + LOCAL_PREFIXES_MAX };

/* An address rule allows just this one address. */
static bool names_exactly(const struct plan *plan, const struct prefix *p)
{
	if (p->bits != addr_size(&p->addr) * 8)
		return false;
	for (size_t i = 0; i < plan_prefix_count(plan); i++) {
		struct plan_prefix rule = plan_prefix(plan, i);

		if (rule.action == POLICY_ALLOW && rule.prefix.bits == p->bits &&
		    addr_equal(&rule.prefix.addr, &p->addr))
			return true;
	}
	return false;
}

/* The addresses of this machine but those that @plan names, the program's own network,
 * and what is never right. */
static int close_host(struct way *w, const struct plan *plan, struct err *err)
{
	struct prefix *closed = calloc(CLOSED_MAX, sizeof(*closed));
	struct uplink_network net = uplink_network(w->program.kind);
	size_t found, kept = 0;
	int r;

	w->closed = closed;
	if (!closed)
		return err_set(err, -ENOMEM, "out of memory");
	r = local_prefixes(closed, &found, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < found; i++)
		if (!names_exactly(plan, &closed[i]))
			closed[kept++] = closed[i];
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (!prefix_parse(never[i], strlen(never[i]), false, &closed[kept++]))
			return err_set(err, -EINVAL, "'%s' is not a prefix", never[i]);
	for (size_t i = 0; i < ARRAY_SIZE(net.all); i++)
		closed[kept++] = net.all[i];
	w->filter.closed = closed;
	w->filter.closed_count = kept;
	return 0;
}

static bool host_has_ipv6(void)
{
	CLEAN(fd) int fd = link_route_open();

	return fd >= 0 && link_has_default_route(fd, 6) == 1;
}

int way_choose(struct way *w, enum run_uplink uplink, const struct plan *plan, bool root,
	       struct err *err)
{
	static const enum uplink_kind kinds[RUN_UPLINK_COUNT] = {
		[RUN_UPLINK_SLIRP4NETNS] = UPLINK_SLIRP4NETNS,
		[RUN_UPLINK_PASTA] = UPLINK_PASTA,
	};
	int r;

	w->filter.generation = FILTER_GENERATION_FIRST;
	if (uplink == RUN_UPLINK_NONE)
		return 0;
	w->filter.relay = true;
	w->ipv6_out = host_has_ipv6();
	if (kinds[uplink] == UPLINK_NONE)
		return 0;
	w->program = (struct uplink_program){ .kind = kinds[uplink],
					      .root = root,
					      .ipv6 = w->ipv6_out };
	r = uplink_find(&w->program, err);
	if (r < 0)
		return r;
	w->filter.direct_udp = true;
	return close_host(w, plan, err);
}

static void become_ready(struct way *w)
{
	w->ready = true;
	w->on_ready(w->data);
}

/* One byte, or the end of the pipe: then from_end has the reason. */
static void on_ready_fd(struct loop_source *source, uint32_t events)
{
	struct way *w = CONTAINER_OF(source, struct way, from_ready);
	char byte;

	loop_remove(w->loop, source);
	if (read(source->fd, &byte, 1) == 1)
		become_ready(w);
}

static void on_pid_fd(struct loop_source *source, uint32_t events)
{
	struct way *w = CONTAINER_OF(source, struct way, from_end);
	char why[ERR_TEXT_SIZE];

	loop_remove(w->loop, source);
	w->on_end(w->data, uplink_explain(&w->uplink, why, sizeof(why)));
}

int way_open(struct way *w, struct loop *loop, pid_t sandbox, struct err *err)
{
	int r;

	w->loop = loop;
	/* Without a ready descriptor the link is the sign, which the launch child waits
	 * for. */
	w->ready = true;
	if (w->program.kind == UPLINK_NONE)
		return 0;
	r = uplink_start(&w->program, sandbox, &w->uplink, err);
	if (r < 0)
		return r;
	w->ready = w->uplink.ready_fd < 0;
	w->from_ready =
		(struct loop_source){ .fd = w->uplink.ready_fd, .on_ready = on_ready_fd };
	w->from_end =
		(struct loop_source){ .fd = w->uplink.pid_fd, .on_ready = on_pid_fd };
	r = loop_add(loop, &w->from_end, EPOLLIN);
	if (r == 0 && !w->ready)
		r = loop_add(loop, &w->from_ready, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch %s", w->uplink.name) : 0;
}

void way_close(struct way *w)
{
	uplink_kill(&w->uplink);
	free(w->closed);
}
