// SPDX-License-Identifier: Apache-2.0
/* sys/resolv_conf - name servers: those of an option, and those of a resolv.conf(5). */
#pragma once

#include "base/addr.h"
#include "base/err.h"
#include "base/text.h"

/* Read ADDR, ADDR:PORT or [IPV6]:PORT, with blanks around it; without a port: 53.
 * Return: whether that is an address at which a name server can be. */
bool name_server_parse(struct text text, struct endpoint *ret);

/* Call @on_server for each `nameserver` line with an address (port 53) that can be asked,
 * in their order. A server with a zone (fe80::1%eth0) is left out.
 * Return: 0, or -errno: -ENOENT, what file_read() returns. */
int resolv_conf_read(const char *path,
		     void (*on_server)(void *data, const struct endpoint *server),
		     void *data, struct err *err) MUST_CHECK;

enum { SEARCH_DOMAINS_MAX = 6, SEARCH_DOMAIN_SIZE = 256 }; /* others are left out */

/* What is put behind names without a dot. */
struct search_domains {
	char items[SEARCH_DOMAINS_MAX][SEARCH_DOMAIN_SIZE];
	size_t count;
};

/* Those of the host's /etc/resolv.conf; none where it can't be read. */
void search_domains_read(struct search_domains *ret);

enum { NAME_SERVERS_MAX = 16 }; /* more of an option are an error; others are left out */

struct name_servers {
	struct endpoint items[NAME_SERVERS_MAX];
	size_t count;
};

/* A setter of --upstream: add ADDR, ADDR:PORT or [IPV6]:PORT to @servers, a struct
 * name_servers. Return: 0, or -EINVAL with @err. */
int name_servers_add(void *servers, const char *value, struct err *err) MUST_CHECK;

/* When there is none in @s, those of the host's /etc/resolv.conf.
 * Return: 0, or -ENOENT with @err when it has none that is usable. */
int name_servers_complete(struct name_servers *s, struct err *err) MUST_CHECK;
