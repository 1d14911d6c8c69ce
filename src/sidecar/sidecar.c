// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A sidecar is a supervisor (supervisor/supervisor.c) with one engine and one sandbox
 * that never leaves: the network namespace that it lives in itself. Nothing goes on
 * before the first engine's rules stand, or less of them, as far as --on-unenforceable
 * allows it. */
#include "sidecar/sidecar.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "base/err.h"
#include "base/exit_status.h"
#include "base/http_status.h"
#include "base/log.h"
#include "filter/filter.h"
#include "filter/message.h"
#include "outputs/request.h"
#include "settings/settings.h"
#include "supervisor/socket_owner.h"
#include "supervisor/supervisor.h"
#include "sys/link.h"
#include "sys/netlink.h"
#include "sys/sock.h"

/* -- is this the machine's own network namespace? A sidecar would close all of it ---- */

enum {
	/* PROC_NET_INIT_INO of the kernel's include/uapi/linux/nsfs.h, of late; older
	 * kernels number it like any other. */
	INIT_NET_INODE = 0xEFFFFFF9u,
	PARENT_DEV_NAME = 56, /* IFLA_PARENT_DEV_NAME, since 5.14 */
};

static int on_link(const struct nlmsghdr *h, void *data)
{
	const struct ifinfomsg *link = nl_body(h, sizeof(*link));
	const struct nlattr *kind = NULL;
	struct err *err = data;
	struct nl_attrs attrs, info;
	const char *name;

	if (h->nlmsg_type != RTM_NEWLINK)
		return 0;
	if (!nl_attrs_of(h, sizeof(*link), &attrs)) {
		err_set(err, -EBADMSG, "it has a link that can't be read");
		return 1;
	}
	name = nl_get_text(attrs.at[IFLA_IFNAME]);
	if (nl_attrs_nested(attrs.at[IFLA_LINKINFO], &info))
		kind = info.at[IFLA_INFO_KIND];
	if (kind && nl_size(kind) >= strlen("bridge") &&
	    memcmp(nl_data(kind), "bridge", strlen("bridge")) == 0)
		err_set(err, -EPERM, "it has the bridge '%s'", name);
	else if (link->ifi_type == ARPHRD_ETHER && attrs.at[PARENT_DEV_NAME])
		err_set(err, -EPERM, "it has the physical link '%s'", name);
	return err->code < 0;
}

/* Docker makes a table ip nat in containers as well, so that one says nothing. */
static const struct {
	uint8_t family;
	const char *name;
} hosts_tables[] = {
	{ NFPROTO_INET, "firewalld" },
	{ NFPROTO_INET, "fw4" },
	{ NFPROTO_IPV4, "filter" },
	{ NFPROTO_BRIDGE, "filter" },
};

static int on_table(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	const char *name = nl_get_text(attrs->at[NFTA_TABLE_NAME]);

	for (size_t i = 0; i < ARRAY_SIZE(hosts_tables); i++)
		if (family == hosts_tables[i].family &&
		    strcmp(name, hosts_tables[i].name) == 0)
			return err_set(data, -EPERM, "it has the table '%s'", name);
	return 0;
}

/* Looks at the namespace that the caller is in. Return: 0; -EPERM with what gives the
 * host away; or -errno when it can't be told. */
static int host_network_check(struct err *err)
{
	CLEAN(fd) int route = link_route_open();
	CLEAN(fd) int netfilter = -1;
	struct filter_conn conn = { .fd = -1 };
	struct err ignored = { 0 };
	struct nl_request q;
	struct stat st;
	int r;

	if (stat("/proc/self/ns/net", &st) < 0)
		return err_sys(err, -errno, "cannot look at /proc/self/ns/net");
	if (st.st_ino == INIT_NET_INODE)
		return err_set(err, -EPERM, "it is the machine's first one");
	r = sandbox_netlink_open(&netfilter, err);
	if (r < 0)
		return r;
	if (route < 0)
		return err_sys(err, route, "cannot open a route socket");
	(void)nl_request_begin(&q, RTM_GETLINK, NLM_F_DUMP, sizeof(struct ifinfomsg));
	r = nl_run(route, &q, on_link, err);
	if (r < 0)
		return err_sys(err, r, "cannot list the links");
	if (err->code < 0)
		return err->code;
	/* Without the right to list tables there is none to change them, which is
	 * reported later. */
	if (filter_conn_init(&conn, netfilter, &ignored) == 0)
		(void)!nl_ask(&conn, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_UNSPEC, NULL,
			      NULL, on_table, err);
	return err->code;
}

/* -- weir sidecar --healthy: for health checks in images that have no other program ---
 */

/* GET /healthz at @spec's HTTP address, on loopback where that is every address, in at
 * most HEALTHY_WAIT_SEC. Return: 0 when it says 200, else -errno with @err. */
enum { HEALTHY_WAIT_SEC = 2 };

static int healthy_ask(const struct sidecar_spec *spec, struct err *err)
{
	const struct request_place to = { .at = spec->http };
	const struct request q = { .method = "GET",
				   .path = "/healthz",
				   .body = text_of(""),
				   .wait_sec = HEALTHY_WAIT_SEC };
	CLEAN(fd) int fd = -1;
	unsigned int status;
	int r = request_send(&to, &q, &fd, err);

	if (r < 0)
		return r;
	r = request_receive_head(fd, &status);
	if (r < 0)
		return err_sys(err, r, "the sidecar does not answer");
	return status == HTTP_OK ? 0
				 : err_set(err, -EAGAIN, "the sidecar is not healthy");
}

enum { STAND_MS = 10 * 1000 }; /* for the first ruleset */

enum { STATUS_UNHEALTHY = 1 };

/* -- what a sidecar does in its own way ---------------------------------------------- */

static void configure_engine(const struct supervisor *k, struct engine_config *c)
{
	const struct sidecar_spec *s = k->spec;
	bool filters = s->mode != SIDECAR_MODE_DNS;

	c->attach.kind = ATTACH_SHARED;
	c->attach.restarted = k->engine.started_ms > 0 || k->fds.snapshot_found;
	c->enforce = k->enforce;
	c->filter.relay = s->mode == SIDECAR_MODE_DNS_NFT_TLS &&
			  k->enforce == ENFORCED_FILTER;
	c->filter.mark = SUPERVISOR_MARK;
	c->filter.uid = geteuid();
	c->filter.exempt = s->exempt;
	c->filter.exempt_count = s->exempt_count;
	c->filter.doh = s->doh;
	c->filter.doh_count = s->block_doh_443 ? s->doh_count : 0;
	c->filter.refuse_443 = filters && s->block_doh_443 && s->doh_count == 0;
	ipc_fds_init(&c->fds, &k->fds.sandbox);
	c->fds.fd[IPC_FD_PLAN] = k->fds.plan_fd;
	c->fds.fd[IPC_FD_SNAPSHOT] = k->fds.snapshot_fd;
}

static void on_engine(struct supervisor *k, struct ipc_message *m)
{
	if (m->type == IPC_ACTIVE) {
		k->status = m->status;
		k->engine.serves = true;
		supervisor_introduce(k);
	}
}

/* A plan and its text are in force now. */
static void on_control(struct supervisor *k, const struct ipc_message *m, int *fds,
		       size_t count)
{
	const struct ipc_message kept = { .type = IPC_KEPT, .ask = m->ask };

	if (m->type != IPC_KEEP || count != 2)
		return;
	close(k->fds.plan_fd);
	close(k->fds.text_fd);
	k->fds.plan_fd = TAKE_FD(fds[0]);
	k->fds.text_fd = TAKE_FD(fds[1]);
	child_notify(&k->control, &kept, NULL);
}

static pid_t start_socket_owner(struct supervisor *k, int channel)
{
	/* The first process of a container sees only the container's processes. */
	return getpid() == 1 ? -ESRCH : socket_owner_start(channel);
}

static const struct supervisor_ops ops = {
	.configure_engine = configure_engine,
	.on_engine = on_engine,
	.on_control = on_control,
	.start_socket_owner = start_socket_owner,
};

/* -- starting ----------------------------------------------------------------------- */

/* The first engine: nothing goes on before its rules are active. */
static int first_engine(struct supervisor *k, struct err *err)
{
	struct pollfd wait = { .events = POLLIN };
	struct ipc_message m;
	size_t count = 0;
	int r = child_fork(&k->engine, err);

	if (r < 0)
		return r;
	wait.fd = k->engine.source.fd;
	if (poll(&wait, 1, STAND_MS) <= 0)
		r = err_set(err, -ETIMEDOUT, "the engine does not answer");
	else
		r = ipc_receive(k->engine.source.fd, &m, NULL, 0, &count);
	if (r < 0)
		return err->code < 0 ? r : err_sys(err, r, "the engine has ended");
	if (m.type == IPC_ACTIVE) {
		k->status = m.status;
		k->engine.serves = true;
		return 0;
	}
	ipc_sanitize(m.text, sizeof(m.text));
	return err_set(err, -EPERM, "%s",
		       m.type == IPC_FAILED ? m.text
					    : "the engine said what is no answer");
}

/* Weaker than what was asked for only as far as the operator has spelled. */
static int enforce(struct supervisor *k, struct err *err)
{
	enum sidecar_unenforceable may = k->fds.needs_filter ? SIDECAR_FAIL
							     : k->spec->on_unenforceable;
	struct err second = { 0 };
	int r;

	k->enforce = k->spec->mode == SIDECAR_MODE_DNS ? ENFORCED_REDIRECT
						       : ENFORCED_FILTER;
	r = supervisor_check_right(err);
	if (r == 0)
		r = first_engine(k, err);
	if (r == 0 || may == SIDECAR_FAIL)
		return r;
	snprintf(k->reason, sizeof(k->reason), "%s", err->text);
	supervisor_end_engine(k);
	if (k->enforce == ENFORCED_FILTER && may == SIDECAR_DNS) {
		k->enforce = ENFORCED_REDIRECT;
		r = first_engine(k, &second);
	}
	if (r < 0 && may == SIDECAR_OPEN) {
		supervisor_end_engine(k);
		k->enforce = ENFORCED_NOTHING;
		r = supervisor_deny_all(&k->fds, &second);
		if (r == 0)
			r = first_engine(k, &second);
	}
	if (r == 0)
		log_warning("%s; going on with less, as --on-unenforceable says",
			    k->reason);
	return r;
}

static int remove_rules(struct err *err)
{
	struct sandbox_fds fds;
	struct filter_conn conn = { .fd = -1 };
	int r;

	sandbox_fds_init(&fds);
	r = supervisor_check_right(err);
	if (r == 0)
		r = sandbox_netlink_open(&fds.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = filter_conn_init(&conn, fds.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0) {
		conn.naming = FILTER_NAMES_SHARED;
		r = filter_remove(&conn, err);
		if (r == -EPERM)
			err_context(err, "a sidecar still runs here; stop it first");
	}
	sandbox_fds_done(&fds);
	return r;
}

/* Standard input, of --end-with-stdin. */
struct input {
	struct loop_source source;
	struct loop *loop;
};

/* What comes is nobody's; the end is as SIGTERM. */
static void on_input(struct loop_source *source, uint32_t events)
{
	struct input *in = CONTAINER_OF(source, struct input, source);
	char ignored[512];
	ssize_t n = read(source->fd, ignored, sizeof(ignored));

	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	loop_remove(in->loop, source);
	(void)!kill(getpid(), SIGTERM);
}

static int start(struct supervisor *k, struct input *input, struct err *err)
{
	int r = supervisor_prepare(k, err);

	if (r == 0 && k->spec->host_network_check) {
		r = host_network_check(err);
		if (r < 0)
			return err_context(
				err, "the sidecar guards the network namespace that it "
				     "shares with an app, and this looks like the host's "
				     "own (`weir run` guards a command here; "
				     "--host-network-check=off guards the host's)");
	}
	if (r == 0)
		r = supervisor_check_programs(k, err);
	if (r == 0)
		r = supervisor_open(k->spec, &k->fds, err);
	if (r < 0)
		return r;
	/* It loads its libraries while the engine installs the rules. */
	child_start_if_needed(&k->control);
	r = enforce(k, err);
	if (r == 0)
		r = supervisor_listen(&k->fds, err);
	if (r == 0)
		child_hear(&k->engine);
	if (r < 0 || !k->spec->end_with_stdin)
		return r;
	input->loop = k->loop;
	r = loop_add(k->loop, &input->source, EPOLLIN);
	return r < 0 ? err_sys(err, r,
			       "--end-with-stdin: standard input has no other end")
		     : 0;
}

int sidecar_run(struct sidecar_spec *spec)
{
	struct supervisor k = {
		.ops = &ops,
		.spec = spec,
		.args = spec->argv + 1,
	};
	struct input input = {
		.source = { .fd = STDIN_FILENO, .on_ready = on_input },
	};
	struct err err = { 0 };
	int r;

	supervisor_fds_init(&k.fds);
	if (spec->remove)
		r = remove_rules(&err);
	else if (spec->healthy)
		r = healthy_ask(spec, &err);
	else
		r = start(&k, &input, &err);
	if (r < 0) {
		if (err.text[0])
			log_error("%s", err.text);
		if (spec->healthy)
			return STATUS_UNHEALTHY;
		return r == -EINVAL ? RUN_STATUS_BAD_INPUT : RUN_STATUS_FAILED;
	}
	if (spec->remove || spec->healthy)
		return 0;
	supervisor_introduce(&k);
	r = loop_run(k.loop);
	/* Whoever waits for our end may start another one, or remove the rules. */
	supervisor_end_engine(&k);
	loop_free(k.loop);
	return r < 0 ? RUN_STATUS_FAILED : k.exit_status;
}
