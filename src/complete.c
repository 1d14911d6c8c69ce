// SPDX-License-Identifier: Apache-2.0
#include "complete.h"

#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "run/options.h"
#include "verbs.h"

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

static const char profiles[] = "$(weir profile list 2>/dev/null | cut -d\" \" -f1)";

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

static void bash_value(FILE *out, const struct cli_verb *v, const struct cli_option *o)
{
	enum value_kind kind = value_kind(o);

	if (kind == VALUE_NONE)
		return;
	fprintf(out, "	'%s --%s') ", v->name, o->name);
	if (kind == VALUE_FREE) {
		fputs("return ;;\n", out);
		return;
	}
	fputs("COMPREPLY=($(compgen ", out);
	if (kind == VALUE_FILE) {
		fputs("-f", out);
	} else if (kind == VALUE_PROFILE) {
		fprintf(out, "-W \"%s\"", profiles);
	} else {
		fputs("-W '", out);
		print_words(out, o->arg);
		fputc('\'', out);
	}
	fputs(" -- \"$cur\")); return ;;\n", out);
}

static void bash_verb(FILE *out, const struct cli_verb *v)
{
	fprintf(out, "	%s) COMPREPLY=($(compgen -W '", v->name);
	for (size_t i = 0; option_at(v, i); i++)
		fprintf(out, "--%s ", option_at(v, i)->name);
	if (v->words)
		print_words(out, v->words);
	fputs("' -- \"$cur\")) ;;\n", out);
}

static void print_bash(FILE *out)
{
	char valued[1024] = "";
	const struct cli_verb *v;

	fputs(bash_head, out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		fprintf(out, "%s ", v->name);
	fputs("' -- \"$cur\"))\n		return\n	fi\n	case \"$verb "
	      "$prev\" in\n",
	      out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		for (size_t j = 0; option_at(v, j); j++)
			bash_value(out, v, option_at(v, j));
	fputs("	esac\n", out);
	run_valued("|", valued, sizeof(valued));
	fprintf(out, bash_command, valued);
	fputs("	case \"$verb\" in\n", out);
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		bash_verb(out, v);
	fputs("	esac\n}\ncomplete -o default -F _weir weir\n", out);
}

/* --- zsh --- */

static void zsh_option(FILE *out, const struct cli_option *o)
{
	enum value_kind kind = value_kind(o);

	fprintf(out, " \\\n\t\t'%s--%s[", o->separator ? "*" : "", o->name);
	print_help(out, o->help);
	fputc(']', out);
	if (kind == VALUE_FILE)
		fputs(":file:_files", out);
	else if (kind == VALUE_PROFILE)
		fputs(":profile:{compadd -- $(weir profile list 2>/dev/null | "
		      "cut -d\" \" -f1)}",
		      out);
	else if (kind == VALUE_WORDS) {
		fputs(":word:(", out);
		print_words(out, o->arg);
		fputc(')', out);
	} else if (kind == VALUE_FREE)
		fputs(":value:", out);
	fputc('\'', out);
}

static void zsh_verb(FILE *out, const struct cli_verb *v)
{
	fprintf(out, "	%s)\n		_arguments -S", v->name);
	for (size_t i = 0; option_at(v, i); i++)
		zsh_option(out, option_at(v, i));
	if (v->words) {
		fputs(" \\\n\t\t'1:word:(", out);
		print_words(out, v->words);
		fputs(")'", out);
	}
	if (has_command(v))
		fputs(" \\\n\t\t'(-)1:command:_command_names -e' "
		      "'*::arguments:_normal'\n",
		      out);
	else
		fputs(" \\\n\t\t'*:file:_files'\n", out);
	fputs("		;;\n", out);
}

static void print_zsh(FILE *out)
{
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
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		zsh_verb(out, v);
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

static void fish_option(FILE *out, const struct cli_verb *v, const struct cli_option *o)
{
	enum value_kind kind = value_kind(o);

	fprintf(out, "complete -c weir -n '__weir_verb %s%s' -l %s", v->name,
		has_command(v) ? "; and not __weir_command" : "", o->name);
	if (kind == VALUE_FILE)
		fputs(" -r -F", out);
	else if (kind == VALUE_PROFILE)
		fputs(" -x -a '(weir profile list 2>/dev/null | cut -d\" \" -f1)'", out);
	else if (kind == VALUE_WORDS) {
		fputs(" -x -a '", out);
		print_words(out, o->arg);
		fputc('\'', out);
	} else if (kind == VALUE_FREE)
		fputs(" -x", out);
	fputs(" -d '", out);
	print_help(out, o->help);
	fputs("'\n", out);
}

static void fish_verb(FILE *out, const struct cli_verb *v)
{
	char valued[1024] = "";

	fprintf(out, "complete -c weir -f -n __fish_use_subcommand -a %s -d '", v->name);
	print_help(out, v->help);
	fputs("'\n", out);
	for (size_t i = 0; option_at(v, i); i++)
		fish_option(out, v, option_at(v, i));
	if (v->words) {
		fprintf(out, "complete -c weir -n '__weir_verb %s' -a '", v->name);
		print_words(out, v->words);
		fputs("'\n", out);
	}
	if (has_command(v)) {
		run_valued(" ", valued, sizeof(valued));
		/* "-" is no option of ours; behind it fish leaves ours alone. */
		fprintf(out,
			"complete -c weir -n '__weir_verb %s' -x -a "
			"'(__fish_complete_subcommand --fcs-skip=2 - %s)'\n",
			v->name, valued);
	}
}

static void print_fish(FILE *out)
{
	char valued[1024] = "";
	const struct cli_verb *v;

	run_valued(" ", valued, sizeof(valued));
	fprintf(out, fish_head, valued);
	for (size_t i = 0; (v = cli_verb_at(i)); i++)
		fish_verb(out, v);
}

/* --- the verb --- */

static const struct {
	const char *name;
	void (*print)(FILE *out);
} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

const struct cli_options cli_completion_options = {
	.usage = "usage: weir completion " CLI_COMPLETION_WORDS "\n\n"
		 "Print what the shell needs to complete weir's command lines:\n\n"
		 "  eval \"$(weir completion bash)\"      in ~/.bashrc\n"
		 "  eval \"$(weir completion zsh)\"       in ~/.zshrc, behind compinit\n"
		 "  weir completion fish | source       in ~/.config/fish/config.fish\n",
};

int cli_completion(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(shells); i++) {
		if (strcmp(argv[1], shells[i].name) != 0)
			continue;
		shells[i].print(stdout);
		return 0;
	}
	log_error("completion is for one of bash, zsh, fish");
	return RUN_STATUS_BAD_INPUT;
}
