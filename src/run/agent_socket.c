// SPDX-License-Identifier: Apache-2.0
#include "run/agent_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "run/environment.h"

#define VARIABLE "SSH_AUTH_SOCK"
#define OPTION	 "--pass-env " VARIABLE

/* By its whole name. */
static bool is_asked(const struct run_spec *spec)
{
	for (size_t i = 0; i < spec->pass_env.count; i++) {
		if (strcmp(spec->pass_env.items[i], VARIABLE) == 0)
			return !environment_is_set(spec, text_of(VARIABLE));
	}
	return false;
}

int agent_socket_open(const struct run_spec *spec, struct path *ret, struct err *err)
{
	const char *name = getenv(VARIABLE);
	CLEAN(path) struct path p = { .fd = -1 };
	int r;

	ret->fd = -1;
	if (!is_asked(spec) || !name)
		return 0;
	r = path_open_owned(name, &p, err);
	if (r == -ENOENT) {
		log_warning(OPTION ": there is no '%s'", name);
		return 0;
	}
	if (r == 0 && p.link_count > 0)
		r = err_set(err, -ELOOP,
			    "'%s' is a link, and none is followed; set " VARIABLE
			    " to '%s'",
			    p.links[0], p.name);
	else if (r == 0 && !S_ISSOCK(p.st.st_mode))
		r = err_set(err, -ENOTSOCK, "'%s' is not a unix socket", p.name);
	if (r < 0)
		return err_context(err, OPTION);
	*ret = p;
	p = (struct path){ .fd = -1 };
	return 0;
}

void agent_socket_tell(const struct path *p, bool is_mapped)
{
	if (p->fd >= 0 && is_mapped)
		log_warning(OPTION ": to the agent the command, as root of a sandbox, is "
				   "another user, whom OpenSSH's agent refuses; start "
				   "weir as an ordinary user");
}
