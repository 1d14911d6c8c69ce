// SPDX-License-Identifier: Apache-2.0
#include "run/host_attach.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/http_status.h"
#include "base/timestamp.h"
#include "outputs/client.h"
#include "policy/explain.h"
#include "policy/plan.h"
#include "sandbox/sandbox.h"
#include "settings/settings.h"

enum { DENIES_MAX = 1000, NEWEST = 64 };

/* ---- asking ---- */

static int read_reply(const struct client_reply *reply, struct arena *arena, json_t **ret,
		      struct err *err)
{
	if (reply->status >= HTTP_MULTIPLE)
		return err_set(err, -EPERM, "%s", client_reason(reply, arena));
	*ret = json_loadb(reply->body.ptr, reply->body.len, 0, NULL);
	return *ret ? 0 : err_set(err, -EBADMSG, "the daemon's answer is no JSON");
}

static int ask(const struct run_daemon *d, const char *method, const char *below,
	       json_t **ret, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "/sandboxes/%s%s", d->id, below);
	struct client_reply reply;
	int r;

	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	r = client_ask(d->socket, method, path, text_of(""), &arena, &reply, err);
	return r < 0 ? r : read_reply(&reply, &arena, ret, err);
}

/* ---- attach, detach ---- */

/* What the host's filter doesn't meet it doesn't guard. */
static int check_network(const json_t *answer, struct err *err)
{
	struct stat st;

	if (stat("/proc/self/ns/net", &st) == 0 &&
	    json_integer_value(json_object_get(answer, "network")) ==
		    (json_int_t)st.st_ino)
		return 0;
	return err_set(err, -EXDEV,
		       "this is another network namespace than the daemon's, whose "
		       "filter no packet from here meets");
}

int run_daemon_attach(struct run_daemon *d, const char *id, const char *cgroup,
		      uint32_t uid, const struct run_policy *p, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) char *text = NULL;
	struct client_wish wish = { .cgroup = cgroup, .uid = cgroup ? 0 : uid };
	struct client_reply reply;
	json_t *answer = NULL;
	uint32_t number = 0;
	int r;

	if (!id && getrandom(&number, sizeof(number), 0) != sizeof(number))
		return err_sys(err, -errno, "cannot get a random number");
	if (id)
		snprintf(d->id, sizeof(d->id), "%s", id);
	else
		snprintf(d->id, sizeof(d->id), "run-%d-%08" PRIx32, (int)getpid(),
			 number);
	r = daemon_policy_json(&p->policy, &p->plan, &text);
	if (r < 0)
		err_set(err, r, "out of memory");
	wish.policy = text;
	if (r == 0)
		r = client_attach(d->socket, d->id, &wish, &arena, &reply, err);
	if (r == 0)
		r = read_reply(&reply, &arena, &answer, err);
	if (r < 0)
		d->id[0] = '\0';
	else
		r = check_network(answer, err);
	json_decref(answer);
	return r;
}

int run_daemon_detach(struct run_daemon *d, struct err *err)
{
	json_t *answer = NULL;
	int r = d->id[0] ? ask(d, "DELETE", "", &answer, err) : 0;

	json_decref(answer);
	if (r == 0)
		d->id[0] = '\0';
	return r;
}

/* ---- what was denied ---- */

static const char *text_at(const json_t *j, const char *key)
{
	const char *text = json_string_value(json_object_get(j, key));

	return text ? text : "";
}

static uint64_t number_at(const json_t *j, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(j, key));

	return n > 0 ? (uint64_t)n : 0;
}

/* The daemon's rules are ours, in another document. */
static uint32_t find_rule(const struct plan *plan, const char *rule)
{
	char text[320];

	for (uint32_t i = 0; rule[0] && i < plan_rule_count(plan); i++) {
		struct plan_rule r = plan_rule(plan, i);

		snprintf(text, sizeof(text), "%s %s", policy_action_name(r.action),
			 r.target);
		if (strcmp(text, rule) == 0)
			return i;
	}
	return EVENT_NO_RULE;
}

static uint8_t protocol_of(const char *name)
{
	static const struct {
		const char *name;
		uint8_t number;
	} known[] = { { "tcp", IPPROTO_TCP },
		      { "udp", IPPROTO_UDP },
		      { "icmp", IPPROTO_ICMP },
		      { "icmpv6", IPPROTO_ICMPV6 } };
	uint32_t number = 0;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(name, known[i].name) == 0)
			return known[i].number;
	return text_to_u32(text_of(name), UINT8_MAX, &number) ? (uint8_t)number : 0;
}

static void add_denial(const json_t *j, const struct plan *plan, int64_t now_ms,
		       struct event_ring *ring)
{
	const char *ip = text_at(j, "remote_ip");
	struct event e = {
		.ts_ms = now_ms,
		.packets = MAX(number_at(j, "packets"), UINT64_C(1)),
		.bytes = number_at(j, "bytes"),
		.rule = find_rule(plan, text_at(j, "rule")),
		.uid = UINT32_MAX,
		.port = (uint16_t)number_at(j, "remote_port"),
		.query_type = (uint16_t)number_at(j, "query_type"),
		.action = EVENT_DENY,
		.layer = (uint8_t)event_layer_find(text_at(j, "layer")),
		.protocol = protocol_of(text_at(j, "protocol")),
		.allowable = json_is_true(json_object_get(j, "allowable")),
	};

	(void)!timestamp_parse(text_of(text_at(j, "ts")), &e.ts_ms);
	if (json_is_integer(json_object_get(j, "uid")))
		e.uid = (uint32_t)number_at(j, "uid");
	if (ip[0] && !addr_parse(ip, strlen(ip), &e.remote))
		return;
	snprintf(e.name, sizeof(e.name), "%s", text_at(j, "name"));
	event_set_reason(&e, text_at(j, "reason"));
	snprintf(e.advice, sizeof(e.advice), "%s", text_at(j, "allow"));
	event_ring_add(ring, &e);
}

/* The newest are first there. */
static int read_denies(const struct run_daemon *d, const struct plan *plan, int most,
		       struct event_ring *ring, struct err *err)
{
	const int64_t now_ms = clock_wall_ms();
	char below[64];
	json_t *j = NULL, *list;
	int r;

	snprintf(below, sizeof(below), "/denies?limit=%d", most);
	r = ask(d, "GET", below, &j, err);
	if (r < 0)
		return r;
	list = json_object_get(j, "denies");
	for (size_t i = json_array_size(list); i-- > 0;)
		add_denial(json_array_get(list, i), plan, now_ms, ring);
	json_decref(j);
	return 0;
}

bool run_daemon_is_closed(const struct run_daemon *d)
{
	struct err ignored = { 0 };
	json_t *j = NULL;
	bool closed = d->id[0] && ask(d, "GET", "/status", &j, &ignored) == 0 &&
		      json_is_string(json_object_get(j, "closed"));

	json_decref(j);
	return closed;
}

int run_daemon_read(const struct run_daemon *d, const struct plan *plan,
		    struct event_ring *ring, uint64_t *ret_counters, struct err *err)
{
	json_t *j = NULL;
	int r = ask(d, "GET", "/status", &j, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		ret_counters[i] =
			number_at(json_object_get(j, "counters"),
				  sandbox_counter_name((enum sandbox_counter)i));
	json_decref(j);
	return read_denies(d, plan, DENIES_MAX, ring, err);
}

void run_daemon_look(const struct run_daemon *d, const struct plan *plan,
		     struct event_ring *ring)
{
	struct err ignored = { 0 };

	(void)!read_denies(d, plan, NEWEST, ring, &ignored);
}

bool run_daemon_is_settled(const struct event_ring *ring, const uint64_t *counters)
{
	uint64_t told = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++)
		told += event_ring_at(ring, i)->packets;
	return told >= sandbox_denied(counters);
}
