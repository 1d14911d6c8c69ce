// SPDX-License-Identifier: Apache-2.0
/* run/needs - what a command gets besides the policy's hosts, so that its program works:
 * variables of the caller's environment, the ssh-agent's socket, the presets of
 * --rw-preset, what profiles say under `run`, and the home of --home.
 *
 * VARIABLES
 * Weir's own (WEIR_...) are options of this run and no business of the command's. Under
 * `default` so is what looks like a secret (launch/secret.h).
 *
 * THE AGENT'S SOCKET
 * The command reaches it when the caller names SSH_AUTH_SOCK by --pass-env. Whoever
 * reaches the agent signs with each key in it. So neither a pattern (`SSH_*`) nor `--env
 * all` is enough, nor a variable that an option sets. The socket is looked up once,
 * judged and held; it is mounted at its place by that descriptor, over the mask that
 * other sockets have (launch/bind_mount). What lies beside the socket stays out of
 * reach.
 *
 * WHAT PROFILES NEED
 * A cache or a configuration that the user's programs outside share with a sandbox is a
 * way out of it: they run what the sandbox has left there. So a profile makes nothing of
 * the user's writable. For each variable that it names (`own`) there is a directory of
 * the sandboxes' own, ~/.local/state/weir/PROFILE/VARIABLE, which no program outside
 * knows of. It is kept for the next sandbox with that profile, and the variable leads to
 * it. */
#pragma once

#include "run/options.h"
#include "sys/files.h"

enum {
	ENVIRONMENT_REPORTED_MAX = 12, /* names in the message; the others are counted */
	ENVIRONMENT_SPARE = 4,	       /* variables that environment_enter() adds */
};

struct environment {
	/* "NAME=value", NULL-ended, with spare places; the strings are borrowed or the
	 * arena's. */
	char **list;
	size_t count; /* without the NULL */
	/* Kept back because they look like secrets. */
	const char **held; /* "NAME=value"; the arena's */
	size_t held_count;
};

/* What @spec says of Weir's own environment. Say what was kept back, unless spec->quiet;
 * and in any case which variables that are named by --pass-env there are none of.
 * Return: 0, or -ENOMEM with @err. */
int environment_choose(struct run_spec *spec, struct environment *ret,
		       struct err *err) MUST_CHECK;
/* Add what a command needs that starts in the directory @cwd of the sandbox @id: $PWD is
 * that, whatever the caller's says. Return: 0, or -ENOMEM with @err. */
int environment_enter(struct run_spec *spec, struct environment *e, const char *cwd,
		      const char *id, struct err *err) MUST_CHECK;

/* A setter of --set-env. Return: 0, or -EINVAL with @err. */
int environment_add_set(void *option_list, const char *value, struct err *err) MUST_CHECK;
/* A setter of --pass-env. Return: 0, or -EINVAL with @err. */
int environment_add_pass(void *option_list, const char *value,
			 struct err *err) MUST_CHECK;

/* Look up what SSH_AUTH_SOCK names. @ret has the descriptor -1 where the caller did not
 * ask, or nothing lies there, of which a warning says so.
 * Return: 0, or -errno: a link, no socket, or somebody else's. */
int agent_socket_open(const struct run_spec *spec, struct path *ret,
		      struct err *err) MUST_CHECK;
/* Warn of what an agent can't know: @is_mapped, root is another user outside. */
void agent_socket_report(const struct path *p, bool is_mapped);

struct policy;

/* Not in a sandbox of weir run's, whose filter of system calls gives no user namespace.
 * Return: 0, or -EPERM with @err. */
int needs_check_place(struct err *err) MUST_CHECK;

/* When the policy has been read: add to the `rw`, `set_env`, `drop_env` and
 * `profile_env` of @spec. Return: 0 or -errno with @err. */
int needs_apply(struct run_spec *spec, const struct policy *policy,
		struct err *err) MUST_CHECK;

/* After needs_apply(), which may have made some of them: every path that an option names
 * and that can't be found. For the message alone: the launch opens the paths again, and
 * may be refused. Return: 0 or -errno with the last one in @err, the others logged. */
int needs_check_paths(const struct run_spec *spec, struct err *err) MUST_CHECK;

/* What is known of some programs: a line on standard error, if there is one to say. */
void needs_report(struct run_spec *spec);

#define RW_PRESET_WORDS "pip|npm|cargo|go|apt|git"

/* A setter of --rw-preset: keep @name. Return: 0, or -EINVAL with @err. */
int rw_preset_add(void *option_list, const char *name, struct err *err) MUST_CHECK;
