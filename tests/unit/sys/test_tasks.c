// SPDX-License-Identifier: Apache-2.0
#include "sys/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "thread_chain.h"
#include "unit.h"

enum { LOOKS = 3000, THREADS = 50 };

static int open_proc(void)
{
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int is_alive(void *data, const struct task *t)
{
	int fd = openat(t->dir, "status", O_RDONLY | O_CLOEXEC);
	char text[1024];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int error = errno;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -error;
	text[n] = '\0';
	return !strstr(text, "\nState:\tZ") && !strstr(text, "\nState:\tX");
}

/* Each thread that is listed may be gone by when it is looked at, and never is the last
 * one. */
TEST(who_lives_on_in_ever_new_threads_is_never_taken_for_dead)
{
	pid_t pid = thread_chain_start();
	int proc = open_proc(), missed = 0;

	for (int i = 0; i < LOOKS; i++) {
		int r = tasks_each(proc, pid, is_alive, NULL);

		assert_true(r == 1 || r == 0 || r == -EAGAIN);
		missed += r == 0;
	}
	thread_chain_end(pid);
	assert_int_equal(missed, 0);
	assert_int_equal(tasks_each(proc, pid, is_alive, NULL), -ESRCH);
	close(proc);
}

static int count(void *data, const struct task *t)
{
	++*(int *)data;
	return 0;
}

static void *sleep_long(void *unused)
{
	pause();
	return NULL;
}

TEST(each_thread_is_looked_at_once)
{
	int proc = open_proc(), seen = 0, pipe_fds[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 1; i < THREADS; i++)
			pthread_create(&thread, NULL, sleep_long, NULL);
		(void)!write(pipe_fds[1], "", 1);
		pause();
	}
	assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
	assert_int_equal(tasks_each(proc, pid, count, &seen), 0);
	assert_int_equal(seen, THREADS);
	thread_chain_end(pid);
	close(proc);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
