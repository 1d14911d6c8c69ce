// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A socket keeps the cgroup in which it was made, and the kernel keeps what is left of
 * that cgroup as long as the socket. When the cgroup of a sandbox is gone, another
 * process, of another sandbox say, may have its sockets still. Whether the sandbox goes
 * on with a cgroup that was made again, or ends: the old id is a member no more, so it is
 * noted here first, and refused (filter/host.h).
 *
 * A cgroup that is there when its sandbox is detached is not noted: whoever detaches it
 * sets it free.
 *
 * The kernel doesn't tell which cgroups it still has a rest of, only how many there are
 * below another one (nr_dying_descendants). With none below its parent, an id can be
 * forgotten; where the parent is gone as well, with none at all.
 *
 * What is noted outlives the daemon twice: in the kernel's table, and in a file, which
 * has the parents as well, a line for each id. The file is written first. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/jansson.h"
#include "base/log.h"
#include "daemon/internal.h"
#include "filter/host.h"
#include "sys/cgroup.h"
#include "sys/files.h"

enum {
	ENDED_MAX = 65536, /* over it what is above the cgroup is guarded; where that
			    * can't be, the oldest go, */
	ENDED_GO = 1024,   /* so many at once, and a warning says so */
	ENDED_PARENTS_EACH = 64, /* are looked at in an audit */
	ENDED_FILE_MAX = 64 << 20,
	ENDED_FILE_MODE = 0600,
};

static const char ended_file[] = ".ended";

struct ended_parent {
	struct index_entry entry;
	char key[24]; /* @id */
	uint64_t id;  /* 0: not known */
	size_t users; /* ids that were below it */
	bool is_over; /* the kernel has no rest of them: they are to be forgotten */
	STAILQ_ENTRY(ended_parent) in_turn;
	char name[]; /* as cgroup_name() */
};
STAILQ_HEAD(ended_parents, ended_parent);

struct ended {
	struct filter_ended *filter; /* owned */
	/* By id, which is by age as well; data is the ended_parent. Owned. */
	struct filter_ended_cgroup *at;
	size_t count, capacity;
	struct index by_id;	      /* the parents */
	struct ended_parents in_turn; /* the same; the next to be looked at is first */
	bool is_late; /* the kernel doesn't have all: with the next audit */
};

/* -- the file ----------------------------------------------------------------------- */

/* A line. NULL: no memory. */
static char *ended_line(const struct filter_ended_cgroup *c)
{
	const struct ended_parent *p = c->data;
	CLEAN(json)
	json_t *j = json_pack("{s:I, s:i, s:I, s:s}", "id", (json_int_t)c->id, "level",
			      (int)c->level, "parent", (json_int_t)p->id, "above",
			      p->name);

	return j ? json_dumps(j, JSON_COMPACT) : NULL;
}

static int ended_write_line(const struct daemon *w, const struct filter_ended_cgroup *c)
{
	const struct file_how how = { .flags = O_WRONLY | O_APPEND | O_CREAT,
				      .mode = ENDED_FILE_MODE,
				      .anybodys = true };
	CLEAN(mem) char *line = ended_line(c);
	CLEAN(fd)
	int fd = line ? file_open(w->state_root, ended_file, &how, NULL) : -ENOMEM;
	size_t size;

	if (fd < 0)
		return fd;
	size = strlen(line);
	line[size] = '\n'; /* in the place of its NUL */
	return file_write_all(fd, line, size + 1);
}

/* All that is noted, in the place of what is in the file. */
static int ended_rewrite(const struct daemon *w)
{
	const struct ended *e = w->host.ended;
	CLEAN(mem) char *text = NULL;
	size_t size = 0;
	FILE *out;
	bool failed = false;

	if (e->count == 0)
		return unlinkat(w->state_root, ended_file, 0) < 0 && errno != ENOENT
			       ? -errno
			       : 0;
	out = open_memstream(&text, &size);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < e->count && !failed; i++) {
		CLEAN(mem) char *line = ended_line(&e->at[i]);

		failed = !line || fprintf(out, "%s\n", line) < 0;
	}
	failed |= fclose(out) != 0;
	return failed ? -ENOMEM
		      : file_replace(w->state_root, ".ended.new", ended_file,
				     ENDED_FILE_MODE, text, size);
}

static void ended_keep(int r)
{
	if (r < 0)
		log_warning("cannot keep which cgroups are gone: %s; a start of the "
			    "daemon has them from the kernel alone",
			    strerror(-r));
}

/* -- the list ----------------------------------------------------------------------- */

static int by_age(const void *a, const void *b)
{
	const struct filter_ended_cgroup *one = a, *other = b;

	return one->id < other->id ? -1 : one->id > other->id;
}

/* Among the first @count, which are in order. */
static bool has_ended(const struct ended *e, size_t count, uint64_t id)
{
	const struct filter_ended_cgroup key = { .id = id };

	return count > 0 && bsearch(&key, e->at, count, sizeof(key), by_age);
}

/* At the end of the list, as a cgroup that was below the cgroup with the id @parent and
 * @name. */
static int ended_append_to_list(struct ended *e, struct filter_ended_cgroup *c,
				uint64_t parent, const char *name, size_t length)
{
	struct index_entry *found;
	struct ended_parent *p;
	char key[sizeof(p->key)];

	if (!ARRAY_GROW(e->at, e->count, e->capacity))
		return -ENOMEM;
	snprintf(key, sizeof(key), "%llu", (unsigned long long)parent);
	found = index_find(&e->by_id, key);
	p = found ? CONTAINER_OF(found, struct ended_parent, entry)
		  : calloc(1, sizeof(*p) + length + 1);
	if (!p)
		return -ENOMEM;
	if (!found) {
		p->id = parent;
		memcpy(p->key, key, sizeof(key));
		memcpy(p->name, name, length);
		if (index_add(&e->by_id, &p->entry, p->key) < 0) {
			free(p);
			return -ENOMEM;
		}
		STAILQ_INSERT_TAIL(&e->in_turn, p, in_turn);
	}
	p->users++;
	p->is_over = false;
	c->data = p;
	e->at[e->count++] = *c;
	return 0;
}

static void ended_sort(struct ended *e)
{
	if (e->count > 0)
		qsort(e->at, e->count, sizeof(*e->at), by_age);
}

static void ended_load(struct daemon *w)
{
	struct ended *e = w->host.ended;
	struct err err = { 0 };

	e->is_late = filter_ended_load(e->filter, e->at, e->count, &err) < 0;
	if (e->is_late)
		log_error("sockets of cgroups that are gone may be free: %s", err.text);
}

/* So many of the oldest, and those of parents that are over, are refused no more. */
static void ended_forget(struct daemon *w, size_t oldest)
{
	struct ended *e = w->host.ended;
	CLEAN(mem) struct filter_ended_cgroup *gone = calloc(e->count, sizeof(*gone));
	size_t stay = 0, go = 0;

	if (!gone)
		return;
	for (size_t i = 0; i < e->count; i++) {
		const struct ended_parent *p = e->at[i].data;

		if (i < oldest || p->is_over)
			gone[go++] = e->at[i];
		else
			e->at[stay++] = e->at[i];
	}
	e->count = stay;
	ended_keep(ended_rewrite(w));
	if (stay == 0 || filter_ended_remove(e->filter, gone, go) != 0)
		ended_load(w);
	for (size_t i = 0; i < go; i++) {
		struct ended_parent *p = gone[i].data;

		if (--p->users > 0)
			continue;
		STAILQ_REMOVE(&e->in_turn, p, ended_parent, in_turn);
		index_remove(&e->by_id, &p->entry);
		free(p);
	}
}

static int ended_open(struct daemon *w, struct err *err)
{
	CLEAN(mem) struct ended *e = NULL;
	CLEAN(fd) int fd = -1;
	int r;

	if (w->host.ended)
		return 0;
	e = calloc(1, sizeof(*e));
	r = e ? sandbox_netlink_open(&fd, err) : err_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		return r;
	r = filter_ended_new(fd, &e->filter, err);
	if (r < 0)
		return r;
	fd = -1;
	STAILQ_INIT(&e->in_turn);
	w->host.ended = TAKE_PTR(e);
	return 0;
}

/* -- a sandbox's cgroup is gone ----------------------------------------------------- */

/* The list is full. Guard what is above the cgroup instead: a sandbox that goes on stays
 * below it, and below a guarded cgroup an id that nobody knows is refused. Return: false:
 * that can't be done. */
static bool guards_parent_instead(struct daemon_sandbox *d)
{
	struct err err = { 0 };

	if (d->member.level < 2 || lifecycle_is_ending(&d->life) ||
	    host_is_parent_gone(d))
		return false;
	if (!d->guards_parent)
		log_warning("sandbox '%s': more than %d cgroups are gone whose sockets "
			    "may be in use: what is above its cgroup is guarded",
			    d->spec.name, ENDED_MAX);
	d->guards_parent = true;
	/* One that is on its way to the engine is settled later. */
	if (d->life.state != LIFECYCLE_ACTIVE || cgroup_guard_start(d, &err) == 0)
		return true;
	log_error("sandbox '%s': %s", d->spec.name, err.text);
	return false;
}

void ended_note(struct daemon_sandbox *d, uint64_t cgroup)
{
	struct daemon *w = d->daemon;
	const char *where = d->spec.where;
	size_t above = (size_t)(strrchr(where, '/') - where);
	struct filter_ended_cgroup c = { .id = cgroup, .level = d->member.level };
	struct ended *e;
	struct err err = { 0 };
	int r = ended_open(w, &err);

	if (r == 0 && has_ended(w->host.ended, w->host.ended->count, cgroup))
		return;
	if (r == 0 && w->host.ended->count >= ENDED_MAX) {
		if (guards_parent_instead(d))
			return;
		log_warning("more than %d cgroups are gone whose sockets may be in use: "
			    "sockets of the oldest %d may be free",
			    ENDED_MAX, ENDED_GO);
		ended_forget(w, ENDED_GO);
	}
	if (r == 0)
		r = ended_append_to_list(w->host.ended, &c, d->above,
					 above > 0 ? where : "/", MAX(above, (size_t)1));
	if (r < 0) {
		log_error("sandbox '%s': sockets of its cgroup that is gone may be free: "
			  "%s",
			  d->spec.name, err.code < 0 ? err.text : strerror(-r));
		return;
	}
	/* The last of the list goes to its place. */
	e = w->host.ended;
	for (size_t i = e->count - 1; i > 0 && e->at[i - 1].id > e->at[i].id; i--) {
		const struct filter_ended_cgroup older = e->at[i];

		e->at[i] = e->at[i - 1];
		e->at[i - 1] = older;
	}
	ended_keep(ended_write_line(w, &c));
	if (filter_ended_add(w->host.ended->filter, &c) != 0)
		ended_load(w);
}

void ended_note_if_gone(struct daemon_sandbox *d)
{
	uint64_t id = d->member.cgroup;
	int r = d->dir && id != 0 ? host_cgroup_id(d, &id) : 0;

	if (r == -ENOENT || (r == 0 && id != d->member.cgroup))
		ended_note(d, d->member.cgroup);
}

/* -- a start ------------------------------------------------------------------------ */

static int ended_unpack(struct ended *e, const char *line, size_t size)
{
	CLEAN(json) json_t *j = json_loadb(line, size, 0, NULL);
	struct filter_ended_cgroup c = { 0 };
	json_int_t id, parent;
	const char *above;
	int level;

	if (!j ||
	    json_unpack(j, "{s:I, s:i, s:I, s:s}", "id", &id, "level", &level, "parent",
			&parent, "above", &above) != 0 ||
	    id <= 0 || level <= 0 || level > FILTER_HOST_LEVEL_MAX || above[0] != '/' ||
	    e->count >= ENDED_MAX)
		return -EBADMSG;
	c.id = (uint64_t)id;
	c.level = (uint8_t)level;
	return ended_append_to_list(e, &c, (uint64_t)parent, above, strlen(above));
}

/* A line that can't be read leaves the others. */
static int ended_read_file(struct daemon *w)
{
	const struct file_how how = { .flags = O_RDONLY,
				      .max_bytes = ENDED_FILE_MAX,
				      .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	int r = file_read(w->state_root, ended_file, &how, &file, NULL);
	struct text left = { file.bytes, r == 0 ? file.size : 0 }, line;

	while (text_split(&left, '\n', &line)) {
		int one = line.len > 0 ? ended_unpack(w->host.ended, line.ptr, line.len)
				       : 0;

		if (one < 0)
			r = one;
	}
	ended_sort(w->host.ended);
	return r == -ENOENT ? 0 : r;
}

/* What of the kernel's is not in the file. */
struct ended_left {
	struct ended *ended;
	size_t from_file;
};

static int on_ended_left(void *data, uint64_t cgroup, uint8_t level)
{
	struct filter_ended_cgroup c = { .id = cgroup, .level = level };
	const struct ended_left *k = data;

	return has_ended(k->ended, k->from_file, cgroup)
		       ? 0
		       : ended_append_to_list(k->ended, &c, 0, "/", 1);
}

void ended_start(struct daemon *w)
{
	struct err err = { 0 };
	struct ended_left left = { 0 };
	int r = ended_open(w, &err);

	if (r < 0) {
		log_error("sockets of cgroups that are gone may be free: %s", err.text);
		return;
	}
	left.ended = w->host.ended;
	r = ended_read_file(w);
	if (r < 0)
		log_error("cannot read which cgroups are gone: %s; those that the kernel "
			  "has stay refused",
			  strerror(-r));
	left.from_file = left.ended->count;
	r = filter_ended_read(left.ended->filter, on_ended_left, &left);
	if (r < 0)
		log_error("cannot read which cgroups the kernel refuses: %s",
			  strerror(-r));
	ended_sort(left.ended);
	ended_keep(ended_rewrite(w));
	ended_load(w);
}

/* -- later -------------------------------------------------------------------------- */

void ended_check(struct daemon *w)
{
	struct ended *e = w->host.ended;
	struct err ignored = { 0 };
	bool found = false;

	if (!e)
		return;
	if (e->is_late || !filter_ended_stands(e->filter))
		ended_load(w);
	if (e->count == 0 || host_hold_hierarchy(&w->host, &ignored) < 0)
		return;
	/* Look at the next parents, in turn. */
	for (size_t i = MIN(e->by_id.count, (size_t)ENDED_PARENTS_EACH); i > 0; i--) {
		struct ended_parent *p = STAILQ_FIRST(&e->in_turn);
		size_t dying = 1;
		int r = -ENOENT;

		STAILQ_REMOVE_HEAD(&e->in_turn, in_turn);
		STAILQ_INSERT_TAIL(&e->in_turn, p, in_turn);
		if (p->id != 0)
			r = cgroup_dying(w->host.hierarchy, p->name, p->id, &dying);
		if (r == -ENOENT)
			r = cgroup_dying(w->host.hierarchy, "/", 0, &dying);
		/* The kernel has no rest of any cgroup that was below it. */
		p->is_over = r == 0 && dying == 0;
		found |= p->is_over;
	}
	if (found)
		ended_forget(w, 0);
}
