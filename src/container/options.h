// SPDX-License-Identifier: Apache-2.0
/* container/options - the options of `weir container run`, read and checked. */
#pragma once

#include <stdint.h>

#include "policy/load.h"
#include "proto/control_supervisor.h"
#include "sys/options.h"

enum container_engine { CONTAINER_ENGINE_ANY = 0, CONTAINER_DOCKER, CONTAINER_PODMAN };

enum container_guard {
	CONTAINER_GUARD_AUTO = 0, /* the daemon where its socket can be used */
	CONTAINER_GUARD_SIDECAR,
	CONTAINER_GUARD_DAEMON,
};

struct container_spec {
	struct policy_args policy; /* verify: tls unless something says otherwise */
	const char *image, *weir_image;
	enum container_engine engine;
	enum container_guard guard;
	const char *socket; /* the daemon's, or NULL */
	const char *id;	    /* of the sandbox and the container; never NULL once read */
	const char *network, *user, *workdir, *entrypoint;
	struct option_list set_env, pass_env, volumes, caps;
	bool privileged, interactive, tty;
	uint32_t info_fd; /* 0: none */
	uint32_t pids_limit;
	char *const *argv; /* the command and its arguments, NULL-ended; may be empty */
	char made_id[IPC_SANDBOX_NAME_MAX + 1]; /* what id points to where none was given
						 */
};

/* @argv[0] is "run". Return: 0, or -errno with @err. */
int container_parse(int argc, char **argv, struct container_spec *ret,
		    struct err *err) MUST_CHECK;
/* What can't be, and what leads past the filter, is refused; every fault is told.
 * Return: 0, or -EINVAL with @err. */
int container_check(const struct container_spec *s, struct err *err) MUST_CHECK;
