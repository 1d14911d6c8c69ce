// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The engine is never trusted to stand: whatever it does to the kernel is one transaction
 * that leaves a whole ruleset behind, and all that a successor needs is in the keeper's
 * hands (descriptors, plan) or in the image (what was learned).
 *
 *   first start    the ruleset of the plan, generation one after whatever stood
 *   restart        the image's entries that the kernel still has; then the ruleset anew,
 *                  with them, under the next generation: the ports that the dead engine
 *                  held are not exempt any more
 *   change         sandbox_change(): plan, learned addresses and flows in one step
 *   every 50 ms    the kernel's generation id is held against our own count of
 *                  transactions; when others have changed something, our ruleset is read
 *                  back, and put back if it is not as it was */
#include "main/shared_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "ipc/plan_file.h"
#include "main/harden.h"
#include "net/link.h"
#include "sandbox/change.h"
#include "sandbox/learned.h"

enum {
	ELEMENTS_MAX = 16384, /* that the kernel still has, when adopting */
	READ_TRIES = 8,
};

/* What the kernel's learned sets hold, sorted. */
struct standing_element {
	struct addr addr;
	uint8_t port_list;
	uint32_t left_ms; /* not compared */
};

struct standing_elements {
	struct standing_element *items;
	size_t count, capacity;
};

static int compare_elements(const void *a, const void *b)
{
	const struct standing_element *x = a, *y = b;
	int r = memcmp(&x->addr, &y->addr, sizeof(x->addr));

	return r ? r : x->port_list - y->port_list;
}

static void on_element(void *data, const struct addr *a, uint8_t port_list,
		       uint32_t left_ms)
{
	struct standing_elements *e = data;

	if (e->count < e->capacity)
		e->items[e->count++] = (struct standing_element){ .addr = *a,
								  .port_list = port_list,
								  .left_ms = left_ms };
}

static uint32_t has_element(void *data, const struct addr *a, uint8_t port_list)
{
	const struct standing_elements *e = data;
	const struct standing_element key = { .addr = *a, .port_list = port_list };
	const struct standing_element *found =
		bsearch(&key, e->items, e->count, sizeof(key), compare_elements);

	return found ? found->left_ms : 0;
}

/* What the engine before us had learned, as far as the kernel bears it out. */
static void adopt(struct shared *e)
{
	struct sandbox *s = &e->core.sandbox;
	struct standing_elements have = { .capacity = ELEMENTS_MAX };
	size_t lists = plan_port_list_count(&s->plan);
	int r = -EAGAIN;

	have.items = calloc(have.capacity, sizeof(*have.items));
	if (!have.items)
		return;
	/* Others may change tables of their own meanwhile. */
	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++) {
		have.count = 0;
		r = filter_learned_read(&s->filter, lists, on_element, &have);
	}
	if (r == 0) {
		qsort(have.items, have.count, sizeof(*have.items), compare_elements);
		e->standing.adopted = (uint32_t)learned_image_adopt(
			s->learned, e->image, loop_now_ms(e->core.loop), has_element,
			&have);
		s->counters[COUNT_ADOPTED] += e->standing.adopted;
	}
	free(have.items);
}

static int enforce(struct shared *e, struct err *err)
{
	struct sandbox *s = &e->core.sandbox;
	uint16_t standing = 0;
	int r = filter_standing(&s->filter, &standing);

	if (r < 0)
		return err_sys(err, r, "cannot ask for the rules that stand");
	if (e->config.restarted && standing != 0)
		adopt(e);
	/* Marks of another policy must not pass for this one's. */
	s->shared_params.generation = standing;
	r = sandbox_install(s, &e->plan, err);
	if (r == 0)
		r = sandbox_verify(s, err);
	if (r == 0)
		shared_remember_ruleset(e);
	return r;
}

static int prepare_sandbox(struct shared *e, struct err *err)
{
	struct sandbox *s = &e->core.sandbox;
	int r;

	s->plan = e->plan;
	s->fds = e->config.fds;
	s->shared = true;
	s->shared_params = e->config.filter;
	s->shared_params.redirect_only = e->config.enforce == ENFORCED_REDIRECT;
	s->relay = e->config.filter.relay;
	s->direct_udp = true;
	s->on_event = shared_on_event;
	s->on_event_data = e;
	s->on_answered = shared_on_answered;
	s->on_answered_data = e;
	r = filter_conn_init(&s->filter, TAKE_FD(s->fds.fd[SANDBOX_FD_NETLINK]), err);
	if (r < 0)
		return r;
	s->filter.naming = FILTER_NAMES_SHARED;
	s->learned = learned_new(&s->plan, &e->core.key);
	if (!s->learned)
		return err_set(err, -ENOMEM, "out of memory");
	shared_look_for_ipv6(e);
	return 0;
}

static int stand(struct shared *e, struct err *err)
{
	struct err nflog = { 0 };
	int r = prepare_sandbox(e, err);

	if (r == 0 && e->config.enforce != ENFORCED_NOTHING)
		r = enforce(e, err);
	if (r < 0)
		return r;
	learned_image_keep(e->core.sandbox.learned, e->image);
	r = engine_core_serve(&e->core, err);
	if (r < 0)
		return r;
	/* Without it refusals are not seen, but refused all the same. */
	e->standing.nflog = e->config.enforce != ENFORCED_NOTHING &&
			    engine_core_watch_refused(&e->core, &nflog) == 0;
	e->core.sandbox.state = SANDBOX_RUNNING;
	r = shared_watch(e);
	return r < 0 ? err_sys(err, r, "cannot watch the filter") : 0;
}

static int map_image(struct shared *e, struct err *err)
{
	e->image = mmap(NULL, LEARNED_IMAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
			e->config.image_fd, 0);
	return e->image == MAP_FAILED
		       ? err_sys(err, -errno, "cannot map what was learned")
		       : 0;
}

static int shared_init(struct shared *e, struct err *err)
{
	const struct shared_config *c = &e->config;
	const bool exempt = c->enforce != ENFORCED_NOTHING;
	int r = harden_limits(err);

	if (exempt)
		sandbox_own_ports(&e->core.sandbox, c->filter.mark);
	const struct dns_service_config dns = {
		.upstreams = c->upstreams,
		.upstream_count = c->upstream_count,
		.own = e->core.sandbox.own,
		.try_ms = c->try_ms,
		.probe_every_ms = c->probe_every_ms,
		.probe_name = c->probe_name,
		.on_trouble = shared_on_trouble,
		.on_trouble_data = e,
	};
	if (r == 0)
		r = plan_file_map(c->plan_fd, &e->plan, err);
	if (r == 0)
		r = map_image(e, err);
	if (r == 0)
		r = engine_core_init(&e->core, &dns, err);
	if (r < 0)
		return r;
	return harden_engine(exempt ? UINT64_C(1) << CAP_NET_ADMIN : 0, e->core.missing,
			     err);
}

static int watch_keeper(struct shared *e)
{
	e->from_keeper = (struct loop_source){ .fd = e->config.keeper_fd,
					       .on_ready = shared_on_keeper };
	return loop_add(e->core.loop, &e->from_keeper, EPOLLIN);
}

static void fail(struct shared *e, const char *text)
{
	struct ipc_message m = { .type = IPC_FAILED };

	snprintf(m.text, sizeof(m.text), "%s", text);
	(void)!ipc_send(e->config.keeper_fd, &m, NULL, 0);
}

static int keep_descriptors(struct shared_config *c)
{
	int *keep[3 + SANDBOX_FD_COUNT] = { &c->keeper_fd, &c->plan_fd, &c->image_fd };

	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		keep[3 + i] = &c->fds.fd[i];
	return engine_keep_only(keep, ARRAY_SIZE(keep));
}

static void shared_run(const struct shared_config *config, pid_t keeper)
{
	struct shared *e = calloc(1, sizeof(*e));
	struct err err = { 0 };
	int r;

	prctl(PR_SET_NAME, "weir-engine");
	if (!e || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != keeper)
		return;
	engine_reset_signals();
	e->config = *config;
	e->standing.enforced = (uint8_t)config->enforce;
	e->from_control.fd = -1;
	for (size_t i = 0; i < LENT_MAX; i++)
		e->lent[i].fd = -1;
	e->core.sandbox.filter.fd = -1;
	r = keep_descriptors(&e->config);
	if (r < 0)
		err_sys(&err, r, "cannot set the engine apart");
	else
		r = shared_init(e, &err);
	if (r == 0)
		r = stand(e, &err);
	if (r < 0) {
		fail(e, err.text);
		return;
	}
	snprintf(e->standing.lacking, sizeof(e->standing.lacking), "%s", e->core.missing);
	r = watch_keeper(e);
	if (r < 0) {
		fail(e, strerror(-r));
		return;
	}
	shared_tell_standing(e, IPC_STANDS, true);
	(void)!loop_run(e->core.loop);
}

pid_t shared_start(const struct shared_config *config, struct err *err)
{
	pid_t keeper = getpid();
	pid_t pid = fork();

	if (pid < 0)
		return err_sys(err, -errno, "cannot start the engine");
	if (pid == 0) {
		shared_run(config, keeper);
		/* No cleanup: the kernel takes everything back, but the rules. */
		_exit(0);
	}
	return pid;
}
