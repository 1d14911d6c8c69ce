// SPDX-License-Identifier: Apache-2.0
/* engine/host - what the sandboxes of the host's own network namespace (kind HOST)
 * have in common: the table inet weir_host, the log of what it refuses, the listeners on
 * which all of them ask and dial, and the eye on others who change the ruleset. */
#pragma once

#include "engine/core.h"
#include "sys/ctmark.h"

struct engine_host_left;

struct engine_host {
	struct engine_core *core;
	struct filter_host *table; /* owned */
	struct ctmark connections; /* owned */
	struct sandbox_fds fds;	   /* owned; NETLINK has moved into @table */
	struct ipc_host ports;
	bool sees_refused; /* the log is ours */
	bool is_served;	   /* DNS and relay */
	bool ipv6;	   /* the host has a way out */
	/* All that were guarded before have been set, or one that was not. From then on
	 * the table has to stand; until it does, every RETRY_MS it is tried again. */
	bool is_wanted, stands;
	bool is_in_doubt; /* see what stands, whatever the count of transactions says */
	int64_t retry_ms, verify_ms; /* not before */
	struct engine_sandbox_seen seen;
	unsigned int looks;
	struct loop_source nflog;
	/* Who asks and is left over has everything refused, at once: by this one, which
	 * is in no table and nowhere else. */
	struct sandbox nobody;
	uint8_t *nothing; /* the plan's bytes, owned */
	/* What the kernel had when we came, until the table is replaced. */
	struct engine_host_left *left; /* owned; NULL: not read yet, or not any more */
	/* A repair is told of, some sandboxes at each look, from slot @tell_at on. */
	bool is_telling;
	size_t tell_at;
	int repaired;
	/* Packets, queries and connections of no sandbox, or of one that nobody answers
	 * for any more; reports of packets that did not arrive. */
	uint64_t unattributed, lost;
	uint64_t lost_seen; /* of these, before the last look at all that was refused */
	int64_t counts_from_ms; /* engine_account_host.c: no look at them before */
};

/* @fds and @conntrack_fd are taken, whatever comes of it. On success it is c->host;
 * nothing is installed or served yet. */
int engine_host_open(struct engine_core *c, const struct ipc_host *ports,
		     struct sandbox_fds *fds, int conntrack_fd,
		     struct err *err) MUST_CHECK;
/* Its rules stay. No sandbox of it is in the engine. */
void engine_host_free(struct engine_host *h);
/* Put the table in the place of whatever stands, and read it back. Serve. */
int engine_host_load(struct engine_host *h, struct err *err) MUST_CHECK;

/* -- for one of them ---------------------------------------------------------------- */

/* What it has in the place of a filter of its own. */
int engine_host_prepare(struct engine_core *c, struct sandbox *s,
			struct err *err) MUST_CHECK;
/* Take over what it had learned, as far as the kernel bears it out. Return: how many. */
size_t engine_host_adopt(struct engine_host *h, struct engine_sandbox *g);
/* A transaction has failed: see whether the table stands. Return: it didn't, and was put
 * back; so it may be worth another try. */
bool engine_host_mend(struct engine_host *h);

/* -- from time to time -------------------------------------------------------------- */

/* Every 50 ms. */
void engine_host_look(struct engine_host *h);
void engine_host_drain_refused(struct engine_host *h);
