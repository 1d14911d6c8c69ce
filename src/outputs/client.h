// SPDX-License-Identifier: Apache-2.0
/* outputs/client - requests to the daemon's API over its unix socket, and what the verbs
 * that make them share. */
#pragma once

#include <assert.h>

#include "base/arena.h"
#include "base/err.h"
#include "outputs/request.h"
#include "policy/load.h"
#include "proto/control_supervisor.h"
#include "proto/run_socket.h"

/* Of the daemon's API: @given, or, when that is NULL, WEIR_SOCKET's. NULL: neither. */
const char *client_named_socket(const char *given);
/* The same, or /run/weir/weir.sock. */
const char *client_socket(const char *given);
/* Whom to ask for the sandbox @id: a run of the caller's by its own socket, in @run, or
 * the daemon by @given. Who says where the daemon's socket is means the daemon. Return:
 * @run or @given. */
const char *client_guard(const char *given, const char *id,
			 char run[RUN_SOCKET_PATH_SIZE]);
/* @socket: as client_socket() takes it. @path is not escaped: ids have no
 * letter that would have to be. @body may be empty. Return: 0 with an answer, whatever
 * its status; or -errno with @err. */
int client_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret, struct err *err) MUST_CHECK;

/* What a daemon is to guard: one of @netns, @cgroup and @uid. */
struct client_wish {
	const char *policy;	    /* JSON */
	const char *netns, *cgroup; /* a path, the first one also a process; or NULL */
	uint32_t uid;		    /* 0: none */
	bool guard_parent, again;
};

/* The same of the PUT that attaches the sandbox @id, which a daemon refuses with 503
 * while it takes over what was there before it: for ten seconds it is asked again.
 * -EILSEQ: a path is not UTF-8, as JSON has to be; nothing was asked. */
int client_attach(const char *socket, const char *id, const struct client_wish *wish,
		  struct arena *arena, struct client_reply *ret,
		  struct err *err) MUST_CHECK;
/* What went wrong, as a person reads it: a "reason" of JSON, or the text. */
const char *client_reason(const struct client_reply *reply, struct arena *arena);

/* -- what the verbs share ----------------------------------------------------------- */

#define DAEMON_ID_IS "up to 63 letters, digits, '-', '_' and '.', and no '.' at the front"
static_assert(IPC_SANDBOX_NAME_MAX == 63, "as the text says");

/* Report that @id is no sandbox's. Return: the exit status. */
int daemon_bad_id(const char *id);

/* Report @reply, unless it is a success. Return: 0, or the exit status. */
int daemon_answer(const struct client_reply *reply, struct arena *arena);
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
/* Return: NULL with the id of the user @name in @ret, or what @name is instead. */
const char *client_user_fault(const char *name, uint32_t *ret) MUST_CHECK;
