// SPDX-License-Identifier: Apache-2.0
/* What outlives the daemon, a folder for each sandbox below RUN_DIR/sandboxes:
 *
 *     NAME/attach.json   id, and how it is recognised
 *     NAME/policy.json   the policy in force
 *     NAME/image         what was learned (sandbox/learned.h) and counted
 *     NAME/unfinished    while the folder is begun or removed: what it lacks was not lost
 *
 * RUN_DIR/sandboxes/.ended has the cgroups that are gone (ended.c).
 * Those of further engines are below RUN_DIR/sandboxes/.1 and so on.
 * Root alone can write there, and what is read back is checked all the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/jansson.h"
#include "base/log.h"
#include "daemon/internal.h"
#include "engine/sandbox.h"
#include "opensandbox/policy.h"
#include "sandbox/budgets.h"
#include "sandbox/plan_file.h"
#include "sys/files.h"

enum {
	FILE_MAX = 1 << 20,
	DIR_MODE = 0700,
	FILE_MODE = 0600,
	AGAIN_MS = 20,
	PATIENCE = 50, /* times that, at a start, before something counts as lacking */
};

static const char unfinished[] = "unfinished";

/* Another user who can write there would decide what is guarded, and could replace
 * the socket. */
static int check_owner(int dir, const char *path, const char *below, struct err *err)
{
	struct stat st;

	if (fstat(dir, &st) < 0)
		return err_sys(err, -errno, "cannot look at '%s%s'", path, below);
	if (st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return 0;
	return err_set(err, -EPERM, "'%s%s' has to be root's alone to write to", path,
		       below);
}

void state_folder_name(uint32_t engine, char ret[STATE_FOLDER_SIZE])
{
	if (engine == 0)
		snprintf(ret, STATE_FOLDER_SIZE, ".");
	else
		snprintf(ret, STATE_FOLDER_SIZE, ".%u", engine);
}

int state_folder_open(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

static int open_root(struct daemon *w, const char *run_dir, struct err *err)
{
	CLEAN(path) struct path run = { .fd = -1 };
	int r;

	if (mkdir(run_dir, 0755) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s'", run_dir);
	r = path_open_as(PATH_WAY, run_dir, &run, err);
	if (r == 0)
		r = check_owner(run.fd, run_dir, "", err);
	if (r < 0)
		return r;
	if (mkdirat(run.fd, "sandboxes", DIR_MODE) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s/sandboxes'", run_dir);
	w->state_root = state_folder_open(run.fd, "sandboxes");
	if (w->state_root < 0)
		return err_sys(err, w->state_root, "cannot open '%s/sandboxes'", run_dir);
	r = check_owner(w->state_root, run_dir, "/sandboxes", err);
	/* The first daemon's lock covers the further daemons. */
	if (r < 0 || w->engine != 0)
		return r;
	/* Two daemons would take each other's sandboxes for their own. */
	r = file_lock(w->state_root);
	if (r == -EWOULDBLOCK)
		return err_set(err, -EBUSY, "another daemon keeps its state in '%s'",
			       run_dir);
	return r < 0 ? err_sys(err, r, "cannot lock '%s'", run_dir) : 0;
}

int state_open(struct daemon *w, const char *run_dir, struct err *err)
{
	char own[STATE_FOLDER_SIZE];
	int r = open_root(w, run_dir, err);

	if (r < 0)
		return r;
	state_folder_name(w->engine, own);
	if (w->engine > 0 && mkdirat(w->state_root, own, DIR_MODE) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s/sandboxes/%s'", run_dir,
			       own);
	w->state_dir = state_folder_open(w->state_root, own);
	return w->state_dir < 0 ? err_sys(err, w->state_dir,
					  "cannot open '%s/sandboxes/%s'", run_dir, own)
				: 0;
}

static int open_file(int dir, const char *name, int flags)
{
	const struct file_how how = { .flags = flags,
				      .mode = FILE_MODE,
				      .anybodys = true };
	int fd = file_open(dir, name, &how, NULL);

	return fd == -EINVAL ? -EBADMSG : fd;
}

static int folder_open(const struct daemon_sandbox *d)
{
	int dir = d->daemon->state_dir;

	if (mkdirat(dir, d->spec.name, DIR_MODE) < 0 && errno != EEXIST)
		return -errno;
	return state_folder_open(dir, d->spec.name);
}

/* Return: the snapshot's file, or -errno. */
static int open_snapshot(const struct daemon_sandbox *d)
{
	CLEAN(fd) int dir = folder_open(d);
	CLEAN(fd) int fd = -1;
	struct stat st;
	int r;

	if (dir < 0)
		return dir;
	if (d->life.origin == LIFECYCLE_NEW)
		(void)!unlinkat(dir, "image", 0);
	fd = open_file(dir, "image", O_RDWR | O_CREAT);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 ||
	    (st.st_size != LEARNED_SNAPSHOT_SIZE && ftruncate(fd, 0) < 0))
		return -errno;
	/* What is lost is noted before the file has its size: a crash in between loses
	 * nothing. */
	r = st.st_size != LEARNED_SNAPSHOT_SIZE && d->life.origin != LIFECYCLE_NEW
		    ? budgets_lose(fd)
		    : 0;
	if (r < 0)
		return r;
	if (ftruncate(fd, LEARNED_SNAPSHOT_SIZE) < 0)
		return -errno;
	if (!engine_sandbox_snapshot_may_be_sparse() &&
	    posix_fallocate(fd, 0, LEARNED_SNAPSHOT_SIZE) != 0)
		return -ENOSPC;
	return TAKE_FD(fd);
}

/* Where it can't be had, a file of no size: the engine goes on without a snapshot. */
int state_snapshot(struct daemon_sandbox *d, struct err *err)
{
	int fd = open_snapshot(d);

	if (fd < 0) {
		log_warning("sandbox '%s': cannot keep what is learned: %s; a restart of "
			    "the engine forgets it",
			    d->spec.name, strerror(-fd));
		fd = memfd_create("weir-nothing", MFD_CLOEXEC);
	}
	if (fd < 0)
		return err_sys(err, -errno, "cannot make the sandbox's snapshot");
	d->snapshot_fd = fd;
	return 0;
}

/* Write beside the old file, then rename. */
static int replace(int dir, const char *name, const char *bytes, size_t size)
{
	return file_replace(dir, ".new", name, FILE_MODE, bytes, size);
}

static int save_text(int dir, int text_fd)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	int r = file_read_fd(text_fd, FILE_MAX, &text);

	return r < 0 ? r : replace(dir, "policy.json", text.bytes, text.size);
}

int state_text(const struct daemon_sandbox *d)
{
	CLEAN(fd) int dir = -1;

	if (d->text_fd >= 0) {
		const int fd = fcntl(d->text_fd, F_DUPFD_CLOEXEC, 0);

		return fd < 0 ? -errno : fd;
	}
	dir = folder_open(d);
	if (dir < 0)
		return dir;
	return open_file(dir, "policy.json", O_RDONLY);
}

int state_save_text(const struct daemon_sandbox *d, int text_fd, struct err *err)
{
	CLEAN(fd) int dir = folder_open(d);
	int r = dir < 0 ? dir : save_text(dir, text_fd);

	return r < 0 ? err_sys(err, r, "cannot keep the policy of '%s'", d->spec.name)
		     : 0;
}

static json_t *pack_spec(const struct daemon_sandbox *d)
{
	int id = (int)d->id;

	if (d->spec.kind == ATTACH_NETNS)
		return json_pack("{s:i, s:s, s:I, s:I, s:I, s:I}", "id", id, "netns",
				 d->spec.where, "dev", (json_int_t)d->ns_dev, "ino",
				 (json_int_t)d->ns_ino, "cookie",
				 (json_int_t)d->ns_cookie, "proc_ino",
				 (json_int_t)d->ns_proc_ino);
	if (d->member.kind == MEMBER_CGROUP)
		return json_pack(
			"{s:i, s:s, s:I, s:i, s:b, s:b, s:I}", "id", id, "cgroup",
			d->spec.where, "cgroup_id", (json_int_t)d->member.cgroup, "level",
			(int)d->member.level, "guard_parent", (int)d->spec.guard_parent,
			"guards", (int)d->guards_parent, "above", (json_int_t)d->above);
	return json_pack("{s:i, s:I}", "id", id, "uid", (json_int_t)d->member.uid);
}

int state_save(const struct daemon_sandbox *d, struct err *err)
{
	CLEAN(fd) int dir = folder_open(d);
	CLEAN(json) json_t *j = pack_spec(d);
	CLEAN(mem) char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	CLEAN(fd) int begun = -1;
	int r = dir < 0 ? dir : text ? 0 : -ENOMEM;

	/* A folder without attach.json is being made. */
	if (r == 0 && faccessat(dir, "attach.json", F_OK, 0) < 0) {
		begun = open_file(dir, unfinished, O_WRONLY | O_CREAT);
		r = MIN(begun, 0);
	}
	if (r == 0)
		r = d->text_fd < 0 ? 0 : save_text(dir, d->text_fd);
	/* Written last: a folder that has this file is attached again. */
	if (r == 0)
		r = replace(dir, "attach.json", text, strlen(text));
	if (r == 0)
		(void)!unlinkat(dir, unfinished, 0);
	return r < 0 ? err_sys(err, r, "cannot keep what sandbox '%s' is", d->spec.name)
		     : 0;
}

static void forget_at(int where, const char *name)
{
	static const char *const files[] = {
		"attach.json", "policy.json", "policy.json.broken",
		"image",       ".new",	      unfinished
	};
	CLEAN(fd)
	int dir = state_folder_open(where, name);

	/* A start that finds the rest of it goes on here. */
	if (dir >= 0)
		(void)!renameat(dir, "attach.json", dir, unfinished);
	for (size_t i = 0; dir >= 0 && i < ARRAY_SIZE(files); i++)
		(void)!unlinkat(dir, files[i], 0);
	(void)!unlinkat(where, name, AT_REMOVEDIR);
}

void state_forget(const struct daemon_sandbox *d)
{
	forget_at(d->daemon->state_dir, d->spec.name);
}

/* The folder may be one of an engine that could not attach the sandbox again. */
void state_claim(const struct daemon_sandbox *d, uint32_t engines)
{
	char path[STATE_FOLDER_SIZE + IPC_SANDBOX_NAME_MAX + 2],
		folder[STATE_FOLDER_SIZE];

	for (uint32_t i = 0; i < engines && i < IPC_ENGINES_MAX; i++) {
		state_folder_name(i, folder);
		snprintf(path, sizeof(path), "%s/%s", folder, d->spec.name);
		if (i != d->daemon->engine &&
		    faccessat(d->daemon->state_root, path, F_OK, 0) == 0)
			forget_at(d->daemon->state_root, path);
	}
}

/* ---- what there was before ---- */

static int read_at(int dir, const char *name, struct file_bytes *ret)
{
	CLEAN(fd) int fd = open_file(dir, name, O_RDONLY);

	return fd < 0 ? fd : file_read_fd(fd, FILE_MAX, ret);
}

static int unpack_netns(json_t *j, struct daemon_sandbox *ret)
{
	json_int_t dev, ino, cookie = 0, proc_ino = 0;
	const char *where;

	if (json_unpack(j, "{s:s, s:I, s:I, s?I, s?I}", "netns", &where, "dev", &dev,
			"ino", &ino, "cookie", &cookie, "proc_ino", &proc_ino) < 0 ||
	    strlen(where) > IPC_SANDBOX_WHERE_MAX)
		return -EBADMSG;
	ret->ns_dev = (dev_t)dev;
	ret->ns_ino = (ino_t)ino;
	ret->ns_cookie = (uint64_t)cookie;
	ret->ns_proc_ino = (ino_t)proc_ino;
	ret->spec.kind = ATTACH_NETNS;
	snprintf(ret->spec.where, sizeof(ret->spec.where), "%s", where);
	return 0;
}

static int unpack_cgroup(json_t *j, struct daemon_sandbox *ret)
{
	json_int_t id, level, above = 0;
	const char *where;
	int guard_parent, guards;

	if (json_unpack(j, "{s:s, s:I, s:I, s:b, s:b, s?I}", "cgroup", &where,
			"cgroup_id", &id, "level", &level, "guard_parent", &guard_parent,
			"guards", &guards, "above", &above) < 0 ||
	    where[0] != '/' || strlen(where) > IPC_SANDBOX_WHERE_MAX || level < 1 ||
	    level > FILTER_HOST_LEVEL_MAX)
		return -EBADMSG;
	ret->spec.kind = ATTACH_HOST;
	ret->spec.member = MEMBER_CGROUP;
	ret->spec.guard_parent = guard_parent;
	ret->guards_parent = guards;
	ret->above = (uint64_t)above;
	ret->member = (struct member){
		.kind = MEMBER_CGROUP,
		.cgroup = (uint64_t)id,
		.level = (uint8_t)level,
	};
	snprintf(ret->spec.where, sizeof(ret->spec.where), "%s", where);
	return 0;
}

static int unpack_uid(json_t *j, struct daemon_sandbox *ret)
{
	json_int_t uid;

	if (json_unpack(j, "{s:I}", "uid", &uid) < 0 || uid < 1 || uid >= UINT32_MAX)
		return -EBADMSG;
	ret->spec.kind = ATTACH_HOST;
	ret->spec.member = MEMBER_UID;
	snprintf(ret->spec.where, sizeof(ret->spec.where), "%u", (uint32_t)uid);
	return 0;
}

int state_read(int dir, const char *name, struct daemon_sandbox *ret)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	json_int_t id;
	CLEAN(json) json_t *j = NULL;
	int r = read_at(dir, "attach.json", &text);

	if (r < 0)
		return r;
	j = json_loadb(text.bytes, text.size, 0, NULL);
	if (!j || strlen(name) > IPC_SANDBOX_NAME_MAX ||
	    json_unpack(j, "{s:I}", "id", &id) < 0 || id < 1 || id > SANDBOXES_MAX) {
		r = -EBADMSG;
	} else {
		ret->id = (uint32_t)id;
		r = json_object_get(j, "cgroup") ? unpack_cgroup(j, ret)
		    : json_object_get(j, "uid")	 ? unpack_uid(j, ret)
						 : unpack_netns(j, ret);
	}
	ret->life.origin = LIFECYCLE_RESTORED;
	snprintf(ret->spec.name, sizeof(ret->spec.name), "%.*s", IPC_SANDBOX_NAME_MAX,
		 name);
	return r;
}

/* ---- attached again ---- */

static int compile(const char *text, size_t size, int *ret_plan, struct err *err)
{
	const struct sidecar_policy_context c = {
		.filters = true, .names = true, .daemon = true, .file = POLICY_IN_FORCE
	};
	CLEAN(mem) uint8_t *plan = NULL;
	CLEAN(document) struct document *d = NULL;
	size_t plan_size;
	int r = document_parse((struct text){ text, size }, NULL, NULL, &d, err);

	if (r == 0)
		r = sidecar_policy_build(&c, d, NULL, NULL, &plan, &plan_size, err);
	if (r == 0)
		r = plan_file_make(plan, plan_size, err);
	if (r < 0)
		return r;
	*ret_plan = r;
	return 0;
}

/* Something is wrong with the file itself. Whatever else keeps it from being read may be
 * over the next time. */
static bool is_damage(int r)
{
	return r == -EBADMSG || r == -EINVAL || r == -E2BIG || r == -ELOOP ||
	       r == -ENOENT;
}

static int read_or_close(int dir, const char *name, int *ret_plan, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	CLEAN(document) struct document *closed = NULL;
	CLEAN(mem) char *json = NULL;
	struct err why = { 0 };
	int r = read_at(dir, "policy.json", &text);

	/* An empty file is damage: a policy that allows nothing says so. */
	if (r == 0 && text.size == 0)
		r = -EBADMSG;
	r = r < 0 ? err_sys(&why, r, "cannot read its policy")
		  : compile(text.bytes, text.size, ret_plan, &why);
	if (r == 0)
		return 0;
	if (!is_damage(r))
		return err_set(err, r, "%s", why.text);
	log_error("sandbox '%s': %s; nothing is let out until a policy is set", name,
		  why.text);
	/* Replace a policy that can't be read by one that denies everything, which is
	 * never wider. The old file stays beside it, for people. */
	closed = document_close("its policy can't be read");
	json = closed ? document_json(closed, false) : NULL;
	r = json ? 0 : -ENOMEM;
	if (r == 0)
		(void)renameat(dir, "policy.json", dir, "policy.json.broken");
	if (r == 0)
		r = replace(dir, "policy.json", json, strlen(json));
	return r < 0 ? err_sys(err, r, "cannot close it")
		     : compile(json, strlen(json), ret_plan, err);
}

static int restore(struct daemon *w, const char *name, struct err *err)
{
	CLEAN(fd) int dir = state_folder_open(w->state_dir, name);
	struct daemon_sandbox given = { 0 };
	int plan_fd = -1;
	int r = dir < 0 ? dir : state_read(dir, name, &given);

	/* What has a policy has rules: whose they are is lost, and nothing is forgotten.
	 */
	if (dir >= 0 && r == -ENOENT && faccessat(dir, "policy.json", F_OK, 0) == 0 &&
	    faccessat(dir, unfinished, F_OK, 0) < 0)
		r = -EBADMSG;
	if (r < 0)
		return err_sys(err, r, "cannot read what it is");
	r = read_or_close(dir, name, &plan_fd, err);
	return r < 0 ? r : daemon_sandbox_attach(w, &given, plan_fd, -1, err);
}

void state_note_lacking(struct daemon *w, const char *name, const char *why)
{
	w->lacks = w->lacks_now = true;
	if (name)
		snprintf(w->lacking, sizeof(w->lacking),
			 "sandbox '%s' can't be guarded again, its rules stay: %.300s",
			 name, why);
	else
		snprintf(w->lacking, sizeof(w->lacking),
			 "which sandboxes were guarded before can't be read, their rules "
			 "stay: %.300s",
			 why);
}

static void restore_one(struct daemon *w, const char *name)
{
	struct err err = { 0 };

	if (name[0] == '.' || daemon_sandbox_find_name(w, name) ||
	    restore(w, name, &err) == 0)
		return;
	/* Forget a sandbox whose namespace is gone. */
	if (err.code == -ENOENT || err.code == -ESTALE) {
		log_warning("sandbox '%s' is gone: %s", name, err.text);
		forget_at(w->state_dir, name);
		return;
	}
	if (!w->restored && w->patience == 0)
		log_warning("cannot guard '%s' again: %s; its rules stay as they are",
			    name, err.text);
	state_note_lacking(w, name, err.text);
}

/* The next entry of state_dir. Return: NULL at the end, where errno is 0, and where the
 * directory can't be read. */
static const struct dirent *next_entry(struct daemon *w)
{
	if (!w->restoring) {
		w->lacks_now = false;
		w->restoring = directory_open(state_folder_open(w->state_dir, "."));
	}
	return w->restoring ? directory_next(w->restoring) : NULL;
}

/* One sandbox is opened in each turn of the loop, so that the engine and control are
 * heard in between. */
static void on_restore(struct loop_deferred *l)
{
	struct daemon *w = CONTAINER_OF(l, struct daemon, restore_turn);
	const struct dirent *e = next_entry(w);
	const int error = errno;

	if (e) {
		restore_one(w, e->d_name);
		loop_defer(w->supervisor.loop, l);
		return;
	}
	if (w->restoring)
		closedir(w->restoring);
	w->restoring = NULL;
	if (error != 0)
		state_note_lacking(w, NULL, strerror(error));
	if (error != 0 && !w->restored && w->patience == 0)
		log_warning("%s", w->lacking);
	w->lacks = w->lacks_now;
	if (w->lacks && !w->restored && w->patience > 0) {
		w->patience--;
		if (loop_timer_in(w->supervisor.loop, &w->restore_again, AGAIN_MS) == 0)
			return;
	}
	w->restored = true;
	daemon_report_lacking(w);
	attach_queue_next(w);
}

/* An engine that was killed may still hold its sockets, for a moment. */
static void on_restore_again(struct loop_timer *t)
{
	state_restore(CONTAINER_OF(t, struct daemon, restore_again));
}

void state_restore_first(struct daemon *w)
{
	w->patience = PATIENCE;
	w->restore_again.on_fire = on_restore_again;
	state_restore(w);
}

void state_restore(struct daemon *w)
{
	w->restore_turn.run = on_restore;
	loop_defer(w->supervisor.loop, &w->restore_turn);
}
