// SPDX-License-Identifier: Apache-2.0
#include "run/channel.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

void channel_report(int fd, enum launch_report_type type, int value, const char *fmt, ...)
{
	struct launch_report report = { .type = type, .value = value };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(report.text, sizeof(report.text), fmt, ap);
	va_end(ap);
	(void)!send(fd, &report, sizeof(report), MSG_NOSIGNAL);
}
