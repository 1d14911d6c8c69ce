// SPDX-License-Identifier: Apache-2.0
/* A small world in the kernel for a policy that changes: a namespace that Weir shares
 * with an app, and a far one with the servers, behind a veth pair. */
#pragma once

#include "engine/sandbox.h"

enum { PORT = 9000, MARK = 0x77, PATIENCE_MS = 60000, LONG_MS = 600 * 1000, SERVERS = 3 };

#define HERE  "93.184.216.1"
#define FAR_A "93.184.216.10"
#define FAR_B "93.184.216.11"
#define FAR_C "93.184.216.12"

#define A_ALONE "egress: [{action: allow, target: a.x.test}]\n"
#define A_AND_B                                                                          \
	"egress: [{action: allow, target: a.x.test}, {action: allow, target: "           \
	"b.x.test}]\n"
#define B_ALONE "egress: [{action: allow, target: b.x.test}]\n"

/* At FAR_A, FAR_B, FAR_C. */
extern int listener[SERVERS];
extern struct sandbox box;

/* False: not possible here, the test is skipped. */
bool make_namespaces(void);
void enter_far(void);
void enter_shared(void);

/* Each ends with stop(). */
void open_sandbox(const struct plan *plan);
void install(const char *policy);
/* In the table of a host, as the sandbox of this process's user. */
void install_on_host(const char *policy);
void change(const char *policy);
int stop(void **state);
/* Lives until then. */
struct plan plan_of(const char *text);
/* As an answer does it. */
void learn(const char *name, const char *addr, uint32_t lifetime_ms);

/* An app's connection, and its other end. */
struct flow {
	int app, server;
};
struct flow connect_flow(const char *addr, int server);
void close_flow(struct flow f);
bool passes(struct flow f);
/* The next packet is answered with a reset, at once, and reaches nobody. */
void assert_is_reset(struct flow f);
int new_socket(void);
int try_connect(int fd, const char *addr);
int connect_result(const char *addr);
int accept_at(int server);
void wait_until_refused(const char *addr);

struct addr addr_of(const char *text);
socklen_t sockaddr_of(const char *addr, uint16_t port, struct sockaddr_storage *sa);
void must(int r, const struct err *err);
