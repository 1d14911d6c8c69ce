// SPDX-License-Identifier: Apache-2.0
#include "container/volumes.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "settings/settings.h"

/* -- paths, resolved; "" is the root ------------------------------------------------- */

/* Without "//" and "/./". Docker takes "dir/.." away before it follows links, podman
 * doesn't. Return: 0; -EINVAL: ".."; -ENAMETOOLONG. */
static int clean(const char *path, char ret[PATH_MAX])
{
	size_t len = 0;

	while (*path) {
		const size_t n = strcspn(path, "/");

		if (n == 2 && strncmp(path, "..", 2) == 0)
			return -EINVAL;
		if (len + n + 2 > PATH_MAX)
			return -ENAMETOOLONG;
		if (n > 1 || (n == 1 && *path != '.'))
			len += (size_t)snprintf(ret + len, PATH_MAX - len, "/%.*s",
						(int)n, path);
		path += n;
		path += *path == '/';
	}
	ret[len] = '\0';
	return 0;
}

/* Links are followed in what is there of @path; the rest stands behind that. @is_strict:
 * only what isn't there may stay as it is. Return: 0 or -errno. */
static int resolve(const char *path, bool is_strict, char ret[PATH_MAX])
{
	CLEAN(mem) char *left = strdup(path), *real = NULL;
	struct stat st;
	char *slash;

	if (!left)
		return -ENOMEM;
	while (!(real = realpath(left[0] ? left : "/", NULL))) {
		if (is_strict && errno != ENOENT)
			return -errno;
		/* A link that leads nowhere may lead somewhere later. */
		if (is_strict && lstat(left, &st) == 0)
			return -ENOENT;
		slash = strrchr(left, '/');
		if (!slash)
			return -ENOENT;
		*slash = '\0';
	}
	if (snprintf(ret, PATH_MAX, "%s%s", strcmp(real, "/") == 0 ? "" : real,
		     path + strlen(left)) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

/* -- the sockets --------------------------------------------------------------------- */

struct search {
	const char *dir;      /* what the volume shows, resolved */
	char found[PATH_MAX]; /* the socket in it; "": none */
};

static void look_for(struct search *s, const char *socket)
{
	const size_t len = strlen(s->dir);
	char real[PATH_MAX];

	if (socket && socket[0] && !s->found[0] && resolve(socket, false, real) == 0 &&
	    strncmp(real, s->dir, len) == 0 && (real[len] == '/' || real[len] == '\0'))
		snprintf(s->found, sizeof(s->found), "%s", socket);
}

static void look_for_variable(struct search *s, const char *variable)
{
	static const char unix_socket[] = "unix://";
	const size_t skip = sizeof(unix_socket) - 1;
	const char *value = getenv(variable);

	if (value && strncmp(value, unix_socket, skip) == 0)
		value += skip;
	look_for(s, value);
}

/* Where engines have their sockets below /run, or below a user's directory there. */
static void look_below(struct search *s, const char *run)
{
	static const char *const sockets[] = {
		"docker.sock",
		"podman/podman.sock",
		"containerd/containerd.sock",
		"docker/containerd/containerd.sock",
		"k3s/containerd/containerd.sock",
		"crio/crio.sock",
		"cri-dockerd.sock",
		"buildkit/buildkitd.sock",
	};
	char path[PATH_MAX];

	for (size_t i = 0; run && run[0] && i < ARRAY_SIZE(sockets); i++)
		if (snprintf(path, sizeof(path), "%s/%s", run, sockets[i]) <
		    (int)sizeof(path))
			look_for(s, path);
}

static void look_everywhere(struct search *s, const struct docker *engine,
			    const char *daemon)
{
	static const char *const variables[] = { "DOCKER_HOST", "CONTAINER_HOST",
						 "CONTAINERD_ADDRESS", "WEIR_SOCKET" };
	glob_t users = { 0 };

	look_for(s, engine->socket);
	look_for(s, daemon);
	look_for(s, CLI_DAEMON_SOCKET);
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		look_for_variable(s, variables[i]);
	look_below(s, "/run");
	look_below(s, "/var/run");
	look_below(s, getenv("XDG_RUNTIME_DIR"));
	if (glob("/run/user/*", GLOB_NOSORT, NULL, &users) == 0)
		for (size_t i = 0; i < users.gl_pathc; i++)
			look_below(s, users.gl_pathv[i]);
	globfree(&users);
}

/* -- one volume ---------------------------------------------------------------------- */

static int refuse(struct err *err, const char *volume, const char *why, const char *what)
{
	char shown[TEXT_ESCAPED_SIZE], more[TEXT_ESCAPED_SIZE];

	return err_set(err, -EINVAL, "--volume '%s' is refused: %s%s",
		       text_escape(text_of(volume), shown, sizeof(shown)), why,
		       text_escape(text_of(what), more, sizeof(more)));
}

/* A name without '/' is a volume of the engine's. */
static int check(const char *volume, const struct docker *engine, const char *daemon,
		 struct err *err)
{
	CLEAN(mem) char *from = strndup(volume, strcspn(volume, ":"));
	char cleaned[PATH_MAX], dir[PATH_MAX];
	struct search s = { .dir = dir };
	int r;

	if (!from)
		return err_set(err, -ENOMEM, "out of memory");
	if (from[0] == '.' || (from[0] != '/' && strchr(from, '/')))
		return refuse(err, volume, "a path has to begin with '/'", "");
	if (from[0] != '/')
		return 0;
	r = clean(from, cleaned);
	if (r == -EINVAL)
		return refuse(err, volume, "a path may not have '..' in it", "");
	if (r == 0)
		r = resolve(cleaned, true, dir);
	if (r < 0)
		return refuse(err, volume,
			      "where it leads can't be told: ", strerror(-r));
	look_everywhere(&s, engine, daemon);
	return !s.found[0] ? 0
			   : refuse(err, volume,
				    "the container could take the filter away with the "
				    "socket ",
				    s.found);
}

int volumes_check(const struct option_list *volumes, const struct docker *engine,
		  const char *daemon, struct err *err)
{
	for (size_t i = 0; i < volumes->count; i++) {
		struct err one = { 0 };

		if (check(volumes->items[i], engine, daemon, &one) < 0)
			(void)!err_also(err, &one);
	}
	return err->code;
}
