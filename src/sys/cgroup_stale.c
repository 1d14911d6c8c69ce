// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A socket keeps the cgroup in which it was made. The kernel lists sockets with their
 * inode and cgroup (sock_diag); a process's descriptors say which inodes it has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>

#include "base/text.h"
#include "sys/cgroup_internal.h"
#include "sys/netlink.h"
#include "sys/tasks.h"

enum { ALL_STATES = -1 };

/* ---- sockets that were made elsewhere ---- */

/* ---- lists of numbers ---- */

int cgroup_ids_add(struct cgroup_ids *n, uint64_t number)
{
	if (n->count == n->capacity) {
		size_t capacity = 2 * n->capacity + 64;
		uint64_t *at = reallocarray(n->at, capacity, sizeof(*at));

		if (!at)
			return -ENOMEM;
		n->at = at;
		n->capacity = capacity;
	}
	n->at[n->count++] = number;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

bool cgroup_ids_have(const struct cgroup_ids *n, uint64_t number)
{
	return n->count > 0 &&
	       bsearch(&number, n->at, n->count, sizeof(number), compare_numbers) != NULL;
}

void cgroup_ids_sort(struct cgroup_ids *n)
{
	if (n->count > 0)
		qsort(n->at, n->count, sizeof(*n->at), compare_numbers);
}

void cgroup_ids_done(struct cgroup_ids *n)
{
	free(n->at);
	*n = (struct cgroup_ids){ 0 };
}

static int keep_id(struct cgroup_walk *w, uint64_t id)
{
	return cgroup_ids_add(w->data, id);
}

static int ignore_process(struct cgroup_walk *w, pid_t pid)
{
	return 0;
}

int cgroup_ids_below(const struct cgroup *c, struct cgroup_ids *ret)
{
	struct err ignored = { 0 };
	struct cgroup_walk w = {
		.on_process = ignore_process,
		.on_cgroup = keep_id,
		.data = ret,
		.err = &ignored,
	};
	int r = cgroup_walk(&w, c);

	cgroup_ids_sort(ret);
	return r;
}

/* ---- sockets ---- */

struct looking {
	struct cgroup_ids cgroups, strays; /* ids below it; inodes made outside of them */
	struct cgroup_ids packets, raws;   /* inodes of everybody's */
	struct cgroup_strays *ret;
	int proc; /* a descriptor of /proc */
	bool failed;
};

static int on_attr(const struct nlattr *a, void *data)
{
	const struct nlattr **ret = data;

	if (mnl_attr_get_type(a) == INET_DIAG_CGROUP_ID &&
	    mnl_attr_get_payload_len(a) == sizeof(uint64_t))
		*ret = a;
	return MNL_CB_OK;
}

bool cgroup_of_socket(const struct nlmsghdr *h, uint64_t *ret_id)
{
	const struct nlattr *cgroup = NULL;

	if (mnl_attr_parse(h, sizeof(struct inet_diag_msg), on_attr, &cgroup) < 0 ||
	    !cgroup)
		return false;
	memcpy(ret_id, mnl_attr_get_payload(cgroup), sizeof(*ret_id));
	return true;
}

static int on_stray_socket(const struct nlmsghdr *h, void *data)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
	struct looking *l = data;
	uint64_t id;

	if (mnl_nlmsg_get_payload_len(h) < sizeof(*m) || m->idiag_inode == 0)
		return MNL_CB_OK;
	if (!cgroup_of_socket(h, &id)) {
		l->failed = true; /* an older kernel doesn't say */
		return MNL_CB_OK;
	}
	if (!cgroup_ids_have(&l->cgroups, id) &&
	    cgroup_ids_add(&l->strays, m->idiag_inode) < 0)
		return MNL_CB_ERROR;
	return MNL_CB_OK;
}

static int dump_sockets(int fd, uint8_t family, uint8_t protocol, uint32_t seq,
			struct looking *l)
{
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct inet_diag_req_v2 *q;

	h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = seq;
	q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	q->sdiag_family = family;
	q->sdiag_protocol = protocol;
	q->idiag_states = (uint32_t)ALL_STATES;
	return nl_run(fd, h, on_stray_socket, l);
}

/* Raw sockets may be a module that isn't there. */
static int list_strays(struct looking *l)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_RAW };
	CLEAN(fd)
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	uint32_t seq = 0;

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(families) * ARRAY_SIZE(protocols); i++) {
		uint8_t protocol = protocols[i % ARRAY_SIZE(protocols)];
		int r = dump_sockets(fd, families[i / ARRAY_SIZE(protocols)], protocol,
				     ++seq, l);

		if (r < 0 && protocol != IPPROTO_RAW)
			return r;
	}
	return 0;
}

/* @fn with the number in column @column, from 0 on, of each line of @path but the first
 * one; nothing when that isn't there. */
static int each_number(const char *path, size_t column, int (*fn)(void *data, uint32_t),
		       void *data)
{
	FILE *f = fopen(path, "re");
	char line[512];
	int r = 0;

	if (f && !fgets(line, sizeof(line), f))
		r = ferror(f) ? -EIO : 0;
	while (f && r == 0 && fgets(line, sizeof(line), f)) {
		const char *at = line;
		size_t len = 0;
		uint32_t number;

		for (size_t i = 0; i <= column; i++) {
			at += len;
			at += strspn(at, " ");
			len = strcspn(at, " \n");
		}
		if (text_to_u32((struct text){ at, len }, UINT32_MAX, &number))
			r = fn(data, number);
	}
	if (f)
		fclose(f);
	return r;
}

/* The columns of /proc/net/packet, and of raw and raw6. */
enum { USER_COLUMN = 7, PACKET_INODE = 8, RAW_INODE = 9 };

static int keep_inode(void *data, uint32_t inode)
{
	return cgroup_ids_add(data, inode);
}

static int list_raw_sockets(struct looking *l)
{
	int r = each_number("/proc/net/packet", PACKET_INODE, keep_inode, &l->packets);

	if (r == 0)
		r = each_number("/proc/net/raw", RAW_INODE, keep_inode, &l->raws);
	if (r == 0)
		r = each_number("/proc/net/raw6", RAW_INODE, keep_inode, &l->raws);
	return r;
}

struct counting {
	uint32_t uid, *count;
};

static int count_user(void *data, uint32_t uid)
{
	const struct counting *c = data;

	*c->count += uid == c->uid;
	return 0;
}

struct cgroup_strays user_raw_sockets(uint32_t uid)
{
	struct cgroup_strays ret = { 0 };
	struct counting packet = { uid, &ret.packet }, raw = { uid, &ret.raw };

	ret.known = each_number("/proc/net/packet", USER_COLUMN, count_user, &packet) ==
			    0 &&
		    each_number("/proc/net/raw", USER_COLUMN, count_user, &raw) == 0 &&
		    each_number("/proc/net/raw6", USER_COLUMN, count_user, &raw) == 0;
	return ret;
}

static uint64_t socket_inode(int dir, const char *name)
{
	char target[64];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	static const char begin[] = "socket:[";
	struct text number;
	uint32_t inode;

	if (n < (ssize_t)sizeof(begin) || strncmp(target, begin, strlen(begin)) != 0)
		return 0;
	number = (struct text){ target + strlen(begin), (size_t)n - sizeof(begin) };
	return text_to_u32(number, UINT32_MAX, &inode) ? inode : 0;
}

/* The sockets of one process. */
struct open_sockets {
	struct cgroup_ids inodes;
	pid_t table; /* a thread whose descriptor table was read; 0: none yet */
};

static int list_sockets(void *data, const struct task *t)
{
	struct open_sockets *s = data;
	const struct dirent *e;
	int fd, r = 0;
	DIR *all;

	/* A table is mostly all threads'. */
	if (s->table != 0 && tasks_share_fds(s->table, t->tid))
		return 0;
	fd = openat(t->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	all = fd < 0 ? NULL : fdopendir(fd);
	if (!all) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (e = readdir(all))) {
		uint64_t inode = socket_inode(fd, e->d_name);

		r = inode != 0 ? cgroup_ids_add(&s->inodes, inode) : 0;
	}
	closedir(all);
	s->table = t->tid;
	return r;
}

static int count_process(struct cgroup_walk *w, pid_t pid)
{
	struct looking *l = w->data;
	struct open_sockets s = { 0 };
	uint32_t found = 0;
	int r = tasks_each(l->proc, pid, list_sockets, &s);

	l->failed |= r < 0 && r != -ESRCH;
	cgroup_ids_sort(&s.inodes);
	for (size_t i = 0; i < s.inodes.count; i++) {
		uint64_t inode = s.inodes.at[i];

		if (i > 0 && inode == s.inodes.at[i - 1])
			continue;
		found += cgroup_ids_have(&l->strays, inode);
		l->ret->packet += cgroup_ids_have(&l->packets, inode);
		l->ret->raw += cgroup_ids_have(&l->raws, inode);
	}
	cgroup_ids_done(&s.inodes);
	if (found > 0 && l->ret->processes++ == 0)
		l->ret->first = pid;
	l->ret->sockets += found;
	return 0;
}

static int stop_at_process(struct cgroup_walk *w, pid_t pid)
{
	*(bool *)w->data = true;
	return -ECANCELED;
}

/* Does anybody live there? When that can't be seen: yes. */
static bool is_inhabited(const struct cgroup *c)
{
	struct err ignored = { 0 };
	bool found = false;
	struct cgroup_walk w = { .on_process = stop_at_process,
				 .data = &found,
				 .err = &ignored };

	return cgroup_walk(&w, c) < 0 || found;
}

struct cgroup_strays cgroup_strays(const struct cgroup *c)
{
	CLEAN(fd) int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_strays ret = { 0 };
	struct looking l = { .ret = &ret, .proc = proc, .failed = proc < 0 };
	struct err ignored = { 0 };
	struct cgroup_walk w = { .on_process = count_process,
				 .data = &l,
				 .err = &ignored };
	int r;

	/* The kernel's list of all sockets takes milliseconds. */
	if (!is_inhabited(c))
		return (struct cgroup_strays){ .known = true };
	r = cgroup_ids_below(c, &l.cgroups);
	if (r == 0)
		r = list_strays(&l);
	if (r == 0)
		r = list_raw_sockets(&l);
	cgroup_ids_sort(&l.strays);
	cgroup_ids_sort(&l.packets);
	cgroup_ids_sort(&l.raws);
	if (r == 0)
		r = cgroup_walk(&w, c);
	ret.known = r == 0 && !l.failed;
	cgroup_ids_done(&l.cgroups);
	cgroup_ids_done(&l.strays);
	cgroup_ids_done(&l.packets);
	cgroup_ids_done(&l.raws);
	return ret;
}
