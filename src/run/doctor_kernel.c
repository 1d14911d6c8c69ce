// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>

#include <linux/landlock.h>
#include <linux/sched.h>

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "filter/filter.h"
#include "filter/nflog.h"
#include "launch/launch.h"

#include "launch/rootfs.h"
#include "run/doctor.h"
#include "sys/link.h"
#include "sys/process.h"
#include "sys/sock.h"

enum {
	LANDLOCK_SCOPES = 6, /* the ABI since which signals and abstract sockets count */
	NFLOG_WAIT_MS = 1000,
	LIMIT_LOW = 100, /* fewer namespaces than this are soon used up */
};

static const char cannot_start[] = "no sandbox can be started";

/* The number in a file of one line, or -1. */
static long read_number(const char *path)
{
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[32];
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
	uint32_t value;

	if (n <= 0 ||
	    !text_to_u32(text_trim((struct text){ buf, (size_t)n }), UINT32_MAX, &value))
		return -1;
	return (long)value;
}

/* Everything below stands on namespaces. Return: false when the row is written. */
static bool needs_namespaces(struct doctor *d, struct doctor_row *row)
{
	if (d->namespaces)
		return true;
	doctor_found(d, row, DOCTOR_UNTRIED, "not tried: it needs user namespaces");
	return false;
}

static void found_failed(struct doctor *d, struct doctor_row *row,
			 const struct doctor_attempt *a)
{
	doctor_found(d, row, DOCTOR_FAILED, "%s", a->text);
	row->follows = cannot_start;
}

/* --- user namespaces --- */

static const char clone_sysctl[] = "/proc/sys/kernel/unprivileged_userns_clone";
static const char apparmor_sysctl[] =
	"/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
static const char max_userns[] = "/proc/sys/user/max_user_namespaces";
static const char max_netns[] = "/proc/sys/user/max_net_namespaces";

/* A restricted namespace can be made, but nothing can be done in it. */
static int use_capabilities(int *ret_value, struct err *err)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, -errno,
			       "cannot use the capabilities of a new user namespace");
	return 0;
}

static const char mend_clone[] = "echo kernel.unprivileged_userns_clone=1 | sudo tee "
				 "/etc/sysctl.d/60-weir.conf && sudo sysctl --system";
static const char mend_limits[] =
	"printf 'user.max_user_namespaces=15000\\nuser.max_net_namespaces=15000\\n' | "
	"sudo tee /etc/sysctl.d/60-weir.conf && sudo sysctl --system";

void doctor_user_namespaces(struct doctor *d, struct doctor_row *row)
{
	struct doctor_attempt a;

	doctor_try(d, use_capabilities, true, &a);
	d->namespaces = a.code == 0;
	if (d->namespaces) {
		doctor_found(d, row, DOCTOR_OK,
			     "user, network, mount, process id, IPC and UTS namespaces "
			     "can be made and used");
		return;
	}
	found_failed(d, row, &a);
	/* Which of the known reasons it is. */
	if (read_number(max_userns) == 0 || read_number(max_netns) == 0) {
		row->follows = "user.max_user_namespaces or user.max_net_namespaces is "
			       "0: no sandbox can be started";
		doctor_mend(row, mend_limits);
	} else if (read_number(clone_sysctl) == 0) {
		row->follows = "kernel.unprivileged_userns_clone is 0, which forbids "
			       "them to ordinary users: no sandbox can be started";
		doctor_mend_each(row, mend_clone, mend_clone, NULL);
	} else if (read_number(apparmor_sysctl) == 1) {
		char path[PATH_MAX];
		ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
		const char *command;

		path[MAX(n, 0)] = '\0';
		command =
			doctor_text(d,
				    "printf 'abi <abi/4.0>,\\nprofile weir \"%s\" "
				    "flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee "
				    "/etc/apparmor.d/weir && sudo apparmor_parser -r "
				    "/etc/apparmor.d/weir",
				    n > 0 ? path : "/usr/bin/weir");
		row->follows =
			"kernel.apparmor_restrict_unprivileged_userns is 1: programs "
			"without an AppArmor profile get no use of them; give weir one";
		doctor_mend_each(row, command, command, NULL);
	} else {
		row->follows = "no sandbox can be started; in a container, its seccomp "
			       "or AppArmor profile forbids them (see `container`); in a "
			       "chroot there are none";
	}
}

void doctor_limits(struct doctor *d, struct doctor_row *row)
{
	long users = read_number(max_userns), nets = read_number(max_netns);

	if (users < 0 || nets < 0) {
		doctor_found(d, row, DOCTOR_OK, "this kernel sets none");
		return;
	}
	if (users >= LIMIT_LOW && nets >= LIMIT_LOW) {
		doctor_found(d, row, DOCTOR_OK,
			     "%ld user and %ld network namespaces per user", users, nets);
		return;
	}
	doctor_found(d, row, users > 0 && nets > 0 ? DOCTOR_WARNING : DOCTOR_FAILED,
		     "only %ld user and %ld network namespaces per user", users, nets);
	row->follows = "a sandbox takes two of the first and one of the second";
	doctor_mend(row, mend_limits);
}

/* --- processes inside --- */

/* As the sandbox has it: of its own process ids, and from a user namespace that can make
 * one more. */
static int open_proc(int *ret_value, struct err *err)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_sys(err, -errno, "cannot mount a new /proc");
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return enter_explain(-errno, err);
	return 0;
}

/* --- the network inside --- */

static int make_link(int *ret_value, struct err *err)
{
	bool ipv6 = false;
	int r = link_setup_owned(&ipv6, err);

	*ret_value = ipv6;
	return r;
}

void doctor_link(struct doctor *d, struct doctor_row *row)
{
	struct doctor_attempt a;

	if (!needs_namespaces(d, row))
		return;
	doctor_try(d, make_link, true, &a);
	if (a.code == 0) {
		doctor_found(d, row, DOCTOR_OK, "a veth pair can be made, %s",
			     a.value ? "with IPv6" : "without IPv6");
		return;
	}
	found_failed(d, row, &a);
	doctor_mend_each(row, "sudo modprobe veth", "sudo modprobe veth",
			 "sudo dnf install kernel-modules-core && sudo modprobe veth");
}

/* The ruleset of an empty policy, as `weir run` would install it. */
static int filter_inside(struct sandbox_fds *s, bool *ret_owner, struct err *err)
{
	const struct sandbox_ports ports = { FILTER_DNS_PORT, FILTER_RELAY_PORT };
	struct filter_params params = { .generation = FILTER_GENERATION_FIRST,
					.relay = true };
	struct filter_conn conn = { .fd = -1 };
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	const struct policy empty = { 0 };
	const struct ruleset *rules;
	struct plan plan;
	size_t size;
	int r;

	sandbox_fds_init(s);
	r = link_setup_owned(&params.ipv6, err);
	if (r == 0)
		r = sandbox_fds_open(s, &ports, params.ipv6, err);
	if (r == 0)
		r = filter_conn_init(&conn, s->fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = policy_compile(&empty, &bytes, &size, err);
	if (r == 0)
		r = plan_open(bytes, size, &plan, err);
	if (r == 0)
		r = ruleset_build_owned(&plan, &params, &arena, &rules, err);
	if (r == 0)
		r = filter_install(&conn, rules, err);
	if (r == 0)
		r = filter_verify(&conn, rules, err);
	*ret_owner = conn.owner;
	return r;
}

static int try_filter(int *ret_value, struct err *err)
{
	struct sandbox_fds s;
	bool owner;
	int r = filter_inside(&s, &owner, err);

	*ret_value = owner;
	return r;
}

void doctor_owner(struct doctor *d, struct doctor_row *row)
{
	struct doctor_attempt a;

	if (!needs_namespaces(d, row))
		return;
	doctor_try(d, try_filter, true, &a);
	if (a.code < 0) {
		doctor_found(d, row, DOCTOR_UNTRIED,
			     "not tried: the filter can't be installed");
	} else if (a.value) {
		doctor_found(d, row, DOCTOR_OK, "owner and persist are taken");
	} else {
		doctor_found(d, row, DOCTOR_WARNING,
			     "this kernel doesn't know owner with persist (Linux 6.9)");
		row->follows =
			"a process outside that is root over the sandbox's namespace "
			"could change the filter; the command inside can't";
	}
}

static void count_packet(void *data, const struct nflog_packet *p)
{
	(*(int *)data)++;
}

/* Send what the filter refuses, and wait for the kernel's report of it. */
static int try_nflog(int *ret_value, struct err *err)
{
	static const struct endpoint nowhere = { { ADDR_V4, { 192, 0, 2, 1 } }, 9 };
	CLEAN(fd) int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage to;
	socklen_t size = endpoint_to_sockaddr(&nowhere, &to);
	struct sandbox_fds s;
	struct pollfd p = { .events = POLLIN };
	bool owner;
	int r = filter_inside(&s, &owner, err);

	if (r < 0)
		return r;
	r = nflog_bind(s.fd[SANDBOX_FD_NFLOG], FILTER_NFLOG_GROUP, err);
	if (r < 0)
		return r;
	if (sendto(udp, "", 1, 0, (struct sockaddr *)&to, size) >= 0)
		return err_set(err, -EBADMSG, "a packet passed the closed filter");
	p.fd = s.fd[SANDBOX_FD_NFLOG];
	if (poll(&p, 1, NFLOG_WAIT_MS) == 1)
		(void)!nflog_read(p.fd, count_packet, ret_value);
	if (*ret_value == 0)
		return err_set(err, -ENODATA,
			       "the kernel reported nothing of a refused packet");
	return 0;
}

/* --- the files inside --- */

/* Of a directory of the host. One that has mounts below it can't be a layer for an
 * ordinary user; any of these will do. */
static int try_overlay(int *ret_value, struct err *err)
{
	static const char *const layers[] = { "lowerdir=/tmp/low:/usr",
					      "lowerdir=/tmp/low:/etc",
					      "lowerdir=/tmp/low:/opt" };

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0 || mkdir("/tmp/low", 0755) < 0 ||
	    mkdir("/tmp/high", 0755) < 0)
		return err_sys(err, -errno, "cannot mount a tmpfs");
	for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
		if (mount("overlay", "/tmp/high", "overlay", MS_RDONLY, layers[i]) == 0)
			return 0;
	return err_sys(err, -errno, "cannot mount an overlay of the host's files");
}

/* With the maps of a sandbox, which a process in a user namespace of its own holds. */
static int copy_cwd(const struct doctor *d, struct err *err)
{
	CLEAN(path) struct path cwd = { .fd = -1 };
	struct tree t = { .source = &cwd, .kind = TREE_WRITABLE, .fd = -1 };
	CLEAN(fd) int userns = -1;
	char path[64];
	long pid;
	int r = path_open(".", &cwd, err);

	if (r < 0)
		return r;
	t.path = cwd.name;
	pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (pid < 0)
		return err_sys(err, -errno, "cannot create a user namespace");
	snprintf(path, sizeof(path), "/proc/%ld/ns/user", pid);
	r = launch_write_maps(&d->machine, (pid_t)pid, err);
	if (r == 0) {
		userns = open(path, O_RDONLY | O_CLOEXEC);
		r = userns < 0 ? err_sys(err, -errno, "cannot open %s", path)
			       : tree_open(&t, userns, err);
	}
	if (r == 0)
		fd_close(&t.fd);
	process_reap((pid_t)pid, true);
	return r;
}

void doctor_id_maps(struct doctor *d, struct doctor_row *row)
{
	struct err err = { 0 };

	if (!d->has_machine) {
		doctor_found(d, row, DOCTOR_FAILED, "%s", d->machine_text);
		row->follows = cannot_start;
		return;
	}
	if (!d->machine.root) {
		doctor_found(d, row, DOCTOR_OK, "not needed by an ordinary user");
		return;
	}
	if (!needs_namespaces(d, row))
		return;
	if (copy_cwd(d, &err) == 0) {
		doctor_found(d, row, DOCTOR_OK,
			     "the current directory can be mounted with another id map");
		return;
	}
	doctor_found(d, row, DOCTOR_FAILED, "%s", err.text);
	row->follows = "started by root, weir can't show this directory to a sandbox: "
		       "start it from ext4, xfs, btrfs or tmpfs, or as an ordinary user";
}

/* --- confinement --- */

void doctor_landlock(struct doctor *d, struct doctor_row *row)
{
	static const char mend[] =
		"sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&lsm=landlock,lockdown,yama,"
		"integrity,apparmor,bpf /' /etc/default/grub && sudo update-grub && sudo "
		"reboot";
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
			   LANDLOCK_CREATE_RULESET_VERSION);

	if (abi >= LANDLOCK_SCOPES) {
		doctor_found(d, row, DOCTOR_OK, "version %ld", abi);
	} else if (abi >= 1) {
		doctor_found(d, row, DOCTOR_OK,
			     "version %ld (from %d on signals are cut off, too)", abi,
			     LANDLOCK_SCOPES);
	} else {
		doctor_found(d, row, DOCTOR_WARNING, "not offered: %s", strerror(errno));
		row->follows = "only seccomp keeps the engine from files";
		doctor_mend_each(
			row, mend, mend,
			"sudo grubby --update-kernel=ALL "
			"--args=lsm=landlock,lockdown,yama,integrity,selinux,bpf "
			"&& sudo reboot");
	}
}

/* The filter that the command gets; its answer to a call that it refuses. */
static int try_seccomp(int *ret_value, struct err *err)
{
	if (enter_filter(err) < 0)
		return err->code;
	if (socket(AF_VSOCK, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
		return err_set(err, -EBADMSG, "an installed seccomp filter is ignored");
	if (socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP) >= 0 || errno != EPROTONOSUPPORT)
		return err_set(
			err, -EBADMSG,
			"an installed seccomp filter lets unknown protocols through");
	return 0;
}

/* --- what needs no code of its own --- */

/* What either works, or is a fault. */
static const struct {
	const char *name; /* of the row */
	doctor_try_fn *fn;
	const char *found;   /* where it works */
	const char *follows; /* where it doesn't; NULL: no sandbox can be started */
	const char *mend;    /* NULL: no command does */
	bool outside;	     /* not in namespaces as a sandbox has them */
} needed[] = {
	{ "proc", open_proc, "a new /proc can be mounted",
	  "no sandbox can be started: something is mounted over a part of /proc, and a "
	  "new one would show that part; a container has to be started with all of its "
	  "/proc (Docker: --security-opt systempaths=unconfined; podman: --security-opt "
	  "unmask=ALL)",
	  NULL },
	{ "nf_tables", try_filter, "the filter was installed and read back", NULL,
	  "sudo modprobe -a nf_tables nft_ct nft_redir nft_reject_inet nft_fib_inet "
	  "nft_log" },
	/* The engine refuses to serve without its log socket. */
	{ "NFLOG", try_nflog, "a refused packet was reported", NULL,
	  "sudo modprobe -a nfnetlink_log nft_log" },
	{ "overlay", try_overlay, "can be mounted in a user namespace",
	  "no sandbox can be started: only through an overlay are the host's unix "
	  "sockets "
	  "closed; Linux 5.11 or later is needed, and a root file system that isn't two "
	  "overlays deep already",
	  "sudo modprobe overlay" },
	{ "seccomp", try_seccomp,
	  "the command's filter was installed; of protocols only ICMP, TCP and UDP are "
	  "left",
	  NULL, NULL, true },
};

void doctor_needed(struct doctor *d, struct doctor_row *row)
{
	struct doctor_attempt a;
	size_t i = 0;

	while (i < ARRAY_SIZE(needed) && strcmp(needed[i].name, row->name) != 0)
		i++;
	assert(i < ARRAY_SIZE(needed));
	if (!needed[i].outside && !needs_namespaces(d, row))
		return;
	doctor_try(d, needed[i].fn, !needed[i].outside, &a);
	if (a.code == 0) {
		doctor_found(d, row, DOCTOR_OK, "%s", needed[i].found);
		return;
	}
	found_failed(d, row, &a);
	if (needed[i].follows)
		row->follows = needed[i].follows;
	if (needed[i].mend)
		doctor_mend(row, needed[i].mend);
}
