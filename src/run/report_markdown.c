// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "events/report_event.h"
#include "run/report_file.h"
#include "sandbox/sandbox.h"

/* As text that is shown as it is: whatever could be markup becomes a character
 * reference, what isn't printable \xNN. */
static void print_plain(FILE *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') || strchr(" -/,", c))
			fputc(c, out);
		else if (c < ' ' || c > '~')
			fprintf(out, "&#92;x%02x", c);
		else
			fprintf(out, "&#%u;", c);
	}
}

static void print_code(FILE *out, const char *text)
{
	fputs("<code>", out);
	print_plain(out, text);
	fputs("</code>", out);
}

static void print_command(FILE *out, char *const *argv)
{
	fputs("<code>", out);
	for (size_t i = 0; argv[i]; i++) {
		fputs(i > 0 ? " " : "", out);
		print_plain(out, argv[i]);
	}
	fputs("</code>", out);
}

static void print_end(FILE *out, const struct report *r)
{
	fputs("| ended with | ", out);
	if (r->failed)
		fputs("Weir failed, ", out);
	if (r->stopped)
		fputs("stopped by on_denies, ", out);
	if (r->signal > 0)
		fprintf(out, "signal %d |\n", r->signal);
	else
		fprintf(out, "status %d |\n", r->exit_status);
	fprintf(out, "| took | %" PRId64 ".%" PRId64 " s |\n",
		(r->ended_ms - r->started_ms) / 1000,
		(r->ended_ms - r->started_ms) % 1000 / 100);
}

static void print_summary(FILE *out, const struct report *r)
{
	const uint64_t *c = r->counters;

	fputs("| | |\n|---|---|\n", out);
	print_end(out, r);
	fputs("| policy | ", out);
	for (size_t i = 0; i < r->policy->source_count; i++) {
		fputs(i > 0 ? ", " : "", out);
		print_code(out, r->policy->sources[i]);
	}
	fprintf(out, "%s%zu rules |\n", r->policy->source_count > 0 ? ", " : "",
		r->policy->count);
	fprintf(out, "| lookups | %" PRIu64 ", %" PRIu64 " refused |\n", c[COUNT_QUERIES],
		c[COUNT_QUERIES_DENIED]);
	fprintf(out, "| connections | %" PRIu64 ", %" PRIu64 " refused |\n\n",
		c[COUNT_FLOWS], c[COUNT_FLOWS_DENIED]);
}

static void print_refusal(FILE *out, const struct report *r, const struct event *e)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE], allow[REPORT_WHAT_SIZE];

	fputs("| ", out);
	print_code(out, report_what(e, what));
	fprintf(out, " | %" PRIu64 " | ", e->packets);
	print_plain(out, report_why(r->plan, e, why));
	fputs(" | ", out);
	if (report_allow(e, allow)) {
		fputs("<code>--allow ", out);
		print_plain(out, allow);
		fputs("</code>", out);
	}
	fputs(" |\n", out);
}

int report_markdown(const struct report *r, FILE *out)
{
	uint64_t missed = report_missed(r);

	fputs("### Weir: ", out);
	print_command(out, r->spec->argv);
	fputs("\n\n", out);
	print_summary(out, r);
	if (report_refusals(r->ring) == 0 && missed == 0) {
		fputs("Nothing was refused.\n\n", out);
	} else {
		fputs("| refused | times | why | what would allow it |\n"
		      "|---|--:|---|---|\n",
		      out);
		for (size_t i = 0; i < event_ring_count(r->ring); i++)
			if (report_is_refusal(event_ring_at(r->ring, i)))
				print_refusal(out, r, event_ring_at(r->ring, i));
		fputc('\n', out);
		if (missed > 0)
			fprintf(out, "And %" PRIu64 " more that were counted only.\n\n",
				missed);
	}
	return ferror(out) ? -EIO : 0;
}
