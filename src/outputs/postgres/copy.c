// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/copy.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "event/json.h"

const char copy_columns[] =
	"analysis_id, ts, action, remote_ip, remote_port, fqdn_pinned, raw_pkts, layer,"
	" protocol, rule, rule_file, rule_line, packets, bytes, reason, query_type,"
	" limit_id, uid, pid, command, store, store_row";

/* Escaped, a byte takes four: \xff as text whose backslash is doubled takes five. */
static_assert((EVENT_NAME_SIZE + EVENT_REASON_SIZE + ROW_SANDBOX_SIZE + ROW_RULE_SIZE +
	       ROW_FILE_SIZE + ROW_COMMAND_SIZE) *
				      5 +
			      1024 <=
		      COPY_ROW_SIZE,
	      "any row fits");

struct line {
	char *buf;
	size_t used;
};

static void put_byte(struct line *l, char c)
{
	if (l->used < COPY_ROW_SIZE - 1)
		l->buf[l->used++] = c;
}

static void put_raw(struct line *l, const char *text)
{
	for (; *text; text++)
		put_byte(l, *text);
}

static void null(struct line *l)
{
	put_raw(l, "\\N\t");
}

/* What isn't UTF-8 the server would refuse: that is escaped as everywhere. */
static void text(struct line *l, const char *value, size_t size)
{
	const struct text t = { value, strnlen(value, size) };
	char shown[4 * ROW_RULE_SIZE + 8];
	const char *p = t.ptr;

	if (t.len == 0) {
		null(l);
		return;
	}
	if (!jtext_is_utf8(t))
		p = text_escape(t, shown, sizeof(shown));
	for (size_t i = 0; p == t.ptr ? i < t.len : p[i] != '\0'; i++) {
		switch (p[i]) {
		case '\\':
			put_raw(l, "\\\\");
			break;
		case '\t':
			put_raw(l, "\\t");
			break;
		case '\n':
			put_raw(l, "\\n");
			break;
		case '\r':
			put_raw(l, "\\r");
			break;
		default:
			put_byte(l, p[i]);
		}
	}
	put_byte(l, '\t');
}

static void number(struct line *l, bool known, uint64_t n)
{
	char digits[32];

	if (!known) {
		null(l);
		return;
	}
	snprintf(digits, sizeof(digits), "%" PRIu64 "\t", MIN(n, (uint64_t)INT64_MAX));
	put_raw(l, digits);
}

size_t copy_row(const struct event_row *row, int64_t id, const char *store, char *buf)
{
	const struct event *e = &row->event;
	struct line l = { .buf = buf };
	char small[ADDR_TEXT_SIZE + JTEXT_TIME_SIZE];

	text(&l, row->sandbox, sizeof(row->sandbox));
	put_raw(&l, jtext_time(e->ts_ms, true, small));
	put_byte(&l, '\t');
	put_raw(&l, event_action_name((enum event_action)e->action));
	put_byte(&l, '\t');
	if (e->remote.family != ADDR_NONE)
		text(&l, addr_format(&e->remote, small), sizeof(small));
	else
		null(&l);
	number(&l, e->port > 0, e->port);
	text(&l, e->name, sizeof(e->name));
	number(&l, true, MIN(e->packets, (uint64_t)INT32_MAX));
	put_raw(&l, event_layer_name((enum event_layer)e->layer));
	put_byte(&l, '\t');
	text(&l, event_protocol_name(e->protocol, small), sizeof(small));
	text(&l, row->rule, sizeof(row->rule));
	text(&l, row->rule_file, sizeof(row->rule_file));
	number(&l, row->rule_line > 0, row->rule_line);
	number(&l, true, e->packets);
	number(&l, true, e->bytes);
	text(&l, e->reason, sizeof(e->reason));
	number(&l, e->query_type > 0, e->query_type);
	number(&l, e->limit > 0, e->limit);
	number(&l, e->uid != UINT32_MAX, e->uid);
	number(&l, row->pid > 0, row->pid);
	text(&l, row->command, sizeof(row->command));
	put_raw(&l, store);
	put_byte(&l, '\t');
	number(&l, true, (uint64_t)id);
	l.buf[l.used - 1] = '\n'; /* in the last tab's place */
	return l.used;
}
