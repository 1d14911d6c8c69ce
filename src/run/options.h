// SPDX-License-Identifier: Apache-2.0
/* run/options - the options of `weir run`, read and checked: from the command line, from
 * variables, and defaults from files; and a file in the working directory that can only
 * narrow.
 *
 * /etc/weir/config.yaml and ~/.config/weir/config.yaml: policy, profile, uplink,
 * upstream, rw, self_test, verify, fail_on_deny, env, hide and so on. The user's comes
 * first; what the command line or the environment has counts before both. A list replaces
 * a list.
 *
 * .weir.yaml: `deny`, added to every other deny, and `verify: tls`. It may come from
 * anywhere (a cloned repository, an earlier sandbox), so nothing in it can widen what a
 * sandbox reaches. */
#pragma once

#include <stdio.h>

#include "base/exit_status.h"
#include "policy/load.h"
#include "policy/policy.h"
#include "sys/options.h"
#include "sys/resolv_conf.h"

enum {
	RUN_REPORTS_MAX = 8, /* one more is an error */
	/* The configuration files and their folder, the store, what is learned, the
	   reports. */
	RUN_KEPT_MAX = 6 + RUN_REPORTS_MAX,
};

enum run_uplink {
	RUN_UPLINK_RELAY = 0,
	RUN_UPLINK_NONE,
	RUN_UPLINK_SLIRP4NETNS, /* TCP by the relay all the same */
	RUN_UPLINK_PASTA,
	RUN_UPLINK_COUNT
};

enum run_hide { RUN_HIDE_CREDENTIALS = 0, RUN_HIDE_NONE, RUN_HIDE_COUNT };

enum run_home { RUN_HOME_USER = 0, RUN_HOME_TMP, RUN_HOME_COUNT };

enum run_env {
	RUN_ENV_DEFAULT = 0, /* what looks like a secret is kept back */
	RUN_ENV_ALL,
	RUN_ENV_NONE,
	RUN_ENV_COUNT
};

enum run_ask {
	RUN_ASK_NONE = 0, /* the run's socket is asked, by `weir review` */
	RUN_ASK_TTY,	  /* and the caller's terminal */
	RUN_ASK_COUNT
};

enum run_self_test {
	RUN_SELF_TEST_DENY = 0,
	RUN_SELF_TEST_FULL,
	RUN_SELF_TEST_STRICT,
	RUN_SELF_TEST_COUNT
};

enum run_report_format {
	RUN_REPORT_JSON = 0,
	RUN_REPORT_MARKDOWN,
	RUN_REPORT_GITHUB,
	RUN_REPORT_SARIF,
	RUN_REPORT_JUNIT,
	RUN_REPORT_FORMAT_COUNT
};

enum run_mode {
	RUN_ENFORCE = 0,
	RUN_AUDIT, /* --audit: what is public is open; the policy is asked afterwards */
	RUN_LEARN, /* `weir learn`: public names are open, and become a policy */
};

/* Of `weir learn`; see run/learn.h. */
struct learn_args {
	const char *output, *ceiling_file, *diff, *from, *sandbox, *since; /* or NULL */
	bool any_port;
	const struct policy *ceiling;
	int dir;	    /* that @output is in; owned; -1: standard output */
	const char *name;   /* of @output in there */
	struct text before; /* of @output, before the command started */
};

struct run_report {
	const char *file; /* "-": standard output */
	bool has_format;  /* --report FORM:FILE */
	enum run_report_format format;
	int fd; /* owned; -1 until report_open(), and for standard output */
};

struct run_spec {
	struct policy_args policy; /* verify: tls unless something says otherwise */
	struct option_list rw, ro, hide;
	struct option_list own; /* of rw: the sandboxes' own directories; canonical */
	struct option_list rw_presets; /* names */
	enum run_home home;
	enum run_hide hide_preset;
	/* Not in namespaces of its own, but on the host, guarded by the daemon. */
	const char *cgroup, *uid;
	const char *socket; /* the daemon's, or NULL */
	uint32_t parent;    /* the command ends with this process; 0: with none */
	const char *id;	    /* what the run is called; NULL: run-PID */
	enum run_env env;   /* of the variables that nothing below names */
	struct option_list pass_env, set_env; /* names, '*' in them; NAME=VALUE */
	/* Names, of run/needs: passed unless `env` is none; not passed. */
	struct option_list profile_env, drop_env;
	enum run_uplink uplink;
	enum run_ask ask;
	enum run_self_test self_test;
	int64_t repin_ms; /* dns: pinned: how often, where the policy doesn't say */
	bool fail_on_deny, quiet, no_config, audit;
	enum run_mode mode;
	struct learn_args learn;
	const char *state_dir; /* of a store that keeps the events; NULL: none */
	struct run_report reports[RUN_REPORTS_MAX];
	size_t report_count;
	bool has_report_format; /* --report-format, for those without one of their own */
	enum run_report_format report_format;
	struct name_servers upstreams; /* none: those of the host's resolv.conf */
	/* Files that stay read-only inside, besides the policy's. */
	const char *kept[RUN_KEPT_MAX];
	size_t kept_count;
	const char *settings; /* the user's directory of defaults and profiles */
	char *const *argv;    /* the command, NULL-ended */
	struct arena arena;   /* of the values that come from elsewhere than argv */
	uint64_t given;	      /* bits of the options that are set */
};

/* @argv[0] is "run" or "learn", and @table is its. Return: 0, or -EINVAL with @err. */
int cli_run_parse(const struct cli_options *table, int argc, char **argv,
		  struct run_spec *ret, struct err *err) MUST_CHECK;
/* With --cgroup or --uid: what is set so far means something there.
 * Return: 0, or -EINVAL with @err. */
int cli_run_check_guarded(const struct run_spec *spec, struct err *err) MUST_CHECK;
/* Once all options are read: what they are together. Return: 0, or -EINVAL with @err. */
int cli_run_settle_mode(struct run_spec *spec, struct err *err) MUST_CHECK;
/* The second has the first one's options as well. */
extern const struct cli_options cli_run_options, cli_learn_options;

#define CONFIG_NARROW ".weir.yaml"

enum config_kind {
	CONFIG_NARROWING = 0, /* .weir.yaml */
	CONFIG_DEFAULTS,
};

/* Read all three, unless spec->no_config. Faults go to stderr, each with its place.
 * Return: 0, -EINVAL or -ENOMEM. */
int config_read(struct run_spec *spec) MUST_CHECK;

/* One of them; one that doesn't exist is empty. @path lives as long as @spec.
 * Return: 0, -EINVAL when faults were added, -ENOMEM. */
int config_read_file(struct run_spec *spec, const char *path, enum config_kind kind,
		     struct faults *faults) MUST_CHECK;

/* The files that stay read-only inside, by the names that were given: the policy's and
 * those that the options name. Built-in profiles are none, and what isn't there needs no
 * protection. *@ret is an array in @arena, @ret_count long. Return: 0 or -ENOMEM. */
int config_kept_files(const struct run_spec *spec, const struct policy *policy,
		      struct arena *arena, const char ***ret,
		      size_t *ret_count) MUST_CHECK;
