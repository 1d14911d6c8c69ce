// SPDX-License-Identifier: Apache-2.0
/* run/doctor - `weir doctor`: what of this machine `weir run` needs, tried one by one,
 * and how to mend what is missing: one row for each feature, filled by really using the
 * feature.
 *
 * HOW IT WORKS
 * What a probe does to its process (namespaces, filters, mounts) it does in a child
 * that ends with it: one like this process, or one in new namespaces of every kind that
 * a sandbox has, with the id map that `weir run` would give it. The child's verdict
 * comes back over a pipe; one that takes longer than DOCTOR_TRY_MS is killed and counts
 * as a failure. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "launch/launch.h"
#include "run/options.h"

enum {
	DOCTOR_ROWS_MAX = 32, /* the table of probes is shorter; asserted */
	DOCTOR_TRY_MS = 5000,
};

enum doctor_state {
	DOCTOR_FAILED = 0, /* `weir run` can't work */
	DOCTOR_WARNING,	   /* it works; a person should know this */
	DOCTOR_UNTRIED,	   /* what it stands on is missing */
	DOCTOR_ABSENT,	   /* not there, and nothing that is used by default */
	DOCTOR_OK,
	DOCTOR_STATE_COUNT
};

enum doctor_system {
	DOCTOR_DEBIAN = 0,
	DOCTOR_UBUNTU,
	DOCTOR_FEDORA,
	DOCTOR_SYSTEM_COUNT
};

/* The texts live in the doctor's arena, or for ever. */
struct doctor_row {
	const char *name;
	enum doctor_state state;
	const char *found;
	const char *follows;		       /* NULL: nothing does */
	const char *mend[DOCTOR_SYSTEM_COUNT]; /* a command; NULL: none */
};

struct doctor {
	struct arena arena;
	int (*run)(struct run_spec *spec);
	struct launch_machine machine;
	bool has_machine;		  /* machine has its ids, or needs none */
	char machine_text[ERR_TEXT_SIZE]; /* why it isn't */
	bool namespaces;		  /* namespaces with capabilities can be had */
	struct doctor_row rows[DOCTOR_ROWS_MAX];
	size_t count;
};

/* What a child found. @text is a reason when @code is below zero. */
struct doctor_attempt {
	int code;  /* 0 or -errno */
	int value; /* the probe's own */
	char text[ERR_TEXT_SIZE];
};

/* In the child. Return: 0 with *@ret_value, or -errno with @err. */
typedef int doctor_try_fn(int *ret_value, struct err *err);

/* @inside: in the namespaces of a sandbox. */
void doctor_try(const struct doctor *d, doctor_try_fn *fn, bool inside,
		struct doctor_attempt *ret);

/* Fill the row. The text is kept; when memory is out it says so instead. */
void doctor_found(struct doctor *d, struct doctor_row *row, enum doctor_state state,
		  const char *fmt, ...) PRINTF_LIKE(4, 5);
/* The same command everywhere; the command of each system. */
void doctor_mend(struct doctor_row *row, const char *command);
void doctor_mend_each(struct doctor_row *row, const char *debian, const char *ubuntu,
		      const char *fedora);
/* A copy in the arena. */
const char *doctor_text(struct doctor *d, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A probe fills everything of its row but the name. */
typedef void doctor_probe_fn(struct doctor *d, struct doctor_row *row);

/* doctor_kernel.c: what the kernel must do */
doctor_probe_fn doctor_user_namespaces, doctor_limits, doctor_link, doctor_owner,
	doctor_id_maps, doctor_landlock;
/* By the name of the row: "proc", "nf_tables", "NFLOG", "overlay", "seccomp". */
doctor_probe_fn doctor_needed;

/* @argv[0] is "doctor"; @run starts a sandbox, as `weir run` does.
 * Return: the exit status: 0, 1 when `weir run` can't work here, 2 for bad usage. */
int cli_doctor(int argc, char **argv, int (*run)(struct run_spec *spec));
extern const struct cli_options cli_doctor_options;

/* A `weir run` failed. Return: whether this machine is to blame: the simplest sandbox
 * that there is fails as well. */
bool cli_doctor_blames(int (*run)(struct run_spec *spec));
