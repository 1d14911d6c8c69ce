// SPDX-License-Identifier: Apache-2.0
/* A process that lives on in ever new threads: each makes the next one and ends, within
 * microseconds. Its main thread has ended. */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *thread_chain_next(void *unused)
{
	pthread_attr_t attributes;
	pthread_t next;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	while (pthread_create(&next, &attributes, thread_chain_next, NULL) != 0)
		(void)!poll(NULL, 0, 1);
	pthread_attr_destroy(&attributes);
	return NULL;
}

/* Return: its process, to be ended by thread_chain_end(). */
static pid_t thread_chain_start(void)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	thread_chain_next(NULL);
	syscall(SYS_exit, 0);
	return -1;
}

static void thread_chain_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
