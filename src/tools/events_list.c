// SPDX-License-Identifier: Apache-2.0
/* Rows are read page by page, so that whoever writes is never held up by a reader that
 * takes its time, such as a pager. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "event/json.h"
#include "events/report_event.h"
#include "sys/term.h"
#include "tools/events_show.h"

enum {
	PAGE_ROWS = 500,
	FOLLOW_MS = 200,
	TIME_COLUMNS = 21,
	SANDBOX_COLUMNS = 12,
	ACTION_COLUMNS = 7,
	TEXT_COLUMN = TIME_COLUMNS + SANDBOX_COLUMNS + 1 + ACTION_COLUMNS,
	LINE_SIZE = 2048,
};

struct list {
	struct show *show;
	struct sqlite_reader *reader;
	struct event_row *kept; /* a page of them, or --limit's; owned */
	size_t kept_count;
	struct stat file; /* which one is read */
	bool failed;	  /* nobody takes the output any more */
};

/* ---- one row ---- */

static const char *const colours[EVENT_ACTION_COUNT] = {
	[EVENT_ALLOW] = "\x1b[32m",   [EVENT_DENY] = "\x1b[31m",
	[EVENT_PANIC] = "\x1b[1;31m", [EVENT_CHANGE] = "\x1b[36m",
	[EVENT_LIMIT] = "\x1b[33m",
};

/* ": no rule allows it", ": deny gist.github.com (policy.yaml:3)" */
static void put_why(FILE *out, const struct event_row *row)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (row->event.reason[0])
		fprintf(out, ": %s", show_text(row->event.reason, shown));
	if (!row->rule[0])
		return;
	/* A reason may be the rule, or as much of it as fits. */
	if (!row->event.reason[0] ||
	    strncmp(row->event.reason, row->rule, strlen(row->event.reason)) != 0)
		fprintf(out, ": %s", show_text(row->rule, shown));
	if (row->rule_file[0])
		fprintf(out, " (%s:%u)", show_text(row->rule_file, shown),
			row->rule_line);
}

static void put_text(FILE *out, const struct event_row *row)
{
	char what[REPORT_WHAT_SIZE], shown[4 * REPORT_WHAT_SIZE];

	report_what(&row->event, what);
	fputs(text_escape(text_of(what), shown, sizeof(shown)), out);
	if (row->event.packets > 1)
		fprintf(out, " x%llu", (unsigned long long)row->event.packets);
	put_why(out, row);
	if (row->command[0])
		fprintf(out, " [%s]", show_text(row->command, shown));
	if (row->pid > 0)
		fprintf(out, " [pid %u]", row->pid);
}

static void print_line(const struct show *s, const struct event_row *row)
{
	const uint8_t action = row->event.action;
	const char *colour =
		s->colour && action < EVENT_ACTION_COUNT ? colours[action] ?: "" : "";
	char time[JTEXT_TIME_SIZE], sandbox[TEXT_ESCAPED_SIZE], text[LINE_SIZE] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");
	int used;

	if (out) {
		put_text(out, row);
		fclose(out);
		text[sizeof(text) - 1] = '\0';
	}
	used = printf("%s  %-*s ", jtext_time(row->event.ts_ms, false, time),
		      SANDBOX_COLUMNS,
		      show_text(row->sandbox[0] ? row->sandbox : "-", sandbox));
	used += ACTION_COLUMNS;
	printf("%s%-*s%s", colour, ACTION_COLUMNS,
	       event_action_name((enum event_action)action), *colour ? "\x1b[0m" : "");
	if (s->wrap)
		term_wrap(stdout, text, (unsigned int)used, TEXT_COLUMN, s->width);
	else
		puts(text);
}

void show_row(const struct show *s, const struct event_row *row)
{
	char json[EVENT_JSON_SIZE];

	if (!s->spec.json) {
		print_line(s, row);
		return;
	}
	event_json(row, json);
	puts(json);
}

/* ---- all of them ---- */

static bool keep_row(void *data, int64_t id, const struct event_row *row)
{
	struct list *l = data;

	l->show->query.above_id = MAX(l->show->query.above_id, id);
	l->kept[l->kept_count++] = *row;
	return true;
}

/* Everything from the row on that is next. Nothing is printed while the database is
 * read: who reads the output may stop, and the log would grow until it goes on. */
static int print_rest(struct list *l, struct err *err)
{
	struct sqlite_query *q = &l->show->query;
	int r;

	if (!l->kept)
		l->kept = calloc(PAGE_ROWS, sizeof(*l->kept));
	if (!l->kept)
		return err_sys(err, -ENOMEM, "cannot hold that many events");
	q->oldest_first = true;
	q->max = PAGE_ROWS;
	do {
		l->kept_count = 0;
		r = sqlite_find(l->reader, q, keep_row, l, err);
		for (size_t i = 0; r == 0 && i < l->kept_count && !l->failed; i++) {
			show_row(l->show, &l->kept[i]);
			l->failed = ferror(stdout);
		}
	} while (r == 0 && l->kept_count == PAGE_ROWS && !l->failed);
	return r;
}

/* The newest ones alone, the oldest of them first. */
static int print_newest(struct list *l, struct err *err)
{
	struct sqlite_query *q = &l->show->query;
	int r;

	l->kept = calloc(l->show->spec.limit, sizeof(*l->kept));
	if (!l->kept)
		return err_sys(err, -ENOMEM, "cannot hold that many events");
	q->max = l->show->spec.limit;
	r = sqlite_find(l->reader, q, keep_row, l, err);
	while (r == 0 && l->kept_count > 0)
		show_row(l->show, &l->kept[--l->kept_count]);
	free(l->kept);
	l->kept = NULL;
	return r;
}

/* ---- and what comes ---- */

static bool is_same_file(struct list *l)
{
	char path[4096];
	struct stat st;

	snprintf(path, sizeof(path), "%s/events.db", l->show->directory);
	if (stat(path, &st) < 0)
		return true; /* it is being moved aside */
	if (l->file.st_ino == st.st_ino && l->file.st_dev == st.st_dev)
		return true;
	l->file = st;
	return false;
}

/* A broken file was moved aside and another begun: go on with that. */
static int open_again(struct list *l, struct err *err)
{
	struct sqlite_reader *r = NULL;

	if (sqlite_reader_open(l->show->directory, SHOW_TIMEOUT_MS, &r, err) < 0) {
		l->file = (struct stat){ 0 }; /* another time */
		return 0;
	}
	sqlite_reader_close(l->reader);
	l->reader = r;
	l->show->query.above_id = 0;
	return 0;
}

static int follow(struct list *l, struct err *err)
{
	int r = 0;

	l->show->query.since_ms = 0;
	while (r == 0 && !l->failed && fflush(stdout) == 0) {
		poll(NULL, 0, FOLLOW_MS);
		if (!is_same_file(l))
			r = open_again(l, err);
		if (r == 0)
			r = print_rest(l, err);
		if (r == -EBUSY)
			r = 0; /* another time */
	}
	return r;
}

int show_events(struct show *s)
{
	struct list l = { .show = s };
	struct err err = { 0 };
	int r;

	if (s->spec.collect)
		return show_collect(s);
	r = show_open(s, &l.reader);
	if (r < 0)
		return SHOW_FAILED;
	(void)!is_same_file(&l);
	r = sqlite_id_before(l.reader, s->query.since_ms, &s->query.above_id, &err);
	if (r == 0)
		r = s->spec.limit > 0 ? print_newest(&l, &err) : print_rest(&l, &err);
	if (r == 0 && s->spec.follow)
		r = follow(&l, &err);
	sqlite_reader_close(l.reader);
	free(l.kept);
	return r < 0 ? show_failed(&err) : SHOW_OK;
}
