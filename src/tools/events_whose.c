// SPDX-License-Identifier: Apache-2.0
/* Whose the denials of a review task were, as far as its events say. */
#include <stdio.h>
#include <string.h>

#include "events/review.h"
#include "tools/events_show.h"

enum {
	ROWS_MAX = 200, /* of the newest */
	NAMED_MAX = 4,	/* commands; the others are many */
	LOOK_MS = 500,
};

struct whose {
	const struct review *task;
	char commands[NAMED_MAX][ROW_COMMAND_SIZE];
	size_t count;
	bool more;
};

static bool on_row(void *data, int64_t id, const struct event_row *row)
{
	struct whose *w = data;

	if (!row->command[0] || (!w->task->is_name && w->task->port != row->event.port))
		return true;
	for (size_t i = 0; i < w->count; i++)
		if (strcmp(w->commands[i], row->command) == 0)
			return true;
	w->more = w->count == NAMED_MAX;
	if (!w->more)
		memcpy(w->commands[w->count++], row->command, ROW_COMMAND_SIZE);
	return !w->more;
}

/* It is said as well as it can be seen: nothing depends on it. */
void show_whose(const struct show *s, const struct review *t)
{
	struct sqlite_query q = { .action = EVENT_DENY,
				  .sandbox = t->sandbox,
				  .since_ms = t->first_ms,
				  .max = ROWS_MAX };
	struct sqlite_reader *reader = NULL;
	struct whose w = { .task = t };
	char shown[TEXT_ESCAPED_SIZE];
	struct err ignored = { 0 };

	if (t->is_name)
		q.name = t->destination;
	else if (!addr_parse(t->destination, strlen(t->destination), &q.remote))
		return;
	if (sqlite_reader_open(s->directory, LOOK_MS, &reader, &ignored) < 0)
		return;
	if (sqlite_find(reader, &q, on_row, &w, &ignored) == 0 && w.count > 0) {
		printf("process      ");
		for (size_t i = 0; i < w.count; i++)
			printf("%s%s", i > 0 ? ", " : "",
			       show_text(w.commands[i], shown));
		puts(w.more ? ", ..." : "");
	}
	sqlite_reader_close(reader);
}
