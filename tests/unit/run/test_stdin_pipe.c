// SPDX-License-Identifier: Apache-2.0
#include "run/stdin_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "unit.h"

enum { TURNS = 8, WAIT_MS = 1, BIG = 300000 };

static struct loop *loop;
static struct stdin_pipe input;
static int before, writer; /* standard input of the test; the caller's pipe */

/* Standard input is a pipe, and @writer its other end. */
static int setup(void **state)
{
	int ends[2];

	before = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	loop = loop_new();
	if (!loop || pipe2(ends, O_CLOEXEC) < 0 || dup2(ends[0], STDIN_FILENO) < 0)
		return -1;
	close(ends[0]);
	writer = ends[1];
	stdin_pipe_init(&input);
	return 0;
}

static int teardown(void **state)
{
	stdin_pipe_close(&input);
	fd_close(&writer);
	loop_free(loop);
	dup2(before, STDIN_FILENO);
	close(before);
	return 0;
}

static void start(void)
{
	struct err err = { 0 };

	assert_int_equal(stdin_pipe_open(&input, false, &err), 0);
	assert_true(input.given > STDERR_FILENO);
	assert_int_equal(stdin_pipe_serve(&input, loop), 0);
}

static void turn(void)
{
	for (int i = 0; i < TURNS; i++)
		assert_int_equal(loop_turn(loop, 0), 0);
}

static void say(const char *text)
{
	assert_int_equal(write(writer, text, strlen(text)), strlen(text));
}

static size_t waiting(int fd)
{
	int n = -1;

	assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
	return (size_t)n;
}

static void expect(int fd, const char *text)
{
	char got[64] = "";

	assert_true(strlen(text) < sizeof(got));
	assert_true(waiting(fd) >= strlen(text));
	assert_int_equal(read(fd, got, strlen(text)), strlen(text));
	assert_string_equal(got, text);
}

/* The command's pipe, opened as the command could open it. */
static int open_for_writing(void)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", input.given);
	return open(link, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
}

TEST_WITH(what_the_command_does_not_read_stays, setup, teardown)
{
	start();
	say("one\ntwo\nthree\n");
	turn();
	expect(input.given, "one\n");
	assert_int_equal(waiting(STDIN_FILENO), strlen("one\ntwo\nthree\n"));
	stdin_pipe_close(&input);
	expect(STDIN_FILENO, "two\nthree\n");
	assert_int_equal(waiting(STDIN_FILENO), 0);
}

/* Many buffers are lent at a time, and the command reads a part of them. */
TEST_WITH(what_stays_of_many_buffers_is_all_that_was_not_read, setup, teardown)
{
	static char sent[40000], got[sizeof(sent)];
	const size_t taken = 5000;

	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (char)('a' + i % 23);
	start();
	assert_int_equal(write(writer, sent, sizeof(sent)), sizeof(sent));
	turn();
	assert_true(waiting(input.given) > taken);
	assert_int_equal(read(input.given, got, taken), taken);
	turn();
	stdin_pipe_close(&input);
	assert_int_equal(read(STDIN_FILENO, got + taken, sizeof(got) - taken),
			 sizeof(sent) - taken);
	assert_memory_equal(got, sent, sizeof(sent));
}

TEST_WITH(what_the_command_writes_to_its_input_is_its_own, setup, teardown)
{
	CLEAN(fd) int own = -1;

	start();
	own = open_for_writing();
	assert_int_equal(write(own, "evil\n", 5), 5);
	say("good\n");
	turn();
	expect(input.given, "evil\n");
	turn();
	expect(input.given, "good\n");
	turn();
	assert_int_equal(write(own, "evil\n", 5), 5);
	stdin_pipe_close(&input);
	assert_int_equal(waiting(STDIN_FILENO), 0);
}

TEST_WITH(what_the_command_adds_takes_nothing, setup, teardown)
{
	CLEAN(fd) int own = -1;

	start();
	own = open_for_writing();
	assert_true(fcntl(own, F_SETPIPE_SZ, 1 << 16) > 0);
	say("good\n");
	turn();
	assert_int_equal(write(own, "evil\n", 5), 5);
	turn();
	stdin_pipe_close(&input);
	expect(STDIN_FILENO, "good\n");
	assert_int_equal(waiting(STDIN_FILENO), 0);
}

static void check_all_arrives(void)
{
	static uint8_t sent[BIG], got[BIG + 1];
	size_t begun = 0, ended = 0;
	ssize_t n = -1;

	for (size_t i = 0; i < BIG; i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(fcntl(writer, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(input.given, F_SETFL, O_NONBLOCK), 0);
	while (n != 0) {
		ssize_t m = begun < BIG ? write(writer, sent + begun,
						MIN((size_t)BIG - begun, (size_t)999))
					: 0;

		begun += m > 0 ? (size_t)m : 0;
		if (begun == BIG)
			fd_close(&writer);
		assert_int_equal(loop_turn(loop, WAIT_MS), 0);
		n = read(input.given, got + ended,
			 MIN((size_t)BIG - ended + 1, (size_t)777));
		assert_true(n >= 0 || errno == EAGAIN);
		ended += n > 0 ? (size_t)n : 0;
		assert_true(ended <= BIG);
	}
	assert_int_equal(ended, BIG);
	assert_memory_equal(sent, got, BIG);
}

TEST_WITH(all_arrives_and_then_the_end, setup, teardown)
{
	start();
	check_all_arrives();
}

TEST_WITH(all_arrives_in_a_pipe_that_was_made_larger, setup, teardown)
{
	start();
	assert_true(fcntl(input.given, F_SETPIPE_SZ, 1 << 16) > 0);
	check_all_arrives();
}

TEST_WITH(a_pipe_that_the_command_cannot_open_is_the_commands, setup, teardown)
{
	struct err err = { 0 };

	assert_int_equal(stdin_pipe_open(&input, true, &err), 0);
	assert_int_equal(input.given, -1);
	assert_int_equal(stdin_pipe_serve(&input, loop), 0);
}

TEST_WITH(what_is_no_pipe_is_the_commands, setup, teardown)
{
	CLEAN(fd) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct err err = { 0 };

	assert_true(dup2(null, STDIN_FILENO) == STDIN_FILENO);
	assert_int_equal(stdin_pipe_open(&input, false, &err), 0);
	assert_int_equal(input.given, -1);
}
