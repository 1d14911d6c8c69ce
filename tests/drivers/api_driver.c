// SPDX-License-Identifier: Apache-2.0
/* api_driver - the HTTP API alone, over a policy in memory, for test_api_*.py.
 *
 *     api_driver [token=T] [open=1] [ui=0] [max_rules=N] [idle=SEC] [request=SEC]
 * [heartbeat=SEC] [id=SANDBOX] [label=KEY=VALUE] [search=MS]
 *
 * With search=MS it has a store of review tasks, none of them, that takes that long.
 *
 * Prints "port N", then answers each line of its input with one line:
 *
 *     event ACTION HEX       an event of a lookup of that name (bytes in hexadecimal)
 *     flood COUNT            as many denials of different names
 *     fail WHAT TEXT         the next changes fail: policy, closed, persist, apply; "fail
 * not -" health 0|1 degrade WHAT REASON    one more degradation log what was logged
 * since, as a JSON array
 *
 * The end of the input ends it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"

enum { RING = 4096, LINE_SIZE = 8192 };

struct driver {
	struct loop *loop;
	struct loop_source input;
	struct api *api;
	struct document *document;
	struct event_ring *ring;
	const char *id;
	uint32_t search_ms;
	enum api_failure failure;
	char failure_text[256];
	bool sick;
	uint32_t generation;
	char what[256], reason[256];
	struct api_counter counter;
	json_t *log;
	char line[LINE_SIZE];
	size_t used;
};

static void happen(struct driver *d, enum event_action action, const char *name,
		   size_t size);

static const struct document *on_policy(void *data)
{
	return ((struct driver *)data)->document;
}

/* As the control program: what isn't a policy is refused here. */
static int check(const struct document *d, struct err *err)
{
	struct arena arena = { 0 };
	struct faults *faults = calloc(1, sizeof(*faults));
	struct policy policy = { 0 };
	struct policy_reader reader = { .arena = &arena, .faults = faults };
	const struct static_rules_file none = { 0 };
	char text[FAULT_TEXT_SIZE];
	int r = document_policy(d, &none, &none, "", &reader, &policy);

	for (size_t i = 0; r < 0 && i < faults->count; i++) {
		if (faults->items[i].level != FAULT_ERROR)
			continue;
		snprintf(text, sizeof(text), "%s", faults->items[i].text);
		err_set(err, r, "%.500s", text);
		break;
	}
	faults_done(faults);
	free(faults);
	arena_done(&arena);
	return r;
}

static enum api_failure on_change(void *data, struct document *next, struct err *err)
{
	struct driver *d = data;

	if (d->failure != API_FAILED_NOT) {
		document_free(next);
		err_set(err, -EIO, "%s", d->failure_text);
		return d->failure;
	}
	if (check(next, err) < 0) {
		document_free(next);
		return API_FAILED_POLICY;
	}
	document_free(d->document);
	d->document = next;
	d->generation++;
	happen(d, EVENT_CHANGE, "policy", 6); /* in the midst of the request */
	return API_FAILED_NOT;
}

static bool on_healthy(void *data)
{
	return !((struct driver *)data)->sick;
}

static void on_status(void *data, struct api_status *ret)
{
	struct driver *d = data;

	d->counter = (struct api_counter){ .name = "queries_denied",
					   .help = "DNS questions denied",
					   .value = event_ring_count(d->ring) };
	ret->mode = API_MODE_DNS_NFT;
	ret->enforcement_mode = "dns+nft";
	ret->sandbox_id = d->id;
	ret->full_isolation = d->what[0] == '\0';
	ret->since_ms = 1763719871500;
	if (d->what[0])
		ret->degradations[ret->degradation_count++] =
			(struct api_degradation){ d->what, d->reason, 1763719871500 };
	ret->generation = d->generation;
	ret->rule_count = document_rule_count(d->document);
	ret->counters = &d->counter;
	ret->counter_count = 1;
	ret->store_lost_rows = 3;
	ret->store_lost_packets = 70;
	ret->has_postgres = true;
	ret->postgres_waiting = 5;
	ret->postgres_missed = 6;
	ret->postgres_refused = 7;
}

/* What a change would fail with. */
static int on_check(void *data, const struct document *d, sidecar_fault_fn *on_fault,
		    void *to, struct err *err)
{
	const struct driver *self = data;

	if (self->failure != API_FAILED_POLICY)
		return 0;
	on_fault(to, self->failure_text, FAULT_ERROR);
	return err_set(err, -EINVAL, "%s", self->failure_text);
}

static const struct plan *on_plan(void *data)
{
	return NULL;
}

static const struct event_ring *on_events(void *data)
{
	return ((struct driver *)data)->ring;
}

static void on_row(void *data, const struct event *e, struct event_row *ret)
{
	event_row_fill(ret, e, ((struct driver *)data)->id, NULL);
}

static void on_log(void *data, const char *rules, const char *error, bool callers_fault)
{
	json_array_append_new(((struct driver *)data)->log,
			      json_pack("[s?, s?, b]", rules, error, callers_fault));
}

static bool on_logs_rules(void *data)
{
	return true;
}

static void on_unknown(void *data, const char *key)
{
	json_array_append_new(((struct driver *)data)->log, json_string(key));
}

static int on_reviews(void *data, enum review_state state,
		      bool (*on_task)(void *to, const struct review *t), void *to,
		      struct err *err)
{
	usleep(((struct driver *)data)->search_ms * 1000);
	return 0;
}

/* ---- commands ---- */

static void happen(struct driver *d, enum event_action action, const char *name,
		   size_t size)
{
	struct event e = { .ts_ms = clock_wall_ms(),
			   .packets = 1,
			   .rule = EVENT_NO_RULE,
			   .uid = UINT32_MAX,
			   .query_type = 1,
			   .action = (uint8_t)action,
			   .layer = EVENT_DNS,
			   .reason = "no rule allows it" };
	struct event_row row;

	memcpy(e.name, name, size < EVENT_NAME_SIZE ? size : EVENT_NAME_SIZE - 1);
	event_ring_add(d->ring, &e);
	event_row_fill(&row, &e, d->id, NULL);
	api_on_event(d->api, &row);
}

static void do_event(struct driver *d, const char *action, const char *hex)
{
	char name[EVENT_NAME_SIZE] = "";
	size_t size = 0;
	unsigned int byte;

	while (size < sizeof(name) - 1 && sscanf(hex + 2 * size, "%2x", &byte) == 1)
		name[size++] = (char)byte;
	for (int i = 0; i < EVENT_ACTION_COUNT; i++)
		if (strcmp(event_action_name((enum event_action)i), action) == 0)
			happen(d, (enum event_action)i, name, size);
}

static void do_flood(struct driver *d, unsigned long count)
{
	char name[64];

	for (unsigned long i = 0; i < count; i++) {
		int n = snprintf(name, sizeof(name), "n%lu.flood.test", i);

		happen(d, EVENT_DENY, name, (size_t)n);
	}
}

static void do_log(struct driver *d)
{
	char *text = json_dumps(d->log, JSON_COMPACT);

	puts(text ? text : "[]");
	free(text);
	json_array_clear(d->log);
}

static void do_fail(struct driver *d, const char *what, const char *text)
{
	static const char *const names[] = {
		[API_FAILED_NOT] = "not",	[API_FAILED_POLICY] = "policy",
		[API_FAILED_CLOSED] = "closed", [API_FAILED_PERSIST] = "persist",
		[API_FAILED_APPLY] = "apply",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], what) == 0)
			d->failure = (enum api_failure)i;
	snprintf(d->failure_text, sizeof(d->failure_text), "%s", text);
}

static void obey(struct driver *d, char *line)
{
	char *rest = line, *verb = strsep(&rest, " "), *first = strsep(&rest, " ");
	const char *a = first ? first : "", *b = rest ? rest : "";

	if (strcmp(verb, "log") == 0) {
		do_log(d);
		return;
	}
	if (strcmp(verb, "event") == 0)
		do_event(d, a, b);
	else if (strcmp(verb, "flood") == 0)
		do_flood(d, strtoul(a, NULL, 10));
	else if (strcmp(verb, "fail") == 0)
		do_fail(d, a, b);
	else if (strcmp(verb, "health") == 0)
		d->sick = a[0] == '0';
	else if (strcmp(verb, "degrade") == 0) {
		snprintf(d->what, sizeof(d->what), "%s", a);
		snprintf(d->reason, sizeof(d->reason), "%s", b);
	}
	puts("ok");
}

static void on_input(struct loop_source *s, uint32_t events)
{
	struct driver *d = CONTAINER_OF(s, struct driver, input);
	ssize_t n = read(0, d->line + d->used, sizeof(d->line) - d->used - 1);
	char *end;

	if (n <= 0) {
		loop_stop(d->loop);
		return;
	}
	d->used += (size_t)n;
	d->line[d->used] = '\0';
	while ((end = strchr(d->line, '\n'))) {
		*end = '\0';
		obey(d, d->line);
		d->used -= (size_t)(end + 1 - d->line);
		memmove(d->line, end + 1, d->used + 1);
	}
	fflush(stdout);
}

/* ---- start ---- */

static int listen_anywhere(void)
{
	struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_addr = in6addr_any };
	socklen_t size = sizeof(sa);
	const int off = 0;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0); /* blocks */

	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 4096) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &size) < 0) {
		perror("listen");
		exit(1);
	}
	printf("port %d\n", ntohs(sa.sin6_port));
	fflush(stdout);
	return fd;
}

static void read_option(struct api_config *c, struct api_label *label, struct driver *d,
			char *arg)
{
	char *value = arg, *key = strsep(&value, "=");
	const uint32_t number = value ? (uint32_t)strtoul(value, NULL, 10) : 0;

	if (strcmp(key, "token") == 0)
		c->token = value;
	else if (strcmp(key, "open") == 0)
		c->open = number;
	else if (strcmp(key, "ui") == 0)
		c->ui = number;
	else if (strcmp(key, "max_rules") == 0)
		c->max_rules = number;
	else if (strcmp(key, "idle") == 0)
		c->idle_sec = number;
	else if (strcmp(key, "request") == 0)
		c->request_sec = number;
	else if (strcmp(key, "heartbeat") == 0)
		c->heartbeat_sec = number;
	else if (strcmp(key, "search") == 0)
		d->search_ms = number;
	else if (strcmp(key, "id") == 0)
		d->id = value;
	else if (strcmp(key, "label") == 0) {
		label->key = text_of(strsep(&value, "="));
		label->value = text_of(value);
		c->labels = label;
		c->label_count = 1;
	}
}

int main(int argc, char **argv)
{
	static struct driver d;
	struct api_config c = { .max_rules = 4096, .ui = true };
	struct api_label label;
	struct err err = { 0 };

	d.id = "sb-1";
	d.loop = loop_new();
	d.document = document_deny_all();
	d.ring = event_ring_new(RING);
	d.log = json_array();
	for (int i = 1; i < argc; i++)
		read_option(&c, &label, &d, argv[i]);
	c.loop = d.loop;
	c.listen_fd = listen_anywhere();
	c.ops = (struct api_ops){ .data = &d,
				  .policy = on_policy,
				  .change = on_change,
				  .healthy = on_healthy,
				  .status = on_status,
				  .events = on_events,
				  .row = on_row,
				  .log_change = on_log,
				  .logs_rules = on_logs_rules,
				  .log_unknown_key = on_unknown,
				  .check = on_check,
				  .plan = on_plan };
	if (d.search_ms > 0)
		c.ops.reviews = on_reviews;
	d.api = api_new(&c, &err);
	d.input = (struct loop_source){ .fd = 0, .on_ready = on_input };
	if (!d.api || loop_add(d.loop, &d.input, EPOLLIN) < 0 || loop_run(d.loop) < 0) {
		fprintf(stderr, "api_driver: %s\n", err.text);
		return 1;
	}
	api_free(d.api);
	/* Nothing of it is left in the loop. */
	if (loop_turn(d.loop, 5) < 0)
		return 1;
	loop_free(d.loop);
	document_free(d.document);
	event_ring_free(d.ring);
	json_decref(d.log);
	return 0;
}
