// SPDX-License-Identifier: Apache-2.0
/* A small world for the relay's tests, in fresh namespaces:
 *
 *   inside   where the command would be: a stub link, a default route, nft's redirect
 *            of all TCP to the relay's listener
 *   outside  where the engine is: it dials from here
 *   far      the servers' machine, behind a veth pair
 *
 * One thread: it walks between the namespaces to open sockets, and turns the loop. What
 * the relay borrows (learned addresses, events) is scripted here. */
#pragma once

#include "policy/policy.h"
#include "relay/relay.h"

enum world_place { INSIDE = 0, OUTSIDE, FAR, PLACES };

enum {
	WORLD_LEARNED_MAX = 16,
	WORLD_EVENTS_MAX = 64,
	RELAY_PORT = 1021,
};

/* The far machine's addresses; and the outside's own, on the same link. */
#define FAR_A	 "93.184.216.10"
#define FAR_B	 "93.184.216.11"
#define FAR_DEAD "93.184.216.99" /* nobody answers */
#define FAR_HOLE "93.184.216.14" /* takes packets and says nothing: world_hole() */
#define FAR_6	 "2606:2800:220::10"
#define HERE	 "93.184.216.1"

struct world_learned {
	struct addr addr;
	struct dns_name name;
};

struct world {
	int ns[PLACES];
	struct loop *loop;
	struct relay *relay;
	struct sandbox sandbox;
	int route_fd;
	uint8_t *plan_bytes;
	struct world_learned learned[WORLD_LEARNED_MAX];
	size_t learned_count;
	bool holes_changed; /* since world_start() */
	struct event events[WORLD_EVENTS_MAX];
	size_t event_count;
	struct event passed[WORLD_EVENTS_MAX];
	size_t passed_count;
};

/* Make the namespaces. False: not possible here, the test is skipped. */
bool world_namespaces(struct world *w);
void world_start(struct world *w, const char *const *rules);
void world_stop(struct world *w);
/* Replace the plan by one of these rules: "allow TARGET [PORTS [raw|ended|budget]]",
 * "deny TARGET", "default allow", "limit flows N", "verify tls". */
void world_set_plan(struct world *w, const char *const *rules);
void world_teach(struct world *w, const char *name, const char *addr);
void world_forget(struct world *w);

/* @addr of the far machine (not) to take packets; FAR_HOLE doesn't at the start. */
void world_hole(struct world *w, bool silent, const char *addr);

void world_enter(struct world *w, enum world_place p);
/* Sockets are non-blocking. */
int world_listen(struct world *w, enum world_place p, const char *addr, uint16_t port);
int world_connect(struct world *w, enum world_place p, const char *addr, uint16_t port);
void world_turn(struct world *w);
/* Until then is waited for what has to come: time counts, not turns, which are short
 * where much happens. */
int64_t world_deadline(void);
/* Turn until accept() succeeds. */
int world_accept(struct world *w, int listener);
/* Turn until bytes, an end or an error come. Return: like read(), or -errno. */
ssize_t world_read(struct world *w, int fd, void *bytes, size_t size);
void world_write_all(struct world *w, int fd, const void *bytes, size_t size);
/* Turn until there are no flows. False at the deadline. */
bool world_drained(struct world *w);
/* Of its sandbox. */
size_t flow_count(const struct world *w);
const struct event *world_last_event(const struct world *w);

struct addr world_addr(const char *text);
