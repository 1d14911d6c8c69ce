// SPDX-License-Identifier: Apache-2.0
#include "tools/policy.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "sys/options.h"
#include "sys/print.h"
#include "tools/tools.h"

enum { POLICIES_DIFFER = 1 };

struct spec {
	struct policy_args policy;
	const char *questions;	  /* --file of explain */
	const char *id, *socket;  /* of a sandbox of the daemon's */
	const char *from, *place; /* of import */
	bool json, any_depth;
	int rest; /* index of the first argument that is no option */
};

#define IMPORT_WORDS "sandbox-runtime|claude-code|codex|harden-runner|kubernetes|cilium"

static const struct cli_option options[] = {
	POLICY_ARGS_ROWS(struct spec, policy),
	{ "file", "FILE", "explain: read what is asked from FILE, one a line",
	  OPTION_IN(TEXT, struct spec, questions) },
	{ "id", "NAME",
	  "show: the policy of a run, or of a sandbox that the daemon guards",
	  OPTION_IN(TEXT, struct spec, id) },
	{ "socket", "PATH",
	  "set, patch, show: where the daemon's API is (/run/weir/weir.sock); its alone",
	  OPTION_IN(TEXT, struct spec, socket) },
	POLICY_FOR_ROW(
		struct spec, policy.for_ms,
		"set, patch: what the file allows ends that long from now: 10m, 1h"),
	{ "from", IMPORT_WORDS, "import: whose settings FILE has (by what is in it)",
	  OPTION_IN(WORD_TEXT, struct spec, from) },
	{ "at", "PLACE", "import: of several places in FILE that one",
	  OPTION_IN(TEXT, struct spec, place) },
	{ "any-depth", NULL,
	  "import: take Cilium's *.NAME, one label more, for names of any depth",
	  OPTION_IN(FLAG, struct spec, any_depth) },
	{ "json", NULL, "print JSON", OPTION_IN(FLAG, struct spec, json) },
};
static void print_words(FILE *out);

const struct cli_options cli_policy_options = {
	.items = options,
	.count = ARRAY_SIZE(options),
	.usage = "usage: weir policy VERB [OPTION]... [ARGUMENT]...\n",
	.words = print_words,
};

/* What every verb works on. */
struct context {
	const struct spec *spec;
	struct policy policy;
	struct plan plan;
	char *const *arguments; /* behind the options */
	size_t argument_count;
};

static const char *const levels[] = {
	[FAULT_ERROR] = "error",
	[FAULT_WARNING] = "warning",
	[FAULT_HINT] = "hint",
};

static void count_rules(const struct policy *p, size_t *ret_names, size_t *ret_addresses)
{
	size_t addresses = 0;

	for (size_t i = 0; i < p->count; i++)
		addresses += p->rules[i].kind == TARGET_PREFIX;
	*ret_addresses = addresses;
	*ret_names = p->count - addresses;
}

static int print_faults(const struct faults *faults, const struct policy *policy,
			bool valid, FILE *out)
{
	json_t *list = json_array(), *all;
	size_t names, addresses;

	for (size_t i = 0; i < faults->count; i++) {
		const struct fault *f = &faults->items[i];
		json_t *file = json_string(f->file);

		/* A path that is no text is left out. */
		json_array_append_new(list,
				      json_pack("{s:s, s:o, s:i, s:i, s:s, s:s}", "level",
						levels[f->level], "file",
						file ? file : json_null(), "line",
						(int)f->line, "column", (int)f->column,
						"path", f->path, "text", f->text));
	}
	count_rules(policy, &names, &addresses);
	all = json_pack("{s:b, s:I, s:I, s:o, s:I}", "valid", valid, "names",
			(json_int_t)names, "addresses", (json_int_t)addresses, "faults",
			list, "more", (json_int_t)faults->dropped);
	return print_json(all, 0, out);
}

/* Every fault of a policy. Return: the exit status. */
static int check_as_json(const struct policy_args *args)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct faults faults = { 0 };
	struct policy policy = { 0 };
	int r = cli_policy_load(args, &arena, &faults, &policy);
	bool printed = r != -ENOMEM &&
		       print_faults(&faults, &policy, r == 0, stdout) == 0 &&
		       fflush(stdout) == 0;

	faults_done(&faults);
	if (!printed) {
		log_error("cannot print the faults as JSON");
		return RUN_STATUS_FAILED;
	}
	return r < 0 ? RUN_STATUS_BAD_INPUT : 0;
}

static int verb_check(const struct context *c)
{
	size_t names, addresses;

	count_rules(&c->policy, &names, &addresses);
	printf("the policy is valid; rules for names: %zu, for addresses: %zu\n", names,
	       addresses);
	return 0;
}

/* The lines of a file, without comments. Everything lives in @arena. */
static int read_questions(const char *path, struct arena *arena, char ***ret,
			  size_t *ret_count, struct err *err)
{
	struct text text, line;
	char **lines;
	size_t n = 0;
	int r = cli_read_file(path, arena, &text, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < text.len; i++)
		n += text.ptr[i] == '\n';
	lines = arena_array(arena, n + 1, sizeof(*lines));
	n = 0;
	while (lines && text_split(&text, '\n', &line)) {
		line = text_without_comment(line);
		if (line.len > 0 && !(lines[n++] = arena_text(arena, line)))
			return err_set(err, -ENOMEM, "out of memory");
	}
	if (!lines)
		return err_set(err, -ENOMEM, "out of memory");
	*ret = lines;
	*ret_count = n;
	return 0;
}

static int verb_explain(const struct context *c)
{
	CLEAN(arena) struct arena arena = { 0 };
	char **questions = NULL;
	size_t count = 0;
	struct err err = { 0 };
	int r = 0;

	if (c->spec->questions)
		r = read_questions(c->spec->questions, &arena, &questions, &count, &err);
	else
		count = c->argument_count;
	if (r == 0)
		r = cli_policy_explain(&c->plan, questions ? questions : c->arguments,
				       count, c->spec->json, stdout, &err);
	if (r == 0 && !c->spec->json)
		policy_explain_needs(&c->policy, "", stdout);
	if (r < 0)
		log_error("%s", err.text);
	return run_status_of(r);
}

static int verb_show(const struct context *c)
{
	if (cli_policy_show(&c->policy, &c->plan, c->spec->json, stdout) == 0)
		return 0;
	log_error("cannot show the policy: out of memory");
	return RUN_STATUS_FAILED;
}

static const struct verb {
	const char *name, *arguments, *help;
	int (*run)(const struct context *c);
	enum {
		ONE_FILE = 0,
		QUESTIONS,
		TWO_POLICIES,
		FOREIGN_FILE,
		SANDBOX,
		SANDBOX_PATCH
	} takes;
} verbs[] = {
	{ "check", "[FILE]",
	  "report every fault of a policy, and what looks like a mistake", verb_check,
	  ONE_FILE },
	{ "explain", "NAME|ADDRESS[:PORT]|URL...",
	  "say what the policy decides, and which rule does", verb_explain, QUESTIONS },
	{ "show", "[FILE]", "print the policy with everything that it extends", verb_show,
	  ONE_FILE },
	{ "show", "--id NAME",
	  "print the policy of a run, or of a sandbox that the daemon guards" },
	{ "diff", "A B", "say what two files or profiles decide differently", NULL,
	  TWO_POLICIES },
	{ "import", "FILE", "print the lists of another tool's settings as a policy",
	  NULL, FOREIGN_FILE },
	{ "set", "ID FILE",
	  "replace the policy of a run, or of a sandbox that the daemon guards", NULL,
	  SANDBOX },
	{ "patch", "ID FILE", "put the file's rules in front of that sandbox's", NULL,
	  SANDBOX_PATCH },
};

static const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	}
	return NULL;
}

static int bad_verb(const char *name)
{
	static const char there[] = "check, explain, show, diff, import, set or patch";

	if (name)
		log_error("policy: '%s' is not one of %s", SHOWN(name), there);
	else
		log_error("policy needs one of %s", there);
	return RUN_STATUS_BAD_INPUT;
}

static void print_words(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(out, "  %s %s\n%*s%s\n", verbs[i].name, verbs[i].arguments, 10,
			"", verbs[i].help);
}

static int bad_usage(const char *why)
{
	log_error("%s; `weir help policy` lists what there is", why);
	return RUN_STATUS_BAD_INPUT;
}

static bool has_policy(const struct spec *s)
{
	const struct policy_args *p = &s->policy;

	return p->file || p->profiles.count > 0 || p->allow.count > 0 ||
	       p->deny.count > 0;
}

/* Arguments behind the options: one file, or the questions. */
static int check_arguments(const struct verb *v, struct spec *s, int argc, char **argv,
			   struct err *err)
{
	int count = argc - s->rest;

	if (s->id && v->run != verb_show)
		return err_set(err, -EINVAL, "--id goes with show alone");
	if (s->socket && v->takes < SANDBOX && !s->id)
		return err_set(err, -EINVAL, "--socket goes with set, patch, show --id");
	if (s->id && (count > 0 || has_policy(s)))
		return err_set(err, -EINVAL, "--id shows what that sandbox has, alone");

	if ((s->from || s->place || s->any_depth) && v->takes != FOREIGN_FILE)
		return err_set(err, -EINVAL, "--%s goes with import alone",
			       s->from	  ? "from"
			       : s->place ? "at"
					  : "any-depth");
	if (s->policy.for_ms > 0 && v->takes < SANDBOX)
		return err_set(err, -EINVAL, "--for goes with set and patch alone");
	if (v->takes == TWO_POLICIES)
		return count == 2 ? 0 : err_set(err, -EINVAL, "name two policies");
	if (v->takes == FOREIGN_FILE)
		return count == 1 ? 0 : err_set(err, -EINVAL, "name one file");
	if (v->takes >= SANDBOX)
		return count == 2 ? 0
				  : err_set(err, -EINVAL, "name a sandbox and a file");
	if (v->takes == QUESTIONS)
		return (count > 0) != (s->questions != NULL)
			       ? 0
			       : err_set(err, -EINVAL,
					 "name what is to be explained, or "
					 "--file");
	/* An empty variable in somebody's script is no valid policy. */
	if (count == 0 && v->run == verb_check && !has_policy(s))
		return err_set(err, -EINVAL, "name the file that is to be checked");
	if (count == 0)
		return 0;
	if (count > 1)
		return err_set(err, -EINVAL, "one file, not %d", count);
	if (s->policy.file)
		return err_set(err, -EINVAL, "a second file; let one extend the other");
	s->policy.file = argv[s->rest];
	return 0;
}

/* A file or a profile, as `extends` names them. */
static int build_side(const char *name, struct arena *arena, struct cli_policy_side *ret,
		      uint8_t **ret_bytes)
{
	const struct policy_args args = { .profiles = { { name }, 1 },
					  .verify = POLICY_VERIFY_TLS };
	struct err err = { 0 };
	size_t size;
	int r = cli_policy_build(&args, arena, true, &ret->policy, ret_bytes, &size);

	if (r == 0) {
		r = plan_open(*ret_bytes, size, &ret->plan, &err);
		if (r < 0)
			log_error("%s", err.text);
		else
			plan_set_time(&ret->plan, clock_wall_ms());
	}
	return r;
}

static int run_diff(const struct spec *s, char *const *names)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes_a = NULL, *bytes_b = NULL;
	struct cli_policy_side a = { 0 }, b = { 0 };
	int r = build_side(names[0], &arena, &a, &bytes_a);

	if (r == 0)
		r = build_side(names[1], &arena, &b, &bytes_b);
	if (r < 0)
		return run_status_of(r);
	r = cli_policy_diff(&a, &b, s->json, stdout);
	if (r < 0) {
		log_error("cannot compare the policies: %s", strerror(-r));
		return RUN_STATUS_FAILED;
	}
	return r > 0 ? POLICIES_DIFFER : 0;
}

static int run_verb(const struct verb *v, const struct spec *s, int argc, char **argv)
{
	struct context c = { .spec = s,
			     .arguments = argv + s->rest,
			     .argument_count = (size_t)(argc - s->rest) };
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct err err = { 0 };
	size_t size;
	int r;

	if (v->run == verb_check && s->json)
		return check_as_json(&s->policy);
	r = cli_policy_build(&s->policy, &arena, v->run != verb_check, &c.policy, &bytes,
			     &size);
	if (r < 0)
		return run_status_of(r);
	if (plan_open(bytes, size, &c.plan, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_FAILED;
	}
	plan_set_time(&c.plan, clock_wall_ms());
	return v->run(&c);
}

/* Of set and patch options may stand behind the arguments as well. */
static int take_last_options(const struct verb *v, struct spec *s, int *argc, char **argv,
			     struct err *err)
{
	const int last = s->rest + 2; /* the file */
	int r;

	if (v->takes < SANDBOX || *argc <= last + 1)
		return 0;
	r = cli_options_only(&cli_policy_options, s, *argc - last, argv + last, NULL,
			     err);
	*argc = last + 1;
	return r;
}

int cli_policy(int argc, char **argv)
{
	const struct verb *v = verb_find(argc > 1 ? argv[1] : NULL);
	/* As weir run. */
	struct spec spec = { .policy = { .verify = POLICY_VERIFY_TLS,
					 .complete = true } };
	struct err err = { 0 };

	if (!v)
		return bad_verb(argc > 1 ? argv[1] : NULL);
	spec.rest = cli_options_parse(&cli_policy_options, &spec, argc - 1, argv + 1,
				      NULL, &err);
	if (spec.rest < 0 || take_last_options(v, &spec, &argc, argv, &err) < 0)
		return bad_usage(err.text);
	if (check_arguments(v, &spec, argc - 1, argv + 1, &err) < 0)
		return bad_usage(err.text);
	if (v->takes == TWO_POLICIES)
		return run_diff(&spec, argv + 1 + spec.rest);
	if (v->takes == FOREIGN_FILE)
		return run_status_of(cli_policy_import(argv[1 + spec.rest], spec.from,
						       spec.place, spec.any_depth,
						       stdout));
	if (v->takes >= SANDBOX)
		return cli_daemon_policy_change(spec.socket, argv[1 + spec.rest],
						argv[2 + spec.rest], spec.policy.for_ms,
						v->takes == SANDBOX_PATCH);
	if (spec.id)
		return cli_daemon_policy_show(spec.socket, spec.id);
	return run_verb(v, &spec, argc - 1, argv + 1);
}
