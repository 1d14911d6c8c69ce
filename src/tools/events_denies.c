// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "event/json.h"
#include "sys/print.h"
#include "tools/events_show.h"

enum { LIMIT_DEFAULT = 50, KEY_JSON_SIZE = 4096, KEY_COLUMN = 42 };

struct table {
	const struct show *show;
	size_t rows;
};

static const char *unknown(enum sqlite_by by)
{
	switch (by) {
	case SQLITE_BY_RULE:
		return "(the default action)";
	case SQLITE_BY_PROCESS:
		return "(not known)";
	default:
		return "-";
	}
}

static void print_denied(struct table *t, const struct sqlite_denied *d)
{
	char time[JTEXT_TIME_SIZE], key[4 * EVENT_NAME_SIZE + 8];
	const char *shown = unknown(t->show->by);

	if (t->rows == 0)
		printf("%9s %9s  %-20s  %s\n", "packets", "events", "last",
		       sqlite_by_name(t->show->by));
	if (d->key[0])
		shown = text_escape(text_of(d->key), key, sizeof(key));
	printf("%9" PRIu64 " %9" PRIu64 "  %s  ", d->packets, d->rows,
	       jtext_time(d->last_ms, false, time));
	/* On a terminal a row is a line; the end of a name tells the most. */
	if (t->show->wrap && t->show->width > KEY_COLUMN &&
	    strlen(shown) > t->show->width - KEY_COLUMN)
		printf("...%s\n",
		       shown + strlen(shown) - (t->show->width - KEY_COLUMN - 3));
	else
		puts(shown);
}

static void print_denied_json(struct table *t, const struct sqlite_denied *d)
{
	char buf[KEY_JSON_SIZE];
	struct jtext j;

	jtext_init(&j, buf, sizeof(buf));
	jtext_put(&j, text_of("{"));
	jtext_member_text(&j, sqlite_by_name(t->show->by), text_of(d->key),
			  ROW_RULE_SIZE * 2);
	jtext_member_number(&j, "packets", true, (int64_t)d->packets);
	jtext_member_number(&j, "events", true, (int64_t)d->rows);
	jtext_member_time(&j, "last", d->last_ms);
	jtext_put(&j, text_of("}"));
	print_json_row(t->rows, (struct text){ buf, j.used });
}

static bool on_denied(void *data, const struct sqlite_denied *d)
{
	struct table *t = data;

	if (t->show->spec.json)
		print_denied_json(t, d);
	else
		print_denied(t, d);
	t->rows++;
	return !ferror(stdout);
}

int show_denies(struct show *s)
{
	struct table t = { .show = s };
	struct sqlite_reader *reader = NULL;
	struct err err = { 0 };
	int r = show_open(s, &reader);

	if (r < 0)
		return SHOW_FAILED;
	s->query.max = s->spec.limit ? s->spec.limit : (size_t)LIMIT_DEFAULT;
	r = sqlite_denied(reader, s->by, &s->query, on_denied, &t, &err);
	sqlite_reader_close(reader);
	if (r < 0)
		return show_failed(&err);
	if (s->spec.json)
		print_json_end(t.rows);
	else if (t.rows == 0)
		puts("nothing was denied");
	return SHOW_OK;
}
