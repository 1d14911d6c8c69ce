// SPDX-License-Identifier: Apache-2.0
/* run/uplink_rules - how bytes leave the sandbox: what the filter lets out directly, and
 * the uplink program beside it, from its start to its end.
 *
 * TCP leaves by the relay over every uplink but `none`: names are judged there, it is
 * faster than a TAP, and connections outlive the program. slirp4netns and pasta carry
 * UDP alone. */
#pragma once

#include "filter/ruleset.h"
#include "policy/plan.h"
#include "run/options.h"
#include "run/uplink.h"
#include "sys/loop.h"

struct way {
	struct filter_params filter;   /* what ipv6 is, the namespace says */
	struct prefix *closed;	       /* filter.closed, owned */
	bool ipv6_out;		       /* the host has a way out for IPv6 */
	struct uplink_program program; /* kind none: the relay alone, or nothing */
	struct uplink uplink;
	bool ready; /* nothing more is to be waited for */
	struct loop *loop;
	struct loop_source from_ready, from_end;
	void (*on_ready)(void *data);
	void (*on_end)(void *data, const char *why);
	void *data;
};

/* Choose by --uplink, and see whether it can be had. @root: kernel uid 0 asks. What the
 * plan's address rules name exactly stays open, though it is this machine's. */
int way_choose(struct way *w, enum run_uplink uplink, const struct plan *plan, bool root,
	       struct err *err) MUST_CHECK;

/* Start the program, if there is one, for the launch child @sandbox, and watch it:
 * @w->on_ready, on_end and data are the caller's. */
int way_open(struct way *w, struct loop *loop, pid_t sandbox, struct err *err) MUST_CHECK;
/* The program ends with the sandbox, and nobody waits for it. */
void way_close(struct way *w);
