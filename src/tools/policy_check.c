// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <jansson.h>

#include "tools/policy.h"

static const char *const levels[] = {
	[FAULT_ERROR] = "error",
	[FAULT_WARNING] = "warning",
	[FAULT_HINT] = "hint",
};

void cli_policy_count(const struct policy *p, size_t *ret_names, size_t *ret_addresses)
{
	size_t addresses = 0;

	for (size_t i = 0; i < p->count; i++)
		addresses += p->rules[i].kind == TARGET_PREFIX;
	*ret_addresses = addresses;
	*ret_names = p->count - addresses;
}

/* Paths may have bytes that are no text: those are left out. */
static json_t *fault_json(const struct fault *f)
{
	json_t *file = json_string(f->file);

	return json_pack("{s:s, s:o, s:i, s:i, s:s, s:s}", "level", levels[f->level],
			 "file", file ? file : json_null(), "line", (int)f->line,
			 "column", (int)f->column, "path", f->path, "text", f->text);
}

static int print(const struct faults *faults, const struct policy *policy, bool valid,
		 FILE *out)
{
	json_t *list = json_array(), *all;
	size_t names, addresses;
	int r;

	for (size_t i = 0; i < faults->count; i++)
		json_array_append_new(list, fault_json(&faults->items[i]));
	cli_policy_count(policy, &names, &addresses);
	all = json_pack("{s:b, s:I, s:I, s:o, s:I}", "valid", valid, "names",
			(json_int_t)names, "addresses", (json_int_t)addresses, "faults",
			list, "more", (json_int_t)faults->dropped);
	r = all ? json_dumpf(all, out, JSON_INDENT(2)) : -1;
	json_decref(all);
	fputc('\n', out);
	return r < 0 ? -EIO : 0;
}

int cli_policy_check_json(const struct policy_args *args, FILE *out)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct faults faults = { 0 };
	struct policy policy = { 0 };
	int r = cli_policy_load(args, &arena, &faults, &policy);
	int printed = r == -ENOMEM ? 0 : print(&faults, &policy, r == 0, out);

	faults_done(&faults);
	return printed < 0 ? printed : r;
}
