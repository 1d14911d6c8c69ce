// SPDX-License-Identifier: Apache-2.0
#include "test_change_world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "sandbox/learned.h"
#include "test_plan.h"
#include "unit.h"

int listener[SERVERS];

static int shared_ns, far_ns;

/* ---- the namespaces ---- */

static void write_file(const char *path, const char *text)
{
	CLEAN(fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		print_message("cannot write %s\n", path);
}

static int this_netns(void)
{
	return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static void enter(int ns)
{
	assert_int_equal(setns(ns, CLONE_NEWNET), 0);
}

static void run(const char *command)
{
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

void enter_far(void)
{
	enter(far_ns);
}

void enter_shared(void)
{
	enter(shared_ns);
}

struct addr addr_of(const char *text)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return a;
}

socklen_t sockaddr_of(const char *addr, uint16_t port, struct sockaddr_storage *sa)
{
	const struct endpoint e = { .addr = addr_of(addr), .port = port };

	return endpoint_to_sockaddr(&e, sa);
}

static int listen_at(const char *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage sa;
	socklen_t size = sockaddr_of(addr, PORT, &sa);

	assert_int_equal(bind(fd, (struct sockaddr *)&sa, size), 0);
	assert_int_equal(listen(fd, 128), 0);
	return fd;
}

static bool unshare_all(void)
{
	char map[2][64];

	snprintf(map[0], sizeof(map[0]), "0 %u 1", getuid());
	snprintf(map[1], sizeof(map[1]), "0 %u 1", getgid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return false;
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", map[0]);
	write_file("/proc/self/gid_map", map[1]);
	return true;
}

bool make_namespaces(void)
{
	char command[128];

	if (!unshare_all())
		return false;
	far_ns = this_netns();
	run("ip link set lo up");
	listener[0] = listener[1] = listener[2] = -1;
	if (unshare(CLONE_NEWNET) < 0)
		return false;
	shared_ns = this_netns();
	fcntl(far_ns, F_SETFD, 0);
	run("ip link set lo up; ip link add near type veth peer name far");
	snprintf(command, sizeof(command), "ip link set far netns /proc/self/fd/%d",
		 far_ns);
	run(command);
	run("ip addr add " HERE "/24 dev near; ip link set near up");
	enter(far_ns);
	run("ip addr add " FAR_A "/24 dev far; ip addr add " FAR_B "/24 dev far; "
	    "ip addr add " FAR_C "/24 dev far; ip link set far up");
	listener[0] = listen_at(FAR_A);
	listener[1] = listen_at(FAR_B);
	listener[2] = listen_at(FAR_C);
	enter(shared_ns);
	return true;
}

/* ---- the sandbox ---- */

struct sandbox box;
static uint8_t *plans[8];
static size_t plan_count;

struct plan plan_of(const char *text)
{
	struct plan p;

	assert_true(plan_count < ARRAY_SIZE(plans));
	plans[plan_count++] = plan_from(text, &p);
	return p;
}

static int netlink_open(void)
{
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_NETFILTER);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

void must(int r, const struct err *err)
{
	if (r < 0)
		fail_msg("%s", err->text);
}

void open_sandbox(const struct plan *plan)
{
	const struct hash_key key = { 1, 2 };
	struct err err = { 0 };

	memset(&box, 0, sizeof(box));
	box.state = SANDBOX_RUNNING;
	box.shared = box.direct_udp = true;
	box.plan = *plan;
	box.shared_params = (struct filter_shared_params){
		.mark = MARK,
		.uid = 0, /* as this user namespace sees it */
		.dns_port = 15353,
	};
	sandbox_fds_init(&box.fds);
	must(filter_conn_init(&box.filter, netlink_open(), &err), &err);
	box.filter.naming = FILTER_NAMES_SHARED;
	sandbox_own_ports(&box, MARK);
	box.learned = learned_new(&box.plan, &key);
	assert_non_null(box.learned);
}

void install_on_host(const char *policy)
{
	const struct filter_host_params params = { .dns_port = 15353 };
	struct plan plan = plan_of(policy);
	struct err err = { 0 };

	open_sandbox(&plan);
	box.shared = false;
	box.id = 5;
	box.member = (struct member){ .kind = MEMBER_UID, .uid = getuid() };
	must(filter_host_new(netlink_open(), &params, &box.host, &err), &err);
	must(filter_host_load(box.host, clock_now_ms(), &err), &err);
	must(sandbox_install(&box, &plan, &err), &err);
	must(sandbox_verify(&box, &err), &err);
}

void install(const char *policy)
{
	struct plan plan = plan_of(policy);
	struct err err = { 0 };

	open_sandbox(&plan);
	must(sandbox_install(&box, &plan, &err), &err);
	must(sandbox_verify(&box, &err), &err);
}

void change(const char *policy)
{
	struct plan plan = plan_of(policy);
	struct err err = { 0 };

	must(sandbox_change(&box, &plan, clock_now_ms(), &err), &err);
	must(sandbox_verify(&box, &err), &err);
}

static void close_sandbox(void)
{
	learned_free(box.learned);
	filter_conn_done(&box.filter);
	sandbox_self_ports_done(&box.self_ports);
}

int stop(void **state)
{
	struct err err = { 0 };

	(void)!filter_remove(box.host ? filter_host_conn(box.host) : &box.filter, &err);
	filter_host_free(box.host);
	close_sandbox();
	while (plan_count > 0)
		free(plans[--plan_count]);
	return 0;
}

void learn(const char *name, const char *addr, uint32_t lifetime_ms)
{
	int64_t now = clock_now_ms();
	struct dns_name n;
	struct learned_item item;
	struct filter_learn c;

	assert_int_equal(dns_name_parse(text_of(name), &n), 0);
	item = (struct learned_item){ .name = &n,
				      .verdict = plan_match_name(&box.plan, &n),
				      .addr = addr_of(addr),
				      .lifetime_ms = lifetime_ms };
	assert_int_equal(item.verdict.action, POLICY_ALLOW);
	assert_int_equal(learned_prepare(box.learned, &item, now, &c), 1);
	assert_int_equal(sandbox_learn(&box, &c, 1, now), 0);
	learned_commit(box.learned, &item, now);
}

/* ---- the app ---- */

int new_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };

	assert_true(fd >= 0);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
	return fd;
}

int try_connect(int fd, const char *addr)
{
	struct sockaddr_storage sa;
	socklen_t size = sockaddr_of(addr, PORT, &sa);

	return connect(fd, (struct sockaddr *)&sa, size) < 0 ? -errno : 0;
}

int connect_result(const char *addr)
{
	CLEAN(fd) int fd = new_socket();

	return try_connect(fd, addr);
}

int accept_at(int server)
{
	struct pollfd p = { .fd = server, .events = POLLIN };

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	return accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* What other tests' connections left in the queue is not ours. */
struct flow connect_flow(const char *addr, int server)
{
	struct flow f = { .app = new_socket() };
	struct sockaddr_storage here, peer;
	socklen_t size = sizeof(here);

	assert_int_equal(try_connect(f.app, addr), 0);
	assert_int_equal(getsockname(f.app, (struct sockaddr *)&here, &size), 0);
	for (;;) {
		f.server = accept_at(server);
		assert_true(f.server >= 0);
		size = sizeof(peer);
		if (getpeername(f.server, (struct sockaddr *)&peer, &size) == 0 &&
		    endpoint_from_sockaddr(&peer).port ==
			    endpoint_from_sockaddr(&here).port)
			return f;
		close(f.server);
	}
}

void close_flow(struct flow f)
{
	close(f.app);
	close(f.server);
}

bool passes(struct flow f)
{
	struct pollfd p = { .fd = f.server, .events = POLLIN };
	char byte;

	assert_int_equal(send(f.app, "x", 1, MSG_NOSIGNAL), 1);
	if (poll(&p, 1, PATIENCE_MS) != 1 || read(f.server, &byte, 1) != 1)
		return false;
	assert_int_equal(write(f.server, "y", 1), 1);
	return read(f.app, &byte, 1) == 1 && byte == 'y';
}

/* By what it sends here, or already by the acknowledgement of what it read before, which
 * its kernel may hold back for 40 ms. */
void assert_is_reset(struct flow f)
{
	char byte;

	if (send(f.app, "x", 1, MSG_NOSIGNAL) == 1)
		assert_int_equal(read(f.app, &byte, 1), -1);
	assert_int_equal(errno, ECONNRESET);
	assert_int_equal(read(f.server, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

void wait_until_refused(const char *addr)
{
	int64_t until = clock_now_ms() + PATIENCE_MS;

	while (connect_result(addr) == 0) {
		assert_true(clock_now_ms() < until);
		poll(NULL, 0, 20);
	}
}
