// SPDX-License-Identifier: Apache-2.0
#include "run/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "events/draft.h"
#include "policy/edit.h"
#include "policy/embedded.h"
#include "policy/load.h"
#include "run/report_file.h"

/* ---- before ---- */

static int read_ceiling(struct run_spec *spec, struct err *err)
{
	const struct policy_args args = { .file = spec->learn.ceiling_file };
	struct policy *policy = arena_array(&spec->arena, 1, sizeof(*policy));
	CLEAN(mem) uint8_t *plan = NULL;
	size_t size;

	if (!args.file)
		return 0;
	if (!policy)
		return err_set(err, -ENOMEM, "out of memory");
	*policy = (struct policy){ 0 };
	spec->learn.ceiling = policy;
	return cli_policy_build(&args, &spec->arena, true, policy, &plan, &size);
}

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

static int open_output(struct run_spec *spec, struct err *err)
{
	struct learn_args *l = &spec->learn;
	char path[32];
	struct stat st;
	int r;

	l->fd = report_open_file(l->output, 0, err);
	if (l->fd < 0)
		return err_context(err, "cannot write the policy %s", l->output);
	if (fstat(l->fd, &st) < 0)
		return err_sys(err, -errno, "cannot write the policy %s", l->output);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "--output: %s is not a regular file",
			       l->output);
	spec->kept[spec->kept_count++] = l->output;
	if (st.st_size == 0)
		return 0;
	/* That very file, whatever is at its path by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", l->fd);
	r = cli_read_file(path, &spec->arena, &l->before, err);
	if (r < 0)
		return err_context(err, "cannot add to the policy %s", l->output);
	return use_policy(spec, "output", l->output, err);
}

int learn_open(struct run_spec *spec, struct err *err)
{
	struct learn_args *l = &spec->learn;
	int r = 0;

	l->fd = -1;
	if (l->diff && l->output)
		return err_set(err, -EINVAL,
			       "--diff writes no policy, and --output names one");
	if (l->diff)
		r = use_policy(spec, "diff", l->diff, err);
	if (r == 0)
		r = read_ceiling(spec, err);
	if (r == 0 && l->output && strcmp(l->output, "-") != 0)
		r = open_output(spec, err);
	return r;
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

/* ---- after ---- */

enum { PROFILES_MAX = 64 };

struct profiles {
	struct arena arena;
	struct policy policies[PROFILES_MAX];
	uint8_t *bytes[PROFILES_MAX]; /* owned */
	struct plan plans[PROFILES_MAX];
	struct draft_profile list[PROFILES_MAX];
	size_t count;
};

static void profiles_free(struct profiles *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		free(p->bytes[i]);
	arena_done(&p->arena);
	free(p);
}

/* As `extends` would find them: the user's own take the place of those that ship. */
static void add_profile(struct profiles *p, const char *name)
{
	struct policy_args args = { .verify = POLICY_VERIFY_TLS };
	struct faults faults = { 0 };
	struct err ignored = { 0 };
	const size_t i = p->count;
	size_t size;

	args.profiles.items[args.profiles.count++] = name;
	if (cli_policy_load_text(&args, NULL, &p->arena, &faults, &p->policies[i],
				 &p->bytes[i], &size) == 0) {
		if (plan_open(p->bytes[i], size, &p->plans[i], &ignored) == 0)
			p->list[p->count++] = (struct draft_profile){ name,
								      &p->policies[i],
								      &p->plans[i] };
		else
			free(p->bytes[i]);
	}
	faults_done(&faults);
}

static struct profiles *profiles_read(const struct run_spec *spec)
{
	const struct option_list *asked = &spec->policy.profiles;
	struct profiles *p = calloc(1, sizeof(*p));
	const struct policy_embedded *e;

	for (size_t i = 0; p && (e = policy_embedded_at(i)) && p->count < PROFILES_MAX;
	     i++)
		if (!text_is_one_of(e->name, asked->items, asked->count))
			add_profile(p, e->name);
	return p;
}

static int write_all(int fd, const char *text, size_t size)
{
	if (ftruncate(fd, 0) < 0)
		return -errno;
	for (size_t at = 0; at < size;) {
		ssize_t n = pwrite(fd, text + at, size - at, (off_t)at);

		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int write_output(const struct run_spec *spec, struct text text, struct err *err)
{
	int r;

	if (spec->learn.fd < 0) {
		fwrite(text.ptr, 1, text.len, stdout);
		return fflush(stdout) == 0
			       ? 0
			       : err_sys(err, -errno, "cannot write the policy");
	}
	r = write_all(spec->learn.fd, text.ptr, text.len);
	return r < 0 ? err_sys(err, r, "cannot write the policy %s", spec->learn.output)
		     : 0;
}

/* Each rule at its place among those that are there; all else stays as it is. */
static int merge(const struct run_spec *spec, struct draft *d, struct err *err)
{
	struct text text = spec->learn.before;
	size_t added = 0;

	for (size_t i = 0; i < d->policy.count; i++) {
		char rule[POLICY_RULE_SIZE];
		struct policy_edited edited;
		struct err why = { 0 };

		if (!rule_write_json(&d->policy.rules[i], rule, sizeof(rule)))
			continue;
		if (policy_edit(spec->learn.output, text, rule, true, &d->arena, &edited,
				&why) < 0) {
			log_error("%s", why.text);
			continue;
		}
		added += edited.line > 0;
		text = edited.text;
	}
	if (!spec->quiet)
		log_warning("learned %zu rule%s more for %s", added,
			    added == 1 ? "" : "s", spec->learn.output);
	return added > 0 ? write_output(spec, text, err) : 0;
}

static int print(const struct run_spec *spec, const struct draft *d,
		 const struct plan *asked, struct err *err)
{
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
	if (!spec->quiet && spec->learn.fd >= 0)
		log_warning("learned %zu rule%s, written to %s, with %zu proposal%s in "
			    "comments: read it before you use it",
			    d->policy.count, d->policy.count == 1 ? "" : "s",
			    spec->learn.output, d->proposal_count,
			    d->proposal_count == 1 ? "" : "s");
	return write_output(spec, (struct text){ text, size }, err);
}

int learn_end(const struct run_spec *spec, const struct event_ring *used,
	      const struct event_ring *refused, const struct plan *asked, struct err *err)
{
	const bool is_whole = !spec->learn.diff && !spec->learn.before.ptr;
	struct profiles *profiles = is_whole ? profiles_read(spec) : NULL;
	const char *slash = strrchr(spec->argv[0], '/');
	const struct draft_args args = {
		.used = used,
		.refused = refused,
		.asked = asked,
		.profiles = profiles ? profiles->list : NULL,
		.profile_count = profiles ? profiles->count : 0,
		.extends = spec->policy.profiles.items,
		.extend_count = spec->policy.profiles.count,
		.program = slash && slash[1] ? slash + 1 : spec->argv[0],
	};
	struct draft d;
	int r = draft_make(&d, &args);

	if (r < 0) {
		err_set(err, r, "out of memory");
	} else {
		r = spec->learn.before.ptr ? merge(spec, &d, err)
					   : print(spec, &d, asked, err);
		draft_done(&d);
	}
	if (event_ring_dropped(used) > 0)
		log_warning("%" PRIu64 " connections and look-ups were too many to be "
			    "remembered",
			    event_ring_dropped(used));
	profiles_free(profiles);
	return r;
}
