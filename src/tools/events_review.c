// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "api/diff.h"
#include "base/clock.h"
#include "base/http_status.h"
#include "base/log.h"
#include "event/json.h"
#include "events/review.h"
#include "opensandbox/policy_file.h"
#include "outputs/client.h"
#include "policy/load.h"
#include "policy/node.h"
#include "policy/rule.h"
#include "sys/print.h"
#include "tools/events_show.h"

/* ---- a rule added to a policy's file ---- */

/* A rule added to a policy's file as text, in front of the others:
 * YAML or JSON, whose comments, order and layout stay.
 *
 * What comes of it is read again and held against the policy before: the one rule more,
 * first of all, and nothing else may differ, and the rule has to open what it says.
 * Where that can't be had the file isn't touched, and the rule is for a person to add. */

struct edited {
	struct text text; /* of the file then */
	const char *rule; /* the line that is added, or what is put into a list */
	uint32_t line;	  /* where; 0: the policy has this rule already */
};

/* A policy as it is read from a text. */
struct reading {
	struct faults faults;
	struct policy policy;
	struct plan plan;
	uint8_t *bytes; /* of it, owned */
};

static void clean_reading(struct reading *r)
{
	faults_done(&r->faults);
	free(r->bytes);
}

static int read_policy(const char *path, struct text text, struct arena *arena,
		       struct reading *ret, struct err *err)
{
	char line[FAULT_TEXT_SIZE];
	const struct policy_args args = { .file = path };
	size_t size;
	int r = cli_policy_load_text(&args, &text, arena, &ret->faults, &ret->policy,
				     &ret->bytes, &size);

	for (size_t i = 0; r == -EINVAL && i < ret->faults.count; i++)
		if (ret->faults.items[i].level == FAULT_ERROR)
			return err_set(
				err, r, "%s",
				fault_format(&ret->faults.items[i], line, sizeof(line)));
	if (r < 0)
		return err_sys(err, r, "cannot read the policy");
	r = plan_open(ret->bytes, size, &ret->plan, err);
	if (r == 0)
		plan_set_time(&ret->plan, clock_wall_ms());
	return r;
}

static bool same_rule(const struct rule *a, const struct rule *b)
{
	return a->action == b->action && a->kind == b->kind &&
	       (a->kind == TARGET_PREFIX ? addr_equal(&a->prefix.addr, &b->prefix.addr) &&
						   a->prefix.bits == b->prefix.bits
					 : dns_name_equal(&a->name, &b->name)) &&
	       rule_ports_equal(&a->ports, &b->ports) && a->flags == b->flags &&
	       a->types == b->types && a->until_ms == b->until_ms &&
	       strcmp(a->target, b->target) == 0 && strcmp(a->comment, b->comment) == 0;
}

static bool same_settings(const struct policy *a, const struct policy *b)
{
	return a->default_action == b->default_action && a->verify == b->verify &&
	       a->dns == b->dns && a->denied_names == b->denied_names &&
	       a->repin_ms == b->repin_ms &&
	       a->require_full_isolation == b->require_full_isolation &&
	       a->on_denies.count == b->on_denies.count &&
	       a->on_denies.window_sec == b->on_denies.window_sec &&
	       a->on_denies.action == b->on_denies.action &&
	       a->source_count == b->source_count &&
	       memcmp(a->limits, b->limits, sizeof(a->limits)) == 0;
}

static bool is_one_rule_more(const struct policy *before, const struct policy *after,
			     const struct rule *rule)
{
	if (after->count != before->count + 1 || !same_rule(&after->rules[0], rule) ||
	    !same_settings(before, after))
		return false;
	for (size_t i = 0; i < before->count; i++) {
		const struct rule *a = &before->rules[i], *b = &after->rules[i + 1];

		if (!same_rule(a, b) || strcmp(a->file, b->file) != 0)
			return false;
	}
	return true;
}

/* A deny of an address counts in whatever order. */
static bool opens(const struct plan *plan, const struct rule *r)
{
	const struct plan_port_range *port = r->ports.count > 0 ? r->ports.ranges : NULL;
	struct plan_verdict v = r->kind == TARGET_PREFIX
					? plan_match_addr(plan, &r->prefix.addr,
							  port ? port->protocol : 0,
							  port ? port->from : 0)
					: plan_match_name(plan, &r->name);

	return v.action == POLICY_ALLOW;
}

/* A position in a text, and what is inserted there. */
struct position {
	size_t at;
	uint32_t line;
	const char *put;
};

static const struct node *find_key(const struct node *map, const char *key)
{
	const struct node *n = map && map->kind == NODE_MAP ? map->first : NULL;

	while (n && !text_equal(n->key, key))
		n = n->next;
	return n;
}

/* Where that line begins; the text's end when there is none. */
static size_t line_start(struct text t, uint32_t line)
{
	size_t at = 0;

	for (uint32_t i = 1; i < line && at < t.len; at++)
		i += t.ptr[at] == '\n';
	return at;
}

/* The offset of @n, or the text's end. */
static size_t offset_of(struct text t, const struct node *n)
{
	size_t at = line_start(t, n->line);

	for (uint32_t i = 1; i < n->column && at < t.len; i++)
		do
			at++;
		while (at < t.len && (t.ptr[at] & 0xc0) == 0x80);
	return at;
}

static bool is_at(struct text t, const struct node *n, char byte)
{
	size_t at = offset_of(t, n);

	return at < t.len && t.ptr[at] == byte;
}

static const char *line_end(struct text t)
{
	const char *first = t.len > 0 ? memchr(t.ptr, '\n', t.len) : NULL;

	return first && first > t.ptr && first[-1] == '\r' ? "\r\n" : "\n";
}

/* Behind the line of the key, so that a comment over the first rule stays with it. */
static void into_block(struct text t, const struct node *list, const char *rule,
		       struct arena *arena, struct position *ret)
{
	ret->line = list->key_line + 1;
	ret->at = line_start(t, ret->line);
	ret->put = arena_printf(arena, "%*s- %s%s", (int)list->column - 1, "", rule,
				line_end(t));
}

static void into_brackets(struct text t, const struct node *n, const char *what,
			  struct arena *arena, struct position *ret)
{
	ret->line = n->line;
	ret->at = offset_of(t, n) + 1;
	ret->put = arena_printf(arena, "%s%s", what, n->count > 0 ? ", " : "");
}

static void at_the_end(struct text t, const char *rule, struct arena *arena,
		       struct position *ret)
{
	const char *end = line_end(t);
	bool whole = t.len == 0 || t.ptr[t.len - 1] == '\n';

	ret->line = 2 + !whole;
	for (size_t i = 0; i < t.len; i++)
		ret->line += t.ptr[i] == '\n';
	ret->at = t.len;
	ret->put = arena_printf(arena, "%segress:%s  - %s%s", whole ? "" : end, end, rule,
				end);
}

/* Return: false: no position is certain. */
static bool find_position(struct text t, const struct node *root, const char *rule,
			  struct arena *arena, struct position *ret)
{
	const struct node *wrapper = find_key(root, "network_policy");
	const struct node *map = wrapper ?: root, *list = find_key(map, "egress");

	*ret = (struct position){ 0 };
	if (list && list->kind == NODE_LIST && is_at(t, list, '['))
		into_brackets(t, list, rule, arena, ret);
	else if (list && list->kind == NODE_LIST && is_at(t, list, '-') &&
		 list->line > list->key_line)
		into_block(t, list, rule, arena, ret);
	else if (!list && map && map->kind == NODE_MAP && is_at(t, map, '{'))
		into_brackets(t, map, arena_printf(arena, "\"egress\": [%s]", rule) ?: "",
			      arena, ret);
	else if (!list && !wrapper && (!root || root->column == 1))
		at_the_end(t, rule, arena, ret);
	return ret->put != NULL;
}

static bool is_json(const char *path, struct text t)
{
	return policy_format_guess(path, t) == POLICY_FORMAT_JSON;
}

/* As a person writes it in YAML: {action: allow, target: "a.test"}. */
static const char *yaml_rule(const struct rule *r, struct arena *arena)
{
	char ports[PLAN_PORT_RANGES_MAX * 24], words[192] = "", time[JTEXT_TIME_SIZE];
	size_t used = 0, types = 0;

	for (size_t i = 0; i < RULE_FLAG_COUNT; i++)
		if (r->flags & rule_flag_words[i].flag)
			used += (size_t)snprintf(words + used, sizeof(words) - used,
						 ", %s: true", rule_flag_words[i].key);
	for (size_t i = 0; i < RULE_TYPE_COUNT; i++)
		if (r->types >> i & 1)
			used += (size_t)snprintf(words + used, sizeof(words) - used,
						 "%s%s", types++ ? ", " : ", types: [",
						 rule_type_words[i]);
	if (types > 0)
		used += (size_t)snprintf(words + used, sizeof(words) - used, "]");
	if (r->until_ms != 0)
		snprintf(words + used, sizeof(words) - used, ", until: %s",
			 jtext_time(r->until_ms, true, time));
	rule_ports_text(&r->ports, ports, sizeof(ports));
	return arena_printf(arena, "{action: allow, target: \"%s\"%s%s%s%s}", r->target,
			    ports[0] ? ", ports: [" : "", ports, ports[0] ? "]" : "",
			    words);
}

static struct text insert(struct text t, const struct position *p, struct arena *arena)
{
	size_t size = strlen(p->put);
	char *all = arena_alloc(arena, t.len + size + 1);

	if (!all)
		return (struct text){ 0 };
	memcpy(all, t.ptr, p->at);
	memcpy(all + p->at, p->put, size);
	memcpy(all + p->at + size, t.ptr + p->at, t.len - p->at);
	return (struct text){ all, t.len + size };
}

static int read_tree(const char *path, struct text text, bool json, struct arena *arena,
		     struct node **ret)
{
	struct faults faults = { 0 };
	const struct node_source source = {
		.arena = arena, .faults = &faults, .file = path, .text = text
	};
	int r = json ? node_read_json(&source, ret) : node_read_yaml(&source, ret);

	faults_done(&faults);
	return r;
}

static void print_warnings(const struct reading *r, const struct rule *rule)
{
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < r->faults.count; i++)
		if (r->faults.items[i].line == rule->line &&
		    r->faults.items[i].level == FAULT_WARNING)
			fprintf(stderr, "%s\n",
				fault_format(&r->faults.items[i], line, sizeof(line)));
}

static int by_hand(struct err *err, const char *why, const char *rule)
{
	return err_set(err, -EINVAL,
		       "the file is left as it is: %s; add this by hand, first under "
		       "egress: - %s",
		       why, rule);
}

static int put_rule(const char *path, struct text text, const struct reading *before,
		    const struct rule *rule, const char *shown, struct arena *arena,
		    struct edited *ret, struct err *err)
{
	CLEAN(reading) struct reading after = { 0 };
	struct err why = { 0 };
	struct node *root = NULL;
	struct position position;
	int r = read_tree(path, text, is_json(path, text), arena, &root);

	if (r == -ENOMEM)
		return err_sys(err, r, "cannot read the policy");
	if (r < 0 || !find_position(text, root, shown, arena, &position))
		return by_hand(err, "there is no place in it that can be told", shown);
	ret->text = insert(text, &position, arena);
	if (!ret->text.ptr)
		return err_set(err, -ENOMEM, "out of memory");
	if (read_policy(path, ret->text, arena, &after, &why) < 0 ||
	    !is_one_rule_more(&before->policy, &after.policy, rule))
		return by_hand(err, "it would mean something else", shown);
	if (!opens(&after.plan, &after.policy.rules[0]))
		return by_hand(err, "a deny of this address counts all the same", shown);
	print_warnings(&after, &after.policy.rules[0]);
	ret->line = after.policy.rules[0].line;
	return 0;
}

/* @rule is JSON, of review_rule(). Warnings about it go to stderr. Everything in @arena.
 * Return: 0; -EINVAL with @err: it can't be done, or the policy isn't valid; -ENOMEM. */
static int policy_edit(const char *path, struct text text, const char *rule,
		       struct arena *arena, struct edited *ret, struct err *err)
{
	CLEAN(reading) struct reading before = { 0 }, alone = { 0 };
	const char *whole = arena_printf(arena, "{\"egress\":[%s]}", rule);
	const struct rule *wanted;
	int r;

	*ret = (struct edited){ .text = text };
	if (!whole)
		return err_set(err, -ENOMEM, "out of memory");
	r = read_policy(path, text, arena, &before, err);
	if (r == 0)
		r = read_policy("rule.json", text_of(whole), arena, &alone, err);
	if (r < 0)
		return r;
	wanted = &alone.policy.rules[0];
	ret->rule = is_json(path, text) ? rule : yaml_rule(wanted, arena);
	if (!ret->rule)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < before.policy.count; i++)
		if (same_rule(&before.policy.rules[i], wanted) &&
		    opens(&before.plan, wanted))
			return 0;
	return put_rule(path, text, &before, wanted, ret->rule, arena, ret, err);
}

/* ---- tasks ---- */

struct listing {
	const struct show *show;
	size_t count;
};

/* ---- showing ---- */

static const char *target_of(const struct review *t, char *buf)
{
	return t->destination[0] ? show_text(t->destination, buf)
				 : "(more destinations than are listed)";
}

static bool print_task_line(void *data, const struct review *t)
{
	struct listing *l = data;
	char time[JTEXT_TIME_SIZE], sandbox[TEXT_ESCAPED_SIZE], target[TEXT_ESCAPED_SIZE];
	char json[REVIEW_JSON_SIZE];

	l->count++;
	if (l->show->spec.json) {
		review_json(t, json);
		print_json_row(l->count - 1, text_of(json));
		return !ferror(stdout);
	}
	if (l->count == 1)
		printf("%5s  %-9s %8s  %-20s  %-12s %s\n", "task", "state", "packets",
		       "last", "sandbox", "destination");
	printf("%5" PRId64 "  %-9s %8" PRIu64 "  %s  %-12s %s", t->id,
	       review_state_name(t->state), t->packets,
	       jtext_time(t->last_ms, false, time),
	       show_text(t->sandbox[0] ? t->sandbox : "-", sandbox),
	       target_of(t, target));
	if (t->port > 0)
		printf(" port %u", t->port);
	putchar('\n');
	return !ferror(stdout);
}

static int list_tasks(struct show *s, struct review_store *store, struct err *err)
{
	struct listing l = { .show = s };
	enum review_state state = REVIEW_OPEN;
	int r;

	if (s->spec.state && strcmp(s->spec.state, "all") == 0)
		state = REVIEW_NONE;
	else if (s->spec.state && !review_state_parse(s->spec.state, &state))
		return err_set(err, -EINVAL,
			       "--state: it is one of open, accepted, dismissed, all");
	r = review_list(store, state, s->spec.sandbox, print_task_line, &l, err);
	if (r < 0)
		return r;
	if (s->spec.json)
		print_json_end(l.count);
	else if (l.count == 0)
		puts("nothing waits to be decided");
	return 0;
}

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
static void print_whose(const struct show *s, const struct review *t)
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

static void print_task(const struct show *s, const struct review *t)
{
	char shown[TEXT_ESCAPED_SIZE], time[JTEXT_TIME_SIZE], buf[REVIEW_JSON_SIZE];

	if (s->spec.json) {
		review_json(t, buf);
		puts(buf);
		return;
	}
	printf("task         %" PRId64 ", %s\n", t->id, review_state_name(t->state));
	printf("sandbox      %s\n", show_text(t->sandbox[0] ? t->sandbox : "-", shown));
	printf("destination  %s", target_of(t, shown));
	if (t->port > 0)
		printf(" %s/%u", event_protocol_name(t->protocol, buf), t->port);
	printf("\ndenied       %" PRIu64 " packets in %" PRIu64 " events\n", t->packets,
	       t->rows);
	printf("first        %s\n", jtext_time(t->first_ms, false, time));
	printf("last         %s\n", jtext_time(t->last_ms, false, time));
	if (t->decided_ms > 0)
		printf("decided      %s by %s\n", jtext_time(t->decided_ms, false, time),
		       show_text(t->who, shown));
	print_whose(s, t);
	printf("rule         %s\n", review_rule(t, buf) ? buf : "no rule can allow this");
}

/* ---- the policy ---- */

/* On stderr: standard output may be a program's. @diff is taken. */
static void show_diff(json_t *diff)
{
	for (size_t i = 0; i < json_array_size(diff); i++)
		fprintf(stderr, "%s\n", json_string_value(json_array_get(diff, i)));
	if (diff && json_array_size(diff) == 0)
		fputs("the policy has this rule already\n", stderr);
	json_decref(diff);
}

/* Somebody says so: --yes, or an answer. */
static bool is_wanted(const struct show *s)
{
	char answer[16];

	if (s->spec.yes)
		return true;
	if (isatty(STDIN_FILENO) != 1) {
		log_error("nobody is there to be asked: --yes says that it is wanted");
		return false;
	}
	fputs("add it? [y/N] ", stderr);
	return fgets(answer, sizeof(answer), stdin) &&
	       (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0);
}

static int write_policy(struct policy_file *file, struct text text, struct err *err)
{
	int r = policy_file_prepare(file, text, err);

	return r < 0 ? r : policy_file_commit(file, err);
}

/* As the API does it: a document of OpenSandbox's form. Return: -EINVAL: it is none. */
static int add_to_document(struct show *s, struct policy_file *file, struct text text,
			   const char *rule, struct err *err)
{
	struct document *old = NULL, *next = NULL;
	const char *rules = arena_printf(&s->arena, "[%s]", rule) ?: "";
	char *json = NULL;
	int r = document_parse(text, NULL, NULL, &old, err);

	if (r == 0)
		r = document_merge(old, text_of(rules), &next, err);
	if (r == 0) {
		show_diff(document_diff(old, next));
		json = document_json(next, true);
		r = !json			? err_set(err, -ENOMEM, "out of memory")
		    : document_equal(old, next) ? 0
		    : is_wanted(s)		? write_policy(file, text_of(json), err)
						: -ECANCELED;
	}
	free(json);
	document_free(old);
	document_free(next);
	return r;
}

static int add_to_text(struct show *s, struct policy_file *file, struct text text,
		       const char *rule, struct err *err)
{
	char shown[TEXT_ESCAPED_SIZE];
	struct edited a;
	int r = policy_edit(s->spec.policy, text, rule, &s->arena, &a, err);

	if (r < 0)
		return r;
	if (a.line == 0) {
		fputs("the policy has this rule already\n", stderr);
		return 0;
	}
	fprintf(stderr, "%s:%u:\n+ - %s\n", show_text(s->spec.policy, shown), a.line,
		a.rule);
	return is_wanted(s) ? write_policy(file, a.text, err) : -ECANCELED;
}

/* A document of OpenSandbox's is written as the API writes it; of everything else the
 * text stays. Return: 0; -ECANCELED: it wasn't wanted; or another -errno. */
static int add_rule(struct show *s, const char *rule, struct err *err)
{
	struct policy_file file = { .path = s->spec.policy };
	struct document *d = NULL;
	struct err ignored = { 0 };
	bool is_document;
	struct text text;
	int r = policy_file_read(&file, &s->arena, &text, err);

	if (r < 0)
		return r;
	is_document = text_trim(text).len > 0 && text_trim(text).ptr[0] == '{' &&
		      document_parse(text, NULL, NULL, &d, &ignored) == 0;
	document_free(d);
	return is_document ? add_to_document(s, &file, text, rule, err)
			   : add_to_text(s, &file, text, rule, err);
}

static const char *who_decides(const struct show *s)
{
	const struct passwd *me = s->spec.who ? NULL : getpwuid(getuid());

	if (s->spec.who)
		return s->spec.who;
	return me ? me->pw_name : "unknown";
}

/* --- accepting by a daemon, whose policy changes --- */

enum { PATH_SIZE = 1024 };

static int ask_daemon(struct show *s, const char *method, const char *path,
		      const char *body, json_t **ret, struct err *err)
{
	struct client_reply reply;
	int r = client_ask(s->spec.socket, method, path, text_of(body), &s->arena, &reply,
			   err);

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
	size_t used = 0;

	for (; *text && used + 4 <= size; text++) {
		if (strchr(TEXT_NAME_LETTERS, *text))
			buf[used++] = *text;
		else
			used += (size_t)snprintf(buf + used, 4, "%%%02X",
						 (unsigned char)*text);
	}
	buf[used] = '\0';
}

/* Have the daemon accept @t for its sandbox, which shows what that changes and asks.
 * Return: 0; -ECANCELED: it wasn't wanted; or another -errno. */
static int live_accept(struct show *s, const struct review *t, struct err *err)
{
	char path[PATH_SIZE], who[3 * REVIEW_WHO_SIZE];
	const char *destination, *body;
	json_t *j = NULL;
	int r;

	if (!ipc_is_sandbox_name(t->sandbox))
		return err_set(err, -EINVAL, "this is no sandbox of a daemon's");
	snprintf(path, sizeof(path), "/sandboxes/%s/review/%" PRId64, t->sandbox, t->id);
	r = ask_daemon(s, "GET", path, "", &j, err);
	/* Another store has other tasks under the same numbers. */
	destination = json_string_value(json_object_get(j, "destination"));
	if (r == 0 && (!destination || strcmp(destination, t->destination) != 0))
		r = err_set(err, -ESTALE, "the daemon has another store than this one");
	if (r == 0) {
		show_diff(json_incref(json_object_get(j, "diff")));
		r = is_wanted(s) ? 0 : -ECANCELED;
	}
	json_decref(j);
	if (r < 0)
		return r;
	escape(who_decides(s), who, sizeof(who));
	snprintf(path, sizeof(path), "/sandboxes/%s/review/%" PRId64 "/accept?who=%s",
		 t->sandbox, t->id, who);
	body = s->spec.for_ms > 0 ? arena_printf(&s->arena, "{\"for\":\"%" PRId64 "s\"}",
						 s->spec.for_ms / 1000)
				  : "";
	if (!body)
		return err_set(err, -ENOMEM, "out of memory");
	j = NULL;
	r = ask_daemon(s, "POST", path, body, &j, err);
	json_decref(j);
	return r;
}

/* ---- deciding ---- */

static int accept_task(struct show *s, const struct review *t, struct err *err)
{
	char plain[REVIEW_RULE_SIZE], time[JTEXT_TIME_SIZE];
	const char *rule = plain;

	if (!review_rule(t, plain))
		return err_set(err, -ENOENT, "no rule can allow this");
	if (s->spec.live)
		return live_accept(s, t, err);
	if (s->spec.for_ms > 0)
		rule = arena_printf(
			&s->arena, "%.*s,\"until\":\"%s\"}", (int)strlen(plain) - 1,
			plain, jtext_time(clock_wall_ms() + s->spec.for_ms, true, time));
	if (!rule)
		return err_set(err, -ENOMEM, "out of memory");
	if (s->spec.policy)
		return add_rule(s, rule, err);
	if (!s->spec.json)
		printf("neither --policy nor --live is given; what it needs is this "
		       "rule:\n%s\n",
		       rule);
	return 0;
}

static int decide(struct show *s, struct review_store *store, const struct review *t,
		  struct err *err)
{
	const bool accept = strcmp(s->spec.word, "accept") == 0;
	struct review now;
	int r = accept ? accept_task(s, t, err) : 0;

	/* The daemon has noted it. */
	if (r == 0 && !(accept && s->spec.live))
		r = review_decide(store, t->id,
				  accept ? REVIEW_ACCEPTED : REVIEW_DISMISSED,
				  who_decides(s), clock_wall_ms(), err);
	if (r == 0)
		r = review_find(store, t->id, &now, err);
	if (r == 0 && s->spec.json)
		print_task(s, &now);
	return r;
}

static int obey(struct show *s, struct review_store *store, struct err *err)
{
	struct review t;
	int r;

	if (strcmp(s->spec.word, "list") == 0)
		return list_tasks(s, store, err);
	r = review_find(store, s->spec.id, &t, err);
	if (r < 0)
		return r;
	if (strcmp(s->spec.word, "show") != 0)
		return decide(s, store, &t, err);
	print_task(s, &t);
	return 0;
}

int show_review(struct show *s)
{
	struct review_store *store = NULL;
	struct err err = { 0 };
	char shown[TEXT_ESCAPED_SIZE];
	int r = review_open(s->directory, &store, &err);

	if (r < 0)
		err_context(&err, "%s", show_text(s->directory, shown));
	else
		r = obey(s, store, &err);
	review_close(store);
	if (r < 0 && err.text[0])
		show_failed(&err);
	return r == 0 ? SHOW_OK : r == -EINVAL ? SHOW_BAD_INPUT : SHOW_FAILED;
}
