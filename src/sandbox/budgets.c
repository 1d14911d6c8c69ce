// SPDX-License-Identifier: Apache-2.0
#include "sandbox/budgets.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rate.h"
#include "sandbox/sandbox.h"

/* ---- budgets ---- */

struct account {
	uint64_t target; /* a hash of the rule's; that of all: 0 */
	uint64_t ports;	 /* the same of those that it opens */
	uint64_t sent, received;
	int64_t ends_ms; /* of the period; INT64_MAX: it has none; 0: none has begun */
	bool news;	 /* used up, and nobody was told */
	bool due;	 /* used up, and its flows wait to be cut */
};

enum { ANEW_BURST = 4096, ANEW_EVERY_MS = 16000 };

#define KEPT_MAGIC UINT64_C(0x3230677562696577) /* "weibug02" */

/* The copy. There are two: of another plan the other one is written, and is @current
 * when it is whole. */
struct kept_account {
	_Atomic uint64_t target, ports, sent, received;
	_Atomic int64_t ends_ms;
};

struct kept_accounting {
	uint64_t count;
	struct kept_account accounting[PLAN_BUDGETS_MAX];
};

struct kept {
	_Atomic uint64_t magic;
	_Atomic uint64_t current;
	struct kept_accounting of[2];
};
static_assert(sizeof(struct kept) <= BUDGETS_KEPT_SIZE, "the copy has room");

struct budgets {
	struct kept_accounting *kept; /* borrowed; NULL: nobody keeps them */
	struct rate anew;
	int64_t changed_ms; /* when budgets_hold() has changed something; 0: never */
	size_t count;
	struct account accounting[];
};

static bool is_over(const struct account *a, int64_t now_ms)
{
	return a->ends_ms <= now_ms;
}

static bool is_spent(const struct account *a, const struct plan_budget *b, int64_t now_ms)
{
	return !is_over(a, now_ms) && ((b->sent > 0 && a->sent >= b->sent) ||
				       (b->received > 0 && a->received >= b->received));
}

/* Of a period of @b that begins now. */
static int64_t period_end_ms(const struct plan_budget *b, int64_t now_ms)
{
	return b->per_sec > 0 ? now_ms + b->per_sec * INT64_C(1000) : INT64_MAX;
}

/* Rules of one target differ in their ports. One whose ports @old lacks counts on from
 * what is used most of that target, so that no budget begins anew by other ports. A
 * period that has begun ends when @b's would end that begins now, or before. */
static void find_before(struct account *a, const struct plan_budget *b,
			const struct account *old, size_t count, int64_t now_ms)
{
	const int64_t end_ms = period_end_ms(b, now_ms);
	bool has_ports = false;

	for (size_t i = 0; i < count; i++)
		has_ports |= old[i].target == a->target && old[i].ports == a->ports;
	for (size_t i = 0; i < count; i++) {
		const struct account *o = &old[i];

		if (o->target != a->target || (has_ports && o->ports != a->ports))
			continue;
		a->news |= o->news;
		a->due |= o->due;
		if (is_over(o, now_ms))
			continue;
		a->sent = MAX(a->sent, o->sent);
		a->received = MAX(a->received, o->received);
		a->ends_ms = MAX(a->ends_ms, o->ends_ms);
	}
	if (a->ends_ms > 0)
		a->ends_ms = end_ms == INT64_MAX ? end_ms : MIN(a->ends_ms, end_ms);
}

struct budgets *budgets_new(const struct budgets *old, struct plan *plan, int64_t now_ms)
{
	const size_t count = plan_budget_count(plan);
	const struct hash_key key = { 0 };
	struct budgets *b = NULL;

	plan->spent = count > 0 ? UINT64_MAX : 0;
	if (count > 0)
		b = calloc(1, sizeof(*b) + count * sizeof(*b->accounting));
	if (!b)
		return NULL;
	b->count = count;
	b->anew = old ? old->anew : (struct rate){ 0 };
	b->changed_ms = old ? old->changed_ms : 0;
	for (size_t i = 0; i < count; i++) {
		const struct plan_budget budget = plan_budget(plan, i);
		struct account *a = &b->accounting[i];

		if (budget.rule != PLAN_NO_RULE) {
			const struct plan_rule r = plan_rule(plan, budget.rule);
			size_t port_count;
			const struct plan_port_range *ports =
				plan_port_list(plan, r.port_list, &port_count);

			a->target = hash_bytes(&key, r.target, strlen(r.target)) | 1;
			a->ports = hash_bytes(&key, ports, port_count * sizeof(*ports));
		}
		if (old)
			find_before(a, &budget, old->accounting, old->count, now_ms);
	}
	plan->spent = budgets_spent(b, plan, now_ms);
	return b;
}

/* The end of the period last: with the one before, which is over, the sums don't count.
 */
static void keep_one(struct kept_account *k, const struct account *a)
{
	atomic_store(&k->sent, a->sent);
	atomic_store(&k->received, a->received);
	atomic_store(&k->ends_ms, a->ends_ms);
	atomic_store(&k->ports, a->ports);
	atomic_store(&k->target, a->target);
}

void budgets_keep(struct budgets *b, void *kept)
{
	struct kept *k = kept;
	uint64_t next;

	if (!b || !k)
		return;
	next = k->magic == KEPT_MAGIC && k->current == 0 ? 1 : 0;
	b->kept = &k->of[next];
	b->kept->count = b->count;
	for (size_t i = 0; i < b->count; i++)
		keep_one(&b->kept->accounting[i], &b->accounting[i]);
	atomic_store(&k->current, next);
	atomic_store(&k->magic, KEPT_MAGIC);
}

int budgets_lose(int fd)
{
	const uint64_t lost = ~KEPT_MAGIC;
	const ssize_t n = pwrite(fd, &lost, sizeof(lost), BUDGETS_KEPT_AT);

	return n == sizeof(lost) ? 0 : n < 0 ? -errno : -EIO;
}

static void use_up(struct account *a, const struct plan_budget *budget, int64_t now_ms)
{
	a->sent = a->received = UINT64_MAX;
	a->ends_ms = period_end_ms(budget, now_ms);
	a->news = true;
	a->due = budget->action == BUDGET_CUT;
}

struct budgets *budgets_adopt(const void *kept, struct plan *plan, int64_t now_ms)
{
	struct budgets *b = budgets_new(NULL, plan, now_ms);
	const struct kept *k = kept;
	const bool is_unused = k && k->magic == 0 && k->current == 0 &&
			       k->of[0].count == 0;
	const bool is_sound = k && k->magic == KEPT_MAGIC && k->current <= 1 &&
			      k->of[k->current].count <= PLAN_BUDGETS_MAX;
	struct account old[PLAN_BUDGETS_MAX] = { 0 };

	if (b && is_sound) {
		const struct kept_accounting *was = &k->of[k->current];

		for (uint64_t i = 0; i < was->count; i++) {
			const struct kept_account *a = &was->accounting[i];

			old[i] = (struct account){ .target = a->target,
						   .ports = a->ports,
						   .sent = a->sent,
						   .received = a->received,
						   .ends_ms = a->ends_ms };
		}
		/* A target that @kept lacks has come with a plan that was in force
		 * nowhere. */
		for (size_t i = 0; i < b->count; i++) {
			const struct plan_budget budget = plan_budget(plan, i);

			find_before(&b->accounting[i], &budget, old, was->count, now_ms);
		}
	}
	for (size_t i = 0; b && !is_sound && !is_unused && i < b->count; i++) {
		const struct plan_budget budget = plan_budget(plan, i);

		use_up(&b->accounting[i], &budget, now_ms);
	}
	if (b)
		plan->spent = budgets_spent(b, plan, now_ms);
	return b;
}

void budgets_free(struct budgets *b)
{
	free(b);
}

uint64_t budgets_left(const struct budgets *b, const struct plan *p, uint64_t which,
		      bool received, int64_t now_ms)
{
	uint64_t left = UINT64_MAX;

	for (; which != 0; which &= which - 1) {
		const size_t i = (size_t)__builtin_ctzll(which);
		const struct plan_budget budget = plan_budget(p, i);
		const uint64_t most = received ? budget.received : budget.sent;
		uint64_t used;

		if (budget.action != BUDGET_CUT)
			continue;
		if (!b || i >= b->count)
			return 0;
		used = received ? b->accounting[i].received : b->accounting[i].sent;
		if (is_over(&b->accounting[i], now_ms))
			used = 0;
		if (most > 0)
			left = MIN(left, used < most ? most - used : 0);
	}
	return left;
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

uint64_t budgets_of(const struct plan *p, uint32_t rule)
{
	const int index = plan_budget_of(p, rule);

	return index < 0 ? 0 : UINT64_C(1) << index;
}

bool budgets_count(struct budgets *b, const struct plan *p, uint64_t which, uint64_t sent,
		   uint64_t received, int64_t now_ms)
{
	bool any = false;

	if (!b || (sent == 0 && received == 0))
		return false;
	for (; which != 0; which &= which - 1) {
		const size_t i = (size_t)__builtin_ctzll(which);
		const struct plan_budget budget = plan_budget(p, i);
		struct account *a;
		bool before;

		if (i >= b->count)
			continue;
		a = &b->accounting[i];
		if (is_over(a, now_ms)) {
			a->sent = a->received = 0;
			a->ends_ms = period_end_ms(&budget, now_ms);
		}
		before = is_spent(a, &budget, now_ms);
		a->sent = sum_of(a->sent, sent);
		a->received = sum_of(a->received, received);
		if (b->kept)
			keep_one(&b->kept->accounting[i], a);
		if (before || !is_spent(a, &budget, now_ms))
			continue;
		a->news = true;
		a->due = budget.action == BUDGET_CUT;
		any = true;
	}
	return any;
}

uint64_t budgets_spent(const struct budgets *b, const struct plan *p, int64_t now_ms)
{
	uint64_t spent = b || plan_budget_count(p) == 0 ? 0 : UINT64_MAX;

	for (size_t i = 0; b && i < b->count; i++) {
		const struct plan_budget budget = plan_budget(p, i);

		if (budget.action == BUDGET_CUT &&
		    is_spent(&b->accounting[i], &budget, now_ms))
			spent |= UINT64_C(1) << i;
	}
	return spent;
}

uint64_t budgets_due(const struct budgets *b)
{
	uint64_t due = 0;

	for (size_t i = 0; b && i < b->count; i++)
		due |= (uint64_t)b->accounting[i].due << i;
	return due;
}

static void forget_due(struct budgets *b, uint64_t which)
{
	for (size_t i = 0; b && i < b->count; i++)
		if (which >> i & 1)
			b->accounting[i].due = false;
}

uint64_t budgets_hold(struct budgets *b, uint64_t closed, uint64_t spent, int64_t now_ms)
{
	forget_due(b, closed);
	spent |= budgets_due(b);
	if (!b || closed == spent)
		return spent;
	if (b->changed_ms != 0 && now_ms < b->changed_ms + BUDGETS_CHANGE_MS)
		return closed;
	for (uint64_t anew = closed & ~spent; anew != 0; anew &= anew - 1)
		if (!rate_take(&b->anew, 1, ANEW_EVERY_MS, ANEW_BURST, now_ms))
			spent |= anew & -anew;
	if (closed != spent)
		b->changed_ms = now_ms;
	forget_due(b, spent);
	return spent;
}

uint64_t budgets_take_news(struct budgets *b)
{
	uint64_t news = 0;

	for (size_t i = 0; b && i < b->count; i++) {
		news |= (uint64_t)b->accounting[i].news << i;
		b->accounting[i].news = false;
	}
	return news;
}

int64_t budgets_next_ms(const struct budgets *b, const struct plan *p, int64_t now_ms)
{
	int64_t next_ms = INT64_MAX;

	for (size_t i = 0; b && i < b->count; i++) {
		const struct plan_budget budget = plan_budget(p, i);
		const struct account *a = &b->accounting[i];

		if (a->ends_ms < INT64_MAX && is_spent(a, &budget, now_ms))
			next_ms = MIN(next_ms, a->ends_ms - now_ms);
	}
	return next_ms;
}

void sandbox_spend(struct sandbox *s, uint64_t which, uint64_t sent, uint64_t received,
		   int64_t now_ms)
{
	if (budgets_count(s->budgets, &s->plan, which, sent, received, now_ms) &&
	    s->on_spent)
		s->on_spent(s);
}

void sandbox_spend_all(struct sandbox *s, int64_t now_ms)
{
	struct budgets *b = s->budgets;
	bool any = false;

	for (size_t i = 0; b && i < b->count; i++) {
		const struct plan_budget budget = plan_budget(&s->plan, i);
		struct account *a = &b->accounting[i];

		if (budget.action != BUDGET_CUT || is_spent(a, &budget, now_ms))
			continue;
		use_up(a, &budget, now_ms);
		if (b->kept)
			keep_one(&b->kept->accounting[i], a);
		any = true;
	}
	if (any && s->on_spent)
		s->on_spent(s);
}

/* ---- ends ---- */

struct end {
	int64_t wall_ms; /* as the policy has it */
	int64_t now_ms;	 /* on the clock that never steps; INT64_MIN: it has passed */
};

struct grants {
	size_t count;
	struct end ends[];
};

static bool has_ended(const struct end *e, int64_t wall_ms, int64_t now_ms)
{
	return e->wall_ms <= wall_ms || e->now_ms <= now_ms;
}

struct grants *grants_new(const struct grants *old, struct plan *plan, int64_t wall_ms,
			  int64_t now_ms)
{
	const size_t count = plan_end_count(plan);
	struct grants *g = NULL;

	plan->ends_ahead = 0;
	if (count > 0)
		g = calloc(1, sizeof(*g) + count * sizeof(*g->ends));
	if (!g)
		return NULL;
	g->count = count;
	for (size_t i = 0; i < count; i++) {
		const int64_t end_ms = plan_end(plan, i);
		int64_t left_ms, at_ms, known_ms = INT64_MAX;

		/* What @old says of that end. */
		for (size_t j = 0; old && j < old->count && known_ms == INT64_MAX; j++)
			if (old->ends[j].wall_ms == end_ms)
				known_ms = old->ends[j].now_ms;

		if (__builtin_sub_overflow(end_ms, wall_ms, &left_ms) ||
		    __builtin_add_overflow(now_ms, left_ms, &at_ms))
			at_ms = INT64_MIN;
		g->ends[i] = (struct end){ end_ms, MIN(at_ms, known_ms) };
	}
	plan->ends_ahead = grants_ahead(g, wall_ms, now_ms);
	return g;
}

void grants_free(struct grants *g)
{
	free(g);
}

uint64_t grants_ahead(struct grants *g, int64_t wall_ms, int64_t now_ms)
{
	uint64_t ahead = 0;

	for (size_t i = 0; g && i < g->count; i++) {
		if (has_ended(&g->ends[i], wall_ms, now_ms))
			g->ends[i].now_ms = INT64_MIN;
		else
			ahead |= UINT64_C(1) << i;
	}
	return ahead;
}

int64_t grants_next_ms(const struct grants *g, int64_t wall_ms, int64_t now_ms)
{
	int64_t next_ms = INT64_MAX;

	for (size_t i = 0; g && i < g->count; i++) {
		const struct end *e = &g->ends[i];

		if (has_ended(e, wall_ms, now_ms))
			continue;
		next_ms = MIN(next_ms, e->wall_ms - wall_ms);
		next_ms = MIN(next_ms, e->now_ms - now_ms);
	}
	return next_ms;
}
