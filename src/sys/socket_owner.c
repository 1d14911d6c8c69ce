// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * First the socket, by its addresses; it may be gone in a moment. Then its descriptor, in
 * the youngest process first, for what lives longest has most likely done nothing. Then
 * all others: whoever else has the socket could have been it as well.
 *
 * All that is read of a process is read below one directory, which stays that process's:
 * when it has ended nothing is found there, whoever has its number by then. */
#include "sys/socket_owner.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>

#include "base/clock.h"
#include "base/text.h"
#include "sys/cgroup.h"
#include "sys/files.h"
#include "sys/netlink.h"
#include "sys/tasks.h"

enum {
	DNS_PORT = 53,
	ALL_STATES = -1,
	TCP_LISTEN_STATE = 10,
	COMM_SIZE = 16,	      /* the kernel's */
	STATUS_SIZE = 4096,   /* of /proc/PID/status, and of stat */
	START_FIELD = 22 - 3, /* of /proc/PID/stat, behind the one after the name */
	SLACK_MS = 2,	      /* two clocks that are read one after the other */
};

/* ---- the socket ---- */

struct socket_search {
	const struct owner_question *q;
	uint32_t inode; /* 0: none yet */
	size_t seen;
	bool several;
};

/* It is not bound to another address, and not connected to another one. */
static bool may_have_sent(const struct owner_question *q, const struct inet_diag_msg *m)
{
	struct endpoint from =
		nl_diag_end(m->idiag_family, m->id.idiag_src, m->id.idiag_sport);
	struct endpoint to =
		nl_diag_end(m->idiag_family, m->id.idiag_dst, m->id.idiag_dport);
	const struct addr unspecified = { .family = from.addr.family };

	if (from.port != q->from.port)
		return false;
	if (m->idiag_family == AF_INET && q->from.addr.family != ADDR_V4)
		return false;
	if (!addr_equal(&from.addr, &unspecified) &&
	    !addr_equal(&from.addr, &q->from.addr))
		return false;
	if (to.port == 0)
		return true;
	/* Translated on its way, a lookup may have got a port that is another's here. */
	if (q->to.addr.family == ADDR_NONE)
		return to.port == DNS_PORT;
	return to.port == q->to.port && addr_equal(&to.addr, &q->to.addr);
}

static int on_socket(const struct nlmsghdr *h, void *data)
{
	const struct inet_diag_msg *m = nl_body(h, sizeof(*m));
	struct socket_search *s = data;

	if (++s->seen > OWNER_SOCKETS_MAX)
		return -E2BIG;
	if (!m || m->idiag_inode == 0 ||
	    (s->q->protocol == IPPROTO_TCP && m->idiag_state == TCP_LISTEN_STATE) ||
	    !may_have_sent(s->q, m))
		return 0;
	s->several |= s->inode != 0 && s->inode != m->idiag_inode;
	s->inode = s->inode ?: m->idiag_inode;
	return 0;
}

/* The one between @q->from and @to; @to NULL: all that there are. */
static int find_sockets(int diag, uint8_t family, const struct endpoint *to,
			struct socket_search *s)
{
	struct inet_diag_req_v2 q = {
		.sdiag_family = family,
		.sdiag_protocol = s->q->protocol,
		.idiag_states = (uint32_t)ALL_STATES,
		.id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE },
	};
	/* For UDP the kernel takes the two ends the other way round. */
	const bool swapped = s->q->protocol == IPPROTO_UDP;
	const struct endpoint *a = swapped ? to : &s->q->from,
			      *b = swapped ? &s->q->from : to;
	int r;

	if (to) {
		memcpy(q.id.idiag_src, a->addr.bytes, addr_size(&a->addr));
		memcpy(q.id.idiag_dst, b->addr.bytes, addr_size(&b->addr));
		q.id.idiag_sport = htobe16(a->port);
		q.id.idiag_dport = htobe16(b->port);
	}
	r = nl_diag_run(diag, SOCK_DIAG_BY_FAMILY, to ? 0 : NLM_F_DUMP, &q, on_socket, s);
	return s->seen > OWNER_SOCKETS_MAX ? -E2BIG : r;
}

/* A socket of IPv6 may send over IPv4 as well. */
static int list_all_sockets(int diag, struct socket_search *s)
{
	int r = s->q->from.addr.family == ADDR_V4 ? find_sockets(diag, AF_INET, NULL, s)
						  : 0;

	return r < 0 ? r : find_sockets(diag, AF_INET6, NULL, s);
}

static int find_socket(int diag, struct socket_search *s)
{
	const struct owner_question *q = s->q;
	const struct endpoint inner = { addr_v4(127, 0, 0, 1), 53 };
	const bool v4 = q->from.addr.family == ADDR_V4;
	const struct endpoint *to = q->to.addr.family != ADDR_NONE ? &q->to : &inner;
	int r = -ENOENT;

	/* The quick way, which takes no list of all: most have asked the name server that
	 * they were given. */
	if (to->addr.family == q->from.addr.family)
		r = find_sockets(diag, v4 ? AF_INET : AF_INET6, to, s);
	if (s->inode == 0 && q->protocol == IPPROTO_UDP)
		r = list_all_sockets(diag, s);
	if (s->inode == 0)
		return r < 0 ? r : -ENOENT;
	return s->several ? -ENOTUNIQ : 0;
}

/* ---- a process ---- */

bool owner_network(const char *process, char ret[OWNER_NETWORK_SIZE])
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/ns/net", process ? process : "self");
	n = readlink(path, ret, OWNER_NETWORK_SIZE - 1);
	if (n <= 0 || n == OWNER_NETWORK_SIZE - 1)
		return false;
	ret[n] = '\0';
	return true;
}

static bool is_link_to(int dir, const char *link, const char *target)
{
	char text[64];
	ssize_t n = readlinkat(dir, link, text, sizeof(text));

	return n > 0 && (size_t)n == strlen(target) &&
	       memcmp(text, target, (size_t)n) == 0;
}

static bool has_descriptor(int dir, const char *wanted)
{
	int fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEAN(directory) DIR *all = directory_open(fd);
	const struct dirent *e;
	bool found = false;

	while (all && !found && (e = directory_next(all)))
		found = is_link_to(fd, e->d_name, wanted);
	return found;
}

/* The name of a process is in its hands, and so is what it looks like: without spaces,
 * brackets and the like it is one word among Weir's own. */
static void copy_printable(const char *from, size_t size, char *ret, size_t ret_size)
{
	size_t i;

	for (i = 0; i < MIN(size, ret_size - 1); i++)
		ret[i] = from[i] && strchr(TEXT_NAME_LETTERS "+", from[i]) ? from[i]
									   : '?';
	ret[i] = '\0';
}

/* What follows the last slash, without what the kernel adds when the file is gone. */
static struct text file_name(const char *path, size_t size)
{
	static const char gone[] = " (deleted)";
	const size_t end = sizeof(gone) - 1;
	const char *slash;

	if (size > end && memcmp(path + size - end, gone, end) == 0)
		size -= end;
	slash = memrchr(path, '/', size);
	return slash ? (struct text){ slash + 1, (size_t)(path + size - slash - 1) }
		     : (struct text){ path, 0 };
}

/* @thread: one that lives, so that the program is there to be seen. */
static int read_command(int dir, int thread, char ret[OWNER_COMMAND_SIZE])
{
	char raw[COMM_SIZE + 2], comm[COMM_SIZE + 1], path[PATH_MAX],
		file[OWNER_COMMAND_SIZE];
	ssize_t n = file_read_kernel(dir, "comm", raw, sizeof(raw)), linked;
	struct text name = { 0 };

	if (n < 0)
		return (int)n;
	if (n > 0 && raw[n - 1] == '\n')
		n--;
	copy_printable(raw, (size_t)n, comm, sizeof(comm));
	linked = readlinkat(thread, "exe", path, sizeof(path));
	if (linked > 0)
		name = file_name(path, (size_t)linked);
	copy_printable(name.ptr ? name.ptr : "", name.len, file, sizeof(file));
	/* The kernel takes the first 15 bytes of the file's name. */
	if (file[0] == '\0' || (comm[0] && strncmp(file, comm, COMM_SIZE - 1) == 0))
		snprintf(ret, OWNER_COMMAND_SIZE, "%s", file[0] ? file : comm);
	else
		snprintf(ret, OWNER_COMMAND_SIZE, "%s (%.*s)", comm,
			 OWNER_COMMAND_SIZE - COMM_SIZE - 4, file);
	return 0;
}

/* The kernel escapes line ends in the name, which stands in a line above. */
static uint32_t read_user(int dir)
{
	static const char key[] = "\nUid:\t";
	char text[STATUS_SIZE];
	const char *at;
	uint32_t uid;

	(void)file_read_kernel(dir, "status", text, sizeof(text));
	at = strstr(text, key);
	at = at ? strchr(at + sizeof(key) - 1, '\t') : NULL;
	if (!at || !text_to_u32((struct text){ at + 1, strcspn(at + 1, "\t\n") },
				UINT32_MAX, &uid))
		return UINT32_MAX;
	return uid;
}

/* When it was started, on the clock of clock_now_ms(). -1: it has ended. */
static int64_t read_start_ms(int dir)
{
	char text[STATUS_SIZE];
	const char *at;
	long per_second = sysconf(_SC_CLK_TCK);
	int64_t ticks = 0;

	(void)file_read_kernel(dir, "stat", text, sizeof(text));
	at = strrchr(text, ')');
	for (int i = 0; at && i <= START_FIELD; i++)
		at = strchr(at + 1, ' ');
	if (!at || per_second <= 0)
		return -1;
	for (at++; *at >= '0' && *at <= '9' && ticks < INT64_MAX / 100000; at++)
		ticks = ticks * 10 + (*at - '0');
	return ticks * 1000 / per_second;
}

/* ---- all of them ---- */

struct process_search {
	const struct owner_question *q;
	char wanted[32]; /* "socket:[123]" */
	int64_t before_ms;
	int proc; /* the directory */
	struct cgroup_ids pids;
	struct owner found; /* pid 0: nobody yet */
	pid_t table; /* of the process at hand, a thread whose descriptors were read */
};

static int note_candidate(struct cgroup_walk *w, pid_t pid)
{
	struct process_search *s = w->data;

	return s->pids.count == OWNER_PROCESSES_MAX
		       ? -E2BIG
		       : cgroup_ids_add(&s->pids, (uint64_t)pid);
}

/* List the processes of the cgroup where one is named, else all of the machine. */
static int list_candidates(struct process_search *s)
{
	struct cgroup_walk w = { .on_process = note_candidate, .data = s };
	CLEAN(directory) DIR *all = NULL;
	CLEAN(mem) struct cgroup *c = NULL;
	const struct dirent *e;
	uint32_t pid;
	int r;

	if (s->q->among == OWNER_CGROUP) {
		c = malloc(sizeof(*c));
		r = c ? cgroup_open(s->q->cgroup, c, NULL) : -ENOMEM;
		if (r == 0)
			r = cgroup_walk(&w, c);
		/* Processes that ended before they were seen are left out. */
		return r == -EAGAIN ? 0 : r;
	}
	all = opendir("/proc");
	r = all ? 0 : -errno;
	while (r == 0 && (e = readdir(all)))
		if (text_to_u32(text_of(e->d_name), INT_MAX, &pid))
			r = note_candidate(&w, (pid_t)pid);
	return r;
}

/* Numbers are given in turn: those above @data, the last one, are from the round before.
 */
static int compare_youngest_first(const void *a, const void *b, void *data)
{
	const uint64_t *x = a, *y = b, last = *(const uint64_t *)data;

	if ((*x <= last) != (*y <= last))
		return *x <= last ? -1 : 1;
	return (*x < *y) - (*x > *y);
}

/* Without opening anything: most are not. */
static bool may_be_among(const struct process_search *s, pid_t pid)
{
	struct stat st = { 0 };
	char path[32];

	/* One link for each thread, beside the two of a directory. */
	snprintf(path, sizeof(path), "%d/task", (int)pid);
	if (fstatat(s->proc, path, &st, 0) == 0 && st.st_nlink > 3)
		return true;
	if (s->q->among == OWNER_NETWORK) {
		snprintf(path, sizeof(path), "%d/ns/net", (int)pid);
		return is_link_to(s->proc, path, s->q->network);
	}
	return s->q->among != OWNER_USER || st.st_uid == s->q->user;
}

static bool is_among(const struct owner_question *q, int dir)
{
	struct stat st;

	switch (q->among) {
	case OWNER_CGROUP:
		return true; /* it was listed there */
	case OWNER_NETWORK:
		return is_link_to(dir, "ns/net", q->network);
	case OWNER_USER:
		return fstat(dir, &st) == 0 && st.st_uid == q->user;
	default:
		return false;
	}
}

/* Not the number of an error that is returned below. */
enum { FOUND = 1 };

/* A thread of those that are asked for has the socket. Return: FOUND, 0, or the number of
 * the error that the whole search ends with. */
static int has_socket(void *data, const struct task *t)
{
	struct process_search *s = data;
	char path[32];
	CLEAN(fd) int dir = -1;
	int64_t start_ms;

	if (!is_among(s->q, t->dir) ||
	    (s->table != 0 && tasks_share_fds(s->table, t->tid)))
		return 0;
	s->table = t->tid;
	if (!has_descriptor(t->dir, s->wanted))
		return 0;
	if (s->found.pid != 0)
		return ENOTUNIQ;
	snprintf(path, sizeof(path), "%d", (int)t->pid);
	dir = openat(s->proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	start_ms = dir < 0 ? -1 : read_start_ms(dir);
	if (start_ms < 0 || read_command(dir, t->dir, s->found.command) < 0)
		return ENOENT; /* it has just ended: there may have been others */
	if (start_ms > s->before_ms)
		return ENOTUNIQ; /* it has it from somebody */
	s->found.uid = read_user(t->dir);
	s->found.pid = t->pid;
	return FOUND;
}

static int check_all(struct process_search *s)
{
	int r = list_candidates(s);
	uint64_t last = INT_MAX;
	char text[STATUS_SIZE];
	const char *at;
	uint32_t number;

	(void)file_read_kernel(AT_FDCWD, "/proc/loadavg", text, sizeof(text));
	at = strrchr(text, ' ');
	if (at &&
	    text_to_u32((struct text){ at + 1, strcspn(at + 1, "\n") }, INT_MAX, &number))
		last = number;
	if (r == 0 && s->pids.count > 0)
		qsort_r(s->pids.at, s->pids.count, sizeof(*s->pids.at),
			compare_youngest_first, &last);
	for (size_t i = 0; i < s->pids.count && r == 0; i++) {
		pid_t pid = (pid_t)s->pids.at[i];

		if (clock_now_ms() > s->q->until_ms)
			return -ETIME;
		if (!may_be_among(s, pid))
			continue;
		s->table = 0;
		r = tasks_each(s->proc, pid, has_socket, s);
		r = r > FOUND ? -r : 0;
	}
	return r == 0 && s->found.pid == 0 ? -ENOENT : r;
}

int owner_find(int diag, const struct owner_question *q, struct owner *ret)
{
	struct process_search s = { .q = q,
				    .before_ms = clock_now_ms() - q->age_ms + SLACK_MS };
	struct socket_search sockets = { .q = q };
	CLEAN(fd) int proc = -1;
	int r;

	if (q->from.port == 0 || q->from.addr.family == ADDR_NONE ||
	    (q->protocol == IPPROTO_TCP && q->to.addr.family != q->from.addr.family) ||
	    (q->protocol != IPPROTO_TCP && q->protocol != IPPROTO_UDP))
		return -EINVAL;
	r = find_socket(diag, &sockets);
	if (r < 0)
		return r;
	snprintf(s.wanted, sizeof(s.wanted), "socket:[%u]", sockets.inode);
	s.proc = proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = proc < 0 ? -errno : check_all(&s);
	/* Is there another one, now that there is time? */
	if (r == 0 && q->protocol == IPPROTO_UDP)
		r = list_all_sockets(diag, &sockets);
	if (r == 0 && sockets.several)
		r = -ENOTUNIQ;
	if (r == 0)
		*ret = s.found;
	cgroup_ids_done(&s.pids);
	return r;
}
