// SPDX-License-Identifier: Apache-2.0
#include "run/network.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/text.h"
#include "filter/filter.h"
#include "launch/launch.h"
#include "proto/message.h"
#include "sys/link.h"
#include "sys/netlink.h"
#include "sys/process.h"
#include "sys/socket_owner.h"

/* === the uplink === */

enum {
	ARGS_MAX = 48,
	FD_READY = 3, /* the numbers in the arguments */
	FD_LEASH = 4,
	OUTPUT_SHOWN = 160, /* of the last thing that it said */
};

static const char tun_path[] = "/dev/net/tun";

enum when { ALWAYS = 0, AS_ROOT, WITH_IPV6, WITHOUT_IPV6 };

/* One argument; "@userns" and "@netns" are replaced. */
struct argument {
	const char *text;
	enum when when;
};

/* The network is one that nobody routes (RFC 6890), so that no real one is hidden by
 * it; of IPv6, slirp4netns has its own and no choice. */
#define NET4	 "192.0.0.128/25"
#define OWN4	 "192.0.0.228"
#define GATEWAY4 "192.0.0.130"
#define NET6	 "fd00::/64"
#define OWN6	 "fd00::e4"
#define GATEWAY6 "fd00::2"

static const struct argument slirp4netns_args[] = {
	{ "slirp4netns" },
	{ "--mtu=65520" },
	{ "--cidr=" NET4 },
	{ "--enable-ipv6", WITH_IPV6 },
	/* Its gateway would otherwise be the host's loopback, and its name server the
	 * host's resolver. */
	{ "--disable-host-loopback" },
	{ "--disable-dns" },
	/* A root of its own. An ordinary user's would need uid 0 in the sandbox. */
	{ "--enable-sandbox", AS_ROOT },
	{ "--enable-seccomp" },
	{ "--ready-fd=3" },
	{ "--exit-fd=4" },
	{ "--userns-path=@userns" },
	{ "--netns-type=path" },
	{ "@netns" },
	{ UPLINK_LINK },
};

static const struct argument pasta_args[] = {
	{ "pasta" },
	{ "--foreground" },
	{ "--quiet" },
	/* As nobody, which is its default, it could not enter the namespaces. */
	{ "--runas", AS_ROOT },
	{ "0", AS_ROOT },
	/* TCP is the relay's, and nothing here asks for addresses. */
	{ "--no-tcp" },
	{ "--no-icmp" },
	{ "--no-dhcp" },
	{ "--no-dhcpv6" },
	{ "--no-ra" },
	/* By default the gateway is the host, and open ports appear on either side. */
	{ "--no-map-gw" },
	{ "--tcp-ports" },
	{ "none" },
	{ "--udp-ports" },
	{ "none" },
	{ "--tcp-ns" },
	{ "none" },
	{ "--udp-ns" },
	{ "none" },
	{ "--ns-ifname" },
	{ UPLINK_LINK },
	{ "--ipv4-only", WITHOUT_IPV6 },
	{ "--address" },
	{ OWN4 },
	{ "--netmask" },
	{ "25" },
	{ "--gateway" },
	{ GATEWAY4 },
	{ "--address", WITH_IPV6 },
	{ OWN6, WITH_IPV6 },
	{ "--gateway", WITH_IPV6 },
	{ GATEWAY6, WITH_IPV6 },
	{ "--userns" },
	{ "@userns" },
	{ "--netns" },
	{ "@netns" },
};

static_assert(ARRAY_SIZE(slirp4netns_args) < ARGS_MAX &&
		      ARRAY_SIZE(pasta_args) < ARGS_MAX,
	      "room for all");

static const struct {
	struct program program;
	const struct argument *args;
	size_t arg_count;
	bool says_ready;
} kinds[UPLINK_KIND_COUNT] = {
	[UPLINK_SLIRP4NETNS] = {
		.program = { .name = "slirp4netns",
			     .package = "Debian, Ubuntu: apt install slirp4netns; Fedora: "
					"dnf install slirp4netns",
			     .option = "disable-dns",
			     .version = "slirp4netns 1.1" },
		.args = slirp4netns_args,
		.arg_count = ARRAY_SIZE(slirp4netns_args),
		.says_ready = true,
	},
	[UPLINK_PASTA] = {
		.program = { .name = "pasta",
			     .package = "Debian, Ubuntu: apt install passt; Fedora: dnf "
					"install passt",
			     .option = "no-map-gw",
			     .version = "passt 2022" },
		.args = pasta_args,
		.arg_count = ARRAY_SIZE(pasta_args),
	},
};

/* --- what is there --- */

static struct addr address(const char *text)
{
	struct addr a = { 0 };

	(void)!addr_parse(text, strlen(text), &a);
	return a;
}

static struct prefix prefix(const char *text)
{
	struct prefix p = { 0 };

	(void)!prefix_parse(text, strlen(text), false, &p);
	return p;
}

static struct uplink_network uplink_network(enum uplink_kind kind)
{
	return (struct uplink_network){
		.own = { address(OWN4), address(OWN6) },
		.gateway = { address(GATEWAY4), address(GATEWAY6) },
		.silent = { false, kind == UPLINK_PASTA },
		.all = { prefix(NET4), prefix(NET6) },
	};
}

/* The program opens it as the same user, so what fails here would fail there. */
static int check_tun(const char *name, struct err *err)
{
	CLEAN(fd) int fd = open(tun_path, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	switch (errno) {
	case EACCES:
	case EPERM:
		return err_set(err, -EACCES,
			       "%s needs %s, which this user may not open; as root: "
			       "chmod 666 %s (in a container: give it the device)",
			       name, tun_path, tun_path);
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return err_set(err, -ENOENT,
			       "%s needs %s, which is not there; as root: modprobe tun "
			       "(in a container: give it the device)",
			       name, tun_path);
	default:
		return err_sys(err, -errno, "%s needs %s: cannot open it", name,
			       tun_path);
	}
}

/* --- the child --- */

/* slirp4netns detaches its old root, and where mounts are shared it would take along what
 * the whole machine has mounted. In mounts of its own that only hear from the machine's,
 * a program unmounts nothing for others. Who may not have such mounts may not unmount. */
static int take_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		return errno == EPERM ? 0 : -errno;
	return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ? -errno : 0;
}

/* Nothing of the caller's stays open but what the program's own messages, FD_READY and
 * FD_LEASH need; every descriptor that a program might want to close on its own is one of
 * ours; what it finds in the environment is nothing. */
static _Noreturn void become_program(const struct uplink_program *p, char *const *args,
				     int output, int ready, int leash)
{
	static char *const no_environment[] = { NULL };
	const struct sigaction normal = { .sa_handler = SIG_DFL };
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[] = { null, null, output, [FD_READY] = ready, [FD_LEASH] = leash };
	int r = null < 0 ? -errno : 0;

	/* Out of the terminal's reach: its end is ours to decide. */
	if (r == 0 && (setsid() < 0 || chdir("/") < 0))
		r = -errno;
	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &normal, NULL);
	process_unblock_signals();
	if (r == 0)
		r = process_place_fds(fds, ARRAY_SIZE(fds), 0, 0);
	if (r == 0)
		r = take_mounts();
	if (r == 0) {
		execve(p->path, args, no_environment);
		r = -errno;
	}
	dprintf(STDERR_FILENO, "cannot execute '%s': %s\n", p->path, strerror(-r));
	_exit(127);
}

/* --- control --- */

/* Our ends of the three pipes, and the program's. */
struct pipes {
	int output[2], ready[2], leash[2];
};

static int fork_program(const struct uplink_program *p, char *const *args,
			struct pipes *pipes, struct uplink_process *u)
{
	pid_t pid = process_fork(NULL);

	if (pid < 0)
		return pid;
	if (pid == 0)
		become_program(p, args, pipes->output[1], pipes->ready[1],
			       pipes->leash[0]);
	u->pid = pid;
	u->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (u->pid_fd < 0) {
		int r = -errno;

		kill(pid, SIGKILL);
		return r;
	}
	u->output_fd = TAKE_FD(pipes->output[0]);
	u->leash_fd = TAKE_FD(pipes->leash[1]);
	u->ready_fd = kinds[p->kind].says_ready ? TAKE_FD(pipes->ready[0]) : -1;
	return 0;
}

/* Start it for the namespaces of the process @sandbox, which is not reaped before. */
static int start_program(const struct uplink_program *p, pid_t sandbox,
			 struct uplink_process *ret, struct err *err)
{
	const bool applies[] = { [ALWAYS] = true,
				 [AS_ROOT] = p->root,
				 [WITH_IPV6] = p->ipv6,
				 [WITHOUT_IPV6] = !p->ipv6 };
	const char *name = kinds[p->kind].program.name;
	struct uplink_process u = { .name = name };
	char *args[ARGS_MAX] = { NULL };
	struct pipes pipes = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
	size_t n = 0;
	int r = 0;

	/* What the program says is read when it has ended; until then a full pipe must
	 * not stop it. */
	if (pipe2(pipes.output, O_CLOEXEC | O_NONBLOCK) < 0 ||
	    pipe2(pipes.ready, O_CLOEXEC) < 0 || pipe2(pipes.leash, O_CLOEXEC) < 0)
		r = -errno;
	for (size_t i = 0; r == 0 && i < kinds[p->kind].arg_count; i++) {
		const struct argument *a = &kinds[p->kind].args[i];
		const char *at = strchr(a->text, '@');

		if (!applies[a->when])
			continue;
		/* The text behind "--x=" stays; what "@…" stands for comes from outside.
		 */
		if (!at)
			args[n] = strdup(a->text);
		else if (asprintf(&args[n], "%.*s/proc/%d/ns/%s", (int)(at - a->text),
				  a->text, (int)sandbox,
				  strcmp(at, "@userns") == 0 ? "user" : "net") < 0)
			args[n] = NULL;
		r = args[n++] ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = fork_program(p, args, &pipes, &u);
	for (size_t i = 0; i < 2; i++) {
		clean_fd(&pipes.output[i]);
		clean_fd(&pipes.ready[i]);
		clean_fd(&pipes.leash[i]);
	}
	for (size_t i = 0; i < ARGS_MAX; i++)
		free(args[i]);
	if (r < 0)
		return err_sys(err, r, "cannot start %s", name);
	*ret = u;
	return 0;
}

/* --- from its start to its end --- */

/* What a packet of the sandbox's must not be sent to by a program on the host, whatever
 * range a rule allows: loopback, unspecified, multicast and reserved addresses, IPv4 in
 * IPv6 form. The relay refuses the same. */
static const char *const never[] = { "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/80",
				     "ff00::/8" };

enum { CLOSED_MAX = ARRAY_SIZE(never) + 2 + LOCAL_PREFIXES_MAX };

/* The addresses of this machine, the program's own network, and what is never right. */
static int close_host(struct uplink *w, struct err *err)
{
	struct prefix *closed = calloc(CLOSED_MAX, sizeof(*closed));
	struct uplink_network net = uplink_network(w->program.kind);
	size_t kept = 0;
	int r;

	w->closed = closed;
	if (!closed)
		return err_set(err, -ENOMEM, "out of memory");
	r = local_prefixes(closed, &kept, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (!prefix_parse(never[i], strlen(never[i]), false, &closed[kept++]))
			return err_set(err, -EINVAL, "'%s' is not a prefix", never[i]);
	for (size_t i = 0; i < ARRAY_SIZE(net.all); i++)
		closed[kept++] = net.all[i];
	w->filter.closed = closed;
	w->filter.closed_count = kept;
	return 0;
}

int uplink_choose(struct uplink *w, enum run_uplink uplink, bool root, struct err *err)
{
	static const enum uplink_kind chosen[RUN_UPLINK_COUNT] = {
		[RUN_UPLINK_SLIRP4NETNS] = UPLINK_SLIRP4NETNS,
		[RUN_UPLINK_PASTA] = UPLINK_PASTA,
	};
	const struct program *program;
	CLEAN(fd) int route = -1;
	int r;

	w->filter.generation = FILTER_GENERATION_FIRST;
	if (uplink == RUN_UPLINK_NONE)
		return 0;
	w->filter.relay = true;
	route = link_route_open();
	w->ipv6_out = route >= 0 && link_has_default_route(route, 6) == 1;
	if (chosen[uplink] == UPLINK_NONE)
		return 0;
	w->program = (struct uplink_program){ .kind = chosen[uplink],
					      .root = root,
					      .ipv6 = w->ipv6_out };
	program = &kinds[w->program.kind].program;
	r = program_find(program, w->program.path, err);
	if (r == 0)
		r = check_tun(program->name, err);
	if (r < 0)
		return r;
	w->filter.direct_udp = true;
	return close_host(w, err);
}

/* One byte, or the end of the pipe: then from_end has the reason. */
static void on_ready_fd(struct loop_source *source, uint32_t events)
{
	struct uplink *w = CONTAINER_OF(source, struct uplink, from_ready);
	char byte;

	loop_remove(w->loop, source);
	if (read(source->fd, &byte, 1) != 1)
		return;
	w->ready = true;
	w->on_ready(w->data);
}

/* "slirp4netns has ended unexpectedly: it ended with status 1: <its last line>". */
static void on_pid_fd(struct loop_source *source, uint32_t events)
{
	struct uplink *w = CONTAINER_OF(source, struct uplink, from_end);
	const struct uplink_process *u = &w->process;
	char why[ERR_TEXT_SIZE], said[64 * 1024];
	char words[OUTPUT_SHOWN] = "", how[PROCESS_END_SIZE];
	const char *line;
	struct text all;
	ssize_t n = 0;
	int status;

	loop_remove(w->loop, source);
	snprintf(why, sizeof(why), "%s has ended unexpectedly", u->name);
	if (waitpid(u->pid, &status, WNOHANG) == u->pid) {
		if (WIFEXITED(status))
			n = read(u->output_fd, said, sizeof(said));
		all = text_trim((struct text){ said, n > 0 ? (size_t)n : 0 });
		line = all.len > 0 ? memrchr(all.ptr, '\n', all.len) : NULL;
		if (line)
			all = (struct text){ line + 1,
					     all.len - (size_t)(line + 1 - all.ptr) };
		text_escape(all, words, sizeof(words));
		snprintf(why, sizeof(why), "%s has ended unexpectedly: it %s%s%s",
			 u->name, process_end_text(status, how), words[0] ? ": " : "",
			 words);
	}
	w->on_end(w->data, why);
}

int uplink_open(struct uplink *w, struct loop *loop, pid_t sandbox, struct err *err)
{
	int r;

	w->loop = loop;
	/* Without a ready descriptor the link is the sign, which the launch child waits
	 * for. */
	w->ready = true;
	if (w->program.kind == UPLINK_NONE)
		return 0;
	r = start_program(&w->program, sandbox, &w->process, err);
	if (r < 0)
		return r;
	w->ready = w->process.ready_fd < 0;
	w->from_ready = (struct loop_source){ .fd = w->process.ready_fd,
					      .on_ready = on_ready_fd };
	w->from_end =
		(struct loop_source){ .fd = w->process.pid_fd, .on_ready = on_pid_fd };
	r = loop_add(loop, &w->from_end, EPOLLIN);
	if (r == 0 && !w->ready)
		r = loop_add(loop, &w->from_ready, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch %s", w->process.name) : 0;
}

void uplink_signal(const struct uplink *w, int number)
{
	if (w->process.pid > 0)
		syscall(SYS_pidfd_send_signal, w->process.pid_fd, number, NULL, 0);
}

void uplink_close(struct uplink *w)
{
	uplink_signal(w, SIGKILL);
	free(w->closed);
}

/* === inside the namespace === */

static_assert((int)LINK_STUB_GROUP == (int)FILTER_DEAD_END_GROUP,
	      "what the filter takes for a dead end is the stub");

static int install(const struct inside *in, struct filter_conn *conn, bool ipv6,
		   struct err *err)
{
	struct filter_params params = in->filter;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rules;
	int r;

	params.ipv6 = ipv6;
	r = ruleset_build_owned(in->plan, &params, &arena, &rules, err);
	if (r == 0)
		r = filter_install(conn, rules, err);
	return r < 0 ? err_context(err, "cannot install the filter") : 0;
}

int inside_prepare(void *data, struct err *err)
{
	const struct inside *in = data;
	const struct sandbox_ports ports = {
		.dns = FILTER_DNS_PORT,
		.relay = in->filter.relay ? FILTER_RELAY_PORT : 0,
	};
	const struct launch_report report = { .type = LAUNCH_DIAG };
	struct ipc_message m = { .type = IPC_ATTACH, .attach.kind = ATTACH_OWNED };
	struct filter_conn conn = { .fd = -1 };
	struct ipc_fds fds;
	CLEAN(fd) int diag = -1;
	struct sandbox_fds s;
	bool ipv6;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(in->far_ends); i++)
		close(in->far_ends[i]);
	r = link_make_stub(&ipv6, err);
	if (r < 0)
		return r;
	r = sandbox_fds_open(&s, &ports, ipv6, err);
	if (r < 0)
		return r;
	r = filter_conn_init(&conn, s.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = install(in, &conn, ipv6, err);
	if (r == 0)
		r = link_await_stub(ipv6, err);
	if (r == 0) {
		m.attach.ipv6 = ipv6;
		m.attach.owner = conn.owner;
		ipc_fds_init(&fds, &s);
		r = ipc_send_fds(in->engine_fd, &m, &fds);
		if (r < 0)
			err_sys(err, r, "cannot hand the sandbox to the engine");
	}
	/* It is missed only by whoever wants to know whose a denial was. */
	if (r == 0 && in->report_fd >= 0)
		diag = nl_diag_open();
	if (diag >= 0)
		(void)!fds_send(in->report_fd, &report, sizeof(report), &diag, 1);
	/* The engine holds its own copies; conn's descriptor is one of @s. */
	sandbox_fds_done(&s);
	return r;
}

int inside_confirm(void *data, struct err *err)
{
	const struct inside *in = data;
	struct uplink_network net = uplink_network(in->uplink);
	struct link_uplink link = { .name = UPLINK_LINK };
	struct ipc_message m;
	size_t count;
	int r = ipc_receive(in->engine_fd, &m, NULL, 0, &count);

	if (r < 0)
		return err_sys(err, r, "cannot hand the sandbox to the engine");
	if (m.type != IPC_ACTIVE)
		return err_set(err, -EPROTO, "the engine refused the sandbox: %.*s",
			       (int)sizeof(m.text) - 64, m.text);
	if (in->uplink == UPLINK_NONE)
		return 0;
	/* Only now, when the filter is known to stand, does the link get an address. */
	for (size_t i = 0; i < ARRAY_SIZE(link.own); i++) {
		if (net.own[i].family == ADDR_V6 && !in->uplink_ipv6)
			continue;
		link.own[i] = net.own[i];
		link.gateway[i] = net.gateway[i];
		link.silent[i] = net.silent[i];
	}
	return link_setup_uplink(&link, err);
}
