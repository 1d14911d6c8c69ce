// SPDX-License-Identifier: Apache-2.0
/* One rule as text, as it stands in a document of either language. */
#include <stdio.h>
#include <string.h>

#include "event/json.h"
#include "policy/explain.h"
#include "policy/rule.h"

/* What has to be written otherwise. */
struct dialect {
	const char *quote; /* around keys, and words of a list */
	const char *colon, *comma;
};

static const struct dialect json = { "\"", ":", "," }, yaml = { "", ": ", ", " };

static void put(struct jtext *j, const char *text)
{
	jtext_put(j, text_of(text));
}

static void put_key(struct jtext *j, const struct dialect *d, const char *key)
{
	if (j->used > 1)
		put(j, d->comma);
	put(j, d->quote);
	put(j, key);
	put(j, d->quote);
	put(j, d->colon);
}

/* The words of @list, "a,b". */
static void put_list(struct jtext *j, const struct dialect *d, const char *key,
		     const char *list)
{
	struct text rest = text_of(list), part;

	if (!list[0])
		return;
	put_key(j, d, key);
	for (const char *before = "["; text_split(&rest, ',', &part); before = d->comma) {
		put(j, before);
		put(j, d->quote);
		jtext_put(j, part);
		put(j, d->quote);
	}
	put(j, "]");
}

static bool write_rule(const struct rule *r, const struct dialect *d, char *buf,
		       size_t size)
{
	char ports[PLAN_PORT_RANGES_MAX * 24], types[RULE_TYPE_COUNT * 8] = "";
	char time[JTEXT_TIME_SIZE];
	struct jtext j;
	size_t used = 0;

	jtext_init(&j, buf, size - 1);
	put(&j, "{");
	put_key(&j, d, "action");
	put(&j, d->quote);
	put(&j, policy_action_name(r->action));
	put(&j, d->quote);
	put_key(&j, d, "target");
	jtext_string(&j, text_of(r->target), strlen(r->target));
	put_list(&j, d, "ports", rule_ports_text(&r->ports, ports, sizeof(ports)));
	for (size_t i = 0; i < RULE_FLAG_COUNT; i++)
		if (r->flags & rule_flag_words[i].flag) {
			put_key(&j, d, rule_flag_words[i].key);
			put(&j, "true");
		}
	for (size_t i = 0; i < RULE_TYPE_COUNT; i++)
		if (r->types >> i & 1)
			used += (size_t)snprintf(types + used, sizeof(types) - used,
						 "%s%s", used > 0 ? "," : "",
						 rule_type_words[i]);
	put_list(&j, d, "types", types);
	if (r->until_ms != 0) {
		put_key(&j, d, "until");
		put(&j, d->quote);
		put(&j, jtext_time(r->until_ms, true, time));
		put(&j, d->quote);
	}
	if (r->comment && r->comment[0]) {
		put_key(&j, d, "comment");
		jtext_string(&j, text_of(r->comment), strlen(r->comment));
	}
	put(&j, "}");
	buf[j.full ? 0 : j.used] = '\0';
	return !j.full;
}

bool rule_write_json(const struct rule *r, char *buf, size_t size)
{
	return write_rule(r, &json, buf, size);
}

bool rule_write_yaml(const struct rule *r, char *buf, size_t size)
{
	return write_rule(r, &yaml, buf, size);
}
