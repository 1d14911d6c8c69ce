// SPDX-License-Identifier: Apache-2.0
#include "sys/options.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "sys/print.h"

enum { HELP_COLUMN = 28, VARIABLE_SIZE = 64 };

const struct cli_option *cli_option_at(const struct cli_options *table, size_t i)
{
	const size_t others = table->also ? table->also->count : 0;

	if (i < others)
		return &table->also->items[i];
	return i - others < table->count ? &table->items[i - others] : NULL;
}

const struct cli_option *cli_option_find(const struct cli_options *table,
					 struct text name)
{
	const struct cli_option *o;

	for (size_t i = 0; (o = cli_option_at(table, i)); i++)
		if (text_equal(name, o->name) || (o->was && text_equal(name, o->was)))
			return o;
	return NULL;
}

static const char *option_name_at(const void *table, size_t i)
{
	const struct cli_option *o = cli_option_at(table, i);

	return o ? o->name : NULL;
}

/* --- values --- */

int cli_option_word(const char *words, const char *value, struct err *err)
{
	char list[256];
	struct text rest = text_of(words), word;
	size_t used = 0;

	for (int i = 0; text_split(&rest, '|', &word); i++) {
		if (text_equal(word, value))
			return i;
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%.*s",
					 i > 0 ? ", " : "", (int)word.len, word.ptr);
		used = MIN(used, sizeof(list) - 1);
	}
	return err_set(err, -EINVAL, "'%s' is not one of %s", SHOWN(value), list);
}

int cli_option_set(const struct cli_option *o, void *target, const char *value,
		   struct err *err)
{
	void *field = (char *)target + o->offset;
	struct option_list *list = field;
	uint32_t number;
	int r = 0;

	switch (o->kind) {
	case OPTION_CUSTOM:
		return o->set(field, value, err);
	case OPTION_FLAG:
		*(bool *)field = true;
		return 0;
	case OPTION_TEXT_ONCE:
		if (*(const char **)field)
			return err_set(err, -EINVAL, "given twice");
		__attribute__((fallthrough));
	case OPTION_TEXT:
		if (!value[0])
			return err_set(err, -EINVAL, "is empty; %s is needed", o->arg);
		*(const char **)field = value;
		return 0;
	case OPTION_LIST:
		if (list->count == OPTION_LIST_MAX)
			return err_set(err, -EINVAL,
				       "given more than %d times; use a policy file",
				       OPTION_LIST_MAX);
		list->items[list->count++] = value;
		return 0;
	case OPTION_WORD:
		r = cli_option_word(o->arg, value, err);
		if (r >= 0)
			*(int *)field = r;
		return MIN(r, 0);
	case OPTION_WORD_TEXT:
		r = cli_option_word(o->arg, value, err);
		if (r >= 0)
			*(const char **)field = value;
		return MIN(r, 0);
	case OPTION_SWITCH:
		r = cli_option_word("on|off", value, err);
		if (r >= 0)
			*(bool *)field = r == 0;
		return MIN(r, 0);
	case OPTION_NUMBER:
		if (!text_to_u32(text_of(value), o->most, &number) || number < o->least)
			return err_set(err, -EINVAL, "'%s' is not a number from %u to %u",
				       SHOWN(value), o->least, o->most);
		*(uint32_t *)field = number;
		return 0;
	}
	return err_set(err, -EINVAL, "no such kind of option");
}

/* --- the command line --- */

static void mark(const struct cli_options *table, const struct cli_option *o,
		 uint64_t *given)
{
	for (size_t i = 0; given && i < CLI_OPTIONS_MAX; i++)
		if (cli_option_at(table, i) == o)
			*given |= 1ULL << i;
}

static int option_take(const struct cli_options *table, void *target, int argc,
		       char **argv, int *i, uint64_t *given, struct err *err)
{
	const char *text = argv[*i] + 2;
	const char *equals = strchr(text, '=');
	struct text name = { text, equals ? (size_t)(equals - text) : strlen(text) };
	const struct cli_option *o = cli_option_find(table, name);
	const char *value = equals ? equals + 1 : NULL;
	const char *meant = o ? NULL : text_meant(name, option_name_at, table);

	if (!o)
		return err_set(err, -EINVAL, "'--%s' is not an option here%s%s%s",
			       TEXT_SHOWN(name), meant ? "; did you mean --" : "",
			       meant ?: "", meant ? "?" : "");
	if (!o->arg && value)
		return err_set(err, -EINVAL, "--%s takes no value", o->name);
	if (o->arg && !value) {
		if (*i + 1 >= argc || strcmp(argv[*i + 1], "--") == 0)
			return err_set(err, -EINVAL, "--%s needs a value: %s", o->name,
				       o->arg);
		value = argv[++*i];
	}
	if (cli_option_set(o, target, value, err) < 0)
		return err_context(err, "--%s", o->name);
	mark(table, o, given);
	return 0;
}

/* "-o FILE" or "-oFILE". Return: false: no option has that letter. */
static bool letter_take(const struct cli_options *table, void *target, int argc,
			char **argv, int *i, uint64_t *given, struct err *err)
{
	const char *value = argv[*i][2] ? argv[*i] + 2 : NULL;
	const struct cli_option *o = NULL;

	for (size_t n = 0; (o = cli_option_at(table, n)); n++)
		if (o->letter && o->letter == argv[*i][1])
			break;
	if (!o)
		return false;
	if (!value && (*i + 1 >= argc || strcmp(argv[*i + 1], "--") == 0)) {
		err_set(err, -EINVAL, "-%c needs a value: %s", o->letter, o->arg);
		return true;
	}
	if (cli_option_set(o, target, value ?: argv[++*i], err) < 0)
		err_context(err, "-%c", o->letter);
	else
		mark(table, o, given);
	return true;
}

/* Return: the index of the first argument that is left. Faults are in @all. */
static int read_line(const struct cli_options *table, void *target, int argc, char **argv,
		     uint64_t *given, struct err *all)
{
	int i;

	for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
		struct err one = { 0 };

		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		if (argv[i][1] != '-' &&
		    letter_take(table, target, argc, argv, &i, given, &one))
			;
		else if (argv[i][1] != '-')
			err_set(&one, -EINVAL, "'%s' is not an option here",
				SHOWN(argv[i]));
		else
			(void)!option_take(table, target, argc, argv, &i, given, &one);
		err_also(all, &one);
	}
	return i;
}

int cli_options_parse(const struct cli_options *table, void *target, int argc,
		      char **argv, uint64_t *given, struct err *err)
{
	struct err all = { 0 };
	int first = read_line(table, target, argc, argv, given, &all);

	return all.code < 0 ? err_set(err, all.code, "%s", all.text) : first;
}

int cli_options_only(const struct cli_options *table, void *target, int argc, char **argv,
		     uint64_t *given, struct err *err)
{
	struct err all = { 0 }, stray = { 0 };
	int first = read_line(table, target, argc, argv, given, &all);

	if (first < argc)
		err_set(&stray, -EINVAL, "'%s' is one argument too many",
			SHOWN(argv[first]));
	return err_also(&all, &stray) < 0 ? err_set(err, all.code, "%s", all.text) : 0;
}

/* --- the environment --- */

static const char variable_prefix[] = "WEIR_";

static char *variable_name(const char *name, char *buf)
{
	size_t used = strlen(variable_prefix);

	memcpy(buf, variable_prefix, used);
	for (const char *p = name; *p && used < VARIABLE_SIZE - 1; p++)
		buf[used++] = (char)(*p == '-'		      ? '_'
				     : *p >= 'a' && *p <= 'z' ? *p - 'a' + 'A'
							      : *p);
	buf[used] = '\0';
	return buf;
}

static int flag_from(const struct cli_option *o, void *target, const char *value,
		     struct err *err)
{
	if (strcmp(value, "0") == 0 || strcmp(value, "false") == 0)
		return 0;
	if (strcmp(value, "1") == 0 || strcmp(value, "true") == 0)
		return cli_option_set(o, target, NULL, err);
	return err_set(err, -EINVAL, "'%s' is not one of 1, 0, true, false",
		       SHOWN(value));
}

static int list_from(const struct cli_option *o, void *target, const char *value,
		     struct arena *arena, struct err *err)
{
	struct text rest = text_of(value), part;
	int r = 0;

	while (r == 0 && text_split(&rest, o->separator, &part)) {
		const char *copy;

		part = text_trim(part);
		if (part.len == 0)
			continue;
		copy = arena_text(arena, part);
		r = copy ? cli_option_set(o, target, copy, err)
			 : err_set(err, -ENOMEM, "out of memory");
	}
	return r;
}

int cli_options_environment(const struct cli_options *table, void *target,
			    struct arena *arena, uint64_t *given, struct err *err)
{
	struct err all = { 0 };
	const struct cli_option *o;

	for (size_t i = 0; (o = cli_option_at(table, i)); i++) {
		char name[VARIABLE_SIZE];
		const char *value = getenv(variable_name(o->name, name));
		struct err one = { 0 };
		int r;

		if (o->was && (!value || !value[0]))
			value = getenv(variable_name(o->was, name));
		if ((*given >> i & 1) != 0 || !value || !value[0])
			continue;
		if (!o->arg)
			r = flag_from(o, target, value, &one);
		else if (o->separator)
			r = list_from(o, target, value, arena, &one);
		else
			r = cli_option_set(o, target, value, &one);
		if (r < 0) {
			err_context(&one, "%s", name);
			err_also(&all, &one);
		} else {
			mark(table, o, given);
		}
	}
	return all.code < 0 ? err_set(err, all.code, "%s", all.text) : 0;
}

const char *cli_options_stray_variable(const struct cli_options *table)
{
	char buf[VARIABLE_SIZE];
	const struct cli_option *o;

	for (char **e = environ; e && *e; e++) {
		struct text name = { *e, strcspn(*e, "=") };
		bool is_known = text_equal(name, SANDBOX_VARIABLE) ||
				text_equal(name, PROGRAM_VARIABLE);

		if (strncmp(*e, variable_prefix, strlen(variable_prefix)) != 0)
			continue;
		for (size_t i = 0; !is_known && (o = cli_option_at(table, i)); i++)
			is_known =
				text_equal(name, variable_name(o->name, buf)) ||
				(o->was && text_equal(name, variable_name(o->was, buf)));
		if (!is_known)
			return *e;
	}
	return NULL;
}

static void print_options(FILE *out, const struct cli_options *table)
{
	unsigned int width = term_width(out);

	for (size_t i = 0; i < table->count; i++) {
		const struct cli_option *o = &table->items[i];
		const char *arg = o->arg ? o->arg : "";
		int used = fprintf(out, "  --%s%s%s", o->name, *arg ? " " : "", arg);

		/* What is too long for its column has the help below it. */
		if (used >= HELP_COLUMN)
			used = fprintf(out, "\n") - 1;
		fprintf(out, "%*s", HELP_COLUMN - used, "");
		term_wrap(out, o->help, HELP_COLUMN, HELP_COLUMN, width);
	}
}

void cli_usage_print(FILE *out, const struct cli_options *table)
{
	fputs(table->usage, out);
	if (table->words) {
		fputc('\n', out);
		table->words(out);
	}
	if (table->count > 0) {
		fputc('\n', out);
		print_options(out, table);
	}
	if (table->also) {
		fputs("\nbesides:\n", out);
		print_options(out, table->also);
	}
	if (table->notes)
		fprintf(out, "\n%s", table->notes);
}
