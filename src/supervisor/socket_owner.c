// SPDX-License-Identifier: Apache-2.0
#include "supervisor/socket_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text.h"
#include "filter/host.h"
#include "proto/engine_supervisor.h"
#include "proto/socket_owner.h"
#include "sys/confine.h"
#include "sys/netlink.h"
#include "sys/process.h"
#include "sys/tasks.h"

enum { CHANNEL_FD = 3 };

/* A network namespace that was asked about. */
struct network {
	char name[OWNER_NETWORK_SIZE]; /* "": none */
	int diag;		       /* owned */
};

struct socket_owner {
	struct network home;
	int home_fd;
	/* During one question: a socket keeps its namespace, and the links in it, from
	 * going. */
	struct network there;
	struct socket_owner_pace pace;
};

/* ---- confinement ---- */

/* What is kept sees other users' processes, and enters their network namespace; as far as
 * it is there. */
static int confine(bool enters)
{
	const int reads = capabilities_raise(CAP_DAC_READ_SEARCH) ? CAP_DAC_READ_SEARCH
								  : CAP_DAC_OVERRIDE;
	const int wanted[] = { CAP_SYS_PTRACE, reads, CAP_SYS_ADMIN };
	uint64_t keep = 0;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(wanted) - !enters; i++)
		if (capabilities_raise(wanted[i]))
			keep |= UINT64_C(1) << wanted[i];
	r = confine_rights(keep, NULL);
	return r < 0 ? r : confine_calls(CONFINE_SOCKET_OWNER, NULL);
}

/* ---- where ---- */

static const struct network *enter_network(struct socket_owner *w, const char *where)
{
	CLEAN(fd) int fd = tasks_open_named_network(where);
	struct network *n = &w->there;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || setns(fd, CLONE_NEWNET) < 0)
		return NULL;
	/* The socket stays in the namespace in which it was made. */
	n->diag = nl_diag_open();
	if (setns(w->home_fd, CLONE_NEWNET) < 0)
		_exit(0); /* it would take one network for another */
	if (n->diag < 0)
		return NULL;
	snprintf(n->name, sizeof(n->name), "net:[%llu]", (unsigned long long)st.st_ino);
	return n;
}

/* ---- questions ---- */

static bool understand(struct socket_owner *w, const struct socket_owner_question *q,
		       struct owner_question *ret, int *ret_diag)
{
	const struct network *n = &w->home;

	*ret = (struct owner_question){ .protocol = q->protocol,
					.from = q->from,
					.to = q->to,
					.age_ms = clock_now_ms() - q->at_ms,
					.until_ms =
						clock_now_ms() + SOCKET_OWNER_LOOK_MS };
	if (q->kind == ATTACH_NETNS)
		n = enter_network(w, q->where);
	if (!n || ret->age_ms < 0 || ret->age_ms > SOCKET_OWNER_AGE_MAX_MS)
		return false;
	*ret_diag = n->diag;
	if (q->kind == ATTACH_SHARED || q->kind == ATTACH_NETNS) {
		ret->among = OWNER_NETWORK;
		ret->network = n->name;
	} else if (q->member == MEMBER_CGROUP) {
		ret->among = OWNER_CGROUP;
		ret->cgroup = q->where;
	} else {
		ret->among = OWNER_USER;
		return text_to_u32(text_of(q->where), UINT32_MAX, &ret->user);
	}
	return true;
}

static struct owner answer(struct socket_owner *w, const struct socket_owner_question *q)
{
	struct owner_question question;
	struct owner o = { 0 };
	int diag;

	if (!socket_owner_may(&w->pace, clock_now_ms()))
		return o;
	socket_owner_look(&w->pace);
	if (!understand(w, q, &question, &diag) || owner_find(diag, &question, &o) < 0)
		o = (struct owner){ 0 };
	if (w->there.name[0])
		close(w->there.diag);
	w->there.name[0] = '\0';
	socket_owner_looked(&w->pace, clock_now_ms());
	return o;
}

void socket_owner_serve(int channel, bool enters)
{
	struct socket_owner w = { .home_fd = -1 };
	struct socket_owner_question q;

	prctl(PR_SET_NAME, "weir-sockowner");
	process_forget_environment();
	w.home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	w.home.diag = nl_diag_open();
	if (w.home_fd < 0 || w.home.diag < 0 || !owner_network(NULL, w.home.name) ||
	    confine(enters) < 0)
		return;
	while (recv(channel, &q, sizeof(q), 0) == sizeof(q)) {
		struct socket_owner_answer a = { .number = q.number };

		q.where[IPC_SANDBOX_WHERE_MAX] = '\0';
		a.owner = answer(&w, &q);
		if (send(channel, &a, sizeof(a), MSG_NOSIGNAL) != sizeof(a))
			return;
	}
}

pid_t socket_owner_start(int channel)
{
	pid_t pid = process_fork(NULL);

	if (pid != 0)
		return pid;
	process_unblock_signals();
	if (process_place_fds(&channel, 1, CHANNEL_FD, O_CLOEXEC) == 0)
		socket_owner_serve(CHANNEL_FD, false);
	_exit(0);
}
