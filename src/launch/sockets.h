// SPDX-License-Identifier: Apache-2.0
/* launch/sockets - unix sockets of the host that lie in a writable path.
 *
 * HOW IT WORKS
 *   The view's overlays make the host's sockets refuse, but a writable path is the
 *   host's own directory. Before the launch the kernel is asked for every socket
 *   that is bound to a file, with the file's device and inode. The mount table says under
 *   which paths that file shows; where one is in a writable path, an empty file is
 *   mounted over it (launch/mask).
 *
 *   Whoever may write there can rename a socket or its directory between the look and the
 *   mask. So when all is mounted the kernel is asked again. A socket is accounted for
 * when its only name is masked, or was seen outside of the writable paths. Every other
 * one on the same file systems (bound by a relative name, renamed, linked twice, deleted)
 * is searched for by inode in what the sandbox is shown, until a search finds none and
 *   nothing was moved while it went on; else the launch is refused.
 *
 *   What can't be seen: sockets of other network namespaces (containers) whose
 *   files are shared with this one, and those that are bound later. */
#pragma once

#include "base/err.h"
#include "sys/mounts.h"
#include "sys/path.h"

enum {
	SOCKETS_MAX = 1024,	      /* to mask, and to search for; more: refused */
	SOCKETS_ACCOUNTED_MAX = 4096, /* more of them are searched for */
};

struct socket_file {
	uint32_t device; /* as in struct mount */
	uint32_t inode;	 /* its lower half: more isn't told by the kernel */
};
bool socket_file_equal(struct socket_file a, struct socket_file b);

struct sockets {
	int diag_fd;	   /* to ask about the network namespace of control; owned */
	uint32_t *devices; /* of the file systems in the writable paths; owned */
	size_t device_count;
	char *paths[SOCKETS_MAX];	       /* canonical, owned: to be masked */
	struct socket_file files[SOCKETS_MAX]; /* what is there */
	size_t count;
	struct socket_file accounted[SOCKETS_ACCOUNTED_MAX];
	size_t accounted_count;
};

struct socket_list {
	struct socket_file files[SOCKETS_MAX];
	size_t count;
};

/* Find the sockets in the @count directories @tops. */
int sockets_find(const struct mounts *m, const struct path *const *tops, size_t count,
		 struct sockets *ret, struct err *err) MUST_CHECK;
/* Ask the kernel again: those in the same file systems that aren't accounted for. */
int sockets_ask(const struct sockets *s, struct socket_list *ret,
		struct err *err) MUST_CHECK;
void sockets_account(struct sockets *s, struct socket_file file);
void sockets_done(struct sockets *s);
