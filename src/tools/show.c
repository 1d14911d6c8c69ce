// SPDX-License-Identifier: Apache-2.0
/* detach, ps, status: what the daemon guards, and how. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "outputs/ask.h"
#include "sys/print.h"
#include "tools/attach.h"

struct spec {
	const char *socket;
	bool json;
};

#define SOCKET_OPTION                                                                    \
	{                                                                                \
		"socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",     \
			OPTION_IN(TEXT, struct spec, socket)                             \
	}

static const struct cli_option detach_options[] = { SOCKET_OPTION };
const struct cli_options cli_detach_options = { detach_options,
						ARRAY_SIZE(detach_options) };

static const struct cli_option show_options[] = {
	{ "json", NULL, "print JSON", OPTION_IN(FLAG, struct spec, json) },
	SOCKET_OPTION,
};
const struct cli_options cli_ps_options = { show_options, ARRAY_SIZE(show_options) };
const struct cli_options cli_status_options = { show_options, ARRAY_SIZE(show_options) };

void cli_detach_usage(FILE *out)
{
	fputs("usage: weir detach [--socket PATH] ID\n\n"
	      "Guard a sandbox no more: its rules are removed, and it is open.\n\n",
	      out);
	cli_options_print(out, &cli_detach_options);
	fputs("\nExit status: 0; 2 bad input; 125 its rules are not gone.\n", out);
}

void cli_ps_usage(FILE *out)
{
	fputs("usage: weir ps [--json] [--socket PATH]\n\n"
	      "List the sandboxes that the daemon guards.\n\n",
	      out);
	cli_options_print(out, &cli_ps_options);
	fputs("\nExit status: 0; 2 bad input; 125 the daemon can't be asked.\n", out);
}

void cli_status_usage(FILE *out)
{
	fputs("usage: weir status [--json] [--socket PATH] [ID]\n\n"
	      "Say how the daemon guards a sandbox, or each of them in a line, and what "
	      "is\nweaker than asked for.\n\n",
	      out);
	cli_options_print(out, &cli_status_options);
	fputs("\nExit status: 0, also of what is degraded; 2 bad input; 125 the daemon "
	      "can't be\nasked, or has no such sandbox.\n",
	      out);
}

/* Return: 0, or the exit status after a message. */
static int read_arguments(const struct cli_options *table, struct spec *spec, int argc,
			  char **argv, int at_least, int at_most, int *ret_first)
{
	char shown[TEXT_ESCAPED_SIZE];
	struct err err = { 0 };
	int first = cli_options_parse(table, spec, argc, argv, NULL, &err);

	if (first >= 0 && argc - first < at_least)
		err_set(&err, -EINVAL, "name one sandbox");
	if (first >= 0 && argc - first > at_most)
		err_set(&err, -EINVAL, "'%s' is one argument too many",
			text_escape(text_of(argv[first + at_most]), shown,
				    sizeof(shown)));
	if (err.code < 0) {
		log_error("%s: %s", argv[0], err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	*ret_first = first;
	return first < argc && !daemon_is_id(argv[first]) ? daemon_bad_id(argv[first])
							  : 0;
}

int cli_detach(int argc, char **argv)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct spec spec = { 0 };
	struct client_reply reply;
	int first;
	int r = read_arguments(&cli_detach_options, &spec, argc, argv, 1, 1, &first);

	if (r != 0)
		return r;
	return daemon_ask(spec.socket, "DELETE",
			  arena_printf(&arena, "/sandboxes/%s", argv[first]), text_of(""),
			  &arena, &reply);
}

/* -- what comes back ---------------------------------------------------------------- */

/* A member as a person reads it; it comes from the daemon, which has it from others. */
static const char *word(const json_t *of, const char *key, char buffer[TEXT_ESCAPED_SIZE])
{
	const json_t *value = json_object_get(of, key);

	if (json_is_integer(value))
		snprintf(buffer, TEXT_ESCAPED_SIZE, "%" JSON_INTEGER_FORMAT,
			 json_integer_value(value));
	else
		text_escape(
			text_of(json_is_string(value) ? json_string_value(value) : "?"),
			buffer, TEXT_ESCAPED_SIZE);
	return buffer;
}

static const char *kind_of(const json_t *one)
{
	const char *kind = json_string_value(json_object_get(one, "kind"));

	return kind ? kind : "";
}

static json_int_t number(const json_t *of, const char *key)
{
	return json_integer_value(json_object_get(of, key));
}

/* Return: the JSON, or NULL with the exit status in @ret after a message. */
static json_t *get(const struct spec *s, const char *path, int *ret)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct client_reply reply;
	json_t *j = NULL;

	*ret = daemon_ask(s->socket, "GET", path, text_of(""), &arena, &reply);
	if (*ret != 0)
		return NULL;
	j = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	if (!json_is_object(j)) {
		log_error("the daemon's answer is not as it should be");
		json_decref(j);
		*ret = RUN_STATUS_FAILED;
		return NULL;
	}
	return j;
}

/* Return: the exit status. */
static int print_answer(json_t *j)
{
	if (print_json(json_incref(j), JSON_COMPACT, stdout) == 0 && fflush(stdout) == 0)
		return 0;
	log_error("cannot write the output");
	return RUN_STATUS_FAILED;
}

/* To whom the list may look as if that were all. */
static void warn_of_more(const json_t *list)
{
	if (json_is_true(json_object_get(list, "takingOver")))
		log_warning("the daemon is being started: there may be more");
}

/* -- ps ----------------------------------------------------------------------------- */

static void print_row(const json_t *one)
{
	char id[TEXT_ESCAPED_SIZE], mode[TEXT_ESCAPED_SIZE], policy[TEXT_ESCAPED_SIZE];
	char where[TEXT_ESCAPED_SIZE];

	printf("%-20s %-6s  %-16s  %-9s %5" JSON_INTEGER_FORMAT " %7" JSON_INTEGER_FORMAT
	       "  %s\n",
	       word(one, "id", id), kind_of(one), word(one, "mode", mode),
	       word(one, "policyMode", policy), number(one, "rules"),
	       number(one, "denies"), word(one, kind_of(one), where));
}

int cli_ps(int argc, char **argv)
{
	struct spec spec = { 0 };
	json_t *j, *one;
	size_t i;
	int first;
	int r = read_arguments(&cli_ps_options, &spec, argc, argv, 0, 0, &first);

	if (r != 0)
		return r;
	j = get(&spec, "/sandboxes", &r);
	if (!j)
		return r;
	if (spec.json) {
		r = print_answer(j);
	} else {
		printf("%-20s %-6s  %-16s  %-9s %5s %7s  %s\n", "ID", "KIND", "MODE",
		       "POLICY", "RULES", "DENIES", "WHERE");
		json_array_foreach(json_object_get(j, "sandboxes"), i, one)
			print_row(one);
		warn_of_more(j);
	}
	json_decref(j);
	return r;
}

/* -- status ------------------------------------------------------------------------- */

static void print_degradations(const json_t *status, const char *before)
{
	char what[TEXT_ESCAPED_SIZE], reason[TEXT_ESCAPED_SIZE];
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(status, "degradations"), i, one)
		printf("%s%s: %s\n", before, word(one, "what", what),
		       word(one, "reason", reason));
}

static const char *isolation(const json_t *status)
{
	return json_is_true(json_object_get(status, "fullIsolation")) ? "full"
								      : "degraded";
}

static void print_one(const json_t *one, const json_t *status)
{
	const json_t *learned = json_object_get(status, "learned");
	const char *key;
	json_t *value;
	char text[TEXT_ESCAPED_SIZE];

	printf("id          %s\n", word(one, "id", text));
	printf("%-12s%s\n", kind_of(one), word(one, kind_of(one), text));
	printf("isolation   %s", isolation(status));
	printf(", %s", word(status, "mode", text));
	printf(", since %s\n", word(status, "since", text));
	printf("policy      %s, rules: %" JSON_INTEGER_FORMAT
	       ", generation %" JSON_INTEGER_FORMAT ", changes: %" JSON_INTEGER_FORMAT
	       "\n",
	       word(status, "policyMode", text), number(status, "rules"),
	       number(status, "generation"), number(status, "policyUpdates"));
	printf("learned     addresses: %" JSON_INTEGER_FORMAT
	       ", names: %" JSON_INTEGER_FORMAT "\n",
	       number(learned, "addresses"), number(learned, "names"));
	printf("denies      %" JSON_INTEGER_FORMAT "\n", number(one, "denies"));
	if (json_is_string(json_object_get(status, "closed")))
		printf("closed      %s\n", word(status, "closed", text));
	print_degradations(status, "degraded    ");
	puts("counters");
	json_object_foreach(json_object_get(status, "counters"), key,
			    value) if (json_integer_value(value) != 0)
		printf("  %-24s%" JSON_INTEGER_FORMAT "\n", key,
		       json_integer_value(value));
}

static json_t *get_of(const struct spec *s, const char *id, const char *below, int *ret)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "/sandboxes/%s%s", id, below);

	if (path)
		return get(s, path, ret);
	log_error("out of memory");
	*ret = RUN_STATUS_FAILED;
	return NULL;
}

static int show_one(const struct spec *s, const char *id)
{
	int r;
	json_t *one = get_of(s, id, "", &r);
	json_t *status = one ? get_of(s, id, "/status", &r) : NULL;

	if (status && s->json) {
		json_object_set(one, "status", status);
		r = print_answer(one);
	} else if (status) {
		print_one(one, status);
	}
	json_decref(one);
	json_decref(status);
	return r;
}

static void print_status_line(const json_t *one, const json_t *status)
{
	char id[TEXT_ESCAPED_SIZE], mode[TEXT_ESCAPED_SIZE];

	printf("%-20s %-9s  %s\n", word(one, "id", id), isolation(status),
	       word(status, "mode", mode));
	print_degradations(status, "    ");
}

static int show_each(const struct spec *s, json_t *list)
{
	json_t *one, *status;
	size_t i;
	int r;

	json_array_foreach(list, i, one)
	{
		const char *id = json_string_value(json_object_get(one, "id"));

		status = get_of(s, id ? id : "", "/status", &r);
		if (!status)
			return r;
		if (s->json)
			json_object_set(one, "status", status);
		else
			print_status_line(one, status);
		json_decref(status);
	}
	return 0;
}

static int show_all(const struct spec *s)
{
	int r;
	json_t *daemon = get(s, "/status", &r);
	json_t *all = daemon ? get(s, "/sandboxes", &r) : NULL;
	json_t *list = json_object_get(all, "sandboxes");
	char version[TEXT_ESCAPED_SIZE];

	if (all && !s->json) {
		printf("weir daemon %s, sandboxes: %zu, engines: %" JSON_INTEGER_FORMAT
		       ", engine restarts: %" JSON_INTEGER_FORMAT "\n",
		       word(daemon, "version", version), json_array_size(list),
		       number(daemon, "engines"), number(daemon, "engineRestarts"));
		print_degradations(daemon, "    ");
	}
	if (all)
		r = show_each(s, list);
	if (all && !s->json)
		warn_of_more(all);
	if (r == 0 && s->json) {
		json_object_set(all, "status", daemon);
		r = print_answer(all);
	}
	json_decref(daemon);
	json_decref(all);
	return r;
}

int cli_status(int argc, char **argv)
{
	struct spec spec = { 0 };
	int first;
	int r = read_arguments(&cli_status_options, &spec, argc, argv, 0, 1, &first);

	if (r != 0)
		return r;
	return first < argc ? show_one(&spec, argv[first]) : show_all(&spec);
}
