// SPDX-License-Identifier: Apache-2.0
/* What control asks its supervisor or a daemon, and what it takes for the answer. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/control.h"
#include "sys/process.h"
#include "unit.h"

/* -- what link.c hands messages on to ----------------------------------------------- */

static struct ipc_message heard[4]; /* of a daemon, unasked */
static size_t heard_count;

void control_sandboxes_on_daemon(struct control_link *l, struct ipc_message *m)
{
	assert_true(heard_count < ARRAY_SIZE(heard));
	heard[heard_count++] = *m;
}

void control_sandboxes_on_engine(struct control_link *l)
{
}

int control_sandboxes_on_link(struct control_link *l)
{
	return 0;
}

void control_on_event(struct control *s, const struct event *e)
{
}

void control_on_trouble(struct control *s, const struct upstream_trouble *t)
{
}

void control_on_answered(struct control *s, uint32_t sandbox,
			 const struct ipc_answered *a)
{
}

void control_on_status(struct control *s, const struct ipc_status *status)
{
}

void control_note_enforced(struct control *s, uint8_t enforced)
{
}

void control_webhook_attach(struct control *s, int fd)
{
}

void control_socket_owner_attach(struct control *s, int fd)
{
}

void control_secure_listen(struct control *s)
{
}

int api_listen(struct api *a)
{
	return 0;
}

/* -- control and its first daemon --------------------------------------------------- */

static struct control control;
static int daemon_end; /* the other end of its channel */

static int open_control(void **state)
{
	int pair[2];

	memset(&control, 0, sizeof(control));
	control.many = true;
	control.loop = loop_new();
	assert_non_null(control.loop);
	control_link_init(&control);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	control.link->from_supervisor.fd = pair[0];
	daemon_end = pair[1];
	heard_count = 0;
	return 0;
}

static int close_control(void **state)
{
	fd_close(&control.link->from_supervisor.fd);
	close(daemon_end);
	loop_free(control.loop);
	return 0;
}

static void say(uint32_t type, uint32_t ask, uint32_t sandbox)
{
	const struct ipc_message m = { .type = type, .ask = ask, .sandbox = sandbox };

	assert_int_equal(ipc_send(daemon_end, &m, NULL, 0), 0);
}

TEST_WITH(an_answer_that_comes_too_late_is_not_the_next_questions, open_control,
	  close_control)
{
	static const uint32_t answers[] = { IPC_ATTACHED, IPC_REFUSED, IPC_FULL,
					    IPC_DETACHED, IPC_LISTED,  IPC_AUDITED,
					    IPC_KEPT,	  IPC_WHO,     IPC_MORE };

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		const struct control_answer wanted = { answers[i], answers[i] };
		const struct ipc_message ask = { .type = IPC_LIST };
		const uint32_t before = control.ask, next = before + 2;
		struct ipc_message m;
		size_t count;

		heard_count = 0;
		say(answers[i], before, 1);
		say(answers[i], 0, 2); /* nobody has asked for it */
		say(answers[i], next, 3);
		assert_int_equal(control_ask_supervisor(control.link, &ask, NULL, 0,
							&wanted, &m, NULL),
				 0);
		assert_int_equal(m.sandbox, 3);
		assert_int_equal(heard_count, 2);
		assert_int_equal(ipc_receive(daemon_end, &m, NULL, 0, &count), 0);
		assert_int_equal(m.ask, next);
	}
}

TEST_WITH(a_daemon_that_lives_on_without_its_channel_is_replaced, open_control,
	  close_control)
{
	const struct control_answer wanted = { IPC_AUDITED, IPC_AUDITED };
	const struct ipc_message ask = { .type = IPC_AUDIT };
	struct control_link *l = &control.links[3];
	const int64_t until_ms = clock_now_ms() + 10 * 1000;
	struct ipc_message m = { 0 };
	int pair[2], r = -EAGAIN;
	size_t count;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	l->from_supervisor.fd = pair[0];
	close(pair[1]);
	assert_int_equal(process_dont_wait(daemon_end), 0);
	assert_int_equal(control_ask_supervisor(l, &ask, NULL, 0, &wanted, &m, NULL),
			 -EPIPE);
	assert_int_equal(l->from_supervisor.fd, -1);
	while (r == -EAGAIN && clock_now_ms() < until_ms) {
		assert_int_equal(loop_turn(control.loop, 100), 0);
		r = ipc_receive(daemon_end, &m, NULL, 0, &count);
	}
	assert_int_equal(r, 0);
	assert_int_equal(m.type, IPC_STUCK);
	assert_int_equal(m.sandbox, 3);
}
