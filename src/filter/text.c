// SPDX-License-Identifier: Apache-2.0
#include "filter/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>

#include "filter/statement.h"

struct text_writer {
	FILE *out;
	bool failed; /* there is no text for it */
};

static void put_chain(struct text_writer *w, const struct filter_chain *c)
{
	static const char *const hooks[] = { [NF_INET_LOCAL_IN] = "input",
					     [NF_INET_FORWARD] = "forward",
					     [NF_INET_LOCAL_OUT] = "output",
					     [NF_INET_POST_ROUTING] = "postrouting" };

	fprintf(w->out, "\n\tchain %s {\n", c->name);
	if (c->generation > 0)
		fprintf(w->out, "\t\tcomment \"generation %u\"\n", c->generation);
	if (c->type != FILTER_CHAIN_PLAIN) {
		const char *hook = c->hook < ARRAY_SIZE(hooks) ? hooks[c->hook] : NULL;

		w->failed |= !hook;
		fprintf(w->out, "\t\ttype %s hook %s priority %d; policy %s;\n",
			c->type == FILTER_CHAIN_NAT ? "nat" : "filter",
			hook ? hook : "none", c->priority, c->accept ? "accept" : "drop");
	}
	for (const struct filter_rule *r = c->rules; r; r = r->next)
		w->failed |= !statement_print_rule(w->out, r);
	fputs("\t}\n", w->out);
}

static void put_key(struct text_writer *w, enum filter_key key, const uint8_t *bytes)
{
	char text[INET6_ADDRSTRLEN];

	if (key == FILTER_KEY_PORT)
		fprintf(w->out, "%u", bytes[0] << 8 | bytes[1]);
	else if (key == FILTER_KEY_ADDR4 || key == FILTER_KEY_ADDR6)
		fputs(inet_ntop(key == FILTER_KEY_ADDR4 ? AF_INET : AF_INET6, bytes, text,
				sizeof(text)),
		      w->out);
	else
		w->failed = true;
}

static void put_elements(struct text_writer *w, const struct filter_set *s)
{
	size_t size = filter_key_size(s->key);

	if (s->range_count == 0)
		return;
	fputs("\t\telements = {", w->out);
	for (size_t i = 0; i < s->range_count; i++) {
		const struct filter_range *r = &s->ranges[i];

		fputs(i == 0 ? " " : ",\n\t\t\t     ", w->out);
		put_key(w, s->key, r->from);
		if (memcmp(r->from, r->to, size) == 0)
			continue;
		fputc('-', w->out);
		put_key(w, s->key, r->to);
	}
	fputs(" }\n", w->out);
}

static void put_set(struct text_writer *w, const struct filter_set *s)
{
	const char *flags = NULL;

	fprintf(w->out, "\n\tset %s {\n\t\ttype ", s->name);
	w->failed |= !statement_print_key_type(w->out, s->key) || s->value;
	fputc('\n', w->out);
	if (s->size > 0)
		fprintf(w->out, "\t\tsize %" PRIu32 "\n", s->size);
	if (s->timeout)
		flags = s->dynamic ? "dynamic,timeout" : "timeout";
	else if (!s->changes)
		flags = "constant,interval";
	if (flags)
		fprintf(w->out, "\t\tflags %s\n", flags);
	put_elements(w, s);
	fputs("\t}\n", w->out);
}

int filter_text(const struct ruleset *rs, const char *table, FILE *out)
{
	struct text_writer w = { .out = out };

	fprintf(out, "table inet %s\ndelete table inet %s\n\ntable inet %s {", table,
		table, table);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		put_set(&w, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		put_chain(&w, c);
	fputs("}\n", out);
	if (w.failed)
		return -EOPNOTSUPP;
	return ferror(out) ? -EIO : 0;
}
