// SPDX-License-Identifier: Apache-2.0
#include "sys/resolv_conf.h"

#include <errno.h>
#include <string.h>

#include "base/special.h"
#include "base/text.h"
#include "sys/files.h"

enum { RESOLV_CONF_MAX = 64 * 1024, DNS_PORT = 53 };

static bool is_usable(const struct endpoint *e)
{
	switch (addr_special(&e->addr)) {
	case SPECIAL_INVALID:
	case SPECIAL_UNSPECIFIED:
	case SPECIAL_MULTICAST:
	case SPECIAL_BROADCAST:
		return false;
	case SPECIAL_LINK_LOCAL: /* needs a zone, which is not taken */
		return e->addr.family == ADDR_V4;
	default:
		return e->port != 0;
	}
}

bool name_server_parse(struct text text, struct endpoint *ret)
{
	text = text_trim(text);
	if (text.len > 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']') {
		ret->port = DNS_PORT;
		return addr_parse(text.ptr + 1, text.len - 2, &ret->addr) &&
		       ret->addr.family == ADDR_V6 && is_usable(ret);
	}
	return endpoint_parse(text.ptr, text.len, DNS_PORT, ret) && is_usable(ret);
}

/* The words behind @keyword. False: @line begins with another one. */
static bool read_keyword(struct text line, const char *keyword, struct text *ret)
{
	const size_t len = strlen(keyword);

	line = text_trim(line);
	if (line.len <= len || memcmp(line.ptr, keyword, len) != 0 ||
	    (line.ptr[len] != ' ' && line.ptr[len] != '\t'))
		return false;
	*ret = text_trim((struct text){ line.ptr + len, line.len - len });
	return true;
}

/* The file @path, borrowed from @ret. */
static int read_conf(const char *path, struct file_bytes *ret, struct text *ret_text,
		     struct err *err)
{
	const struct file_how how = { .max_bytes = RESOLV_CONF_MAX,
				      .anybodys = true,
				      .follow = true };
	int r = file_read(AT_FDCWD, path, &how, ret, err);

	*ret_text = (struct text){ ret->bytes, ret->size };
	return r;
}

int resolv_conf_read(const char *path,
		     void (*on_server)(void *data, const struct endpoint *server),
		     void *data, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest, line;
	int r = read_conf(path, &file, &rest, err);

	while (r == 0 && text_split(&rest, '\n', &line)) {
		struct endpoint server = { .port = DNS_PORT };

		if (read_keyword(line, "nameserver", &line) &&
		    addr_parse(line.ptr, line.len, &server.addr) && is_usable(&server))
			on_server(data, &server);
	}
	return r;
}

static bool next_word(struct text *t, struct text *ret)
{
	size_t n = 0;

	*t = text_trim(*t);
	while (n < t->len && t->ptr[n] != ' ' && t->ptr[n] != '\t')
		n++;
	*ret = (struct text){ t->ptr, n };
	*t = (struct text){ t->ptr + n, t->len - n };
	return n > 0;
}

void search_domains_read(struct search_domains *ret)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest, line, words, word;
	int r = read_conf("/etc/resolv.conf", &file, &rest, NULL);

	*ret = (struct search_domains){ 0 };
	while (r == 0 && text_split(&rest, '\n', &line)) {
		if (!read_keyword(line, "search", &words) &&
		    !read_keyword(line, "domain", &words))
			continue;
		ret->count = 0; /* the last line of either kind counts */
		while (ret->count < SEARCH_DOMAINS_MAX && next_word(&words, &word)) {
			if (word.len >= SEARCH_DOMAIN_SIZE)
				continue;
			memcpy(ret->items[ret->count], word.ptr, word.len);
			ret->items[ret->count++][word.len] = '\0';
		}
	}
}

int name_servers_add(void *servers, const char *value, struct err *err)
{
	struct name_servers *s = servers;
	struct endpoint e;

	if (!name_server_parse(text_of(value), &e))
		return err_set(err, -EINVAL,
			       "'%s' is not a name server's address: ADDR, ADDR:PORT or "
			       "[IPV6]:PORT",
			       SHOWN(value));
	if (s->count == NAME_SERVERS_MAX)
		return err_set(err, -EINVAL, "given more than %d times",
			       NAME_SERVERS_MAX);
	s->items[s->count++] = e;
	return 0;
}

static void on_server(void *data, const struct endpoint *server)
{
	struct name_servers *s = data;

	if (s->count < NAME_SERVERS_MAX)
		s->items[s->count++] = *server;
}

int name_servers_complete(struct name_servers *s, struct err *err)
{
	static const char path[] = "/etc/resolv.conf";

	if (s->count > 0)
		return 0;
	if (resolv_conf_read(path, on_server, s, err) < 0)
		return err_context(err,
				   "no name server to ask: name one with --upstream");
	if (s->count == 0)
		return err_set(err, -ENOENT,
			       "%s names no usable name server: name one with --upstream",
			       path);
	return 0;
}
