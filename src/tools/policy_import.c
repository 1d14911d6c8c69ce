// SPDX-License-Identifier: Apache-2.0
/* Another tool's settings as a policy: its language, and the rules that come out.
 *
 * HOW IT WORKS
 * A file is read as a tree, and the readers of import_readers.c add
 * an entry for each target. Where these tools take all entries together, Weir lets the
 * first rule that matches decide: denies come first, names before the wildcards that they
 * are below, and a rule has the ports of all entries that cover it.
 *
 * A deny of some ports is taken out of what is allowed: of the entries within its target,
 * and, where a wider entry would still allow it, of one of its own, put in front.
 *
 * The policy that comes out is read back and checked as any other, and what is wrong
 * with a rule is said of the entry that it came from. */
#include "tools/tools.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "policy/load.h"
#include "policy/rule.h"
#include "tools/import.h"

enum {
	HEADER_LINES = 5, /* before the first rule */
	DOCUMENTS_MAX = 256,
};

static void import_say(struct import *im, enum fault_level level, const struct node *n,
		       const char *text)
{
	/* Of a mapping or a list the key: the value may begin on the next line. */
	const bool is_key = (n->kind == NODE_MAP || n->kind == NODE_LIST) &&
			    n->key.len > 0;
	const struct policy_place at = { im->file, is_key ? n->key_line : n->line,
					 is_key ? n->key_column : n->column };
	char path[NODE_PATH_SIZE] = "";

	/* What is only counted needs no path. */
	if (im->faults.count < POLICY_FAULTS_MAX)
		node_path(n, path);
	faults_add(&im->faults, level, at.file, at.line, at.column, path, "%s", text);
}

void import_fault(struct import *im, const struct node *n, const char *what)
{
	import_say(im, FAULT_ERROR, n, what);
}

void import_left_out(struct import *im, const struct node *n, const char *what)
{
	const bool has_text = n->kind != NODE_MAP && n->kind != NODE_LIST;
	char text[ERR_TEXT_SIZE];

	snprintf(text, sizeof(text), "%s%s%s is left out: %s", has_text ? "'" : "",
		 has_text ? TEXT_SHOWN(n->text) : "this", has_text ? "'" : "", what);
	import_say(im, FAULT_WARNING, n, text);
}

void import_fault_text(struct import *im, const struct node *n, struct text t,
		       const char *what)
{
	char text[ERR_TEXT_SIZE];

	snprintf(text, sizeof(text), "'%s' %s", TEXT_SHOWN(t), what);
	import_say(im, FAULT_ERROR, n, text);
}

bool import_claim(struct import *im, const struct node *n, const char *place)
{
	char path[NODE_PATH_SIZE], text[ERR_TEXT_SIZE];

	if (!place && (im->place || !im->found)) {
		place = arena_text(&im->arena, text_of(node_path(n, path)));
		im->out_of_memory |= !place;
		if (!place)
			return false;
	}
	if (im->place && strcmp(im->place, place) != 0)
		return false;
	if (!im->found) {
		im->found = place;
		return true;
	}
	snprintf(text, sizeof(text),
		 "a second place with lists, after %s; import them one by one, with "
		 "--at %s",
		 im->found, im->found);
	import_say(im, FAULT_ERROR, n, text);
	return false;
}

/* --- ports --- */

void import_ports_add(struct import *im, struct import_ports *ports,
		      struct plan_port_range range, const struct node *at)
{
	if (ports->all)
		return;
	for (size_t i = 0; i < ports->count; i++) {
		const struct plan_port_range *r = &ports->ranges[i];

		if (r->protocol == range.protocol && r->from <= range.from &&
		    r->to >= range.to)
			return;
	}
	if (ports->count == PLAN_PORT_RANGES_MAX)
		import_fault(im, at, "this has more ports than a rule can have");
	else
		ports->ranges[ports->count++] = range;
}

static void ports_add_all(struct import *im, struct import_ports *ports,
			  const struct import_ports *more, const struct node *at)
{
	for (size_t i = 0; i < more->count; i++)
		import_ports_add(im, ports, more->ranges[i], at);
	if (more->all)
		*ports = (struct import_ports){ .all = true };
}

void import_ports_tcp(struct import_ports *ports)
{
	static const struct plan_port_range tcp[] = {
		{ .protocol = IPPROTO_TCP, .from = 1, .to = 52 },
		{ .protocol = IPPROTO_TCP, .from = 54, .to = 852 },
		{ .protocol = IPPROTO_TCP, .from = 854, .to = UINT16_MAX },
	};

	if (!ports->all)
		return;
	*ports = (struct import_ports){ .count = ARRAY_SIZE(tcp) };
	memcpy(ports->ranges, tcp, sizeof(tcp));
}

static void ports_remove(struct import *im, struct import_ports *ports,
			 struct plan_port_range out, const struct node *at)
{
	struct import_ports rest = { .all = ports->all };

	for (size_t i = 0; i < ports->count; i++) {
		const struct plan_port_range r = ports->ranges[i];
		struct plan_port_range low = r, high = r;

		if (r.protocol != out.protocol || r.to < out.from || r.from > out.to) {
			import_ports_add(im, &rest, r, at);
			continue;
		}
		low.to = (uint16_t)(out.from - 1);
		high.from = (uint16_t)(out.to + 1);
		if (r.from < out.from)
			import_ports_add(im, &rest, low, at);
		if (r.to > out.to)
			import_ports_add(im, &rest, high, at);
	}
	*ports = rest;
}

/* --- entries --- */

static void append(struct import *im, const struct import_entry *e)
{
	for (size_t i = 0; i < im->count; i++) {
		struct import_entry *o = &im->entries[i];

		if (o->rule.action == e->rule.action && o->everything == e->everything &&
		    strcasecmp(o->rule.target, e->rule.target) == 0) {
			ports_add_all(im, &o->ports, &e->ports, e->at);
			return;
		}
	}
	if (im->count == IMPORT_ENTRIES_MAX)
		import_fault(im, e->at, "more entries than can be taken");
	else
		im->entries[im->count++] = *e;
}

void import_add(struct import *im, enum policy_action action, struct text target,
		const struct import_ports *ports, const struct node *at)
{
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
	struct import_entry e = { .at = at, .ports = *ports };
	struct err err = { 0 };

	if (rule_target_parse(target, &e.rule, &err) < 0) {
		import_fault(im, at, err.text);
		return;
	}
	e.rule.action = action;
	e.rule.target = arena_text(&im->arena, target);
	if (!e.rule.target) {
		im->out_of_memory = true;
		return;
	}
	for (size_t i = 0; e.rule.kind != TARGET_PREFIX && i < ARRAY_SIZE(protocols); i++)
		ports_remove(im, &e.ports,
			     (struct plan_port_range){
				     .protocol = protocols[i], .from = 53, .to = 53 },
			     at);
	if (!e.ports.all && e.ports.count == 0)
		import_left_out(im, at, "Weir answers DNS itself");
	else
		append(im, &e);
}

void import_deny_all(struct import *im, const struct import_ports *ports,
		     const struct node *at)
{
	append(im,
	       &(struct import_entry){ .rule = { .action = POLICY_DENY, .target = "*" },
				       .at = at,
				       .ports = *ports,
				       .everything = true });
}

/* --- the order of rules --- */

static bool is_wild(const struct import_entry *e)
{
	return e->rule.kind == TARGET_BELOW || e->rule.kind == TARGET_WITHIN;
}

/* Denies, names and addresses, then wildcards, the longer names first. */
static int by_precedence(const void *a, const void *b)
{
	const struct import_entry *x = a, *y = b;
	const bool x_denies = x->rule.action == POLICY_DENY;
	const bool y_denies = y->rule.action == POLICY_DENY;

	if (x_denies != y_denies)
		return x_denies ? -1 : 1;
	if (is_wild(x) != is_wild(y))
		return is_wild(x) ? 1 : -1;
	if (is_wild(x) && x->rule.name.size != y->rule.name.size)
		return x->rule.name.size > y->rule.name.size ? -1 : 1;
	if (is_wild(x) && x->rule.kind != y->rule.kind)
		return x->rule.kind == TARGET_BELOW ? -1 : 1;
	/* As in the file. */
	if (x->at->line != y->at->line)
		return x->at->line < y->at->line ? -1 : 1;
	return x->at->column < y->at->column ? -1 : x->at->column > y->at->column;
}

/* Every name or address that @e matches is matched by @wide, which is another target. */
static bool covers(const struct import_entry *wide, const struct import_entry *e)
{
	if (wide->rule.kind == TARGET_PREFIX || e->rule.kind == TARGET_PREFIX)
		return wide->rule.kind == e->rule.kind &&
		       wide->rule.prefix.bits < e->rule.prefix.bits &&
		       prefix_contains(&wide->rule.prefix, &e->rule.prefix.addr);
	if (!is_wild(wide) || !dns_name_is_within(&e->rule.name, &wide->rule.name))
		return false;
	if (dns_name_equal(&e->rule.name, &wide->rule.name))
		return wide->rule.kind == TARGET_WITHIN && e->rule.kind != TARGET_WITHIN;
	return true;
}

/* Wider entries come later and are complete last, so the loop begins at the end. The
 * kernel joins the ports of addresses by itself. */
static void join_ports(struct import *im)
{
	for (size_t i = im->count; i-- > 0;) {
		struct import_entry *e = &im->entries[i];

		for (size_t k = i + 1; k < im->count; k++) {
			const struct import_entry *wide = &im->entries[k];

			if (e->rule.action == POLICY_ALLOW &&
			    wide->rule.action == POLICY_ALLOW &&
			    e->rule.kind != TARGET_PREFIX && covers(wide, e))
				ports_add_all(im, &e->ports, &wide->ports, e->at);
		}
	}
}

static bool denies_ports(const struct import_entry *e)
{
	return e->rule.action == POLICY_DENY && !e->ports.all;
}

/* What a wider entry would allow of a target some of whose ports are denied. */
static void split_denied(struct import *im)
{
	const size_t count = im->count;

	for (size_t i = 0; i < count; i++) {
		struct import_entry own = im->entries[i];

		own.rule.action = POLICY_ALLOW;
		own.ports = (struct import_ports){ 0 };
		for (size_t k = 0; k < count && denies_ports(&im->entries[i]); k++)
			if (im->entries[k].rule.action == POLICY_ALLOW &&
			    !own.everything && covers(&im->entries[k], &own))
				append(im, &own);
	}
}

/* Take denied ports out. An allow that has none left denies: a wider one comes later. */
static void remove_denied(struct import *im)
{
	size_t count = 0;

	for (size_t i = 0; i < im->count; i++)
		for (size_t k = 0; k < im->count; k++) {
			const struct import_entry *deny = &im->entries[i];
			struct import_entry *e = &im->entries[k];

			if (!denies_ports(deny) || e->rule.action != POLICY_ALLOW ||
			    !(deny->everything ||
			      rule_same_target(&deny->rule, &e->rule) || covers(deny, e)))
				continue;
			import_ports_tcp(&e->ports);
			for (size_t p = 0; p < deny->ports.count; p++)
				ports_remove(im, &e->ports, deny->ports.ranges[p], e->at);
		}
	for (size_t i = 0; i < im->count; i++) {
		struct import_entry *e = &im->entries[i];

		if (denies_ports(e))
			continue;
		if (!e->ports.all && e->ports.count == 0)
			e->rule.action = POLICY_DENY;
		im->entries[count++] = *e;
	}
	im->count = count;
}

/* "*" among denies: nothing else counts. */
static void drop_denied(struct import *im)
{
	for (size_t i = 0; i < im->count; i++) {
		if (!im->entries[i].everything || !im->entries[i].ports.all)
			continue;
		faults_add(&im->faults, FAULT_WARNING, im->file, im->entries[i].at->line,
			   im->entries[i].at->column, im->found,
			   "'*' denies everything: no entry that allows is taken over");
		im->count = 0;
	}
}

/* --- what comes out --- */

/* HEADER_LINES lines, then a rule on each, then what was left out. */
static void print_policy(FILE *f, const struct import *im)
{
	const char *file = SHOWN(im->file);
	char left[FAULT_TEXT_SIZE];

	fprintf(f, "# Imported from %s: %s\n", file, SHOWN(im->found));
	fputs("# What no rule allows is refused. The first rule that matches a name "
	      "decides.\n",
	      f);
	fputs("# Where the import found an entry stands behind its rule.\n", f);
	fputs("defaultAction: deny\n", f);
	fputs(im->count > 0 ? "egress:\n" : "egress: []\n", f);
	for (size_t i = 0; i < im->count; i++) {
		const struct import_entry *e = &im->entries[i];
		struct rule rule = e->rule;
		CLEAN(mem) char *text = NULL;

		if (rule.action == POLICY_ALLOW)
			rule.ports = (struct rule_ports){ e->ports.ranges, e->ports.count,
							  false };
		text = rule_text(&rule, false);
		fprintf(f, "  - %s  # %s:%u\n", text ?: "", file, e->at->line);
	}
	for (size_t i = 0; i < im->faults.count; i++)
		if (im->faults.items[i].level == FAULT_WARNING)
			fprintf(f, "# %s\n",
				fault_format(&im->faults.items[i], left, sizeof(left)));
	if (im->faults.dropped > 0)
		fprintf(f, "# and %zu more\n", (size_t)im->faults.dropped);
}

static int check(struct import *im, struct text text)
{
	struct faults found = { 0 };
	const struct policy_reader reader = { .arena = &im->arena, .faults = &found };
	struct policy policy = { 0 };
	int r = policy_read(&reader, im->file, text, POLICY_FORMAT_YAML, &policy);

	if (r == 0)
		r = policy_build(&reader, &policy, NULL, NULL);
	/* A rule's fault is one of the entry that it was made from. */
	for (size_t i = 0; i < found.count; i++) {
		const struct fault *f = &found.items[i];
		size_t rule = f->line > HEADER_LINES ? f->line - HEADER_LINES - 1
						     : im->count;

		if (f->level != FAULT_ERROR)
			continue;
		if (rule < im->count)
			import_fault(im, im->entries[rule].at, f->text);
		else
			faults_add(&im->faults, FAULT_ERROR, im->file, 0, 0, "", "%s",
				   f->text);
	}
	faults_done(&found);
	return r;
}

static int print_rules(struct import *im, FILE *out)
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

/* --- the file's language --- */

/* "[table]" or "key = value" is the first line that says something. */
static bool is_toml(struct text text)
{
	struct text line;

	while (text_split(&text, '\n', &line)) {
		const char *equals, *colon;

		line = text_trim(line);
		if (line.len == 0 || line.ptr[0] == '#')
			continue;
		if (line.ptr[0] == '[')
			return !memchr(line.ptr, ',', line.len);
		equals = memchr(line.ptr, '=', line.len);
		colon = memchr(line.ptr, ':', line.len);
		return equals && (!colon || equals < colon);
	}
	return false;
}

/* The next document of a YAML file, with line ends for what is before it, so that its
 * places are those of the file. Return: false: no memory. */
static bool next_document(struct import *im, struct text *rest, uint32_t *lines,
			  struct text *ret)
{
	const uint32_t before = *lines;
	struct text document = { rest->ptr, 0 }, line;
	char *copy;

	while (text_split(rest, '\n', &line)) {
		const bool is_mark = line.len >= 3 && memcmp(line.ptr, "---", 3) == 0;
		const struct text tail =
			is_mark ? text_trim((struct text){ line.ptr + 3, line.len - 3 })
				: line;
		/* A mark with something behind it is left to the reader, which refuses
		 * it where it is not the first. */
		const bool is_end = is_mark && (tail.len == 0 || tail.ptr[0] == '#');

		++*lines;
		if (is_end && text_trim(document).len > 0)
			break;
		document.len = (size_t)(line.ptr + line.len - document.ptr);
		if (is_end)
			document.len = 0, document.ptr = line.ptr + line.len;
	}
	copy = arena_alloc(&im->arena, before + document.len + 1);
	if (!copy)
		return false;
	memset(copy, '\n', before);
	if (document.len > 0)
		memcpy(copy + before, document.ptr, document.len);
	*ret = (struct text){ copy, before + document.len };
	return true;
}

/* --- the whole --- */

/* What --from names, and where it is looked for. */
static const struct source {
	const char *name;
	unsigned int lists, kinds;
} sources[] = {
	{ "sandbox-runtime", IMPORT_NETWORK, 0 },
	{ "claude-code", IMPORT_NETWORK | IMPORT_WEB_FETCH, 0 },
	{ "codex", IMPORT_CODEX, 0 },
	{ "harden-runner", IMPORT_ENDPOINTS, 0 },
	{ "kubernetes", 0, IMPORT_NETWORK_POLICY },
	{ "cilium", 0, IMPORT_CILIUM },
};

static void import_tree(struct import *im, const struct node *root,
			const struct source *source)
{
	if (!import_kubernetes(im, root, source->kinds))
		import_lists(im, root, source->lists);
}

static int read_yaml(struct import *im, struct node_source *source,
		     const struct source *from)
{
	struct text rest = source->text;
	uint32_t lines = 0;

	for (int i = 0; rest.ptr; i++) {
		struct node *root = NULL;
		int r;

		if (i == DOCUMENTS_MAX) {
			faults_add(&im->faults, FAULT_ERROR, im->file, lines, 1, "",
				   "more documents than can be read");
			return -EINVAL;
		}
		if (!next_document(im, &rest, &lines, &source->text))
			return -ENOMEM;
		r = node_read_yaml(source, &root);
		if (r < 0)
			return r;
		if (root)
			import_tree(im, root, from);
	}
	return 0;
}

static int read_settings(struct import *im, const char *from)
{
	struct node_source source = { .arena = &im->arena,
				      .faults = &im->faults,
				      .file = im->file,
				      .foreign = true };
	struct node *root = NULL;
	struct err err = { 0 };
	const struct source *known = TEXT_FIND(text_of(from), sources);
	struct source where = { .lists = IMPORT_NETWORK | IMPORT_WEB_FETCH |
					 IMPORT_ENDPOINTS,
				.kinds = IMPORT_NETWORK_POLICY | IMPORT_CILIUM };
	struct text text;
	int r = cli_read_file(im->file, &im->arena, &source.text, &err);

	if (r < 0) {
		faults_add(&im->faults, FAULT_ERROR, im->file, 0, 0, "", "%s", err.text);
		return r;
	}
	if (!node_check_text(&source))
		return -EINVAL;
	text = text_trim(source.text);
	if (is_toml(text))
		where.lists = IMPORT_CODEX;
	if (known)
		where = *known;
	if (text.len > 0 && text.ptr[0] == '{')
		r = node_read_json(&source, &root);
	else if (where.lists & IMPORT_CODEX)
		r = node_read_toml(&source, &root);
	else
		return read_yaml(im, &source, &where);
	if (r == 0 && root)
		import_tree(im, root, &where);
	return r;
}

static int import(struct import *im, const char *from, FILE *out)
{
	int r;

	im->entries = calloc(IMPORT_ENTRIES_MAX, sizeof(*im->entries));
	if (!im->entries)
		return -ENOMEM;
	r = read_settings(im, from);
	if (r < 0)
		return r;
	if (im->out_of_memory)
		return -ENOMEM;
	if (!im->found && im->faults.errors == 0)
		faults_add(&im->faults, FAULT_ERROR, im->file, 0, 0, "",
			   im->place
				   ? "--at names no place with lists"
				   : "no list that is known here: allowedDomains or "
				     "deniedDomains below `network`, WebFetch(domain:…), "
				     "allowed-endpoints, a network of Codex, a "
				     "NetworkPolicy");
	if (im->faults.errors > 0)
		return -EINVAL;
	drop_denied(im);
	split_denied(im);
	qsort(im->entries, im->count, sizeof(*im->entries), by_precedence);
	join_ports(im);
	remove_denied(im);
	return im->faults.errors > 0 ? -EINVAL : print_rules(im, out);
}

int cli_policy_import(const char *path, const char *from, const char *place,
		      bool any_depth, FILE *out)
{
	struct import im = { .file = path, .place = place, .any_depth = any_depth };
	int r = import(&im, from, out);

	faults_print(&im.faults, true);
	if (r == -ENOMEM || r == -EIO)
		fprintf(stderr, "cannot import the policy: %s\n", strerror(-r));
	free(im.entries);
	faults_done(&im.faults);
	arena_done(&im.arena);
	return r;
}
