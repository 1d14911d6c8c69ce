// SPDX-License-Identifier: Apache-2.0
/* What the engine tells control, which may be anybody who took control over. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/internal.h"
#include "unit.h"

static struct engine engine;
static struct engine_sandbox box;
static int control;

/* A channel to control that has room for a few answers. */
static void open_engine(void)
{
	struct dns_service_config dns = { 0 };
	struct err err = { 0 };
	const int little = 1;
	int pair[2];

	memset(&engine, 0, sizeof(engine));
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++)
		engine.lent[i].fd = -1;
	engine.from_control.fd = -1;
	engine.core.loop = dns.loop = loop_new();
	assert_non_null(engine.core.loop);
	engine.core.dns = dns_service_new(&dns, &err);
	assert_non_null(engine.core.dns);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(
		setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)), 0);
	control = pair[0];
	engine_sandbox_init(&box, ATTACH_SHARED, 0);
	assert_int_equal(engine_core_add(&engine.core, &box), 0);
	engine_control_take(&engine, pair[1]);
}

static int close_engine(void **state)
{
	close(control);
	accounting_free(box.sandbox.accounting);
	engine_core_take_out(&engine.core, &box);
	free(engine.core.sandboxes);
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++)
		fd_close(&engine.lent[i].fd);
	fd_close(&engine.from_control.fd);
	dns_service_free(engine.core.dns);
	loop_free(engine.core.loop);
	return 0;
}

static void say(uint32_t type, const struct ipc_socket *socket)
{
	const struct ipc_message m = { .type = type, .socket = *socket };

	assert_int_equal(ipc_send(control, &m, NULL, 0), 0);
	assert_int_equal(loop_turn(engine.core.loop, -1), 0);
}

/* The next answer of the engine's. Return: its descriptor, the caller's; or -1. */
static int hear(struct ipc_message *ret)
{
	size_t count = 0;
	int fd = -1;

	assert_int_equal(ipc_receive(control, ret, &fd, 1, &count), 0);
	assert_int_equal(loop_turn(engine.core.loop, 0), 0);
	return count == 1 ? fd : -1;
}

/* Until an answer waits. Return: how many were sent. */
static size_t borrow_until_one_waits(void)
{
	const struct ipc_socket any = { .family = ADDR_V4, .protocol = IPPROTO_UDP };
	size_t sent = 0;

	for (say(IPC_SOCKET, &any); engine.owed_count == 0; say(IPC_SOCKET, &any))
		sent++;
	assert_int_equal(engine.owed_count, 1);
	return sent;
}

TEST_WITH(a_socket_whose_answer_waits_is_lent, NULL, close_engine)
{
	struct ipc_message m;
	size_t sent;

	open_engine();
	sent = borrow_until_one_waits();
	for (size_t i = 0; i <= sent; i++) {
		CLEAN(fd) int fd = hear(&m);
		struct stat st;

		assert_true(fd >= 0 && m.socket.port > 0 && m.socket.error == 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_true(S_ISSOCK(st.st_mode));
	}
}

TEST_WITH(a_socket_that_is_given_back_before_its_answer_was_sent_is_none, NULL,
	  close_engine)
{
	struct ipc_message m;
	size_t sent;
	int fd, number;

	open_engine();
	sent = borrow_until_one_waits();
	number = engine.owed[0].fd;
	m.socket = engine.owed[0].message.socket;
	say(IPC_SOCKET_DONE, &m.socket);
	/* What the engine opens next. */
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (fd != number)
		assert_int_equal(dup3(fd, number, O_CLOEXEC), number);
	for (size_t i = 0; i < sent; i++)
		close(hear(&m));
	assert_int_equal(hear(&m), -1);
	assert_int_equal(m.type, IPC_SOCKET);
	assert_true(m.socket.error < 0);
}

static struct rlimit descriptors; /* as they were */
static int under_way[2];

/* From now on this user may send no descriptor more. Only a privilege lets it. */
static void hoard(void)
{
	enum { FEW = 64 };
	int fds[8];
	char byte = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
	assert_int_equal(
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ FEW, descriptors.rlim_max }),
		0);
	assert_int_equal(seteuid(geteuid() ?: 65534), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = control;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, under_way),
			 0);
	for (size_t i = 0; i <= FEW; i++)
		if (fds_send(under_way[0], &byte, 1, fds, ARRAY_SIZE(fds)) ==
		    -ETOOMANYREFS)
			return;
	fail();
}

static int free_descriptors(void **state)
{
	assert_int_equal(seteuid(getuid()), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
	close(under_way[0]);
	close(under_way[1]);
	return close_engine(state);
}

TEST_WITH(a_socket_that_cannot_be_sent_is_not_lent_and_the_engine_goes_on, NULL,
	  free_descriptors)
{
	const struct ipc_socket any = { .family = ADDR_V4, .protocol = IPPROTO_UDP };
	struct ipc_message m;

	open_engine();
	hoard();
	say(IPC_SOCKET, &any);
	assert_int_equal(hear(&m), -1);
	assert_int_equal(m.type, IPC_SOCKET);
	assert_int_equal(m.socket.error, -ETOOMANYREFS);
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++)
		assert_int_equal(engine.lent[i].fd, -1);
	assert_true(engine.from_control.fd >= 0);
}

/* A report may be written in the midst of a change. */
TEST_WITH(a_control_that_is_gone_ends_a_change_between_two_turns_alone, NULL,
	  close_engine)
{
	const struct event e = event_make(EVENT_DENY, EVENT_DNS);

	open_engine();
	close(control);
	control = -1;
	box.change.is_under_way = true;
	assert_false(engine_control_observer.on_event(&box, &e));
	assert_false(engine_control_observer.on_event(&box, &e));
	assert_true(box.change.is_under_way);
	for (int i = 0; i < 2; i++)
		assert_int_equal(loop_turn(engine.core.loop, 0), 0);
	assert_false(box.change.is_under_way);
	assert_int_equal(engine.from_control.fd, -1);
}

TEST_WITH(however_often_the_status_changes_answers_have_their_places, NULL, close_engine)
{
	const struct ipc_socket any = { .family = ADDR_V4, .protocol = IPPROTO_UDP };
	size_t answers, statuses = 0;
	struct ipc_message m;

	open_engine();
	engine.only = &box;
	answers = borrow_until_one_waits() + 1;
	for (size_t i = 0; i < ENGINE_OWED_MAX; i++)
		engine_control_observer.on_status(&box);
	say(IPC_SOCKET, &any);
	for (answers++; answers > 0 || statuses == 0;) {
		close(hear(&m));
		assert_true(m.type == IPC_SOCKET
				    ? answers-- > 0
				    : m.type == IPC_ACTIVE && statuses++ == 0);
	}
	assert_int_equal(engine.owed_count, 0);
}

TEST_WITH(the_control_of_a_daemon_hears_no_status, NULL, close_engine)
{
	const struct ipc_socket any = { .family = ADDR_V4, .protocol = IPPROTO_UDP };
	struct ipc_message m;

	open_engine();
	engine_control_observer.on_status(&box);
	say(IPC_SOCKET, &any);
	close(hear(&m));
	assert_int_equal(m.type, IPC_SOCKET);
}

/* After a suspend the filter is made anew, and may not be as it was. */
TEST_WITH(a_run_may_be_told_of_a_repair, NULL, close_engine)
{
	open_engine();
	assert_non_null(engine_run_observer.on_status);
	engine_run_observer.on_status(&box);
}
