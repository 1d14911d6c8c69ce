// SPDX-License-Identifier: Apache-2.0
/* The bytes are a list of things that happen to a resolver: queries, responses right and
 * wrong, time, failing commits, other policies, sandboxes that go. Checked are what the
 * world checks of every reply (see resolver_world.h), and that every query of a sandbox
 * that stays gets exactly one reply, at the latest when all tries are over, and that
 * nothing is left under way then. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../scenario/resolver_world.h"

enum { STEPS_MAX = 2000, SERVERS = 3, PROBED_TRY_MS = 5000, PROBE_EVERY_MS = 30000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz {
	struct world *w;
	struct wire in;
	size_t queries; /* that a reply is due for */
	size_t due[WORLD_SANDBOXES];
	bool probes; /* a long try, and probes: at the end some may be under way */
};

static const char *const names[] = {
	"api.ok.test",	"a.pkg.test", "b.pkg.test", "c.pkg.test",      "secret.pkg.test",
	"private.test", "localhost",  "other.test", "probe.weir.test",
};
static const char *const addrs[] = {
	"45.0.0.1",	   "45.0.0.2",	"45.0.0.3", "45.0.0.4", "45.66.0.1", "10.0.0.1",
	"169.254.169.254", "127.0.0.1", "45.0.0.5", "45.0.0.6", "45.0.0.7",  "45.0.0.8",
};
static const char *const addrs6[] = { "2a00:1450::1", "2a00:1450::2", "::ffff:10.0.0.1",
				      "fd00::1" };
static const uint16_t types[] = { DNS_TYPE_A, DNS_TYPE_AAAA, DNS_TYPE_TXT,
				  DNS_TYPE_HTTPS };
static const uint32_t ttls[] = { 0, 5, 60, 300, 100000, 0x7fffffff, 0xffffffff, 1 };
static const int64_t waits[] = { 1, 400, 1500, 6000, 40000, 89000, 95000, 90000000 };

static uint8_t next(struct fuzz *f)
{
	return wire_left(&f->in) > 0 ? wire_read_u8(&f->in) : 0;
}

#define PICK(f, array) ((array)[next(f) % ARRAY_SIZE(array)])

static void set_policy(struct fuzz *f)
{
	uint8_t bits = next(f);
	struct world *w = f->w;

	world_no_rules(w);
	w->policy.limits[LIMIT_ADDRESSES_PER_NAME] = bits & 1 ? 2 : 0;
	w->policy.limits[LIMIT_ADDRESSES] = bits & 2 ? 16 : 0;
	w->policy.limits[LIMIT_LEARNED_NAMES] = bits & 4 ? 16 : 0;
	w->policy.limits[LIMIT_QUERIES_IN_FLIGHT] = bits & 8 ? 2 : 0;
	w->policy.limits[LIMIT_PARKED] = bits & 2 ? 2 : 0;
	world_rule(w, POLICY_DENY, "secret.pkg.test", 0, 0, 0);
	world_rule(w, POLICY_DENY, "45.66.0.0/16", 0, 0, 0);
	if (!(bits & 16))
		world_rule(w, POLICY_ALLOW, "api.ok.test", bits & 32 ? 443 : 22, 0, 0);
	else if (bits & 32)
		world_rule(w, POLICY_ASK, "api.ok.test", 443, 0, 0);
	if (!(bits & 64))
		world_rule(w, POLICY_ALLOW, "*.pkg.test", 443, 0, PLAN_TYPE_TXT);
	else if (bits & 1)
		world_rule(w, POLICY_ASK, "*.pkg.test", 443, 0, 0);
	world_rule(w, POLICY_ALLOW, "private.test", bits & 128 ? 80 : 443, PLAN_PRIVATE,
		   0);
	if (!(w->reply_count & 1 ? world_change(w) : world_apply(w)))
		abort();
}

static void query(struct fuzz *f)
{
	uint8_t sandbox = next(f) % WORLD_SANDBOXES, flags = next(f);
	const char *name = PICK(f, names);

	f->due[sandbox]++;
	world_query(f->w, sandbox, (uint16_t)f->queries++, name, PICK(f, types),
		    flags & 1, flags & 2);
}

static void raw_query(struct fuzz *f)
{
	struct resolver_client c = { .sandbox = &f->w->sandboxes[0] };
	uint8_t bytes[64] = { 0 };
	size_t n = next(f) % sizeof(bytes);
	size_t given = MIN(n, wire_left(&f->in));

	if (given > 0)
		memcpy(bytes, wire_take(&f->in, given), given);
	resolver_query(f->w->resolver, &c, bytes, n, f->w->now_ms);
}

static void build_answer(struct fuzz *f, struct world_response *p,
			 const struct world_request *q)
{
	struct wire r = wire_reader(q->bytes, q->size);
	char owner[DNS_NAME_TEXT_SIZE];
	struct dns_name name;
	uint16_t type;
	uint8_t shape = next(f), n = shape & 7;

	wire_seek(&r, DNS_HEADER_SIZE);
	if (dns_name_read(&r, &name, NULL) < 0)
		abort();
	type = wire_read_u16(&r);
	dns_name_format(&name, owner);
	world_response_begin(p, q, (shape & 0x18) == 0x18 ? next(f) & 0x020f : 0);
	if (shape & 0x20) {
		const char *target = PICK(f, names);

		world_response_cname(p, owner, target, PICK(f, ttls));
		snprintf(owner, sizeof(owner), "%s", target);
	}
	while (n-- > 0)
		world_response_addr(p, owner,
				    type == DNS_TYPE_A ? PICK(f, addrs) : PICK(f, addrs6),
				    PICK(f, ttls));
	if (shape & 0x40)
		world_response_soa(p, "test", PICK(f, ttls));
	if (shape & 0x80)
		p->bytes[next(f) % 40] ^= next(f);
}

static struct world_request *some_request(struct fuzz *f)
{
	size_t skip = next(f);

	for (size_t i = 0; i < f->w->request_count; i++) {
		struct world_request *q =
			&f->w->requests[(i + skip) % f->w->request_count];

		if (q->token != 0)
			return q;
	}
	return NULL;
}

static void respond(struct fuzz *f)
{
	struct world_request *q = some_request(f), copy;
	struct world_response p;

	if (!q)
		return;
	copy = *q;
	build_answer(f, &p, q);
	world_respond(f->w, q, &p);
	/* Once more, late: it must not matter. */
	if (next(f) & 1)
		resolver_response(f->w->resolver, copy.token, p.bytes, wire_offset(&p.w),
				  f->w->now_ms);
}

static void lose(struct fuzz *f)
{
	struct world_request *q = some_request(f);

	if (q)
		resolver_send_failed(f->w->resolver, q->token, -ECONNREFUSED,
				     f->w->now_ms);
}

static size_t replies_to(const struct fuzz *f, size_t sandbox)
{
	size_t n = 0;

	for (size_t i = 0; i < MIN(f->w->reply_count, (size_t)WORLD_REPLIES_MAX); i++)
		n += f->w->replies[i].client.sandbox == &f->w->sandboxes[sandbox] &&
		     f->w->replies[i].client.peer.addr.family != ADDR_NONE;
	return n;
}

static void detach(struct fuzz *f)
{
	size_t sandbox = next(f) % WORLD_SANDBOXES;

	resolver_detach(f->w->resolver, &f->w->sandboxes[sandbox]);
	f->due[sandbox] = replies_to(f, sandbox);
}

/* A day of probes would show nothing that two minutes don't. */
static void wait_some(struct fuzz *f)
{
	int64_t ms = PICK(f, waits);

	world_wait(f->w, f->probes ? MIN(ms, 4 * (int64_t)PROBE_EVERY_MS) : ms);
}

static void step(struct fuzz *f)
{
	switch (next(f) % 16) {
	case 0:
		set_policy(f);
		break;
	case 1:
		raw_query(f);
		break;
	case 2:
		detach(f);
		break;
	case 3:
		f->w->fail_commits = next(f) % 4;
		break;
	case 4:
		f->w->dead_servers = next(f) & 7;
		break;
	case 5:
		lose(f);
		break;
	case 6:
		wait_some(f);
		break;
	case 7:
	case 8:
		resolver_parked_recheck(f->w->resolver, f->w->now_ms);
		resolver_flush(f->w->resolver, f->w->now_ms);
		break;
	case 9:
	case 10:
	case 11:
		respond(f);
		break;
	default:
		query(f);
	}
}

static void finish(struct fuzz *f)
{
	int64_t tries_ms = 2 * SERVERS * (f->probes ? PROBED_TRY_MS : RESOLVER_TRY_MS);

	resolver_parked_recheck(f->w->resolver, f->w->now_ms);
	resolver_flush(f->w->resolver, f->w->now_ms);
	world_wait(f->w, tries_ms);
	if (f->probes ? world_requests_open(f->w) > SERVERS
		      : world_requests_open(f->w) > 0 ||
				resolver_next_ms(f->w->resolver) != INT64_MAX)
		abort();
	for (size_t i = 0; i < WORLD_SANDBOXES; i++)
		if (replies_to(f, i) != f->due[i] || f->w->sandboxes[i].parked != 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct resolver_config config = {
		.key = { 1, 2 },
		.upstream_count = SERVERS,
		.try_ms = size & 1 ? PROBED_TRY_MS : 0,
		.probe_every_ms = size & 1 ? PROBE_EVERY_MS : 0,
	};
	struct fuzz f = { .w = world_new_with(&config),
			  .in = wire_reader(data, size),
			  .probes = size & 1 };

	if (!f.w)
		return 0;
	set_policy(&f);
	for (int i = 0; i < STEPS_MAX && wire_left(&f.in) > 0 &&
			f.w->reply_count + f.queries < WORLD_REPLIES_MAX / 2;
	     i++)
		step(&f);
	finish(&f);
	world_free(f.w);
	return 0;
}
