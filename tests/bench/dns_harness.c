// SPDX-License-Identifier: Apache-2.0
/* dns_harness - the DNS path of one sandbox and nothing else: the real policy, resolver,
 * filter and transports in one process, without control, launch and hardening.
 *
 *   dns_harness NETNS-FILE UPSTREAM POLICY-FILE
 *
 * The sandbox's sockets and ruleset are made in that network namespace, the upstream
 * sockets in the one it is started in. SIGTERM ends it; its counters go to stdout. */
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#include "policy/policy.h"
#include "resolver/dns_service.h"
#include "sandbox/learned.h"

static struct sandbox sandbox = { .id = 1, .state = SANDBOX_RUNNING };
static struct loop *loop;
static const struct hash_key key = { 1, 2 };

static int die(const char *what, const struct err *err)
{
	fprintf(stderr, "dns_harness: %s: %s\n", what, err->text);
	return 1;
}

static uint8_t *compile(const char *file, size_t *ret_size, struct err *err)
{
	static char text[65536];
	static struct faults faults;
	struct arena arena = { 0 };
	struct policy_reader reader = { .arena = &arena, .faults = &faults };
	struct policy policy = { 0 };
	FILE *f = fopen(file, "re");
	uint8_t *plan = NULL;
	size_t size;

	if (!f)
		return NULL;
	size = fread(text, 1, sizeof(text), f);
	fclose(f);
	if (policy_read(&reader, file, (struct text){ text, size }, POLICY_FORMAT_GUESS,
			&policy) < 0 ||
	    policy_compile(&policy, &plan, ret_size, err) < 0) {
		char line[FAULT_TEXT_SIZE];

		for (size_t i = 0; i < faults.count; i++)
			fprintf(stderr, "%s\n",
				fault_format(&faults.items[i], line, sizeof(line)));
		return NULL;
	}
	return plan;
}

static int install(struct err *err)
{
	struct filter_params params = { .generation = FILTER_GENERATION_FIRST,
					.direct_tcp = true };
	const struct ruleset *rules;
	struct arena arena = { 0 };
	int r = filter_conn_init(&sandbox.filter, sandbox.fds.fd[SANDBOX_FD_NETLINK],
				 err);

	if (r == 0)
		r = ruleset_build_owned(&sandbox.plan, &params, &arena, &rules, err);
	if (r == 0)
		r = filter_install(&sandbox.filter, rules, err);
	arena_done(&arena);
	return r;
}

/* Everything that has to be made in the sandbox's namespace. */
static int enter_and_open(const char *netns, struct err *err)
{
	const struct sandbox_ports ports = { FILTER_DNS_PORT, FILTER_RELAY_PORT };
	CLEAN(fd) int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CLEAN(fd) int inside = open(netns, O_RDONLY | O_CLOEXEC);
	int r;

	if (home < 0 || inside < 0 || setns(inside, CLONE_NEWNET) < 0)
		return err_set(err, -1, "no such namespace");
	r = sandbox_fds_open(&sandbox.fds, &ports, false, err);
	if (r == 0)
		r = install(err);
	if (setns(home, CLONE_NEWNET) < 0)
		return err_set(err, -1, "no way back");
	return r;
}

static void on_signal(struct loop_source *s, uint32_t events)
{
	loop_stop(loop);
}

static void on_turn_end(void *service)
{
	dns_service_flush(service);
}

static int serve(const struct endpoint *upstream, struct err *err)
{
	struct dns_service_config config = { .upstreams = upstream,
					     .upstream_count = 1,
					     .key = key };
	struct loop_source term = { .on_ready = on_signal };
	struct dns_service *service;
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	term.fd = signalfd(-1, &signals, SFD_CLOEXEC);
	config.loop = loop = loop_new();
	service = dns_service_new(&config, err);
	if (!service)
		return -1;
	if (loop_add(loop, &term, EPOLLIN) < 0 ||
	    dns_service_attach(service, &sandbox) < 0)
		return err_set(err, -1, "cannot attach");
	loop_on_turn_end(loop, on_turn_end, service);
	if (loop_run(loop) < 0)
		return err_set(err, -1, "the loop failed");
	dns_service_free(service);
	loop_free(loop);
	return 0;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	struct endpoint upstream;
	uint8_t *plan;
	size_t size;

	if (argc != 4 || !endpoint_parse(argv[2], strlen(argv[2]), 53, &upstream))
		return 2;
	plan = compile(argv[3], &size, &err);
	if (!plan || plan_open(plan, size, &sandbox.plan, &err) < 0)
		return die("policy", &err);
	sandbox.learned = learned_new(&sandbox.plan, &key);
	if (!sandbox.learned || enter_and_open(argv[1], &err) < 0)
		return die("sandbox", &err);
	if (serve(&upstream, &err) < 0)
		return die("service", &err);
	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		if (sandbox.counters[i] > 0)
			printf("%s %" PRIu64 "\n", sandbox_counter_name(i),
			       sandbox.counters[i]);
	return 0;
}
