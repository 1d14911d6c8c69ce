// SPDX-License-Identifier: Apache-2.0
/* supervisor/open - what a sidecar's processes are started with: the descriptors in the
 * namespace, shared memory, and the policy in force at the start. */
#pragma once

#include "settings/settings.h"
#include "sys/sock.h"

enum {
	SUPERVISOR_DNS_PORT =
		15353, /* OpenSandbox's: its clients may ask there directly */
	SUPERVISOR_RELAY_PORT = 15354,
	SUPERVISOR_MARK = 0x1, /* OpenSandbox's */
};

struct supervisor_fds {
	struct sandbox_fds sandbox;
	int http_fd, snapshot_fd;
	int tls_fd;	      /* -1: none */
	int plan_fd, text_fd; /* sealed memfds: what is in force */
	bool ipv6;
	bool snapshot_found; /* a sidecar was here before: what it has learned and
				counted is in there, or noted as lost */
	bool needs_filter; /* the policy asks for the whole filter, or has budgets, which
			    * the filter counts: less won't do */
};

void supervisor_fds_init(struct supervisor_fds *h); /* all -1 */
/* Nothing is changed in the kernel by it. -EINVAL: what is wrong has been printed. */
int supervisor_open(struct sidecar_spec *spec, struct supervisor_fds *ret,
		    struct err *err) MUST_CHECK;
/* The API's TCP socket, as @spec says. It is bound, so that nobody else gets it, and
 * listens when supervisor_listen() says so. */
int supervisor_open_http(const struct sidecar_spec *spec, bool ipv6, int *ret,
			 struct err *err) MUST_CHECK;
/* The rules stand: the API's sockets listen. A connection that the kernel took before
 * would be taken for one of the sandbox's, and its answers refused. */
int supervisor_listen(const struct supervisor_fds *h, struct err *err) MUST_CHECK;
/* Exchange plan and text for those of a deny-all policy. */
int supervisor_deny_all(struct supervisor_fds *h, struct err *err) MUST_CHECK;
/* ::1 can be bound in this namespace: it is switched off in many containers. */
bool supervisor_has_ipv6(void);
/* Those that control writes in, for it can't make them. What can't be made is told, and
 * shows where it is missed: a store is no reason not to guard. */
void supervisor_open_directories(struct sidecar_spec *spec);
