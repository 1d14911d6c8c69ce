// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/log.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "event/json.h"
#include "sys/files.h"
#include "sys/worker.h"

enum {
	LINE_SIZE = 16 * 1024,	  /* of a line without a list of rules */
	RULES_MAX = 8 << 20,	  /* a longer list is left out of its line */
	QUEUE_BYTES = 256 * 1024, /* per output */
	RESERVE_BYTES = 12 << 20, /* for changes of policy */
	SAMPLE_SLOTS = 512,	  /* different messages that are told apart */
	MESSAGE_SIZE = 1024,	  /* longer messages are cut */
	TEXT_MAX = 512,		  /* of one value */
	IPS_MAX = 32,		  /* more are left out */
};

struct output {
	struct worker *worker;
	char *where;	      /* of a file; owned; NULL: @fd */
	struct logfile *file; /* the thread's from the start on; NULL: @fd */
	bool lacks;	   /* the file takes no line; written by the thread, atomically */
	int fd;		   /* borrowed */
	uint64_t failed;   /* lines; written by the thread, atomically */
	uint64_t reported; /* lost lines that a line has told of */
	int64_t loss_second;
};

struct sample {
	int64_t second;
	uint32_t count;
};

struct loglines {
	enum loglines_level level;
	const char *logger, *event_key;
	bool is_of_one;		/* the sandbox is among the attributes */
	struct output *outputs; /* apart, for a thread that hangs may still use it */
	size_t output_count;
	struct hash_key key;
	struct sample samples[LOGLINES_LEVEL_COUNT][SAMPLE_SLOTS];
	char attrs[LOGLINES_ATTRS_SIZE]; /* `,"k":"v"…` as it ends each line */
	size_t attrs_used;
};

static const char *const level_names[] = { "debug", "info", "warn", "error", "fatal" };
static_assert(ARRAY_SIZE(level_names) == LOGLINES_LEVEL_COUNT, "a level without a name");

/* ---- outputs ---- */

/* In the thread. */
struct queued_line {
	int64_t wall_ms;
	char text[];
};

static void write_line(void *data, const void *record, size_t size)
{
	struct output *o = data;
	const struct queued_line *line = record;
	int r;

	size -= sizeof(*line);
	r = o->file ? logfile_write(o->file, line->text, size, line->wall_ms, NULL)
		    : file_write_all(o->fd, line->text, size);
	__atomic_store_n(&o->lacks, o->file && r < 0, __ATOMIC_RELAXED);
	if (r < 0)
		__atomic_add_fetch(&o->failed, 1, __ATOMIC_RELAXED);
}

static uint64_t lost(const struct output *o)
{
	return worker_dropped(o->worker) + __atomic_load_n(&o->failed, __ATOMIC_RELAXED);
}

/* Somebody may have put something in a file's place: no reason to be without the rest. */
static int open_output(struct output *o, const char *where,
		       const struct logfile_limits *limits, struct err *err)
{
	const struct worker_config config = {
		.name = "weir-log",
		.queue_bytes = QUEUE_BYTES,
		.reserve_bytes = RESERVE_BYTES,
		.data = o,
		.on_record = write_line,
	};
	struct err why = { 0 };

	o->fd = strcmp(where, "stderr") == 0 ? STDERR_FILENO : STDOUT_FILENO;
	if (strcmp(where, "stdout") != 0 && strcmp(where, "stderr") != 0) {
		o->where = strdup(where);
		o->file = logfile_new(where, limits);
		if (!o->where || !o->file)
			return err_sys(err, -ENOMEM, "cannot open '%s'", where);
		o->lacks = logfile_open(o->file, &why) < 0;
		if (o->lacks)
			log_warning(
				"log output: %s; its lines are lost until that can be "
				"done",
				why.text);
	}
	return worker_new(&config, &o->worker, err);
}

/* ---- attributes ---- */

/* A line has the key of attribute @i already, or the attribute says nothing. */
static bool is_taken(const struct loglines *l, const struct loglines_config *c, size_t i)
{
	static const char *const keys[] = {
		"level",     "ts",	    "logger",	      "msg",	     "rules",
		"error",     "sandbox_id",  "dropped",	      "target.host", "target.ips",
		"target.ip", "target.port", "protocol",	      "layer",	     "reason",
		"rule",	     "packets",	    "egress.default",
	};
	const struct text key = c->attrs[i].key;

	for (size_t k = 0; k < i; k++)
		if (text_same(c->attrs[k].key, key))
			return true;
	return key.len == 0 || TEXT_FIND(key, keys) || text_equal(key, l->event_key);
}

static void add_attr(struct loglines *l, struct text key, struct text value)
{
	struct jtext j;

	jtext_init(&j, l->attrs + l->attrs_used, sizeof(l->attrs) - l->attrs_used);
	jtext_put(&j, text_of(","));
	jtext_string(&j, key, TEXT_MAX);
	jtext_put(&j, text_of(":"));
	jtext_string(&j, value, TEXT_MAX);
	if (!j.full)
		l->attrs_used += j.used;
}

/* ---- life ---- */

int loglines_new(const struct loglines_config *config, struct loglines **ret,
		 struct err *err)
{
	static const char *const standard[] = { "stdout" };
	const char *const *where = config->output_count ? config->outputs : standard;
	const size_t count = config->output_count ? config->output_count : 1;
	struct loglines *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l)
		l->outputs = calloc(count, sizeof(*l->outputs));
	if (!l || !l->outputs) {
		free(l);
		return err_sys(err, r, "cannot open the log");
	}
	l->level = config->level;
	l->logger = config->opensandbox ? "opensandbox.egress" : "weir";
	l->event_key = config->opensandbox ? "opensandbox.event" : "event";
	/* Messages are mostly Weir's own; the key only has to differ. */
	l->key = (struct hash_key){ (uintptr_t)l, (uintptr_t)l->outputs };
	l->is_of_one = config->sandbox_id && config->sandbox_id[0];
	if (l->is_of_one)
		add_attr(l, text_of("sandbox_id"), text_of(config->sandbox_id));
	for (size_t i = 0; i < config->attr_count; i++)
		if (!is_taken(l, config, i))
			add_attr(l, config->attrs[i].key, config->attrs[i].value);
	for (size_t i = 0; i < count; i++) {
		l->output_count++;
		r = open_output(&l->outputs[i], where[i], &config->files, err);
		if (r < 0) {
			loglines_free(l, 0);
			return err_context(err, "log output");
		}
	}
	*ret = l;
	return 0;
}

void loglines_free(struct loglines *l, int timeout_ms)
{
	bool all = true;

	if (!l)
		return;
	for (size_t i = 0; i < l->output_count; i++) {
		struct output *o = &l->outputs[i];

		if (!worker_free(o->worker, timeout_ms)) {
			all = false;
			continue;
		}
		logfile_free(o->file);
		free(o->where);
	}
	if (all)
		free(l->outputs);
	free(l);
}

uint64_t loglines_dropped(struct loglines *l)
{
	uint64_t n = 0;

	for (size_t i = 0; i < l->output_count; i++)
		n += lost(&l->outputs[i]);
	return n;
}

const char *loglines_lacks(const struct loglines *l)
{
	for (size_t i = 0; i < l->output_count; i++)
		if (__atomic_load_n(&l->outputs[i].lacks, __ATOMIC_RELAXED))
			return l->outputs[i].where;
	return NULL;
}

bool loglines_has_level(const struct loglines *l, enum loglines_level level)
{
	return level >= l->level;
}

/* ---- lines ---- */

static bool is_sampled_out(struct loglines *l, int64_t wall_ms, enum loglines_level level,
			   const char *msg)
{
	const uint64_t h = hash_bytes(&l->key, msg, strlen(msg));
	struct sample *s = &l->samples[level][h % SAMPLE_SLOTS];
	const int64_t second = wall_ms / 1000;

	if (s->second != second)
		*s = (struct sample){ .second = second };
	s->count++;
	return s->count > LOGLINES_SAMPLE_FIRST &&
	       (s->count - LOGLINES_SAMPLE_FIRST) % LOGLINES_SAMPLE_THEN != 0;
}

struct line {
	struct loglines *log;
	int64_t wall_ms;
	bool kept;
	struct jtext j;
	size_t whole; /* where it can be cut: behind msg */
	char *memory; /* owned; a queued_line */
};

/* Start a line with room for @extra bytes more. Return: false when it isn't wanted. */
static bool line_begin(struct line *line, struct loglines *l, int64_t wall_ms,
		       enum loglines_level level, const char *msg, bool kept,
		       size_t extra)
{
	const size_t size = LINE_SIZE + extra;

	if (!loglines_has_level(l, level) ||
	    (!kept && is_sampled_out(l, wall_ms, level, msg)))
		return false;
	*line = (struct line){ .log = l, .wall_ms = wall_ms, .kept = kept };
	line->memory = malloc(sizeof(struct queued_line) + size);
	if (!line->memory)
		return false;
	memcpy(line->memory, &wall_ms, sizeof(wall_ms));
	/* The attributes and the line end always find room. */
	jtext_init(&line->j, line->memory + sizeof(struct queued_line),
		   size - l->attrs_used - 2);
	jtext_open(&line->j, NULL, '{');
	jtext_text(&line->j, "level", level_names[level], TEXT_MAX);
	jtext_when(&line->j, "ts", wall_ms);
	jtext_text(&line->j, "logger", l->logger, TEXT_MAX);
	jtext_text(&line->j, "msg", msg, MESSAGE_SIZE);
	line->whole = line->j.used;
	return true;
}

/* What every line ends with. Return: the record's size. */
static size_t line_close(struct line *line)
{
	struct jtext *j = &line->j;

	j->size += line->log->attrs_used + 2;
	/* What was too long for its line is cut: it would be no JSON. */
	if (j->full)
		j->used = line->whole;
	j->full = false;
	jtext_put(j, (struct text){ line->log->attrs, line->log->attrs_used });
	jtext_put(j, text_of("}\n"));
	assert(!j->full);
	return sizeof(struct queued_line) + j->used;
}

/* An output that lost lines says so, once a second at most. */
static void report_loss(struct loglines *l, struct output *o, int64_t wall_ms)
{
	const uint64_t n = lost(o);
	struct line line;
	size_t size;

	if (n == o->reported || o->loss_second == wall_ms / 1000 ||
	    !line_begin(&line, l, wall_ms, LOGLINES_WARN, "log lines were dropped", true,
			0))
		return;
	jtext_count(&line.j, "dropped", (n - o->reported));
	size = line_close(&line);
	o->loss_second = wall_ms / 1000;
	if (worker_push(o->worker, line.memory, size, false))
		o->reported = n;
	free(line.memory);
}

static void line_end(struct line *line)
{
	struct loglines *l = line->log;
	const size_t size = line_close(line);

	for (size_t i = 0; i < l->output_count; i++)
		if (worker_push(l->outputs[i].worker, line->memory, size, line->kept))
			report_loss(l, &l->outputs[i], line->wall_ms);
	free(line->memory);
}

static void put_text(struct line *line, const char *key, struct text t)
{
	jtext_key(&line->j, key);
	jtext_string(&line->j, t, TEXT_MAX);
}

/* What happened, and, unless every line says it, in which sandbox. */
static void put_event(struct line *line, const char *name, const char *sandbox)
{
	put_text(line, line->log->event_key, text_of(name));
	if (!line->log->is_of_one && sandbox[0])
		put_text(line, "sandbox_id", text_of(sandbox));
}

/* ---- changes of policy ---- */

void loglines_policy(struct loglines *l, int64_t wall_ms, enum loglines_change change,
		     const char *sandbox, const char *default_action,
		     const char *rules_json)
{
	static const char *const msgs[] = {
		[LOGLINES_LOADED] = "egress policy loaded",
		[LOGLINES_UPDATED] = "egress policy updated",
	};
	static const char *const events[] = {
		[LOGLINES_LOADED] = "egress.loaded",
		[LOGLINES_UPDATED] = "egress.updated",
	};
	/* Every byte may become an escape of six. */
	const size_t size = strlen(rules_json);
	const size_t room = size <= RULES_MAX / JTEXT_ESCAPE_MAX ? size * JTEXT_ESCAPE_MAX
								 : 0;
	struct line line;

	if (!line_begin(&line, l, wall_ms, LOGLINES_INFO, msgs[change], true, room))
		return;
	put_event(&line, events[change], sandbox);
	put_text(&line, "egress.default", text_of(default_action));
	jtext_key(&line.j, "rules");
	if (room > 0)
		jtext_json(&line.j, text_of(rules_json));
	else
		jtext_put(&line.j, text_of("null"));
	line_end(&line);
}

void loglines_policy_failed(struct loglines *l, int64_t wall_ms, const char *sandbox,
			    const char *error, bool callers_fault)
{
	struct line line;

	if (!line_begin(&line, l, wall_ms, callers_fault ? LOGLINES_WARN : LOGLINES_ERROR,
			"egress policy update failed", true, 0))
		return;
	put_event(&line, "egress.update_failed", sandbox);
	put_text(&line, "error", text_of(error));
	line_end(&line);
}

/* ---- what the sandbox did ---- */

/* Lower case, no dot at the end. */
static void put_host(struct line *line, const char *host)
{
	char lower[EVENT_NAME_SIZE];
	size_t n = strnlen(host, sizeof(lower));

	if (n > 1 && host[n - 1] == '.')
		n--;
	for (size_t i = 0; i < n; i++)
		lower[i] = text_lower(host[i]);
	put_text(line, "target.host", (struct text){ lower, n });
}

void loglines_outbound(struct loglines *l, int64_t wall_ms, const char *sandbox,
		       const char *host, const struct addr *ips, size_t count,
		       const char *error)
{
	struct line line;

	if (!line_begin(&line, l, wall_ms, LOGLINES_INFO, "egress outbound", false, 0))
		return;
	put_event(&line, "egress.outbound", sandbox);
	put_host(&line, host);
	if (count > 0) {
		jtext_open(&line.j, "target.ips", '[');
		for (size_t i = 0; i < MIN(count, (size_t)IPS_MAX); i++)
			jtext_member(&line.j, NULL, ADDR_SHOWN(&ips[i]));
		jtext_close(&line.j, ']');
	}
	if (error)
		put_text(&line, "error", text_of(error));
	line_end(&line);
}

void loglines_denied(struct loglines *l, int64_t wall_ms, const struct event_row *row)
{
	const struct event *e = &row->event;
	struct line line;
	char protocol[8];

	if (!line_begin(&line, l, wall_ms, LOGLINES_INFO, "egress denied", false, 0))
		return;
	put_event(&line, "egress.denied", row->sandbox);
	if (e->name[0])
		put_host(&line, e->name);
	if (e->remote.family != ADDR_NONE) {
		put_text(&line, "target.ip", text_of(ADDR_SHOWN(&e->remote)));
		if (e->port > 0)
			jtext_count(&line.j, "target.port", e->port);
		put_text(&line, "protocol",
			 text_of(event_protocol_name(e->protocol, protocol)));
	}
	put_text(&line, "layer", text_of(event_layer_name((enum event_layer)e->layer)));
	if (row->rule[0])
		put_text(&line, "rule", text_of(row->rule));
	put_text(&line, "reason",
		 (struct text){ e->reason, strnlen(e->reason, sizeof(e->reason)) });
	jtext_count(&line.j, "packets", e->packets);
	line_end(&line);
}

/* ---- the rest ---- */

void loglines_upstream(struct loglines *l, int64_t wall_ms, enum loglines_upstream kind,
		       const struct endpoint *upstream, const char *what)
{
	char where[ENDPOINT_TEXT_SIZE];

	endpoint_format(upstream, where);
	switch (kind) {
	case LOGLINES_NEXT:
		loglines_say(l, wall_ms, LOGLINES_WARN,
			     "[dns] upstream %s: %s; trying next", where, what);
		break;
	case LOGLINES_EXCHANGE:
		loglines_say(l, wall_ms, LOGLINES_WARN,
			     "[dns] upstream %s exchange error: %s", where, what);
		break;
	case LOGLINES_PROBE:
		loglines_say(l, wall_ms, LOGLINES_ERROR,
			     "[dns] upstream probe %s failed: %s", where, what);
		break;
	}
}

void loglines_say(struct loglines *l, int64_t wall_ms, enum loglines_level level,
		  const char *fmt, ...)
{
	char msg[MESSAGE_SIZE];
	struct line line;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	if (line_begin(&line, l, wall_ms, level, msg, false, 0))
		line_end(&line);
}
