// SPDX-License-Identifier: Apache-2.0
#include "verbs.h"
#include "sys/print.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "complete.h"
#include "container/container.h"
#include "daemon/daemon.h"
#include "run/doctor.h"
#include "run/learn.h"
#include "run/needs.h"
#include "run/options.h"
#include "run/report.h"
#include "run/run.h"
#include "settings/settings.h"
#include "sidecar/sidecar.h"
#include "supervisor/program.h"
#include "tools/events.h"
#include "tools/tools.h"

static int run(struct run_spec *spec)
{
	return spec->cgroup || spec->uid ? run_host(spec) : control_run(spec);
}

/* The command line first, then the environment, then the files: what comes first counts.
 */
static int run_command(const struct cli_options *table, int argc, char **argv)
{
	struct run_spec spec;
	struct err err = { 0 };
	const char *stray;
	int status, r = cli_run_parse(table, argc, argv, &spec, &err);

	if (r == 0)
		r = cli_run_environment(table, &spec, &err);
	if (r == 0)
		r = cli_run_check_guarded(&spec, &err);
	/* config_read() reports its faults itself. */
	if (r == 0 && config_read(&spec) < 0)
		return RUN_STATUS_BAD_INPUT;
	if (r == 0)
		r = cli_run_settle_mode(&spec, &err);
	if (r == 0 && spec.mode == RUN_LEARN)
		r = learn_open(&spec, &err);
	if (r == 0)
		r = report_open(&spec, &err);
	if (r < 0) {
		if (err.text[0])
			log_error("%s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	if (needs_check_place(&err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_FAILED;
	}
	stray = cli_options_stray_variable(table);
	if (stray && !spec.quiet)
		log_warning("%s is a variable of no option, ignoring",
			    TEXT_SHOWN((struct text){ stray, strcspn(stray, "=") }));
	status = run(&spec);
	if (status == RUN_STATUS_FAILED && cli_doctor_blames(run))
		log_error("`weir doctor` says more");
	return status;
}

static int verb_run(int argc, char **argv)
{
	return run_command(&cli_run_options, argc, argv);
}

static int verb_events(int argc, char **argv);

static int verb_learn(int argc, char **argv)
{
	return cli_learn_is_from(argc, argv)
		       ? verb_events(argc, argv)
		       : run_command(&cli_learn_options, argc, argv);
}

/* What a sidecar and a daemon begin with. */
static int guard(int argc, char **argv,
		 int (*parse)(int argc, char **argv, struct sidecar_spec *ret,
			      struct err *err),
		 int (*start)(struct sidecar_spec *spec))
{
	CLEAN(mem) struct sidecar_spec *spec = calloc(1, sizeof(*spec));
	struct err err = { 0 };

	if (!spec) {
		log_error("out of memory");
		return RUN_STATUS_FAILED;
	}
	if (parse(argc, argv, spec, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	return start(spec);
}

static int verb_sidecar(int argc, char **argv)
{
	return guard(argc, argv, cli_sidecar_parse, sidecar_run);
}

static int start_daemon(struct sidecar_spec *spec)
{
	/* No name server is asked that was not named. */
	if (spec->upstream_count > 0)
		return daemon_run(spec);
	log_error("%s names no usable name server: name one with --upstream",
		  spec->resolv_conf);
	return RUN_STATUS_FAILED;
}

static int verb_daemon(int argc, char **argv)
{
	return guard(argc, argv, cli_daemon_parse, start_daemon);
}

/* What only prints ends when its reader is gone, as any program, though the parent may
 * ignore SIGPIPE and hand that on: a service of systemd does. */
static void end_with_reader(void)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };

	sigaction(SIGPIPE, &by_default, NULL);
}

/* All three, and `weir learn --from`, are one program's, which reads the options itself.
 */
static int verb_events(int argc, char **argv)
{
	struct err err = { 0 };

	end_with_reader();
	if (helper_become(PROGRAM_EVENTS, argv, &err) < 0)
		log_error("%s", err.text);
	return RUN_STATUS_FAILED;
}

static int verb_doctor(int argc, char **argv)
{
	return cli_doctor(argc, argv, run);
}

/* --- the verbs of this file --- */

static const struct cli_option json_only[] = {
	{ "json", NULL, "print JSON", .kind = OPTION_FLAG },
};
static const struct cli_options version_options = {
	.items = json_only,
	.count = ARRAY_SIZE(json_only),
	.usage = "usage: weir version [--json]\n\nPrint the version.\n",
};
static const struct cli_options help_options = {
	.items = json_only,
	.count = ARRAY_SIZE(json_only),
	.usage = "usage: weir help [--json] [VERB]\n\nList the verbs, or explain one.\n",
};

static int too_many(const char *verb, const char *argument, struct err *err)
{
	return err_set(err, -EINVAL, "%s: '%s' is one argument too many", verb,
		       SHOWN(argument));
}

/* Return: the index of the first argument, or -EINVAL after a message. */
static int parse_json(int argc, char **argv, int arguments_max, bool *ret_json)
{
	struct err err = { 0 };
	int first = cli_options_parse(&help_options, ret_json, argc, argv, NULL, &err);

	if (first >= 0 && argc - first > arguments_max)
		first = too_many(argv[0], argv[first + arguments_max], &err);
	if (first < 0)
		log_error("%s", err.text);
	return first;
}

static int verb_version(int argc, char **argv)
{
	bool json = false;

	if (parse_json(argc, argv, 0, &json) < 0)
		return RUN_STATUS_BAD_INPUT;
	puts(json ? "{\"version\": \"" WEIR_VERSION "\"}" : "weir " WEIR_VERSION);
	return 0;
}

static int verb_help(int argc, char **argv);

static const struct cli_verb verbs[] = {
	{ "run", "run one command in a sandbox that reaches what its policy lists",
	  verb_run, &cli_run_options, .group = "run a command", .serves = true },
	{ "learn",
	  "run one command with public names open, and write the policy it needs",
	  verb_learn, &cli_learn_options, .serves = true },
	{ "doctor", "try what `weir run` needs of this machine", verb_doctor,
	  &cli_doctor_options },
	{ "sidecar", "guard the network namespace that this container shares with an app",
	  verb_sidecar, &cli_sidecar_options, .group = "guard a container",
	  .serves = true },
	{ "container", "run a container of Docker or podman that is guarded",
	  cli_container, &cli_container_options, CLI_CONTAINER_WORDS, .serves = true },
	{ "inject", "print Kubernetes workloads with the sidecar in them", cli_inject,
	  &cli_inject_options },
	{ "daemon", "guard any number of sandboxes of this host", verb_daemon,
	  &cli_daemon_options, .group = "guard a host", .serves = true },
	{ "attach", "have the daemon guard a sandbox", cli_attach, &cli_attach_options },
	{ "detach", "guard a sandbox no more", cli_detach, &cli_detach_options },
	{ "ps", "list the sandboxes that the daemon guards", cli_ps, &cli_ps_options },
	{ "status", "say how the daemon guards its sandboxes, or one", cli_status,
	  &cli_status_options },
	{ "render", "print or install a policy as nft rules for a cgroup or a user",
	  cli_render, &cli_render_options },
	{ "teardown", "take away what `weir render --install` has installed",
	  cli_teardown, &cli_teardown_options },
	{ "policy", "check, explain, show, compare, import or change policies",
	  cli_policy, &cli_policy_options, CLI_POLICY_WORDS, .group = "policies" },
	{ "profile", "list the profiles, or print one", cli_profile, &cli_profile_options,
	  CLI_PROFILE_WORDS },
	{ "events", "print what happened in guarded sandboxes", verb_events,
	  &cli_events_options, .group = "what happened" },
	{ "denies", "count what was denied, by destination, name, rule and so on",
	  verb_events, &cli_denies_options },
	{ "review", "decide what was denied and a rule could allow", verb_events,
	  &cli_review_options, CLI_REVIEW_WORDS },
	{ "completion", "print a shell's completion of this command line", cli_completion,
	  &cli_completion_options, CLI_COMPLETION_WORDS, .group = "this program" },
	{ "version", "print the version", verb_version, &version_options },
	{ "help", "list the verbs, or explain one", verb_help, &help_options },
};

const struct cli_verb *cli_verb_at(size_t i)
{
	return i < ARRAY_SIZE(verbs) ? &verbs[i] : NULL;
}

static const struct cli_verb *verb_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static void overview(FILE *out)
{
	fputs("usage: weir VERB [OPTION]...\n\n"
	      "Weir decides which names and addresses a sandbox may reach.\n\n",
	      out);
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (verbs[i].group)
			fprintf(out, "%s%s:\n", i > 0 ? "\n" : "", verbs[i].group);
		fprintf(out, "  %-12s%s\n", verbs[i].name, verbs[i].help);
	}
	fputs("\n`weir help VERB` explains one. The first to try:\n"
	      "  weir doctor\n  weir run --allow pypi.org -- pip download six\n",
	      out);
}

static const char *verb_name_at(const void *unused, size_t i)
{
	return i < ARRAY_SIZE(verbs) ? verbs[i].name : NULL;
}

static int unknown_verb(const char *name)
{
	const char *meant = text_meant(text_of(name), verb_name_at, NULL);
	const char *shown = SHOWN(name);

	if (meant)
		log_error("'%s' is not a verb; did you mean `weir %s`?", shown, meant);
	else
		log_error("'%s' is not a verb; `weir help` lists them", shown);
	return RUN_STATUS_BAD_INPUT;
}

static const char *group_of(const struct cli_verb *v)
{
	while (!v->group)
		v--;
	return v->group;
}

static json_t *verb_json(const struct cli_verb *v)
{
	json_t *options = json_array();

	const struct cli_option *o;

	for (size_t i = 0; v->options && (o = cli_option_at(v->options, i)); i++) {
		json_array_append_new(options,
				      json_pack("{s:s, s:s?, s:s, s:b}", "name", o->name,
						"argument", o->arg, "help", o->help,
						"repeats", o->separator != '\0'));
	}
	return json_pack("{s:s, s:s, s:s, s:s?, s:o}", "name", v->name, "group",
			 group_of(v), "help", v->help, "words", v->words, "options",
			 options);
}

/* The table of verbs, or the row of one, for programs. */
static int help_json(const struct cli_verb *only)
{
	json_t *all = only ? verb_json(only) : json_array();

	for (size_t i = 0; !only && i < ARRAY_SIZE(verbs); i++)
		json_array_append_new(all, verb_json(&verbs[i]));
	return print_json(all, 0, stdout) < 0 ? RUN_STATUS_FAILED : 0;
}

static bool has_word(const struct cli_verb *v, const char *name)
{
	struct text rest = text_of(v->words ? v->words : ""), word;

	while (text_split(&rest, '|', &word))
		if (text_equal(word, name))
			return true;
	return false;
}

static int verb_help(int argc, char **argv)
{
	const struct cli_verb *v = NULL;
	struct err err = { 0 };
	bool json = false;
	int first = parse_json(argc, argv, 2, &json);

	if (first < 0)
		return RUN_STATUS_BAD_INPUT;
	if (first < argc) {
		v = verb_find(argv[first]);
		if (!v)
			return unknown_verb(argv[first]);
		/* `weir help policy explain`: the page of `policy` has its words. */
		if (first + 1 < argc && !has_word(v, argv[first + 1])) {
			too_many("help", argv[first + 1], &err);
			log_error("%s", err.text);
			return RUN_STATUS_BAD_INPUT;
		}
	}
	if (json)
		return help_json(v);
	if (v)
		cli_usage_print(stdout, v->options);
	else
		overview(stdout);
	return 0;
}

/* `weir VERB --help`, and with the verb's own word before it: `weir policy explain
 * --help`. */
static bool asks_for_help(const struct cli_verb *v, int argc, char **argv)
{
	int at = v->words && argc > 3 && argv[2][0] != '-' ? 3 : 2;

	return argc > at &&
	       (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0);
}

/* What was printed has to have arrived; where the answer is no (1), too. */
static int finish(int status)
{
	if (status > 1 || (fflush(stdout) == 0 && !ferror(stdout)))
		return status;
	log_error("cannot write the output");
	return RUN_STATUS_FAILED;
}

int cli_main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct cli_verb *v;
	bool asks;

	if (!name) {
		overview(stderr);
		return RUN_STATUS_BAD_INPUT;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	v = verb_find(name);
	if (!v)
		return unknown_verb(name);
	asks = asks_for_help(v, argc, argv);
	if (asks || !v->serves)
		end_with_reader();
	if (asks) {
		cli_usage_print(stdout, v->options);
		return finish(0);
	}
	return finish(v->main(argc - 1, argv + 1));
}
