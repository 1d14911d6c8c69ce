// SPDX-License-Identifier: Apache-2.0
#include "run/doctor.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "base/log.h"
#include "run/doctor_probe.h"
#include "sys/options.h"
#include "sys/print.h"
#include "sys/term.h"

enum { NAME_COLUMN = 8, TEXT_COLUMN = 26, STATUS_CANNOT_WORK = 1 };

/* In this order: what a probe stands on comes before it. */
static const struct {
	const char *name;
	doctor_probe_fn *probe;
} probes[] = {
	{ "user namespaces", doctor_user_namespaces },
	{ "limits", doctor_limits },
	{ "directory", doctor_directory },
	{ "container", doctor_container },
	{ "proc", doctor_proc },
	{ "link", doctor_link },
	{ "nf_tables", doctor_filter },
	{ "owner flag", doctor_owner },
	{ "NFLOG", doctor_nflog },
	{ "overlay", doctor_overlay },
	{ "id-mapped mounts", doctor_id_maps },
	{ "Landlock", doctor_landlock },
	{ "seccomp", doctor_seccomp },
	{ "name servers", doctor_resolvers },
	{ "slirp4netns", doctor_slirp4netns },
	{ "pasta", doctor_pasta },
	{ "container engine", doctor_docker },
	{ "sudo", doctor_sudo },
	{ "a sandbox", doctor_sandbox },
};
static_assert(ARRAY_SIZE(probes) <= DOCTOR_ROWS_MAX, "every probe has a row");

static const struct {
	const char *word; /* in JSON */
	const char *mark; /* for people */
	const char *colour;
} states[] = {
	[DOCTOR_FAILED] = { "failed", "FAIL", "\x1b[1;31m" },
	[DOCTOR_WARNING] = { "warning", "warn", "\x1b[1;33m" },
	[DOCTOR_UNTRIED] = { "untried", "?", "" },
	[DOCTOR_ABSENT] = { "absent", "-", "" },
	[DOCTOR_OK] = { "ok", "ok", "\x1b[32m" },
};
static_assert(ARRAY_SIZE(states) == DOCTOR_STATE_COUNT, "every state has its words");

static const char *const systems[] = {
	[DOCTOR_DEBIAN] = "Debian",
	[DOCTOR_UBUNTU] = "Ubuntu",
	[DOCTOR_FEDORA] = "Fedora",
};
static_assert(ARRAY_SIZE(systems) == DOCTOR_SYSTEM_COUNT, "every system has a name");

static void examine(struct doctor *d)
{
	struct err err = { 0 };

	d->has_machine = launch_machine_probe(&d->machine, &err) == 0;
	memcpy(d->machine_text, err.text, sizeof(d->machine_text));
	for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
		struct doctor_row *row = &d->rows[d->count++];

		row->name = probes[i].name;
		probes[i].probe(d, row);
	}
}

static size_t count_state(const struct doctor *d, enum doctor_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < d->count; i++)
		n += d->rows[i].state == state;
	return n;
}

/* --- for people --- */

/* "Debian, Ubuntu: command": systems with the same command share a line. The command
 * is not wrapped: it is there to be copied. */
static void print_mends(const struct doctor_row *row)
{
	bool done[DOCTOR_SYSTEM_COUNT] = { false };

	for (size_t i = 0; i < DOCTOR_SYSTEM_COUNT; i++) {
		if (!row->mend[i] || done[i])
			continue;
		printf("%*smend (%s", TEXT_COLUMN, "", systems[i]);
		for (size_t j = i + 1; j < DOCTOR_SYSTEM_COUNT; j++) {
			if (!row->mend[j] || strcmp(row->mend[i], row->mend[j]) != 0)
				continue;
			printf(", %s", systems[j]);
			done[j] = true;
		}
		printf("):\n%*s%s\n", TEXT_COLUMN + 2, "", row->mend[i]);
	}
}

static void print_row(const struct doctor_row *row, bool colour, unsigned int width)
{
	const char *on = colour ? states[row->state].colour : "";

	printf("  %s%-4s%s  %-*s", on, states[row->state].mark, *on ? "\x1b[0m" : "",
	       TEXT_COLUMN - NAME_COLUMN, row->name);
	term_wrap(stdout, row->found, TEXT_COLUMN, TEXT_COLUMN, width);
	if (row->follows) {
		printf("%*s", TEXT_COLUMN, "");
		term_wrap(stdout, row->follows, TEXT_COLUMN, TEXT_COLUMN, width);
	}
	print_mends(row);
}

/* One line for all that is missing and that nothing needs by default. */
static void print_absent(struct doctor *d, unsigned int width)
{
	struct doctor_row row = { .name = "not needed", .state = DOCTOR_ABSENT };
	const char *names = "";

	for (size_t i = 0; i < d->count; i++)
		if (d->rows[i].state == DOCTOR_ABSENT)
			names = doctor_text(d, "%s%s%s", names, names[0] ? ", " : "",
					    d->rows[i].name);
	doctor_found(d, &row, DOCTOR_ABSENT, "%s; `weir doctor --all` says more", names);
	print_row(&row, false, width);
}

static void print_text(struct doctor *d, bool all)
{
	bool colour = term_has_colour(stdout);
	unsigned int width = term_width(stdout);
	size_t failed = count_state(d, DOCTOR_FAILED);
	size_t warnings = count_state(d, DOCTOR_WARNING);

	for (size_t i = 0; i < d->count; i++)
		if (all || d->rows[i].state != DOCTOR_ABSENT)
			print_row(&d->rows[i], colour, width);
	if (!all && count_state(d, DOCTOR_ABSENT) > 0)
		print_absent(d, width);
	if (failed > 0)
		printf("\nweir run can't work here: see the line%s marked FAIL\n",
		       failed == 1 ? "" : "s");
	else if (warnings > 0)
		printf("\nweir run works here; see the line%s marked warn\n",
		       warnings == 1 ? "" : "s");
	else
		puts("\nweir run works here");
}

/* --- for programs --- */

static json_t *row_json(const struct doctor_row *row)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:s?}", "name", row->name, "state",
			      states[row->state].word, "found", row->found, "follows",
			      row->follows);
	json_t *mend = json_object();

	for (size_t i = 0; i < DOCTOR_SYSTEM_COUNT; i++)
		if (row->mend[i])
			json_object_set_new(mend, systems[i], json_string(row->mend[i]));
	json_object_set_new(o, "mend", mend);
	return o;
}

static int print_rows(const struct doctor *d)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < d->count; i++)
		json_array_append_new(rows, row_json(&d->rows[i]));
	return print_json(json_pack("{s:s, s:b, s:o}", "version", WEIR_VERSION, "works",
				    count_state(d, DOCTOR_FAILED) == 0, "rows", rows),
			  0, stdout);
}

/* --- the verb --- */

struct doctor_spec {
	bool json, all;
};

static const struct cli_option options[] = {
	{ "json", NULL, "print JSON", OPTION_IN(FLAG, struct doctor_spec, json) },
	{ "all", NULL, "say how to get what is missing but not needed by default, too",
	  OPTION_IN(FLAG, struct doctor_spec, all) },
};
const struct cli_options cli_doctor_options = {
	.items = options,
	.count = ARRAY_SIZE(options),
	.usage =
		"usage: weir doctor [OPTION]...\n\n"
		"Try what `weir run` needs of this machine, one by one: what was found,\n"
		"what follows, and the command that mends it.\n",
	.notes = "Exit status: 0 when `weir run` works here, 1 when it can't.\n",
};

int cli_doctor(int argc, char **argv, int (*run)(struct run_spec *spec))
{
	struct doctor d = { .run = run };
	struct doctor_spec spec = { 0 };
	struct err err = { 0 };
	int r = cli_options_only(&cli_doctor_options, &spec, argc, argv, NULL, &err);

	if (r < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	examine(&d);
	r = 0;
	if (spec.json)
		r = print_rows(&d);
	else
		print_text(&d, spec.all);
	if (r < 0) {
		log_error("cannot write the output");
		r = RUN_STATUS_FAILED;
	} else if (count_state(&d, DOCTOR_FAILED) > 0) {
		r = STATUS_CANNOT_WORK;
	}
	arena_done(&d.arena);
	return r;
}
