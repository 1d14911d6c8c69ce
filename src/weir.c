// SPDX-License-Identifier: Apache-2.0
/* weir - main() and the table of verbs. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
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
#include "sys/print.h"
#include "tools/events.h"
#include "tools/tools.h"

/* What `weir help` shows and what main() calls. */
struct cli_verb {
	const char *name;
	const char *help; /* one line */
	int (*main)(int argc, char **argv);
	const struct cli_options *options; /* with what `weir help` says */
	const char *words; /* what may follow, "a|b"; NULL: nothing fixed */
	const char
		*group; /* the title above it in `weir help`; NULL: as the one before */
	bool serves;	/* it runs a command or a service: more than a reader waits for */
};

/* In the order of `weir help`; NULL behind the last. */
static const struct cli_verb *cli_verb_at(size_t i);

/* === `weir completion` ===
 *
 * What a shell needs to complete our command lines, written from the table of verbs. */

#define CLI_COMPLETION_WORDS "bash|zsh|fish"

enum value_kind { VALUE_NONE = 0, VALUE_FREE, VALUE_WORDS, VALUE_FILE, VALUE_PROFILE };

static enum value_kind value_kind(const struct cli_option *o)
{
	if (!o->arg)
		return VALUE_NONE;
	if (strcmp(o->arg, "FILE") == 0 || strcmp(o->arg, "PATH") == 0 ||
	    strcmp(o->arg, "[FORM:]FILE") == 0)
		return VALUE_FILE;
	if (strcmp(o->name, "profile") == 0)
		return VALUE_PROFILE;
	return strchr(o->arg, '|') ? VALUE_WORDS : VALUE_FREE;
}

#define PROFILES "(weir profile list 2>/dev/null | cut -d\" \" -f1)"

/* What a shell is told of an option's value, by kind; words stand between two texts. */
struct value_forms {
	const char *free, *file, *profile, *words[2];
};

/* "a|b" with spaces between. */
static void print_words(FILE *out, const char *words)
{
	for (; *words; words++)
		fputc(*words == '|' ? ' ' : *words, out);
}

/* Inside single quotes, and without what zsh would read inside brackets. */
static void print_help(FILE *out, const char *help)
{
	for (; *help; help++)
		if (*help == '\'')
			fputs("'\\''", out);
		else if (!strchr("[]`:", *help))
			fputc(*help, out);
}

static void print_value(FILE *out, const struct value_forms *forms,
			const struct cli_option *o)
{
	switch (value_kind(o)) {
	case VALUE_NONE:
		break;
	case VALUE_FREE:
		fputs(forms->free, out);
		break;
	case VALUE_FILE:
		fputs(forms->file, out);
		break;
	case VALUE_PROFILE:
		fputs(forms->profile, out);
		break;
	case VALUE_WORDS:
		fputs(forms->words[0], out);
		print_words(out, o->arg);
		fputs(forms->words[1], out);
		break;
	}
}

static const struct cli_option *option_at(const struct cli_verb *v, size_t i)
{
	return v->options ? cli_option_at(v->options, i) : NULL;
}

/* Behind its options stands a command. */
static bool has_command(const struct cli_verb *v)
{
	return v->options == &cli_run_options || v->options == &cli_learn_options;
}

/* The options of run and learn whose next word is their value, with @between them. */
static void run_valued(const char *between, char *buf, size_t size)
{
	size_t used = 0;

	const struct cli_option *o;

	for (size_t i = 0; (o = cli_option_at(&cli_learn_options, i)) && used < size; i++)
		if (o->arg)
			used += (size_t)snprintf(buf + used, size - used, "%s--%s",
						 used > 0 ? between : "", o->name);
}

/* --- bash --- */

/* run) and learn) complete the command behind the options as if it stood alone. */
static const char bash_head[] =
	"# bash completion of weir: eval \"$(weir completion bash)\"\n"
	"_weir() {\n"
	"	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	"	local verb=${COMP_WORDS[1]} i\n"
	"	COMPREPLY=()\n"
	"	if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	"		COMPREPLY=($(compgen -W '";
static const char bash_command[] =
	"	if [ \"$verb\" = run ] || [ \"$verb\" = learn ]; then\n"
	"		for ((i = 2; i < COMP_CWORD; i++)); do\n"
	"			case \"${COMP_WORDS[i]}\" in\n"
	"			--) i=$((i + 1)); break ;;\n"
	"			*=*) ;;\n"
	"			%s) i=$((i + 1)) ;;\n"
	"			-*) ;;\n"
	"			*) break ;;\n"
	"			esac\n"
	"		done\n"
	"		if [ \"$i\" -le \"$COMP_CWORD\" ] && { [ \"${cur#-}\" = \"$cur\" "
	"] ||\n"
	"		    [ \"$i\" -lt \"$COMP_CWORD\" ]; } && [ \"$prev\" != = ]; "
	"then\n"
	"			if declare -F _command_offset >/dev/null; then\n"
	"				_command_offset \"$i\"\n"
	"			elif [ \"$i\" -eq \"$COMP_CWORD\" ]; then\n"
	"				COMPREPLY=($(compgen -c -- \"$cur\"))\n"
	"			else\n"
	"				COMPREPLY=($(compgen -f -- \"$cur\"))\n"
	"			fi\n"
	"			return\n"
	"		fi\n"
	"	fi\n";

static void print_bash(FILE *out)
{
	static const struct value_forms forms = {
		.free = "return ;;\n",
		.file = "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n",
		.profile = "COMPREPLY=($(compgen -W \"$" PROFILES
			   "\" -- \"$cur\")); return ;;\n",
		.words = { "COMPREPLY=($(compgen -W '", "' -- \"$cur\")); return ;;\n" },
	};
	char valued[1024] = "";
	const struct cli_verb *v;

	fputs(bash_head, out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		fprintf(out, "%s ", v->name);
	fputs("' -- \"$cur\"))\n		return\n	fi\n	case \"$verb "
	      "$prev\" in\n",
	      out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		for (size_t j = 0; option_at(v, j); j++) {
			if (value_kind(option_at(v, j)) == VALUE_NONE)
				continue;
			fprintf(out, "	'%s --%s') ", v->name, option_at(v, j)->name);
			print_value(out, &forms, option_at(v, j));
		}
	fputs("	esac\n", out);
	run_valued("|", valued, sizeof(valued));
	fprintf(out, bash_command, valued);
	fputs("	case \"$verb\" in\n", out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++) {
		fprintf(out, "	%s) COMPREPLY=($(compgen -W '", v->name);
		for (size_t j = 0; option_at(v, j); j++)
			fprintf(out, "--%s ", option_at(v, j)->name);
		if (v->words)
			print_words(out, v->words);
		fputs("' -- \"$cur\")) ;;\n", out);
	}
	fputs("	esac\n}\ncomplete -o default -F _weir weir\n", out);
}

/* --- zsh --- */

static void print_zsh(FILE *out)
{
	static const struct value_forms forms = {
		.free = ":value:",
		.file = ":file:_files",
		.profile = ":profile:{compadd -- $" PROFILES "}",
		.words = { ":word:(", ")" },
	};
	const struct cli_option *o;
	const struct cli_verb *v;

	fputs("#compdef weir\n"
	      "# zsh completion of weir: eval \"$(weir completion zsh)\"\n"
	      "_weir() {\n"
	      "	if (( CURRENT == 2 )); then\n"
	      "		local -a verbs=(",
	      out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++) {
		fprintf(out, " '%s:", v->name);
		print_help(out, v->help);
		fputc('\'', out);
	}
	fputs(" )\n		_describe verb verbs\n		return\n	fi\n"
	      "	shift words\n	(( CURRENT-- ))\n	case $words[1] in\n",
	      out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++) {
		fprintf(out, "	%s)\n		_arguments -S", v->name);
		for (size_t j = 0; (o = option_at(v, j)); j++) {
			fprintf(out, " \\\n\t\t'%s--%s[", o->separator ? "*" : "",
				o->name);
			print_help(out, o->help);
			fputc(']', out);
			print_value(out, &forms, o);
			fputc('\'', out);
		}
		if (v->words) {
			fputs(" \\\n\t\t'1:word:(", out);
			print_words(out, v->words);
			fputs(")'", out);
		}
		fputs(has_command(v) ? " \\\n\t\t'(-)1:command:_command_names -e' "
				       "'*::arguments:_normal'\n"
				     : " \\\n\t\t'*:file:_files'\n",
		      out);
		fputs("		;;\n", out);
	}
	/* A file of fpath is read by the first call, which then is to be answered. */
	fputs("	esac\n}\n"
	      "if [[ $funcstack[1] == _weir ]]; then _weir \"$@\"; "
	      "else compdef _weir weir; fi\n",
	      out);
}

/* --- fish --- */

/* Conditions: the verb is this one; a command stands behind run's options (%s), whose
 * options are its own. */
static const char fish_head[] =
	"# fish completion of weir: weir completion fish | source\n"
	"function __weir_verb\n"
	"	set -l words (commandline -opc)\n"
	"	test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
	"end\n"
	"function __weir_command\n"
	"	set -l words (commandline -opc)\n"
	"	set -l i 3\n"
	"	while test $i -le (count $words)\n"
	"		switch $words[$i]\n"
	"			case '--*=*'\n"
	"			case %s\n"
	"				set i (math $i + 1)\n"
	"			case --\n"
	"				return 0\n"
	"			case '-*'\n"
	"			case '*'\n"
	"				return 0\n"
	"		end\n"
	"		set i (math $i + 1)\n"
	"	end\n"
	"	return 1\n"
	"end\n";

static void print_fish(FILE *out)
{
	static const struct value_forms forms = {
		.free = " -x",
		.file = " -r -F",
		.profile = " -x -a '" PROFILES "'",
		.words = { " -x -a '", "'" },
	};
	const struct cli_option *o;
	char valued[1024] = "";
	const struct cli_verb *v;

	run_valued(" ", valued, sizeof(valued));
	fprintf(out, fish_head, valued);
	for (size_t i = 0; (v = cli_verb_at(i)); i++) {
		fprintf(out, "complete -c weir -f -n __fish_use_subcommand -a %s -d '",
			v->name);
		print_help(out, v->help);
		fputs("'\n", out);
		for (size_t j = 0; (o = option_at(v, j)); j++) {
			fprintf(out, "complete -c weir -n '__weir_verb %s%s' -l %s",
				v->name, has_command(v) ? "; and not __weir_command" : "",
				o->name);
			print_value(out, &forms, o);
			fputs(" -d '", out);
			print_help(out, o->help);
			fputs("'\n", out);
		}
		if (v->words) {
			fprintf(out, "complete -c weir -n '__weir_verb %s' -a '",
				v->name);
			print_words(out, v->words);
			fputs("'\n", out);
		}
		/* "-" is no option of ours; behind it fish leaves ours alone. */
		if (has_command(v))
			fprintf(out,
				"complete -c weir -n '__weir_verb %s' -x -a "
				"'(__fish_complete_subcommand --fcs-skip=2 - %s)'\n",
				v->name, valued);
	}
}

/* --- the verb --- */

static const struct shell {
	const char *name;
	void (*print)(FILE *out);
} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

static const struct cli_options completion_options = {
	.usage = "usage: weir completion " CLI_COMPLETION_WORDS "\n\n"
		 "Print what the shell needs to complete weir's command lines:\n\n"
		 "  eval \"$(weir completion bash)\"      in ~/.bashrc\n"
		 "  eval \"$(weir completion zsh)\"       in ~/.zshrc, behind compinit\n"
		 "  weir completion fish | source       in ~/.config/fish/config.fish\n",
};

static int cli_completion(int argc, char **argv)
{
	const struct shell *shell = argc == 2 ? TEXT_FIND(text_of(argv[1]), shells)
					      : NULL;

	if (!shell)
		return log_end(RUN_STATUS_BAD_INPUT,
			       "completion is for one of bash, zsh, fish");
	shell->print(stdout);
	return 0;
}

/* === the verbs === */

static int verb_events(int argc, char **argv);

static int run(struct run_spec *spec)
{
	return spec->cgroup || spec->uid ? run_host(spec) : control_run(spec);
}

/* `weir run` and `weir learn`. The command line first, then the environment, then the
 * files: what comes first counts. */
static int verb_run(int argc, char **argv)
{
	const bool learns = strcmp(argv[0], "learn") == 0;
	const struct cli_options *table = learns ? &cli_learn_options : &cli_run_options;
	struct run_spec spec;
	struct err err = { 0 };
	const char *stray;
	int status, r;

	if (learns && cli_learn_is_from(argc, argv))
		return verb_events(argc, argv);
	r = cli_run_parse(table, argc, argv, &spec, &err);
	if (r == 0)
		r = cli_options_environment(table, &spec, &spec.arena, &spec.given, &err);
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
	if (needs_check_place(&err) < 0)
		return log_end(RUN_STATUS_FAILED, "%s", err.text);
	stray = cli_options_stray_variable(table);
	if (stray && !spec.quiet)
		log_warning("%s is a variable of no option, ignoring",
			    TEXT_SHOWN((struct text){ stray, strcspn(stray, "=") }));
	status = run(&spec);
	if (status == RUN_STATUS_FAILED && cli_doctor_blames(run))
		log_error("`weir doctor` says more");
	return status;
}

/* `weir sidecar` and `weir daemon`. */
static int verb_guard(int argc, char **argv)
{
	const bool is_daemon = strcmp(argv[0], "daemon") == 0;
	CLEAN(mem) struct sidecar_spec *spec = calloc(1, sizeof(*spec));
	struct err err = { 0 };
	int r;

	if (!spec)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	r = is_daemon ? cli_daemon_parse(argc, argv, spec, &err)
		      : cli_sidecar_parse(argc, argv, spec, &err);
	if (r < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "%s", err.text);
	if (!is_daemon)
		return sidecar_run(spec);
	/* No name server is asked that was not named. */
	if (spec->upstream_count == 0)
		return log_end(RUN_STATUS_FAILED,
			       "%s names no usable name server: name one with --upstream",
			       spec->resolv_conf);
	return daemon_run(spec);
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
	OPTION_ROWS(json_only),
	.usage = "usage: weir version [--json]\n\nPrint the version.\n",
};
static const struct cli_options help_options = {
	OPTION_ROWS(json_only),
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
	  verb_run, &cli_learn_options, .serves = true },
	{ "doctor", "try what `weir run` needs of this machine", verb_doctor,
	  &cli_doctor_options },
	{ "sidecar", "guard the network namespace that this container shares with an app",
	  verb_guard, &cli_sidecar_options, .group = "guard a container",
	  .serves = true },
	{ "container", "run a container of Docker or podman that is guarded",
	  cli_container, &cli_container_options, CLI_CONTAINER_WORDS, .serves = true },
	{ "inject", "print Kubernetes workloads with the sidecar in them", cli_inject,
	  &cli_inject_options },
	{ "daemon", "guard any number of sandboxes of this host", verb_guard,
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
	  &completion_options, CLI_COMPLETION_WORDS, .group = "this program" },
	{ "version", "print the version", verb_version, &version_options },
	{ "help", "list the verbs, or explain one", verb_help, &help_options },
};

static const struct cli_verb *cli_verb_at(size_t i)
{
	return i < ARRAY_SIZE(verbs) ? &verbs[i] : NULL;
}

static const struct cli_verb *verb_find(const char *name)
{
	return TEXT_FIND(text_of(name), verbs);
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

static json_t *verb_json(const struct cli_verb *v)
{
	const struct cli_verb *titled = v;
	json_t *options = json_array();
	const struct cli_option *o;

	while (!titled->group)
		titled--;
	for (size_t i = 0; v->options && (o = cli_option_at(v->options, i)); i++) {
		json_array_append_new(options,
				      json_pack("{s:s, s:s?, s:s, s:b}", "name", o->name,
						"argument", o->arg, "help", o->help,
						"repeats", o->separator != '\0'));
	}
	return json_pack("{s:s, s:s, s:s, s:s?, s:o}", "name", v->name, "group",
			 titled->group, "help", v->help, "words", v->words, "options",
			 options);
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
		if (first + 1 < argc &&
		    cli_option_word(v->words ?: "", argv[first + 1], NULL) < 0) {
			too_many("help", argv[first + 1], &err);
			return log_end(RUN_STATUS_BAD_INPUT, "%s", err.text);
		}
	}
	if (json) {
		/* The table of verbs, or the row of one, for programs. */
		json_t *all = v ? verb_json(v) : json_array();

		for (size_t i = 0; !v && i < ARRAY_SIZE(verbs); i++)
			json_array_append_new(all, verb_json(&verbs[i]));
		return print_json(all, 0, stdout) < 0 ? RUN_STATUS_FAILED : 0;
	}
	if (v)
		cli_usage_print(stdout, v->options);
	else
		overview(stdout);
	return 0;
}

/* What was printed has to have arrived; where the answer is no (1), too. */
static int finish(int status)
{
	if (status > 1 || (fflush(stdout) == 0 && !ferror(stdout)))
		return status;
	return log_end(RUN_STATUS_FAILED, "cannot write the output");
}

static int cli_main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct cli_verb *v;
	bool asks;
	int at;

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
	/* `weir VERB --help`, and with the verb's own word before it: `weir policy
	 * explain
	 * --help`. */
	at = v->words && argc > 3 && argv[2][0] != '-' ? 3 : 2;
	asks = argc > at &&
	       (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0);
	if (asks || !v->serves)
		end_with_reader();
	if (asks) {
		cli_usage_print(stdout, v->options);
		return finish(0);
	}
	return finish(v->main(argc - 1, argv + 1));
}

/* === the program === */

/* Large pools get pages of their own, which are zero and no memory until they are used.
 * Without this the C library raises the size from which it does so with the first large
 * block that is freed. */
enum { LARGE_BLOCK = 128 * 1024 };

/* The names that OpenSandbox's image has its programs by: its own start scripts and tests
 * call them. What removes the rules there removes none here. */
static const char *const aliases[] = { "egress", "supervisor", "cleanup.sh" };
enum { ALIAS_EGRESS = 0, ALIAS_SUPERVISOR, ALIAS_CLEANUP, ALIAS_ARGS_MAX = 128 };

int main(int argc, char **argv)
{
	char weir[] = "weir", sidecar[] = "sidecar";
	char *args[ALIAS_ARGS_MAX + 3] = { weir, sidecar };
	const char *path = argc > 0 ? argv[0] : "", *slash = strrchr(path, '/');
	const char *const *alias = TEXT_FIND(text_of(slash ? slash + 1 : path), aliases);
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	/* A file size limit (ulimit -f) is an error to report, not a signal that
	 * kills. */
	sigaction(SIGXFSZ, &ignore, NULL);
	/* What is opened later must not end up as standard input, output or error. */
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return RUN_STATUS_FAILED;
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
	if (!alias)
		return cli_main(argc, argv);
	if (alias - aliases == ALIAS_CLEANUP)
		return 0;
	argc = alias - aliases == ALIAS_EGRESS ? MIN(argc - 1, (int)ALIAS_ARGS_MAX) : 0;
	for (int i = 0; i < argc; i++)
		args[2 + i] = argv[1 + i];
	return cli_main(2 + argc, args);
}
