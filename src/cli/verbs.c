// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"

#include <string.h>

#include "base/log.h"
#include "cli/config.h"
#include "cli/doctor.h"
#include "cli/policy.h"
#include "cli/report.h"

struct verb {
	const char *name;
	const char *help; /* one line */
	int (*main)(int argc, char **argv, const struct cli_hooks *hooks);
	void (*usage)(FILE *out);
};

/* The command line first, then the environment, then the files: what comes first counts.
 * Return: 0, or -errno with @err. */
static int run_options(int argc, char **argv, struct run_spec *spec, struct err *err)
{
	int r = cli_run_parse(argc, argv, spec, err);

	if (r == 0)
		r = cli_run_environment(spec, err);
	return r;
}

static void warn_of_stray_variable(const struct run_spec *spec)
{
	const char *stray = cli_options_stray_variable(&cli_run_options);
	char shown[TEXT_ESCAPED_SIZE];

	if (stray && !spec->quiet)
		log_warning("%s is a variable of no option, ignoring",
			    text_escape((struct text){ stray, strcspn(stray, "=") },
					shown, sizeof(shown)));
}

static int verb_run(int argc, char **argv, const struct cli_hooks *hooks)
{
	struct run_spec spec;
	struct err err = { 0 };
	int status;

	if (run_options(argc, argv, &spec, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	/* It says what is wrong by itself. */
	if (config_read(&spec) < 0)
		return RUN_STATUS_BAD_INPUT;
	if (report_open(&spec, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	warn_of_stray_variable(&spec);
	status = hooks->run(&spec);
	if (status == RUN_STATUS_FAILED && cli_doctor_blames(hooks->run))
		log_error("`weir doctor` says more");
	return status;
}

static int verb_policy(int argc, char **argv, const struct cli_hooks *hooks)
{
	return cli_policy(argc, argv);
}

static int verb_doctor(int argc, char **argv, const struct cli_hooks *hooks)
{
	return cli_doctor(argc, argv, hooks->run);
}

static int verb_version(int argc, char **argv, const struct cli_hooks *hooks)
{
	puts("weir " WEIR_VERSION);
	return 0;
}

static void version_usage(FILE *out)
{
	fputs("usage: weir version\n\nPrint the version.\n", out);
}

static int verb_help(int argc, char **argv, const struct cli_hooks *hooks);

static void help_usage(FILE *out)
{
	fputs("usage: weir help [VERB]\n\nList the verbs, or explain one.\n", out);
}

static const struct verb verbs[] = {
	{ "run", "run one command in a sandbox that reaches what its policy lists",
	  verb_run, cli_run_usage },
	{ "policy", "check, explain or show a policy", verb_policy, cli_policy_usage },
	{ "doctor", "try what `weir run` needs of this machine", verb_doctor,
	  cli_doctor_usage },
	{ "version", "print the version", verb_version, version_usage },
	{ "help", "list the verbs, or explain one", verb_help, help_usage },
};

static const struct verb *verb_find(const char *name)
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
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(out, "  %-10s%s\n", verbs[i].name, verbs[i].help);
	fputs("\n`weir help VERB` explains one.\n", out);
}

static int unknown_verb(const char *name)
{
	char shown[TEXT_ESCAPED_SIZE];

	log_error("'%s' is not a verb; `weir help` lists them",
		  text_escape(text_of(name), shown, sizeof(shown)));
	return RUN_STATUS_BAD_INPUT;
}

static int verb_help(int argc, char **argv, const struct cli_hooks *hooks)
{
	const struct verb *v;

	if (argc < 2) {
		overview(stdout);
		return 0;
	}
	v = verb_find(argv[1]);
	if (!v)
		return unknown_verb(argv[1]);
	v->usage(stdout);
	return 0;
}

int cli_main(int argc, char **argv, const struct cli_hooks *hooks)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct verb *v;

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
	if (argc > 2 && strcmp(argv[2], "--help") == 0) {
		v->usage(stdout);
		return 0;
	}
	return v->main(argc - 1, argv + 1, hooks);
}
