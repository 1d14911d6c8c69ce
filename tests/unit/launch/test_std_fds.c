// SPDX-License-Identifier: Apache-2.0
#include "launch/std_fds.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/macros.h"
#include "unit.h"

/* The file @fd, taken, as standard error. Return: what that was. */
static int put_in_place(int fd)
{
	const int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	assert_true(fd >= 0 && before >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	close(fd);
	return before;
}

static void put_back(int before)
{
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
}

TEST(flags_and_a_sockets_limit_of_time_are_as_they_were)
{
	const struct timeval soon = { .tv_usec = 1000 }, callers = { .tv_sec = 7 };
	socklen_t size = sizeof(struct timeval);
	struct std_state streams;
	struct timeval found;
	int ends[2], before;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	before = put_in_place(ends[0]);
	assert_int_equal(setsockopt(STDERR_FILENO, SOL_SOCKET, SO_SNDTIMEO, &callers,
				    sizeof(callers)),
			 0);
	std_state_read(&streams);
	assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(
		setsockopt(STDERR_FILENO, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon)),
		0);
	std_state_restore(&streams);
	assert_false(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK);
	assert_int_equal(
		getsockopt(STDERR_FILENO, SOL_SOCKET, SO_SNDTIMEO, &found, &size), 0);
	assert_int_equal(found.tv_sec, callers.tv_sec);
	put_back(before);
	close(ends[1]);
}

TEST(a_place_behind_the_end_of_a_file_is_its_end)
{
	static const struct {
		off_t left, expected;
	} cases[] = { { 4, 4 }, { 2, 2 }, { 1LL << 40, 4 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char name[] = "/tmp/weir-std-fds-XXXXXX";
		const int before = put_in_place(mkstemp(name));
		struct std_state streams;

		unlink(name);
		std_state_read(&streams);
		assert_int_equal(write(STDERR_FILENO, "said", 4), 4);
		assert_int_equal(lseek(STDERR_FILENO, cases[i].left, SEEK_SET),
				 cases[i].left);
		std_state_restore(&streams);
		assert_int_equal(lseek(STDERR_FILENO, 0, SEEK_CUR), cases[i].expected);
		put_back(before);
	}
}

/* Does standard error, a terminal's near side, take a byte now? */
static bool takes_a_byte(void)
{
	return write(STDERR_FILENO, "x", 1) == 1;
}

/* What a terminal answers to a question is input: a stop, where the command says so. */
TEST(a_terminal_that_was_stopped_goes_on_and_no_answer_stops_it)
{
	struct pollfd input = { .fd = STDERR_FILENO, .events = POLLIN };
	struct std_state streams;
	struct termios t;
	int master, slave, before;

	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	before = put_in_place(slave);
	assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK), 0);
	std_state_read(&streams);
	assert_int_equal(tcgetattr(STDERR_FILENO, &t), 0);
	t.c_iflag |= IXON;
	t.c_cc[VSTOP] = 'c';
	assert_int_equal(tcsetattr(STDERR_FILENO, TCSANOW, &t), 0);
	assert_int_equal(write(master, "c", 1), 1);
	while (takes_a_byte()) /* input takes its time */
		assert_true(poll(NULL, 0, 1) == 0);
	std_state_restore(&streams);
	assert_true(takes_a_byte());
	assert_int_equal(write(master, "c\n", 2), 2);
	assert_int_equal(poll(&input, 1, -1), 1);
	assert_true(takes_a_byte());
	put_back(before);
	close(master);
}
