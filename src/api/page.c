// SPDX-License-Identifier: Apache-2.0
/* /ui/: a page for people, made from ui/ by the build; /openapi.yaml. Anybody who reaches
 * the API gets these files, for they say nothing of any sandbox: what the page shows it
 * asks the API for, with the token that its reader types. */
#include <string.h>

#include "api/internal.h"

#define PREFIX "/ui/"
/* Nothing but these files runs, nothing is loaded or told elsewhere, nobody frames it,
 * and no text can become HTML. */
#define CONTENT_POLICY                                                                   \
	"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "  \
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "                  \
	"require-trusted-types-for 'script'; trusted-types 'none'"

struct asset {
	const char *name; /* behind the prefix; "" is the page itself */
	const char *type, *tag;
	size_t size;
	const char *bytes;
};

/* Both are made by the build: ui_assets[], openapi_assets[]. */
#include "api/openapi.h"
#include "api/ui.h"

void answer_openapi(struct api_request *r)
{
	const struct asset *a = &openapi_assets[0];

	reply_send(r, &(const struct api_reply){ .status = HTTP_OK,
						 .type = a->type,
						 .bytes = a->bytes,
						 .size = a->size });
}

void answer_page(struct api_request *r)
{
	const char *name = r->target + strlen(PREFIX);
	const struct asset *a = TEXT_FIND(text_of(name), ui_assets);
	struct text rest = request_header(r, "If-None-Match"), part;
	bool known = false; /* If-None-Match lists its tag: the caller has it */

	if (!a) {
		reply_error(r, HTTP_NOT_FOUND, "404 page not found");
		return;
	}
	while (text_split(&rest, ',', &part)) {
		part = text_trim(part);
		if (part.len > 2 && strncmp(part.ptr, "W/", 2) == 0)
			part = (struct text){ part.ptr + 2, part.len - 2 };
		known |= text_equal(part, "*") || text_equal(part, a->tag);
	}
	/* Of a 304 the library sends the head alone. */
	reply_send(r, &(const struct api_reply){
			      .status = known ? HTTP_NOT_MODIFIED : HTTP_OK,
			      .type = known ? NULL : a->type,
			      .bytes = a->bytes,
			      .size = a->size,
			      .headers = { { "Content-Security-Policy", CONTENT_POLICY },
					   { "Referrer-Policy", "no-referrer" },
					   { "X-Frame-Options", "DENY" },
					   /* Asked for anew each time; the tag says
					    * that it is the same. */
					   { "Cache-Control", "no-cache" },
					   { "ETag", a->tag } } });
}

/* Relative, so that it is right behind a proxy that adds a prefix. */
void answer_page_moved(struct api_request *r)
{
	reply_send(r, &(const struct api_reply){ .status = HTTP_MOVED,
						 .bytes = "",
						 .headers = { { "Location", "ui/" } } });
}
