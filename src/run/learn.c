// SPDX-License-Identifier: Apache-2.0
#include "run/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "events/draft.h"
#include "policy/edit.h"
#include "policy/load.h"
#include "policy/policy.h"
#include "run/policies.h"
#include "run/report.h"
#include "sys/files.h"

/* ---- before ---- */

/* The policy that is there is the one that is asked for. */
static int use_policy(struct run_spec *spec, const char *option, const char *file,
		      struct err *err)
{
	if (spec->policy.file && strcmp(spec->policy.file, file) != 0)
		return err_set(err, -EINVAL,
			       "--%s %s is a policy that is there, and --policy names "
			       "another one",
			       option, file);
	spec->policy.file = file;
	return 0;
}

/* The file in the directory, opened for reading and writing. What can't be replaced is
 * refused: a link, what isn't a regular file, what has other names. */
static int open_file(const struct learn_args *l, struct stat *ret, struct err *err)
{
	CLEAN(fd)
	int fd = openat(l->dir, l->name,
			O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
			0666);

	if (fd < 0 && errno == ELOOP)
		return err_set(err, -ELOOP,
			       "it is a link; name the file, or none for standard "
			       "output");
	if (fd < 0 || fstat(fd, ret) < 0)
		return err_set(err, -errno, "%s", strerror(errno));
	if (!S_ISREG(ret->st_mode))
		return err_set(err, -EINVAL, "it is not a regular file");
	if (ret->st_nlink > 1)
		return err_set(err, -EINVAL,
			       "it has another name (a hard link), which would go on "
			       "leading to the old policy");
	return TAKE_FD(fd);
}

static int read_text(int fd, struct arena *arena, struct text *ret, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	int r = file_read_fd(fd, POLICY_TEXT_MAX, &file);

	if (r < 0)
		return err_set(err, r, "%s", strerror(-r));
	*ret = (struct text){ file.bytes, file.size };
	ret->ptr = arena_text(arena, *ret);
	return ret->ptr ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int check_output(struct run_spec *spec, struct err *err)
{
	struct learn_args *l = &spec->learn;
	CLEAN(fd) int fd = -1;
	struct statfs fs;
	struct stat st;

	l->dir = report_open_directory(l->output, &l->name, err);
	if (l->dir < 0)
		return l->dir;
	/* /dev/fd/3, and so what a shell makes of >(COMMAND). */
	if (fstatfs(l->dir, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
		return err_set(err, -EINVAL,
			       "it is a descriptor, and a file is read and replaced; "
			       "name the file, or none for standard output");
	/* Without this the policy would be lost when the command has ended. */
	if (faccessat(l->dir, ".", W_OK | X_OK, AT_EACCESS) < 0)
		return err_set(err, -errno,
			       "a file has to be made beside it, and its directory "
			       "can't be written to: %s",
			       strerror(errno));
	fd = open_file(l, &st, err);
	if (fd < 0)
		return fd;
	if (geteuid() != 0 && st.st_uid != geteuid())
		return err_set(err, -EPERM,
			       "it is another user's, and would become yours");
	return read_text(fd, &spec->arena, &l->before, err);
}

int learn_open(struct run_spec *spec, struct err *err)
{
	struct learn_args *l = &spec->learn;
	const struct policy_args args = { .file = l->ceiling_file };
	size_t size;
	int r = 0;

	l->dir = -1;
	if (l->diff && l->output)
		return err_set(err, -EINVAL,
			       "--diff writes no policy, and --output names one");
	if (l->diff)
		r = use_policy(spec, "diff", l->diff, err);
	if (r == 0 && args.file) {
		CLEAN(mem) uint8_t *plan = NULL;
		struct policy *policy = arena_array(&spec->arena, 1, sizeof(*policy));

		if (!policy)
			return err_set(err, -ENOMEM, "out of memory");
		*policy = (struct policy){ 0 };
		l->ceiling = policy;
		r = cli_policy_build(&args, &spec->arena, true, policy, &plan, &size);
	}
	if (r != 0 || !l->output || strcmp(l->output, "-") == 0)
		return r;
	r = check_output(spec, err);
	if (r < 0)
		return err_context(err, "cannot write the policy %s", l->output);
	spec->kept[spec->kept_count++] = l->output;
	return l->before.len > 0 ? use_policy(spec, "output", l->output, err) : 0;
}

/* ---- meanwhile ---- */

void learn_note(struct event_ring *used, const struct event *e)
{
	struct event use = *e;

	/* What opened it doesn't matter, nor which policy of the run. */
	use.rule = EVENT_NO_RULE;
	use.sandbox = 0;
	use.reason[0] = '\0';
	event_ring_add(used, &use);
}

/* ---- profiles that may stand for rules ---- */

enum { PROFILES_MAX = 64 };

struct profiles {
	struct arena arena;
	struct policy policies[PROFILES_MAX];
	uint8_t *bytes[PROFILES_MAX]; /* owned */
	struct plan plans[PROFILES_MAX];
	struct draft_profile list[PROFILES_MAX];
	size_t count;
};

/* As `extends` would find them: the user's own take the place of those that ship. Those
 * that the caller names are left out. */
static struct profiles *profiles_read(const struct run_spec *spec)
{
	const struct option_list *asked = &spec->policy.profiles;
	struct profiles *p = calloc(1, sizeof(*p));
	const struct policy_embedded *e;

	for (size_t i = 0; p && (e = policy_embedded_at(i)) && p->count < PROFILES_MAX;
	     i++) {
		const size_t at = p->count;
		struct policy_args args = { .verify = POLICY_VERIFY_TLS,
					    .profiles = { { e->name }, 1 } };
		struct faults faults = { 0 };
		struct err ignored = { 0 };
		size_t size;

		if (text_is_one_of(e->name, asked->items, asked->count))
			continue;
		if (cli_policy_load_text(&args, NULL, &p->arena, &faults,
					 &p->policies[at], &p->bytes[at], &size) == 0) {
			if (plan_open(p->bytes[at], size, &p->plans[at], &ignored) == 0)
				p->list[p->count++] =
					(struct draft_profile){ e->name, &p->policies[at],
								&p->plans[at] };
			else
				free(p->bytes[at]);
		}
		faults_done(&faults);
	}
	return p;
}

/* ---- the file, when the command has ended ---- */

/* What is there by now: a person may have changed it. */
struct current {
	int fd; /* owned, and locked; -1: standard output */
	struct stat stat;
	struct text text;
	struct run_policy *policy; /* of @text, where that is another one; owned */
};

static void clean_current(struct current *c)
{
	clean_fd(&c->fd);
	run_policy_free(c->policy);
}

enum { LOCK_TRIES = 100, LOCK_WAIT_MS = 100 };

/* The file that stands there while it is locked. Another `weir learn` may be about to
 * replace the file; whoever may read it may hold a lock for ever. So there are LOCK_TRIES
 * in all, however often the file is another one. */
static int lock_output(const struct learn_args *l, struct current *ret, struct err *err)
{
	for (int left = LOCK_TRIES; left > 0; left--) {
		CLEAN(fd) int fd = open_file(l, &ret->stat, err);
		struct stat there;

		if (fd < 0)
			return fd;
		while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return err_set(err, -errno, "%s", strerror(errno));
			if (--left < 0)
				return err_set(err, -EBUSY,
					       "another process has it locked");
			poll(NULL, 0, LOCK_WAIT_MS);
		}
		if (fstatat(l->dir, l->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		    stat_is_same(&there, &ret->stat)) {
			ret->fd = TAKE_FD(fd);
			return 0;
		}
	}
	return err_set(err, -EBUSY, "it is replaced again and again");
}

static bool is_blank(struct text t)
{
	return text_trim(t).len == 0;
}

static int read_current(const struct run_spec *spec, struct arena *arena,
			struct current *ret, struct err *err)
{
	const struct learn_args *l = &spec->learn;
	int r;

	if (l->dir < 0)
		return 0;
	r = lock_output(l, ret, err);
	if (r == 0)
		r = read_text(ret->fd, arena, &ret->text, err);
	if (r < 0 || is_blank(ret->text) ||
	    (ret->text.len == l->before.len &&
	     memcmp(ret->text.ptr, l->before.ptr, ret->text.len) == 0))
		return r;
	return run_policy_read(spec, l->output, ret->text, &ret->policy, err);
}

/* Beside the file first, by a name that no sandbox can have put anything at. */
static int replace_output(const struct learn_args *l, const struct current *now,
			  struct text text, struct err *err)
{
	char fresh[NAME_MAX + 1];
	uint64_t random;
	int r = -EIO;

	if (getrandom(&random, sizeof(random), 0) == (ssize_t)sizeof(random)) {
		snprintf(fresh, sizeof(fresh), ".weir-learn-%016" PRIx64, random);
		r = file_replace_like(l->dir, fresh, l->name, 0600, &now->stat, text.ptr,
				      text.len);
	}
	return r < 0 ? err_set(err, r, "%s", strerror(-r)) : 0;
}

static int print_output(struct text text, struct err *err)
{
	fwrite(text.ptr, 1, text.len, stdout);
	return fflush(stdout) == 0 ? 0 : err_sys(err, -errno, "cannot write the policy");
}

/* ---- after ---- */

/* A policy that rules are added to. */
struct merge {
	const char *file;
	struct text text;
	size_t added;
	struct arena arena;
};

/* All at once, or in halves to find those that can't be added. */
static void add_rules(struct merge *m, const char *const *rules, size_t count)
{
	struct policy_edited edited;
	struct err why = { 0 };
	int r = policy_edit(m->file, m->text, rules, count, true, &m->arena, &edited,
			    &why);

	if (r == 0) {
		m->text = edited.text;
		m->added += edited.count;
	} else if (r == -EINVAL && count > 1) {
		add_rules(m, rules, count / 2);
		add_rules(m, rules + count / 2, count - count / 2);
	} else {
		log_error("%s", why.text);
	}
}

/* Each rule at its place among those that are there; all else stays as it is. */
static int merge(const struct run_spec *spec, const struct draft *d,
		 const struct current *now, struct err *err)
{
	struct merge m = { .file = spec->learn.output, .text = now->text };
	const char **rules = arena_array(&m.arena, d->policy.count + 1, sizeof(*rules));
	size_t count = 0;
	int r = 0;

	for (size_t i = 0; rules && i < d->policy.count; i++) {
		char rule[POLICY_RULE_SIZE];

		if (rule_write(&d->policy.rules[i], true, rule, sizeof(rule)))
			rules[count++] = arena_text(&m.arena, text_of(rule));
		if (count > 0 && !rules[count - 1])
			rules = NULL;
	}
	if (!rules)
		r = err_set(err, -ENOMEM, "out of memory");
	else if (count > 0)
		add_rules(&m, rules, count);
	if (r == 0 && m.added > 0)
		r = replace_output(&spec->learn, now, m.text, err);
	if (r == 0 && !spec->quiet)
		log_warning("learned %zu rule%s more for %s", m.added,
			    m.added == 1 ? "" : "s", spec->learn.output);
	arena_done(&m.arena);
	return r;
}

/* The draft as a document, or as a difference to @asked. @r: what has become of reading
 * @now. What can't be written to the file is printed, so that it isn't lost. */
static int write_draft(const struct run_spec *spec, const struct draft *d,
		       const struct plan *asked, const struct current *now, int r,
		       struct err *err)
{
	struct err ignored = { 0 };
	CLEAN(mem) char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return err_set(err, -ENOMEM, "out of memory");
	if (spec->learn.diff)
		draft_write_difference(d, asked, spec->learn.diff, out);
	else
		draft_write(d, out);
	if (fclose(out) != 0)
		return err_set(err, -ENOMEM, "out of memory");
	if (spec->learn.dir < 0)
		return print_output((struct text){ text, size }, err);
	if (r == 0 && !is_blank(now->text)) {
		r = merge(spec, d, now, err);
	} else if (r == 0) {
		r = replace_output(&spec->learn, now, (struct text){ text, size }, err);
		if (r == 0 && !spec->quiet)
			log_warning("learned %zu rule%s and %zu profile%s, written to "
				    "%s, with %zu proposal%s in comments: read it before "
				    "you use it",
				    d->policy.count, d->policy.count == 1 ? "" : "s",
				    d->extend_count, d->extend_count == 1 ? "" : "s",
				    spec->learn.output, d->proposal_count,
				    d->proposal_count == 1 ? "" : "s");
	}
	if (r == 0)
		return 0;
	err_context(err, "cannot write the policy %s; it goes to standard output",
		    spec->learn.output);
	(void)!print_output((struct text){ text, size }, &ignored);
	return r;
}

int learn_end(const struct run_spec *spec, const struct event_ring *used,
	      const struct event_ring *refused, uint64_t unseen, const struct plan *asked,
	      struct err *err)
{
	CLEAN(current) struct current now = { .fd = -1 };
	CLEAN(arena) struct arena arena = { 0 };
	const int read = read_current(spec, &arena, &now, err);
	const bool is_whole = !spec->learn.diff && is_blank(now.text);
	struct profiles *profiles = is_whole ? profiles_read(spec) : NULL;
	const char *slash = strrchr(spec->argv[0], '/');
	const struct draft_args args = {
		.used = used,
		.refused = refused,
		.asked = now.policy ? &now.policy->asked : asked,
		.profiles = profiles ? profiles->list : NULL,
		.profile_count = profiles ? profiles->count : 0,
		.extends = spec->policy.profiles.items,
		.extend_count = spec->policy.profiles.count,
		.program = slash && slash[1] ? slash + 1 : spec->argv[0],
		.unseen = unseen + event_ring_dropped(used),
	};
	struct draft d;
	int r = draft_make(&d, &args);

	if (r < 0) {
		err_set(err, r, "out of memory");
	} else {
		r = write_draft(spec, &d, args.asked, &now, read, err);
		draft_done(&d);
	}
	/* The output is no whole picture, whatever --quiet says. */
	if (args.unseen > 0)
		log_warning("%" PRIu64 " connections and lookups were too many to be "
			    "seen: the policy may lack rules; learn again",
			    args.unseen);
	if (profiles) {
		for (size_t i = 0; i < profiles->count; i++)
			free(profiles->bytes[i]);
		arena_done(&profiles->arena);
		free(profiles);
	}
	return r;
}
