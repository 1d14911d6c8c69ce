// SPDX-License-Identifier: Apache-2.0
/* filter/filter - the kernel's side of a sandbox: build the ruleset, install it, read
 * it back, and keep its learned sets.
 *
 * Everything goes through one netlink socket per network namespace, which owns the
 * table (`owner|persist`): nobody else, root included, can change it, and it stays
 * when the socket is closed. The socket may have been opened by another process
 * inside the namespace and passed here. */
#pragma once

#include "filter/ruleset.h"
#include "policy/plan.h"

enum {
	FILTER_LEARN_MAX = 256, /* elements in one transaction */
};

struct filter_conn {
	int fd;		  /* NETLINK_NETFILTER, owned */
	uint32_t port_id; /* ours, as the kernel sees it */
	uint32_t seq;
	uint32_t commits; /* transactions of ours that changed something; wraps */
	bool owner;	  /* the kernel takes owner|persist (6.9 and later) */
	enum filter_naming naming; /* of the table that this one is about */
	bool counts_stay;   /* the kernel can't read counters and reset them in one go */
	uint64_t uncounted; /* where counters stay: what filter_total() has told of */
	/* What the changing sets hold may not be what was sent: a transaction failed, or
	 * others have changed something. filter_replace() then makes them anew. */
	bool unsure;
};

/* Take a netlink socket that is already bound (see sys/sock.h). An earlier process may
 * have used it: replies that this process left unread are dropped. */
int filter_conn_init(struct filter_conn *c, int fd, struct err *err) MUST_CHECK;
void filter_conn_done(struct filter_conn *c);

/* filter_replace() with nothing learned, draining or of its own ports. */
int filter_install(struct filter_conn *c, const struct ruleset *rs,
		   struct err *err) MUST_CHECK;
/* What a new ruleset starts with, besides what the plan says. All borrowed. */
struct filter_state {
	const struct filter_learn *learned; /* with the lifetimes that are left */
	size_t learned_count;
	/* Addresses whose lifetime is over: flows that are open may go on, none begins.
	 * Lifetimes don't count. */
	const struct filter_learn *draining;
	size_t draining_count;
	const struct filter_self_port *self_ports;
	size_t self_port_count;
	bool staged; /* filter_stage() has loaded the sets with ranges */
	/* What changes in the learned and the draining sets of the table in the kernel,
	 * so that they come to hold what is said above: the sets stay, and only the
	 * difference is sent. NULL: they are made anew, as the whole table is if nothing
	 * was staged. */
	const struct filter_difference *difference;
};

/* Each (address, port list) once at most. In draining sets lifetimes say only whether it
 * comes (not 0) or goes. */
struct filter_difference {
	const struct filter_learn *learned; /* as for filter_learn() */
	size_t learned_count;
	const struct filter_learn *draining;
	size_t draining_count;
};

/* Load the sets with ranges of @rs beside what stands, about a millisecond's worth at a
 * time. No packet meets these sets before filter_replace(), which loads them all at once
 * where nobody has staged them. They change names from generation to generation.
 * @progress is zero at first. Return: 1, call again; 0, done; or -errno (-EEXIST: the
 * generation doesn't follow the one that stands; -ENOENT: nothing stands). After a
 * failure, and when the change is given up, the next replacement takes away what was
 * loaded. */
struct filter_staging {
	const struct filter_set *next; /* to be loaded, from @range on */
	const struct filter_set *end;  /* this one, and those behind it, not */
	size_t range;
	bool begun;
};
int filter_stage(struct filter_conn *c, const struct ruleset *rs,
		 struct filter_staging *progress) MUST_CHECK;
/* The change is given up: take away what was loaded. What can't be taken away goes with
 * the next replacement that isn't staged. */
void filter_unstage(struct filter_conn *c, const struct ruleset *rs,
		    const struct filter_staging *progress);
/* Put @rs in the place of what stands, in one transaction, all of it or nothing: a packet
 * meets the old ruleset or the new one, never none. When the kernel knows no
 * owner|persist the table is made without, and c->owner is false. A table that another
 * socket owns is -EPERM; one whose owner is gone is taken over. c->naming becomes that of
 * @rs. */
int filter_replace(struct filter_conn *c, const struct ruleset *rs,
		   const struct filter_state *state, struct err *err) MUST_CHECK;
/* What a table says of itself. */
struct filter_said {
	uint16_t generation; /* 0: there is none, or it doesn't say */
	uint64_t digest; /* ruleset_digest() of what it was made of; 0: it doesn't say */
};
/* A table of c->naming stands already (made by an earlier process). Sets c->owner. */
int filter_standing(struct filter_conn *c, struct filter_said *ret) MUST_CHECK;
/* That table, whose owner is gone or this very socket, is this socket's from now on.
 * Nothing else of it changes. -EOPNOTSUPP: the kernel or the table knows no owner;
 * -EPERM: another socket owns it. */
int filter_take_over(struct filter_conn *c) MUST_CHECK;
/* Remove the table. The one thing that opens; nothing but `weir sidecar --remove` and
 * `weir teardown` calls it. 0 too when there is none. */
int filter_remove(struct filter_conn *c, struct err *err) MUST_CHECK;

/* Read table, chains, sets, rules back from the kernel and compare them with @rs:
 * same objects, same hooks, policies and flags, the same rules in the same order with
 * the same expressions, the same elements of static sets. -EBADMSG names the first
 * difference. */
int filter_verify(struct filter_conn *c, const struct ruleset *rs,
		  struct err *err) MUST_CHECK;

/* One address for one learned set. */
struct filter_learn {
	struct addr addr;
	uint8_t port_list;
	bool refresh;	      /* the element may be there: add, delete, add */
	uint32_t lifetime_ms; /* 0: delete it (it need not be there) */
	bool present;	      /* with lifetime 0: it surely is there. If it isn't, the
			       * whole transaction fails; it costs half as much */
};
/* One acknowledged transaction for all of @items (FILTER_LEARN_MAX at most): when it
 * returns 0 the kernel lets packets through; otherwise nothing was changed. */
int filter_learn(struct filter_conn *c, const struct filter_learn *items,
		 size_t count) MUST_CHECK;

/* The same for the draining sets, which have room for each address without a lifetime:
 * all of @items are there then. */
int filter_drain(struct filter_conn *c, const struct filter_learn *items,
		 size_t count) MUST_CHECK;

/* What the kernel's learned sets hold, element by element; @id is the sandbox's in a
 * table of the host, else 0, and @item's lifetime what is left of it, 1 at least.
 * -EAGAIN: the sets changed meanwhile, and what @fn was called for may be incomplete;
 * call again. */
typedef void filter_learned_fn(void *data, uint16_t id, const struct filter_learn *item);
int filter_learned_read(struct filter_conn *c, size_t port_list_count,
			filter_learned_fn *fn, void *data) MUST_CHECK;

/* A local port that is bound by a socket of our own: with our mark and our uid, packets
 * from it are exempt (shared namespaces only). One acknowledged transaction; taking back
 * one that isn't there is no error. */
struct filter_self_port {
	enum addr_family family;
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	uint16_t port;
};
int filter_self_port_set(struct filter_conn *c, const struct filter_self_port *h,
			 bool hold) MUST_CHECK;

/* Where a datagram was going that a redirect has taken from @from to @at, as conntrack
 * knows. Return: 0 or -errno (-ENOENT: it knows of none). */
int filter_original(struct filter_conn *c, uint8_t protocol, const struct endpoint *from,
		    const struct endpoint *at, struct endpoint *ret) MUST_CHECK;

/* The generation id of the whole nf_tables ruleset of the namespace. */
int filter_generation_id(struct filter_conn *c, uint32_t *ret) MUST_CHECK;

/* ---- what the kernel has counted for each destination since it was asked last ----
 *
 * Packets that were refused, and those that left by the link.
 *
 * The rules of report and of passed put each destination into a set, with a counter. A
 * kernel that can (6.5 and later) gives the elements and sets their counters to zero in
 * one go; of an older one they are read and then deleted, and packets that pass in
 * between are not counted. */

struct filter_count {
	struct addr addr;
	uint16_t port;
	uint8_t protocol;
	uint32_t member;	 /* of the host's table: the sandbox; else 0 */
	uint64_t packets, bytes; /* since the last time; may be 0 */
};
typedef void filter_counts_fn(void *data, const struct filter_count *count);

/* @refused: what was refused; else what has passed. Nothing where the ruleset has no such
 * set. Return: 0 or -errno; -EAGAIN: an older kernel's set changed meanwhile, and counts
 * on: what @fn was given is given again. */
int filter_counts_read(struct filter_conn *c, enum addr_family family, bool refused,
		       filter_counts_fn *fn, void *data) MUST_CHECK;
/* The same of one destination of the host's table, @key's, and no other; nothing when it
 * is not in the set. -EOPNOTSUPP: an older kernel, where it can't be done. */
int filter_counts_read_one(struct filter_conn *c, bool refused,
			   const struct filter_count *key, filter_counts_fn *fn,
			   void *data) MUST_CHECK;
/* What was refused to @key's destination is forgotten. */
int filter_counts_forget(struct filter_conn *c,
			 const struct filter_count *key) MUST_CHECK;
/* @refused: all packets that were refused since the ruleset that stands was installed.
 * Else, after filter_counts_read(), those that passed and found no room to be counted
 * since this was asked last. An older kernel tells a process that asks for the first time
 * of all since the ruleset was installed. Return: 0 or -errno; -ENOENT: the ruleset
 * doesn't count them. */
int filter_total(struct filter_conn *c, bool refused, uint64_t *ret) MUST_CHECK;
