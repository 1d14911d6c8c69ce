// SPDX-License-Identifier: Apache-2.0
#include "sys/resolv_conf.h"

#include <string.h>

#include "base/text.h"
#include "sys/files.h"

enum { RESOLV_CONF_MAX = 64 * 1024 };

/* Return: whether the line names a server. */
static bool read_line(struct text line, struct endpoint *ret)
{
	static const char keyword[] = "nameserver";
	const size_t len = sizeof(keyword) - 1;

	line = text_trim(line);
	if (line.len <= len || memcmp(line.ptr, keyword, len) != 0 ||
	    (line.ptr[len] != ' ' && line.ptr[len] != '\t'))
		return false;
	line = text_trim((struct text){ line.ptr + len, line.len - len });
	*ret = (struct endpoint){ .port = 53 };
	return addr_parse(line.ptr, line.len, &ret->addr);
}

int resolv_conf_read(const char *path,
		     void (*on_server)(void *data, const struct endpoint *server),
		     void *data, struct err *err)
{
	const struct file_how how = { .max_bytes = RESOLV_CONF_MAX,
				      .anybodys = true,
				      .follow = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest, line;
	int r = file_read(AT_FDCWD, path, &how, &file, err);

	if (r < 0)
		return r;
	rest = (struct text){ file.bytes, file.size };
	while (text_split(&rest, '\n', &line)) {
		struct endpoint server;

		if (read_line(line, &server))
			on_server(data, &server);
	}
	return 0;
}
