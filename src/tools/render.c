// SPDX-License-Identifier: Apache-2.0
#include "tools/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/pin_names.h"
#include "event/json.h"
#include "filter/ruleset.h"
#include "outputs/client.h"
#include "policy/load.h"
#include "policy/policy.h"
#include "sandbox/verdict.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/resolv_conf.h"

enum {
	RENDER_ID_MAX = 20,
	RENDER_TABLE_SIZE = RENDER_ID_MAX + sizeof("weir_"),
};

struct render_spec {
	struct policy_args policy;
	struct name_servers upstreams; /* none: those of the host's resolv.conf */
	const char *cgroup, *uid, *id;
	struct addr resolvers[NAME_SERVERS_MAX];
	size_t resolver_count;
	bool no_resolver, install;
};

struct render_member {
	char id[RENDER_ID_MAX + 1];
	char table[RENDER_TABLE_SIZE];
	char prefix[RENDER_ID_MAX + sizeof(FILTER_PREFIX_REFUSED) + 1]; /* of the log */
	bool by_cgroup;
	uint32_t uid;
	struct filter_cgroup cgroup;
	uint32_t mark;
};

/* How a text of ours begins. */
#define RENDER_FIRST_LINE "# Made by weir render for "

/* ---- options ---- */

static int set_resolver(void *target, const char *value, struct err *err)
{
	struct render_spec *spec = target;
	struct addr a;

	if (strcmp(value, "none") == 0) {
		spec->no_resolver = true;
		return 0;
	}
	if (!addr_parse(value, strlen(value), &a))
		return err_set(err, -EINVAL, "'%s' is not an address, nor none",
			       SHOWN(value));
	if (spec->resolver_count == NAME_SERVERS_MAX)
		return err_set(err, -EINVAL, "given more than %d times",
			       NAME_SERVERS_MAX);
	spec->resolvers[spec->resolver_count++] = a;
	return 0;
}

#define IN(KIND, field) OPTION_IN(KIND, struct render_spec, field)

static const struct cli_option options[] = {
	{ "cgroup", "PATH", "for the processes of this control group and below it",
	  IN(TEXT, cgroup) },
	{ "uid", "UID", "for the processes of this user", IN(TEXT, uid) },
	{ "id", "NAME", "what table and file are called (from the group or the user)",
	  IN(TEXT, id) },
	POLICY_ARGS_ROWS(struct render_spec, policy),
	POLICY_VERIFY_ROW(struct render_spec, policy,
			  "dns: render a policy that asks for tls all the same"),
	{ "resolver", "ADDR",
	  "a name server that may be asked, or none; may be repeated (resolv.conf's)",
	  set_resolver, ' ' },
	{ "upstream", "ADDR[:PORT]",
	  "name server to resolve with, now; may be repeated (resolv.conf)",
	  name_servers_add, ' ', IN(CUSTOM, upstreams) },
	{ "install", NULL, "write the rules to /etc/nftables.d and load them",
	  IN(FLAG, install) },
};
const struct cli_options cli_render_options = {
	OPTION_ROWS(options),
	.usage = "usage: weir render (--cgroup PATH|--uid UID) [OPTION]...\n\n"
		 "Print a policy as nft rules for a control group or a user of this "
		 "host,\n"
		 "for hosts that load their rules by themselves. Names are resolved "
		 "once.\n",
	.notes = "Exit status: 2 bad input; 125 Weir could not do what was asked.\n",
};

/* nft reads paths below this mount point, whatever is mounted elsewhere. */
#define CGROUPS "/sys/fs/cgroup"

enum {
	MARK_BASE = 0x77000000, /* with a hash of the id behind it */
	MARK_BITS = 0x00ffffff,
};

PRINTF_LIKE(3, 4)
static void option_fault(struct faults *f, const char *option, const char *fmt, ...)
{
	char text[FAULT_TEXT_SIZE / 2];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	faults_add(f, FAULT_ERROR, option, 0, 0, "", "%s", text);
}

/* It becomes a part of a table's and a file's name. */
static bool is_valid_id(const char *id)
{
	static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "0123456789_-";
	size_t len = strlen(id);

	return len > 0 && len <= RENDER_ID_MAX && id[0] != '-' && strspn(id, all) == len;
}

static void table_name(const char *id, char ret[RENDER_TABLE_SIZE])
{
	snprintf(ret, RENDER_TABLE_SIZE, "weir_%s", id);
}

/* ---- the cgroup ---- */

/* @given as a path of the file system, or as /proc/self/cgroup has it, below the
 * mount point. */
static void find_cgroup(const char *given, struct arena *arena, struct faults *f,
			struct filter_cgroup *ret)
{
	static const char *const places[] = { CGROUPS, CGROUPS "/unified" };
	const char *mount = NULL, *path = given;
	const char *shown = SHOWN(given);
	char real[PATH_MAX];
	struct statfs fs;
	struct stat st;
	size_t len, levels = 0;
	bool is_plain = true;

	/* Where version 2 is mounted: there, or, beside version 1, below it. */
	for (size_t i = 0; !mount && i < ARRAY_SIZE(places); i++)
		if (statfs(places[i], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
			mount = places[i];
	if (!mount) {
		option_fault(f, "--cgroup", "no control groups of version 2 in " CGROUPS);
		return;
	}
	len = strlen(mount);
	if (strncmp(given, CGROUPS "/", sizeof(CGROUPS)) != 0)
		path = arena_printf(arena, "%s/%s", mount, given);
	if (!path || !realpath(path, real) || stat(real, &st) < 0 ||
	    !S_ISDIR(st.st_mode)) {
		option_fault(f, "--cgroup", "'%s' is no control group", shown);
		return;
	}
	/* The path is quoted in nft's language. */
	for (const char *p = real; *p; p++)
		is_plain &= *p > ' ' && *p <= '~' && *p != '"';
	if (strncmp(real, mount, len) != 0 || real[len] != '/' || !is_plain) {
		option_fault(f, "--cgroup", "'%s' is not a control group below %s", shown,
			     mount);
		return;
	}
	for (const char *below = real + len; *below; below++)
		levels += *below == '/';
	ret->level = levels <= UINT8_MAX ? (uint8_t)levels : 0;
	ret->id = st.st_ino;
	ret->path = arena_text(arena, text_of(real + sizeof(CGROUPS)));
	if (ret->level == 0 || !ret->path)
		option_fault(f, "--cgroup", "'%s' is too deep", shown);
}

/* ---- the member ---- */

/* Every fault is added to @f. Texts live in @arena. */
static void find_member(const struct render_spec *spec, struct arena *arena,
			struct faults *f, struct render_member *ret)
{
	const char *slash = spec->cgroup ? strrchr(spec->cgroup, '/') : NULL;
	const char *id = spec->id    ? spec->id
			 : spec->uid ? arena_printf(arena, "uid-%s", spec->uid)
			 : slash     ? slash + 1
				     : spec->cgroup;
	const char *fault;

	if (!spec->cgroup == !spec->uid)
		option_fault(f, "render", "give either --cgroup or --uid");
	if (spec->cgroup)
		find_cgroup(spec->cgroup, arena, f, &ret->cgroup);
	fault = spec->uid ? client_user_fault(spec->uid, &ret->uid) : NULL;
	if (fault)
		option_fault(f, "--uid", "'%s' is %s", SHOWN(spec->uid), fault);
	ret->by_cgroup = spec->cgroup;
	if (!id || !is_valid_id(id)) {
		/* What else it would be made from may be wrong by itself. */
		if (spec->id || spec->cgroup)
			option_fault(f, "--id",
				     "'%s' is not a name of letters, digits, - and _, "
				     "%d at most",
				     SHOWN(id ? id : ""), RENDER_ID_MAX);
		return;
	}
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	table_name(id, ret->table);
	snprintf(ret->prefix, sizeof(ret->prefix), FILTER_PREFIX_REFUSED " %s", id);
	ret->mark = MARK_BASE |
		    ((uint32_t)hash_bytes(&(struct hash_key){ 0 }, id, strlen(id)) &
		     MARK_BITS);
}

/* One address of one name. */
struct render_pin {
	uint32_t rule; /* of the policy */
	struct dns_name name;
	struct addr addr;
};

struct render_pins {
	struct render_pin *items; /* in the arena; by rule, then by address */
	size_t count;
	size_t missing; /* required names without an address */
};

/* ---- names become address rules ---- */

/* Who decides for a name is the plan, as everywhere; so each name is resolved for the
 * rule that decides it, and its addresses take that rule's place as address rules with
 * its ports. Rules about names that deny have nothing left to do: what isn't resolved
 * isn't open. Address rules stay as they are, and a deny of them is absolute. */

enum { PINS_MAX = 65536, DNS_PORT = 53 };

/* Faults for what an address rule can't enforce. */
static void check_policy(const struct policy_reader *r, struct policy *p)
{
	const struct policy_place *verify = &p->verify_at, *denies = &p->on_denies_at;
	bool has_budget = p->budget.sent > 0;

	if (p->verify == POLICY_VERIFY_TLS)
		faults_add(r->faults, FAULT_ERROR,
			   verify->file ? verify->file : "--verify", verify->line,
			   verify->column, verify->file ? "verify" : "",
			   "'tls' needs a process that looks into connections; "
			   "--verify dns renders what can be had without");
	/* No process is there to count. */
	if (p->on_denies.count > 0)
		faults_add(r->faults, FAULT_WARNING, denies->file, denies->line,
			   denies->column, "on_denies",
			   "rules alone count nothing, ignoring: use weir run, sidecar "
			   "or daemon");
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *rule = &p->rules[i];

		has_budget = has_budget || rule->budget.sent > 0 ||
			     rule->budget.received > 0;
		if (rule->until_ms != 0)
			faults_add(
				r->faults, FAULT_ERROR, rule->file, rule->line,
				rule->column, "",
				"rules alone can't end: use weir run, sidecar or daemon");
	}
	if (has_budget)
		faults_add(
			r->faults, FAULT_ERROR, "", 0, 0, "",
			"rules alone count no budget: use weir run, sidecar or daemon");
	if (p->dns == POLICY_DNS_PINNED)
		return; /* has been checked as such */
	p->dns = POLICY_DNS_PINNED;
	if (!p->dns_at.file)
		p->dns_at.file = p->source_count > 0 ? p->sources[0] : "render";
	(void)!policy_check_pinned(r, p);
}

struct resolving {
	const struct plan *plan;
	struct arena *arena;
	struct render_pins pins;
	size_t capacity;
	bool failed; /* memory is out, or there are too many */
};

/* The process that resolved has read hostile bytes: the plan is asked again. */
static void on_addr(void *data, const struct dns_name *name, const struct addr *a)
{
	struct resolving *r = data;
	struct plan_verdict v = plan_match_name(r->plan, name);
	struct render_pin *items;
	size_t room;

	if (v.action != POLICY_ALLOW || v.rule == PLAN_NO_RULE ||
	    rebinding_fault(r->plan, &v, a) || !rebinding_teaches(r->plan, &v, a))
		return;
	if (r->pins.count == r->capacity) {
		room = r->capacity ? r->capacity * 2 : 64;
		items = room <= PINS_MAX ? arena_array(r->arena, room, sizeof(*items))
					 : NULL;
		if (!items) {
			r->failed = true;
			return;
		}
		if (r->pins.count > 0)
			memcpy(items, r->pins.items, r->pins.count * sizeof(*items));
		r->pins.items = items;
		r->capacity = room;
	}
	r->pins.items[r->pins.count++] =
		(struct render_pin){ .rule = v.rule, .name = *name, .addr = *a };
}

static void on_fault(void *data, const struct dns_name *name, const char *why,
		     bool has_some)
{
	struct resolving *r = data;
	struct plan_verdict v = plan_match_name(r->plan, name);
	char text[DNS_NAME_TEXT_SIZE];

	dns_name_format(name, text);
	if (v.flags & PLAN_REQUIRED && !has_some) {
		r->pins.missing++;
		log_error("cannot resolve %s: %s (the rule says required)", text, why);
		return;
	}
	log_warning("cannot resolve %s%s: %s", text, has_some ? " fully" : "", why);
}

static int by_rule(const void *a, const void *b)
{
	const struct render_pin *x = a, *y = b;

	if (x->rule != y->rule)
		return x->rule < y->rule ? -1 : 1;
	return addr_compare(&x->addr, &y->addr);
}

/* Resolve the names of @plan; what is not found is said on stderr. */
static int resolve_pins(const struct render_spec *spec, const struct plan *plan,
			struct arena *arena, struct render_pins *ret, struct err *err)
{
	struct resolving r = { .plan = plan, .arena = arena };
	const struct render_names names = {
		.plan = plan,
		.upstreams = spec->upstreams.items,
		.upstream_count = spec->upstreams.count,
		.data = &r,
		.on_addr = on_addr,
		.on_fault = on_fault,
	};
	struct dns_name name;
	bool has_names = false;
	int error;

	for (uint32_t at = 0; !has_names && plan_name_next(plan, &at, &name);)
		has_names = plan_match_name(plan, &name).action == POLICY_ALLOW;
	error = has_names ? pin_names(&names, err) : 0;
	if (error < 0)
		return error;
	if (r.failed)
		return err_set(err, -E2BIG, "the names have too many addresses");
	if (r.pins.count > 0)
		qsort(r.pins.items, r.pins.count, sizeof(*r.pins.items), by_rule);
	*ret = r.pins;
	return 0;
}

static struct rule addr_rule(const struct addr *a, const struct rule *from,
			     struct arena *arena)
{
	return (struct rule){
		.action = POLICY_ALLOW,
		.kind = TARGET_PREFIX,
		.prefix = { .addr = *a, .bits = (uint8_t)(8 * addr_size(a)) },
		.ports = from->ports,
		.flags = from->flags & PLAN_PORTS_LISTED,
		.target = arena_text(arena, text_of(ADDR_SHOWN(a))),
		.comment = from->comment,
		.file = from->file,
		.line = from->line,
		.column = from->column,
	};
}

/* @policy with its names as addresses, and the resolvers, compiled. *@ret_bytes is
 * malloc'ed. */
static int compile_pinned(const struct policy *policy, const struct render_pins *pins,
			  const struct render_spec *spec, struct arena *arena,
			  uint8_t **ret_bytes, struct plan *ret, struct err *err)
{
	static const struct plan_port_range ports[] = {
		{ .protocol = IPPROTO_TCP, .from = DNS_PORT, .to = DNS_PORT },
		{ .protocol = IPPROTO_UDP, .from = DNS_PORT, .to = DNS_PORT },
	};
	const struct rule resolver = { .ports = { ports, ARRAY_SIZE(ports) },
				       .flags = PLAN_PORTS_LISTED,
				       .comment = "",
				       .file = "--resolver" };
	size_t room = policy->count + pins->count + spec->resolver_count + 1;
	struct policy fixed = { .rules = arena_array(arena, room, sizeof(struct rule)) };
	size_t pin = 0, size;
	int r;

	if (!fixed.rules)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < spec->resolver_count; i++)
		fixed.rules[fixed.count++] =
			addr_rule(&spec->resolvers[i], &resolver, arena);
	for (uint32_t i = 0; i < policy->count; i++) {
		const struct rule *rule = &policy->rules[i];

		if (rule->kind == TARGET_PREFIX)
			fixed.rules[fixed.count++] = *rule;
		for (; pin < pins->count && pins->items[pin].rule == i; pin++)
			fixed.rules[fixed.count++] =
				addr_rule(&pins->items[pin].addr, rule, arena);
	}
	for (size_t i = 0; i < fixed.count; i++)
		if (!fixed.rules[i].target)
			return err_set(err, -ENOMEM, "out of memory");
	r = policy_compile(&fixed, ret_bytes, &size, err);
	if (r == -ENOMEM && err->code == 0)
		err_set(err, r, "out of memory");
	return r < 0 ? r : plan_open(*ret_bytes, size, ret, err);
}

/* ---- the file ---- */

/* The file is written beside its place, checked (`nft -c`), loaded (`nft -f`, one
 * transaction: packets meet the old rules or the new ones), and takes its place then. If
 * loading fails everything is as it was. A file of that name that doesn't begin as ours
 * do, and a table of that name without a file of ours, are somebody else's: nothing is
 * done to them. */

#define FOLDER "/etc/nftables.d"

enum { PATH_SIZE = sizeof(FOLDER) + RENDER_ID_MAX + 32, HEAD_SIZE = 256 };

static int failed(const char *what, const char *path, int error)
{
	return log_end(RUN_STATUS_FAILED, "cannot %s %s: %s", what, path,
		       strerror(-error));
}

/* Return: its exit status, or -errno. */
static int nft(const char *const *args, bool quiet)
{
	char *const environment[] = { NULL };
	char path[PROGRAM_PATH_SIZE];
	int status, null, r = program_path("nft", path, NULL);
	pid_t pid;

	if (r < 0)
		return -ENOENT;
	pid = process_fork(NULL);
	if (pid == 0) {
		null = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
		if (null >= 0 && (dup2(null, 1) < 0 || dup2(null, 2) < 0))
			_exit(127);
		execve(path, (char *const *)(uintptr_t)args, environment);
		_exit(127);
	}
	status = pid < 0 ? pid : process_wait(pid);
	if (status < 0)
		return status;
	if (!WIFEXITED(status))
		return -ECHILD;
	return WEXITSTATUS(status) == 127 ? -ENOENT : WEXITSTATUS(status);
}

static bool nft_has_table(const char *table)
{
	const char *const args[] = { "nft", "-t", "list", "table", "inet", table, NULL };

	return nft(args, true) == 0;
}

/* Return: the exit status of ours, 0 when it went well. */
static int nft_must(const char *const *args, const char *what)
{
	int r = nft(args, false);

	if (r == -ENOENT)
		log_error("nft is not installed (Debian, Ubuntu: apt install nftables)");
	else if (r != 0)
		log_error("nft could not %s", what);
	return r == 0 ? 0 : RUN_STATUS_FAILED;
}

static void path_of(const char *id, char ret[PATH_SIZE])
{
	snprintf(ret, PATH_SIZE, FOLDER "/weir-%s.nft", id);
}

/* Return: 1: the file is one of Weir's; 0: there is none; -EEXIST: it is another
 * program's; -errno. */
static int look(const char *id, const char *path)
{
	char head[HEAD_SIZE + 1] = "", first[HEAD_SIZE];
	const struct file_how how = { .anybodys = true };
	CLEAN(fd) int fd = file_open(AT_FDCWD, path, &how, NULL);
	size_t size = 0;
	int r;

	if (fd == -EINVAL || fd == -ELOOP)
		return -EEXIST;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = file_read_at(fd, 0, head, HEAD_SIZE, &size);
	if (r < 0)
		return r;
	snprintf(first, sizeof(first), RENDER_FIRST_LINE "%s by weir ", id);
	return strncmp(head, first, strlen(first)) == 0 ? 1 : -EEXIST;
}

static int write_file(const char *path, const char *text, size_t size)
{
	CLEAN(fd) int fd = file_create(AT_FDCWD, path, 0644);
	int r = fd < 0 ? fd : file_write_all(fd, text, size);

	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (fd >= 0 && r < 0)
		(void)!unlink(path);
	return r;
}

/* So that the name outlives a power cut, too. */
static void sync_folder(void)
{
	CLEAN(fd) int fd = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		(void)!fsync(fd);
}

static int must_be_root(const char *verb)
{
	if (geteuid() == 0)
		return 0;
	return log_end(RUN_STATUS_FAILED, "%s needs root", verb);
}

/* Return: 0, or the exit status. */
static int may_replace(const char *id, const char *path)
{
	char table[RENDER_TABLE_SIZE];
	int r = look(id, path);

	table_name(id, table);
	if (r == 1)
		return 0;
	if (r == -EEXIST)
		return log_end(RUN_STATUS_FAILED,
			       "%s is not one of Weir's: take another --id", path);
	if (r < 0)
		return failed("read", path, r);
	if (!nft_has_table(table))
		return 0;
	return log_end(RUN_STATUS_FAILED,
		       "there is a table inet %s without %s: take another --id, or `weir "
		       "teardown %s` first",
		       table, path, id);
}

/* Return: the exit status; what has to be said is said. */
static int install(const char *id, const char *text, size_t size)
{
	char path[PATH_SIZE], fresh[PATH_SIZE];
	const char *const check[] = { "nft", "-c", "-f", fresh, NULL };
	const char *const load[] = { "nft", "-f", fresh, NULL };
	int status = must_be_root("--install"), r;

	path_of(id, path);
	snprintf(fresh, sizeof(fresh), FOLDER "/.weir-%s.new", id);
	if (status == 0 && mkdir(FOLDER, 0755) == 0)
		log_warning("made " FOLDER
			    "; for the rules to be loaded at boot, /etc/nftables.conf "
			    "needs the line: include \"" FOLDER "/*.nft\"");
	else if (status == 0 && errno != EEXIST)
		status = failed("make", FOLDER, -errno);
	if (status == 0)
		status = may_replace(id, path);
	if (status != 0)
		return status;
	r = write_file(fresh, text, size);
	if (r < 0)
		return failed("write", fresh, r);
	status = nft_must(check, "take the rules; nothing was changed");
	if (status == 0)
		status = nft_must(load, "load the rules; nothing was changed");
	if (status == 0 && rename(fresh, path) < 0)
		status = failed("write", path, -errno);
	if (status != 0)
		(void)!unlink(fresh);
	sync_folder();
	return status;
}

static int teardown(const char *id)
{
	char path[PATH_SIZE], table[RENDER_TABLE_SIZE];
	const char *const args[] = { "nft", "delete", "table", "inet", table, NULL };
	int r, status = must_be_root("teardown");
	bool has_table;

	path_of(id, path);
	table_name(id, table);
	if (status != 0)
		return status;
	r = look(id, path);
	if (r == -EEXIST)
		log_error("%s is not one of Weir's", path);
	else if (r < 0)
		return failed("read", path, r);
	if (r < 0)
		return RUN_STATUS_FAILED;
	has_table = nft_has_table(table);
	if (r == 0 && !has_table)
		return log_end(
			RUN_STATUS_FAILED,
			"there is nothing of that id: neither %s nor a table inet %s",
			path, table);
	/* The file first: should what follows fail, the rules are closed yet, and a boot
	 * finds what a person asked for. */
	if (r == 1 && unlink(path) < 0)
		return failed("remove", path, -errno);
	sync_folder();
	return has_table ? nft_must(args, "take the table away") : 0;
}

/* ---- writing ---- */

/* Everything that is rendered, until it is printed. */
struct rendering {
	struct arena arena;
	struct faults faults;
	struct policy policy;
	struct render_member member;
	struct render_pins pins;
	uint8_t *plan_bytes; /* owned */
	struct plan plan;
	char *text; /* owned */
	size_t size;
};

static void write_head(const struct rendering *r, const struct render_spec *spec,
		       FILE *out)
{
	char name[DNS_NAME_TEXT_SIZE], when[JTEXT_TIME_SIZE];

	fprintf(out, RENDER_FIRST_LINE "%s by weir " WEIR_VERSION " on %s.\n",
		r->member.id, jtext_time(clock_wall_ms(), false, when));
	if (r->member.by_cgroup)
		fprintf(out, "# For the processes of the control group %s.\n",
			r->member.cgroup.path);
	else
		fprintf(out, "# For the processes of the user %u.\n", r->member.uid);
	fputs("# Policy:", out);
	for (size_t i = 0; i < r->policy.source_count; i++)
		fprintf(out, " %s", SHOWN(r->policy.sources[i]));
	fputs(r->policy.source_count > 0 ? "\n" : " the command line\n", out);
	fputs("# Name servers:", out);
	for (size_t i = 0; i < spec->resolver_count; i++)
		fprintf(out, " %s", ADDR_SHOWN(&spec->resolvers[i]));
	fprintf(out, "%s\n# Names, as they were resolved then:\n",
		spec->resolver_count > 0 ? "" : " none");
	for (size_t i = 0; i < r->pins.count; i++)
		fprintf(out, "#   %s %s\n", ADDR_SHOWN(&r->pins.items[i].addr),
			dns_name_format(&r->pins.items[i].name, name));
	fprintf(out,
		"# `weir render --install` puts another one in its place, `weir teardown "
		"%s`\n# takes it away. What is refused goes to log group %d.\n\n",
		r->member.id, FILTER_NFLOG_GROUP);
}

static int write_text(struct rendering *r, const struct render_spec *spec,
		      struct err *err)
{
	const struct filter_member_params params = {
		.cgroup = r->member.by_cgroup ? &r->member.cgroup : NULL,
		.uid = r->member.uid,
		.prefix = r->member.prefix,
		.mark = r->member.mark,
	};
	const struct ruleset *rs;
	FILE *out;
	int error = ruleset_build_member(&r->plan, &params, &r->arena, &rs, err);

	if (error < 0)
		return error;
	out = open_memstream(&r->text, &r->size);
	if (!out)
		return err_set(err, -ENOMEM, "out of memory");
	write_head(r, spec, out);
	error = filter_text(rs, r->member.table, out);
	if (fclose(out) != 0 && error == 0)
		error = -ENOMEM;
	return error < 0 ? err_sys(err, error, "cannot write the rules") : 0;
}

/* ---- all of it ---- */

/* Everything that is wrong with what was asked for. Return: 0 or the exit status. */
static int prepare(struct rendering *r, struct render_spec *spec)
{
	const struct policy_reader reader = { .arena = &r->arena, .faults = &r->faults };
	int error;

	find_member(spec, &r->arena, &r->faults, &r->member);
	error = cli_policy_load(&spec->policy, &r->arena, &r->faults, &r->policy);
	if (error == -ENOMEM)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	if (error == 0)
		check_policy(&reader, &r->policy);
	if (spec->no_resolver && spec->resolver_count > 0)
		option_fault(&r->faults, "--resolver", "none and an address");
	faults_print(&r->faults, false);
	return r->faults.errors > 0 ? RUN_STATUS_BAD_INPUT : 0;
}

static int make(struct rendering *r, struct render_spec *spec, struct err *err)
{
	CLEAN(mem) uint8_t *bytes = NULL;
	struct name_servers host = { 0 };
	struct plan names;
	size_t size;
	int error = policy_compile(&r->policy, &bytes, &size, err);

	if (error == 0)
		error = plan_open(bytes, size, &names, err);
	if (error == 0 && policy_asks_names(&r->policy))
		error = name_servers_complete(&spec->upstreams, err);
	if (error == 0)
		error = resolve_pins(spec, &names, &r->arena, &r->pins, err);
	if (error == 0 && r->pins.missing > 0)
		error = err_set(err, -ENOENT, "a name that is required has no address");
	if (error < 0)
		return error;
	/* The name servers that the host itself asks, unless others are named. */
	if (!spec->no_resolver && spec->resolver_count == 0 &&
	    name_servers_complete(&host, NULL) == 0)
		for (size_t i = 0; i < host.count; i++)
			spec->resolvers[spec->resolver_count++] = host.items[i].addr;
	error = compile_pinned(&r->policy, &r->pins, spec, &r->arena, &r->plan_bytes,
			       &r->plan, err);
	return error < 0 ? error : write_text(r, spec, err);
}

static int render(struct render_spec *spec)
{
	struct rendering r = { 0 };
	struct err err = { 0 };
	int status = prepare(&r, spec);

	if (status == 0 && make(&r, spec, &err) < 0) {
		log_error("%s", err.text[0] ? err.text : strerror(-err.code));
		status = RUN_STATUS_FAILED;
	}
	if (status == 0 && spec->install)
		status = install(r.member.id, r.text, r.size);
	else if (status == 0 && fwrite(r.text, 1, r.size, stdout) != r.size)
		status = RUN_STATUS_FAILED;
	free(r.plan_bytes);
	free(r.text);
	faults_done(&r.faults);
	arena_done(&r.arena);
	return status;
}

int cli_render(int argc, char **argv)
{
	CLEAN(mem) struct render_spec *spec = calloc(1, sizeof(*spec));
	struct err err = { 0 };

	if (!spec)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	spec->policy.verify = POLICY_VERIFY_DNS;
	if (cli_options_only(&cli_render_options, spec, argc, argv, NULL, &err) < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "%s", err.text);
	return render(spec);
}

const struct cli_options cli_teardown_options = {
	.usage =
		"usage: weir teardown ID\n\n"
		"Take away what `weir render --install` has put there: the table and the "
		"file.\nThis opens.\n",
};

int cli_teardown(int argc, char **argv)
{
	if (argc != 2)
		return log_end(RUN_STATUS_BAD_INPUT,
			       "teardown takes the ID of a file " FOLDER "/weir-ID.nft");
	if (!is_valid_id(argv[1]))
		return log_end(RUN_STATUS_BAD_INPUT, "'%s' is not an id", SHOWN(argv[1]));
	return teardown(argv[1]);
}
