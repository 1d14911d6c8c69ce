// SPDX-License-Identifier: Apache-2.0
/* outputs/ask - what the verbs that talk to the daemon share. */
#pragma once

#include "outputs/client.h"
#include "policy/load.h"

enum { DAEMON_ID_MAX = 63 };

/* It stands in a path. */
bool daemon_is_id(const char *id);
/* Say so. Return: the exit status. */
int daemon_bad_id(const char *id);

/* One request that is to succeed. Return: 0, or the exit status after a message. */
int daemon_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret) MUST_CHECK;

/* The whole policy as one JSON document, malloc'ed, that the daemon takes. Return: 0, or
 * the exit status after a message. */
int daemon_policy_text(const struct policy_args *args, char **ret) MUST_CHECK;

/* The same of one that is built already. Return: 0 or -ENOMEM. */
int daemon_policy_json(const struct policy *policy, const struct plan *plan,
		       char **ret) MUST_CHECK;

/* A user of this host, by number or by name, of wherever users come from; not root.
 * Return: 0, or the exit status after a message. */
int daemon_find_user(const char *name, uint32_t *ret) MUST_CHECK;
