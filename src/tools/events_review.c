// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "api/diff.h"
#include "base/clock.h"
#include "base/log.h"
#include "event/json.h"
#include "events/review.h"
#include "opensandbox/policy_file.h"
#include "tools/events_show.h"
#include "tools/policy_edit.h"

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

static bool print_line(void *data, const struct review *t)
{
	struct listing *l = data;
	char time[JTEXT_TIME_SIZE], sandbox[TEXT_ESCAPED_SIZE], target[TEXT_ESCAPED_SIZE];
	char json[REVIEW_JSON_SIZE];

	l->count++;
	if (l->show->spec.json) {
		review_json(t, json);
		printf("%s%s", l->count > 1 ? ",\n  " : "[\n  ", json);
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

static int list(struct show *s, struct review_store *store, struct err *err)
{
	struct listing l = { .show = s };
	enum review_state state = REVIEW_OPEN;
	int r;

	if (s->spec.state && strcmp(s->spec.state, "all") == 0)
		state = REVIEW_NONE;
	else if (s->spec.state && !review_state_parse(s->spec.state, &state))
		return err_set(err, -EINVAL,
			       "--state: it is one of open, accepted, dismissed, all");
	r = review_list(store, state, s->spec.sandbox, print_line, &l, err);
	if (r < 0)
		return r;
	if (s->spec.json)
		puts(l.count > 0 ? "\n]" : "[]");
	else if (l.count == 0)
		puts("nothing waits to be decided");
	return 0;
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
	show_whose(s, t);
	printf("rule         %s\n", review_rule(t, buf) ? buf : "no rule can allow this");
}

/* ---- the policy ---- */

/* On stderr: standard output may be a program's. @diff is taken. */
void show_diff(json_t *diff)
{
	for (size_t i = 0; i < json_array_size(diff); i++)
		fprintf(stderr, "%s\n", json_string_value(json_array_get(diff, i)));
	if (diff && json_array_size(diff) == 0)
		fputs("the policy has this rule already\n", stderr);
	json_decref(diff);
}

bool show_is_wanted(const struct show *s)
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
	char rules[REVIEW_RULE_SIZE + 2];
	char *json = NULL;
	int r = document_parse(text, NULL, NULL, &old, err);

	snprintf(rules, sizeof(rules), "[%s]", rule);
	if (r == 0)
		r = document_merge(old, text_of(rules), &next, err);
	if (r == 0) {
		show_diff(document_diff(old, next));
		json = document_json(next, true);
		r = !json			? err_set(err, -ENOMEM, "out of memory")
		    : document_equal(old, next) ? 0
		    : show_is_wanted(s)		? write_policy(file, text_of(json), err)
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
	struct amended a;
	int r = policy_edit(s->spec.policy, text, rule, &s->arena, &a, err);

	if (r < 0)
		return r;
	if (a.line == 0) {
		fputs("the policy has this rule already\n", stderr);
		return 0;
	}
	fprintf(stderr, "%s:%u:\n+ - %s\n", show_text(s->spec.policy, shown), a.line,
		a.rule);
	return show_is_wanted(s) ? write_policy(file, a.text, err) : -ECANCELED;
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

/* ---- deciding ---- */

const char *show_who(const struct show *s)
{
	const struct passwd *me = s->spec.who ? NULL : getpwuid(getuid());

	if (s->spec.who)
		return s->spec.who;
	return me ? me->pw_name : "unknown";
}

static int accept_task(struct show *s, const struct review *t, struct err *err)
{
	char rule[REVIEW_RULE_SIZE];

	if (!review_rule(t, rule))
		return err_set(err, -ENOENT, "no rule can allow this");
	if (s->spec.live)
		return live_accept(s, t, err);
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
				  show_who(s), clock_wall_ms(), err);
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
		return list(s, store, err);
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
