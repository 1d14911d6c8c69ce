// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "settings/settings.h"
#include "settings/state_dir.h"
#include "unit.h"

enum { VARIABLES_MAX = 24 };
static char resolv_conf[] = "/tmp/test-sidecar-XXXXXX";

/* A start with these "NAME=VALUE" and nothing else in the environment. */
struct start {
	struct sidecar_spec spec;
	struct err err;
	int r;
};

static void start(struct start *s, const char *const *variables, size_t variable_count,
		  const char *const *arguments, size_t argument_count)
{
	const char *argv[VARIABLES_MAX + 4] = { "sidecar", "--resolv-conf", resolv_conf };

	clearenv();
	for (size_t i = 0; i < variable_count && variables[i]; i++)
		assert_int_equal(putenv((char *)variables[i]), 0);
	for (size_t i = 0; i < argument_count && arguments[i]; i++)
		argv[3 + i] = arguments[i];
	memset(s, 0, sizeof(*s));
	while (argument_count > 0 && !arguments[argument_count - 1])
		argument_count--;
	s->r = cli_sidecar_parse((int)(3 + argument_count), (char **)argv, &s->spec,
				 &s->err);
}

static void start_done(struct start *s)
{
	arena_done(&s->spec.arena);
	clearenv(); /* it may hold a text of the test's own */
}

#define START(s, ...)                                                                    \
	start(s, (const char *const[VARIABLES_MAX]){ __VA_ARGS__ }, VARIABLES_MAX, NULL, \
	      0)
#define CALL(s, ...)                                                                     \
	start(s, NULL, 0, (const char *const[VARIABLES_MAX]){ __VA_ARGS__ },             \
	      VARIABLES_MAX)

static void set_resolv_conf(const char *text)
{
	int fd = open(resolv_conf, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void expect_good(const struct start *s)
{
	if (s->r != 0)
		fail_msg("%s", s->err.text);
}

static bool warns_of(const struct start *s, const char *what)
{
	for (size_t i = 0; i < s->spec.warning_count; i++)
		if (strstr(s->spec.warnings[i], what))
			return true;
	return false;
}

static const char *upstreams_of(const struct start *s)
{
	static char all[1024];
	char one[ENDPOINT_TEXT_SIZE];

	all[0] = '\0';
	for (size_t i = 0; i < s->spec.upstream_count; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
			 i > 0 ? " " : "", endpoint_format(&s->spec.upstreams[i], one));
	return all;
}

TEST(without_anything_the_defaults_count)
{
	struct start s;

	START(&s, NULL);
	expect_good(&s);
	assert_int_equal(s.spec.mode, SIDECAR_MODE_DNS_NFT);
	assert_int_equal(s.spec.on_unenforceable, SIDECAR_FAIL);
	assert_null(s.spec.rules);
	assert_null(s.spec.policy_file);
	assert_string_equal(s.spec.static_rules_dir, "/var/egress/rules");
	assert_int_equal(s.spec.http.addr.family, ADDR_NONE);
	assert_int_equal(s.spec.http.port, 18080);
	assert_null(s.spec.token);
	assert_false(s.spec.api_open);
	assert_int_equal(s.spec.max_rules, 4096);
	assert_int_equal(s.spec.log_level, SIDECAR_LOG_INFO);
	assert_int_equal(s.spec.log_output_count, 1);
	assert_string_equal(s.spec.log_outputs[0], "stdout");
	assert_string_equal(s.spec.sandbox_id, "");
	assert_string_equal(upstreams_of(&s), "192.0.2.53:53");
	assert_int_equal(s.spec.upstream_timeout_sec, 5);
	assert_int_equal(s.spec.probe_every_sec, 30);
	assert_int_equal(s.spec.probe_name.size, 0);
	assert_false(s.spec.block_doh_443);
	assert_true(s.spec.host_network_check);
	assert_true(s.spec.ui);
	assert_false(s.spec.remove);
	assert_int_equal(s.spec.warning_count, 0);
	start_done(&s);
}

TEST(modes_are_read_in_any_order_and_case)
{
	static const struct {
		const char *value;
		enum sidecar_mode want; /* SIDECAR_MODE_NONE: refused */
	} rows[] = {
		{ "OPENSANDBOX_EGRESS_MODE=", SIDECAR_MODE_DNS_NFT },
		{ "OPENSANDBOX_EGRESS_MODE=dns", SIDECAR_MODE_DNS },
		{ "OPENSANDBOX_EGRESS_MODE=dns+nft", SIDECAR_MODE_DNS_NFT },
		{ "OPENSANDBOX_EGRESS_MODE=nft+dns", SIDECAR_MODE_DNS_NFT },
		{ "OPENSANDBOX_EGRESS_MODE=  DNS+nft  ", SIDECAR_MODE_DNS_NFT },
		{ "OPENSANDBOX_EGRESS_MODE=NFT + dns", SIDECAR_MODE_DNS_NFT },
		{ "OPENSANDBOX_EGRESS_MODE=tls+dns+nft", SIDECAR_MODE_DNS_NFT_TLS },
		{ "OPENSANDBOX_EGRESS_MODE=nft", SIDECAR_MODE_NONE },
		{ "OPENSANDBOX_EGRESS_MODE=dns+unknown", SIDECAR_MODE_NONE },
		{ "OPENSANDBOX_EGRESS_MODE=dns+mitm", SIDECAR_MODE_NONE },
		{ "OPENSANDBOX_EGRESS_MODE=dns+tls", SIDECAR_MODE_NONE },
		{ "OPENSANDBOX_EGRESS_MODE=dns+", SIDECAR_MODE_NONE },
		{ "OPENSANDBOX_EGRESS_MODE= ", SIDECAR_MODE_NONE },
		{ "WEIR_MODE=dns", SIDECAR_MODE_DNS },
		{ "WEIR_MODE=open", SIDECAR_MODE_NONE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct start s;

		START(&s, rows[i].value);
		if ((s.r == 0) != (rows[i].want != SIDECAR_MODE_NONE))
			fail_msg("%s: %d %s", rows[i].value, s.r, s.err.text);
		if (s.r == 0)
			assert_int_equal(s.spec.mode, rows[i].want);
		else
			assert_non_null(strstr(s.err.text, "is not a mode"));
		start_done(&s);
	}
}

TEST(names_of_modes)
{
	assert_string_equal(sidecar_mode_name(SIDECAR_MODE_DNS), "dns");
	assert_string_equal(sidecar_mode_name(SIDECAR_MODE_DNS_NFT), "dns+nft");
	assert_string_equal(sidecar_mode_name(SIDECAR_MODE_DNS_NFT_TLS), "dns+nft+tls");
	assert_string_equal(sidecar_mode_name(SIDECAR_MODE_COUNT), "none");
}

TEST(listening_addresses)
{
	static const struct {
		const char *value, *want; /* NULL: refused */
	} rows[] = {
		{ ":18080", "any 18080" },
		{ "[::]:18080", "any 18080" },
		{ "127.0.0.1:8080", "127.0.0.1 8080" },
		{ "0.0.0.0:1", "0.0.0.0 1" },
		{ "[::1]:65535", "::1 65535" },
		{ "localhost:18080", NULL },
		{ "18080", NULL },
		{ "127.0.0.1", NULL },
		{ ":0", NULL },
		{ ":65536", NULL },
		{ ":", NULL },
		{ ":http", NULL },
		{ "::1:18080", NULL },
		{ "[fe80::1%eth0]:18080", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char variable[128], text[ADDR_TEXT_SIZE], got[128];
		struct start s;

		snprintf(variable, sizeof(variable), "OPENSANDBOX_EGRESS_HTTP_ADDR=%s",
			 rows[i].value);
		START(&s, variable);
		if ((s.r == 0) != (rows[i].want != NULL))
			fail_msg("%s: %d %s", variable, s.r, s.err.text);
		if (s.r == 0) {
			bool any = s.spec.http.addr.family == ADDR_NONE;

			snprintf(got, sizeof(got), "%s %u",
				 any ? "any" : addr_format(&s.spec.http.addr, text),
				 s.spec.http.port);
			assert_string_equal(got, rows[i].want);
			assert_string_equal(s.spec.http_addr, rows[i].value);
		}
		start_done(&s);
	}
}

/* F7 */
TEST(upstreams_are_addresses)
{
	static const struct {
		const char *value, *want; /* NULL: refused */
	} rows[] = {
		{ "8.8.8.8", "8.8.8.8:53" },
		{ "1.1.1.1:5353", "1.1.1.1:5353" },
		{ "2001:db8::1", "[2001:db8::1]:53" },
		{ "[2001:db8::2]:853", "[2001:db8::2]:853" },
		{ "[2001:db8::3]", "[2001:db8::3]:53" },
		{ " 9.9.9.9 ,, 1.1.1.1,9.9.9.9:53,", "9.9.9.9:53 1.1.1.1:53" },
		{ "127.0.0.1:59123,1.1.1.1", "127.0.0.1:59123 1.1.1.1:53" },
		{ "", "192.0.2.53:53" },
		{ ",", NULL },
		{ "dns.google", NULL },
		{ "dns.google:53", NULL },
		{ "1.1.1.1,dns.google", NULL },
		{ "1.1.1.1:0", NULL },
		{ "0.0.0.0", NULL },
		{ "224.0.0.251", NULL },
		{ "fe80::1%eth0", NULL },
		{ "127.0.0.1:15353", NULL },
		{ "1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8,"
		  "1.1.1.9,1.1.1.10,1.1.1.11,1.1.1.12,1.1.1.13,1.1.1.14,1.1.1.15,"
		  "1.1.1.16,1.1.1.17",
		  NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char variable[512];
		struct start s;

		snprintf(variable, sizeof(variable), "OPENSANDBOX_EGRESS_DNS_UPSTREAM=%s",
			 rows[i].value);
		START(&s, variable);
		if ((s.r == 0) != (rows[i].want != NULL))
			fail_msg("%s: %d %s", variable, s.r, s.err.text);
		if (s.r == 0)
			assert_string_equal(upstreams_of(&s), rows[i].want);
		assert_int_equal(warns_of(&s, "in the app's own namespace"),
				 strncmp(rows[i].value, "127.0.0.1:5", 11) == 0);
		start_done(&s);
	}
}

/* F10, for what is asked. */
TEST(resolv_conf_is_read_when_none_is_given)
{
	static const struct {
		const char *text, *want;
		bool warns;
	} rows[] = {
		{ "", "8.8.8.8:53", true },
		{ "nameserver 127.0.0.53\nnameserver ::1\nnameserver 0.0.0.0\nnameserver "
		  "::\n",
		  "8.8.8.8:53", true },
		{ "nameserver 127.0.0.11\noptions ndots:0\n", "127.0.0.11:53", false },
		{ "search a\n nameserver 1.1.1.1 \nnameserver\t2.2.2.2\nnameserver "
		  "1.1.1.1\n#nameserver 3.3.3.3\nnameserver fe80::1%eth0\nnameserver x\n"
		  "nameservers 4.4.4.4\nnameserver 2001:db8::1",
		  "1.1.1.1:53 2.2.2.2:53 [2001:db8::1]:53", false },
		{ "nameserver 1.0.0.1\nnameserver 1.0.0.2\nnameserver 1.0.0.3\n"
		  "nameserver 1.0.0.4\nnameserver 1.0.0.5\nnameserver 1.0.0.6\n"
		  "nameserver 1.0.0.7\nnameserver 1.0.0.8\nnameserver 1.0.0.9\n"
		  "nameserver 1.0.0.10\nnameserver 1.0.0.11\n",
		  "1.0.0.1:53 1.0.0.2:53 1.0.0.3:53 1.0.0.4:53 1.0.0.5:53 1.0.0.6:53 "
		  "1.0.0.7:53 1.0.0.8:53 1.0.0.9:53 1.0.0.10:53",
		  false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct start s;

		set_resolv_conf(rows[i].text);
		START(&s, NULL);
		expect_good(&s);
		assert_string_equal(upstreams_of(&s), rows[i].want);
		assert_int_equal(warns_of(&s, "asking 8.8.8.8"), rows[i].warns);
		start_done(&s);
	}
	set_resolv_conf("nameserver 192.0.2.53\n");
}

/* F8 */
TEST(only_addresses_are_exempt)
{
	struct start s;

	START(&s, "OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT=1.1.1.1, 2001:db8::1 ,invalid, "
		  "10.0.0.0/8, ,1.1.1.1");
	expect_good(&s);
	assert_int_equal(s.spec.exempt_count, 2);
	assert_true(warns_of(&s, "'invalid' is not an address"));
	assert_true(warns_of(&s, "'10.0.0.0/8' is not an address"));
	start_done(&s);
	CALL(&s, "--nameserver-exempt", "10.0.0.0/8");
	assert_int_equal(s.r, -EINVAL);
	start_done(&s);
}

/* F9, H7, and the others that fall back. */
TEST(numbers_fall_back_as_the_reference_does)
{
	static const struct {
		const char *variable;
		uint32_t timeout, every, rules;
		bool warns;
	} rows[] = {
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=10", 10, 30, 4096, false },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=121", 120, 30, 4096, false },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=4294967295", 120, 30, 4096,
		  false },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=0", 5, 30, 4096, true },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=-1", 5, 30, 4096, true },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT=5s", 5, 30, 4096, true },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=", 5, 30, 4096,
		  false },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=5", 5, 5, 4096,
		  false },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=junk", 5, 30, 4096,
		  true },
		{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC=9999", 5, 3600,
		  4096, false },
		{ "OPENSANDBOX_EGRESS_MAX_RULES=0", 5, 30, 0, false },
		{ "OPENSANDBOX_EGRESS_MAX_RULES=100", 5, 30, 100, false },
		{ "OPENSANDBOX_EGRESS_MAX_RULES=not-a-number", 5, 30, 4096, true },
		{ "OPENSANDBOX_EGRESS_MAX_RULES=-1", 5, 30, 4096, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct start s;

		START(&s, rows[i].variable);
		expect_good(&s);
		assert_int_equal(s.spec.upstream_timeout_sec, rows[i].timeout);
		assert_int_equal(s.spec.probe_every_sec, rows[i].every);
		assert_int_equal(s.spec.max_rules, rows[i].rules);
		assert_int_equal(s.spec.warning_count, rows[i].warns);
		start_done(&s);
	}
}

TEST(probes_ask_for_the_root_or_a_name)
{
	struct dns_name want;
	struct start s;

	START(&s, "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE=.");
	assert_int_equal(s.spec.probe_name.size, 0);
	start_done(&s);
	START(&s, "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE=intranet.corp");
	assert_int_equal(dns_name_parse(text_of("intranet.corp"), &want), 0);
	assert_true(dns_name_equal(&s.spec.probe_name, &want));
	start_done(&s);
	START(&s, "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE=a..b");
	expect_good(&s);
	assert_int_equal(s.spec.probe_name.size, 0);
	assert_true(warns_of(&s, "'a..b'"));
	start_done(&s);
}

/* F11 */
TEST(attributes_are_cut_at_the_first_equals_sign)
{
	static const char *const want[] = { "a", "b", "k", "v=x", "s", "t" };
	struct start s;

	START(&s, "OPENSANDBOX_EGRESS_METRICS_EXTRA_ATTRS=a=z, novalue,=bad,nokv=, a = b "
		  ",k=v=x,s=t");
	expect_good(&s);
	assert_int_equal(s.spec.attr_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_true(text_equal(s.spec.attrs[i].key, want[2 * i]));
		assert_true(text_equal(s.spec.attrs[i].value, want[2 * i + 1]));
	}
	start_done(&s);
}

TEST(levels_and_outputs)
{
	static const struct {
		const char *variable;
		enum sidecar_log_level want;
	} rows[] = {
		{ "OPENSANDBOX_EGRESS_LOG_LEVEL=debug", SIDECAR_LOG_DEBUG },
		{ "OPENSANDBOX_EGRESS_LOG_LEVEL=Warning", SIDECAR_LOG_WARN },
		{ "OPENSANDBOX_EGRESS_LOG_LEVEL=warn", SIDECAR_LOG_WARN },
		{ "OPENSANDBOX_EGRESS_LOG_LEVEL=fatal", SIDECAR_LOG_FATAL },
		{ "OPENSANDBOX_EGRESS_LOG_LEVEL=loud", SIDECAR_LOG_INFO },
	};
	struct start s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		START(&s, rows[i].variable);
		expect_good(&s);
		assert_int_equal(s.spec.log_level, rows[i].want);
		start_done(&s);
	}
	START(&s, "OPENSANDBOX_LOG_OUTPUT=stderr, /var/log/x.log,stderr");
	assert_int_equal(s.spec.log_output_count, 2);
	assert_string_equal(s.spec.log_outputs[0], "stderr");
	assert_string_equal(s.spec.log_outputs[1], "/var/log/x.log");
	start_done(&s);
}

TEST(flags_of_the_environment)
{
	static const struct {
		const char *variable;
		bool want;
		size_t warnings;
	} rows[] = {
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443=1", true },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443=True", true },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443= yes ", true },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443=y", true },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443=on", true },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443=0", false },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443= Off", false },
		{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443=enabled", false, 1 },
		{ "WEIR_BLOCK_DOH_443=1", true },
	};
	struct start s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		START(&s, rows[i].variable);
		expect_good(&s);
		assert_int_equal(s.spec.block_doh_443, rows[i].want);
		assert_int_equal(s.spec.warning_count, rows[i].warnings);
		start_done(&s);
	}
	START(&s, "OPENSANDBOX_EGRESS_BLOCK_DOH_443=1",
	      "OPENSANDBOX_EGRESS_DOH_BLOCKLIST=9.9.9.9, 2001:db8::/32,x,10.0.0.1/8");
	expect_good(&s);
	assert_int_equal(s.spec.doh_count, 3);
	assert_int_equal(s.spec.doh[2].bits, 8);
	assert_int_equal(s.spec.warning_count, 1);
	start_done(&s);
}

TEST(the_command_line_counts_before_the_variables)
{
	static const char *const variables[] = {
		"OPENSANDBOX_EGRESS_MODE=dns",
		"WEIR_MODE=dns+nft",
		"OPENSANDBOX_EGRESS_TOKEN= t ",
		"WEIR_DNS_UPSTREAM=1.1.1.1,1.1.1.2",
		"OPENSANDBOX_EGRESS_DNS_UPSTREAM=8.8.8.8",
		"WEIR_SANDBOX_ID=a",
		"OPENSANDBOX_EGRESS_SANDBOX_ID=b",
		"OPENSANDBOX_EGRESS_RULES={\"egress\":[]}",
	};
	static const char *const arguments[] = { "--mode=dns+nft+tls", "--sandbox-id",
						 "c", "--deny-webhook",
						 "https://x.test/?a=1,2" };
	struct start s;

	start(&s, variables, ARRAY_SIZE(variables), arguments, ARRAY_SIZE(arguments));
	expect_good(&s);
	assert_int_equal(s.spec.mode, SIDECAR_MODE_DNS_NFT_TLS);
	assert_string_equal(s.spec.token, " t ");
	assert_true(warns_of(&s, "the token begins or ends with white space"));
	assert_string_equal(upstreams_of(&s), "1.1.1.1:53 1.1.1.2:53");
	assert_string_equal(s.spec.sandbox_id, "c");
	assert_string_equal(s.spec.webhooks[0], "https://x.test/?a=1,2");
	assert_string_equal(s.spec.rules, "{\"egress\":[]}");
	start_done(&s);
}

/* A variable that every process of the container has opens nothing, nor ends a start. */
TEST(only_the_command_line_removes)
{
	struct start s;

	START(&s, "WEIR_REMOVE=1", "WEIR_HEALTHY=1");
	expect_good(&s);
	assert_false(s.spec.remove);
	assert_false(s.spec.healthy);
	start_done(&s);
	CALL(&s, "--remove");
	assert_true(s.spec.remove);
	start_done(&s);
	CALL(&s, "--healthy", "--http-addr=127.0.0.1:1");
	assert_true(s.spec.healthy);
	start_done(&s);
}

TEST(what_would_weaken_is_refused)
{
	static const char *const rows[][2] = {
		{ "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true", "mitmproxy" },
		{ "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=On", "mitmproxy" },
		{ "WEIR_ON_UNENFORCEABLE=ignore", "one of fail, dns, open" },
		{ "WEIR_HOST_NETWORK_CHECK=no", "one of on, off" },
		{ "WEIR_UI=yes", "one of on, off" },
		{ "WEIR_API_OPEN=yes", "'yes' is not one of 1, 0, true, false" },
		{ "WEIR_MAX_RULES=-1", "from 0 to 4294967295" },
		{ "WEIR_DNS_UPSTREAM_TIMEOUT=121", "from 1 to 120" },
		{ "WEIR_DNS_UPSTREAM_PROBE_INTERVAL=0", "from 1 to 3600" },
		{ "WEIR_DOH_BLOCKLIST=x", "an address or a prefix" },
		{ "WEIR_LOG_LEVEL=loud", "'loud' is not a level" },
		{ "WEIR_DENY_WEBHOOK=ftp://x", "a URL" },
		{ "WEIR_METRICS_EXTRA_ATTRS=a", "KEY=VALUE" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct start s;

		START(&s, rows[i][0]);
		if (s.r != -EINVAL || !strstr(s.err.text, rows[i][1]))
			fail_msg("%s: %d %s", rows[i][0], s.r, s.err.text);
		start_done(&s);
	}
}

TEST(what_means_nothing_here_is_told)
{
	static const char *const rows[][2] = {
		{ "OTEL_EXPORTER_OTLP_ENDPOINT=http://x", "/metrics" },
		{ "OPENSANDBOX_EGRESS_REDIRECT_BACKEND=iptables",
		  "OPENSANDBOX_EGRESS_REDIRECT_BACKEND" },
		{ "OPENSANDBOX_EGRESS_PROFILE=fleet", "OPENSANDBOX_EGRESS_PROFILE" },
		{ "OPENSANDBOX_EGRESS_UPSTREAM_PROXY=http://p",
		  "OPENSANDBOX_EGRESS_UPSTREAM_PROXY" },
		{ "OPENSANDBOX_EGRESS_MITMPROXY_PORT=1", "without mitmproxy" },
		{ "OPENSANDBOX_NETWORK_POLICY={}", "OPENSANDBOX_EGRESS_RULES" },
		{ "OPENSANDBOX_EGRESS_NEWER=1", "OPENSANDBOX_EGRESS_NEWER is not known" },
		{ "WEIR_POLICYFILE=/x", "WEIR_POLICYFILE is a variable of no option" },
		{ "OPENSANDBOX_EGRESS_MODE=dns", "mode dns" },
	};
	struct start s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		START(&s, rows[i][0]);
		expect_good(&s);
		assert_int_equal(s.spec.warning_count, 1);
		if (!warns_of(&s, rows[i][1]))
			fail_msg("%s: %s", rows[i][0], s.spec.warnings[0]);
		start_done(&s);
	}
	START(&s, "OTEL_A=1", "OTEL_B=2",
	      "OTEL_EMPTY=", "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=false");
	assert_int_equal(s.spec.warning_count, 1);
	start_done(&s);
}

/* All but the last are printed: here to a file in place of standard error. */
TEST(every_fault_is_told)
{
	static const char *const variables[] = { "WEIR_MODE=x",
						 "OPENSANDBOX_EGRESS_HTTP_ADDR=here",
						 "WEIR_MAX_RULES=many" };
	static const char *const arguments[] = { "--nothing",	 "--log-level", "loud",
						 "--api-open=1", "--token",	"t",
						 "stray" };
	static const char *const wanted[] = { "'--nothing' is not an option",
					      "--log-level: 'loud' is not a level",
					      "--api-open takes no value",
					      "'stray' is one argument too many",
					      "WEIR_MODE: 'x' is not a mode",
					      "WEIR_MAX_RULES: 'many'",
					      "OPENSANDBOX_EGRESS_HTTP_ADDR: 'here'" };
	char path[] = "/tmp/test-settings-XXXXXX", printed[4096] = "";
	int fd = mkostemp(path, O_CLOEXEC), stderr_fd = fcntl(2, F_DUPFD_CLOEXEC, 3);
	struct start s;

	assert_true(fd >= 0 && stderr_fd >= 0);
	dup2(fd, 2);
	start(&s, variables, ARRAY_SIZE(variables), arguments, ARRAY_SIZE(arguments));
	dup2(stderr_fd, 2);
	assert_true(pread(fd, printed, sizeof(printed) - 1, 0) > 0);
	close(fd);
	close(stderr_fd);
	unlink(path);
	assert_int_equal(s.r, -EINVAL);
	snprintf(printed + strlen(printed), sizeof(printed) - strlen(printed), "%s",
		 s.err.text);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!strstr(printed, wanted[i]))
			fail_msg("not told: %s in %s", wanted[i], printed);
	start_done(&s);
}

TEST(paths_stand_where_the_start_stood)
{
	struct start s;

	assert_int_equal(chdir("/tmp"), 0);
	CALL(&s, "--policy-file", "p.json", "--always-dir", "/r", "--state-dir", "s");
	expect_good(&s);
	assert_string_equal(s.spec.policy_file, "/tmp/p.json");
	assert_string_equal(s.spec.static_rules_dir, "/r");
	assert_string_equal(s.spec.state_dir, "/tmp/s");
	start_done(&s);
	CALL(&s, "--policy-file", "");
	assert_int_equal(s.r, -EINVAL);
	start_done(&s);
}

TEST(a_state_directory_whose_files_have_too_long_names_is_no_open_one)
{
	char directory[PATH_MAX];
	struct document *d = NULL;
	struct err err = { 0 };

	memset(directory, 'x', sizeof(directory));
	for (size_t i = 0; i < sizeof(directory); i += 128)
		directory[i] = '/';
	directory[sizeof(directory) - sizeof("/closed")] = '\0';
	assert_int_equal(closed_file_read(directory, &d, &err), -ENAMETOOLONG);
	assert_true(closed_file_had_policy(directory));
	assert_int_equal(closed_file_note_policy(directory, &err), -ENAMETOOLONG);
}

static int make_resolv_conf(void **state)
{
	int fd = mkostemp(resolv_conf, O_CLOEXEC);

	if (fd < 0)
		return -1;
	close(fd);
	set_resolv_conf("nameserver 192.0.2.53\n");
	return 0;
}

static int remove_resolv_conf(void **state)
{
	return unlink(resolv_conf);
}

int main(void)
{
	return unit_run(make_resolv_conf, remove_resolv_conf);
}
