// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

enum { HELP_COLUMN = 28 };

static const struct cli_option *option_find(const struct cli_option *table, size_t count,
					    struct text name)
{
	for (size_t i = 0; i < count; i++)
		if (text_equal(name, table[i].name))
			return &table[i];
	return NULL;
}

static int option_take(const struct cli_option *table, size_t count, void *target,
		       int argc, char **argv, int *i, struct err *err)
{
	const char *text = argv[*i] + 2;
	const char *equals = strchr(text, '=');
	struct text name = { text, equals ? (size_t)(equals - text) : strlen(text) };
	const struct cli_option *o = option_find(table, count, name);
	const char *value = equals ? equals + 1 : NULL;
	char shown[TEXT_ESCAPED_SIZE];

	if (!o)
		return err_set(err, -EINVAL, "'--%s' is not an option here",
			       text_escape(name, shown, sizeof(shown)));
	if (!o->arg && value)
		return err_set(err, -EINVAL, "--%s takes no value", o->name);
	if (o->arg && !value) {
		if (*i + 1 >= argc)
			return err_set(err, -EINVAL, "--%s needs a value: %s", o->name,
				       o->arg);
		value = argv[++*i];
	}
	if (o->set(target, value, err) < 0)
		return err_context(err, "--%s", o->name);
	return 0;
}

int cli_options_parse(const struct cli_option *table, size_t count, void *target,
		      int argc, char **argv, struct err *err)
{
	char shown[TEXT_ESCAPED_SIZE];
	int i;

	for (i = 1; i < argc; i++) {
		int r;

		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		if (argv[i][0] != '-' || argv[i][1] == '\0')
			return i;
		if (argv[i][1] != '-')
			return err_set(
				err, -EINVAL, "'%s' is not an option here",
				text_escape(text_of(argv[i]), shown, sizeof(shown)));
		r = option_take(table, count, target, argc, argv, &i, err);
		if (r < 0)
			return r;
	}
	return i;
}

void cli_options_print(FILE *out, const struct cli_option *table, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *arg = table[i].arg ? table[i].arg : "";
		int used =
			fprintf(out, "  --%s%s%s", table[i].name, *arg ? " " : "", arg);

		fprintf(out, "%*s%s\n", used < HELP_COLUMN ? HELP_COLUMN - used : 2, "",
			table[i].help);
	}
}
