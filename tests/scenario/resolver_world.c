// SPDX-License-Identifier: Apache-2.0
#include "resolver_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan.h"
#include "sandbox/asks.h"

static void broken(const char *what)
{
	fprintf(stderr, "the world is broken: %s\n", what);
	abort();
}

static size_t sandbox_index(const struct world *w, const struct sandbox *s)
{
	return (size_t)(s - w->sandboxes);
}

/* ---- the kernel ---- */

static struct world_element *element_find(struct world_kernel *k, const struct addr *a,
					  uint8_t port_list, int64_t now_ms)
{
	for (size_t i = 0; i < k->count; i++) {
		struct world_element *e = &k->elements[i];

		if (e->until_ms <= now_ms) {
			k->elements[i--] = k->elements[--k->count];
			continue;
		}
		if (e->port_list == port_list && addr_equal(&e->addr, a))
			return e;
	}
	return NULL;
}

static void kernel_apply(struct world_kernel *k, const struct filter_learn *item,
			 int64_t now_ms)
{
	struct world_element *e = element_find(k, &item->addr, item->port_list, now_ms);

	if (e && (item->refresh || item->lifetime_ms == 0)) {
		*e = k->elements[--k->count];
		e = NULL;
	}
	if (e || item->lifetime_ms == 0)
		return;
	if (k->count == WORLD_ELEMENTS_MAX)
		broken("more elements than any limit allows");
	k->elements[k->count++] = (struct world_element){
		.addr = item->addr,
		.port_list = item->port_list,
		.until_ms = now_ms + item->lifetime_ms,
	};
}

static int op_commit(void *data, struct sandbox *s, const struct filter_learn *items,
		     size_t count)
{
	struct world *w = data;

	if (count == 0 || count > FILTER_LEARN_MAX)
		broken("a transaction of a size that the filter doesn't take");
	w->commits++;
	w->kernels[sandbox_index(w, s)].evicted = learned_counts(s->learned).evicted;
	if (w->fail_after > 0) {
		w->fail_after--;
	} else if (w->fail_commits > 0) {
		w->fail_commits--;
		return -EIO;
	}
	w->commit_items += count;
	w->most_items = MAX(w->most_items, count);
	for (size_t i = 0; i < count; i++)
		kernel_apply(&w->kernels[sandbox_index(w, s)], &items[i], w->now_ms);
	return 0;
}

bool world_kernel_has(const struct world *w, size_t sandbox, const struct addr *a)
{
	const struct world_kernel *k = &w->kernels[sandbox];

	for (size_t i = 0; i < k->count; i++)
		if (addr_equal(&k->elements[i].addr, a) &&
		    k->elements[i].until_ms > w->now_ms)
			return true;
	return false;
}

/* ---- what leaves ---- */

static int op_send(void *data, uint32_t token, size_t server,
		   const struct sandbox *tcp_for, const void *message, size_t size)
{
	struct world *w = data;
	struct world_request *q;

	if (w->dead_servers & 1u << server)
		return -ENETUNREACH;
	if (token == 0 || size > sizeof(q->bytes))
		broken("an upstream request without token, or too long");
	for (q = w->requests; q < w->requests + w->request_count && q->token != 0;)
		q++;
	if (q == w->requests + WORLD_REQUESTS_MAX)
		return -ENOBUFS;
	if (q == w->requests + w->request_count)
		w->request_count++;
	*q = (struct world_request){
		.token = token, .server = server, .tcp = tcp_for != NULL, .size = size
	};
	memcpy(q->bytes, message, size);
	return 0;
}

static void op_cancel(void *data, uint32_t token)
{
	struct world *w = data;

	for (size_t i = 0; i < w->request_count; i++)
		if (w->requests[i].token == token)
			w->requests[i].token = 0;
}

/* The question of a reply, as what was asked. */
static bool read_asked(const void *message, size_t size, struct dns_asked *ret)
{
	struct wire r = wire_reader(message, size);

	ret->id = wire_read_u16(&r);
	wire_seek(&r, DNS_HEADER_SIZE);
	if (dns_name_read(&r, &ret->name, ret->case_name) < 0)
		return false;
	ret->type = wire_read_u16(&r);
	return wire_ok(&r);
}

static void check_addr(struct world *w, struct sandbox *s, const struct dns_name *name,
		       const struct dns_answer_addr *a)
{
	struct plan_verdict v = plan_match_name(&s->plan, name);
	struct learned_use use[64];
	size_t n = learned_find(s->learned, &a->addr, w->now_ms, use, ARRAY_SIZE(use));
	struct world_element *e;

	if (dns_name_is_localhost(name) ||
	    (v.action == POLICY_ASK && sinkhole_has(&a->addr)))
		return;
	if (s->state == SANDBOX_TESTING && dns_name_equal(name, &s->probe_name))
		v = (struct plan_verdict){ .action = POLICY_ALLOW };
	if (v.action != POLICY_ALLOW)
		broken("an answer for a name that the policy denies");
	e = element_find(&w->kernels[sandbox_index(w, s)], &a->addr, v.port_list,
			 w->now_ms);
	if (!e)
		broken("an address was told that the kernel does not let through");
	if (e->until_ms < w->now_ms + (int64_t)a->ttl_sec * 1000)
		broken("an address was told for longer than the kernel lets it through");
	for (size_t i = 0; i < n; i++)
		if (dns_name_equal(&use[i].name, name))
			return;
	if (learned_counts(s->learned).evicted == w->kernels[sandbox_index(w, s)].evicted)
		broken("an address was told that was not learned under its name");
}

static void op_reply(void *data, const struct resolver_client *client,
		     const void *message, size_t size)
{
	struct world *w = data;
	struct world_reply *p = &w->replies[w->reply_count % WORLD_REPLIES_MAX];
	struct dns_asked asked = { 0 };
	struct dns_answer answer;

	w->reply_count++;
	*p = (struct world_reply){ .client = *client, .size = size };
	memcpy(p->bytes, message, MIN(size, sizeof(p->bytes)));
	if (size < DNS_HEADER_SIZE || (!client->tcp && size > DNS_UDP_OURS))
		broken("a reply that is too short or too long");
	p->id = (uint16_t)(p->bytes[0] << 8 | p->bytes[1]);
	p->flags = (uint16_t)(p->bytes[2] << 8 | p->bytes[3]);
	if (!read_asked(message, size, &asked))
		return;
	dns_answer_read(message, size, &asked, &answer);
	p->addr_count = answer.addr_count;
	memcpy(p->addrs, answer.addrs, answer.addr_count * sizeof(p->addrs[0]));
	for (size_t i = 0; i < p->addr_count; i++)
		check_addr(w, client->sandbox, &asked.name, &p->addrs[i]);
}

static void op_random(void *data, void *bytes, size_t size)
{
	struct world *w = data;
	uint8_t *p = bytes;

	for (size_t i = 0; i < size; i++) {
		w->random = w->random * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(w->random >> 56);
	}
}

static void op_trouble(void *data, const struct upstream_trouble *t)
{
	struct world *w = data;

	if (w->trouble_count < WORLD_TROUBLES_MAX)
		w->troubles[w->trouble_count] = *t;
	w->trouble_count++;
}

static bool on_event(void *data, const struct event *e)
{
	struct world *w = data;

	if (w->event_count < WORLD_EVENTS_MAX)
		w->events[w->event_count] = *e;
	w->event_count++;
	return true;
}

/* ---- policy ---- */

void world_no_rules(struct world *w)
{
	w->policy.rules = w->rules;
	w->policy.capacity = WORLD_RULES_MAX;
	w->policy.count = 0;
}

static bool set_target(struct rule *r, const char *t)
{
	if (prefix_parse(t, strlen(t), false, &r->prefix)) {
		r->kind = TARGET_PREFIX;
		return true;
	}
	r->kind = strncmp(t, "**.", 3) == 0  ? TARGET_WITHIN
		  : strncmp(t, "*.", 2) == 0 ? TARGET_BELOW
					     : TARGET_NAME;
	t += r->kind == TARGET_WITHIN ? 3 : r->kind == TARGET_BELOW ? 2 : 0;
	return dns_name_parse(text_of(t), &r->name) == 0;
}

bool world_rule(struct world *w, enum policy_action action, const char *target,
		uint16_t port, uint8_t flags, uint8_t types)
{
	size_t i = w->policy.count;
	struct rule *r = &w->rules[i];

	if (i == WORLD_RULES_MAX)
		return false;
	*r = (struct rule){ .action = action,
			    .flags = flags,
			    .types = types,
			    .comment = "",
			    .file = "policy.yaml",
			    .line = (uint32_t)i + 1 };
	snprintf(w->targets[i], sizeof(w->targets[i]), "%s", target);
	r->target = w->targets[i];
	if (port > 0) {
		w->ports[i] = (struct plan_port_range){ .protocol = IPPROTO_TCP,
							.from = port,
							.to = port };
		r->ports = (struct rule_ports){ &w->ports[i], 1 };
		r->flags |= PLAN_PORTS_LISTED;
	}
	if (!set_target(r, target))
		return false;
	w->policy.count++;
	return true;
}

static bool compile(struct world *w, struct plan *ret)
{
	struct err err = { 0 };
	uint8_t *bytes;
	size_t size;

	if (policy_compile(&w->policy, &bytes, &size, &err) < 0)
		return false;
	free(w->plan_bytes[1]);
	w->plan_bytes[1] = w->plan_bytes[0];
	w->plan_bytes[0] = bytes;
	return plan_open(bytes, size, ret, &err) == 0;
}

static bool change_one(struct world *w, size_t i, const struct plan *plan)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct sandbox *s = &w->sandboxes[i];
	struct learned_rebased rebased;

	if (learned_rebase(s->learned, plan, w->now_ms, &arena, &rebased) < 0)
		return false;
	w->kernels[i].count = 0;
	for (size_t k = 0; k < rebased.learned_count; k++)
		kernel_apply(&w->kernels[i], &rebased.learned[k], w->now_ms);
	sandbox_set_plan(s, plan);
	learned_set_plan(rebased.table, &s->plan);
	learned_free(s->learned);
	s->learned = rebased.table;
	return true;
}

bool world_change(struct world *w)
{
	struct plan plan;

	if (!compile(w, &plan))
		return false;
	for (size_t i = 0; i < WORLD_SANDBOXES; i++)
		if (!change_one(w, i, &plan))
			return false;
	return true;
}

bool world_apply(struct world *w)
{
	struct plan plan;

	if (!compile(w, &plan))
		return false;
	for (size_t i = 0; i < WORLD_SANDBOXES; i++)
		sandbox_set_plan(&w->sandboxes[i], &plan);
	return true;
}

/* ---- life ---- */

struct world *world_new_with(const struct resolver_config *config)
{
	struct world *w = calloc(1, sizeof(*w));
	struct resolver_ops ops = { w,	      op_send,	 op_cancel, op_commit,
				    op_reply, op_random, op_trouble };
	struct hash_key key = config->key;

	if (!w)
		return NULL;
	w->now_ms = 1000000;
	w->resolver = resolver_new(&ops, config);
	world_no_rules(w);
	for (size_t i = 0; i < WORLD_SANDBOXES; i++) {
		struct sandbox *s = &w->sandboxes[i];

		s->id = (uint32_t)i;
		s->state = SANDBOX_RUNNING;
		s->ipv6 = true;
		s->on_event = on_event;
		s->on_event_data = w;
		s->learned = learned_new(&s->plan, &key);
	}
	if (!world_apply(w))
		broken("no plan");
	return w;
}

struct world *world_new(size_t servers)
{
	return world_new_with(
		&(struct resolver_config){ .key = { 1, 2 }, .upstream_count = servers });
}

void world_free(struct world *w)
{
	for (size_t i = 0; i < WORLD_SANDBOXES; i++) {
		resolver_detach(w->resolver, &w->sandboxes[i]);
		learned_free(w->sandboxes[i].learned);
		asks_free(&w->sandboxes[i]);
	}
	resolver_free(w->resolver);
	free(w->plan_bytes[0]);
	free(w->plan_bytes[1]);
	free(w);
}

/* ---- what comes in ---- */

static void write_name(struct wire *w, const char *text)
{
	for (struct text t = text_of(text), label; text_split(&t, '.', &label);) {
		if (label.len == 0)
			continue;
		wire_write_u8(w, (uint8_t)label.len);
		wire_write_bytes(w, label.ptr, label.len);
	}
	wire_write_u8(w, 0);
}

size_t world_write_query(uint8_t *buf, size_t size, uint16_t id, const char *name,
			 uint16_t type, bool edns)
{
	struct wire w = wire_writer(buf, size);

	wire_write_u16(&w, id);
	wire_write_u16(&w, 0x0100);
	wire_write_u16(&w, 1);
	wire_write_u32(&w, 0);
	wire_write_u16(&w, edns ? 1 : 0);
	write_name(&w, name);
	wire_write_u16(&w, type);
	wire_write_u16(&w, 1);
	if (edns) {
		wire_write_u8(&w, 0);
		wire_write_u16(&w, DNS_TYPE_OPT);
		wire_write_u16(&w, 1232);
		wire_write_u32(&w, 0);
		wire_write_u16(&w, 0);
	}
	return wire_offset(&w);
}

void world_query(struct world *w, size_t sandbox, uint16_t id, const char *name,
		 uint16_t type, bool edns, bool tcp)
{
	uint8_t buf[512];
	size_t size = world_write_query(buf, sizeof(buf), id, name, type, edns);
	struct resolver_client c = { .sandbox = &w->sandboxes[sandbox],
				     .tcp = tcp,
				     .peer = { addr_v4(127, 0, 0, 1), id } };

	resolver_query(w->resolver, &c, buf, size, w->now_ms);
}

void world_wait(struct world *w, int64_t ms)
{
	int64_t end_ms = w->now_ms + ms;

	while (resolver_next_ms(w->resolver) <= end_ms) {
		w->now_ms = MAX(w->now_ms, resolver_next_ms(w->resolver));
		resolver_tick(w->resolver, w->now_ms);
		resolver_flush(w->resolver, w->now_ms);
	}
	w->now_ms = end_ms;
}

struct world_request *world_request_find(struct world *w, size_t server, const char *name,
					 uint16_t type)
{
	for (size_t i = 0; i < w->request_count; i++) {
		struct world_request *q = &w->requests[i];
		struct dns_asked asked;
		struct dns_name want = { .size = 1 };

		if (q->token == 0 || q->server != server ||
		    !read_asked(q->bytes, q->size, &asked))
			continue;
		if (asked.type == type &&
		    (strcmp(name, ".") == 0 ||
		     dns_name_parse(text_of(name), &want) == 0) &&
		    dns_name_equal(&want, &asked.name))
			return q;
	}
	return NULL;
}

size_t world_requests_open(const struct world *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->request_count; i++)
		n += w->requests[i].token != 0;
	return n;
}

/* ---- responses ---- */

void world_response_begin(struct world_response *p, const struct world_request *q,
			  uint16_t flags)
{
	struct wire r = wire_reader(q->bytes, q->size);
	struct dns_name name;

	wire_seek(&r, DNS_HEADER_SIZE);
	if (dns_name_read(&r, &name, NULL) < 0)
		broken("an upstream request that can't be read");
	wire_take(&r, 4);
	p->answers = p->authorities = 0;
	p->w = wire_writer(p->bytes, sizeof(p->bytes));
	wire_write_bytes(&p->w, q->bytes, 2);
	wire_write_u16(&p->w, 0x8180 | flags);
	wire_write_u16(&p->w, 1);
	wire_write_u32(&p->w, 0);
	wire_write_u16(&p->w, 0);
	wire_write_bytes(&p->w, q->bytes + DNS_HEADER_SIZE,
			 wire_offset(&r) - DNS_HEADER_SIZE);
}

void world_response_record(struct world_response *p, const char *owner, uint16_t type,
			   uint32_t ttl, const void *rdata, size_t size)
{
	write_name(&p->w, owner);
	wire_write_u16(&p->w, type);
	wire_write_u16(&p->w, 1);
	wire_write_u32(&p->w, ttl);
	wire_write_u16(&p->w, (uint16_t)size);
	wire_write_bytes(&p->w, rdata, size);
	if (type == DNS_TYPE_SOA)
		p->authorities++;
	else
		p->answers++;
}

void world_response_addr(struct world_response *p, const char *owner, const char *text,
			 uint32_t ttl)
{
	struct addr a;

	if (!addr_parse(text, strlen(text), &a))
		broken("an address in a response");
	world_response_record(p, owner, a.family == ADDR_V4 ? DNS_TYPE_A : DNS_TYPE_AAAA,
			      ttl, a.bytes, addr_size(&a));
}

void world_response_cname(struct world_response *p, const char *owner, const char *target,
			  uint32_t ttl)
{
	uint8_t buf[DNS_NAME_MAX];
	struct wire w = wire_writer(buf, sizeof(buf));

	write_name(&w, target);
	world_response_record(p, owner, DNS_TYPE_CNAME, ttl, buf, wire_offset(&w));
}

void world_response_soa(struct world_response *p, const char *zone, uint32_t ttl)
{
	uint8_t buf[64];
	struct wire w = wire_writer(buf, sizeof(buf));

	write_name(&w, "ns.test");
	write_name(&w, "admin.test");
	for (int i = 0; i < 4; i++)
		wire_write_u32(&w, 1);
	wire_write_u32(&w, ttl);
	world_response_record(p, zone, DNS_TYPE_SOA, ttl, buf, wire_offset(&w));
}

void world_respond(struct world *w, struct world_request *q, struct world_response *p)
{
	size_t size = wire_offset(&p->w);

	wire_seek(&p->w, 6);
	wire_write_u16(&p->w, p->answers);
	wire_write_u16(&p->w, p->authorities);
	resolver_response(w->resolver, q->token, p->bytes, size, w->now_ms);
}
