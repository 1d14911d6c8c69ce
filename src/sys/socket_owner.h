// SPDX-License-Identifier: Apache-2.0
/* sys/socket_owner - which process has the socket that something came from.
 *
 * The kernel lists sockets with their addresses and inode (sock_diag); a process's
 * descriptors say which inodes it has. Both are looked at after the fact: a socket that
 * was closed meanwhile, or that several processes have, is nobody's. It serves people who
 * ask what happened, and decides nothing: a process can give itself any name.
 *
 * Files below /proc and /sys are read; nothing is changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/addr.h"

enum {
	OWNER_COMMAND_SIZE = 48,     /* longer ones are cut */
	OWNER_NETWORK_SIZE = 32,     /* "net:[4026531840]" */
	OWNER_PROCESSES_MAX = 16384, /* that are looked at; over it: -E2BIG */
	OWNER_SOCKETS_MAX = 16384,   /* UDP sockets of a namespace; over it: -E2BIG */
};

/* Whose processes may be meant. */
enum owner_among {
	OWNER_NOBODY = 0,
	OWNER_NETWORK, /* all in a network namespace */
	OWNER_CGROUP,
	OWNER_USER,
};

struct owner_question {
	uint8_t among;	  /* enum owner_among */
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	uint32_t user;	  /* OWNER_USER */
	/* As the socket knows them; @to may have no address, if UDP: of a lookup. */
	struct endpoint from, to;
	int64_t age_ms;	     /* so long ago it was: who is younger can't have been it */
	int64_t until_ms;    /* of clock_now_ms(): then it takes too long */
	const char *network; /* OWNER_NETWORK, as owner_network() says it */
	const char *cgroup;  /* OWNER_CGROUP, as cgroup_open() takes it */
};

struct owner {
	pid_t pid;
	uint32_t uid; /* the effective one; UINT32_MAX: not known */
	/* The name that it has given itself, and that of its program's file if that is
	 * another: "pip (python3.11)". In either '?' stands for what is no letter or
	 * digit, nor one of "._+-". */
	char command[OWNER_COMMAND_SIZE];
};

/* The network namespace of @process (NULL: of this one). false: it can't be seen. */
bool owner_network(const char *process, char ret[OWNER_NETWORK_SIZE]);
/* Ask by @diag (nl_diag_open()). Return: 0; -ENOENT: nobody is left that has it;
 * -ENOTUNIQ: several may have been it; -E2BIG, -ETIME: too many to be looked at; or
 * another -errno. */
int owner_find(int diag, const struct owner_question *q, struct owner *ret) MUST_CHECK;
