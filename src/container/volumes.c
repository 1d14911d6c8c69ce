// SPDX-License-Identifier: Apache-2.0
#include "container/volumes.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/jansson.h"
#include "settings/settings.h"
#include "sys/files.h"
#include "sys/mounts.h"
#include "sys/netlink.h"

/* -- paths --------------------------------------------------------------------------- */

struct resolved {
	char there[PATH_MAX]; /* what is there of it, without links */
	char rest[PATH_MAX];  /* what stands behind that; "": nothing */
};

/* @is_strict: only what isn't there may be left over. Return: 0 or -errno. */
static int resolve(const char *path, bool is_strict, struct resolved *ret)
{
	CLEAN(mem) char *left = strdup(path);
	struct stat st;
	char *slash;

	if (!left)
		return -ENOMEM;
	while (!realpath(left[0] ? left : "/", ret->there)) {
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
	if (snprintf(ret->rest, PATH_MAX, "%s", path + strlen(left)) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

/* -- the sockets --------------------------------------------------------------------- */

struct search {
	struct stat top;      /* what is there of what the volume shows, */
	const char *rest;     /* and what stands behind that */
	char found[PATH_MAX]; /* the socket in it; "": none */
};

/* Is one of the directories that lead to @socket, or itself, the one that is shown? */
static bool is_shown(const struct search *s, const struct resolved *socket)
{
	const size_t len = strlen(s->rest);
	char whole[2 * PATH_MAX], path[2 * PATH_MAX], *slash = path;
	struct stat here;

	snprintf(whole, sizeof(whole), "%s%s", socket->there[1] ? socket->there : "",
		 socket->rest);
	memcpy(path, whole, sizeof(path));
	while (slash) {
		const char *below = whole + strlen(path);

		if (stat(path[0] ? path : "/", &here) == 0 &&
		    stat_is_same(&here, &s->top) && strncmp(below, s->rest, len) == 0 &&
		    (below[len] == '/' || below[len] == '\0'))
			return true;
		slash = strrchr(path, '/');
		if (slash)
			*slash = '\0';
	}
	return false;
}

static void look_for(struct search *s, const char *socket)
{
	struct resolved real;

	if (socket && socket[0] && !s->found[0] && resolve(socket, false, &real) == 0 &&
	    is_shown(s, &real))
		snprintf(s->found, sizeof(s->found), "%s", socket);
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
		"k0s/containerd.sock",
		"snap.docker/containerd/containerd.sock",
		"containerd/s", /* those of the shims, which hold the containers */
		"crio/crio.sock",
		"cri-dockerd.sock",
		"buildkit/buildkitd.sock",
		/* Who start processes for whoever asks. */
		"dbus/system_bus_socket",
		"bus",
		"systemd/private",
		"libvirt/libvirt-sock",
		"libvirt/virtqemud-sock",
		"libvirt/virtlxcd-sock",
	};
	char path[PATH_MAX];

	for (size_t i = 0; run && run[0] && i < ARRAY_SIZE(sockets); i++)
		if (snprintf(path, sizeof(path), "%s/%s", run, sockets[i]) <
		    (int)sizeof(path))
			look_for(s, path);
}

/* A socket that a program of the host has bound, and that is of root's or of the
 * caller's: who connects has something done in their name. */
struct listener {
	struct listener *next;
	char path[]; /* without links */
};

struct world {
	const struct docker *engine;
	const char *daemon;
	struct mounts mounts;
	struct arena *arena;
	struct listener *listeners; /* in @arena */
};

static void look_everywhere(struct search *s, const struct world *w)
{
	static const char *const variables[] = { "DOCKER_HOST", "CONTAINER_HOST",
						 "CONTAINERD_ADDRESS", "WEIR_SOCKET" };
	static const char unix_socket[] = "unix://";
	const size_t skip = sizeof(unix_socket) - 1;
	glob_t users = { 0 };

	look_for(s, w->engine->socket);
	look_for(s, w->daemon);
	look_for(s, CLI_DAEMON_SOCKET);
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *value = getenv(variables[i]);

		look_for(s, value && strncmp(value, unix_socket, skip) == 0 ? value + skip
									    : value);
	}
	look_below(s, "/run");
	look_below(s, "/var/run");
	look_below(s, getenv("XDG_RUNTIME_DIR"));
	look_for(s, "/var/lib/incus/unix.socket");
	look_for(s, "/var/lib/lxd/unix.socket");
	look_for(s, "/var/snap/lxd/common/lxd/unix.socket");
	look_for(s, "/var/snap/microk8s/common/run/containerd.sock");
	if (glob("/run/user/*", GLOB_NOSORT, NULL, &users) == 0)
		for (size_t i = 0; i < users.gl_pathc; i++)
			look_below(s, users.gl_pathv[i]);
	globfree(&users);
	for (const struct listener *l = w->listeners; l; l = l->next)
		look_for(s, l->path);
}

/* -- the sockets that are there, whatever they are called ---------------------------- */

/* The file that a socket was bound to, where the name that it was bound by still leads
 * there. Return: false: it doesn't. */
static bool find_file(const struct nl_attrs *attrs, char ret[PATH_MAX],
		      struct stat *ret_st)
{
	const struct nlattr *named = attrs->at[UNIX_DIAG_NAME],
			    *file = attrs->at[UNIX_DIAG_VFS];
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1] = "";
	struct unix_diag_vfs vfs;

	/* A path that fills the whole address comes with a NUL behind it. */
	if (!named || !file || nl_size(named) > sizeof(name) ||
	    nl_size(file) < sizeof(vfs))
		return false;
	memcpy(name, nl_data(named), nl_size(named));
	name[sizeof(name) - 1] = '\0';
	memcpy(&vfs, nl_data(file), sizeof(vfs));
	return name[0] == '/' && realpath(name, ret) && lstat(ret, ret_st) == 0 &&
	       S_ISSOCK(ret_st->st_mode) && (uint32_t)ret_st->st_ino == vfs.udiag_vfs_ino;
}

/* The user who called sudo is the caller, too. */
static bool is_root_or_caller(uid_t uid)
{
	const char *sudo = getenv("SUDO_UID");
	uint32_t called;

	return uid == 0 || uid == getuid() ||
	       (sudo && text_to_u32(text_of(sudo), UINT32_MAX, &called) && uid == called);
}

static bool is_of_root_or_caller(const struct nl_attrs *attrs, const struct stat *st)
{
	const struct nlattr *a = attrs->at[UNIX_DIAG_UID];
	uid_t uid;

	/* The file's, where an older kernel doesn't say whose the socket is. */
	if (is_root_or_caller(st->st_uid))
		return true;
	if (!a || nl_size(a) != sizeof(uid))
		return false;
	memcpy(&uid, nl_data(a), sizeof(uid));
	return is_root_or_caller(uid);
}

static int on_socket(const struct nlmsghdr *h, void *data)
{
	const struct unix_diag_msg *m = nl_body(h, sizeof(*m));
	struct world *w = data;
	struct nl_attrs attrs;
	struct listener *l;
	char path[PATH_MAX];
	struct stat st;

	if (!m || !nl_attrs_of(h, sizeof(*m), &attrs))
		return -EBADMSG;
	/* A stream's end that is connected can't be reached by others. */
	if ((m->udiag_type != SOCK_DGRAM && m->udiag_state == TCP_ESTABLISHED) ||
	    !find_file(&attrs, path, &st) || !is_of_root_or_caller(&attrs, &st))
		return 0;
	l = arena_alloc(w->arena, sizeof(*l) + strlen(path) + 1);
	if (!l)
		return -ENOMEM;
	memcpy(l->path, path, strlen(path) + 1);
	l->next = w->listeners;
	w->listeners = l;
	return 0;
}

static int find_listeners(struct world *w, struct err *err)
{
	const struct unix_diag_req body = {
		.sdiag_family = AF_UNIX,
		.udiag_states = ~0U,
		.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_VFS | UDIAG_SHOW_UID,
	};
	CLEAN(fd) int fd = nl_diag_open();
	struct nl_request request;
	int r = fd;

	memcpy(nl_request_begin(&request, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, sizeof(body)),
	       &body, sizeof(body));
	if (r >= 0)
		r = nl_run(fd, &request, on_socket, w);
	return r < 0 ? err_sys(err, r, "cannot list unix sockets") : 0;
}

/* -- one volume ---------------------------------------------------------------------- */

static int refuse_volume(struct err *err, const char *volume, const char *why,
			 const char *what)
{
	return err_set(err, -EINVAL, "--volume '%s' is refused: %s%s", SHOWN(volume), why,
		       SHOWN(what));
}

/* What isn't there, or is covered by another mount, shows nothing. A socket by itself may
 * be one that the kernel doesn't list here: of a container's network namespace. Return: 0
 * or -errno. */
static int look_at(struct search *s, const char *top, const char *rest,
		   const struct world *w)
{
	if (stat(top, &s->top) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	s->rest = rest;
	look_everywhere(s, w);
	if (!s->found[0] && S_ISSOCK(s->top.st_mode))
		snprintf(s->found, sizeof(s->found), "%s", top);
	return 0;
}

/* An engine binds what is mounted below, too. Return: 0; 1: the kernel is shown; -errno.
 */
static int look_with_mounts(struct search *s, const struct resolved *dir,
			    const struct world *w)
{
	const struct mount *on = mounts_holding(&w->mounts, dir->there);
	int r = on && mount_is_of_kernel(on) ? 1 : look_at(s, dir->there, dir->rest, w);

	for (size_t i = 0; r == 0 && !dir->rest[0] && i < w->mounts.count; i++) {
		const struct mount *m = &w->mounts.list[i];

		if (!s->found[0] && path_is_within(m->path, dir->there))
			r = mount_is_of_kernel(m) ? 1 : look_at(s, m->path, "", w);
	}
	return r;
}

/* @ret: @path as it is found now, without links. */
static int check_path(const char *volume, const char *path, const struct world *w,
		      char ret[PATH_MAX], struct err *err)
{
	struct search s = { 0 };
	struct resolved dir;
	char cleaned[PATH_MAX];
	int r = path_clean(path, cleaned);

	if (r == -EINVAL)
		return refuse_volume(err, volume, "a path may not have '..' in it", "");
	if (r == 0)
		r = resolve(cleaned, true, &dir);
	if (r == 0)
		r = look_with_mounts(&s, &dir, w);
	if (s.found[0])
		return refuse_volume(
			err, volume,
			"the container could take the filter away with the socket ",
			s.found);
	if (r > 0)
		return refuse_volume(err, volume,
				     "it shows the host's kernel and processes", "");
	if (r == 0 && snprintf(ret, PATH_MAX, "%s%s", dir.there[1] ? dir.there : "",
			       dir.rest) >= PATH_MAX)
		r = -ENAMETOOLONG;
	return r < 0 ? refuse_volume(err, volume,
				     "where it leads can't be seen: ", strerror(-r))
		     : 0;
}

/* -- a volume of the engine's -------------------------------------------------------- */

static const char *option_of(const json_t *options, const char *key)
{
	const char *value = json_string_value(json_object_get(options, key));

	return value ? value : "";
}

static int check_options(const char *volume, const json_t *options, const struct world *w,
			 struct err *err)
{
	/* A file system that is made of other files, or that is on a disk of the host's,
	 * may have a socket of the host's in it. */
	static const char *const harmless[] = { "tmpfs", "nfs", "nfs4", "cifs" };
	const char *device = option_of(options, "device"),
		   *type = option_of(options, "type");
	struct text left = text_of(option_of(options, "o")), word;
	bool is_bind = strcmp(type, "bind") == 0;
	char ignored[PATH_MAX];

	/* As mount(8) has it: the type doesn't count then. */
	while (text_split(&left, ',', &word))
		is_bind |= text_equal(word, "bind") || text_equal(word, "rbind");
	/* Also what an engine that knows better than mount(8) takes for a bind. */
	if (is_bind || ((!type[0] || strcmp(type, "none") == 0) && device[0])) {
		if (device[0] == '/')
			return check_path(volume, device, w, ignored, err);
		return refuse_volume(
			err, volume,
			"it can't be judged, for its device is no absolute path: ",
			device);
	}
	if (!type[0] || text_is_one_of(type, harmless, ARRAY_SIZE(harmless)))
		return 0;
	return refuse_volume(err, volume, "it can't be judged, for it is of the type ",
			     type);
}

static int check_named(const char *volume, const char *name, const struct world *w,
		       struct err *err)
{
	char path[PATH_MAX + 16], ignored[PATH_MAX];
	CLEAN(json) json_t *found = NULL;
	const char *driver, *kept;
	int r;

	snprintf(path, sizeof(path), "/volumes/%s", name);
	r = docker_ask(w->engine, "GET", path, NULL, &found, err);
	if (r == -ENOENT) { /* The engine is going to make it. */
		*err = (struct err){ 0 };
		return 0;
	}
	if (r < 0)
		return r;
	/* Another driver than the engine's own says where it keeps a volume, and need not
	 * say what of. */
	driver = option_of(found, "Driver");
	kept = option_of(found, "Mountpoint");
	if (strcmp(driver, "local") != 0) {
		if (kept[0] != '/')
			return refuse_volume(
				err, volume,
				"it can't be judged, for it is of the driver ", driver);
		r = check_path(volume, kept, w, ignored, err);
	}
	return r == 0 ? check_options(volume, json_object_get(found, "Options"), w, err)
		      : r;
}

/* -- all of them --------------------------------------------------------------------- */

static int check(const char *volume, const struct world *w, struct arena *arena,
		 const char **ret, struct err *err)
{
	const size_t len = strcspn(volume, ":");
	char path[PATH_MAX], real[PATH_MAX];
	int r;

	snprintf(path, sizeof(path), "%.*s", (int)len, volume);
	if (path[0] != '/') {
		*ret = volume;
		return check_named(volume, path, w, err);
	}
	r = check_path(volume, path, w, real, err);
	if (r < 0)
		return r;
	if (strchr(real, ':'))
		return refuse_volume(err, volume, "an engine can't be given the path ",
				     real);
	*ret = arena_printf(arena, "%s%s", real[0] ? real : "/", volume + len);
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int volumes_check(const struct option_list *volumes, const struct docker *engine,
		  const char *daemon, struct arena *arena, struct option_list *ret,
		  struct err *err)
{
	struct world w = { .engine = engine, .daemon = daemon, .arena = arena };

	if (volumes->count > 0 &&
	    (mounts_read(true, &w.mounts, err) < 0 || find_listeners(&w, err) < 0)) {
		mounts_done(&w.mounts);
		return err->code;
	}
	ret->count = volumes->count;
	for (size_t i = 0; i < volumes->count; i++) {
		struct err one = { 0 };

		if (check(volumes->items[i], &w, arena, &ret->items[i], &one) < 0)
			(void)!err_also(err, &one);
	}
	mounts_done(&w.mounts);
	return err->code;
}

int volumes_check_again(const struct option_list *resolved, const struct docker *engine,
			const char *daemon, struct arena *arena, struct err *err)
{
	struct option_list now;

	if (volumes_check(resolved, engine, daemon, arena, &now, err) < 0)
		return err->code;
	for (size_t i = 0; i < now.count; i++)
		if (strcmp(now.items[i], resolved->items[i]) != 0)
			return refuse_volume(err, resolved->items[i],
					     "since the start it has become ",
					     now.items[i]);
	return 0;
}

bool volume_is_well_formed(const char *volume)
{
	const size_t from = strcspn(volume, ":");
	const char *to = volume + from + (volume[from] == ':');
	const char *mode = to + strcspn(to, ":");

	return from > 0 && from < PATH_MAX && to[0] == '/' &&
	       (volume[0] == '/' || (strspn(volume, TEXT_NAME_LETTERS) == from &&
				     !strchr("-_.", volume[0]))) &&
	       (!mode[0] || strcmp(mode, ":ro") == 0 || strcmp(mode, ":rw") == 0);
}
