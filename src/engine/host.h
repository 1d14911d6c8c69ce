// SPDX-License-Identifier: Apache-2.0
/* engine/host - what the sandboxes of the host's own network namespace (kind HOST)
 * have in common: the table inet weir_host, the log of what it refuses, the listeners on
 * which all of them ask and dial, and the eye on others who change the ruleset. */
#pragma once

#include "engine/core.h"
#include "sys/ctmark.h"

struct engine_host {
	struct engine_core *core;
	struct filter_host *table; /* owned */
	struct ctmark connections; /* owned */
	struct sandbox_fds fds;	   /* owned; NETLINK has moved into @table */
	struct ipc_host ports;
	bool sees_refused; /* the log is ours */
	bool is_served;	   /* DNS and relay */
	bool ipv6;	   /* the host has a way out */
	/* All that were attached before have been set, or a new one. From then on the
	 * table has to be in force; until it is, it is loaded again every RETRY_MS. */
	bool is_wanted, is_active;
	bool is_in_doubt; /* read the table, whatever the count of transactions says */
	int64_t retry_ms, verify_ms; /* not before */
	struct engine_sandbox_seen seen;
	unsigned int audits;
	struct loop_source nflog;
	/* Processes of no sandbox that ask here all the same have everything denied, at
	 * once: by this sandbox, which is in no table and nowhere else. */
	struct sandbox denied;
	uint8_t *nothing; /* the plan's bytes, owned */
	/* What the kernel had learned when this engine came; until the table is loaded.
	 */
	struct engine_elements
		*inherited; /* owned; NULL: not read yet, or not any more */
	/* A repair is reported, some sandboxes at each audit, from slot @report_at on. */
	bool is_reporting;
	size_t report_at;
	int repaired;
	/* Packets, queries and connections of no sandbox, or of one that this engine has
	 * forgotten; reports of packets that did not arrive. */
	uint64_t unattributed, lost;
	uint64_t lost_seen;	/* of these, before all refusals were read last */
	int64_t counts_from_ms; /* account.c: they are not read before */
	int64_t counts_read_ms; /* when they were read last */
};

/* @fds and @conntrack_fd are taken, whatever comes of it. On success it is c->host;
 * nothing is installed or served yet. */
int engine_host_open(struct engine_core *c, const struct ipc_host *ports,
		     struct sandbox_fds *fds, int conntrack_fd,
		     struct err *err) MUST_CHECK;
/* Put the table in the place of whatever is there, and read it back. Serve. */
int engine_host_load(struct engine_host *h, struct err *err) MUST_CHECK;

/* -- for one of them ---------------------------------------------------------------- */

/* engine_sandbox_adopt() with what the kernel's table of the host holds. */
void engine_host_adopt(struct engine_host *h, struct engine_sandbox *g);
/* A transaction has failed: see whether the table is in force. Return: it wasn't, and was
 * put back; so it may be worth another try. */
bool engine_host_mend(struct engine_host *h);

/* -- from time to time -------------------------------------------------------------- */

/* Every 50 ms. */
void engine_host_audit(struct engine_host *h);
/* Make the table anew, with the lifetimes that are left. */
void engine_host_renew(struct engine_host *h);
void engine_host_drain_refused(struct engine_host *h);
