// SPDX-License-Identifier: Apache-2.0
/* filter/host - the filter of sandboxes that live in the host's own network namespace,
 * each known by its cgroup or its user id: one table, inet weir_host, for all of them.
 *
 * This process has a copy of all members in memory. filter_host_load() replaces a table
 * that was lost, or that an earlier process made, by that copy in one transaction; every
 * change after that is one transaction too. Packets of processes that are in no sandbox
 * meet a few look-ups and nothing more.
 *
 * A mark is a sandbox's id and the number of its plan: id << 16 | number. Refused packets
 * are logged with the mark, queries over UDP arrive with it (SO_RCVMARK), and TCP flows
 * to the DNS port and the relay have it in their conntrack entry. The upper half of the
 * mark says which sandbox asked.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/member.h"
#include "filter/filter.h"

enum {
	FILTER_HOST_LEVEL_MAX = 32, /* of a cgroup below the root of the hierarchy */
};

struct filter_host_params {
	uint16_t dns_port, relay_port; /* on 127.0.0.1 and ::1; no relay: 0 */
};

struct filter_host;

/* Take @fd, a bound netlink socket. Nothing is installed yet. */
int filter_host_new(int fd, const struct filter_host_params *params,
		    struct filter_host **ret, struct err *err) MUST_CHECK;
/* The rules stay. */
void filter_host_free(struct filter_host *h);
struct filter_conn *filter_host_conn(struct filter_host *h);

/* Install everything that was set, in the place of the table that Weir may have in the
 * kernel: packets meet the old table or the new one. Repairs a table as well. A cgroup or
 * user id that is a member of an earlier process's table and was not set stays a member,
 * and everything is closed to it, until filter_host_set() names it again.
 */
int filter_host_load(struct filter_host *h, int64_t now_ms, struct err *err) MUST_CHECK;

/* The last filter_host_load() went well: what is set or removed is in the kernel then,
 * and not only written down. */
bool filter_host_is_loaded(const struct filter_host *h);

struct filter_host_sandbox {
	uint16_t id; /* not 0 */
	struct member member;
	/* Copied. Sandboxes whose plans are the same but for names share its chains. */
	const struct plan *plan;
	bool relay;			  /* TCP that the plan allows goes to the relay */
	const struct filter_state *state; /* learned and draining; NULL: nothing */
};
/* Attach, or change what is attached under that id, in one transaction. Flows go on whose
 * destination is allowed still. -EEXIST: another id has that member. Unless
 * filter_host_is_loaded() it is only written down. */
int filter_host_set(struct filter_host *h, const struct filter_host_sandbox *s,
		    int64_t now_ms, struct err *err) MUST_CHECK;
/* Load a plan with many address ranges that nobody has yet, about a millisecond's worth
 * at a time, so that filter_host_set() to it has little to do; packets don't meet it.
 * *@progress is NULL at first. Return: 1, call again; 0, done, or there is no need to; or
 * -errno (-ESTALE: the table was made anew): filter_host_set() still works then.
 * filter_host_stage_end() in any case, after that or when it is given up: what nobody has
 * by then is taken away. */
struct filter_host_stage;
int filter_host_stage(struct filter_host *h, uint16_t id, const struct plan *plan,
		      bool relay, struct filter_host_stage **progress,
		      struct err *err) MUST_CHECK;
void filter_host_stage_end(struct filter_host *h, struct filter_host_stage *progress);
/* Detach: its processes are as free as everybody else. 0 too when there is none. */
int filter_host_remove(struct filter_host *h, uint16_t id, struct err *err) MUST_CHECK;
/* The engine serves the sandbox @id no longer, but its rules stay: the member is left
 * over from now on. filter_host_set() of that id for another member closes everything to
 * this one, under a number that no sandbox has. */
void filter_host_forget(struct filter_host *h, uint16_t id);
/* filter_host_forget() was called for @id, and filter_host_set() not since. */
bool filter_host_is_forgotten(const struct filter_host *h, uint16_t id);
/* filter_learn() for one of them. -ENOENT: there is none. */
int filter_host_learn(struct filter_host *h, uint16_t id,
		      const struct filter_learn *items, size_t count,
		      int64_t now_ms) MUST_CHECK;

/* Delete a few of the stale elements: those of marks that no sandbox has any more.
 * Return: whether there are more; to be called again when there is time. */
bool filter_host_tidy(struct filter_host *h, int64_t now_ms);

/* Read everything back, as filter_verify() does: objects, rules, and who the members
 * are. */
int filter_host_verify(struct filter_host *h, struct err *err) MUST_CHECK;
/* Read back that one sandbox is where it should be; the time doesn't depend on how many
 * there are. */
int filter_host_verify_one(struct filter_host *h, uint16_t id,
			   struct err *err) MUST_CHECK;

/* Whether filter_host_verify() can be left out. 1: the table is active, and the kernel
 * lets no other process change it; 0: another process may have changed it; -EAGAIN:
 * tables are being changed right now. */
int filter_host_is_owned(struct filter_host *h) MUST_CHECK;

/* ---- deny by default below a cgroup: cgroups.c ----
 *
 * A table inet weir_parents, in which packets from any cgroup just below a guarded one
 * are refused unless that is known. So a cgroup that is made there, by whomever, is
 * closed before its first packet, until somebody says that it may be let through to the
 * other tables.
 *
 * Processes of the guarded cgroup itself, and everybody else on the host, aren't asked
 * for more than one look-up for each level that is in use. */

struct filter_parents;

/* Take @fd, a bound netlink socket. Nothing is installed yet. It is never freed: the
 * daemon has one to its end. */
int filter_parents_new(int fd, struct filter_parents **ret, struct err *err) MUST_CHECK;

/* @level: of the guarded cgroup, from 1 on. Those below it that are to pass are known
 * before. Return: 0; 1, the kernel hears of it with the next load, for it needs other
 * rules (so it does before the first one); or -errno. */
int filter_parents_guard(struct filter_parents *p, uint64_t cgroup,
			 uint8_t level) MUST_CHECK;
int filter_parents_unguard(struct filter_parents *p, uint64_t cgroup) MUST_CHECK;
/* Put all of it in the place of whatever stands, in one transaction; no table when there
 * is nothing to guard. */
int filter_parents_load(struct filter_parents *p, struct err *err) MUST_CHECK;

/* A cgroup at @level is let through, or not any more. At once, if there is a table. */
int filter_parents_know(struct filter_parents *p, uint64_t cgroup,
			uint8_t level) MUST_CHECK;
int filter_parents_forget(struct filter_parents *p, uint64_t cgroup) MUST_CHECK;

/* The table is there and ours. Others can't change it on newer kernels. */
bool filter_parents_stands(struct filter_parents *p);

/* ---- the sockets of sandboxes' cgroups that are gone: cgroups.c ----
 *
 * A socket keeps the cgroup in which it was made, and a process elsewhere may keep the
 * socket. The kernel gives the id of that cgroup to no other one. A table inet weir_ended
 * refuses what is sent from such a socket, and stands beside the table of members.
 *
 * The caller keeps the list of the cgroups, and gives it whole where the table is made
 * anew. */

struct filter_ended;

struct filter_ended_cgroup {
	uint64_t id;
	uint8_t level; /* from 1 on, as a member's */
	void *data;    /* the caller's own */
};

/* Take @fd, a bound netlink socket. Nothing is installed yet. It is never freed: the
 * daemon has one to its end. */
int filter_ended_new(int fd, struct filter_ended **ret, struct err *err) MUST_CHECK;

/* Called for each cgroup of a table that an earlier process has made; a negative value
 * ends the calls. */
typedef int filter_ended_fn(void *data, uint64_t cgroup, uint8_t level);
int filter_ended_read(struct filter_ended *e, filter_ended_fn *fn, void *data) MUST_CHECK;

/* Put @all in the place of whatever stands; no packet passes meanwhile that either has
 * refused. No table when @count is 0. */
int filter_ended_load(struct filter_ended *e, const struct filter_ended_cgroup *all,
		      size_t count, struct err *err) MUST_CHECK;
/* Add one, or remove some that are there. Return: 0; 1: there is no table yet, and
 * filter_ended_load() makes it; or -errno: nothing has changed. */
int filter_ended_add(struct filter_ended *e,
		     const struct filter_ended_cgroup *c) MUST_CHECK;
int filter_ended_remove(struct filter_ended *e, const struct filter_ended_cgroup *some,
			size_t count) MUST_CHECK;

/* The table is there and ours, or none is to be there. Others can't change it on newer
 * kernels. */
bool filter_ended_stands(struct filter_ended *e);
