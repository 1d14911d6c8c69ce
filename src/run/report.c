// SPDX-License-Identifier: Apache-2.0
#include "run/report.h"

#include <inttypes.h>
#include <string.h>

#include "events/report_event.h"
#include "sandbox/sandbox.h"

enum {
	WHAT_COLUMNS_MAX = 48,
	TIMES_SIZE = 32,
	SUGGESTIONS_MAX = 10, /* more than that is no list for a person */
};

size_t report_refusals(const struct event_ring *ring)
{
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++)
		n += report_is_refusal(event_ring_at(ring, i));
	return n;
}

uint64_t report_missed(const struct report *r)
{
	uint64_t all = sandbox_denied(r->counters), told = 0;

	for (size_t i = 0; i < event_ring_count(r->ring); i++)
		if (event_ring_at(r->ring, i)->action == EVENT_DENY)
			told += event_ring_at(r->ring, i)->packets;
	return all > told ? all - told : 0;
}

/* As wide as the longest, up to a limit that leaves room for the reasons. */
static int what_columns(const struct event_ring *ring)
{
	char what[REPORT_WHAT_SIZE];
	size_t widest = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (report_is_refusal(e))
			widest = MAX(widest, strlen(report_what(e, what)));
	}
	return (int)MIN(widest, WHAT_COLUMNS_MAX);
}

static void print_event(FILE *out, const struct plan *plan, const struct event *e,
			int columns)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE], times[TIMES_SIZE];

	snprintf(times, sizeof(times), "%" PRIu64 " time%s", e->packets,
		 e->packets == 1 ? "" : "s");
	fprintf(out, "weir:   %-*s  %-7s  %s\n", columns, report_what(e, what), times,
		report_why(plan, e, why));
}

/* An earlier event suggests the same. */
static bool is_suggested_before(const struct event_ring *ring, size_t i, const char *rule)
{
	char other[REPORT_WHAT_SIZE];

	for (size_t j = 0; j < i; j++) {
		const struct event *e = event_ring_at(ring, j);

		if (report_is_refusal(e) && report_allow(e, other) &&
		    strcmp(other, rule) == 0)
			return true;
	}
	return false;
}

static void print_suggestions(FILE *out, const struct event_ring *ring)
{
	char rule[REPORT_WHAT_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (!report_is_refusal(e) || !report_allow(e, rule) ||
		    is_suggested_before(ring, i, rule))
			continue;
		if (n == 0)
			fputs("weir: what of it is wanted, allow with\n", out);
		if (++n > SUGGESTIONS_MAX)
			continue;
		/* A shell takes brackets for a pattern. */
		fprintf(out,
			rule[0] == '[' ? "weir:   --allow '%s'\n"
				       : "weir:   --allow %s\n",
			rule);
	}
	if (n > SUGGESTIONS_MAX)
		fprintf(out, "weir:   and %zu more like these; see --report\n",
			n - SUGGESTIONS_MAX);
}

void report_print(FILE *out, const struct report *r)
{
	uint64_t missed = report_missed(r);
	int columns = what_columns(r->ring);

	if (report_refusals(r->ring) == 0 && missed == 0)
		return;
	fputs("weir: refused:\n", out);
	for (size_t i = 0; i < event_ring_count(r->ring); i++)
		if (report_is_refusal(event_ring_at(r->ring, i)))
			print_event(out, r->plan, event_ring_at(r->ring, i), columns);
	print_suggestions(out, r->ring);
	if (r->stopped)
		fputs("weir: the command was ended: the policy's on_denies says stop\n",
		      out);
	if (missed > 0)
		fprintf(out, "weir: %" PRIu64 " more were counted only\n", missed);
}
