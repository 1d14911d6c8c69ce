// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * All documents are read, then judged and changed, then written: nothing is printed
 * unless every workload could be guarded. The sidecar is the first init container, with
 * `restartPolicy: Always`: the kubelet starts nothing else of the pod before its startup
 * probe has seen it healthy, init containers included. What would let a container take
 * the rules away again is refused. Other documents pass as they are, unless there are
 * containers in them: each list of containers that is printed is guarded. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/err.h"
#include "base/exit_status.h"
#include "base/jansson.h"
#include "base/log.h"
#include "base/text.h"
#include "policy/load.h"
#include "sys/confine.h"
#include "sys/mounts.h"
#include "tools/manifest.h"
#include "tools/tools.h"

enum {
	DOCUMENTS_MAX = 4096, /* of one file; more are refused */
	TEXT_MAX = 16 << 20,  /* bytes of standard input; more are refused */
	LISTS_MAX = 8,	      /* lists in one another; more are refused */
};

#define CONTAINER   "weir"
#define LEVEL_LABEL "pod-security.kubernetes.io/enforce"

struct spec {
	const char *file, *image, *mode, *rules, *token_secret;
	bool quiet;
};

/* deploy/kubernetes/base/sidecar.yaml says the same; a test compares them. */
static const char container[] =
	"name: " CONTAINER "\n"
	"image: $image\n"
	"restartPolicy: Always\n"
	"env:\n"
	"- {name: OPENSANDBOX_EGRESS_MODE, value: $mode}\n"
	"- {name: OPENSANDBOX_EGRESS_RULES, value: $rules}\n"
	"- name: OPENSANDBOX_EGRESS_TOKEN\n"
	"  valueFrom: {secretKeyRef: {name: $secret, key: token}}\n"
	"ports:\n"
	"- {name: egress-api, containerPort: 18080}\n"
	"startupProbe:\n"
	"  httpGet: {path: /healthz, port: egress-api}\n"
	"  periodSeconds: 1\n"
	"  failureThreshold: 30\n"
	"resources:\n"
	"  requests: {cpu: 10m, memory: 16Mi}\n"
	"  limits: {memory: 128Mi}\n"
	"securityContext:\n"
	"  runAsUser: 65532\n"
	"  runAsGroup: 65532\n"
	"  runAsNonRoot: true\n"
	"  readOnlyRootFilesystem: true\n"
	/* The program's file capability counts for nothing without this. */
	"  allowPrivilegeEscalation: true\n"
	"  capabilities: {drop: [ALL], add: [NET_ADMIN]}\n"
	"  seccompProfile: {type: RuntimeDefault}\n";

/* What was done with a node of a document. */
enum mark {
	MARK_OBJECT = 1 << 0, /* an object that was looked at */
	MARK_POD = 1 << 1,    /* a pod's spec that was looked at */
};

struct inject {
	const struct spec *spec;
	yaml_document_t docs[DOCUMENTS_MAX];
	size_t count, faults, workloads, raw;
	bool out_of_memory;
	unsigned char *marks; /* of the nodes of the document at work, by their numbers */
};

/* --- one pod --- */

static bool is_named(struct manifest *m, int item)
{
	return text_equal(manifest_text(m, manifest_find(m, item, "name")), CONTAINER);
}

static void check_container(struct manifest *m, int item)
{
	int context = manifest_find(m, item, "securityContext");
	int privileged = manifest_find(m, context, "privileged");
	int proc = manifest_find(m, context, "procMount");
	int capabilities = manifest_find(m, context, "capabilities");
	int add = manifest_find(m, capabilities, "add");
	int drop = manifest_find(m, capabilities, "drop");
	bool drops_raw = false;

	/* Runtimes give NET_RAW unless it is dropped. */
	for (size_t i = 0, n = manifest_count(m, drop); i < n; i++) {
		struct text name = manifest_text(m, manifest_item(m, drop, i));

		drops_raw |= capability_is(name, "ALL") || capability_is(name, "NET_RAW");
	}
	m->raw += !drops_raw;
	if (manifest_is_yes(m, privileged))
		manifest_fault(m, privileged,
			       "a privileged container can take the rules away");
	if (manifest_is_yes(m, proc) && !text_equal(manifest_text(m, proc), "Default"))
		manifest_fault(
			m, proc,
			"a container that may write to the kernel's files can take "
			"the rules away");
	for (size_t i = 0, n = manifest_count(m, add); i < n; i++) {
		int name = manifest_item(m, add, i);

		if (capability_undoes_filter(manifest_text(m, name)) ||
		    capability_is(manifest_text(m, name), "NET_RAW"))
			manifest_fault(m, name,
				       "with %s a container can take the rules away, or "
				       "send past them",
				       TEXT_SHOWN(manifest_text(m, name)));
	}
}

/* Refuse @path of the node where it shows the kernel, or has the sockets by which
 * programs of the node take orders. By name: the node isn't here. */
static void check_node_path(struct manifest *m, int volume, int path)
{
	static const char *const tops[] = {
		"/proc",	"/sys",	     "/dev",
		"/run",		"/var/run",  "/var/lib/incus",
		"/var/lib/lxd", "/var/snap", "/var/lib/kubelet",
	};
	const yaml_node_t *n = manifest_node(m, path);
	struct text t = manifest_text(m, path);
	char cleaned[PATH_MAX];
	bool is_refused = !n || !manifest_is_plain(n) || strlen(t.ptr) != t.len ||
			  path_clean(t.ptr, cleaned) < 0;

	for (size_t i = 0; !is_refused && i < ARRAY_SIZE(tops); i++)
		is_refused = path_is_within(cleaned, tops[i]) ||
			     path_is_within(tops[i], cleaned);
	if (is_refused)
		manifest_fault(
			m, path ? path : volume,
			"a volume with '%s' of the node, where the kernel or the "
			"sockets of container engines are: a container can take the "
			"rules away with them",
			TEXT_SHOWN(t));
}

/* What @source, a volume of a pod's or a PersistentVolume's spec, has of the node. */
static void check_volume(struct manifest *m, int source)
{
	static const char *const harmless[] = { "", "Directory", "DirectoryOrCreate",
						"File", "FileOrCreate" };
	int host = manifest_find(m, source, "hostPath");
	int type = manifest_find(m, host, "type");
	struct text what = manifest_text(m, type);

	if (host)
		check_node_path(m, host, manifest_find(m, host, "path"));
	if (manifest_is_yes(m, type) &&
	    !text_find(what, harmless, ARRAY_SIZE(harmless), sizeof(*harmless)))
		manifest_fault(m, type, "a volume that is a %s of the node",
			       TEXT_SHOWN(what));
}

/* Return: where the sidecar is among the init containers, or their count. */
static size_t check_init_containers(struct manifest *m, int list)
{
	size_t count = manifest_count(m, list), at = count;

	for (size_t i = 0; i < count; i++) {
		int item = manifest_item(m, list, i);
		int restart;

		if (!is_named(m, item)) {
			check_container(m, item);
			continue;
		}
		restart = manifest_find(m, item, "restartPolicy");
		if (at < count || !text_equal(manifest_text(m, restart), "Always"))
			manifest_fault(m, item,
				       "an init container has the name '" CONTAINER "'");
		at = i;
	}
	return at;
}

static void check_containers(struct manifest *m, int spec, int list)
{
	size_t count = manifest_count(m, list);

	if (count == 0)
		manifest_fault(m, list ? list : spec, "no containers");
	for (size_t i = 0; i < count; i++) {
		int item = manifest_item(m, list, i);

		check_container(m, item);
		if (is_named(m, item))
			manifest_fault(m, item,
				       "a container has the name '" CONTAINER "'");
	}
}

static void put_sidecar(struct inject *x, struct manifest *m, int spec, int list,
			size_t at)
{
	const struct manifest_word words[] = {
		{ "$image", x->spec->image },
		{ "$mode", x->spec->mode },
		{ "$rules", x->spec->rules },
		{ "$secret", x->spec->token_secret },
	};
	int item = manifest_copy(m, container, words, ARRAY_SIZE(words));

	if (!list) {
		list = yaml_document_add_sequence(m->doc, NULL,
						  YAML_BLOCK_SEQUENCE_STYLE);
		m->out_of_memory |= list == 0;
		if (list)
			manifest_put(m, spec, "initContainers", list, "containers");
	}
	if (m->out_of_memory)
		return;
	/* Containers before the sidecar move one on: the sidecar is first in any
	 * case. */
	if (at < manifest_count(m, list)) {
		for (; at > 0; at--)
			manifest_replace(m, list, at, manifest_item(m, list, at - 1));
		manifest_replace(m, list, 0, item);
	} else {
		manifest_put_first(m, list, item);
	}
}

/* What a pod may not have in common with its node. */
static const struct {
	const char *key, *why;
} shared[] = {
	{ "hostNetwork", "a pod in the host's network can't be guarded" },
	{ "hostPID", "a pod that sees the host's processes can act through them" },
	{ "hostIPC", "a pod that shares the host's memory segments can act through its "
		     "processes" },
};

static void inject_pod(struct inject *x, struct manifest *m, int at, int spec)
{
	int list = manifest_find(m, spec, "initContainers");
	int volumes = manifest_find(m, spec, "volumes");
	int ephemeral;
	size_t mine;

	x->workloads++;
	if (!spec) {
		manifest_fault(m, at, "no pod in it");
		return;
	}
	x->marks[spec] |= MARK_POD;
	for (size_t i = 0; i < ARRAY_SIZE(shared); i++) {
		int node = manifest_find(m, spec, shared[i].key);

		if (manifest_is_yes(m, node))
			manifest_fault(m, node, "%s", shared[i].why);
	}
	for (size_t i = 0, n = manifest_count(m, volumes); i < n; i++)
		check_volume(m, manifest_item(m, volumes, i));
	check_containers(m, spec, manifest_find(m, spec, "containers"));
	ephemeral = manifest_find(m, spec, "ephemeralContainers");
	/* Ephemeral containers are only looked at: nothing is put before them. */
	for (size_t i = 0, n = manifest_count(m, ephemeral); i < n; i++)
		check_container(m, manifest_item(m, ephemeral, i));
	mine = check_init_containers(m, list);
	/* `initContainers: null` is no list to put anything into. */
	if (list && manifest_count(m, list) == 0 &&
	    yaml_document_get_node(m->doc, list)->type != YAML_SEQUENCE_NODE)
		manifest_fault(m, list, "an empty 'initContainers': leave it out");
	if (m->faults == 0)
		put_sidecar(x, m, spec, list, mine);
}

/* --- one document --- */

/* Where a kind has its pod: keys from the top, until one is NULL. */
static const struct {
	const char *kind;
	const char *path[5];
} kinds[] = {
	{ "Pod", { "spec" } },
	{ "CronJob", { "spec", "jobTemplate", "spec", "template", "spec" } },
	{ "PodTemplate", { "template", "spec" } },
	{ "Deployment", { "spec", "template", "spec" } },
	{ "StatefulSet", { "spec", "template", "spec" } },
	{ "DaemonSet", { "spec", "template", "spec" } },
	{ "ReplicaSet", { "spec", "template", "spec" } },
	{ "ReplicationController", { "spec", "template", "spec" } },
	{ "Job", { "spec", "template", "spec" } },
	/* Others' kinds keep to this. */
	{ NULL, { "spec", "template", "spec" } },
};

/* The pod of the object @at; 0: none. What isn't there is no fault yet. */
static int pod_of(struct manifest *m, int at, size_t kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds[kind].path) && kinds[kind].path[i]; i++) {
		const yaml_node_t *n = yaml_document_get_node(m->doc, at);

		if (!n || n->type != YAML_MAPPING_NODE)
			return 0;
		at = manifest_find(m, at, kinds[kind].path[i]);
	}
	return at;
}

/* @doc is the namespace of that name, with a label that keeps the sidecar out. */
static bool refuses(struct inject *x, yaml_document_t *doc, struct text name)
{
	struct manifest m = { .doc = doc, .file = x->spec->file, .what = "namespace" };
	struct text its_name;
	int metadata, level;

	if (!text_equal(manifest_text(&m, manifest_find(&m, 1, "kind")), "Namespace"))
		return false;
	metadata = manifest_find(&m, 1, "metadata");
	its_name = manifest_text(&m, manifest_find(&m, metadata, "name"));
	level = manifest_find(&m, manifest_find(&m, metadata, "labels"), LEVEL_LABEL);
	x->faults += m.faults;
	return text_equal(name, its_name.ptr) && level &&
	       !text_equal(manifest_text(&m, level), "privileged");
}

static void inject_one(struct inject *x, yaml_document_t *doc, int at)
{
	struct manifest m = { .doc = doc, .file = x->spec->file, .what = "manifest" };
	int says_kind = manifest_find(&m, at, "kind");
	struct text kind = manifest_text(&m, says_kind);
	int metadata = manifest_find(&m, at, "metadata");
	struct text name = manifest_text(&m, manifest_find(&m, metadata, "name"));
	struct text space = manifest_text(&m, manifest_find(&m, metadata, "namespace"));
	char shown_kind[64], what[400];
	const yaml_node_t *n;
	bool has_pod;
	size_t row = 0;
	int pod;

	snprintf(what, sizeof(what), "%s '%s'",
		 text_escape(kind, shown_kind, sizeof(shown_kind)), TEXT_SHOWN(name));
	m.what = what;
	if (says_kind && !manifest_is_plain(manifest_node(&m, says_kind)))
		manifest_fault(&m, says_kind, "a kind that is not plain text");
	if (text_equal(kind, "PersistentVolume")) {
		int volume = manifest_find(&m, at, "spec");
		int local = manifest_find(&m, volume, "local");

		check_volume(&m, volume);
		if (local)
			check_node_path(&m, local, manifest_find(&m, local, "path"));
	}
	while (kinds[row].kind && !text_equal(kind, kinds[row].kind))
		row++;
	pod = pod_of(&m, at, row);
	/* An object of an unknown kind has a pod if there are containers in the place. */
	n = yaml_document_get_node(m.doc, pod);
	has_pod = kinds[row].kind || (n && n->type == YAML_MAPPING_NODE &&
				      manifest_find(&m, pod, "containers"));
	if (has_pod) {
		bool is_refused = false;

		for (size_t i = 0; space.len > 0 && !is_refused && i < x->count; i++)
			is_refused = refuses(x, &x->docs[i], space);
		if (is_refused)
			manifest_fault(&m, metadata,
				       "its namespace enforces a level that refuses the "
				       "sidecar: `weir help inject` says what to do");
		inject_pod(x, &m, at, pod);
	}
	x->faults += m.faults;
	x->raw += m.raw;
	x->out_of_memory |= m.out_of_memory;
}

/* What has items is a list to kubectl, whatever kind it says, and so are lists in it. */
static void inject_object(struct inject *x, yaml_document_t *doc, int at, size_t depth)
{
	struct manifest m = { .doc = doc, .file = x->spec->file, .what = "manifest" };
	const yaml_node_t *n = yaml_document_get_node(doc, at);
	int items;

	/* An alias may lead back. */
	if (x->marks[at] & MARK_OBJECT)
		return;
	x->marks[at] |= MARK_OBJECT;
	items = n->type == YAML_MAPPING_NODE ? manifest_find(&m, at, "items") : 0;
	if (items && depth == LISTS_MAX)
		manifest_fault(&m, at, "more than %d lists in one another", LISTS_MAX);
	else if (items)
		for (size_t i = 0, count = manifest_count(&m, items); i < count; i++)
			inject_object(x, doc, manifest_item(&m, items, i), depth + 1);
	else
		inject_one(x, doc, at);
	x->faults += m.faults;
}

/* Containers that lie elsewhere than in a pod that was looked at: another program makes
 * pods of them, or the kind or a place was misread. A key that would hide such a list is
 * no better. */
static void check_pair(struct manifest *m, const yaml_node_pair_t *p, bool is_pod)
{
	const char *trouble = manifest_key_trouble(m, p->key, "containers");
	const struct text key = manifest_text(m, p->key);
	const yaml_node_t *n = manifest_node(m, p->value);
	bool is_list = false; /* of mappings */

	if (n->type == YAML_SEQUENCE_NODE)
		for (const yaml_node_item_t *i = n->data.sequence.items.start;
		     i < n->data.sequence.items.top; i++)
			is_list |= manifest_node(m, *i)->type == YAML_MAPPING_NODE;
	if (trouble && (is_list || !text_equal_nocase(key, "containers")))
		manifest_fault(m, p->key, "%s", trouble);
	else if (!trouble && is_list && !is_pod && text_equal(key, "containers"))
		manifest_fault(m, p->key,
			       "containers in a place where none are known: the sidecar "
			       "has to be put before them by hand");
}

static void inject_document(struct inject *x, yaml_document_t *doc)
{
	struct manifest m = { .doc = doc, .file = x->spec->file, .what = "manifest" };
	const yaml_node_t *root = yaml_document_get_root_node(doc);
	const int count = (int)(doc->nodes.top - doc->nodes.start);
	CLEAN(mem) unsigned char *marks = NULL;

	/* Nothing between two lines of dashes. */
	if (!root || (root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0))
		return;
	marks = calloc((size_t)count + 1, 1);
	x->marks = marks;
	x->out_of_memory |= !marks;
	if (!marks)
		return;
	inject_object(x, doc, 1, 0);
	for (int at = 1; at <= count; at++) {
		const yaml_node_t *n = yaml_document_get_node(doc, at);

		if (n->type != YAML_MAPPING_NODE)
			continue;
		for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
		     p < n->data.mapping.pairs.top; p++)
			check_pair(&m, p, (marks[at] & MARK_POD) != 0);
	}
	x->faults += m.faults;
}

/* --- reading and writing --- */

static int read_stdin(struct arena *arena, struct text *ret, struct err *err)
{
	char *buf = arena_alloc(arena, TEXT_MAX + 1);
	size_t size = buf ? fread(buf, 1, TEXT_MAX + 1, stdin) : 0;

	if (!buf)
		return err_set(err, -ENOMEM, "out of memory");
	if (ferror(stdin))
		return err_set(err, -EIO, "cannot read standard input");
	if (size > TEXT_MAX)
		return err_set(err, -E2BIG, "standard input is larger than %d MiB",
			       TEXT_MAX >> 20);
	*ret = (struct text){ buf, size };
	return 0;
}

static int load_settings(struct inject *x, struct text text)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	int r = 1; /* there may be another document */

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
	while (r > 0) {
		if (!yaml_parser_load(&parser, &doc)) {
			log_error("%s:%zu:%zu: this is not YAML: %s", x->spec->file,
				  parser.problem_mark.line + 1,
				  parser.problem_mark.column + 1,
				  parser.problem ? parser.problem : "it can't be read");
			r = -EINVAL;
		} else if (!yaml_document_get_root_node(&doc)) {
			yaml_document_delete(&doc);
			r = 0;
		} else if (x->count == DOCUMENTS_MAX) {
			yaml_document_delete(&doc);
			log_error("%s: more than %d documents", x->spec->file,
				  DOCUMENTS_MAX);
			r = -E2BIG;
		} else {
			x->docs[x->count++] = doc;
		}
	}
	yaml_parser_delete(&parser);
	return r;
}

/* Nothing is printed unless all could be written. */
static int print_all(struct inject *x)
{
	CLEAN(mem) char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	yaml_emitter_t emitter;
	bool ok;

	if (!memory)
		return -ENOMEM;
	if (!yaml_emitter_initialize(&emitter)) {
		fclose(memory);
		return -ENOMEM;
	}
	yaml_emitter_set_output_file(&emitter, memory);
	yaml_emitter_set_unicode(&emitter, 1);
	yaml_emitter_set_width(&emitter, -1);
	ok = yaml_emitter_open(&emitter) != 0;
	for (size_t i = 0; ok && i < x->count; i++) {
		struct manifest m = { .doc = &x->docs[i] };

		/* The emitter takes each document that it is given, and leaves it
		 * empty. */
		manifest_spell_nulls(&m);
		ok = !m.out_of_memory && yaml_emitter_dump(&emitter, &x->docs[i]);
		/* Its directives are the emitter's now as well. */
		if (!m.out_of_memory)
			memset(&x->docs[i], 0, sizeof(x->docs[i]));
	}
	ok = ok && yaml_emitter_close(&emitter);
	yaml_emitter_delete(&emitter);
	ok = ok && !ferror(memory);
	if (fclose(memory) != 0 || !ok)
		return -ENOMEM;
	fwrite(text, 1, size, stdout); /* the verb's end says whether it arrived */
	return 0;
}

static int inject_text(struct inject *x, struct text text)
{
	int r = load_settings(x, text);

	if (r < 0)
		return r;
	for (size_t i = 0; i < x->count; i++)
		inject_document(x, &x->docs[i]);
	if (x->out_of_memory)
		return -ENOMEM;
	if (x->faults == 0 && x->workloads == 0) {
		log_error("%s: no workload in it: Pod, Deployment, StatefulSet, "
			  "DaemonSet, Job, CronJob",
			  x->spec->file);
		return -EINVAL;
	}
	return x->faults > 0 ? -EINVAL : print_all(x);
}

static int inject(const struct spec *spec)
{
	CLEAN(mem) struct inject *x = calloc(1, sizeof(*x));
	CLEAN(arena) struct arena arena = { 0 };
	struct text text = { 0 };
	struct err err = { 0 };
	int r = -ENOMEM;

	if (x) {
		x->spec = spec;
		r = strcmp(spec->file, "-") == 0
			    ? read_stdin(&arena, &text, &err)
			    : cli_read_file(spec->file, &arena, &text, &err);
		if (r < 0)
			log_error("%s", err.text);
		else
			r = inject_text(x, text);
		for (size_t i = 0; i < x->count; i++)
			yaml_document_delete(&x->docs[i]);
	}
	if (r == -ENOMEM && !err.text[0])
		log_error("out of memory");
	if (r == 0 && !spec->quiet)
		log_warning("the sidecar needs NET_ADMIN, which namespaces of the levels "
			    "baseline and restricted refuse; `weir help inject` says "
			    "what to do");
	if (r == 0 && x->raw > 0 && !spec->quiet)
		log_warning("%zu containers don't drop NET_RAW, with which root in them "
			    "sends past every rule: drop it in their securityContext",
			    x->raw);
	return run_status_of(r);
}

/* --- the verb --- */

static int set_image(void *target, const char *value, struct err *err)
{
	if (!value[0] || strpbrk(value, " \t\r\n"))
		return err_set(err, -EINVAL, "an image has a name without spaces");
	((struct spec *)target)->image = value;
	return 0;
}

static int set_rules(void *target, const char *value, struct err *err)
{
	json_error_t where;
	CLEAN(json) json_t *rules = json_loads(value, JSON_REJECT_DUPLICATES, &where);

	if (!json_is_object(rules))
		return err_set(err, -EINVAL, "rules are a JSON object: %s",
			       rules ? "this is something else" : where.text);
	((struct spec *)target)->rules = value;
	return 0;
}

#define IN(KIND, field) OPTION_IN(KIND, struct spec, field)

static const struct cli_option options[] = {
	{ "file", "FILE", "the manifest, or - for standard input (-f)", IN(TEXT, file) },
	{ "image", "IMAGE", "the sidecar's image; weir:" WEIR_VERSION " if not said",
	  set_image },
	{ "mode", "dns|dns+nft|dns+nft+tls", "what is enforced; dns+nft if not said",
	  IN(WORD_TEXT, mode) },
	{ "rules", "JSON", "the policy; none denies everything", set_rules },
	{ "token-secret", "NAME", "the Secret whose key `token` the API asks for",
	  IN(TEXT, token_secret) },
	{ "quiet", NULL, "no word about namespaces and NET_RAW", IN(FLAG, quiet) },
};
const struct cli_options cli_inject_options = {
	OPTION_ROWS(options),
	.usage =
		"usage: weir inject -f FILE [OPTION]...\n\n"
		"Print Kubernetes manifests with the sidecar in every workload: Pod,\n"
		"Deployment, StatefulSet, DaemonSet, Job, CronJob. Comments are lost.\n\n"
		"The sidecar has NET_ADMIN. A namespace that enforces the Pod Security "
		"level\n"
		"baseline or restricted refuses such pods. Give them a namespace of "
		"their "
		"own,\n"
		"labelled " LEVEL_LABEL "=privileged, and keep the\n"
		"label .../warn=restricted: the app's containers need nothing, and their "
		"own\n"
		"securityContext can be as strict as before.\n",
};

int cli_inject(int argc, char **argv)
{
	static char file[] = "--file";
	struct spec spec = { .image = "weir:" WEIR_VERSION, .mode = "dns+nft" };
	struct err err = { 0 };
	int first;

	/* -f is what kubectl's users type. */
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "-f") == 0)
			argv[i] = file;
	first = cli_options_parse(&cli_inject_options, &spec, argc, argv, NULL, &err);
	if (first >= 0 && (first < argc || !spec.file))
		first = err_set(&err, -EINVAL,
				"inject takes one manifest: -f FILE, and nothing else");
	if (first < 0)
		return log_end(RUN_STATUS_BAD_INPUT,
			       "%s; `weir help inject` lists what there is", err.text);
	return inject(&spec);
}
