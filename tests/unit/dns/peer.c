// SPDX-License-Identifier: Apache-2.0
/* peer - what dns/ makes of a message, as text, for test_against_dnspython.py.
 *
 * Each line of standard input is a command and a message in hexadecimal; each line of
 * standard output is what came of it:
 *   query HEX    status, and the fields of the query
 *   answer HEX   kind and chain and addresses; the question asked is the message's own
 *   reply HEX    the reply of at most 512 octets made from that answer, in hexadecimal */
#include <stdio.h>
#include <stdlib.h>

#include "dns/answer.h"

static size_t read_hex(const char *hex, uint8_t *ret, size_t max)
{
	unsigned int octet;
	size_t n = 0;

	while (n < max && sscanf(hex + 2 * n, "%2x", &octet) == 1)
		ret[n++] = (uint8_t)octet;
	return n;
}

static void print_query(const uint8_t *bytes, size_t size)
{
	char text[DNS_NAME_TEXT_SIZE];
	struct dns_query q;
	enum dns_query_status status = dns_query_read(bytes, size, &q);

	printf("%d", status);
	if (status == DNS_QUERY_OK)
		printf(" %s %u %u %d %d %d %d %d %u", dns_name_format(&q.name, text),
		       q.type, q.class, q.rd, q.cd, q.ad, q.has_edns, q.dnssec_ok,
		       q.udp_size);
	printf("\n");
}

static bool read_answer(const uint8_t *bytes, size_t size, struct dns_query *ret_query,
			struct dns_answer *ret)
{
	struct wire w = wire_reader(bytes, size);
	struct dns_asked asked = { .id = wire_read_u16(&w) };

	*ret_query =
		(struct dns_query){ .id = asked.id, .class = DNS_CLASS_IN, .rd = true };
	wire_seek(&w, DNS_HEADER_SIZE);
	if (dns_name_read(&w, &asked.name, asked.case_name) < 0)
		return false;
	asked.type = wire_read_u16(&w);
	ret_query->type = asked.type;
	ret_query->name = asked.name;
	memcpy(ret_query->raw_name, asked.case_name, sizeof(asked.case_name));
	dns_answer_read(bytes, size, &asked, ret);
	return true;
}

static void print_answer(const uint8_t *bytes, size_t size)
{
	static struct dns_answer a;
	char text[DNS_NAME_TEXT_SIZE];
	struct dns_query q;

	if (!read_answer(bytes, size, &q, &a)) {
		printf("unreadable\n");
		return;
	}
	printf("%d %u", a.kind, a.ttl_sec);
	for (size_t i = 0; i < a.chain_count; i++)
		printf(" %s/%u", dns_name_format(&a.chain[i], text), a.chain_ttl_sec[i]);
	for (size_t i = 0; i < a.addr_count; i++)
		printf(" %s/%u", addr_format(&a.addrs[i].addr, text), a.addrs[i].ttl_sec);
	printf("\n");
}

static void print_reply(const uint8_t *bytes, size_t size)
{
	static struct dns_answer a;
	const struct dns_reply_form form = { .keep = UINT32_MAX, .ttl_cap_sec = 300 };
	uint8_t buf[DNS_UDP_MIN];
	struct dns_query q;
	uint32_t written;

	if (read_answer(bytes, size, &q, &a)) {
		size = dns_reply_write(buf, sizeof(buf), &q, &a, &form, &written);
		for (size_t i = 0; i < size; i++)
			printf("%02x", buf[i]);
	}
	printf("\n");
}

int main(void)
{
	static char line[2 * DNS_MESSAGE_MAX + 64], hex[sizeof(line)];
	static uint8_t bytes[DNS_MESSAGE_MAX];
	char command[16];

	while (fgets(line, sizeof(line), stdin)) {
		hex[0] = '\0';
		if (sscanf(line, "%15s %s", command, hex) < 1)
			return 1;
		/* Of exactly that size, so that a sanitizer sees an overrun. */
		size_t size = read_hex(hex, bytes, sizeof(bytes));
		uint8_t *copy = malloc(size + 1);

		if (!copy)
			return 1;
		memcpy(copy, bytes, size);
		if (command[0] == 'q')
			print_query(copy, size);
		else if (command[0] == 'a')
			print_answer(copy, size);
		else
			print_reply(copy, size);
		free(copy);
		fflush(stdout);
	}
	return 0;
}
