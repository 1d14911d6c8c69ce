// SPDX-License-Identifier: Apache-2.0
/* engine_driver - stands in for the daemon and control of `weir daemon`, before the real
 * engine: it starts one, gives it sandboxes of the host's own network, and says what it
 * answers. A command a line; the answer is one line, "ok …" or why not.
 *
 *     start SERVER             fork an engine, which asks SERVER, and give it the host
 *     kill                     SIGKILL; "start" gives its successor the same descriptors
 *     attach ID WHO FILE FLAGS WHO: cgroup:ID:LEVEL or uid:UID; FILE: a policy; FLAGS:
 *                              r, it was guarded before; m, as another cgroup; p, the
 *                              self-test comes
 *     run ID                   it has passed
 *     load                     the host's table is to stand
 *     change ID FILE           another policy
 *     begin ID FILE            the same, and nobody waits for the answer
 *     detach ID, forget ID
 *     stats ID                 NAME=VALUE of the counters that are not zero; 0: of all
 *     events                   ID|ACTION|LAYER|ADDRESS|PORT|REASON, of those since then
 *     tamper                   with the socket that owns the table, delete it
 *     bench FIRST COUNT FILE   attach COUNT cgroups that nobody is in: p50 p99 max, us
 *     engine                   its process id */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <linux/netfilter/nf_tables.h>

#include "common.h"
#include "engine/engine.h"
#include "filter/host.h"
#include "filter/message.h"
#include "filter/nft.h"
#include "policy/policy.h"
#include "sandbox/learned.h"
#include "sandbox/plan_file.h"
#include "sandbox/sandbox.h"

enum {
	IDS = 65536,
	WORDS_MAX = 8,
	LINE_SIZE = 1024,
	EVENTS_MAX = 4096,
	ANSWER_MS = 20000,
	DNS_PORT = 15353,
	RELAY_PORT = 15354,
};

struct driver {
	pid_t engine;
	int channel, control; /* to the engine */
	struct sandbox_fds fds;
	int conntrack_fd;
	int images[IDS]; /* -1: none */
	struct event events[EVENTS_MAX];
	size_t event_count;
};

static void answer(int r, const struct err *err)
{
	if (r < 0 && err && err->text[0])
		printf("%s\n", err->text);
	else if (r < 0)
		printf("%s\n", strerror(-r));
	else
		printf("ok\n");
}

/* ---- plans ---- */

static int load_plan(const char *path, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) struct faults *faults = calloc(1, sizeof(*faults));
	CLEAN(mem) char *text = calloc(1, POLICY_TEXT_MAX);
	CLEAN(mem) uint8_t *bytes = NULL;
	struct policy_reader reader = { .arena = &arena, .faults = faults };
	struct policy policy = { 0 };
	FILE *f = fopen(path, "re");
	size_t size;
	int r;

	if (!f)
		return err_sys(err, -errno, "cannot open '%s'", path);
	size = fread(text, 1, POLICY_TEXT_MAX - 1, f);
	fclose(f);
	r = policy_read(&reader, path, text_of(text), POLICY_FORMAT_GUESS, &policy);
	if (r < 0)
		return err_set(err, r, "%s", faults->items[0].text);
	faults_done(faults);
	r = policy_compile(&policy, &bytes, &size, err);
	return r < 0 ? r : plan_file_make(bytes, size, err);
}

/* ---- what the engine says ---- */

static void keep_event(struct driver *d, const struct ipc_message *m)
{
	if (m->type == IPC_EVENT && d->event_count < EVENTS_MAX)
		d->events[d->event_count++] = m->event;
}

/* The next one that is no event, over @fd. */
static int hear(struct driver *d, int fd, struct ipc_message *m, int wait_ms)
{
	size_t count = 0;
	int r = 0;

	do {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, wait_ms) <= 0)
			return -ETIMEDOUT;
		r = ipc_receive(fd, m, NULL, 0, &count);
		if (r == 0)
			keep_event(d, m);
	} while (r == 0 && (m->type == IPC_EVENT || m->type == IPC_ANSWERED ||
			    m->type == IPC_TROUBLE));
	return r;
}

static int hear_answer(struct driver *d, uint32_t wanted, struct err *err)
{
	struct ipc_message back;
	int r = hear(d, d->channel, &back, ANSWER_MS);

	if (r < 0)
		return err_sys(err, r, "cannot hear the engine");
	if (back.type != wanted)
		return err_set(err, -EPERM, "refused: %s", back.text);
	if (wanted != IPC_ACTIVE && back.text[0])
		return err_set(err, -EPERM, "%s", back.text);
	return 0;
}

static int ask(struct driver *d, const struct ipc_message *m, uint32_t wanted,
	       struct err *err)
{
	int r = ipc_send(d->channel, m, NULL, 0);

	return r < 0 ? err_sys(err, r, "cannot send") : hear_answer(d, wanted, err);
}

/* ---- the engine ---- */

static int open_host(struct driver *d, struct err *err)
{
	const struct sandbox_ports ports = { DNS_PORT, RELAY_PORT };
	int r;

	if (d->conntrack_fd >= 0)
		return 0;
	r = sandbox_fds_open(&d->fds, &ports, true, err);
	if (r < 0)
		r = sandbox_fds_open(&d->fds, &ports, false, err);
	return r < 0 ? r : sandbox_netlink_open(&d->conntrack_fd, err);
}

static int give_host(struct driver *d)
{
	struct ipc_message m = { .type = IPC_HOST, .host = { DNS_PORT, RELAY_PORT } };
	struct ipc_fds fds;

	ipc_fds_init(&fds, &d->fds);
	fds.fd[IPC_FD_CONNTRACK] = d->conntrack_fd;
	return ipc_send_fds(d->channel, &m, &fds);
}

static int give_peer(struct driver *d)
{
	const struct ipc_message m = { .type = IPC_PEER };
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	r = ipc_send(d->channel, &m, &pair[1], 1);
	close(pair[1]);
	d->control = pair[0];
	return r;
}

static void on_start(struct driver *d, char **words)
{
	struct endpoint server = { .port = 53 };
	struct engine_config c = { .attach_fd = -1,
				   .enforce = ENFORCED_FILTER,
				   .filter = { .relay = true,
					       .dns_port = DNS_PORT,
					       .relay_port = RELAY_PORT },
				   .repin_ms = POLICY_REPIN_MS,
				   .upstreams = &server,
				   .upstream_count = 1 };
	struct err err = { 0 };
	struct ipc_message m;
	int pair[2], r = open_host(d, &err);

	if (r < 0 || !addr_parse(words[1], strlen(words[1]), &server.addr) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return answer(r < 0 ? r : -EINVAL, &err);
	ipc_fds_init(&c.fds, NULL);
	c.supervisor_fd = pair[1];
	d->channel = pair[0];
	fflush(stdout);
	d->engine = engine_start(&c, &err);
	close(pair[1]);
	r = hear(d, d->channel, &m, ANSWER_MS);
	if (r == 0 && m.type != IPC_READY)
		r = err_set(&err, -EPERM, "%s", m.text);
	if (r == 0)
		r = give_peer(d);
	if (r == 0)
		r = give_host(d);
	answer(r, &err);
}

static void on_kill(struct driver *d, char **words)
{
	kill(d->engine, SIGKILL);
	waitpid(d->engine, NULL, 0);
	close(d->channel);
	close(d->control);
	answer(0, NULL);
}

static void on_engine(struct driver *d, char **words)
{
	printf("ok %d\n", (int)d->engine);
}

/* ---- sandboxes ---- */

static int snapshot_of(struct driver *d, uint32_t id)
{
	if (d->images[id] < 0) {
		d->images[id] = memfd_create("image", MFD_CLOEXEC);
		if (d->images[id] < 0 ||
		    ftruncate(d->images[id], LEARNED_SNAPSHOT_SIZE) < 0)
			return -errno;
	}
	return d->images[id];
}

static int attach(struct driver *d, uint32_t id, const struct member *who, int plan,
		  const char *flags, struct err *err)
{
	struct ipc_message m = { .type = IPC_ATTACH, .sandbox = id };
	struct ipc_fds fds;
	int r;

	ipc_fds_init(&fds, NULL);
	fds.fd[IPC_FD_PLAN] = plan;
	fds.fd[IPC_FD_SNAPSHOT] = snapshot_of(d, id);
	if (fds.fd[IPC_FD_SNAPSHOT] < 0)
		return err_sys(err, fds.fd[IPC_FD_SNAPSHOT], "no image");
	m.attach = (struct ipc_attach){ .kind = ATTACH_HOST,
					.restarted = strchr(flags, 'r'),
					.remade = strchr(flags, 'm'),
					.member = *who };
	if (strchr(flags, 'p')) {
		snprintf(m.attach.probe_name, sizeof(m.attach.probe_name), "probe.test");
		m.attach.probe_addr = addr_v4(93, 8, 8, 8);
		m.attach.probe_port = 443;
	}
	r = ipc_send_fds(d->channel, &m, &fds);
	if (r < 0)
		return err_sys(err, r, "cannot send");
	return strchr(flags, 'n') ? 0 : hear_answer(d, IPC_ACTIVE, err);
}

static void on_attach(struct driver *d, char **words)
{
	uint32_t id = (uint32_t)atoi(words[1]) % IDS;
	const struct member who = member_of(words[2]);
	struct err err = { 0 };
	CLEAN(fd) int plan = load_plan(words[3], &err);

	answer(plan < 0 ? plan : attach(d, id, &who, plan, words[4], &err), &err);
}

static void on_bench(struct driver *d, char **words)
{
	uint32_t first = (uint32_t)atoi(words[1]), count = (uint32_t)atoi(words[2]);
	CLEAN(mem) int64_t *times = calloc(count + 1, sizeof(*times));
	struct err err = { 0 };
	CLEAN(fd) int plan = load_plan(words[3], &err);
	int r = plan < 0 ? plan : 0;

	for (uint32_t i = 0; i < count && r == 0; i++) {
		const struct member who = {
			.kind = MEMBER_CGROUP,
			.cgroup = UINT64_C(1) << 40 | (first + i),
			.level = 3,
		};
		int64_t start = now_ns();

		r = attach(d, (first + i) % IDS, &who, plan, "-", &err);
		times[i] = now_ns() - start;
		close(d->images[(first + i) % IDS]); /* the engine has mapped it */
		d->images[(first + i) % IDS] = -1;
	}
	if (r < 0)
		return answer(r, &err);
	qsort(times, count, sizeof(*times), compare_times);
	printf("ok %lld %lld %lld\n", (long long)times[count / 2] / 1000,
	       (long long)times[count * 99 / 100] / 1000,
	       (long long)times[count - 1] / 1000);
}

static void on_run(struct driver *d, char **words)
{
	const struct ipc_message m = { .type = IPC_RUN,
				       .sandbox = (uint32_t)atoi(words[1]) };

	answer(ipc_send(d->channel, &m, NULL, 0), NULL);
}

static void on_load(struct driver *d, char **words)
{
	const struct ipc_message m = { .type = IPC_HOST_LOAD };
	struct err err = { 0 };

	answer(ask(d, &m, IPC_HOST_ACTIVE, &err), &err);
}

static void on_change(struct driver *d, char **words)
{
	struct ipc_message m = { .type = IPC_CHANGE,
				 .sandbox = (uint32_t)atoi(words[1]) };
	struct err err = { 0 };
	CLEAN(fd) int plan = load_plan(words[2], &err);
	int r = plan < 0 ? plan : ipc_send(d->control, &m, &plan, 1);

	if (r == 0)
		r = hear(d, d->control, &m, ANSWER_MS);
	if (r == 0 && m.type != IPC_CHANGED)
		r = err_set(&err, -EPERM, "%s", m.text);
	answer(r, &err);
}

static void on_begin(struct driver *d, char **words)
{
	const struct ipc_message m = { .type = IPC_CHANGE,
				       .sandbox = (uint32_t)atoi(words[1]) };
	struct err err = { 0 };
	CLEAN(fd) int plan = load_plan(words[2], &err);

	answer(plan < 0 ? plan : ipc_send(d->control, &m, &plan, 1), &err);
}

static void end(struct driver *d, char **words, bool forget)
{
	uint32_t id = (uint32_t)atoi(words[1]) % IDS;
	const struct ipc_message m = {
		.type = IPC_DETACH,
		.sandbox = id,
		.attach.forget = forget,
	};
	struct err err = { 0 };
	int r = ask(d, &m, IPC_DETACHED, &err);

	if (d->images[id] >= 0)
		close(d->images[id]);
	d->images[id] = -1;
	answer(r, &err);
}

static void on_detach(struct driver *d, char **words)
{
	end(d, words, false);
}

static void on_forget(struct driver *d, char **words)
{
	end(d, words, true);
}

static void on_stats(struct driver *d, char **words)
{
	struct ipc_message m = { .type = IPC_STATS, .sandbox = (uint32_t)atoi(words[1]) };
	int r = ipc_send(d->control, &m, NULL, 0);

	if (r == 0)
		r = hear(d, d->control, &m, ANSWER_MS);
	if (r < 0)
		return answer(r, NULL);
	printf("ok nflog=%d", m.stats.nflog);
	for (int i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		if (m.stats.counters[i] > 0)
			printf(" %s=%llu", sandbox_counter_name((enum sandbox_counter)i),
			       (unsigned long long)m.stats.counters[i]);
	printf("\n");
}

static void on_events(struct driver *d, char **words)
{
	struct ipc_message m;

	while (hear(d, d->control, &m, 0) == 0)
		continue;
	printf("ok");
	for (size_t i = 0; i < d->event_count; i++) {
		const struct event *e = &d->events[i];
		char text[ADDR_TEXT_SIZE] = "";

		if (e->remote.family != ADDR_NONE)
			addr_format(&e->remote, text);
		printf("\t%u|%d|%d|%s|%u|%s", e->sandbox, e->action, e->layer, text,
		       e->port, e->reason);
	}
	printf("\n");
	d->event_count = 0;
}

/* The engine skips the answer. */
static void on_tamper(struct driver *d, char **words)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, 0x7f000000);
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	ssize_t n;

	nl_batch(&w);
	nft_delete(&w, NFT_MSG_DELTABLE, "weir_host", NULL);
	nl_batch_end(&w);
	n = sendto(d->fds.fd[SANDBOX_FD_NETLINK], w.bytes, w.size, 0,
		   (struct sockaddr *)&kernel, sizeof(kernel));
	answer(n < 0 ? -errno : 0, NULL);
}

static const struct command {
	const char *word;
	int words;
	void (*run)(struct driver *d, char **words);
} commands[] = {
	{ "start", 2, on_start },   { "kill", 1, on_kill },
	{ "engine", 1, on_engine }, { "attach", 5, on_attach },
	{ "run", 2, on_run },	    { "load", 1, on_load },
	{ "change", 3, on_change }, { "detach", 2, on_detach },
	{ "forget", 2, on_forget }, { "stats", 2, on_stats },
	{ "events", 1, on_events }, { "tamper", 1, on_tamper },
	{ "bench", 4, on_bench },   { "begin", 3, on_begin },
};

static void obey(struct driver *d, char *line)
{
	char *words[WORDS_MAX] = { 0 };
	int count = 0;

	for (char *at = line, *word; count < WORDS_MAX && (word = strsep(&at, " \n"));)
		if (word[0])
			words[count++] = word;
	for (size_t i = 0; i < ARRAY_SIZE(commands) && count > 0; i++)
		if (strcmp(commands[i].word, words[0]) == 0 &&
		    commands[i].words == count) {
			commands[i].run(d, words);
			return;
		}
	printf("no such command\n");
}

int main(void)
{
	static struct driver d = { .conntrack_fd = -1, .channel = -1, .control = -1 };
	char line[LINE_SIZE];

	for (size_t i = 0; i < IDS; i++)
		d.images[i] = -1;
	sandbox_fds_init(&d.fds);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin))
		obey(&d, line);
	return 0;
}
