// SPDX-License-Identifier: Apache-2.0
/* filter_driver - the real filter code, driven line by line in the network namespace
 * in which it was started. test_filter.py writes a command, reads one line of answer:
 * "ok …" or "error …". Every value is separated by one space.
 *
 *     link                         loopback and the stub link
 *     policy allow|deny            start a policy with that default action
 *     rule allow|deny TARGET PORTS ("-": the default list) append a rule
 *     install GENERATION FLAGS     of r (relay) t (direct TCP) u (direct UDP) 6
 *     text FILE                    from now on, write what is installed as text as well
 *     member UID|PATH PREFIX       the ruleset of a user or a cgroup of the host
 *     verify GENERATION FLAGS      what stands against what the policy builds now
 *     learn ADDR LIST MS REFRESH COUNT   COUNT addresses from ADDR on, in one batch
 *     generation                   the kernel's ruleset generation
 *     tamper WHAT                  change the table through the owner's own socket
 *     listen ADDR PORT             a TCP listener that accepts in the kernel's backlog
 *     tcp ADDR PORT                connect: result and SYNs sent again
 *     udp ADDR PORT                send twice from one socket: both results
 *     uid UID                      whose sockets are made from now on
 *     hold ADDR PORT, udphold …    open a socket that stays; "again" sends on it
 *     events                       what the log group has reported since
 *     flood ADDR COUNT             UDP to COUNT ports
 *     bench COUNT                  filter_learn in nanoseconds: p50 p99
 *     benchinstall COUNT           installs in microseconds: p50 max
 *
 * With any argument it leaves the log group to another one. filter_driver_shared.c has
 * the commands for shared namespaces. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include "filter_driver.h"

#include "filter/nflog.h"
#include "filter/nft.h"
#include "filter/ruleset.h"
#include "sys/link.h"

enum { WORDS_MAX = 8, LINE_MAX_SIZE = 4096, BENCH_MAX = 100000 };

void answer(int r, const struct err *err)
{
	if (r < 0)
		printf("error %s\n", err && err->text[0] ? err->text : strerror(-r));
	else
		printf("ok\n");
}

static int netlink_socket(void)
{
	struct sockaddr_nl any = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_NETFILTER);

	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0) {
		perror("netlink");
		exit(1);
	}
	return fd;
}

static struct endpoint endpoint(char **words)
{
	struct endpoint e = { .port = (uint16_t)atoi(words[2]) };

	if (!addr_parse(words[1], strlen(words[1]), &e.addr))
		fprintf(stderr, "'%s' is not an address\n", words[1]);
	return e;
}

/* ---- the policy and the ruleset ---- */

static void on_policy(struct driver *d, char **words)
{
	arena_done(&d->arena);
	d->policy = (struct policy){
		.rules = d->rules,
		.default_action = strcmp(words[1], "allow") == 0 ? POLICY_ALLOW
								 : POLICY_DENY,
	};
	answer(0, NULL);
}

/* "53", "tcp/53", "80-90" */
static void read_ports(struct driver *d, const char *text, struct rule_ports *ret)
{
	struct plan_port_range *ranges = arena_array(&d->arena, 2, sizeof(*ranges));
	const char *number = strchr(text, '/') ? strchr(text, '/') + 1 : text;
	const char *dash = strchr(number, '-');
	size_t n = 0;

	if (strcmp(text, "-") == 0)
		return;
	for (int i = 0; i < 2; i++) {
		uint8_t protocol = i == 0 ? IPPROTO_TCP : IPPROTO_UDP;

		if (number != text && (text[0] == 't') != (protocol == IPPROTO_TCP))
			continue;
		ranges[n++] = (struct plan_port_range){
			.protocol = protocol,
			.from = (uint16_t)atoi(number),
			.to = (uint16_t)atoi(dash ? dash + 1 : number),
		};
	}
	*ret = (struct rule_ports){ ranges, n };
}

static void on_rule(struct driver *d, char **words)
{
	struct rule *r = &d->rules[d->policy.count++];
	const char *target = arena_printf(&d->arena, "%s", words[2]);

	*r = (struct rule){ .target = target, .file = "test", .comment = "" };
	r->action = strcmp(words[1], "allow") == 0 ? POLICY_ALLOW : POLICY_DENY;
	if (prefix_parse(target, strlen(target), true, &r->prefix)) {
		r->kind = TARGET_PREFIX;
	} else {
		r->kind = TARGET_NAME;
		if (dns_name_parse((struct text){ target, strlen(target) }, &r->name) < 0)
			fprintf(stderr, "'%s' is not a name\n", target);
	}
	read_ports(d, words[3], &r->ports);
	if (r->ports.count > 0)
		r->flags |= PLAN_PORTS_LISTED;
	answer(0, NULL);
}

int build_plan(struct driver *d, struct plan *ret, struct err *err)
{
	size_t size;
	int r;

	free(TAKE_PTR(d->plan_bytes));
	r = policy_compile(&d->policy, &d->plan_bytes, &size, err);
	return r < 0 ? r : plan_open(d->plan_bytes, size, ret, err);
}

static int build(struct driver *d, char **words, struct arena *arena,
		 const struct ruleset **ret, struct err *err)
{
	struct filter_params params = {
		.generation = (uint16_t)atoi(words[1]),
		.relay = strchr(words[2], 'r'),
		.direct_tcp = strchr(words[2], 't'),
		.direct_udp = strchr(words[2], 'u'),
		.ipv6 = strchr(words[2], '6'),
	};
	struct plan plan;
	int r = build_plan(d, &plan, err);

	return r < 0 ? r : ruleset_build_owned(&plan, &params, arena, ret, err);
}

int write_text(const struct driver *d, const struct ruleset *rs)
{
	FILE *f = d->text ? fopen(d->text, "we") : NULL;
	int r;

	if (!f)
		return d->text ? -errno : 0;
	r = filter_text(rs, filter_table(rs->naming), f);
	fclose(f);
	return r;
}

static void on_text(struct driver *d, char **words)
{
	free(d->text);
	d->text = strdup(words[1]);
	answer(0, NULL);
}

/* "user.slice/a" stands below the mount point. */
static void on_member(struct driver *d, char **words)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct filter_cgroup cgroup = { .path = words[1], .level = 1 };
	struct filter_member_params params = { .uid = (uint32_t)atoi(words[1]),
					       .prefix = words[2],
					       .mark = 0x77000001 };
	char path[LINE_MAX_SIZE];
	const struct ruleset *rs;
	struct err err = { 0 };
	struct plan plan;
	struct stat st;
	int r = build_plan(d, &plan, &err);

	snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", words[1]);
	for (const char *c = words[1]; *c; c++)
		cgroup.level += *c == '/';
	if (params.uid == 0) {
		params.cgroup = &cgroup;
		if (stat(path, &st) < 0)
			r = -errno;
		cgroup.id = st.st_ino;
		/* A hybrid hierarchy has version 2 below it. */
		cgroup.level -= strncmp(words[1], "unified/", 8) == 0;
	}
	if (r == 0)
		r = ruleset_build_member(&plan, &params, &arena, &rs, &err);
	if (r == 0)
		r = write_text(d, rs);
	if (r == 0)
		r = filter_install(&d->conn, rs, &err);
	answer(r, &err);
}

static void on_install(struct driver *d, char **words)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	struct err err = { 0 };
	int r = build(d, words, &arena, &rs, &err);

	if (r == 0)
		r = write_text(d, rs);
	if (r == 0)
		r = filter_install(&d->conn, rs, &err);
	answer(r, &err);
}

static void on_verify(struct driver *d, char **words)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	struct err err = { 0 };
	int r = build(d, words, &arena, &rs, &err);

	if (r == 0)
		r = filter_verify(&d->conn, rs, &err);
	answer(r, &err);
}

static void on_learn(struct driver *d, char **words)
{
	struct filter_learn items[FILTER_LEARN_MAX + 1] = { 0 };
	int count = atoi(words[5]);
	struct addr a = { 0 };

	addr_parse(words[1], strlen(words[1]), &a);
	for (int i = 0; i < count; i++) {
		items[i] = (struct filter_learn){
			.addr = a,
			.port_list = (uint8_t)atoi(words[2]),
			.lifetime_ms = (uint32_t)atoi(words[3]),
			.refresh = atoi(words[4]),
		};
		for (size_t k = addr_size(&a); k-- > 0 && ++a.bytes[k] == 0;)
			;
	}
	answer(filter_learn(&d->conn, items, (size_t)count), NULL);
}

static void on_generation(struct driver *d, char **words)
{
	uint32_t id = 0;
	int r = filter_generation_id(&d->conn, &id);

	if (r < 0)
		answer(r, NULL);
	else
		printf("ok %u\n", id);
}

/* ---- tampering, by the only socket that may ---- */

static const char *table_of(const struct driver *d)
{
	return filter_table(d->conn.naming);
}

static const char *output_of(const struct driver *d)
{
	return d->conn.naming == FILTER_NAMES_SHARED ? "egress" : "output";
}

static void tamper_flush(struct driver *d, struct nl_writer *w, const char *chain)
{
	nl_message(w, NFT_MSG_DELRULE, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table_of(d));
	nl_put_text(w, NFTA_RULE_CHAIN, chain);
	nl_end(w);
}

static void tamper_policy(struct driver *d, struct nl_writer *w)
{
	nl_message(w, NFT_MSG_NEWCHAIN, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_CHAIN_TABLE, table_of(d));
	nl_put_text(w, NFTA_CHAIN_NAME, "output");
	nl_put_be32(w, NFTA_CHAIN_POLICY, NF_ACCEPT);
	nl_end(w);
}

static void tamper_table(struct nl_writer *w, const char *name)
{
	nl_message(w, NFT_MSG_NEWTABLE, NLM_F_CREATE, NFPROTO_INET);
	nl_put_text(w, NFTA_TABLE_NAME, name);
	nl_end(w);
}

static void on_tamper(struct driver *d, char **words)
{
	struct filter_rule accept = { .stmts = { { .kind = FILTER_ACCEPT } },
				      .count = 1 };
	struct filter_chain extra = { .name = "extra" },
			    output = { .name = output_of(d) };
	struct filter_set set = { .name = "extra",
				  .key = FILTER_KEY_ADDR4,
				  .timeout = true };
	struct filter_range ports = { { 0, 53 }, { 0, 53 } };
	struct filter_set tcp = { .name = "tcp_0_a",
				  .key = FILTER_KEY_PORT,
				  .ranges = &ports,
				  .range_count = 1 };
	struct nl_writer w = nl_writer(NULL, 0, d->conn.seq);

	nl_batch(&w);
	if (strcmp(words[1], "flush") == 0)
		tamper_flush(d, &w, "input");
	else if (strcmp(words[1], "policy") == 0)
		tamper_policy(d, &w);
	else if (strcmp(words[1], "rule") == 0)
		nft_rule(&w, table_of(d), &output, &accept);
	else if (strcmp(words[1], "chain") == 0)
		nft_chain(&w, table_of(d), &extra);
	else if (strcmp(words[1], "set") == 0)
		nft_set(&w, table_of(d), &set);
	else if (strcmp(words[1], "element") == 0)
		nft_elements(&w, table_of(d), &tcp, 0, 1);
	else
		tamper_table(&w, "other");
	nl_batch_end(&w);
	answer(nl_transact(&d->conn, &w, NULL), NULL);
	nl_writer_done(&w);
}

/* ---- packets ---- */

static int open_socket(const struct endpoint *e, int type)
{
	return socket(e->addr.family == ADDR_V4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC,
		      0);
}

static void on_listen(struct driver *d, char **words)
{
	struct endpoint e = endpoint(words);
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(&e, &sa);
	int fd = open_socket(&e, SOCK_STREAM), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&sa, size) < 0 || listen(fd, 1024) < 0)
		answer(-errno, NULL);
	else
		answer(0, NULL);
}

static int dial(const struct endpoint *e, int type, int *ret_fd)
{
	struct timeval limit = { .tv_sec = 2 };
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(e, &sa);

	*ret_fd = open_socket(e, type);
	setsockopt(*ret_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return connect(*ret_fd, (struct sockaddr *)&sa, size) < 0 ? errno : 0;
}

static const char *word_of(int error)
{
	return error ? strerrorname_np(error) : "0";
}

static void on_tcp(struct driver *d, char **words)
{
	struct endpoint e = endpoint(words);
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);
	int fd, r = dial(&e, SOCK_STREAM, &fd);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
	printf("ok %s %u\n", word_of(r), info.tcpi_total_retrans);
	close(fd);
}

static int send_one(int fd)
{
	return send(fd, "x", 1, MSG_NOSIGNAL) < 0 ? errno : 0;
}

static void on_udp(struct driver *d, char **words)
{
	struct endpoint e = endpoint(words);
	int fd, r = dial(&e, SOCK_DGRAM, &fd), first, second;

	first = r ? r : send_one(fd);
	second = r ? r : send_one(fd);
	printf("ok %s %s\n", word_of(first), word_of(second));
	close(fd);
}

static void on_uid(struct driver *d, char **words)
{
	setfsuid((uid_t)atoi(words[1]));
	answer(0, NULL);
}

static void on_hold(struct driver *d, char **words)
{
	struct endpoint e = endpoint(words);
	int type = strcmp(words[0], "hold") == 0 ? SOCK_STREAM : SOCK_DGRAM;

	printf("ok %s\n", word_of(dial(&e, type, &d->held)));
}

static void on_again(struct driver *d, char **words)
{
	int r = send_one(d->held);

	printf("ok %s\n", word_of(r));
}

static void on_flood(struct driver *d, char **words)
{
	struct endpoint e = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	addr_parse(words[1], strlen(words[1]), &e.addr);
	for (int i = 0; i < atoi(words[2]); i++) {
		struct sockaddr_storage sa;
		socklen_t size;

		e.port = (uint16_t)(1024 + i);
		size = endpoint_to_sockaddr(&e, &sa);
		(void)!sendto(fd, "x", 1, 0, (struct sockaddr *)&sa, size);
	}
	close(fd);
	answer(0, NULL);
}

static void print_event(void *data, const struct nflog_packet *p)
{
	struct endpoint e = { p->destination, p->destination_port };
	char text[ENDPOINT_TEXT_SIZE];

	printf(" %s|%u|%u|%s", endpoint_format(&e, text), p->protocol, p->uid,
	       strcmp(p->prefix, FILTER_PREFIX_REFUSED) == 0 ||
			       strcmp(p->prefix, FILTER_PREFIX_UNCOUNTED) == 0
		       ? "prefix"
	       : strcmp(p->prefix, FILTER_PREFIX_IMITATES) == 0 ? "imitates"
								: "none");
}

static void on_events(struct driver *d, char **words)
{
	printf("ok");
	for (;;) {
		int r = nflog_read(d->nflog, print_event, NULL);

		if (r == 0)
			break;
		if (r < 0)
			printf(" lost");
	}
	printf("\n");
}

/* ---- measuring ---- */

void print_times(int64_t *times, int count)
{
	qsort(times, (size_t)count, sizeof(times[0]), compare_times);
	printf("ok %lld %lld\n", (long long)times[count / 2] / 1000,
	       (long long)times[count - 1] / 1000);
}

static void on_bench(struct driver *d, char **words)
{
	static int64_t times[BENCH_MAX];
	int count = MIN(atoi(words[1]), (int)BENCH_MAX);
	struct filter_learn item = { .lifetime_ms = 60000, .refresh = atoi(words[2]) };

	for (int i = 0; i < count; i++) {
		int64_t start;

		item.addr =
			addr_v4(11, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i);
		start = now_ns();
		if (filter_learn(&d->conn, &item, 1) < 0) {
			printf("error learn\n");
			return;
		}
		times[i] = now_ns() - start;
	}
	qsort(times, (size_t)count, sizeof(times[0]), compare_times);
	printf("ok %lld %lld\n", (long long)times[count / 2],
	       (long long)times[count * 99 / 100]);
}

static void on_bench_install(struct driver *d, char **words)
{
	int64_t times[100];
	int count = MIN(atoi(words[3]), 100);

	for (int i = 0; i < count; i++) {
		CLEAN(arena) struct arena arena = { 0 };
		const struct ruleset *rs;
		int64_t start;
		struct err err = { 0 };

		if (build(d, words, &arena, &rs, &err) < 0)
			return answer(-EINVAL, &err);
		start = now_ns();
		if (filter_install(&d->conn, rs, &err) < 0 ||
		    filter_verify(&d->conn, rs, &err) < 0)
			return answer(-EINVAL, &err);
		times[i] = now_ns() - start;
	}
	print_times(times, count);
}

static void on_link(struct driver *d, char **words)
{
	struct err err = { 0 };

	answer(link_setup_owned(&d->ipv6, &err), &err);
}

static const struct command commands[] = {
	{ "link", 1, on_link },
	{ "policy", 2, on_policy },
	{ "rule", 4, on_rule },
	{ "install", 3, on_install },
	{ "text", 2, on_text },
	{ "member", 3, on_member },
	{ "verify", 3, on_verify },
	{ "learn", 6, on_learn },
	{ "generation", 1, on_generation },
	{ "tamper", 2, on_tamper },
	{ "listen", 3, on_listen },
	{ "tcp", 3, on_tcp },
	{ "udp", 3, on_udp },
	{ "uid", 2, on_uid },
	{ "hold", 3, on_hold },
	{ "udphold", 3, on_hold },
	{ "again", 1, on_again },
	{ "flood", 3, on_flood },
	{ "events", 1, on_events },
	{ "bench", 3, on_bench },
	{ "benchinstall", 4, on_bench_install },
};

static bool run_one_of(const struct command *c, struct driver *d, char **words, int n)
{
	for (; n > 0 && c->word; c++)
		if (strcmp(words[0], c->word) == 0 && n == c->words) {
			c->run(d, words);
			return true;
		}
	return false;
}

static void run_line(struct driver *d, char *line)
{
	char *words[WORDS_MAX] = { NULL }, *save = NULL;
	int n = 0;

	for (char *w = strtok_r(line, " \n", &save); w && n < WORDS_MAX;
	     w = strtok_r(NULL, " \n", &save))
		words[n++] = w;
	for (size_t i = 0; n > 0 && i < ARRAY_SIZE(commands); i++)
		if (strcmp(words[0], commands[i].word) == 0 && n == commands[i].words) {
			commands[i].run(d, words);
			return;
		}
	if (!run_one_of(shared_commands, d, words, n) &&
	    !run_one_of(host_commands, d, words, n))
		printf("error not a command\n");
}

int main(int argc, char **argv)
{
	static struct driver d;
	static char line[LINE_MAX_SIZE];
	struct err err = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	d.nflog = netlink_socket();
	if (filter_conn_init(&d.conn, netlink_socket(), &err) < 0 ||
	    (argc == 1 && nflog_bind(d.nflog, FILTER_NFLOG_GROUP, &err) < 0)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	d.policy.rules = d.rules;
	while (fgets(line, sizeof(line), stdin))
		run_line(&d, line);
	free(d.plan_bytes);
	arena_done(&d.arena);
	filter_conn_done(&d.conn);
	return 0;
}
