// SPDX-License-Identifier: Apache-2.0
#include "sys/before.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>

#include "sys/cgroup_internal.h"
#include "sys/ctmark.h"
#include "sys/netlink.h"
#include "sys/sock.h"

enum {
	TCP_LISTEN_STATE = 10,
	TCP_TIME_WAIT_STATE = 6,
	TCP_CLOSE_STATE = 7,
	FLOWS_MAX = 65536, /* over it: -E2BIG, and nobody is attached */
};

/* A connection of theirs, as sock_diag names it. */
struct found {
	uint8_t family;
	struct inet_diag_sockid id;
	struct endpoint local, peer;
};

struct looking {
	const struct before_who *who;
	struct cgroup_ids ids;
	struct found *found; /* owned */
	size_t count, capacity;
	bool inhabited; /* somebody is in the cgroup */
	int error;
};

static void looking_done(struct looking *l)
{
	cgroup_ids_done(&l->ids);
	free(l->found);
}

/* ---- whose they are ---- */

static bool is_theirs(struct looking *l, const struct nlmsghdr *h,
		      const struct inet_diag_msg *m)
{
	uint64_t id;

	if (!l->who->cgroup)
		return m->idiag_uid == l->who->uid;
	/* An older kernel doesn't say: see tell_strays(). */
	return cgroup_of_socket(h, &id) && cgroup_ids_have(&l->ids, id);
}

static int add(struct looking *l, const struct inet_diag_msg *m)
{
	struct found *at = l->found;

	if (l->count == FLOWS_MAX)
		return -E2BIG;
	if (l->count == l->capacity) {
		at = reallocarray(at, 2 * l->capacity + 64, sizeof(*at));
		if (!at)
			return -ENOMEM;
		l->found = at;
		l->capacity = 2 * l->capacity + 64;
	}
	at[l->count++] = (struct found){
		.family = m->idiag_family,
		.id = m->id,
		.local = nl_diag_end(m->idiag_family, m->id.idiag_src, m->id.idiag_sport),
		.peer = nl_diag_end(m->idiag_family, m->id.idiag_dst, m->id.idiag_dport),
	};
	return 0;
}

static int on_socket(const struct nlmsghdr *h, void *data)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
	struct looking *l = data;

	if (mnl_nlmsg_get_payload_len(h) >= sizeof(*m) && l->error == 0 &&
	    is_theirs(l, h, m))
		l->error = add(l, m);
	return MNL_CB_OK;
}

/* Of both families at once, by the older of the kernel's two ways: each time all buckets
 * of a large table are looked at. */
static int dump(int fd, struct looking *l)
{
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct inet_diag_req *q;
	int r;

	h->nlmsg_type = TCPDIAG_GETSOCK;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	q->idiag_family = AF_INET;
	q->idiag_states = ~(1u << TCP_LISTEN_STATE | 1u << TCP_TIME_WAIT_STATE |
			    1u << TCP_CLOSE_STATE);
	r = nl_run(fd, h, on_socket, l);
	return r < 0 ? r : l->error;
}

static int diag_open(int *ret)
{
	*ret = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	return *ret < 0 ? -errno : 0;
}

static int on_process(struct cgroup_walk *w, pid_t pid)
{
	struct looking *l = w->data;

	l->inhabited |= pid != l->who->except;
	return 0;
}

static int on_cgroup(struct cgroup_walk *w, uint64_t id)
{
	struct looking *l = w->data;

	return cgroup_ids_add(&l->ids, id);
}

/* A connection that was made in a cgroup where nobody is any more is at best a process's
 * outside of it: no sandbox's. So the dump, which takes as long as the kernel's table is
 * large, is for cgroups with somebody in them. */
static int list(struct looking *l, int *ret_diag)
{
	struct err ignored = { 0 };
	struct cgroup_walk w = {
		.on_process = on_process,
		.on_cgroup = on_cgroup,
		.data = l,
		.err = &ignored,
	};
	int r = l->who->cgroup ? cgroup_walk(&w, l->who->cgroup) : 0;

	if (r < 0 || (l->who->cgroup && !l->inhabited))
		return r;
	cgroup_ids_sort(&l->ids);
	r = diag_open(ret_diag);
	return r < 0 ? r : dump(*ret_diag, l);
}

/* ---- what becomes of them ---- */

static int connections_open(struct ctmark *ret, struct err *err)
{
	int fd, r = sandbox_netlink_open(&fd, err);

	if (r < 0)
		return r;
	r = ctmark_init(ret, fd, err);
	if (r < 0)
		close(fd);
	return r;
}

/* One that has just ended by itself is as good. */
static int end_one(int diag, uint32_t seq, const struct found *f)
{
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct inet_diag_req_v2 *q;
	int r;

	h->nlmsg_type = SOCK_DESTROY;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	h->nlmsg_seq = seq;
	q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	q->sdiag_family = f->family;
	q->sdiag_protocol = IPPROTO_TCP;
	q->id = f->id;
	r = nl_run(diag, h, NULL, NULL);
	return r == -ENOENT ? 0 : r;
}

static int end_unknown(int diag, struct ctmark *c, const struct looking *l, size_t *ret)
{
	for (size_t i = 0; i < l->count; i++) {
		const struct found *f = &l->found[i];
		int r = ctmark_begun_by(c, &f->local, &f->peer);

		if (r == CTMARK_LOCAL || r == CTMARK_PEER)
			continue;
		r = end_one(diag, (uint32_t)i + 1, &l->found[i]);
		if (r < 0)
			return r;
		++*ret;
	}
	return 0;
}

static int end(int diag, const struct looking *l, size_t *ret, struct err *err)
{
	struct ctmark c;
	int r = connections_open(&c, err);

	if (r < 0)
		return r;
	r = end_unknown(diag, &c, l, ret);
	ctmark_done(&c);
	return r < 0 ? err_sys(err, r, "cannot end connections from before") : 0;
}

int before_end(const struct before_who *who, size_t *ret, struct err *err)
{
	struct looking l = { .who = who };
	CLEAN(fd) int diag = -1;
	int r = list(&l, &diag);

	*ret = 0;
	if (r < 0)
		err_sys(err, r, "cannot list the connections from before");
	else if (l.count > 0)
		r = end(diag, &l, ret, err);
	looking_done(&l);
	return r;
}
