// SPDX-License-Identifier: Apache-2.0
/* Drives events/sqlite for test_store.py: store_driver DIRECTORY MAX_BYTES. One order per
 * line on stdin, one answer per line on stdout:
 *   add FIRST COUNT   that many denied lookups, n<FIRST>.test and on
 *   same COUNT        the same denied lookup that many times
 *   put SANDBOX ACTION ADDRESS PORT RULE COMMAND PACKETS AGO_SEC ALLOWABLE NAME
 *                     one event, 1000 bytes a packet; "-" is none, the name is in hex
 *   like NAME         what is put from now on could be taken for that; -: for nothing
 *   drain             wait until they are written or lost
 *   state             the state as JSON */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "events/sqlite.h"

static struct event_row lookup(const char *name)
{
	struct event e = { .ts_ms = clock_wall_ms(),
			   .packets = 1,
			   .rule = EVENT_NO_RULE,
			   .uid = UINT32_MAX,
			   .action = EVENT_DENY,
			   .layer = EVENT_DNS };
	struct event_row row;

	snprintf(e.name, sizeof(e.name), "%s", name);
	event_row_fill(&row, &e, "sb-1", NULL);
	return row;
}

static void add(struct sqlite_writer *w, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		char name[64];
		struct event_row row;

		snprintf(name, sizeof(name), "n%" PRIu32 ".test", first + i);
		row = lookup(name);
		sqlite_writer_add(w, &row);
		if (i % 256 == 255)
			(void)sqlite_writer_drain(w, 30000);
	}
}

static void from_hex(const char *hex, char *ret, size_t size)
{
	unsigned int byte;
	size_t n = 0;

	while (n + 1 < size && sscanf(hex + 2 * n, "%2x", &byte) == 1)
		ret[n++] = (char)byte;
	ret[n] = '\0';
}

static char like[EVENT_NAME_SIZE];

/* Fields of a word each; "-" is empty. */
static bool put(struct sqlite_writer *w, const char *order)
{
	char words[5][128], hex[600] = "";
	unsigned int port, packets, ago, allowable;
	struct event_row row = { 0 };

	if (sscanf(order, "put %127s %127s %127s %u %127s %127s %u %u %u %599s", words[0],
		   words[1], words[2], &port, words[3], words[4], &packets, &ago,
		   &allowable, hex) != 10)
		return false;
	for (size_t i = 0; i < 5; i++)
		if (strcmp(words[i], "-") == 0)
			words[i][0] = '\0';
	row = lookup("");
	row.event.ts_ms -= (int64_t)ago * 1000;
	row.event.packets = packets;
	row.event.bytes = (uint64_t)packets * 1000;
	row.event.allowable = allowable > 0;
	for (int a = EVENT_ALLOW; a < EVENT_ACTION_COUNT; a++)
		if (strcmp(words[1], event_action_name((enum event_action)a)) == 0)
			row.event.action = (uint8_t)a;
	if (addr_parse(words[2], strlen(words[2]), &row.event.remote)) {
		row.event.layer = EVENT_ADDRESS;
		row.event.port = (uint16_t)port;
		row.event.protocol = 6;
	}
	snprintf(row.sandbox, sizeof(row.sandbox), "%s", words[0]);
	snprintf(row.rule, sizeof(row.rule), "%s", words[3]);
	snprintf(row.event.command, sizeof(row.event.command), "%.47s", words[4]);
	snprintf(row.looks_like, sizeof(row.looks_like), "%s", like);
	from_hex(hex, row.event.name, sizeof(row.event.name));
	if (allowable && row.event.name[0])
		snprintf(row.event.advice, sizeof(row.event.advice), "%s",
			 row.event.name);
	else if (allowable && port > 0)
		snprintf(row.event.advice, sizeof(row.event.advice),
			 strchr(words[2], ':') ? "[%s]:tcp/%u" : "%s:tcp/%u", words[2],
			 port);
	sqlite_writer_add(w, &row);
	return true;
}

static void say_state(struct sqlite_writer *w)
{
	struct sqlite_state s;

	sqlite_writer_state(w, &s);
	printf("{\"rows\": %" PRIu64 ", \"packets\": %" PRIu64 ", \"lost_rows\": %" PRIu64
	       ", \"lost_packets\": %" PRIu64
	       ", \"moved_aside\": %u, \"trouble\": \"%s\"}\n",
	       s.rows, s.packets, s.lost_rows, s.lost_packets, s.moved_aside, s.trouble);
}

static void obey(struct sqlite_writer *w, const char *order)
{
	const struct event_row same = lookup("same.test");
	unsigned int a, b;

	(void)!put(w, order);
	if (sscanf(order, "like %255s", like) == 1 && strcmp(like, "-") == 0)
		like[0] = '\0';
	if (sscanf(order, "add %u %u", &a, &b) == 2)
		add(w, a, b);
	for (b = 0; sscanf(order, "same %u", &a) == 1 && b < a; b++)
		sqlite_writer_add(w, &same);
	if (strcmp(order, "drain\n") == 0)
		(void)sqlite_writer_drain(w, 30000);
	if (strcmp(order, "state\n") == 0)
		say_state(w);
	else
		puts("done");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sqlite_config config = { .directory = argc > 1 ? argv[1] : NULL };
	struct sqlite_writer *w = NULL;
	struct err err = { 0 };
	char order[2048];

	if (argc != 3 || sscanf(argv[2], "%" SCNu64, &config.max_bytes) != 1)
		return 2;
	if (sqlite_writer_new(&config, &w, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	while (fgets(order, sizeof(order), stdin))
		obey(w, order);
	sqlite_writer_free(w);
	return 0;
}
