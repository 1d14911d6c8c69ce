// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Under `dns: pinned` every name that the plan allows is resolved before anything runs,
 * by questions of the resolver's own (asks that have no client), and then every
 * `repin_ms`. A sandbox's pins are a table of names with what was last answered for A and
 * AAAA; its queries are answered from there, and nothing of them goes upstream.
 *
 *   an answer came     those that the name may teach go into the kernel; when that
 *                      has acknowledged them, they are what is pinned
 *   none came          what is pinned stays; the question is asked again, alone, after
 *                      AGAIN_MS, and then after twice as long each time
 *   an address is not  it is in no reply any more; when all who had it have
 *   in it any more     forgotten it (TTL and grace) it is taken out of the kernel: new
 *                      flows end there, open ones go on
 *
 * What is pinned is in the table of learned addresses under its name, as any answer's
 * addresses are, with a lifetime that is renewed at half of it: so the relay, a change of
 * the policy and a restart treat it alike. A reply goes the way of all replies, and would
 * commit again what the kernel has lost.
 *
 * Each answer is committed as it comes. A round is over when nothing is left to be asked
 * or answered; the first one also after RESOLVER_PIN_MS, and what comes later is pinned
 * all the same. A question for which the engine has no room is not lost: it waits until
 * another one of its sandbox ends, or for WAIT_PAUSE_MS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "resolver/resolver_internal.h"
#include "sandbox/budgets.h"
#include "sandbox/verdict.h"

enum {
	WAITING_MAX = 256,  /* questions under way; the others follow as these end */
	RENEW_AT_ONCE = 64, /* names in one go: the loop has others to serve */
	RENEW_PAUSE_MS = 5,
	WAIT_PAUSE_MS = 20,
	AGAIN_MS = 10 * 1000,
	SPREAD_PART = 8, /* of the time between rounds, by which sandboxes differ */
	LIFETIME_MORE_MS = 60 * 1000,
	LIFETIME_MAX_SEC = 7 * 24 * 3600, /* in the kernel, unless it is renewed */
};

struct pin_addr {
	struct addr addr;
	int64_t until_ms; /* 0: pinned; else it is in no reply, and goes then */
};

/* What is pinned of one type. */
struct pin_answer {
	uint8_t kind;  /* enum dns_answer_kind; DNS_ANSWER_BAD: there was none yet */
	uint8_t asked; /* a question is under way */
	uint16_t count;
	const char *lost;	/* why the last question has no answer; NULL: it has */
	const char *why;	/* there is no address in the answer; NULL: there are */
	struct pin_addr *addrs; /* owned */
};

enum { PIN_FAMILIES = 2 }; /* A, AAAA */

struct pin {
	struct dns_name name;
	struct pin_answer answers[PIN_FAMILIES];
};

struct pins {
	struct pins *next; /* in resolver.pinned */
	struct sandbox *sandbox;
	struct pin *items; /* owned */
	size_t count;
	uint32_t *slots; /* owned; 1 + index by hash of the name; 0: empty */
	size_t slot_mask;
	int64_t repin_ms;
	/* the round */
	size_t families;	   /* that are asked for: A, or both */
	size_t total, asked, left; /* questions: all, asked, without an end */
	size_t waiting;
	size_t lost;	     /* of those that have ended, without an answer */
	bool asking;	     /* in go_on(), further down the stack */
	bool is_whole;	     /* of all questions; else of those that were lost */
	bool reported;	     /* the last whole one is over */
	int64_t deadline_ms; /* of the first round; INT64_MAX when that is over */
	int64_t round_ms;    /* when the next one begins, or this one has to go on */
	int64_t whole_ms;    /* when the next whole one begins */
	int64_t again_ms;    /* how long after this one what it loses is asked again */
	/* the kernel */
	int64_t renew_ms, leave_ms; /* the next time that something is renewed, leaves */
	size_t renew_next;
	/* names of budgets that have begun anew */
	int64_t restore_ms; /* the next time; INT64_MAX: all of them are there */
	uint64_t restore_budgets;
	size_t restore_next;
	resolver_pinned_fn *on_pinned;
	void *data;
};

/* ---- the table of pins ---- */

/* Return: the slot of @n, or the empty one where it would stand. */
static uint32_t *slot_of(const struct hash_key *key, const struct pins *p,
			 const struct dns_name *n)
{
	size_t i = hash_bytes(key, n->bytes, n->size) & p->slot_mask;

	while (p->slots[i] != 0 && !dns_name_equal(&p->items[p->slots[i] - 1].name, n))
		i = (i + 1) & p->slot_mask;
	return &p->slots[i];
}

/* NULL: it isn't one of them, or @p is NULL. */
static struct pin *pins_find(const struct hash_key *key, const struct pins *p,
			     const struct dns_name *n)
{
	uint32_t slot = p ? *slot_of(key, p, n) : 0;

	return slot != 0 ? &p->items[slot - 1] : NULL;
}

/* NULL: @pin is, or @type is neither A nor AAAA. */
static struct pin_answer *pins_answer(struct pin *pin, uint16_t type)
{
	if (!pin || (type != DNS_TYPE_A && type != DNS_TYPE_AAAA))
		return NULL;
	return &pin->answers[type == DNS_TYPE_AAAA];
}

static void pins_free(struct pins *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		for (size_t f = 0; f < PIN_FAMILIES; f++)
			free(p->items[i].answers[f].addrs);
	free(p->items);
	free(p->slots);
	free(p);
}

/* What the plan says of a name, whatever is left of budgets: a name whose budget is used
 * up stays pinned, and is looked up with the others. So no query shows that a budget has
 * ended, or begins anew. */
static struct plan_verdict verdict_of(const struct sandbox *s, const struct dns_name *n)
{
	struct plan whole = s->plan;

	whole.spent = 0;
	return plan_match_name(&whole, n);
}

bool resolver_pin_is_allowed(const struct sandbox *s, const struct dns_name *n)
{
	return dns_name_is_host(n) && verdict_of(s, n).action == POLICY_ALLOW;
}

/* A table of the names that @s's plan allows, nothing pinned yet. Return: 0, -ENOMEM, or
 * -E2BIG (more than may be learned). */
static int pins_new(const struct hash_key *key, struct sandbox *s, struct pins **ret)
{
	size_t count = 0, size = 4;
	struct dns_name n;
	struct pins *p;

	for (uint32_t at = 0; plan_name_next(&s->plan, &at, &n);)
		count += resolver_pin_is_allowed(s, &n);
	if (count > plan_limit(&s->plan, LIMIT_LEARNED_NAMES))
		return -E2BIG;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	while (size < count * 2)
		size *= 2;
	p->slot_mask = size - 1;
	p->slots = calloc(size, sizeof(*p->slots));
	p->items = calloc(MAX(count, (size_t)1), sizeof(*p->items));
	if (!p->slots || !p->items) {
		pins_free(p);
		return -ENOMEM;
	}
	p->sandbox = s;
	for (uint32_t at = 0; plan_name_next(&s->plan, &at, &n);) {
		uint32_t *slot = slot_of(key, p, &n);

		if (*slot != 0 || !resolver_pin_is_allowed(s, &n))
			continue;
		p->items[p->count].name = n;
		*slot = (uint32_t)++p->count;
	}
	*ret = p;
	return 0;
}

/* ---- the pins of a sandbox ---- */

void resolver_pin_free(struct resolver *r, struct resolver_sandbox *g)
{
	struct pins **at = &r->pinned;

	while (*at && *at != g->pins)
		at = &(*at)->next;
	if (*at)
		*at = g->pins->next;
	pins_free(g->pins);
	g->pins = NULL;
}

/* ---- time ---- */

/* resolver.pin_next_ms is no later than what @p waits for. */
static void wake_for(struct resolver *r, const struct pins *p)
{
	r->pin_next_ms = MIN(r->pin_next_ms, p->round_ms);
	r->pin_next_ms = MIN(r->pin_next_ms, p->renew_ms);
	r->pin_next_ms = MIN(r->pin_next_ms, p->restore_ms);
	r->pin_next_ms = MIN(r->pin_next_ms, p->leave_ms);
	r->pin_next_ms = MIN(r->pin_next_ms, p->deadline_ms);
}

/* ---- the end of a round ---- */

static bool may_resolve_to(const struct sandbox *s, const struct plan_verdict *v,
			   const struct pin_addr *a)
{
	return a->until_ms == 0 && v->action == POLICY_ALLOW &&
	       !rebinding_fault(&s->plan, v, &a->addr);
}

/* Why a question of @pin has no answer; else, why it has no address; else NULL. @ret_has:
 * it has an address that @v lets it have. */
static const char *fault_of(const struct sandbox *s, const struct pin *pin,
			    const struct plan_verdict *v, bool *ret_has)
{
	const char *why = NULL;

	*ret_has = false;
	for (size_t f = 0; f < PIN_FAMILIES; f++) {
		const struct pin_answer *answer = &pin->answers[f];

		if (!why)
			why = answer->asked ? "no answer has come in time" : answer->lost;
		for (size_t i = 0; i < answer->count && !*ret_has; i++)
			*ret_has = may_resolve_to(s, v, &answer->addrs[i]);
	}
	for (size_t f = 0; f < PIN_FAMILIES && !why && !*ret_has; f++)
		why = pin->answers[f].why;
	return why || *ret_has ? why : "there was no time to ask";
}

static void report_round(struct pins *p)
{
	p->reported = true;
	p->deadline_ms = INT64_MAX;
	if (!p->on_pinned)
		return;
	for (size_t i = 0; i < p->count; i++) {
		const struct pin *pin = &p->items[i];
		struct plan_verdict v = verdict_of(p->sandbox, &pin->name);
		struct resolver_unpinned fault = {
			.name = &pin->name,
			.required = v.flags & PLAN_REQUIRED,
		};

		fault.why = fault_of(p->sandbox, pin, &v, &fault.stays);
		if (fault.why)
			p->on_pinned(p->data, &fault);
	}
	p->on_pinned(p->data, NULL);
}

/* ---- questions ---- */

static void question_ends(struct pins *p, struct pin_answer *answer, const char *lost)
{
	answer->asked = false;
	answer->lost = lost;
	p->lost += lost != NULL;
	p->waiting--;
	p->left--;
}

static void round_ends(struct pins *p, int64_t now_ms)
{
	p->round_ms = p->whole_ms;
	if (p->lost > 0) {
		p->round_ms = MIN(p->round_ms, now_ms + p->again_ms);
		p->again_ms *= 2;
	}
	if (!p->reported)
		report_round(p);
}

/* Return: false: there is no room. */
static bool ask_for(struct resolver *r, const struct pins *p, const struct dns_name *name,
		    uint16_t type, int64_t now_ms)
{
	struct resolver_ask *ask = resolver_ask_new(r, p->sandbox);

	if (!ask)
		return false;
	memset(ask, 0, sizeof(*ask));
	ask->client.sandbox = p->sandbox;
	ask->pin = true;
	ask->query.class = DNS_CLASS_IN;
	ask->query.type = type;
	ask->query.name = *name;
	return resolver_inflight_join(r, ask, now_ms);
}

/* Asking may fail at once, which ends here again. */
static void go_on(struct resolver *r, struct pins *p, int64_t now_ms)
{
	if (p->asking)
		return;
	p->asking = true;
	p->round_ms = INT64_MAX;
	while (p->asked < p->total && p->waiting < WAITING_MAX) {
		const size_t family = p->asked % p->families;
		struct pin *pin = &p->items[p->asked / p->families];
		struct pin_answer *answer = &pin->answers[family];

		p->asked++;
		if (!p->is_whole && !answer->lost) {
			p->left--;
			continue;
		}
		answer->asked = true;
		p->waiting++;
		if (!resolver_pin_is_allowed(p->sandbox, &pin->name)) {
			question_ends(p, answer, RESOLVER_PIN_DENIED);
			continue;
		}
		if (ask_for(r, p, &pin->name, family == 0 ? DNS_TYPE_A : DNS_TYPE_AAAA,
			    now_ms))
			continue;
		answer->asked = false;
		p->waiting--;
		p->asked--;
		p->round_ms = now_ms + WAIT_PAUSE_MS;
		break;
	}
	p->asking = false;
	if (p->left == 0)
		round_ends(p, now_ms);
}

static void start_round(struct resolver *r, struct pins *p, int64_t now_ms)
{
	p->is_whole = p->whole_ms <= now_ms;
	if (p->is_whole) {
		p->whole_ms = now_ms + p->repin_ms;
		p->again_ms = AGAIN_MS;
		p->reported = false;
		p->families = p->sandbox->ipv6 ? PIN_FAMILIES : 1;
	}
	p->asked = p->waiting = p->lost = 0;
	p->total = p->left = p->count * p->families;
	go_on(r, p, now_ms);
}

/* ---- answers ---- */

static uint32_t lifetime_ms(const struct pins *p)
{
	int64_t most = LIFETIME_MAX_SEC * INT64_C(1000);

	return (uint32_t)MIN(2 * p->repin_ms + LIFETIME_MORE_MS, most);
}

static struct learned_item item_of(const struct pins *p, const struct pin *pin,
				   const struct plan_verdict *v, const struct addr *a)
{
	return (struct learned_item){
		.name = &pin->name,
		.verdict = *v,
		.addr = *a,
		.ttl_sec = RESOLVER_PIN_TTL_SEC,
		.lifetime_ms = lifetime_ms(p),
	};
}

/* @a takes the place of what is pinned; what it lacks leaves. -ENOMEM: it doesn't. */
static int replace(struct pins *p, struct pin_answer *answer, const struct dns_answer *a,
		   int64_t now_ms)
{
	int64_t grace_sec = plan_limit(&p->sandbox->plan, LIMIT_GRACE_SEC);
	int64_t leave_ms = now_ms + (RESOLVER_PIN_TTL_SEC + grace_sec) * 1000;
	size_t count = a->kind == DNS_ANSWER_RECORDS ? a->addr_count : 0;
	struct pin_addr *addrs = calloc(count + answer->count + 1, sizeof(*addrs));

	if (!addrs)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		addrs[i].addr = a->addrs[i].addr;
	for (size_t i = 0; i < answer->count; i++) {
		struct pin_addr old = answer->addrs[i];
		size_t same = 0;

		while (same < a->addr_count &&
		       !addr_equal(&a->addrs[same].addr, &old.addr))
			same++;
		if (count > 0 && same < a->addr_count)
			continue;
		if (old.until_ms == 0)
			old.until_ms = leave_ms;
		p->leave_ms = MIN(p->leave_ms, old.until_ms);
		addrs[count++] = old;
	}
	free(answer->addrs);
	answer->addrs = addrs;
	answer->count = (uint16_t)count;
	answer->kind = (uint8_t)a->kind;
	return 0;
}

/* Return: why @a could not be pinned, or NULL. */
static const char *take(struct resolver *r, struct pins *p, struct pin *pin,
			struct pin_answer *answer, const struct resolver_ask *ask,
			const struct dns_answer *a, int64_t now_ms)
{
	struct learned_item items[DNS_ADDRESSES_MAX];
	const char *fault = a->kind == DNS_ANSWER_NXDOMAIN ? "the name does not exist"
							   : "it has no address";
	char reason[REASON_SIZE];
	uint32_t keep = 0;
	size_t n = 0;

	if (a->kind == DNS_ANSWER_RECORDS)
		keep = rebinding_check(ask, a, now_ms, reason, &fault);
	for (size_t i = 0; i < a->addr_count && keep >> i != 0; i++)
		if (keep & UINT32_C(1) << i)
			items[n++] = item_of(p, pin, &ask->verdict, &a->addrs[i].addr);
	/* What is pinned of a name opens nothing while the name's budget is used up. */
	if (n > 0 &&
	    plan_match_name(&p->sandbox->plan, &pin->name).action == POLICY_ALLOW &&
	    resolver_learn(r, p->sandbox, items, n, now_ms) < 0)
		return "the filter did not take its addresses";
	if (replace(p, answer, a, now_ms) < 0)
		return "out of memory";
	answer->why = n > 0 ? NULL : fault;
	return NULL;
}

void resolver_pin_ended(struct resolver *r, struct resolver_ask *ask,
			const struct dns_answer *a, const char *lost, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	struct pins *p = s->resolver->pins;
	struct pin *pin = pins_find(&r->key, p, &ask->query.name);
	struct pin_answer *answer = pins_answer(pin, ask->query.type);

	/* Is it still a question of ours? */
	if (!answer || !answer->asked || (a && s->state == SANDBOX_CLOSED)) {
		resolver_ask_release(r, ask);
		return;
	}
	if (a) {
		/* The plan may have changed since it was asked. */
		ask->verdict = verdict_of(s, &pin->name);
		lost = ask->verdict.action == POLICY_ALLOW
			       ? take(r, p, pin, answer, ask, a, now_ms)
			       : RESOLVER_PIN_DENIED;
	}
	resolver_ask_release(r, ask);
	question_ends(p, answer, lost);
	go_on(r, p, now_ms);
	wake_for(r, p);
}

/* ---- what the kernel has ---- */

static void renew_one(struct resolver *r, struct pins *p, const struct pin *pin,
		      int64_t now_ms)
{
	struct sandbox *s = p->sandbox;
	struct plan_verdict v = plan_match_name(&s->plan, &pin->name);
	struct learned_item items[DNS_ADDRESSES_MAX];

	for (size_t f = 0; f < PIN_FAMILIES; f++) {
		const struct pin_answer *answer = &pin->answers[f];
		size_t n = 0;

		for (size_t i = 0; i < answer->count && n < ARRAY_SIZE(items); i++)
			if (may_resolve_to(s, &v, &answer->addrs[i]))
				items[n++] = item_of(p, pin, &v, &answer->addrs[i].addr);
		/* What fails is made good by the next query, or the next time. */
		if (n > 0 && resolver_learn(r, s, items, n, now_ms) < 0)
			break;
	}
}

/* The other names are in the kernel. To renew them as well would be a transaction for
 * each name of the policy, as often as the sandbox uses a budget up. */
static void restore(struct resolver *r, struct pins *p, int64_t now_ms)
{
	const struct plan *plan = &p->sandbox->plan;
	size_t restored = 0;

	for (; p->restore_next < p->count && restored < RENEW_AT_ONCE;
	     p->restore_next++) {
		const struct pin *pin = &p->items[p->restore_next];
		const struct plan_verdict v = plan_match_name(plan, &pin->name);

		if (!(p->restore_budgets &
		      (budgets_of(plan, v.rule) | budgets_of(plan, PLAN_NO_RULE))))
			continue;
		renew_one(r, p, pin, now_ms);
		restored++;
	}
	p->restore_ms = now_ms + RENEW_PAUSE_MS;
	if (p->restore_next < p->count)
		return;
	p->restore_budgets = 0;
	p->restore_ms = INT64_MAX;
}

/* Take out of @answer what has left. */
static void drop_left(struct pins *p, const struct pin *pin, struct pin_answer *answer,
		      int64_t now_ms)
{
	size_t kept = 0;

	for (size_t i = 0; i < answer->count; i++) {
		struct pin_addr a = answer->addrs[i];

		if (a.until_ms != 0 && a.until_ms <= now_ms) {
			learned_forget(p->sandbox->learned, &pin->name, &a.addr, now_ms);
			continue;
		}
		if (a.until_ms != 0)
			p->leave_ms = MIN(p->leave_ms, a.until_ms);
		answer->addrs[kept++] = a;
	}
	answer->count = (uint16_t)kept;
}

void resolver_pin_tick(struct resolver *r, int64_t now_ms)
{
	for (struct pins *p = r->pinned; p; p = p->next) {
		/* A sandbox that resolves as it goes now keeps what it has. */
		if (plan_dns(&p->sandbox->plan) != POLICY_DNS_PINNED)
			p->round_ms = p->renew_ms = p->restore_ms = p->leave_ms =
				INT64_MAX;
		if (p->leave_ms <= now_ms) {
			p->leave_ms = INT64_MAX;
			for (size_t i = 0; i < p->count; i++)
				for (size_t f = 0; f < PIN_FAMILIES; f++)
					drop_left(p, &p->items[i],
						  &p->items[i].answers[f], now_ms);
			resolver_sweep(r, p->sandbox, now_ms);
		}
		if (p->renew_ms <= now_ms) {
			size_t end = MIN(p->renew_next + RENEW_AT_ONCE, p->count);

			while (p->renew_next < end)
				renew_one(r, p, &p->items[p->renew_next++], now_ms);
			p->renew_ms = now_ms + RENEW_PAUSE_MS;
			if (end == p->count) {
				p->renew_next = 0;
				p->renew_ms = now_ms + lifetime_ms(p) / 2;
			}
		}
		if (p->restore_ms <= now_ms)
			restore(r, p, now_ms);
		if (p->deadline_ms <= now_ms)
			report_round(p);
		if (p->round_ms <= now_ms && p->left > 0)
			go_on(r, p, now_ms);
		else if (p->round_ms <= now_ms)
			start_round(r, p, now_ms);
	}
	r->pin_next_ms = INT64_MAX;
	for (const struct pins *p = r->pinned; p; p = p->next)
		wake_for(r, p);
}

/* ---- public ---- */

void resolver_pin_answer(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	struct pin *pin = pins_find(&r->key, s->resolver->pins, &ask->query.name);
	const struct pin_answer *pinned = pins_answer(pin, ask->query.type);
	struct dns_answer *a = &r->answer;

	if (pinned && pinned->kind != DNS_ANSWER_BAD) {
		a->kind = (enum dns_answer_kind)pinned->kind;
		a->rcode = a->kind == DNS_ANSWER_NXDOMAIN ? DNS_NXDOMAIN : DNS_NOERROR;
		a->ad = false;
		a->ttl_sec = RESOLVER_PIN_TTL_SEC;
		a->chain_count = a->addr_count = 0;
		a->record_count = a->rdata_size = a->skipped = 0;
		for (size_t i = 0; i < pinned->count && a->addr_count < DNS_ADDRESSES_MAX;
		     i++)
			if (pinned->addrs[i].until_ms == 0)
				a->addrs[a->addr_count++] =
					(struct dns_answer_addr){ pinned->addrs[i].addr,
								  RESOLVER_PIN_TTL_SEC };
		resolver_deliver(r, ask, a, now_ms);
		return;
	}
	/* Other types than A and AAAA; and AAAA, where IPv6 has come since the last
	 * round. */
	if (pin && (!pinned || (ask->query.type == DNS_TYPE_AAAA &&
				s->resolver->pins->families < PIN_FAMILIES))) {
		s->counters[COUNT_QUERIES_UNSERVED]++;
		resolver_negative(r, ask, DNS_NOERROR, LOCAL_TTL_SEC);
	} else {
		resolver_fail(r, ask, DNS_EDE_NO_REACHABLE_AUTHORITY,
			      "nothing is pinned for the name (dns: pinned)");
	}
	resolver_ask_release(r, ask);
}

void resolver_pin_notify(struct resolver *r, struct sandbox *s)
{
	struct pins *p = s->resolver ? s->resolver->pins : NULL;

	if (p && p->reported)
		report_round(p);
}

void resolver_pin_restore(struct resolver *r, struct sandbox *s, uint64_t budgets,
			  int64_t now_ms)
{
	struct pins *p = s->resolver ? s->resolver->pins : NULL;

	if (!p || plan_dns(&s->plan) != POLICY_DNS_PINNED)
		return;
	p->restore_budgets |= budgets;
	p->restore_next = 0;
	p->restore_ms = now_ms;
	wake_for(r, p);
}

/* Sandboxes that begin together don't ask together for ever. Return: of @range. */
static int64_t spread(uint32_t id, int64_t range)
{
	return (int64_t)((uint64_t)range * (uint32_t)(id * 2654435769u) >> 32);
}

int resolver_pin(struct resolver *r, struct sandbox *s, int64_t repin_ms,
		 resolver_pinned_fn *on_pinned, void *data, int64_t now_ms)
{
	struct resolver_sandbox *g = resolver_sandbox_of(s);
	struct pins *p, *old;
	int error = g ? pins_new(&r->key, s, &p) : -ENOMEM;

	if (error < 0)
		return error;
	/* Never at once again. */
	p->repin_ms = repin_ms > 0 ? repin_ms : POLICY_REPIN_MS;
	p->repin_ms -= spread(s->id, p->repin_ms / SPREAD_PART);
	p->on_pinned = on_pinned;
	p->data = data;
	p->leave_ms = p->restore_ms = INT64_MAX;
	p->deadline_ms = now_ms + RESOLVER_PIN_MS;
	p->renew_ms = now_ms + lifetime_ms(p) / 2;
	old = g->pins;
	/* What is pinned of names that both tables have moves over. */
	for (size_t i = 0; old && i < old->count; i++) {
		struct pin *pin = pins_find(&r->key, p, &old->items[i].name);

		if (!pin)
			continue;
		memcpy(pin->answers, old->items[i].answers, sizeof(pin->answers));
		memset(old->items[i].answers, 0, sizeof(pin->answers));
		for (size_t n = 0; n < PIN_FAMILIES; n++)
			pin->answers[n].asked = false;
	}
	if (old)
		p->leave_ms = old->leave_ms;
	resolver_pin_free(r, g);
	g->pins = p;
	p->next = r->pinned;
	r->pinned = p;
	start_round(r, p, now_ms);
	wake_for(r, p);
	return 0;
}
