// SPDX-License-Identifier: Apache-2.0
/* run/agent_socket - the ssh-agent's socket, which the command reaches when the caller
 * names SSH_AUTH_SOCK by --pass-env.
 *
 * Whoever reaches the agent signs with each key in it. So neither a pattern (`SSH_*`)
 * nor `--env all` is enough, nor a variable that an option sets. The socket is looked up
 * once, judged and held; it is mounted at its place by that descriptor, over the mask
 * that other sockets have (launch/bind_mount). What lies beside the socket stays out of
 * reach. */
#pragma once

#include "run/options.h"
#include "sys/path.h"

/* Look up what SSH_AUTH_SOCK names. @ret has the descriptor -1 where the caller did not
 * ask, or nothing lies there, of which a warning says so.
 * Return: 0, or -errno: a link, no socket, or somebody else's. */
int agent_socket_open(const struct run_spec *spec, struct path *ret,
		      struct err *err) MUST_CHECK;
/* Warn of what an agent can't know: @is_mapped, root is another user outside. */
void agent_socket_tell(const struct path *p, bool is_mapped);
