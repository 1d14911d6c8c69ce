// SPDX-License-Identifier: Apache-2.0
/* What a sandbox is, as the API says it: exactly one of "netns", "cgroup" and "uid". All
 * faults are told at once. Whether such a thing exists is the daemon's to say. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "control/control.h"

#define NAME_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

enum {
	USER_NAME_MAX = 32,
	SHOWN_MAX = 80, /* bytes of a text from outside that a message repeats */
};

struct wanted {
	struct ipc_sandbox spec;
	size_t kinds; /* of them there has to be one */
	bool again;
	json_t *policy;
	struct err *err;
};

static void fault(struct wanted *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void fault(struct wanted *w, const char *fmt, ...)
{
	size_t len = w->err->code < 0 ? strlen(w->err->text) : 0;
	char *end = w->err->text + len;
	va_list args;

	if (len > 0 && len + 3 < sizeof(w->err->text)) {
		memcpy(end, "; ", 3);
		end += 2;
	}
	va_start(args, fmt);
	vsnprintf(end, sizeof(w->err->text) - (size_t)(end - w->err->text), fmt, args);
	va_end(args);
	w->err->code = -EINVAL;
}

static const char *shown(const char *text, char buffer[TEXT_ESCAPED_SIZE])
{
	struct text t = text_of(text);

	if (t.len > SHOWN_MAX)
		t.len = SHOWN_MAX;
	return text_escape(t, buffer, TEXT_ESCAPED_SIZE);
}

/* ---- what is guarded ---- */

static void set_where(struct wanted *w, const char *key, const char *where)
{
	if (strlen(where) > IPC_SANDBOX_WHERE_MAX)
		fault(w, "%s: the path is longer than %d bytes", key,
		      IPC_SANDBOX_WHERE_MAX);
	else
		snprintf(w->spec.where, sizeof(w->spec.where), "%s", where);
}

static void read_netns(struct wanted *w, json_t *value)
{
	const char *where = json_string_value(value);
	char buffer[TEXT_ESCAPED_SIZE];
	uint32_t pid;

	w->kinds++;
	w->spec.kind = ATTACH_NETNS;
	if (!where)
		fault(w, "netns: this is not a string");
	else if (where[0] != '/' &&
		 (!text_to_u32(text_of(where), INT32_MAX, &pid) || pid == 0))
		fault(w, "netns: '%s' is no absolute path and no process id",
		      shown(where, buffer));
	else
		set_where(w, "netns", where);
}

static void read_cgroup(struct wanted *w, json_t *value)
{
	const char *where = json_string_value(value);
	char buffer[TEXT_ESCAPED_SIZE];

	w->kinds++;
	w->spec.kind = ATTACH_HOST;
	w->spec.member = FILTER_MEMBER_CGROUP;
	if (!where)
		fault(w, "cgroup: this is not a string");
	else if (where[0] != '/')
		fault(w, "cgroup: '%s' is no absolute path", shown(where, buffer));
	else
		set_where(w, "cgroup", where);
}

static bool is_user_name(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= USER_NAME_MAX && name[0] != '-' &&
	       strspn(name, NAME_LETTERS) == len && strspn(name, "0123456789") < len;
}

/* Root is not one of many users. */
static void read_uid(struct wanted *w, json_t *value)
{
	const char *name = json_string_value(value);
	char buffer[TEXT_ESCAPED_SIZE];
	uint32_t uid = 0;

	w->kinds++;
	w->spec.kind = ATTACH_HOST;
	w->spec.member = FILTER_MEMBER_UID;
	if (json_is_integer(value) && json_integer_value(value) > 0 &&
	    json_integer_value(value) < UINT32_MAX)
		uid = (uint32_t)json_integer_value(value);
	else if (name && text_to_u32(text_of(name), UINT32_MAX - 1, &uid) && uid == 0)
		name = NULL;
	if (uid > 0)
		snprintf(w->spec.where, sizeof(w->spec.where), "%u", uid);
	else if (!name)
		fault(w, "uid: this is not a user name or a number from 1 to %u",
		      UINT32_MAX - 1);
	else if (!is_user_name(name))
		fault(w, "uid: '%s' is not a user name", shown(name, buffer));
	else
		snprintf(w->spec.where, sizeof(w->spec.where), "%s", name);
}

static void read_guard_parent(struct wanted *w, json_t *value)
{
	w->spec.guard_parent = json_is_true(value);
	if (!json_is_boolean(value))
		fault(w, "guardParent: this is neither true nor false");
}

static void read_again(struct wanted *w, json_t *value)
{
	w->again = json_is_true(value);
	if (!json_is_boolean(value))
		fault(w, "again: this is neither true nor false");
}

static void read_policy(struct wanted *w, json_t *value)
{
	w->policy = value;
}

static const struct {
	const char *key;
	void (*read)(struct wanted *w, json_t *value);
} keys[] = {
	{ "netns", read_netns },
	{ "cgroup", read_cgroup },
	{ "uid", read_uid },
	{ "policy", read_policy },
	{ "guardParent", read_guard_parent },
	{ "again", read_again },
};

static void read_key(struct wanted *w, const char *key, json_t *value)
{
	char buffer[TEXT_ESCAPED_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i].key, key) == 0) {
			keys[i].read(w, value);
			return;
		}
	}
	fault(w, "'%s' is not a key of this", shown(key, buffer));
}

static void read_name(struct wanted *w, const char *id)
{
	size_t len = strlen(id);

	if (len == 0 || len > IPC_SANDBOX_NAME_MAX || id[0] == '.' ||
	    strspn(id, NAME_LETTERS) != len)
		fault(w,
		      "a sandbox's id is up to %d letters, digits, '-', '_' and '.', and "
		      "doesn't begin with '.'",
		      IPC_SANDBOX_NAME_MAX);
	else
		snprintf(w->spec.name, sizeof(w->spec.name), "%s", id);
}

/* ---- all of it ---- */

/* No policy: deny all. */
static void parse_policy(struct wanted *w, struct control *s, struct document **ret)
{
	CLEAN(mem)
	char *text = w->policy ? json_dumps(w->policy, JSON_COMPACT | JSON_ENCODE_ANY)
			       : strdup("{}");
	struct err err = { 0 };

	if (!text)
		fault(w, "out of memory");
	else if (document_parse(text_of(text), NULL, NULL, ret, &err) < 0)
		fault(w, "policy: %s", err.text);
	/* Else it is compiled anyway. */
	else if (w->err->code < 0 && control_sandbox_check(s, *ret, &err) < 0)
		fault(w, "policy: %s", err.text);
}

int control_attach_read(struct control *s, const char *id, struct text body,
			struct control_wish *ret, struct err *err)
{
	struct document *policy = NULL;
	struct wanted w = { .err = err };
	json_error_t why;
	json_t *j = json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, &why);
	const char *key;
	json_t *value;

	read_name(&w, id);
	if (!j)
		fault(&w, "the body is not JSON: %.150s", why.text);
	else if (!json_is_object(j))
		fault(&w, "the body is not an object");
	json_object_foreach(j, key, value) read_key(&w, key, value);
	if (json_is_object(j) && w.kinds != 1)
		fault(&w, "exactly one of netns, cgroup and uid is given");
	if (w.spec.guard_parent && w.spec.member != FILTER_MEMBER_CGROUP)
		fault(&w, "guardParent: this goes with a cgroup alone");
	if (w.again && w.spec.kind == ATTACH_NETNS)
		fault(&w, "again: this goes with a cgroup or a user alone");
	parse_policy(&w, s, &policy);
	json_decref(j);
	if (err->code < 0) {
		document_free(policy);
		return err->code;
	}
	*ret = (struct control_wish){ w.spec, policy, w.again };
	return 0;
}

/* ---- and back ---- */

static const char *kind_of(const struct ipc_sandbox *spec)
{
	if (spec->kind != ATTACH_HOST)
		return "netns";
	return spec->member == FILTER_MEMBER_UID ? "uid" : "cgroup";
}

static json_t *where_of(const struct ipc_sandbox *spec)
{
	char buffer[TEXT_ESCAPED_SIZE];
	json_t *where;
	uint32_t uid;

	if (spec->kind == ATTACH_HOST && spec->member == FILTER_MEMBER_UID &&
	    text_to_u32(text_of(spec->where), UINT32_MAX, &uid))
		return json_integer(uid);
	where = json_string(spec->where);
	/* A path need not be UTF-8. */
	return where ? where : json_string(shown(spec->where, buffer));
}

json_t *control_sandbox_json(const struct control_sandbox *w)
{
	bool names = plan_verify(&w->plan) == POLICY_VERIFY_TLS;
	enum api_mode mode = names ? API_MODE_DNS_NFT_TLS : API_MODE_DNS_NFT;
	json_t *j = json_pack(
		"{s:s, s:i, s:s, s:o, s:s, s:s, s:i, s:I}", "id", w->spec.name, "number",
		(int)w->id, "kind", kind_of(&w->spec), kind_of(&w->spec),
		where_of(&w->spec), "mode", api_mode_name(mode), "policyMode",
		document_mode(w->document), "rules",
		(int)document_rule_count(w->document), "denies", (json_int_t)w->denies);

	/* Of the host's own: who is elsewhere isn't met by its filter. */
	if (j && w->spec.kind == ATTACH_HOST)
		json_object_set_new(j, "network",
				    json_integer((json_int_t)w->side->network));
	if (j)
		json_object_set_new(j, "engine", json_integer(w->link->engine));
	if (j && w->spec.guard_parent)
		json_object_set_new(j, "guardParent", json_true());
	return j;
}
