// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A header, then records of one size: the entry at index i of the table has record i, and
 * the pair at index j of what has ended has record j behind them. A
 * record counts while its state says that it is whole. It is written with the state
 * cleared before and set after, so that an engine that dies in between leaves no half of
 * one. `used` grows before a record behind it is written: what lies beyond was never
 * touched, and takes no memory.
 *
 * The reader believes nothing: each record is copied, then checked byte by byte,
 * then compared with the plan and the kernel. Rules and flags aren't in it, the plan
 * has them. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "sandbox/budgets.h"
#include "sandbox/learned_internal.h"

#define SNAPSHOT_MAGIC UINT64_C(0x3130676d69657277) /* "wreimg01" */

enum snapshot_state { SNAPSHOT_ABSENT = 0, SNAPSHOT_WHOLE = 0x656c6f77 };

struct snapshot_record {
	_Atomic uint32_t state; /* enum snapshot_state */
	uint8_t port_list;
	uint8_t family;
	uint8_t name_size, name_labels;
	_Atomic int64_t expires_ms; /* CLOCK_BOOTTIME; 0 of what has ended */
	_Atomic uint64_t serial;
	uint8_t addr[16];
	uint8_t name[DNS_NAME_MAX];
};

/* Records from @used on were never written. */
struct learned_records {
	uint64_t magic;
	_Atomic uint32_t used, past_used;
	struct snapshot_record records[LEARNED_SNAPSHOT_RECORDS];
	struct snapshot_record past[LEARNED_PAST_MAX];
};
static_assert(sizeof(struct learned_records) <= LEARNED_SNAPSHOT_SIZE - BUDGETS_KEPT_SIZE,
	      "the image has room");

/* ---- writing ---- */

static void store_time(struct snapshot_record *r, int64_t expires_ms, uint64_t serial)
{
	atomic_store_explicit(&r->expires_ms, expires_ms, memory_order_relaxed);
	atomic_store_explicit(&r->serial, serial, memory_order_relaxed);
}

static bool is_whole(const struct snapshot_record *r)
{
	return atomic_load_explicit(&r->state, memory_order_acquire) == SNAPSHOT_WHOLE;
}

static void set_absent(struct snapshot_record *r)
{
	atomic_store_explicit(&r->state, SNAPSHOT_ABSENT, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* Of @records[@i], as bytes of the image. */
static size_t offset_of(const struct learned_records *image,
			const struct snapshot_record *records, uint32_t i)
{
	return (size_t)((const uint8_t *)&records[i] - (const uint8_t *)image);
}

/* @to - @from is less than what one step has, or more. */
static bool reserve(struct learned_snapshot *s, size_t from, size_t to)
{
	from = from / LEARNED_SNAPSHOT_STEP * LEARNED_SNAPSHOT_STEP;
	to = (to + LEARNED_SNAPSHOT_STEP - 1) / LEARNED_SNAPSHOT_STEP *
	     LEARNED_SNAPSHOT_STEP;
	s->is_full = s->reserve && !s->reserve(s, from, to);
	return !s->is_full;
}

/* Room for @records[@i], when there is room for @count of them. */
static bool reserve_record(struct learned_snapshot *s,
			   const struct snapshot_record *records, uint32_t count,
			   uint32_t i)
{
	size_t from = offset_of(s->bytes, records, count);
	size_t to = offset_of(s->bytes, records, i + 1);

	/* The step that has the end of the last one is there. */
	if (count > 0)
		from = (from + LEARNED_SNAPSHOT_STEP - 1) / LEARNED_SNAPSHOT_STEP *
		       LEARNED_SNAPSHOT_STEP;
	return (count > 0 && to <= from) || reserve(s, from, to);
}

/* @i counts from now on. What lies there may be anything but half of ours. False: there
 * is no room for it. */
static bool grow_to(struct learned_snapshot *s, struct snapshot_record *records,
		    _Atomic uint32_t *used, uint32_t i)
{
	uint32_t count;

	if (s->is_fresh) {
		struct learned_records *image = s->bytes;

		if (!reserve(s, 0, offsetof(struct learned_records, records)))
			return false;
		image->magic = SNAPSHOT_MAGIC;
		s->is_fresh = false;
	}
	count = atomic_load_explicit(used, memory_order_relaxed);
	if (i < count)
		return true;
	if (!reserve_record(s, records, count, i))
		return false;
	for (; count <= i; count++)
		set_absent(&records[count]);
	atomic_store_explicit(used, i + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return true;
}

static void set_whole(struct snapshot_record *r)
{
	atomic_store_explicit(&r->state, SNAPSHOT_WHOLE, memory_order_release);
}

static void store_pair(struct snapshot_record *r, const struct addr *a,
		       const uint8_t *name, uint8_t size, uint8_t labels)
{
	r->family = a->family;
	memcpy(r->addr, a->bytes, sizeof(r->addr));
	r->name_size = size;
	r->name_labels = labels;
	memcpy(r->name, name, size);
}

static struct learned_records *snapshot_of(const struct learned_past *p)
{
	return p->snapshot ? p->snapshot->bytes : NULL;
}

void learned_snapshot_put(struct learned *l, uint32_t i)
{
	const struct entry *e = entry_at(l, i);
	const struct dns_name *n = &name_at(l, e->name)->name;
	uint8_t port_list = element_at(l, e->element)->port_list;
	struct learned_records *image = snapshot_of(&l->past);
	struct snapshot_record *r;

	if (!image || i >= LEARNED_SNAPSHOT_RECORDS || e->is_passing ||
	    !grow_to(l->past.snapshot, image->records, &image->used, i))
		return;
	r = &image->records[i];
	/* An entry that is there already stays the same name and address. */
	if (!is_whole(r) || r->port_list != port_list) {
		set_absent(r);
		store_pair(r, entry_addr(l, e), n->bytes, n->size, n->labels);
		r->port_list = port_list;
	}
	store_time(r, e->expires_ms, e->serial);
	set_whole(r);
}

void learned_snapshot_put_past(struct learned_past *p, uint32_t i)
{
	const struct past *item = past_at(p, i);
	struct learned_records *image = snapshot_of(p);
	struct snapshot_record *r;

	if (!image || i >= LEARNED_PAST_MAX ||
	    !grow_to(p->snapshot, image->past, &image->past_used, i))
		return;
	r = &image->past[i];
	if (!is_whole(r)) {
		store_pair(r, &item->addr, item->bytes, item->size, item->labels);
		r->port_list = 0;
	}
	store_time(r, 0, item->serial);
	set_whole(r);
}

/* What is fresh, or beyond what is used, holds nothing and may not be there. */
static void clear(const struct learned_past *p, struct snapshot_record *records,
		  const _Atomic uint32_t *used, uint32_t i)
{
	if (!p->snapshot->is_fresh &&
	    i < atomic_load_explicit(used, memory_order_relaxed))
		set_absent(&records[i]);
}

void learned_snapshot_clear(const struct learned *l, uint32_t i)
{
	struct learned_records *image = snapshot_of(&l->past);

	if (image && i < LEARNED_SNAPSHOT_RECORDS)
		clear(&l->past, image->records, &image->used, i);
}

void learned_snapshot_clear_past(const struct learned_past *p, uint32_t i)
{
	struct learned_records *image = snapshot_of(p);

	if (image && i < LEARNED_PAST_MAX)
		clear(p, image->past, &image->past_used, i);
}

/* How many records are said to be used, but not more than there can be. */
static uint32_t used_of(const struct learned_records *image)
{
	return MIN((uint32_t)image->used, (uint32_t)LEARNED_SNAPSHOT_RECORDS);
}

static uint32_t past_used_of(const struct learned_records *image)
{
	return MIN((uint32_t)image->past_used, (uint32_t)LEARNED_PAST_MAX);
}

/* The header can be read and written; of what is fresh nothing has to be. */
static bool open_header(struct learned_snapshot *s)
{
	return s->bytes &&
	       (s->is_fresh || reserve(s, 0, offsetof(struct learned_records, records)));
}

/* So can everything that is said to be used. */
static bool open_records(struct learned_snapshot *s)
{
	const struct learned_records *image = s->bytes;
	uint32_t used = used_of(image), past_used = past_used_of(image);

	return (used == 0 || reserve_record(s, image->records, 0, used - 1)) &&
	       (past_used == 0 || reserve_record(s, image->past, 0, past_used - 1));
}

static void clear_all(struct snapshot_record *records, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		set_absent(&records[i]);
}

/* An image of ours, empty. Return: whether it can be. */
static bool empty(struct learned_snapshot *s)
{
	struct learned_records *image = s->bytes;

	if (s->is_fresh)
		return true;
	if (image->magic != SNAPSHOT_MAGIC) {
		image->used = image->past_used = 0;
		image->magic = SNAPSHOT_MAGIC;
	}
	if (!open_records(s))
		return false;
	clear_all(image->records, used_of(image));
	clear_all(image->past, past_used_of(image));
	return true;
}

void learned_snapshot_keep(struct learned *l, struct learned_snapshot *s)
{
	l->past.snapshot = s && open_header(s) && empty(s) ? s : NULL;
	if (!l->past.snapshot)
		return;
	for (uint32_t i = 0; i < l->entries.used; i++)
		if (entry_at(l, i)->link.live)
			learned_snapshot_put(l, i);
	for (uint32_t i = l->past.oldest; i != NONE; i = past_at(&l->past, i)->newer)
		learned_snapshot_put_past(&l->past, i);
}

void learned_snapshot_move(struct learned *from, struct learned *to)
{
	struct learned_snapshot *s = from->past.snapshot;

	from->past.snapshot = NULL;
	learned_snapshot_keep(to, s);
}

/* ---- reading ---- */

/* What a record says, copied out. */
struct found {
	struct dns_name name;
	struct addr addr;
	uint8_t port_list;
	int64_t expires_ms;
};

/* Wire form, uncompressed, lower case, all of it: what the readers of names hold. */
static bool name_is_sound(const struct dns_name *n)
{
	unsigned int labels = 0;
	size_t at = 0;

	while (at < n->size && n->bytes[at] != 0) {
		size_t size = n->bytes[at];

		if (size > DNS_LABEL_MAX || at + 1 + size >= n->size)
			return false;
		for (size_t i = at + 1; i <= at + size; i++)
			if (n->bytes[i] >= 'A' && n->bytes[i] <= 'Z')
				return false;
		at += size + 1;
		labels++;
	}
	return at + 1 == n->size && labels == n->labels && dns_name_is_host(n);
}

static bool addr_is_sound(const struct addr *a)
{
	static const uint8_t zeros[12];

	return a->family == ADDR_V6 ||
	       (a->family == ADDR_V4 && memcmp(a->bytes + 4, zeros, 12) == 0);
}

/* False: it isn't whole, or not sound. */
static bool read_record(const struct snapshot_record *r, int64_t now_ms,
			struct found *ret)
{
	const int64_t longest_ms =
		(LEARNED_LIFETIME_MAX_SEC + LEARNED_GRACE_MAX_SEC) * INT64_C(1000);
	struct found f = { .name = { .size = r->name_size, .labels = r->name_labels } };

	static_assert(sizeof(r->name) >= UINT8_MAX, "whatever size a record says");
	if (!is_whole(r))
		return false;
	f.addr.family = r->family;
	memcpy(f.addr.bytes, r->addr, sizeof(r->addr));
	memcpy(f.name.bytes, r->name, f.name.size);
	f.port_list = r->port_list;
	f.expires_ms = atomic_load_explicit(&r->expires_ms, memory_order_relaxed);
	if (!name_is_sound(&f.name) || !addr_is_sound(&f.addr) ||
	    f.port_list >= PLAN_PORT_LISTS_MAX || f.expires_ms < 0 ||
	    f.expires_ms > now_ms + longest_ms)
		return false;
	*ret = f;
	return true;
}

struct position {
	uint64_t serial;
	const struct snapshot_record *record;
};

static int compare_positions(const void *a, const void *b)
{
	const struct position *x = a, *y = b;

	return x->serial < y->serial ? -1 : x->serial > y->serial;
}

/* Where whole records are, those that were learned first first. Return: how many. */
static size_t find_positions(const struct snapshot_record *records, uint32_t used,
			     struct position *ret)
{
	size_t count = 0;

	for (uint32_t i = 0; i < used; i++)
		if (is_whole(&records[i]))
			ret[count++] = (struct position){
				atomic_load_explicit(&records[i].serial,
						     memory_order_relaxed),
				&records[i],
			};
	qsort(ret, count, sizeof(*ret), compare_positions);
	return count;
}

static void adopt_past(struct learned *l, const struct found *f)
{
	struct plan_verdict v;

	if (learned_is_allowed(l->plan, &f->name, &f->addr, &v))
		learned_past_add(&l->past, &f->name, &f->addr,
				 learned_past_hash(hash_name(l, &f->name),
						   hash_addr(l, &f->addr)));
}

/* @left_ms: how long the kernel has it for. */
static bool adopt_entry(struct learned *l, const struct found *f, uint32_t left_ms,
			int64_t now_ms)
{
	struct learned_item item = { .name = &f->name, .addr = f->addr };

	if (left_ms == 0 || f->expires_ms <= now_ms) {
		adopt_past(l, f);
		return false;
	}
	item.lifetime_ms = (uint32_t)MIN(f->expires_ms - now_ms, (int64_t)left_ms);
	return learned_is_allowed(l->plan, &f->name, &f->addr, &item.verdict) &&
	       item.verdict.port_list == f->port_list &&
	       learned_insert(l, &item, now_ms) == 0;
}

size_t learned_snapshot_adopt(struct learned *l, struct learned_snapshot *s,
			      int64_t now_ms, learned_has_fn *has, void *data)
{
	const struct learned_records *image = s->bytes;
	CLEAN(mem) struct position *positions = NULL;
	size_t past, count, adopted = 0;
	uint32_t used, past_used;
	struct found f;

	/* Of elements that only the kernel remembers nothing is known: until they must
	 * have ended, what is learned anew may be there already. */
	l->doubt_until_ms =
		now_ms + LEARNED_SLACK_MS +
		(LEARNED_LIFETIME_MAX_SEC + LEARNED_GRACE_MAX_SEC) * INT64_C(1000);
	if (!open_header(s) || s->is_fresh || image->magic != SNAPSHOT_MAGIC ||
	    !open_records(s))
		return 0;
	used = used_of(image);
	past_used = past_used_of(image);
	positions = calloc((size_t)used + past_used + 1, sizeof(*positions));
	if (!positions)
		return 0;
	past = find_positions(image->past, past_used, positions);
	for (size_t i = 0; i < past; i++)
		if (read_record(positions[i].record, now_ms, &f))
			adopt_past(l, &f);
	count = find_positions(image->records, used, positions);
	for (size_t i = 0; i < count; i++)
		if (read_record(positions[i].record, now_ms, &f) &&
		    adopt_entry(l, &f, has(data, &f.addr, f.port_list), now_ms))
			adopted++;
	return adopted;
}
