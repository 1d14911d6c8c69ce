// SPDX-License-Identifier: Apache-2.0
/* run/report_file - what --report asks for: JSON, Markdown, GitHub's workflow commands,
 * SARIF, JUnit's XML. */
#pragma once

#include "run/report.h"

/* Before the command starts: open the files that --report names, so that nothing that the
 * sandbox does to the paths matters. Markdown and GitHub's commands are appended, as a CI
 * job's summary wants it; the other forms replace what is there. "-" is standard output.
 * Return: 0 with the descriptors in spec->reports, or -errno with @err. */
int report_open(struct run_spec *spec, struct err *err) MUST_CHECK;

/* One such file, for writing, with O_ flags @mode besides. Return: a descriptor, or
 * -errno with @err. */
int report_open_file(const char *name, int mode, struct err *err) MUST_CHECK;

/* The directory that holds @name, whose last component is *@ret_last, with no link on the
 * way that an earlier sandbox may have left there. Return: an O_PATH descriptor, or
 * -errno with @err. */
int report_open_directory(const char *name, const char **ret_last,
			  struct err *err) MUST_CHECK;

/* Write them all, and close them. Return: 0, or -errno with @err: one could not be
 * written. */
int report_write(const struct report *r, struct err *err) MUST_CHECK;
