// SPDX-License-Identifier: Apache-2.0
/* tools/import - another tool's settings as a policy.
 *
 *   policy_import.c      the file's language; the rules that come out, and their order
 *   import_readers.c     sandbox-runtime, Claude Code, Codex, harden-runner;
 *                        NetworkPolicy, CiliumNetworkPolicy
 *
 * Nothing may be opened that the settings don't open. What would be is an error, and no
 * policy is printed. What can be left out, because without it the policy opens less, is
 * a warning, and stands at the end of the policy with its place. */
#pragma once

#include "policy/node.h"

#define IMPORT_CANNOT_BE_SAID                                                            \
	"this can't be said in a policy; take it out to import the rest"

enum {
	IMPORT_ENTRIES_MAX = 4096, /* one more is an error */
};

/* What a rule opens of its target, or what a deny closes. */
struct import_ports {
	bool all; /* also what is no port; the ranges don't count then */
	size_t count;
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX];
};

struct import_entry {
	struct rule rule; /* action, kind, name, prefix, target */
	const struct node *at;
	struct import_ports ports;
	bool everything; /* a deny of all names and addresses: of its ports, or all */
};

struct import {
	struct arena arena;
	struct faults faults;
	const char *file;
	const char *place; /* of --at; NULL: the only one */
	bool any_depth; /* a pattern of one label may be taken for names of any depth */
	const char *found; /* the place that is imported, or NULL */
	struct import_entry *entries;
	size_t count;
	bool out_of_memory;
};

/* At @n's place: an error; or what is left out. */
void import_fault(struct import *im, const struct node *n, const char *what);
void import_left_out(struct import *im, const struct node *n, const char *what);
/* "'text' <what is wrong>" */
void import_fault_text(struct import *im, const struct node *n, struct text t,
		       const char *what);

/* May the settings @n be read? A second place is an error, unless --at names one of them.
 * @place: what it is called; NULL: by where it stands. */
bool import_claim(struct import *im, const struct node *n, const char *place);

/* More than a rule can have is an error at @at. */
void import_ports_add(struct import *im, struct import_ports *ports,
		      struct plan_port_range range, const struct node *at);

/* All ports as a list, in which ports can be missing: what these tools carry is TCP
 * alone. */
void import_ports_tcp(struct import_ports *ports);

/* One rule; entries with the same target become one. Names get no port 53, which is
 * Weir's own. */
void import_add(struct import *im, enum policy_action action, struct text target,
		const struct import_ports *ports, const struct node *at);
/* Everything is denied, or @ports of everything. */
void import_deny_all(struct import *im, const struct import_ports *ports,
		     const struct node *at);

/* The settings that a list of names can be in. */
enum import_lists {
	IMPORT_NETWORK = 1 << 0,   /* network: {allowedDomains, deniedDomains} */
	IMPORT_WEB_FETCH = 1 << 1, /* permissions: {allow: ["WebFetch(domain:…)"]} */
	IMPORT_ENDPOINTS = 1 << 2, /* allowed-endpoints */
	IMPORT_CODEX = 1 << 3,
};
/* @lists: which of them. */
void import_lists(struct import *im, const struct node *root, unsigned int lists);

enum import_kinds { IMPORT_NETWORK_POLICY = 1 << 0, IMPORT_CILIUM = 1 << 1 };
/* Return: whether @root is an object of Kubernetes that is one of @kinds, or a list. */
bool import_kubernetes(struct import *im, const struct node *root, unsigned int kinds);
