// SPDX-License-Identifier: Apache-2.0
/* proto/settings_internal - the parts of proto/settings: what the values mean
 * (sidecar_values.c) and OpenSandbox's variables (sidecar_compat.c). */
#pragma once

#include "proto/settings.h"

enum {
	SIDECAR_TIMEOUT_DEFAULT = 5, /* seconds */
	SIDECAR_TIMEOUT_MAX = 120,
	SIDECAR_PROBE_EVERY_DEFAULT = 30,
	SIDECAR_PROBE_EVERY_MAX = 3600,
	SIDECAR_RESOLV_CONF_MAX = 10, /* of its servers; more are left out */
	SIDECAR_WARNINGS_MAX = 32,    /* of sidecar_spec.warnings; more aren't told */
};

/* Faults, of which all but the last are printed at once: that one goes to the caller. */
struct sidecar_faults {
	struct err last;
	size_t count;
};

void sidecar_fault(struct sidecar_faults *f, const struct err *err);
/* Once each; what is over the maximum isn't told. */
void sidecar_warn(struct sidecar_spec *spec, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A path that means the same wherever the process will stand; in spec->arena. */
int sidecar_set_path(struct sidecar_spec *spec, const char *value, const char **ret,
		     struct err *err) MUST_CHECK;

/* "stdout" or a path. */
int sidecar_set_jsonl(void *target, const char *value, struct err *err);
/* Setters of struct cli_option: they write only on success. */
int sidecar_set_mode(void *target, const char *value, struct err *err);
int sidecar_set_http_addr(void *target, const char *value, struct err *err);
int sidecar_set_max_rules(void *target, const char *value, struct err *err);
int sidecar_set_log_level(void *target, const char *value, struct err *err);
int sidecar_set_log_output(void *target, const char *value, struct err *err);
int sidecar_set_webhook(void *target, const char *value, struct err *err);
int sidecar_set_review_webhook(void *target, const char *value, struct err *err);
int sidecar_set_review_command(void *target, const char *value, struct err *err);
int sidecar_set_attr(void *target, const char *value, struct err *err);
int sidecar_set_exempt(void *target, const char *value, struct err *err);
int sidecar_set_upstream(void *target, const char *value, struct err *err);
int sidecar_set_probe(void *target, const char *value, struct err *err);
int sidecar_set_doh(void *target, const char *value, struct err *err);
int sidecar_set_api_host(void *target, const char *value, struct err *err);
int sidecar_set_postgres(void *target, const char *value, struct err *err);

/* What is asked for needs a store: is there one? */
int sidecar_check_stores(const struct sidecar_spec *spec, struct err *err) MUST_CHECK;
/* The name servers of spec->resolv_conf, when none was given: see spec->upstreams. */
int sidecar_resolv_conf(struct sidecar_spec *spec, struct err *err) MUST_CHECK;

/* What neither the command line nor WEIR_ variables set; what can't be served; what
 * means nothing here. */
void sidecar_read_opensandbox(struct sidecar_spec *spec, struct sidecar_faults *faults);
