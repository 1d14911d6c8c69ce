// SPDX-License-Identifier: Apache-2.0
#include "run/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outputs/client.h"
#include "policy/limits.h"
#include "policy/load.h"
#include "policy/node.h"
#include "policy/policy.h"
#include "run/needs.h"
#include "sys/files.h"
#include "sys/id_map.h"
#include "sys/options.h"

#define REPORT_WORDS "json|markdown|github|sarif|junit"

static int set_report_format(void *field, const char *value, struct err *err)
{
	struct run_spec *spec = field;
	const int word = cli_option_word(REPORT_WORDS, value, err);

	if (word < 0)
		return word;
	spec->has_report_format = true;
	spec->report_format = (enum run_report_format)word;
	return 0;
}

/* What isn't a form before a colon belongs to the name. */
static int add_report(void *field, const char *value, struct err *err)
{
	struct run_spec *spec = field;
	struct run_report report = { .file = value, .fd = -1 };
	const char *colon = strchr(value, ':');
	struct err no_form = { 0 };
	char word[16];

	if (colon && colon - value < (ptrdiff_t)sizeof(word)) {
		const int size = (int)(colon - value);
		int form;

		snprintf(word, sizeof(word), "%.*s", size, value);
		form = cli_option_word(REPORT_WORDS, word, &no_form);
		report.has_format = form >= 0;
		report.format = form >= 0 ? (enum run_report_format)form : 0;
		report.file = form >= 0 ? colon + 1 : value;
	}
	if (!report.file[0])
		return err_set(err, -EINVAL, "needs the name of a file");
	if (spec->report_count == RUN_REPORTS_MAX)
		return err_set(err, -EINVAL, "more than %d reports", RUN_REPORTS_MAX);
	spec->reports[spec->report_count++] = report;
	return 0;
}

static int set_id(void *id, const char *value, struct err *err)
{
	if (!ipc_is_sandbox_name(value))
		return err_set(err, -EINVAL, "not an id: " DAEMON_ID_IS);
	*(const char **)id = value;
	return 0;
}

#define IN(KIND, field) OPTION_IN(KIND, struct run_spec, field)

static const struct cli_option options[] = {
	POLICY_ARGS_ROWS(struct run_spec, policy),
	POLICY_VERIFY_ROW(struct run_spec, policy,
			  "what a connection must show, whatever the policy says (tls)"),
	POLICY_DENIED_NAMES_ROW(struct run_spec, policy,
				"how denied names are answered: not at all, or with an "
				"address where connections are refused (nxdomain)"),
	{ "id", "NAME",
	  "what the run is called in `weir ps`, `weir status` and `weir policy "
	  "set` (run-PID)",
	  set_id, 0, IN(CUSTOM, id) },
	{ "end-with", "PID", "end the command when this process ends: the parent of weir",
	  IN(NUMBER, parent), .least = 1, .most = INT32_MAX },
	{ "cgroup", "PATH",
	  "run in that control group of the host, which `weir daemon` guards",
	  IN(TEXT, cgroup) },
	{ "uid", "USER",
	  "run as that user of the host, whom `weir daemon` guards; with --cgroup: run "
	  "there",
	  IN(TEXT, uid) },
	{ "socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",
	  IN(TEXT, socket) },
	{ "uplink", "relay|none|slirp4netns|pasta",
	  "how bytes leave the sandbox; the last two carry UDP as well (relay)",
	  IN(WORD, uplink) },
	{ "upstream", "ADDR[:PORT]", "name server to ask; may be repeated (resolv.conf)",
	  name_servers_add, ' ', IN(CUSTOM, upstreams) },
	{ "repin-interval", "TIME",
	  "how often names are resolved again under dns: pinned, unless the policy says "
	  "(6h)",
	  cli_option_repin, IN(CUSTOM, repin_ms) },
	{ "rw", "PATH", "a writable path besides the current directory; may be repeated",
	  .separator = ':', IN(LIST, rw) },
	{ "rw-preset", RW_PRESET_WORDS,
	  "the writable paths that a program needs; may be repeated", rw_preset_add, ' ',
	  IN(CUSTOM, rw_presets) },
	{ "home", "user|tmp",
	  "the home directory of the command: the user's, or an empty one that goes with "
	  "the sandbox (user)",
	  IN(WORD, home) },
	{ "ro", "PATH",
	  "a path that is shown, read-only, though it is hidden, in /tmp or below a "
	  "writable one; may be repeated",
	  .separator = ':', IN(LIST, ro) },
	{ "hide", "PATH", "a path that the command doesn't see; may be repeated",
	  .separator = ':', IN(LIST, hide) },
	{ "hide-preset", "credentials|none",
	  "hide keys, tokens, browsers' profiles and shells' histories, or show them "
	  "(credentials)",
	  IN(WORD, hide_preset) },
	{ "env", "default|all|none",
	  "which variables the command gets: what doesn't look like a secret, all, or "
	  "none (default)",
	  IN(WORD, env) },
	{ "pass-env", "NAME",
	  "pass that variable, or NAME*; SSH_AUTH_SOCK with the agent's socket; may be "
	  "repeated",
	  environment_add_pass, ' ', IN(CUSTOM, pass_env) },
	{ "set-env", "NAME=VALUE", "set a variable; may be repeated", environment_add_set,
	  '\n', IN(CUSTOM, set_env) },
	{ "ask", "none|tty",
	  "who is asked for what the policy leaves to ask: no one here, or you, on this "
	  "terminal (none)",
	  IN(WORD, ask) },
	{ "self-test", "deny|full|strict",
	  "what must hold before the command starts (deny)", IN(WORD, self_test) },
	{ "fail-on-deny", NULL, "exit with 123 when something was refused",
	  IN(FLAG, fail_on_deny) },
	{ "audit", NULL,
	  "refuse nothing but special addresses and DNS over TLS, and report what the "
	  "policy would have refused: no fence",
	  IN(FLAG, audit) },
	{ "report", "[FORM:]FILE",
	  "write what happened to FILE, - for standard output; may be repeated",
	  add_report, '\n' },
	{ "report-format", REPORT_WORDS,
	  "the form of the reports (by the end of the name, else json)",
	  set_report_format },
	{ "state-dir", "DIR", "keep the events in the store that is there, too",
	  IN(TEXT, state_dir) },
	{ "quiet", NULL,
	  "say nothing unless Weir failed or --pass-env names what is missing",
	  IN(FLAG, quiet) },
	{ "no-config", NULL, "read no configuration file and no .weir.yaml",
	  IN(FLAG, no_config) },
};
static_assert(ARRAY_SIZE(options) <= CLI_OPTIONS_MAX, "every option has a bit");
const struct cli_options cli_run_options = {
	OPTION_ROWS(options),
	.usage = "usage: weir run [OPTION]... [--] COMMAND [ARG]...\n\n"
		 "Run COMMAND in a sandbox that reaches what its policy lists, and "
		 "nothing "
		 "else:\nin namespaces of its own, or with --cgroup and --uid on the "
		 "host, "
		 "guarded by the\ndaemon.\n",
	.notes =
		"TARGET is a name (api.github.com), a wildcard (*.pypi.org: below it;\n"
		"**.pypi.org: it and below it), an address or a CIDR. PORTS: 443, "
		"80,443,\n"
		"8000-8100, tcp/22. Without PORTS: all but 53 and 853.\n\n"
		"Exit status: the command's; 2 bad input; 122 ended by the policy's "
		"on_denies;\n123 with --fail-on-deny when something was refused; 125 "
		"Weir "
		"could not do what\nwas asked; 126 and 127 the command could not be "
		"started "
		"or found.\n\n"
		"Each option has a variable: WEIR_PROFILE, WEIR_FAIL_ON_DENY=1; defaults "
		"are "
		"in\n~/.config/weir/config.yaml and /etc/weir/config.yaml.\n",
};

static const struct cli_option learn_rows[] = {
	{ "output", "FILE",
	  "-o: write the policy to FILE, or add what is missing to the one that is there "
	  "(standard output)",
	  .letter = 'o', IN(TEXT_ONCE, learn.output) },
	{ "ceiling", "FILE", "a policy: what it denies is refused and not learned",
	  IN(TEXT_ONCE, learn.ceiling_file) },
	{ "diff", "FILE",
	  "write no policy, but what that one lacks and what of it was not used",
	  IN(TEXT_ONCE, learn.diff) },
	{ "from", "STORE",
	  "learn from the events in a state directory or PostgreSQL; no command is run",
	  IN(TEXT_ONCE, learn.from) },
	{ "sandbox", "ID", "with --from: of this sandbox alone",
	  IN(TEXT, learn.sandbox) },
	{ "since", "TIME",
	  "with --from: from then on: 90s, 2h, 3d ago, or RFC 3339 (24h)",
	  IN(TEXT, learn.since) },
	{ "any-port", NULL, "open public names on every port but 53 and 853",
	  IN(FLAG, learn.any_port) },
};
static_assert(ARRAY_SIZE(options) + ARRAY_SIZE(learn_rows) <= CLI_OPTIONS_MAX,
	      "every option has a bit");
const struct cli_options cli_learn_options = {
	OPTION_ROWS(learn_rows),
	.also = &cli_run_options,
	.usage = "usage: weir learn [OPTION]... [--] COMMAND [ARG]...\n\n"
		 "Run COMMAND as `weir run` does, but with public names open, and write "
		 "the policy\nthat it needed. This is no fence: what the command can "
		 "read it can send.\n",
	.notes =
		"Exit status: the command's; 2 bad input; 125 Weir could not do what was "
		"asked;\n126 and 127 the command could not be started or found.\n",
};

int cli_run_parse(const struct cli_options *table, int argc, char **argv,
		  struct run_spec *ret, struct err *err)
{
	int first;

	memset(ret, 0, sizeof(*ret));
	ret->policy.verify = POLICY_VERIFY_TLS;
	ret->policy.complete = true;
	ret->repin_ms = POLICY_REPIN_MS;
	ret->mode = table == &cli_learn_options ? RUN_LEARN : RUN_ENFORCE;
	ret->learn.dir = -1;
	first = cli_options_parse(table, ret, argc, argv, &ret->given, err);
	if (first < 0)
		return first;
	if (first >= argc)
		return err_set(
			err, -EINVAL,
			"no command given: weir %s [OPTION]... -- COMMAND [ARG]...",
			argv[0]);
	ret->argv = argv + first;
	return 0;
}

int cli_run_check_guarded(const struct run_spec *spec, struct err *err)
{
	static const char *const senseless[] = {
		"uplink",    "upstream",    "repin-interval", "rw",
		"rw-preset", "self-test",   "state-dir",      "ro",
		"hide",	     "hide-preset", "home",	      "audit",
		"ask",
	};

	if (!spec->cgroup && !spec->uid)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(senseless); i++) {
		const struct cli_option *o =
			cli_option_find(&cli_run_options, text_of(senseless[i]));

		if (spec->given & 1ULL << (o - options))
			return err_set(
				err, -EINVAL,
				"--%s means nothing with --%s: the command runs on "
				"the host, and the daemon guards it",
				senseless[i], spec->cgroup ? "cgroup" : "uid");
	}
	return 0;
}

int cli_run_settle_mode(struct run_spec *spec, struct err *err)
{
	if (spec->mode == RUN_LEARN && (spec->learn.sandbox || spec->learn.since))
		return err_set(err, -EINVAL, "--%s goes with --from alone",
			       spec->learn.sandbox ? "sandbox" : "since");
	if (spec->mode == RUN_LEARN && (spec->audit || spec->cgroup || spec->uid))
		return err_set(err, -EINVAL, "--%s means nothing with weir learn",
			       spec->audit    ? "audit"
			       : spec->cgroup ? "cgroup"
					      : "uid");
	if (spec->ask == RUN_ASK_TTY && (spec->mode == RUN_LEARN || spec->audit))
		return err_set(err, -EINVAL,
			       "--ask tty means nothing with %s, which refuses nothing",
			       spec->audit ? "--audit" : "weir learn");
	if (spec->audit && spec->mode == RUN_ENFORCE)
		spec->mode = RUN_AUDIT;
	if (spec->mode == RUN_AUDIT && spec->fail_on_deny)
		return err_set(err, -EINVAL,
			       "--audit and --fail-on-deny: an audit ends with the "
			       "command's own status");
	return 0;
}

/* === files === */

static const char etc_config[] = "/etc/weir/config.yaml";

/* One file while it is read. */
struct config {
	struct run_spec *spec;
	struct faults *faults;
	const char *file;
	uint64_t given; /* what this file sets counts once it is read to its end */
};

/* A key of the defaults and the option that it stands for. */
static const struct key {
	const char *name, *option;
	bool is_path;
} keys[] = {
	{ "policy", "policy", true },
	{ "profile", "profile" },
	{ "uplink", "uplink" },
	{ "upstream", "upstream" },
	{ "rw", "rw", true },
	{ "rw_preset", "rw-preset" },
	{ "home", "home" },
	{ "ro", "ro", true },
	{ "hide", "hide", true },
	{ "hide_preset", "hide-preset" },
	{ "self_test", "self-test" },
	{ "verify", "verify" },
	{ "fail_on_deny", "fail-on-deny" },
	{ "env", "env" },
	{ "pass_env", "pass-env" },
	{ "set_env", "set-env" },
};

static void fault_at(struct config *c, const struct node *n, const char *text)
{
	faults_add(c->faults, FAULT_ERROR, c->file, n->line, n->column,
		   TEXT_SHOWN(n->key), "%s", text);
}

static bool is_scalar(const struct node *n)
{
	return n->kind == NODE_TEXT || n->kind == NODE_NUMBER || n->kind == NODE_REAL ||
	       n->kind == NODE_BOOL;
}

/* --- defaults --- */

/* "~/x" and absolute paths; others stand beside the file. */
static const char *path_of(struct config *c, const char *value)
{
	const char *home = home_directory(), *slash = strrchr(c->file, '/');
	struct arena *arena = &c->spec->arena;

	if (value[0] == '/')
		return value;
	if (value[0] == '~' && value[1] == '/' && home)
		return arena_printf(arena, "%s%s", home, value + 1);
	return arena_printf(arena, "%.*s/%s", slash ? (int)(slash - c->file) : 1,
			    slash ? c->file : ".", value);
}

static int set_value(struct config *c, const struct key *key, const struct cli_option *o,
		     const struct node *n)
{
	const char *value = arena_text(&c->spec->arena, n->text);
	struct err err = { 0 };
	int r;

	if (value && key->is_path)
		value = path_of(c, value);
	if (!value)
		return -ENOMEM;
	r = cli_option_set(o, c->spec, value, &err);
	if (r < 0)
		fault_at(c, n, err.text);
	return 0;
}

static int read_default(struct config *c, const struct key *key, const struct node *n)
{
	const struct cli_option *o =
		cli_option_find(&cli_run_options, text_of(key->option));
	uint64_t bit = 1ULL << (o - cli_run_options.items);
	char why[TEXT_ESCAPED_SIZE + 32];
	int r = 0;

	if (c->spec->given & bit)
		return 0;
	c->given |= bit;
	if (strcmp(key->option, "verify") == 0) {
		/* A default is for policies that don't say it; the option is for all. */
		if (text_equal(n->text, "tls"))
			c->spec->policy.verify = POLICY_VERIFY_TLS;
		else if (text_equal(n->text, "dns"))
			c->spec->policy.verify = POLICY_VERIFY_DNS;
		else
			fault_at(c, n, "is not one of dns, tls");
	} else if (!o->arg) {
		snprintf(why, sizeof(why), "'%s' is not true or false",
			 TEXT_SHOWN(n->text));
		if (n->kind != NODE_BOOL)
			fault_at(c, n, is_scalar(n) ? why : "is not true or false");
		else if (text_equal(n->text, "true"))
			r = cli_option_set(o, c->spec, NULL, NULL);
	} else if (is_scalar(n)) {
		r = set_value(c, key, o, n);
	} else if (n->kind == NODE_LIST && o->separator) {
		for (struct node *item = n->first; r == 0 && item; item = item->next) {
			item->key = n->key;
			if (is_scalar(item))
				r = set_value(c, key, o, item);
			else
				fault_at(c, item, "is not a text");
		}
	} else {
		fault_at(c, n,
			 o->separator ? "is not a text or a list of texts"
				      : "is not a text");
	}
	return r;
}

static int read_defaults(struct config *c, const struct node *n)
{
	char list[256] = "";
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (text_equal(n->key, keys[i].name))
			return read_default(c, &keys[i], n);
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
					 i > 0 ? ", " : "", keys[i].name);
		used = MIN(used, sizeof(list) - 1);
	}
	faults_add(c->faults, FAULT_ERROR, c->file, n->key_line, n->key_column, "",
		   "'%.*s' is not one of %s", (int)MIN(n->key.len, 64), n->key.ptr, list);
	return 0;
}

/* --- the file that narrows --- */

static int add_deny(struct config *c, const struct node *n)
{
	struct option_list *list = &c->spec->policy.narrow;
	struct rule rule;
	struct err err = { 0 };

	if (n->kind != NODE_TEXT && n->kind != NODE_NUMBER && n->kind != NODE_REAL)
		fault_at(c, n, "is not a text");
	else if (rule_target_parse(n->text, &rule, &err) < 0)
		fault_at(c, n, err.text);
	else if (list->count == OPTION_LIST_MAX)
		fault_at(c, n, "is one too many; use a policy file");
	else if (!(list->items[list->count] = arena_text(&c->spec->arena, n->text)))
		return -ENOMEM;
	else
		list->count++;
	c->spec->policy.narrow_file = c->file;
	return 0;
}

static int read_narrowing(struct config *c, const struct node *n)
{
	int r = 0;

	if (text_equal(n->key, "verify")) {
		if (text_equal(n->text, "tls"))
			c->spec->policy.verify_tls = true;
		else
			fault_at(c, n, "can only be tls here: this file can't widen");
		return 0;
	}
	if (!text_equal(n->key, "deny")) {
		faults_add(c->faults, FAULT_ERROR, c->file, n->key_line, n->key_column,
			   "", "'%.*s' is not one of deny, verify: this file can't widen",
			   (int)MIN(n->key.len, 64), n->key.ptr);
		return 0;
	}
	if (n->kind != NODE_LIST) {
		fault_at(c, n, "is not a list of targets");
		return 0;
	}
	for (struct node *item = n->first; r == 0 && item; item = item->next) {
		item->key = n->key;
		r = add_deny(c, item);
	}
	return r;
}

/* --- one file --- */

enum { NARROW_MAX = 64 * 1024 }; /* bytes of .weir.yaml; more is an error */

/* The text of a file. .weir.yaml may be anybody's, since it can't widen; but to read a
 * file takes up to a hundred times its size, and a link could show what another file has
 * in the messages about its faults. */
static int load(struct config *c, enum config_kind kind, struct text *ret)
{
	const struct file_how how = { .max_bytes = NARROW_MAX, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct err err = { 0 };
	int r;

	if (kind == CONFIG_DEFAULTS) {
		r = cli_read_owned(c->file, &c->spec->arena, ret, &err);
	} else {
		r = file_read(AT_FDCWD, c->file, &how, &file, &err);
		if (r == -EACCES && access(".", X_OK) < 0)
			err_set(&err, r,
				"the working directory is closed to this user; start "
				"weir in another directory");
		if (r == -ELOOP)
			err_set(&err, r, "is a link; this file is read only by itself");
		if (r == 0) {
			*ret = (struct text){ file.bytes, file.size };
			ret->ptr = arena_text(&c->spec->arena, *ret);
			r = ret->ptr ? 0 : -ENOMEM;
		}
	}
	if (r == -ENOENT || r == -ENOTDIR || r == -ENOMEM)
		return r == -ENOTDIR ? -ENOENT : r;
	if (r < 0) {
		faults_add(c->faults, FAULT_ERROR, c->file, 0, 0, "", "%s", err.text);
		return -EINVAL;
	}
	return 0;
}

static int read_root(struct config *c, enum config_kind kind, struct node *root)
{
	int r = 0;

	if (!root || root->kind == NODE_NULL)
		return 0;
	if (root->kind != NODE_MAP) {
		fault_at(c, root, "the file is not a mapping");
		return -EINVAL;
	}
	for (struct node *n = root->first; r == 0 && n; n = n->next)
		r = kind == CONFIG_DEFAULTS ? read_defaults(c, n) : read_narrowing(c, n);
	return r;
}

static void keep(struct run_spec *spec, const char *path)
{
	assert(spec->kept_count < RUN_KEPT_MAX);
	spec->kept[spec->kept_count++] = path;
}

int config_read_file(struct run_spec *spec, const char *path, enum config_kind kind,
		     struct faults *faults)
{
	struct config c = { .spec = spec, .faults = faults, .file = path };
	struct node_source source = { &spec->arena, faults, path, { 0 } };
	size_t before = faults->errors;
	struct node *root = NULL;
	int r = load(&c, kind, &source.text);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (kind == CONFIG_DEFAULTS)
		keep(spec, path);
	if (!node_check_text(&source))
		return -EINVAL;
	r = node_read_yaml(&source, &root);
	if (r == 0)
		r = read_root(&c, kind, root);
	spec->given |= c.given;
	if (r == 0 && faults->errors > before)
		r = -EINVAL;
	return r;
}

/* --- all of them --- */

int config_read(struct run_spec *spec)
{
	const char *user = home_config(&spec->arena, "config.yaml");
	struct faults faults = { 0 };
	struct stat st;
	size_t len = user ? (size_t)(strrchr(user, '/') - user) : 0;
	int r = 0;

	/* The folder of the user's file stays read-only in the sandbox, whatever is
	 * writable: a command that could add a profile there would choose the next run's
	 * policy. */
	if (len > 0) {
		spec->settings = arena_text(&spec->arena, (struct text){ user, len });
		r = spec->settings ? 0 : -ENOMEM;
	}
	/* Also where this run doesn't read it: another run does. A link is never read. */
	if (lstat(CONFIG_NARROW, &st) == 0 && S_ISREG(st.st_mode))
		keep(spec, CONFIG_NARROW);
	if (spec->no_config || r < 0)
		return r;
	if (user)
		r = config_read_file(spec, user, CONFIG_DEFAULTS, &faults);
	r = faults_worse(r, config_read_file(spec, etc_config, CONFIG_DEFAULTS, &faults));
	r = faults_worse(
		r, config_read_file(spec, CONFIG_NARROW, CONFIG_NARROWING, &faults));
	faults_print(&faults, true);
	faults_done(&faults);
	return r;
}

/* --- what stays read-only --- */

/* A file that was read and has gone since is not left out: it may come back, written by
 * the command. What the caller has opened (/dev/fd/N) and has no name is out of its
 * reach. */
static bool is_kept(const char *name, bool is_source)
{
	struct stat st;
	const bool is_there = stat(name, &st) == 0;

	if (is_there && st.st_nlink == 0)
		return false;
	if (is_source)
		return !policy_is_built_in(name);
	return is_there;
}

int config_kept_files(const struct run_spec *spec, const struct policy *policy,
		      struct arena *arena, const char ***ret, size_t *ret_count)
{
	static const struct policy none;
	const struct policy *const read[] = { policy, spec->learn.ceiling ?: &none };
	const size_t all =
		read[0]->source_count + read[1]->source_count + spec->kept_count;
	const char **files = arena_array(arena, all + 1, sizeof(*files));
	size_t count = 0;

	if (!files)
		return -ENOMEM;
	for (size_t p = 0; p < ARRAY_SIZE(read); p++)
		for (size_t i = 0; i < read[p]->source_count; i++)
			if (is_kept(read[p]->sources[i], true))
				files[count++] = read[p]->sources[i];
	for (size_t i = 0; i < spec->kept_count; i++)
		if (is_kept(spec->kept[i], false))
			files[count++] = spec->kept[i];
	*ret = files;
	*ret_count = count;
	return 0;
}
