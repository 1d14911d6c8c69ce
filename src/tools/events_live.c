// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "events/review.h"
#include "outputs/ask.h"
#include "outputs/client.h"
#include "tools/events_show.h"

enum { PATH_SIZE = 1024, HTTP_OK = 200 };

static int ask(struct show *s, const char *method, const char *path, json_t **ret,
	       struct err *err)
{
	const struct text nothing = { "", 0 };
	struct client_reply reply;
	int r = client_ask(s->spec.socket, method, path, nothing, &s->arena, &reply, err);

	if (r < 0)
		return r;
	if (reply.status != HTTP_OK)
		return err_set(err, -EIO, "the daemon refuses: %s",
			       client_reason(&reply, &s->arena));
	*ret = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	return json_is_object(*ret)
		       ? 0
		       : err_set(err, -EBADMSG, "the daemon's answer is no JSON");
}

/* Letters, digits and -_. as they are, all else as %XX. */
static void escape(const char *text, char *buf, size_t size)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "abcdefghijklmnopqrstuvwxyz0123456789-_.";
	size_t used = 0;

	for (; *text && used + 4 <= size; text++) {
		if (strchr(plain, *text))
			buf[used++] = *text;
		else
			used += (size_t)snprintf(buf + used, 4, "%%%02X",
						 (unsigned char)*text);
	}
	buf[used] = '\0';
}

/* Another store has other tasks under the same numbers. */
static bool is_same(const json_t *j, const struct review *t)
{
	const char *destination = json_string_value(json_object_get(j, "destination"));

	return destination && strcmp(destination, t->destination) == 0;
}

int live_accept(struct show *s, const struct review *t, struct err *err)
{
	char path[PATH_SIZE], who[3 * REVIEW_WHO_SIZE];
	json_t *j = NULL;
	int r;

	if (!daemon_is_id(t->sandbox))
		return err_set(err, -EINVAL, "this is no sandbox of a daemon's");
	snprintf(path, sizeof(path), "/sandboxes/%s/review/%" PRId64, t->sandbox, t->id);
	r = ask(s, "GET", path, &j, err);
	if (r == 0 && !is_same(j, t))
		r = err_set(err, -ESTALE, "the daemon has another store than this one");
	if (r == 0) {
		show_diff(json_incref(json_object_get(j, "diff")));
		r = show_is_wanted(s) ? 0 : -ECANCELED;
	}
	json_decref(j);
	if (r < 0)
		return r;
	escape(show_who(s), who, sizeof(who));
	snprintf(path, sizeof(path), "/sandboxes/%s/review/%" PRId64 "/accept?who=%s",
		 t->sandbox, t->id, who);
	j = NULL;
	r = ask(s, "POST", path, &j, err);
	json_decref(j);
	return r;
}
