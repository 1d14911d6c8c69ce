// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings/settings.h"
#include "tools/tools.h"
#include "unit.h"

enum { WORDS_MAX = 8 };

struct start {
	struct sidecar_spec spec;
	struct err err;
	int r;
};

/* `weir daemon` with @words, up to the first NULL. */
static void start(struct start *s, const char *const *words)
{
	const char *argv[WORDS_MAX + 4] = { "daemon", "--dns-upstream", "192.0.2.1" };
	int argc = 3;

	while (words[argc - 3])
		argv[argc] = words[argc - 3], argc++;
	memset(s, 0, sizeof(*s));
	s->r = cli_daemon_parse(argc, (char **)argv, &s->spec, &s->err);
}

#define START(s, ...) start(s, (const char *const[WORDS_MAX]){ __VA_ARGS__ })

TEST(test_what_holds_without_options)
{
	struct start s;

	clearenv();
	START(&s, NULL);
	assert_int_equal(s.r, 0);
	assert_string_equal(s.spec.socket, "/run/weir/weir.sock");
	assert_string_equal(s.spec.run_dir, "/run/weir");
	assert_string_equal(s.spec.state_dir, "/var/lib/weir");
	assert_int_equal(s.spec.max_rules, SIDECAR_RULES_DEFAULT);
	assert_int_equal(s.spec.log_output_count, 1);
	assert_int_equal(s.spec.upstream_count, 1);
	/* nothing of the sidecar's that would weaken it */
	assert_null(s.spec.token);
	assert_false(s.spec.api_open);
	assert_int_equal(s.spec.exempt_count, 0);
	assert_true(s.spec.ui);
	arena_done(&s.spec.arena);
}

TEST(test_a_variable_counts_behind_the_command_line)
{
	static char socket[] = "WEIR_SOCKET=/a/sock", run[] = "WEIR_RUN_DIR=/a/run";
	/* the sidecar's are not the daemon's */
	static char open[] = "WEIR_API_OPEN=1", mode[] = "WEIR_MODE=dns";
	struct start s;

	clearenv();
	assert_int_equal(putenv(socket) | putenv(run) | putenv(open) | putenv(mode), 0);
	START(&s, "--socket", "/b/sock", "--ui", "off");
	assert_false(s.spec.ui);
	assert_int_equal(s.r, 0);
	assert_string_equal(s.spec.socket, "/b/sock");
	assert_string_equal(s.spec.run_dir, "/a/run");
	assert_false(s.spec.api_open);
	assert_int_equal(s.spec.mode, SIDECAR_MODE_DNS_NFT_TLS);
	arena_done(&s.spec.arena);
	clearenv();
}

TEST(test_a_path_means_the_same_everywhere)
{
	struct start s;

	clearenv();
	START(&s, "--run-dir", "run");
	assert_int_equal(s.r, 0);
	assert_int_equal(s.spec.run_dir[0], '/');
	arena_done(&s.spec.arena);
}

TEST(test_what_is_no_option_ends_the_start)
{
	static const char *const bad[][2] = {
		{ "--mode", "dns" },	 { "--api-open", NULL },
		{ "--token", "x" },	 { "--nameserver-exempt", "1.1.1.1" },
		{ "--socket", "" },	 { "--dns-upstream", "x" },
		{ "--max-rules", "-1" }, { "word", NULL },
		{ "--remove", NULL },
	};

	clearenv();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct start s;

		START(&s, bad[i][0], bad[i][1]);
		assert_int_equal(s.r, -EINVAL);
		assert_true(s.err.text[0] != '\0');
		arena_done(&s.spec.arena);
	}
}

TEST(test_name_servers_are_the_hosts)
{
	static const struct {
		const char *text, *first;
		size_t count;
	} cases[] = {
		{ "nameserver 127.0.0.53\noptions edns0\n", "127.0.0.53:53", 1 },
		{ "nameserver ::1\nnameserver 192.0.2.1\n", "[::1]:53", 2 },
		{ "", NULL, 0 }, /* and nobody else */
		{ "nameserver 0.0.0.0\nsearch a.test\n", NULL, 0 },
	};
	char path[] = "/tmp/test-daemon-XXXXXX", got[ENDPOINT_TEXT_SIZE];
	const char *argv[] = { "daemon", "--resolv-conf", path, NULL };
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	clearenv();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct start s = { 0 };

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, cases[i].text, strlen(cases[i].text), 0),
				 strlen(cases[i].text));
		s.r = cli_daemon_parse(3, (char **)argv, &s.spec, &s.err);
		assert_int_equal(s.r, 0);
		assert_int_equal(s.spec.upstream_count, cases[i].count);
		assert_int_equal(s.spec.warning_count, 0);
		if (cases[i].first)
			assert_string_equal(endpoint_format(&s.spec.upstreams[0], got),
					    cases[i].first);
		arena_done(&s.spec.arena);
	}
	close(fd);
	unlink(path);
}

/* What both take means the same, and is said in the same words. */
TEST(test_options_are_those_of_the_sidecar)
{
	size_t shared = 0;

	for (size_t i = 0; i < cli_daemon_options.count; i++) {
		const struct cli_option *o = &cli_daemon_options.items[i];
		const struct cli_option *other =
			cli_option_find(&cli_sidecar_options, text_of(o->name));

		/* Which has another default. */
		if (!other || strcmp(o->name, "state-dir") == 0)
			continue;
		shared++;
		assert_string_equal(o->arg, other->arg);
		assert_string_equal(o->help, other->help);
		assert_int_equal(o->separator, other->separator);
	}
	assert_in_range(shared, 10, 20);
}

TEST(test_an_attach_says_what_is_attached)
{
	static const char *const bad[][6] = {
		{ "attach", "--id", "x" },
		{ "attach", "--netns", "1" },
		{ "attach", "--id", "../x", "--netns", "1" },
		{ "attach", "--id", ".", "--netns", "1" },
		{ "attach", "--id", "a b", "--netns", "1" },
		{ "attach", "--id", "x", "--netns", "1", "more" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int argc = 0;

		while (argc < 6 && bad[i][argc])
			argc++;
		assert_int_equal(cli_attach(argc, (char **)bad[i]), 2);
	}
}

TEST(test_there_is_no_tcp_without_tls_and_a_token)
{
	static const struct {
		const char *words[WORDS_MAX];
		const char *want; /* NULL: it is taken */
	} cases[] = {
		{ { "--listen", ":8443" }, "--tls-cert is needed" },
		{ { "--listen", ":8443", "--tls-cert", "c" }, "--tls-key is needed" },
		{ { "--listen", ":8443", "--tls-cert", "c", "--tls-key", "k" },
		  "--token-file is needed" },
		{ { "--token-file", "t" }, "--token-file: --listen is needed" },
		{ { "--listen", "8443" }, "is not an address to listen on" },
		{ { "--listen=127.0.0.1:8443", "--tls-cert=c", "--tls-key=k",
		    "--token-file=t" },
		  NULL },
	};
	struct start s;

	clearenv();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		start(&s, cases[i].words);
		assert_int_equal(s.r, cases[i].want ? -EINVAL : 0);
		if (cases[i].want)
			assert_non_null(strstr(s.err.text, cases[i].want));
		else
			assert_int_equal(s.spec.http.port, 8443);
		arena_done(&s.spec.arena);
	}
}
