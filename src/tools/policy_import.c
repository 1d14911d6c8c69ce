// SPDX-License-Identifier: Apache-2.0
/* The allow and deny lists of other tools' settings as a policy.
 *
 * What it knows, in YAML or JSON, wherever it stands in the file:
 *
 *     network: {allowedDomains: [...], deniedDomains: [...]}    (also below `sandbox`)
 *     allowed-endpoints: "host:port host:port"                  (or a list of these)
 *
 * Whatever else a file says is not about this, and left alone; what stands in a
 * `network` beside the lists and can't be said in a policy is an error, and so is a
 * second place with lists: whose would the policy be?
 *
 * HOW IT WORKS
 * The file is read as a tree, and the tree searched for the mappings that hold lists. An
 * entry becomes a rule. Where these tools take all entries together, Weir lets the first
 * rule that matches decide: denies come first, names before the wildcards that they are
 * below, and a rule has the ports of all entries that cover it.
 *
 * The policy that comes out is read back and checked as any other, and what is wrong
 * with a rule is said of the entry that it came from. */
#include "tools/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/explain.h"
#include "policy/faults.h"
#include "policy/load.h"
#include "policy/node.h"

enum {
	ENTRIES_MAX = 4096, /* one more is an error */
	PORTS_MAX = 32,	    /* of one target; one more is an error */
	HEADER_LINES = 5,   /* before the first rule */
};

struct entry {
	struct rule rule;
	struct text target;
	const struct node *at;
	uint32_t ports[PORTS_MAX]; /* none: all */
	size_t port_count;
};

struct import {
	struct arena arena;
	struct faults faults;
	const char *file;
	const char *found; /* the first place with lists, or NULL */
	struct entry *entries;
	size_t count;
	bool out_of_memory;
};

static void fault(struct import *im, const struct node *at, const char *path,
		  const char *text)
{
	faults_add(&im->faults, FAULT_ERROR, im->file, at->line, at->column, path, "%s",
		   text);
}

/* "'text' <what is wrong>" */
static void fault_text(struct import *im, const struct node *at, const char *path,
		       struct text t, const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	faults_add(&im->faults, FAULT_ERROR, im->file, at->line, at->column, path,
		   "'%s' %s", text_escape(t, shown, sizeof(shown)), what);
}

/* --- entries --- */

static bool same_target(const struct entry *a, const struct entry *b)
{
	return a->rule.action == b->rule.action && a->target.len == b->target.len &&
	       strncasecmp(a->target.ptr, b->target.ptr, a->target.len) == 0;
}

static void add_port(struct import *im, struct entry *e, uint32_t port)
{
	for (size_t i = 0; i < e->port_count; i++)
		if (e->ports[i] == port)
			return;
	if (e->port_count == PORTS_MAX)
		fault_text(im, e->at, "", e->target, "has too many ports");
	else
		e->ports[e->port_count++] = port;
}

/* @port 0: all of them. */
static void add_entry(struct import *im, enum policy_action action, struct text target,
		      uint32_t port, const struct node *at, const char *path)
{
	struct entry *e = &im->entries[im->count];
	struct err err = { 0 };

	if (im->count == ENTRIES_MAX) {
		fault(im, at, path, "more entries than can be taken");
		return;
	}
	*e = (struct entry){ .target = target, .at = at };
	if (rule_target_parse(target, &e->rule, &err) < 0) {
		fault(im, at, path, err.text);
		return;
	}
	e->rule.action = action;
	for (size_t i = 0; i < im->count; i++)
		if (same_target(&im->entries[i], e)) {
			if (port > 0)
				add_port(im, &im->entries[i], port);
			return;
		}
	im->count++;
	if (port > 0)
		add_port(im, e, port);
}

/* --- the lists --- */

static void read_domains(struct import *im, const struct node *list,
			 enum policy_action action, const char *path)
{
	if (list->kind == NODE_NULL)
		return;
	if (list->kind != NODE_LIST) {
		fault(im, list, path, "this is not a list");
		return;
	}
	for (const struct node *n = list->first; n; n = n->next) {
		if (n->kind == NODE_TEXT)
			add_entry(im, action, n->text, 0, n, path);
		else
			fault(im, n, path, "this is not a name");
	}
}

static void read_endpoint(struct import *im, const struct node *at, struct text t,
			  const char *path)
{
	const char *colon = memrchr(t.ptr, ':', t.len);
	struct text port = { colon ? colon + 1 : NULL,
			     colon ? (size_t)(t.ptr + t.len - colon - 1) : 0 };
	uint32_t number = 0;

	if (!colon || !text_to_u32(port, UINT16_MAX, &number) || number == 0) {
		fault_text(im, at, path, t, "is not host:port");
		return;
	}
	t.len = (size_t)(colon - t.ptr);
	if (t.len > 1 && t.ptr[0] == '[' && t.ptr[t.len - 1] == ']')
		t = (struct text){ t.ptr + 1, t.len - 2 };
	add_entry(im, POLICY_ALLOW, t, number, at, path);
}

/* Words between white space, the way a block of lines comes. */
static void read_endpoints(struct import *im, const struct node *n, const char *path)
{
	const char *p = n->text.ptr, *end = p + n->text.len;

	if (n->kind == NODE_LIST) {
		for (const struct node *i = n->first; i; i = i->next)
			read_endpoints(im, i, path);
		return;
	}
	if (n->kind == NODE_NULL)
		return;
	if (n->kind != NODE_TEXT) {
		fault(im, n, path, "this is not host:port");
		return;
	}
	while (p < end) {
		const char *word = p;

		while (p < end && !strchr(" \t\r\n", *p))
			p++;
		if (p > word)
			read_endpoint(im, n, (struct text){ word, (size_t)(p - word) },
				      path);
		else
			p++;
	}
}

/* --- finding them --- */

static bool is_network(const struct node *n)
{
	if (n->kind != NODE_MAP || !text_equal(n->key, "network"))
		return false;
	for (const struct node *k = n->first; k; k = k->next)
		if (text_equal(k->key, "allowedDomains") ||
		    text_equal(k->key, "deniedDomains"))
			return true;
	return false;
}

/* It says nothing: false, null, or empty. */
static bool is_idle(const struct node *n)
{
	switch (n->kind) {
	case NODE_NULL:
		return true;
	case NODE_BOOL:
		return text_equal(n->text, "false");
	case NODE_TEXT:
		return n->text.len == 0;
	case NODE_LIST:
	case NODE_MAP:
		return n->count == 0;
	default:
		return false;
	}
}

static void read_network(struct import *im, const struct node *map, const char *path)
{
	for (const struct node *n = map->first; n; n = n->next) {
		const char *at = arena_printf(&im->arena, "%s.%.*s", path,
					      (int)n->key.len, n->key.ptr);

		if (!at)
			im->out_of_memory = true;
		else if (text_equal(n->key, "deniedDomains"))
			read_domains(im, n, POLICY_DENY, at);
		else if (text_equal(n->key, "allowedDomains"))
			read_domains(im, n, POLICY_ALLOW, at);
		else if (!is_idle(n))
			fault(im, n, at,
			      "this can't be said in a policy; take it out to import "
			      "the rest");
	}
}

static bool is_second(struct import *im, const struct node *n, const char *path)
{
	if (!im->found) {
		im->found = path;
		return false;
	}
	faults_add(&im->faults, FAULT_ERROR, im->file, n->line, n->column, path,
		   "a second place with lists, after %s; import them one by one",
		   im->found);
	return true;
}

/* Depth is NODE_DEPTH_MAX at most. */
static void search(struct import *im, const struct node *parent, const char *path)
{
	size_t i = 0;

	for (const struct node *n = parent->first; n; n = n->next, i++) {
		const char *at = parent->kind == NODE_LIST
					 ? arena_printf(&im->arena, "%s[%zu]", path, i)
					 : arena_printf(&im->arena, "%s%s%.*s", path,
							path[0] ? "." : "",
							(int)n->key.len, n->key.ptr);

		if (!at) {
			im->out_of_memory = true;
			return;
		}
		if (is_network(n)) {
			if (!is_second(im, n, at))
				read_network(im, n, at);
		} else if (parent->kind == NODE_MAP &&
			   text_equal(n->key, "allowed-endpoints")) {
			if (!is_second(im, n, at))
				read_endpoints(im, n, at);
		} else if (n->kind == NODE_MAP || n->kind == NODE_LIST) {
			search(im, n, at);
		}
	}
}

/* --- what comes out --- */

/* Denies, names and addresses, then wildcards, the longer names first. */
static int by_precedence(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	bool x_denies = x->rule.action == POLICY_DENY;
	bool y_denies = y->rule.action == POLICY_DENY;
	bool x_wild = x->rule.kind == TARGET_BELOW || x->rule.kind == TARGET_WITHIN;
	bool y_wild = y->rule.kind == TARGET_BELOW || y->rule.kind == TARGET_WITHIN;

	if (x_denies != y_denies)
		return x_denies ? -1 : 1;
	if (x_wild != y_wild)
		return x_wild ? 1 : -1;
	if (x_wild && x->rule.name.size != y->rule.name.size)
		return x->rule.name.size > y->rule.name.size ? -1 : 1;
	if (x_wild && x->rule.kind != y->rule.kind)
		return x->rule.kind == TARGET_BELOW ? -1 : 1;
	/* As in the file. */
	if (x->at->line != y->at->line)
		return x->at->line < y->at->line ? -1 : 1;
	return x->at->column < y->at->column ? -1 : x->at->column > y->at->column;
}

/* Every name that @e matches is matched by @wide as well. */
static bool covers(const struct entry *wide, const struct entry *e)
{
	bool is_wild = wide->rule.kind == TARGET_BELOW ||
		       wide->rule.kind == TARGET_WITHIN;

	if (!is_wild || wide == e || e->rule.kind == TARGET_PREFIX ||
	    wide->rule.action != e->rule.action)
		return false;
	if (!dns_name_is_within(&e->rule.name, &wide->rule.name))
		return false;
	return wide->rule.kind == TARGET_WITHIN ||
	       !dns_name_equal(&e->rule.name, &wide->rule.name);
}

/* Wider entries come later and are complete last, so the loop begins at the end. */
static void join_ports(struct import *im)
{
	for (size_t i = im->count; i-- > 0;) {
		struct entry *e = &im->entries[i];

		for (size_t k = i + 1; k < im->count; k++) {
			const struct entry *wide = &im->entries[k];

			for (size_t p = 0; covers(wide, e) && p < wide->port_count; p++)
				add_port(im, e, wide->ports[p]);
		}
	}
}

/* HEADER_LINES lines, then a rule on each. */
static void print_policy(FILE *f, const struct import *im)
{
	char file[TEXT_ESCAPED_SIZE], found[TEXT_ESCAPED_SIZE];

	text_escape(text_of(im->file), file, sizeof(file));
	text_escape(text_of(im->found), found, sizeof(found));
	fprintf(f, "# Imported from %s: %s\n", file, found);
	fputs("# What no rule allows is refused. The first rule that matches a name "
	      "decides.\n",
	      f);
	fputs("# Where the import found an entry stands behind its rule.\n", f);
	fputs("defaultAction: deny\n", f);
	fputs(im->count > 0 ? "egress:\n" : "egress: []\n", f);
	for (size_t i = 0; i < im->count; i++) {
		const struct entry *e = &im->entries[i];

		fprintf(f, "  - {action: %s, target: \"%.*s\"",
			policy_action_name(e->rule.action), (int)e->target.len,
			e->target.ptr);
		for (size_t k = 0; k < e->port_count; k++)
			fprintf(f, "%stcp/%u", k == 0 ? ", ports: [" : ", ", e->ports[k]);
		fprintf(f, "%s}  # %s:%u\n", e->port_count > 0 ? "]" : "", file,
			e->at->line);
	}
}

/* The rule's fault as one of the entry that it was made from. */
static void take_over(struct import *im, const struct faults *found)
{
	for (size_t i = 0; i < found->count; i++) {
		const struct fault *f = &found->items[i];
		size_t rule = f->line > HEADER_LINES ? f->line - HEADER_LINES - 1
						     : im->count;

		if (f->level != FAULT_ERROR)
			continue;
		if (rule < im->count)
			fault(im, im->entries[rule].at, "", f->text);
		else
			faults_add(&im->faults, FAULT_ERROR, im->file, 0, 0, "", "%s",
				   f->text);
	}
}

static int check(struct import *im, struct text text)
{
	struct faults found = { 0 };
	const struct policy_reader reader = { .arena = &im->arena, .faults = &found };
	struct policy policy = { 0 };
	int r = policy_read(&reader, im->file, text, POLICY_FORMAT_YAML, &policy);

	if (r == 0)
		r = policy_check(&reader, &policy);
	take_over(im, &found);
	faults_done(&found);
	return r;
}

static int print(struct import *im, FILE *out)
{
	CLEAN(mem) char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int r;

	if (!f)
		return -ENOMEM;
	print_policy(f, im);
	if (fclose(f) != 0)
		return -ENOMEM;
	r = check(im, (struct text){ text, size });
	if (r == 0 && (fwrite(text, 1, size, out) != size || fflush(out) != 0))
		r = -EIO;
	return r;
}

/* --- the whole --- */

static int read_settings(struct import *im, struct node **ret)
{
	struct node_source source = { .arena = &im->arena,
				      .faults = &im->faults,
				      .file = im->file,
				      .blocks = true };
	struct err err = { 0 };
	struct text rest;
	int r = cli_read_file(im->file, &im->arena, &source.text, &err);

	if (r < 0) {
		faults_add(&im->faults, FAULT_ERROR, im->file, 0, 0, "", "%s", err.text);
		return r;
	}
	if (!node_check_text(&source))
		return -EINVAL;
	rest = text_trim(source.text);
	return rest.len > 0 && rest.ptr[0] == '{' ? node_read_json(&source, ret)
						  : node_read_yaml(&source, ret);
}

static int import(struct import *im, FILE *out)
{
	struct node *root = NULL;
	int r = read_settings(im, &root);

	if (r < 0)
		return r;
	im->entries = calloc(ENTRIES_MAX, sizeof(*im->entries));
	if (!im->entries)
		return -ENOMEM;
	if (root)
		search(im, root, "");
	if (im->out_of_memory)
		return -ENOMEM;
	if (!im->found && im->faults.errors == 0)
		faults_add(&im->faults, FAULT_ERROR, im->file, 0, 0, "",
			   "no list that is known here: allowedDomains or deniedDomains "
			   "below `network`, or allowed-endpoints");
	if (im->faults.errors > 0)
		return -EINVAL;
	qsort(im->entries, im->count, sizeof(*im->entries), by_precedence);
	join_ports(im);
	return im->faults.errors > 0 ? -EINVAL : print(im, out);
}

int cli_policy_import(const char *path, FILE *out)
{
	struct import im = { .file = path };
	int r = import(&im, out);

	faults_print(&im.faults, true);
	if (r == -ENOMEM || r == -EIO)
		fprintf(stderr, "cannot import the policy: %s\n", strerror(-r));
	free(im.entries);
	faults_done(&im.faults);
	arena_done(&im.arena);
	return r;
}
