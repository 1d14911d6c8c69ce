// SPDX-License-Identifier: Apache-2.0
#include "supervisor/supervisor.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

static const struct child_kind kind = { .has_channel = true };

/* Return: how many messages @c takes before its channel is closed. */
static size_t fill(struct child *c)
{
	const struct ipc_message m = { .type = IPC_ALIVE };
	size_t count = 0;

	for (; c->source.fd >= 0 && count < 1000 * 1000; count++)
		child_notify(c, &m, NULL);
	return count;
}

TEST(a_child_that_reads_nothing_loses_its_channel)
{
	struct supervisor k = { .loop = loop_new() };
	struct child c;
	struct ipc_message m;
	size_t sent, heard = 0, count;
	int pair[2];

	assert_non_null(k.loop);
	child_add(&k, &c, "a child", &kind);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	c.source.fd = pair[0];
	child_hear(&c);
	sent = fill(&c);
	assert_int_equal(c.source.fd, -1);
	/* What it was sent before it finds all the same, and then the end. */
	while (ipc_receive(pair[1], &m, NULL, 0, &count) == 0)
		heard++;
	assert_int_equal(heard, sent - 1);
	close(pair[1]);
	loop_free(k.loop);
}

/* -- does everybody serve? ---------------------------------------------------------- */

TEST(an_engine_is_alive_while_it_serves_or_advances)
{
	static const struct child_kind engine = { .is_asked = true, .is_killed = true };
	struct supervisor k = { 0 };
	struct child c;

	child_add(&k, &c, "the engine", &engine);
	assert_false(supervisor_is_alive(&k));
	c.advances = true;
	assert_true(supervisor_is_alive(&k));
	assert_false(supervisor_is_alive(&k)); /* not since then */
	c.serves = true;
	assert_true(supervisor_is_alive(&k));
	assert_true(supervisor_is_alive(&k));
	c.unanswered = 10;
	c.advances = true;
	assert_false(supervisor_is_alive(&k));
}

/* Another supervisor answers only while its own children are alive. */
TEST(another_supervisor_is_alive_when_it_has_answered)
{
	static const struct child_kind further = { .has_channel = true,
						   .is_asked = true };
	const struct ipc_message alive = { .type = IPC_ALIVE };
	struct supervisor k = { .loop = loop_new() };
	struct child c;
	int pair[2];

	assert_non_null(k.loop);
	child_add(&k, &c, "another supervisor", &further);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	c.source.fd = pair[0];
	child_hear(&c);
	assert_false(supervisor_is_alive(&k));
	assert_int_equal(ipc_send(pair[1], &alive, NULL, 0), 0);
	assert_int_equal(loop_turn(k.loop, 0), 0);
	assert_true(supervisor_is_alive(&k));
	assert_false(supervisor_is_alive(&k));
	close(pair[0]);
	close(pair[1]);
	loop_free(k.loop);
}

/* -- whose number is it? ------------------------------------------------------------ */

static pid_t start_socket_owner(struct supervisor *k, int channel)
{
	return k->engine.pid;
}

/* The socket owner's number is free again when the spawner has reaped it, and may then be
 * the next engine's. */
TEST(an_engine_that_has_the_number_of_an_old_socket_owner_is_reaped)
{
	static const struct supervisor_ops ops = { .start_socket_owner =
							   start_socket_owner };
	const struct sidecar_spec spec = { 0 };
	struct supervisor k = { .ops = &ops, .spec = (struct sidecar_spec *)&spec };
	struct ipc_message m = { .type = IPC_SOCKET_OWNER };
	struct err err = { 0 };

	assert_int_equal(supervisor_prepare(&k, &err), 0);
	k.engine.pid = fork();
	if (k.engine.pid == 0) {
		pause();
		_exit(0);
	}
	k.control.kind->on_message(&k.control, &m, NULL, 0);
	assert_true(k.socket_owner_pidfd >= 0);
	k.stopping = true; /* no engine is started again */
	assert_int_equal(kill(k.engine.pid, SIGKILL), 0);
	assert_int_equal(loop_turn(k.loop, 5000), 0);
	assert_int_equal(k.engine.pid, 0);
	close(k.socket_owner_pidfd);
	loop_free(k.loop);
}
