// SPDX-License-Identifier: Apache-2.0
#include "run/policies.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "policy/advice.h"

static int check(const struct run_spec *spec, const struct policy *policy,
		 struct err *err)
{
	if (policy->denied_names != POLICY_DENIED_REFUSE ||
	    spec->uplink != RUN_UPLINK_NONE)
		return 0;
	return err_set(err, -EINVAL,
		       "deniedNames: refuse needs the relay, and --uplink none has none");
}

/* The plans of what was asked for, @size bytes, and of what is in force. An open policy
 * is made of a copy: what was asked for is what is shown. */
static int open_plans(const struct run_spec *spec, struct run_policy *p, size_t size,
		      struct err *err)
{
	struct policy open = p->policy;
	int r = plan_open(p->bytes, size, &p->asked, err);

	p->evaluated_ms = clock_wall_ms();
	if (r < 0)
		return r;
	plan_set_time(&p->asked, p->evaluated_ms);
	p->plan = p->asked;
	if (spec->mode == RUN_ENFORCE)
		return 0;
	r = spec->mode == RUN_AUDIT
		    ? policy_open_audit(&open, &p->arena)
		    : policy_open_learn(&open, spec->learn.ceiling, spec->learn.any_port,
					&p->arena, err);
	if (r == 0)
		r = policy_compile(&open, &p->open_bytes, &size, err);
	if (r == 0)
		r = plan_open(p->open_bytes, size, &p->plan, err);
	if (r == 0)
		plan_set_time(&p->plan, p->evaluated_ms);
	return r;
}

bool run_policy_asks_names(const struct run_spec *spec, const struct run_policy *p)
{
	return spec->mode != RUN_ENFORCE || policy_asks_names(&p->policy);
}

int run_policy_build(const struct run_spec *spec, struct run_policy *ret, struct err *err)
{
	size_t size;
	int r;

	/* cli_policy_build() prints the faults. */
	if (cli_policy_build(&spec->policy, &ret->arena, true, &ret->policy, &ret->bytes,
			     &size) < 0 ||
	    check(spec, &ret->policy, err) < 0)
		return RUN_STATUS_BAD_INPUT;
	r = open_plans(spec, ret, size, err);
	return r == -EINVAL ? RUN_STATUS_BAD_INPUT : r < 0 ? RUN_STATUS_FAILED : 0;
}

int run_policy_read(const struct run_spec *spec, const char *file, struct text text,
		    struct run_policy **ret, struct err *err)
{
	struct run_policy *p = calloc(1, sizeof(*p));
	struct policy_args args = spec->policy;
	struct faults faults = { 0 };
	size_t size;
	int r = -ENOMEM;

	args.file = file ?: "policy";
	if (!file)
		args.allow.count = args.deny.count = args.profiles.count = 0;
	if (p)
		r = cli_policy_load_text(&args, &text, &p->arena, &faults, &p->policy,
					 &p->bytes, &size);
	if (r == -ENOMEM)
		r = err_set(err, r, "out of memory");
	else if (r < 0)
		r = faults_first_error(&faults, err)
			    ?: err_set(err, -EINVAL, "the policy is not valid");
	else
		r = check(spec, &p->policy, err);
	if (r == 0)
		r = open_plans(spec, p, size, err);
	faults_done(&faults);
	if (r == 0)
		*ret = p;
	else
		run_policy_free(p);
	return r;
}

void run_policy_done(struct run_policy *p)
{
	run_policy_free(p->before);
	arena_done(&p->arena);
	free(p->bytes);
	free(p->open_bytes);
	*p = (struct run_policy){ 0 };
}

void run_policy_free(struct run_policy *p)
{
	while (p) {
		struct run_policy *before = p->before;

		p->before = NULL;
		run_policy_done(p);
		free(p);
		p = before;
	}
}

const struct run_policy *run_policy_of(const struct run_policy *newest,
				       const struct event *e)
{
	for (const struct run_policy *p = newest; p; p = p->before)
		if (p->number == e->sandbox)
			return p;
	return newest;
}

void run_policy_forget(struct run_policy *newest,
		       bool (*is_needed)(const void *data, uint32_t number),
		       const void *data)
{
	struct run_policy **at = &newest->before;

	while (*at) {
		struct run_policy *p = *at;

		if (is_needed(data, p->number)) {
			at = &p->before;
			continue;
		}
		*at = p->before;
		p->before = NULL;
		run_policy_free(p);
	}
}
