// SPDX-License-Identifier: Apache-2.0
#include "run/netns.h"

#include <assert.h>
#include <errno.h>

#include "filter/filter.h"
#include "launch/launch.h"
#include "proto/message.h"
#include "run/uplink.h"
#include "sys/link.h"
#include "sys/netlink.h"
#include "sys/socket_owner.h"

static_assert((int)LINK_STUB_GROUP == (int)FILTER_DEAD_END_GROUP,
	      "what the filter takes for a dead end is the stub");

static int install(const struct inside *in, struct filter_conn *conn, bool ipv6,
		   struct err *err)
{
	struct filter_params params = in->filter;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rules;
	int r;

	params.ipv6 = ipv6;
	r = ruleset_build_owned(in->plan, &params, &arena, &rules, err);
	if (r == 0)
		r = filter_install(conn, rules, err);
	return r < 0 ? err_context(err, "cannot install the filter") : 0;
}

static int hand_over(const struct inside *in, const struct sandbox_fds *s, bool ipv6,
		     bool owner, struct err *err)
{
	struct ipc_message m = {
		.type = IPC_ATTACH,
		.attach = { .kind = ATTACH_OWNED, .ipv6 = ipv6, .owner = owner },
	};
	struct ipc_fds fds;
	int r;

	ipc_fds_init(&fds, s);
	r = ipc_send_fds(in->engine_fd, &m, &fds);
	return r < 0 ? err_sys(err, r, "cannot hand the sandbox to the engine") : 0;
}

/* It is missed only by whoever wants to know whose a denial was. */
static void hand_diag_over(const struct inside *in)
{
	const struct launch_report report = { .type = LAUNCH_DIAG };
	CLEAN(fd) int diag = in->report_fd < 0 ? -1 : nl_diag_open();

	if (diag >= 0)
		(void)!fds_send(in->report_fd, &report, sizeof(report), &diag, 1);
}

int inside_prepare(void *data, struct err *err)
{
	const struct inside *in = data;
	const struct sandbox_ports ports = {
		.dns = FILTER_DNS_PORT,
		.relay = in->filter.relay ? FILTER_RELAY_PORT : 0,
	};
	struct filter_conn conn = { .fd = -1 };
	struct sandbox_fds s;
	bool ipv6;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(in->far_ends); i++)
		close(in->far_ends[i]);
	r = link_make_stub(&ipv6, err);
	if (r < 0)
		return r;
	r = sandbox_fds_open(&s, &ports, ipv6, err);
	if (r < 0)
		return r;
	r = filter_conn_init(&conn, s.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = install(in, &conn, ipv6, err);
	if (r == 0)
		r = link_await_stub(ipv6, err);
	if (r == 0)
		r = hand_over(in, &s, ipv6, conn.owner, err);
	if (r == 0)
		hand_diag_over(in);
	/* The engine holds its own copies; conn's descriptor is one of @s. */
	sandbox_fds_done(&s);
	return r;
}

/* Only now, when the filter is known to stand, does the link get an address. */
static int open_uplink(const struct inside *in, struct err *err)
{
	struct uplink_network net = uplink_network(in->uplink);
	struct link_uplink link = { .name = UPLINK_LINK };

	for (size_t i = 0; i < ARRAY_SIZE(link.own); i++) {
		if (net.own[i].family == ADDR_V6 && !in->uplink_ipv6)
			continue;
		link.own[i] = net.own[i];
		link.gateway[i] = net.gateway[i];
		link.silent[i] = net.silent[i];
	}
	return link_setup_uplink(&link, err);
}

int inside_confirm(void *data, struct err *err)
{
	const struct inside *in = data;
	struct ipc_message m;
	size_t count;
	int r = ipc_receive(in->engine_fd, &m, NULL, 0, &count);

	if (r < 0)
		return err_sys(err, r, "cannot hand the sandbox to the engine");
	if (m.type != IPC_ACTIVE)
		return err_set(err, -EPROTO, "the engine refused the sandbox: %.*s",
			       (int)sizeof(m.text) - 64, m.text);
	return in->uplink ? open_uplink(in, err) : 0;
}
