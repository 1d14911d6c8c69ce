// SPDX-License-Identifier: Apache-2.0
/* main/engine_core - what every engine does, whoever started it: one sandbox's DNS,
 * learned addresses, relay and refused packets on one event loop. */
#pragma once

#include "ipc/message.h"
#include "sandbox/dns_service.h"
#include "sandbox/relay.h"

struct engine_core {
	struct loop *loop;
	struct dns_service *dns;
	struct relay *relay;
	struct hash_key key;
	int route_fd;
	struct sandbox sandbox; /* state SANDBOX_NONE until it is taken over */
	struct loop_source nflog;
	struct loop_timer expiry;
	char missing[ERR_TEXT_SIZE]; /* what could not be confined */
};

/* Loop, DNS, relay; nothing is served yet. @dns has everything but loop and key, and the
 * own ports of c->sandbox when there are some. */
int engine_core_init(struct engine_core *c, const struct dns_service_config *dns,
		     struct err *err) MUST_CHECK;
/* Serve the DNS and relay sockets of c->sandbox. */
int engine_core_serve(struct engine_core *c, struct err *err) MUST_CHECK;
/* Take the refused packets of c->sandbox as events from now on. */
int engine_core_watch_refused(struct engine_core *c, struct err *err) MUST_CHECK;
void engine_core_drain_refused(struct engine_core *c);

/* -- the first steps of an engine's process ----------------------------------------- */

/* Only SIGKILL counts here, and the end of the channels. */
void engine_reset_signals(void);
/* A session of its own, /dev/null on 0 to 2, the descriptors *@keep[i] on 3 + i (and
 * *@keep[i] says so; -1 stays -1 and its place empty), everything else closed. */
int engine_keep_only(int *const keep[], size_t count) MUST_CHECK;
