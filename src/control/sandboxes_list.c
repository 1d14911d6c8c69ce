// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/http_status.h"
#include "base/jansson.h"
#include "control/control.h"
#include "event/json.h"

/* -- what is asked to be attached --------------------------------------------------- */

/* What a sandbox is, as the API says it: exactly one of "netns", "cgroup" and "uid". All
 * faults are told at once. Whether such a thing exists is the daemon's to say. */

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

static struct text cut(const char *text)
{
	return (struct text){ text, strnlen(text, SHOWN_MAX) };
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
	uint32_t pid;

	w->kinds++;
	w->spec.kind = ATTACH_NETNS;
	if (!where)
		fault(w, "netns: this is not a string");
	else if (where[0] != '/' &&
		 (!text_to_u32(text_of(where), INT32_MAX, &pid) || pid == 0))
		fault(w, "netns: '%s' is no absolute path and no process id",
		      TEXT_SHOWN(cut(where)));
	else
		set_where(w, "netns", where);
}

static void read_cgroup(struct wanted *w, json_t *value)
{
	const char *where = json_string_value(value);

	w->kinds++;
	w->spec.kind = ATTACH_HOST;
	w->spec.member = MEMBER_CGROUP;
	if (!where)
		fault(w, "cgroup: this is not a string");
	else if (where[0] != '/')
		fault(w, "cgroup: '%s' is no absolute path", TEXT_SHOWN(cut(where)));
	else
		set_where(w, "cgroup", where);
}

/* Root is not one of many users. */
static void read_uid(struct wanted *w, json_t *value)
{
	const char *name = json_string_value(value);
	uint32_t uid = 0;

	w->kinds++;
	w->spec.kind = ATTACH_HOST;
	w->spec.member = MEMBER_UID;
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
	else if (name[0] == '-' || !text_is_name(name, USER_NAME_MAX) ||
		 name[strspn(name, "0123456789")] == '\0')
		fault(w, "uid: '%s' is not a user name", TEXT_SHOWN(cut(name)));
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

static const struct key {
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

/* ---- all of it ---- */

/* No policy: deny all. */
static void parse_policy(struct wanted *w, struct control *s, struct document **ret)
{
	CLEAN(mem)
	char *text = w->policy ? json_dumps(w->policy, JSON_COMPACT | JSON_ENCODE_ANY)
			       : strdup("{}");
	CLEAN(candidate)
	struct control_candidate compiled = { .plan_fd = -1, .text_fd = -1 };
	struct err err = { 0 };

	if (!text)
		fault(w, "out of memory");
	else if (document_parse_strict(text_of(text), ret, &err) < 0)
		fault(w, "policy: %s", err.text);
	else if (document_settle_ends(*ret, clock_wall_ms()) < 0)
		fault(w, "out of memory");
	/* Else it is compiled anyway. */
	else if (w->err->code < 0 && control_compile(s, *ret, &compiled, &err) < 0)
		fault(w, "policy: %s", err.text);
}

/* The body of PUT /sandboxes/@id. Return: 0; -E2BIG, its policy has too many rules; or
 * -errno with every fault in @err. */
static int control_attach_read(struct control *s, const char *id, struct text body,
			       struct control_wish *ret, struct err *err)
{
	CLEAN(document) struct document *policy = NULL;
	struct wanted w = { .err = err };
	json_error_t why;
	CLEAN(json)
	json_t *j = json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, &why);
	const char *key;
	json_t *value;

	if (!ipc_is_sandbox_name(id))
		fault(&w, "%s", IPC_SANDBOX_NAME_RULE);
	else
		snprintf(w.spec.name, sizeof(w.spec.name), "%s", id);
	if (!j)
		fault(&w, "the body is not JSON: %.150s", why.text);
	else if (!json_is_object(j))
		fault(&w, "the body is not an object");
	json_object_foreach(j, key, value)
	{
		const struct key *known = TEXT_FIND(text_of(key), keys);

		if (known)
			known->read(&w, value);
		else
			fault(&w, "'%s' is not a key of this", TEXT_SHOWN(cut(key)));
	}
	if (json_is_object(j) && w.kinds != 1)
		fault(&w, "exactly one of netns, cgroup and uid is given");
	if (w.spec.guard_parent && w.spec.member != MEMBER_CGROUP)
		fault(&w, "guardParent: this goes with a cgroup alone");
	if (w.again && w.spec.kind == ATTACH_NETNS)
		fault(&w, "again: this goes with a cgroup or a user alone");
	parse_policy(&w, s, &policy);
	if (err->code < 0 ||
	    document_check_rule_count(policy, s->spec.max_rules, err) < 0)
		return err->code;
	*ret = (struct control_wish){ w.spec, TAKE_PTR(policy), w.again };
	return 0;
}

/* ---- and back ---- */

/* What GET says of @w. */
static void put_sandbox(struct jtext *j, const struct control_sandbox *w)
{
	bool names = plan_verify(&w->plan) == POLICY_VERIFY_TLS;
	enum api_mode mode = names ? API_MODE_DNS_NFT_TLS : API_MODE_DNS_NFT;
	const char *where = w->spec.where, *kind = "netns";
	uint32_t uid;

	if (w->spec.kind == ATTACH_HOST)
		kind = w->spec.member == MEMBER_UID ? "uid" : "cgroup";
	jtext_open(j, NULL, '{');
	jtext_member(j, "id", w->spec.name);
	jtext_count(j, "number", w->id);
	jtext_member(j, "kind", kind);
	if (w->spec.kind == ATTACH_HOST && w->spec.member == MEMBER_UID &&
	    text_to_u32(text_of(where), UINT32_MAX, &uid))
		jtext_count(j, kind, uid);
	else if (jtext_is_utf8(text_of(where)))
		jtext_member(j, kind, where);
	else /* a path need not be UTF-8 */
		jtext_member(j, kind, TEXT_SHOWN(cut(where)));
	jtext_member(j, "mode", api_mode_name(mode));
	jtext_member(j, "policyMode", document_mode(w->document));
	jtext_count(j, "rules", document_rule_count(w->document));
	jtext_count(j, "denies", w->denies);
	/* Of the host's own: who is elsewhere isn't met by its filter. */
	if (w->spec.kind == ATTACH_HOST)
		jtext_count(j, "network", w->side->network);
	jtext_count(j, "engine", w->link->engine);
	if (w->spec.guard_parent)
		jtext_bool(j, "guardParent", true);
	jtext_close(j, '}');
}

/* -- one sandbox, for the API ------------------------------------------------------- */

enum { GROUPS_MAX = 256 };

static bool sandboxes_knows_all(void *data)
{
	return control_sandboxes_are_known(data);
}

static bool sandboxes_find(void *data, const char *id, struct api_ops *ret,
			   uint32_t *ret_number)
{
	struct control_sandbox *w = control_sandbox_named(data, id);

	if (!w)
		return false;
	control_ops(w, ret);
	*ret_number = w->id;
	return true;
}

/* -- all of them -------------------------------------------------------------------- */

static void sandboxes_list(void *data, struct jtext *j)
{
	struct control *s = data;
	struct control_sandbox *w;

	control_sandboxes_denies(s);
	jtext_open(j, NULL, '{');
	jtext_open(j, "sandboxes", '[');
	for (uint32_t id = 0; (w = control_sandbox_after(s, id)); id = w->id)
		if (!w->gone[0])
			put_sandbox(j, w);
	jtext_close(j, ']');
	/* Who reads this must not take some for all. */
	if (!control_sandboxes_are_known(s))
		jtext_bool(j, "takingOver", true);
	jtext_close(j, '}');
}

static bool sandboxes_show(void *data, const char *id, struct jtext *j)
{
	struct control_sandbox *w = control_sandbox_named(data, id);

	if (!w)
		return false;
	(void)!control_sandbox_stats(w);
	put_sandbox(j, w);
	return true;
}

static unsigned int sandboxes_attach(void *data, const char *id, struct text body,
				     struct err *err)
{
	struct control_wish wish = { 0 };
	struct control_sandbox *there = control_sandbox_named(data, id);
	struct ipc_message ask = { .type = IPC_AGAIN }, m;
	unsigned int status = HTTP_CONFLICT;
	const char *closed = NULL;

	if (control_attach_read(data, id, body, &wish, err) < 0)
		return err->code == -E2BIG ? HTTP_TOO_LARGE : HTTP_BAD_REQUEST;
	if (!there || !wish.again)
		return control_sandbox_attach(data, &wish.spec, wish.policy, err);
	ask.sandbox = there->id;
	ask.attached = wish.spec;
	if (control_order(there->link, &ask, NULL, 0, IPC_ATTACHED, &m, err) == 0)
		closed = control_closed(there);
	/* What was closed for what it did is not opened by being started once more. */
	if (closed)
		err_set(err, -EPERM, "it is closed: %s", closed);
	else if (err->code == 0)
		status = api_failure_status(
			control_change(there, TAKE_PTR(wish.policy), err));
	document_free(wish.policy);
	return status;
}

static unsigned int sandboxes_detach(void *data, const char *id, struct err *err)
{
	struct control_sandbox *w = control_sandbox_named(data, id);

	if (w)
		return control_sandbox_detach(w, err);
	err_set(err, -ENOENT, "no such sandbox");
	return HTTP_NOT_FOUND;
}

/* -- who may ask -------------------------------------------------------------------- */

/* The file's mode keeps others out already; a descriptor that was passed on doesn't. */
static bool sandboxes_admits(void *data, int fd)
{
	const struct control *s = data;
	gid_t groups[GROUPS_MAX];
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	if (peer.uid == 0)
		return true;
	if (s->group == 0)
		return false;
	size = sizeof(groups);
	if (peer.gid == s->group)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		return false;
	for (size_t i = 0; i < size / sizeof(groups[0]); i++)
		if (groups[i] == s->group)
			return true;
	return false;
}

void control_sandboxes_list(struct control *s, struct api_sandboxes *ret)
{
	*ret = (struct api_sandboxes){
		.data = s,
		.knows_all = sandboxes_knows_all,
		.find = sandboxes_find,
		.list = sandboxes_list,
		.show = sandboxes_show,
		.attach = sandboxes_attach,
		.detach = sandboxes_detach,
		.admits = sandboxes_admits,
	};
}
