// SPDX-License-Identifier: Apache-2.0
/* tools/render_internal - what the files of `weir render` share.
 *
 *   render.c          options, which cgroup or user it is for, what is wrong, the text
 *   render_policy.c   names become address rules
 *   render_install.c  the file, and loading it; taking both away */
#pragma once

#include "base/arena.h"
#include "filter/ruleset.h"
#include "policy/load.h"
#include "sys/resolv_conf.h"
#include "tools/render.h"

enum {
	RENDER_ID_MAX = 20,
	RENDER_TABLE_SIZE = RENDER_ID_MAX + sizeof("weir_"),
};

struct render_spec {
	struct policy_args policy;
	struct name_servers upstreams; /* none: those of the host's resolv.conf */
	const char *cgroup, *uid, *id;
	struct addr resolvers[NAME_SERVERS_MAX];
	size_t resolver_count;
	bool no_resolver, install;
};

/* ---- render.c ---- */

struct render_member {
	char id[RENDER_ID_MAX + 1];
	char table[RENDER_TABLE_SIZE];
	char prefix[RENDER_ID_MAX + sizeof(FILTER_PREFIX_REFUSED) + 1]; /* of the log */
	bool by_cgroup;
	uint32_t uid;
	struct filter_cgroup cgroup;
	uint32_t mark;
};

void render_table_name(const char *id, char ret[RENDER_TABLE_SIZE]);

/* ---- render_policy.c ---- */

/* One address of one name. */
struct render_pin {
	uint32_t rule; /* of the policy */
	struct dns_name name;
	struct addr addr;
};

struct render_pins {
	struct render_pin *items; /* in the arena; by rule, then by address */
	size_t count;
	size_t missing; /* required names without an address */
};

/* What an address rule can't hold to, as faults with their places. */
void render_policy_check(const struct policy_reader *r, struct policy *policy);
/* Resolve the names of @plan; what is not found is told on stderr. Return: 0, or -errno
 * with @err. */
int render_policy_resolve(const struct render_spec *spec, const struct plan *plan,
			  render_resolve_fn *resolve, struct arena *arena,
			  struct render_pins *ret, struct err *err) MUST_CHECK;
/* @policy with its names as addresses, and the resolvers, compiled. *@ret_bytes is
 * malloc'ed. */
int render_policy_fix(const struct policy *policy, const struct render_pins *pins,
		      const struct render_spec *spec, struct arena *arena,
		      uint8_t **ret_bytes, struct plan *ret, struct err *err) MUST_CHECK;

/* ---- render_install.c ---- */

/* How a text of ours begins. */
#define RENDER_FIRST_LINE "# Made by weir render for "

/* Return: the exit status; what has to be said is said. */
int render_install(const char *id, const char *text, size_t size);
int render_teardown(const char *id);
