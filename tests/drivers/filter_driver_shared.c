// SPDX-License-Identifier: Apache-2.0
/* filter_driver's commands for a namespace that is shared. GEN is a generation; FLAGS are
 * r (relay) d (redirect only) q (no port 443).
 *
 *     own MARK UID                 of Weir's packets, from the next "shared" on
 *     exempt ADDR, doh PREFIX      parameters of the next "shared"
 *     state learned|kept ADDR LIST MS COUNT   what the next "shared" starts with
 *     stateheld 4|6 udp|tcp PORT   the same
 *     clear                        forget those
 *     shared GEN FLAGS             replace what stands
 *     staged GEN FLAGS             the same, large sets loaded beforehand
 *     stageonly GEN FLAGS          those alone
 *     sharedverify GEN FLAGS
 *     sharedbench FLAGS COUNT      replace COUNT times, from generation 1 on: p50 max
 *                                  of the processor's time (others share the machine)
 *     stagebench FLAGS COUNT       "shared 1", then "staged" COUNT times: p50 max of one
 *                                  load, of the switch, of all together; four lines
 *     port hold|letgo 4|6 udp|tcp PORT
 *     naming owned|shared          which table the commands are about
 *     standing                     generation, and whether the table is ours
 *     learned LISTS                what the learned sets hold: ADDR|LIST|SECONDS
 *     die                          as if the process had, in the middle of a transaction
 *                                  that succeeds; the socket goes on
 *     remove */
#include "filter_driver.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "filter/nft.h"

enum { ITEMS_MAX = 10000, ADDRS_MAX = 16, TIMES_MAX = 1000 };

struct shared_state {
	uint32_t mark, uid;
	struct addr exempt[ADDRS_MAX];
	struct prefix doh[ADDRS_MAX];
	size_t exempt_count, doh_count;
	struct filter_learn learned[ITEMS_MAX], kept[ITEMS_MAX];
	struct filter_self_port held[ADDRS_MAX];
	size_t learned_count, kept_count, held_count;
};

static struct shared_state *state_of(struct driver *d)
{
	if (!d->shared) {
		d->shared = calloc(1, sizeof(*d->shared));
		if (!d->shared)
			abort();
		d->shared->mark = 0x77;
	}
	return d->shared;
}

static void on_own(struct driver *d, char **words)
{
	struct shared_state *s = state_of(d);

	s->mark = (uint32_t)strtoul(words[1], NULL, 0);
	s->uid = (uint32_t)strtoul(words[2], NULL, 0);
	answer(0, NULL);
}

static void on_exempt(struct driver *d, char **words)
{
	struct shared_state *s = state_of(d);

	answer(addr_parse(words[1], strlen(words[1]), &s->exempt[s->exempt_count++])
		       ? 0
		       : -EINVAL,
	       NULL);
}

static void on_doh(struct driver *d, char **words)
{
	struct shared_state *s = state_of(d);

	answer(prefix_parse(words[1], strlen(words[1]), true, &s->doh[s->doh_count++])
		       ? 0
		       : -EINVAL,
	       NULL);
}

static void on_state(struct driver *d, char **words)
{
	struct shared_state *s = state_of(d);
	bool kept = strcmp(words[1], "kept") == 0;
	struct filter_learn *items = kept ? s->kept : s->learned;
	size_t *used = kept ? &s->kept_count : &s->learned_count;
	struct addr a = { 0 };

	if (!addr_parse(words[2], strlen(words[2]), &a))
		return answer(-EINVAL, NULL);
	for (int i = 0; i < atoi(words[5]) && *used < ITEMS_MAX; i++) {
		items[(*used)++] = (struct filter_learn){
			.addr = a,
			.port_list = (uint8_t)atoi(words[3]),
			.lifetime_ms = (uint32_t)atoi(words[4]),
		};
		for (size_t k = addr_size(&a); k-- > 0 && ++a.bytes[k] == 0;)
			;
	}
	answer(0, NULL);
}

static struct filter_self_port held(char **words)
{
	return (struct filter_self_port){
		.family = words[0][0] == '4' ? ADDR_V4 : ADDR_V6,
		.protocol = words[1][0] == 't' ? IPPROTO_TCP : IPPROTO_UDP,
		.port = (uint16_t)atoi(words[2]),
	};
}

static void on_state_held(struct driver *d, char **words)
{
	struct shared_state *s = state_of(d);

	s->held[s->held_count++] = held(words + 1);
	answer(0, NULL);
}

static void on_clear(struct driver *d, char **words)
{
	struct shared_state *s = state_of(d);

	s->exempt_count = s->doh_count = 0;
	s->learned_count = s->kept_count = s->held_count = 0;
	answer(0, NULL);
}

static int build_shared(struct driver *d, int generation, const char *flags,
			struct arena *arena, const struct ruleset **ret, struct err *err)
{
	const struct shared_state *s = state_of(d);
	struct filter_shared_params params = {
		.generation = (uint16_t)generation,
		.redirect_only = strchr(flags, 'd'),
		.relay = strchr(flags, 'r'),
		.mark = s->mark,
		.uid = s->uid,
		.dns_port = 15353,
		.relay_port = 15354,
		.exempt = s->exempt,
		.exempt_count = s->exempt_count,
		.doh = s->doh,
		.doh_count = s->doh_count,
		.refuse_443 = strchr(flags, 'q'),
	};
	struct plan plan;
	int r = build_plan(d, &plan, err);

	return r < 0 ? r : ruleset_build_shared(&plan, &params, arena, ret, err);
}

static int replace_with(struct driver *d, const struct ruleset *rs, bool staged,
			struct err *err)
{
	const struct shared_state *s = state_of(d);
	const struct filter_state state = {
		.learned = s->learned,
		.learned_count = s->learned_count,
		.draining = s->kept,
		.draining_count = s->kept_count,
		.self_ports = s->held,
		.self_port_count = s->held_count,
		.staged = staged,
	};

	return filter_replace(&d->conn, rs, &state, err);
}

static int replace(struct driver *d, const struct ruleset *rs, struct err *err)
{
	return replace_with(d, rs, false, err);
}

static void on_shared(struct driver *d, char **words)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	struct err err = { 0 };
	int r = build_shared(d, atoi(words[1]), words[2], &arena, &rs, &err);

	if (r == 0)
		r = write_text(d, rs);
	if (r == 0)
		r = replace(d, rs, &err);
	answer(r, &err);
}

static void on_verify(struct driver *d, char **words)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	struct err err = { 0 };
	int r = build_shared(d, atoi(words[1]), words[2], &arena, &rs, &err);

	if (r == 0)
		r = filter_verify(&d->conn, rs, &err);
	answer(r, &err);
}

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void on_bench(struct driver *d, char **words)
{
	static int64_t times[TIMES_MAX];
	int count = MIN(atoi(words[2]), (int)TIMES_MAX);

	for (int i = 0; i < count; i++) {
		CLEAN(arena) struct arena arena = { 0 };
		const struct ruleset *rs;
		struct err err = { 0 };
		int64_t start;

		if (build_shared(d, i + 1, words[1], &arena, &rs, &err) < 0)
			return answer(-EINVAL, &err);
		start = cpu_ns();
		if (replace(d, rs, &err) < 0)
			return answer(-EINVAL, &err);
		times[i] = cpu_ns() - start;
	}
	print_times(times, count);
}

/* How long each call took. */
struct stage_times {
	int64_t one[TIMES_MAX], all[TIMES_MAX], end[TIMES_MAX];
	int one_count, count;
};

static int stage(struct driver *d, const struct ruleset *rs, struct stage_times *t)
{
	struct filter_staging progress = { 0 };
	int r = 1;

	while (r == 1) {
		int64_t start = cpu_ns();

		r = filter_stage(&d->conn, rs, &progress);
		if (t->one_count < TIMES_MAX)
			t->one[t->one_count++] = cpu_ns() - start;
	}
	return r;
}

static int stage_and_switch(struct driver *d, int generation, const char *flags,
			    bool switches, struct stage_times *t, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = build_shared(d, generation, flags, &arena, &rs, err);
	int64_t start = cpu_ns(), middle;

	if (r == 0)
		r = stage(d, rs, t);
	middle = cpu_ns();
	if (r == 0 && switches)
		r = replace_with(d, rs, true, err);
	t->end[t->count] = cpu_ns() - middle;
	t->all[t->count++] = cpu_ns() - start;
	return r;
}

static void on_staged(struct driver *d, char **words)
{
	static struct stage_times t;
	struct err err = { 0 };

	t.one_count = t.count = 0;
	answer(stage_and_switch(d, atoi(words[1]), words[2],
				strcmp(words[0], "staged") == 0, &t, &err),
	       &err);
}

static void on_stage_bench(struct driver *d, char **words)
{
	static struct stage_times t;
	char first[] = "1", *line[] = { words[0], first, words[1] };
	struct err err = { 0 };

	t.one_count = t.count = 0;
	on_shared(d, line);
	for (int i = 0; i < MIN(atoi(words[2]), (int)TIMES_MAX); i++)
		if (stage_and_switch(d, i + 2, words[1], true, &t, &err) < 0)
			return answer(-EINVAL, &err);
	print_times(t.one, t.one_count);
	print_times(t.end, t.count);
	print_times(t.all, t.count);
}

static void on_port(struct driver *d, char **words)
{
	struct filter_self_port h = held(words + 2);

	answer(filter_self_port_set(&d->conn, &h, strcmp(words[1], "hold") == 0), NULL);
}

static void on_naming(struct driver *d, char **words)
{
	d->conn.naming = strcmp(words[1], "shared") == 0 ? FILTER_NAMES_SHARED
							 : FILTER_NAMES_OWNED;
	answer(0, NULL);
}

static void on_standing(struct driver *d, char **words)
{
	struct filter_said said = { 0 };
	int r = filter_standing(&d->conn, &said);

	if (r < 0)
		answer(r, NULL);
	else
		printf("ok %u %s\n", said.generation, d->conn.owner ? "ours" : "free");
}

static void print_learned(void *data, uint16_t id, const struct filter_learn *item)
{
	char text[ADDR_TEXT_SIZE];

	printf(" %s|%u|%u", addr_format(&item->addr, text), item->port_list,
	       (item->lifetime_ms + 500) / 1000);
}

static void on_learned(struct driver *d, char **words)
{
	printf("ok");
	if (filter_learned_read(&d->conn, (size_t)atoi(words[1]), print_learned, NULL) <
	    0)
		printf(" failed");
	printf("\n");
}

static void on_die(struct driver *d, char **words)
{
	const struct filter_self_port h = { ADDR_V4, IPPROTO_UDP, 1 };
	struct nl_writer w = nl_writer(NULL, 0, 1);
	enum filter_naming naming = d->conn.naming;
	struct err err = { 0 };
	int r;

	nl_batch(&w);
	set_put_self_ports(&w, naming, true, &h, 1);
	nl_batch_end(&w);
	r = send(d->conn.fd, w.bytes, w.size, 0) < 0 ? -errno : 0;
	nl_writer_done(&w);
	if (r == 0)
		r = filter_conn_init(&d->conn, d->conn.fd, &err);
	d->conn.naming = naming;
	answer(r, &err);
}

static void on_remove(struct driver *d, char **words)
{
	struct err err = { 0 };

	answer(filter_remove(&d->conn, &err), &err);
}

const struct command shared_commands[] = {
	{ "own", 3, on_own },
	{ "exempt", 2, on_exempt },
	{ "doh", 2, on_doh },
	{ "state", 6, on_state },
	{ "stateheld", 4, on_state_held },
	{ "clear", 1, on_clear },
	{ "shared", 3, on_shared },
	{ "sharedverify", 3, on_verify },
	{ "sharedbench", 3, on_bench },
	{ "staged", 3, on_staged },
	{ "stageonly", 3, on_staged },
	{ "stagebench", 3, on_stage_bench },
	{ "port", 5, on_port },
	{ "naming", 2, on_naming },
	{ "standing", 1, on_standing },
	{ "learned", 2, on_learned },
	{ "die", 1, on_die },
	{ "remove", 1, on_remove },
	{ NULL, 0, NULL },
};
