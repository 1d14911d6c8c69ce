// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	err->code = code;
	return code;
}

int err_sys(struct err *err, int code, const char *fmt, ...)
{
	size_t used;
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	err->code = code;
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror(-code));
	return code;
}

int err_context(struct err *err, const char *fmt, ...)
{
	char rest[ERR_TEXT_SIZE];
	size_t used;
	va_list ap;

	if (!err)
		return -1;
	memcpy(rest, err->text, sizeof(rest));
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %s", rest);
	return err->code;
}

int err_also(struct err *err, const struct err *more)
{
	if (more->code == 0)
		return err->code;
	if (err->code < 0)
		log_error("%s", err->text);
	*err = *more;
	return err->code;
}
