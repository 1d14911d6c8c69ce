// SPDX-License-Identifier: Apache-2.0
#include "run/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "policy/limits.h"
#include "run/rw_preset.h"
#include "sys/options.h"
#include "sys/resolv_conf.h"

static const char resolv_conf[] = "/etc/resolv.conf";

static int set_rw_preset(void *target, const char *value, struct err *err)
{
	return rw_preset_add(target, value, err);
}

static int set_policy(void *target, const char *value, struct err *err)
{
	struct run_spec *spec = target;

	if (spec->policy_file)
		return err_set(err, -EINVAL,
			       "given twice; a policy takes others in with `extends`");
	spec->policy_file = value;
	return 0;
}

static bool upstream_is_usable(const struct endpoint *e)
{
	switch (addr_special(&e->addr)) {
	case SPECIAL_INVALID:
	case SPECIAL_UNSPECIFIED:
	case SPECIAL_MULTICAST:
	case SPECIAL_BROADCAST:
		return false;
	case SPECIAL_LINK_LOCAL: /* needs a zone, which is not taken */
		return e->addr.family == ADDR_V4;
	default:
		return true;
	}
}

static int set_verify(void *target, const char *value, struct err *err)
{
	struct run_spec *spec = target;
	int r = cli_option_word("dns|tls", value, err);

	if (r >= 0) {
		spec->has_verify = true;
		spec->verify = r == 0 ? POLICY_VERIFY_DNS : POLICY_VERIFY_TLS;
	}
	return MIN(r, 0);
}

static int set_upstream(void *target, const char *value, struct err *err)
{
	struct run_spec *spec = target;
	char shown[TEXT_ESCAPED_SIZE];
	struct endpoint e;

	if (!endpoint_parse(value, strlen(value), 53, &e) || !upstream_is_usable(&e))
		return err_set(err, -EINVAL,
			       "'%s' is not a name server's address: ADDR, ADDR:PORT or "
			       "[IPV6]:PORT",
			       text_escape(text_of(value), shown, sizeof(shown)));
	if (spec->upstream_count == RUN_UPSTREAMS_MAX)
		return err_set(err, -EINVAL, "given more than %d times",
			       RUN_UPSTREAMS_MAX);
	spec->upstreams[spec->upstream_count++] = e;
	return 0;
}

static int set_repin_interval(void *target, const char *value, struct err *err)
{
	return cli_option_repin(value, &((struct run_spec *)target)->repin_ms, err);
}

static const struct cli_option options[] = {
	{ "policy", "FILE", "read the policy from FILE (YAML or JSON)", set_policy },
	{ "profile", "NAME", "add a profile's rules; may be repeated", .separator = ' ',
	  OPTION_IN(LIST, struct run_spec, profiles) },
	{ "allow", "TARGET[:PORTS]", "allow one target; may be repeated",
	  .separator = ' ', OPTION_IN(LIST, struct run_spec, allow) },
	{ "deny", "TARGET", "deny one target, before every allow; may be repeated",
	  .separator = ' ', OPTION_IN(LIST, struct run_spec, deny) },
	{ "verify", "dns|tls",
	  "what a connection must show, whatever the policy says (tls)", set_verify },
	{ "cgroup", "PATH",
	  "run in that control group of the host, which `weir daemon` guards",
	  OPTION_IN(TEXT, struct run_spec, cgroup) },
	{ "uid", "USER",
	  "run as that user of the host, whom `weir daemon` guards; with --cgroup: run "
	  "there",
	  OPTION_IN(TEXT, struct run_spec, uid) },
	{ "socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",
	  OPTION_IN(TEXT, struct run_spec, socket) },
	{ "uplink", "relay|none|slirp4netns|pasta",
	  "how bytes leave the sandbox; the last two carry UDP as well (relay)",
	  OPTION_IN(WORD, struct run_spec, uplink) },
	{ "upstream", "ADDR[:PORT]", "name server to ask; may be repeated (resolv.conf)",
	  set_upstream, ' ' },
	{ "repin-interval", "TIME",
	  "how often names are resolved again under dns: pinned, unless the policy says "
	  "(6h)",
	  set_repin_interval },
	{ "rw", "PATH", "a writable path besides the current directory; may be repeated",
	  .separator = ':', OPTION_IN(LIST, struct run_spec, rw) },
	{ "rw-preset", RW_PRESET_WORDS,
	  "the writable paths that a program needs; may be repeated", set_rw_preset,
	  ' ' },
	{ "self-test", "deny|full|strict",
	  "what must hold before the command starts (deny)",
	  OPTION_IN(WORD, struct run_spec, self_test) },
	{ "fail-on-deny", NULL, "exit with 123 when something was refused",
	  OPTION_IN(FLAG, struct run_spec, fail_on_deny) },
	{ "report", "FILE", "write what happened to FILE",
	  OPTION_IN(TEXT, struct run_spec, report_file) },
	{ "report-format", "json|markdown", "the form of that file (json)",
	  OPTION_IN(WORD, struct run_spec, report_format) },
	{ "state-dir", "DIR", "keep the events in the store that is there, too",
	  OPTION_IN(TEXT, struct run_spec, state_dir) },
	{ "quiet", NULL, "say nothing unless Weir failed",
	  OPTION_IN(FLAG, struct run_spec, quiet) },
	{ "no-config", NULL, "read no configuration file and no .weir.yaml",
	  OPTION_IN(FLAG, struct run_spec, no_config) },
};
static_assert(ARRAY_SIZE(options) <= CLI_OPTIONS_MAX, "every option has a bit");
const struct cli_options cli_run_options = { options, ARRAY_SIZE(options) };

void cli_run_usage(FILE *out)
{
	fputs("usage: weir run [OPTION]... [--] COMMAND [ARG]...\n\n"
	      "Run COMMAND in a sandbox that reaches what its policy lists, and nothing "
	      "else:\nin namespaces of its own, or with --cgroup and --uid on the host, "
	      "guarded by the\ndaemon.\n\n",
	      out);
	cli_options_print(out, &cli_run_options);
	fputs("\nTARGET is a name (api.github.com), a wildcard (*.pypi.org: below it;\n"
	      "**.pypi.org: it and below it), an address or a CIDR. PORTS: 443, 80,443,\n"
	      "8000-8100, tcp/22. Without PORTS: all but 53 and 853.\n\n"
	      "Exit status: the command's; 2 bad input; 122 ended by the policy's "
	      "on_denies;\n123 with --fail-on-deny when something was refused; 125 Weir "
	      "could not do what\nwas asked; 126 and 127 the command could not be "
	      "started "
	      "or found.\n\n"
	      "Each option has a variable: WEIR_PROFILE, WEIR_FAIL_ON_DENY=1; defaults "
	      "are "
	      "in\n~/.config/weir/config.yaml and /etc/weir/config.yaml.\n",
	      out);
}

int cli_run_parse(int argc, char **argv, struct run_spec *ret, struct err *err)
{
	int first;

	memset(ret, 0, sizeof(*ret));
	ret->verify = POLICY_VERIFY_TLS;
	ret->repin_ms = POLICY_REPIN_MS;
	ret->report_fd = -1;
	first = cli_options_parse(&cli_run_options, ret, argc, argv, &ret->given, err);
	if (first < 0)
		return first;
	if (first >= argc)
		return err_set(
			err, -EINVAL,
			"no command given: weir run [OPTION]... -- COMMAND [ARG]...");
	ret->argv = argv + first;
	return 0;
}

int cli_run_check_guarded(const struct run_spec *spec, struct err *err)
{
	static const char *const senseless[] = { "uplink",	   "upstream",
						 "repin-interval", "rw",
						 "rw-preset",	   "self-test",
						 "state-dir" };

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

int cli_run_environment(struct run_spec *spec, struct err *err)
{
	return cli_options_environment(&cli_run_options, spec, &spec->arena, &spec->given,
				       err);
}

static void on_server(void *data, const struct endpoint *server)
{
	struct run_spec *spec = data;

	if (upstream_is_usable(server) && spec->upstream_count < RUN_UPSTREAMS_MAX)
		spec->upstreams[spec->upstream_count++] = *server;
}

int cli_run_upstreams(struct run_spec *spec, struct err *err)
{
	if (spec->upstream_count > 0)
		return 0;
	if (resolv_conf_read(resolv_conf, on_server, spec, err) < 0)
		return err_context(err,
				   "no name server to ask: name one with --upstream");
	if (spec->upstream_count == 0)
		return err_set(err, -ENOENT,
			       "%s names no usable name server: name one with --upstream",
			       resolv_conf);
	return 0;
}
