// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A socket keeps the cgroup in which it was made. The kernel lists sockets with their
 * inode and cgroup (sock_diag); a process's descriptors say which inodes it has. What a
 * cgroup or a user is connected to already, conntrack knows the beginning of or doesn't.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>

#include "base/text.h"
#include "sys/cgroup.h"
#include "sys/ctmark.h"
#include "sys/files.h"
#include "sys/netlink.h"
#include "sys/sock.h"
#include "sys/tasks.h"

enum {
	ALL_STATES = -1,
	TCP_LISTEN_STATE = 10,
	TCP_TIME_WAIT_STATE = 6,
	TCP_CLOSE_STATE = 7,
	FLOWS_MAX = 65536, /* over it: -E2BIG, and nobody is attached */
};

/* ---- lists of numbers ---- */

int cgroup_ids_add(struct cgroup_ids *n, uint64_t number)
{
	if (!ARRAY_GROW(n->at, n->count, n->capacity))
		return -ENOMEM;
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

/* What there is in and below a cgroup. */
struct cgroup_look {
	pid_t except;	       /* a process that doesn't count; or 0 */
	bool inhabited;	       /* somebody is in it */
	struct cgroup_ids ids; /* of the cgroups, sorted; the caller's to be done with */
};

static int note_inhabitant(struct cgroup_walk *w, pid_t pid)
{
	struct cgroup_look *l = w->data;

	l->inhabited |= pid != l->except;
	return 0;
}

static int note_cgroup(struct cgroup_walk *w, uint64_t id)
{
	struct cgroup_look *l = w->data;

	return cgroup_ids_add(&l->ids, id);
}

static int look_below(const struct cgroup *c, struct cgroup_look *ret)
{
	struct cgroup_walk w = { .on_process = note_inhabitant,
				 .on_cgroup = note_cgroup,
				 .data = ret };
	int r = cgroup_walk(&w, c);

	cgroup_ids_sort(&ret->ids);
	ret->inhabited |= r == -EAGAIN;
	return r == -EAGAIN ? 0 : r;
}

/* ---- sockets that were made elsewhere ---- */

struct stray_search {
	struct cgroup_look in;
	struct cgroup_ids strays;	 /* inodes made outside of the cgroups */
	struct cgroup_ids packets, raws; /* inodes of everybody's */
	struct cgroup_strays *ret;
	int proc; /* a descriptor of /proc */
	bool failed;
};

/* In which one a socket was made: of an answer of sock_diag's, which has room for a whole
 * struct inet_diag_msg. False: it doesn't say. */
static bool cgroup_of_socket(const struct nlmsghdr *h, uint64_t *ret_id)
{
	const struct nlattr *cgroup;
	struct nl_attrs attrs;

	if (!nl_attrs_of(h, sizeof(struct inet_diag_msg), &attrs))
		return false;
	cgroup = attrs.at[INET_DIAG_CGROUP_ID];
	if (!cgroup || nl_size(cgroup) != sizeof(*ret_id))
		return false;
	memcpy(ret_id, nl_data(cgroup), sizeof(*ret_id));
	return true;
}

static int on_stray_socket(const struct nlmsghdr *h, void *data)
{
	const struct inet_diag_msg *m = nl_body(h, sizeof(*m));
	struct stray_search *l = data;
	uint64_t id;

	if (!m || m->idiag_inode == 0)
		return 0;
	if (!cgroup_of_socket(h, &id)) {
		l->failed = true; /* an older kernel doesn't say */
		return 0;
	}
	return cgroup_ids_have(&l->in.ids, id)
		       ? 0
		       : cgroup_ids_add(&l->strays, m->idiag_inode);
}

/* Raw sockets may be a module that isn't there. */
static int list_strays(struct stray_search *l)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_RAW };
	CLEAN(fd) int fd = nl_diag_open();

	if (fd < 0)
		return fd;
	for (size_t i = 0; i < ARRAY_SIZE(families) * ARRAY_SIZE(protocols); i++) {
		const struct inet_diag_req_v2 q = {
			.sdiag_family = families[i / ARRAY_SIZE(protocols)],
			.sdiag_protocol = protocols[i % ARRAY_SIZE(protocols)],
			.idiag_states = (uint32_t)ALL_STATES,
		};
		int r = nl_diag_run(fd, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &q,
				    on_stray_socket, l);

		if (r < 0 && q.sdiag_protocol != IPPROTO_RAW)
			return r;
	}
	return 0;
}

/* The numbers in column @column, from 0 on, of each line of @path but the first one;
 * none when that isn't there. */
static int read_column(const char *path, size_t column, struct cgroup_ids *ret)
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
			r = cgroup_ids_add(ret, number);
	}
	if (f)
		fclose(f);
	return r;
}

/* The columns of /proc/net/packet, and of raw and raw6. */
enum { USER_COLUMN = 7, PACKET_INODE = 8, RAW_INODE = 9 };

struct cgroup_strays user_raw_sockets(uint32_t uid)
{
	struct cgroup_strays ret = { 0 };
	struct cgroup_ids packets = { 0 }, raws = { 0 };

	ret.known = read_column("/proc/net/packet", USER_COLUMN, &packets) == 0 &&
		    read_column("/proc/net/raw", USER_COLUMN, &raws) == 0 &&
		    read_column("/proc/net/raw6", USER_COLUMN, &raws) == 0;
	for (size_t i = 0; i < packets.count; i++)
		ret.packet += packets.at[i] == uid;
	for (size_t i = 0; i < raws.count; i++)
		ret.raw += raws.at[i] == uid;
	cgroup_ids_done(&packets);
	cgroup_ids_done(&raws);
	return ret;
}

/* The sockets of one process. */
struct open_sockets {
	struct cgroup_ids inodes;
	pid_t table; /* a thread whose descriptor table was read; 0: none yet */
};

static int list_sockets(void *data, const struct task *t)
{
	static const char begin[] = "socket:[";
	struct open_sockets *s = data;
	CLEAN(directory) DIR *all = NULL;
	const struct dirent *e;
	char target[64];
	uint32_t inode;
	int fd, r = 0;

	/* A table is mostly all threads'. */
	if (s->table != 0 && tasks_share_fds(s->table, t->tid))
		return 0;
	fd = openat(t->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	all = directory_open(fd);
	if (!all)
		return -errno;
	while (r == 0 && (e = directory_next(all))) {
		const ssize_t n = readlinkat(fd, e->d_name, target, sizeof(target) - 1);

		if (n < (ssize_t)sizeof(begin) ||
		    strncmp(target, begin, strlen(begin)) != 0)
			continue;
		if (text_to_u32((struct text){ target + strlen(begin),
					       (size_t)n - sizeof(begin) },
				UINT32_MAX, &inode) &&
		    inode != 0)
			r = cgroup_ids_add(&s->inodes, inode);
	}
	if (r == 0 && errno != 0)
		return -errno;
	s->table = t->tid;
	return r;
}

static int count_process(struct cgroup_walk *w, pid_t pid)
{
	struct stray_search *l = w->data;
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
	return r == -ESRCH ? r : 0;
}

struct cgroup_strays cgroup_strays(const struct cgroup *c)
{
	CLEAN(fd) int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_strays ret = { 0 };
	struct stray_search l = { .ret = &ret, .proc = proc, .failed = proc < 0 };
	struct cgroup_walk w = { .on_process = count_process, .data = &l };
	int r;

	r = look_below(c, &l.in);
	/* Where nobody lives: the kernel's list of all sockets takes milliseconds. */
	if (r == 0 && !l.in.inhabited) {
		cgroup_ids_done(&l.in.ids);
		return (struct cgroup_strays){ .known = true };
	}
	if (r == 0)
		r = list_strays(&l);
	if (r == 0)
		r = read_column("/proc/net/packet", PACKET_INODE, &l.packets);
	if (r == 0)
		r = read_column("/proc/net/raw", RAW_INODE, &l.raws);
	if (r == 0)
		r = read_column("/proc/net/raw6", RAW_INODE, &l.raws);
	cgroup_ids_sort(&l.strays);
	cgroup_ids_sort(&l.packets);
	cgroup_ids_sort(&l.raws);
	if (r == 0)
		r = cgroup_walk(&w, c);
	ret.known = r == 0 && !l.failed;
	cgroup_ids_done(&l.in.ids);
	cgroup_ids_done(&l.strays);
	cgroup_ids_done(&l.packets);
	cgroup_ids_done(&l.raws);
	return ret;
}

/* A connection of theirs, as sock_diag names it. */
struct found {
	uint8_t family;
	struct inet_diag_sockid id;
	struct endpoint local, peer;
};

struct before_search {
	const struct before_who *who;
	struct cgroup_look in;
	struct found *found; /* owned */
	size_t count, capacity;
	int error;
};

/* ---- connections from before: whose they are ---- */

static int on_connection(const struct nlmsghdr *h, void *data)
{
	const struct inet_diag_msg *m = nl_body(h, sizeof(*m));
	struct before_search *l = data;
	uint64_t id;

	/* An older kernel doesn't say the cgroup: see cgroup_strays(). */
	if (!m || l->error < 0 ||
	    (l->who->cgroup
		     ? !cgroup_of_socket(h, &id) || !cgroup_ids_have(&l->in.ids, id)
		     : m->idiag_uid != l->who->uid))
		return 0;
	if (l->count == FLOWS_MAX) {
		l->error = -E2BIG;
	} else if (!ARRAY_GROW(l->found, l->count, l->capacity)) {
		l->error = -ENOMEM;
	} else {
		l->found[l->count++] = (struct found){
			.family = m->idiag_family,
			.id = m->id,
			.local = nl_diag_end(m->idiag_family, m->id.idiag_src,
					     m->id.idiag_sport),
			.peer = nl_diag_end(m->idiag_family, m->id.idiag_dst,
					    m->id.idiag_dport),
		};
	}
	return 0;
}

/* A connection that was made in a cgroup where nobody is any more is at best a process's
 * outside of it: no sandbox's. So the dump, which takes as long as the kernel's table is
 * large, is for cgroups with somebody in them. */
static int list_connections(struct before_search *l, int *ret_diag)
{
	struct nl_request request;
	struct inet_diag_req *q;
	int r = l->who->cgroup ? look_below(l->who->cgroup, &l->in) : 0;

	if (r < 0 || (l->who->cgroup && !l->in.inhabited))
		return r;
	*ret_diag = nl_diag_open();
	if (*ret_diag < 0)
		return *ret_diag;
	/* Of both families at once, by the older of the kernel's two ways: each time all
	 * buckets of a large table are looked at. */
	q = nl_request_begin(&request, TCPDIAG_GETSOCK, NLM_F_DUMP, sizeof(*q));
	q->idiag_family = AF_INET;
	q->idiag_states = ~(1u << TCP_LISTEN_STATE | 1u << TCP_TIME_WAIT_STATE |
			    1u << TCP_CLOSE_STATE);
	r = nl_run(*ret_diag, &request, on_connection, l);
	return r < 0 ? r : l->error;
}

/* ---- connections from before: what becomes of them ---- */

static int end_connections(int diag, const struct before_search *l, size_t *ret,
			   struct err *err)
{
	struct ctmark c = { .fd = -1 };
	CLEAN(fd) int fd = -1;
	int r = sandbox_netlink_open(&fd, err);

	if (r == 0)
		r = ctmark_init(&c, fd, err);
	if (r < 0)
		return r;
	(void)TAKE_FD(fd); /* it is @c's */
	for (size_t i = 0; i < l->count && r >= 0; i++) {
		const struct found *f = &l->found[i];
		const struct inet_diag_req_v2 q = { .sdiag_family = f->family,
						    .sdiag_protocol = IPPROTO_TCP,
						    .id = f->id };

		r = ctmark_begun_by(&c, &f->local, &f->peer);
		if (r == CTMARK_LOCAL || r == CTMARK_PEER)
			continue;
		r = nl_diag_run(diag, SOCK_DESTROY, NLM_F_ACK, &q, NULL, NULL);
		*ret += r == 0;
		/* The socket has just ended, or the kernel, whose table changes
		 * meanwhile, has listed it twice. */
		if (r == -ENOENT)
			r = 0;
	}
	fd_close(&c.fd);
	return r < 0 ? err_sys(err, r, "cannot end connections from before") : 0;
}

int before_end(const struct before_who *who, size_t *ret, struct err *err)
{
	struct before_search l = { .who = who, .in.except = who->except };
	CLEAN(fd) int diag = -1;
	int r = list_connections(&l, &diag);

	*ret = 0;
	if (r < 0)
		err_sys(err, r, "cannot list the connections from before");
	else if (l.count > 0)
		r = end_connections(diag, &l, ret, err);
	cgroup_ids_done(&l.in.ids);
	free(l.found);
	return r;
}
