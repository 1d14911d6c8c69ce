// SPDX-License-Identifier: Apache-2.0
/* The descriptors of a sandbox arrive as the message beside them says, or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/message.h"
#include "unit.h"

static int pair[2];

static int setup(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static int open_null(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static ino_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

TEST_WITH(descriptors_arrive_in_their_slots, setup, teardown)
{
	struct ipc_message m = { .type = IPC_ATTACH };
	struct ipc_fds sent, got;
	int fds[IPC_FD_COUNT];
	size_t count = 0;

	ipc_fds_init(&sent, NULL);
	ipc_fds_init(&got, NULL);
	sent.fd[SANDBOX_FD_NFLOG] = open_null();
	sent.fd[IPC_FD_PLAN] = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	assert_int_equal(ipc_send_fds(pair[0], &m, &sent), 0);
	assert_int_equal(ipc_receive(pair[1], &m, fds, IPC_FD_COUNT, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(ipc_take_fds(&m, fds, count, &got), 0);
	for (size_t i = 0; i < IPC_FD_COUNT; i++)
		assert_int_equal(got.fd[i] >= 0, sent.fd[i] >= 0);
	assert_int_equal(inode_of(got.fd[SANDBOX_FD_NFLOG]),
			 inode_of(sent.fd[SANDBOX_FD_NFLOG]));
	assert_int_equal(inode_of(got.fd[IPC_FD_PLAN]), inode_of(sent.fd[IPC_FD_PLAN]));
	assert_int_equal(fds[0], -1);
	assert_int_equal(fds[1], -1);
	ipc_fds_done(&sent);
	ipc_fds_done(&got);
}

/* @present against two descriptors, of which those that are taken belong to @got. */
static int take_two(uint32_t present, struct ipc_fds *got)
{
	const struct ipc_message m = { .present = present };
	int fds[2] = { open_null(), open_null() };
	int r = ipc_take_fds(&m, fds, 2, got);

	close_all(fds, 2);
	return r;
}

TEST_WITH(what_a_message_does_not_say_is_refused, setup, teardown)
{
	static const struct {
		const char *what;
		uint32_t present;
		int wanted;
	} rows[] = {
		{ "two are said", 1u << IPC_FD_ROUTE | 1u << IPC_FD_PLAN, 0 },
		{ "none is said", 0, -EBADMSG },
		{ "one is said", 1u << IPC_FD_PLAN, -EBADMSG },
		{ "three are said", 7, -EBADMSG },
		{ "a slot that is not known", 1u << IPC_FD_PLAN | 1u << IPC_FD_COUNT,
		  -EBADMSG },
		{ "all bits", UINT32_MAX, -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ipc_fds got;

		ipc_fds_init(&got, NULL);
		if (take_two(rows[i].present, &got) != rows[i].wanted)
			fail_msg("%s", rows[i].what);
		ipc_fds_done(&got);
	}
}

TEST_WITH(a_slot_that_is_taken_stays, setup, teardown)
{
	struct ipc_fds got;
	int plan = open_null();

	ipc_fds_init(&got, NULL);
	got.fd[IPC_FD_PLAN] = plan;
	assert_int_equal(take_two(1u << IPC_FD_ROUTE | 1u << IPC_FD_PLAN, &got),
			 -EBADMSG);
	assert_int_equal(got.fd[IPC_FD_PLAN], plan);
	ipc_fds_done(&got);
}

TEST_WITH(half_a_message_is_none, setup, teardown)
{
	struct ipc_message m;
	size_t count;

	assert_int_equal(send(pair[0], "half", 4, 0), 4);
	assert_int_equal(ipc_receive(pair[1], &m, NULL, 0, &count), -EBADMSG);
	shutdown(pair[0], SHUT_RDWR);
	assert_int_equal(ipc_receive(pair[1], &m, NULL, 0, &count), -EPIPE);
}

/* Whoever gets an event may parse what it says. */
TEST_WITH(the_texts_of_an_event_arrive_printable, setup, teardown)
{
	struct ipc_message m = { .type = IPC_EVENT };
	size_t count;

	memset(m.event.name, 'a', sizeof(m.event.name));
	memset(m.event.reason, 0x1b, sizeof(m.event.reason));
	memset(m.event.advice, 0xff, sizeof(m.event.advice));
	memset(m.event.command, '\n', sizeof(m.event.command));
	assert_int_equal(ipc_send(pair[0], &m, NULL, 0), 0);
	assert_int_equal(ipc_receive(pair[1], &m, NULL, 0, &count), 0);
	assert_int_equal(strspn(m.event.name, "a"), EVENT_NAME_SIZE - 1);
	assert_int_equal(strspn(m.event.reason, "?"), EVENT_REASON_SIZE - 1);
	assert_int_equal(strspn(m.event.advice, "?"), EVENT_ADVICE_SIZE - 1);
	assert_int_equal(strspn(m.event.command, "?"), EVENT_COMMAND_SIZE - 1);
}

TEST_WITH(what_was_sent_before_the_end_arrives_though_the_sender_left_something_unread,
	  setup, teardown)
{
	struct ipc_message m = { .type = IPC_COUNTERS };
	size_t count;

	assert_int_equal(ipc_send(pair[1], &m, NULL, 0), 0);
	assert_int_equal(ipc_send(pair[0], &m, NULL, 0), 0);
	close(pair[0]);
	pair[0] = -1;
	assert_int_equal(ipc_receive(pair[1], &m, NULL, 0, &count), 0);
	assert_int_equal(m.type, IPC_COUNTERS);
	assert_int_equal(ipc_receive(pair[1], &m, NULL, 0, &count), -EPIPE);
}
