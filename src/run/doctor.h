// SPDX-License-Identifier: Apache-2.0
/* run/doctor - `weir doctor`: what of this machine `weir run` needs, tried one by one,
 * and how to mend what is missing. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "run/options.h"

/* @argv[0] is "doctor"; @run starts a sandbox, as `weir run` does.
 * Return: the exit status: 0, 1 when `weir run` can't work here, 2 for bad usage. */
int cli_doctor(int argc, char **argv, int (*run)(struct run_spec *spec));
extern const struct cli_options cli_doctor_options;

/* A `weir run` failed. Return: whether this machine is to blame: the simplest sandbox
 * that there is fails as well. */
bool cli_doctor_blames(int (*run)(struct run_spec *spec));
