// SPDX-License-Identifier: Apache-2.0
/* /answer/LINK: one review task, decided by whoever has its link
 * (events/review.h), without the token and for this one decision alone.
 *
 *     GET   a page that says what would be decided, with a button; it changes nothing,
 *           for mail scanners and previews of chat programs follow every link
 *     POST  decides; {"for": "10m"}, or for=10m as the page's form sends it: for that
 *           long
 *
 * A link that is wrong, used, over or of no task is 403, and nothing says which. Of one
 * that Weir didn't make the store is not asked: so nobody who guesses has to be locked
 * out, along with all who decide from behind the same address. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "event/json.h"
#include "events/review.h"

#define PREFIX "/answer/"
#define WHO    "signed link"
/* Nothing runs, nothing is loaded, and the form leads here. */
#define CONTENT_POLICY                                                                   \
	"default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri "      \
	"'none'"

/* ---- the page ---- */

static void close_page(struct api_request *r, struct reply_stream *s)
{
	struct api_reply a = {
		.status = HTTP_OK,
		.type = "text/html; charset=utf-8",
		.headers = { { "Content-Security-Policy", CONTENT_POLICY },
			     { "Referrer-Policy", "no-referrer" },
			     { "X-Frame-Options", "DENY" },
			     { "X-Robots-Tag", "noindex" },
			     { "Cache-Control", "no-store" } },
	};

	fputs("</body></html>\n", s->out);
	if (!reply_end(r, s))
		return;
	a.bytes = a.owned = s->body;
	a.size = s->size;
	reply_send(r, &a);
}

/* What a sandbox chose: ASCII, as everywhere. */
static void put_text(const char *text, FILE *out)
{
	request_html(SHOWN(text), out);
}

static bool open_page(struct api_request *r, const char *head, const struct review *t,
		      struct reply_stream *s)
{
	char protocol[8];

	if (!reply_open(r, s))
		return false;
	fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
	      "<meta name=\"viewport\" content=\"width=device-width\">"
	      "<meta name=\"color-scheme\" content=\"light dark\">"
	      "<title>Weir</title></head><body>\n<h1>",
	      s->out);
	fputs(head, s->out);
	fputs(" <code>", s->out);
	put_text(t->destination[0] ? t->destination : "more destinations", s->out);
	if (t->port > 0)
		fprintf(s->out, " %s/%u", event_protocol_name(t->protocol, protocol),
			t->port);
	fputs("</code></h1>\n", s->out);
	return true;
}

static void answer_question(struct api_request *r, const struct review *t, bool accepts)
{
	struct reply_stream s;
	char time[JTEXT_TIME_SIZE], rule[REVIEW_RULE_SIZE];

	if (!open_page(r, accepts ? "Allow" : "Deny", t, &s))
		return;
	if (t->looks_like[0]) {
		fputs("<p><strong>It looks like <code>", s.out);
		put_text(t->looks_like, s.out);
		fputs("</code>, which is allowed, and is another name.</strong></p>\n",
		      s.out);
	}
	fputs("<p>Sandbox <code>", s.out);
	put_text(t->sandbox[0] ? t->sandbox : "-", s.out);
	fprintf(s.out, "</code>, %llu refused, the last one at %s.</p>\n",
		(unsigned long long)t->packets, jtext_time(t->last_ms, false, time));
	if (review_rule(t, rule)) {
		fputs("<p>Allowing it adds <code>", s.out);
		put_text(rule, s.out);
		fputs("</code>.</p>\n", s.out);
	}
	fputs("<form method=\"post\"><p>", s.out);
	if (accepts)
		fputs("<label>For <select name=\"for\"><option value=\"10m\">10 minutes"
		      "</option><option value=\"1h\">an hour</option>"
		      "<option value=\"1d\">a day</option>"
		      "<option value=\"\">good</option></select></label> ",
		      s.out);
	fprintf(s.out, "<button>%s</button></p></form>\n", accepts ? "Allow" : "Deny");
	close_page(r, &s);
}

/* ---- deciding ---- */

/* From a form or JSON. */
static bool read_length(struct api_request *r, const struct review *t,
			char ret[REVIEW_LENGTH_SIZE])
{
	const struct text body = request_body(r);
	CLEAN(mem) char *form = NULL;
	int found;

	if (body.len == 0 || body.ptr[0] == '{')
		return review_read_body(r, t, ret);
	form = strndup(body.ptr, body.len);
	found = form ? request_query(form, "for", ret, REVIEW_LENGTH_SIZE) : -ENOMEM;
	if (found == 0)
		ret[0] = '\0';
	if (found >= 0 && review_length_is_good(ret))
		return true;
	return reply_error(r, HTTP_BAD_REQUEST, "invalid for");
}

static void decide_by_link(struct api_request *r, const struct review *t, bool accepts)
{
	const struct api_ops *ops = r->ops;
	char length[REVIEW_LENGTH_SIZE];
	struct err err = { 0 };
	struct reply_stream s;
	unsigned int status = 0;

	if (accepts && !read_length(r, t, length))
		return;
	if (accepts)
		status = review_accept(r, t, WHO, length, NULL, &err);
	else if (ops->decide(ops->data, t->id, REVIEW_DISMISSED, WHO, &err) < 0)
		status = HTTP_UNAVAILABLE;
	if (status > 0) {
		reply_error(r, status, "%s", err.text);
		return;
	}
	if (!open_page(r, accepts ? "Allowed:" : "Denied:", t, &s))
		return;
	if (accepts && length[0])
		fprintf(s.out, "<p>For %s.</p>\n", length);
	close_page(r, &s);
}

void answer_link(struct api_request *r)
{
	const struct review_key *key = r->api->config.review_key;
	const int64_t now_ms = clock_wall_ms();
	struct review_answer a;
	struct err err = { 0 };
	struct review t;
	int code;

	if (!r->ops->review) {
		reply_error(r, HTTP_NOT_FOUND, "404 page not found");
		return;
	}
	code = review_answer_read(key, text_of(r->target + strlen(PREFIX)), now_ms, &a)
		       ? r->ops->review(r->ops->data, a.id, &t, &err)
		       : -ENOENT;
	if (code < 0 && code != -ENOENT) {
		reply_error(r, HTTP_UNAVAILABLE, "%s", err.text);
		return;
	}
	if (code < 0 || !review_answer_holds(key, &a, &t)) {
		r->api->counts.forbidden++;
		reply_error(r, HTTP_FORBIDDEN,
			    "this link decides nothing: it was used, it is over, or it "
			    "is none");
		return;
	}
	review_go_to_sandbox(r, &t);
	if (r->method == METHOD_POST)
		decide_by_link(r, &t, a.accepts);
	else
		answer_question(r, &t, a.accepts);
}
