// SPDX-License-Identifier: Apache-2.0
#include "test_relay_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "relay/relay_internal.h"
#include "sandbox/learned.h"
#include "sys/link.h"
#include "unit.h"

enum { PATIENCE_MS = 60000 };

static struct world *the_world;

size_t learned_find(const struct learned *l, const struct addr *a, int64_t now_ms,
		    struct learned_use *ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < the_world->learned_count; i++)
		if (n < max && addr_equal(&the_world->learned[i].addr, a))
			ret[n++].name = the_world->learned[i].name;
	return n;
}

bool learned_teaches(const struct learned *l, const struct dns_name *name,
		     const struct addr *a, int64_t now_ms)
{
	for (size_t i = 0; i < the_world->learned_count; i++)
		if (addr_equal(&the_world->learned[i].addr, a) &&
		    dns_name_equal(&the_world->learned[i].name, name))
			return true;
	return false;
}

size_t learned_addrs(const struct learned *l, const struct dns_name *name,
		     enum addr_family family, int64_t now_ms, struct addr *ret,
		     size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < the_world->learned_count; i++) {
		const struct world_learned *e = &the_world->learned[i];

		if (n < max && e->addr.family == family && dns_name_equal(&e->name, name))
			ret[n++] = e->addr;
	}
	return n;
}

void sandbox_event(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (the_world->event_count < WORLD_EVENTS_MAX)
		the_world->events[the_world->event_count++] = *e;
}

void sandbox_opened(struct sandbox *s, struct event *e, int64_t now_ms)
{
}

void sandbox_passed(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (the_world->passed_count < WORLD_EVENTS_MAX)
		the_world->passed[the_world->passed_count++] = *e;
}

struct addr world_addr(const char *text)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return a;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		print_message("cannot write %s\n", path);
	close(fd);
}

static bool unshare_all(void)
{
	char map[64];
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return false;
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	write_file("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	write_file("/proc/self/gid_map", map);
	return true;
}

static int this_netns(void)
{
	return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static void run(const char *command)
{
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

void world_enter(struct world *w, enum world_place p)
{
	assert_int_equal(setns(w->ns[p], CLONE_NEWNET), 0);
}

static void set_up_far(struct world *w)
{
	char command[256];

	world_enter(w, FAR);
	run("ip link set lo up");
	world_enter(w, OUTSIDE);
	run("ip link set lo up; ip link add near type veth peer name far");
	snprintf(command, sizeof(command), "ip link set far netns /proc/self/fd/%d",
		 w->ns[FAR]);
	run(command);
	run("ip addr add " HERE "/24 dev near; "
	    "ip -6 addr add 2606:2800:220::1/64 dev near nodad; ip link set near up");
	world_enter(w, FAR);
	run("ip addr add " FAR_A "/24 dev far; ip addr add " FAR_B "/24 dev far; "
	    "ip addr add " FAR_HOLE "/24 dev far; "
	    "ip -6 addr add " FAR_6 "/64 dev far nodad; ip link set far up; "
	    "nft 'add table inet t; add set inet t holes { type ipv4_addr; }; "
	    "add chain inet t c { type filter hook input priority 0; }; "
	    "add rule inet t c ip daddr @holes drop'");
}

void world_hole(struct world *w, bool silent, const char *addr)
{
	char command[256];

	snprintf(command, sizeof(command), "nft '%s element inet t holes { %s }'",
		 silent ? "add" : "delete", addr);
	world_enter(w, FAR);
	run(command);
	world_enter(w, OUTSIDE);
	w->holes_changed = true;
}

static void set_up_inside(struct world *w)
{
	world_enter(w, INSIDE);
	run("ip link set lo up; ip link add stub type veth peer name peer; "
	    "ip addr add 10.200.0.1/24 dev stub; "
	    "ip -6 addr add fd00:200::1/64 dev stub nodad; "
	    "ip link set stub up; ip link set peer up; "
	    "ip neigh add 10.200.0.2 lladdr 02:00:00:00:00:02 dev stub; "
	    "ip neigh add fd00:200::2 lladdr 02:00:00:00:00:02 dev stub; "
	    "ip route add default via 10.200.0.2; "
	    "ip -6 route add default via fd00:200::2");
	run("nft 'add table inet t; "
	    "add chain inet t c { type nat hook output priority -150; }; "
	    "add rule inet t c fib daddr type local return; "
	    "add rule inet t c meta l4proto tcp redirect to :1021'");
}

bool world_namespaces(struct world *w)
{
	*w = (struct world){ 0 };
	if (!unshare_all())
		return false;
	w->ns[OUTSIDE] = this_netns();
	for (int p = 0; p < PLACES; p++) {
		if (p == OUTSIDE)
			continue;
		if (unshare(CLONE_NEWNET) < 0)
			return false;
		w->ns[p] = this_netns();
	}
	/* fds above are inherited by the commands that need them. */
	fcntl(w->ns[FAR], F_SETFD, 0);
	set_up_far(w);
	set_up_inside(w);
	world_enter(w, OUTSIDE);
	return true;
}

/* "limit flows 3", "limit new 5" */
static void add_limit(struct policy *p, const char *which, unsigned int value)
{
	p->limits[strcmp(which, "flows") == 0 ? LIMIT_FLOWS
					      : LIMIT_NEW_FLOWS_PER_SECOND] = value;
}

static void add_rule(struct policy *p, struct plan_port_range *ports, const char *line)
{
	char word[16] = "", target[128] = "", list[64] = "", flag[16] = "";
	struct rule *r = &p->rules[p->count];
	struct err err;
	int n;

	sscanf(line, "%15s %127s %63s %15s", word, target, list, flag);
	if (strcmp(word, "default") == 0) {
		p->default_action = POLICY_ALLOW;
		return;
	}
	if (strcmp(word, "verify") == 0) {
		p->verify = POLICY_VERIFY_TLS;
		return;
	}
	if (strcmp(word, "limit") == 0) {
		add_limit(p, target, (unsigned int)atoi(list));
		return;
	}
	*r = (struct rule){ .comment = "", .file = "t", .line = 1 };
	if (strcmp(list, "private") == 0)
		r->flags |= PLAN_PRIVATE;
	else if (list[0]) {
		n = rule_ports_parse(text_of(list), ports, NULL, &err);
		assert_true(n > 0);
		r->ports = (struct rule_ports){ ports, (size_t)n };
		r->flags |= PLAN_PORTS_LISTED;
	}
	if (strcmp(flag, "raw") == 0)
		r->flags |= PLAN_RAW;
	if (strcmp(flag, "ended") == 0)
		r->until_ms = 1;
	if (strcmp(flag, "budget") == 0)
		r->budget =
			(struct plan_budget){ .received = 100000, .action = BUDGET_CUT };
	if (prefix_parse(target, strlen(target), false, &r->prefix)) {
		r->kind = TARGET_PREFIX;
	} else {
		r->kind = TARGET_NAME;
		assert_int_equal(dns_name_parse(text_of(target), &r->name), 0);
	}
	r->action = word[0] == 'a' ? POLICY_ALLOW : POLICY_DENY;
	r->target = strcpy(malloc(sizeof(target)), target);
	p->count++;
}

void world_set_plan(struct world *w, const char *const *rules)
{
	static struct plan_port_range ports[16][PLAN_PORT_RANGES_MAX];
	struct rule list[16];
	struct policy p = { .rules = list, .capacity = 16, .has_default_action = true };
	struct err err = { 0 };
	size_t size;

	the_world = w;
	for (size_t i = 0; rules[i]; i++)
		add_rule(&p, ports[i], rules[i]);
	free(w->plan_bytes);
	if (policy_compile(&p, &w->plan_bytes, &size, &err) < 0 ||
	    plan_open(w->plan_bytes, size, &w->sandbox.plan, &err) < 0)
		fail_msg("no plan: %s", err.text);
	for (size_t i = 0; i < p.count; i++)
		free((void *)(uintptr_t)list[i].target);
}

void world_teach(struct world *w, const char *name, const char *addr)
{
	struct world_learned *e = &w->learned[w->learned_count++];

	assert_true(w->learned_count <= WORLD_LEARNED_MAX);
	e->addr = world_addr(addr);
	assert_int_equal(dns_name_parse(text_of(name), &e->name), 0);
}

void world_forget(struct world *w)
{
	w->learned_count = 0;
}

void world_start(struct world *w, const char *const *rules)
{
	struct sandbox *s = &w->sandbox;
	struct relay_config config;
	struct err err = { 0 };

	*s = (struct sandbox){ .state = SANDBOX_RUNNING, .ipv6 = true, .relay = true };
	w->event_count = w->passed_count = 0;
	if (w->holes_changed) {
		world_enter(w, FAR);
		run("nft 'flush set inet t holes'");
	}
	world_hole(w, true, FAR_HOLE);
	w->holes_changed = false;
	world_forget(w);
	world_set_plan(w, rules);
	sandbox_fds_init(&s->fds);
	s->fds.fd[SANDBOX_FD_RELAY4] = world_listen(w, INSIDE, "127.0.0.1", RELAY_PORT);
	s->fds.fd[SANDBOX_FD_RELAY6] = world_listen(w, INSIDE, "::1", RELAY_PORT);
	world_enter(w, OUTSIDE);
	w->loop = loop_new();
	w->route_fd = link_route_open();
	assert_true(w->route_fd >= 0);
	config = (struct relay_config){ .loop = w->loop, .route_fd = w->route_fd };
	w->relay = relay_new(&config, &err);
	if (!w->relay)
		fail_msg("%s", err.text);
	assert_int_equal(relay_attach(w->relay, s), 0);
}

void world_stop(struct world *w)
{
	relay_free(w->relay);
	loop_free(w->loop);
	close(w->route_fd);
	sandbox_fds_done(&w->sandbox.fds);
	free(w->plan_bytes);
	w->plan_bytes = NULL;
}

static int world_socket(struct world *w, enum world_place p, const char *addr,
			uint16_t port, struct sockaddr_storage *sa, socklen_t *size)
{
	struct endpoint e = { .addr = world_addr(addr), .port = port };
	int family = e.addr.family == ADDR_V4 ? AF_INET : AF_INET6;
	int fd;

	world_enter(w, p);
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	world_enter(w, OUTSIDE);
	assert_true(fd >= 0);
	*size = endpoint_to_sockaddr(&e, sa);
	return fd;
}

int world_listen(struct world *w, enum world_place p, const char *addr, uint16_t port)
{
	struct sockaddr_storage sa;
	socklen_t size;
	int fd = world_socket(w, p, addr, port, &sa, &size), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, size), 0);
	assert_int_equal(listen(fd, 2048), 0);
	return fd;
}

int world_connect(struct world *w, enum world_place p, const char *addr, uint16_t port)
{
	struct sockaddr_storage sa;
	socklen_t size;
	int fd = world_socket(w, p, addr, port, &sa, &size);

	if (connect(fd, (struct sockaddr *)&sa, size) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

void world_turn(struct world *w)
{
	assert_int_equal(loop_turn(w->loop, 1), 0);
}

int64_t world_deadline(void)
{
	return clock_now_ms() + PATIENCE_MS;
}

int world_accept(struct world *w, int listener)
{
	for (int64_t until = world_deadline(); clock_now_ms() < until;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			return fd;
		world_turn(w);
	}
	fail_msg("nobody connected");
	return -1;
}

ssize_t world_read(struct world *w, int fd, void *bytes, size_t size)
{
	for (int64_t until = world_deadline(); clock_now_ms() < until;) {
		ssize_t n = read(fd, bytes, size);

		if (n >= 0)
			return n;
		if (errno != EAGAIN && errno != ENOTCONN)
			return -errno;
		world_turn(w);
	}
	fail_msg("nothing came");
	return -1;
}

void world_write_all(struct world *w, int fd, const void *bytes, size_t size)
{
	const char *p = bytes;
	int64_t until = world_deadline();

	while (size > 0 && clock_now_ms() < until) {
		ssize_t n = send(fd, p, size, MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			size -= (size_t)n;
			until = world_deadline();
		} else {
			assert_true(errno == EAGAIN || errno == ENOTCONN);
		}
		world_turn(w);
	}
	assert_int_equal(size, 0);
}

size_t flow_count(const struct world *w)
{
	return w->sandbox.relayed ? w->sandbox.relayed->flow_count : 0;
}

bool world_drained(struct world *w)
{
	for (int64_t until = world_deadline(); clock_now_ms() < until;) {
		if (flow_count(w) == 0)
			return true;
		world_turn(w);
	}
	return false;
}

const struct event *world_last_event(const struct world *w)
{
	assert_true(w->event_count > 0);
	return &w->events[w->event_count - 1];
}
