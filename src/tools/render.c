// SPDX-License-Identifier: Apache-2.0
#include "tools/render.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include <linux/magic.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/ruleset.h"
#include "policy/faults.h"
#include "policy/load.h"
#include "tools/render_internal.h"

/* ---- options ---- */

static int set_resolver(void *target, const char *value, struct err *err)
{
	struct render_spec *spec = target;
	char shown[TEXT_ESCAPED_SIZE];
	struct addr a;

	if (strcmp(value, "none") == 0) {
		spec->no_resolver = true;
		return 0;
	}
	if (!addr_parse(value, strlen(value), &a))
		return err_set(err, -EINVAL, "'%s' is not an address, nor none",
			       text_escape(text_of(value), shown, sizeof(shown)));
	if (spec->resolver_count == NAME_SERVERS_MAX)
		return err_set(err, -EINVAL, "given more than %d times",
			       NAME_SERVERS_MAX);
	spec->resolvers[spec->resolver_count++] = a;
	return 0;
}

static const struct cli_option options[] = {
	{ "cgroup", "PATH", "for the processes of this control group and below it",
	  OPTION_IN(TEXT, struct render_spec, cgroup) },
	{ "uid", "UID", "for the processes of this user",
	  OPTION_IN(TEXT, struct render_spec, uid) },
	{ "id", "NAME", "what table and file are called (from the group or the user)",
	  OPTION_IN(TEXT, struct render_spec, id) },
	POLICY_ARGS_ROWS(struct render_spec, policy),
	POLICY_VERIFY_ROW(struct render_spec, policy,
			  "dns: render a policy that asks for tls all the same"),
	{ "resolver", "ADDR",
	  "a name server that may be asked, or none; may be repeated (resolv.conf's)",
	  set_resolver, ' ' },
	{ "upstream", "ADDR[:PORT]",
	  "name server to resolve with, now; may be repeated (resolv.conf)",
	  name_servers_add, ' ', OPTION_IN(CUSTOM, struct render_spec, upstreams) },
	{ "install", NULL, "write the rules to /etc/nftables.d and load them",
	  OPTION_IN(FLAG, struct render_spec, install) },
};
const struct cli_options cli_render_options = { options, ARRAY_SIZE(options) };

void cli_render_usage(FILE *out)
{
	fputs("usage: weir render (--cgroup PATH|--uid UID) [OPTION]...\n\n"
	      "Print a policy as nft rules for a control group or a user of this host,\n"
	      "for hosts that load their rules by themselves. Names are resolved "
	      "once.\n\n",
	      out);
	cli_options_print(out, &cli_render_options);
	fputs("\nExit status: 2 bad input; 125 Weir could not do what was asked.\n", out);
}

/* nft looks there, whatever is mounted where. */
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

void render_table_name(const char *id, char ret[RENDER_TABLE_SIZE])
{
	snprintf(ret, RENDER_TABLE_SIZE, "weir_%s", id);
}

/* ---- the cgroup ---- */

/* Where version 2 is mounted: there, or, beside version 1, below it. */
static const char *mount_point(void)
{
	static const char *const places[] = { CGROUPS, CGROUPS "/unified" };
	struct statfs st;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (statfs(places[i], &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC)
			return places[i];
	return NULL;
}

/* It stands between quotes in nft's words. */
static bool is_plain(const char *path)
{
	for (; *path; path++)
		if (*path <= ' ' || *path > '~' || *path == '"')
			return false;
	return true;
}

static uint8_t count_levels(const char *below)
{
	size_t levels = 0;

	for (; *below; below++)
		levels += *below == '/';
	return levels <= UINT8_MAX ? (uint8_t)levels : 0;
}

/* @given as it stands, or as /proc/self/cgroup has it: below the mount point. */
static void find_cgroup(const char *given, struct arena *arena, struct faults *f,
			struct filter_cgroup *ret)
{
	const char *mount = mount_point(), *path = given;
	char shown[TEXT_ESCAPED_SIZE], real[PATH_MAX];
	struct stat st;
	size_t len;

	text_escape(text_of(given), shown, sizeof(shown));
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
	if (strncmp(real, mount, len) != 0 || real[len] != '/' || !is_plain(real)) {
		option_fault(f, "--cgroup", "'%s' is not a control group below %s", shown,
			     mount);
		return;
	}
	ret->level = count_levels(real + len);
	ret->id = st.st_ino;
	ret->path = arena_text(arena, text_of(real + sizeof(CGROUPS)));
	if (ret->level == 0 || !ret->path)
		option_fault(f, "--cgroup", "'%s' is too deep", shown);
}

/* ---- the user ---- */

static void find_uid(const char *given, struct faults *f, uint32_t *ret)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (text_to_u32(text_of(given), UINT32_MAX - 1, ret) && *ret > 0)
		return;
	option_fault(f, "--uid", "'%s' is not a user id from 1 to %u",
		     text_escape(text_of(given), shown, sizeof(shown)), UINT32_MAX - 1);
}

/* ---- the member ---- */

static const char *default_id(const struct render_spec *spec, struct arena *arena)
{
	const char *slash = spec->cgroup ? strrchr(spec->cgroup, '/') : NULL;

	if (spec->uid)
		return arena_printf(arena, "uid-%s", spec->uid);
	return slash ? slash + 1 : spec->cgroup;
}

static void find_id(const struct render_spec *spec, struct arena *arena, struct faults *f,
		    struct render_member *ret)
{
	const char *id = spec->id ? spec->id : default_id(spec, arena);
	char shown[TEXT_ESCAPED_SIZE];

	if (!id || !is_valid_id(id)) {
		text_escape(text_of(id ? id : ""), shown, sizeof(shown));
		/* What else it would be made from may be wrong by itself. */
		if (spec->id || spec->cgroup)
			option_fault(f, "--id",
				     "'%s' is not a name of letters, digits, - and _, "
				     "%d at most",
				     shown, RENDER_ID_MAX);
		return;
	}
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	render_table_name(id, ret->table);
	snprintf(ret->prefix, sizeof(ret->prefix), FILTER_PREFIX_REFUSED " %s", id);
	ret->mark = MARK_BASE |
		    ((uint32_t)hash_bytes(&(struct hash_key){ 0 }, id, strlen(id)) &
		     MARK_BITS);
}

/* Every fault is added to @f. Texts live in @arena. */
static void find_member(const struct render_spec *spec, struct arena *arena,
			struct faults *f, struct render_member *ret)
{
	if (!spec->cgroup == !spec->uid)
		option_fault(f, "render", "give either --cgroup or --uid");
	if (spec->cgroup)
		find_cgroup(spec->cgroup, arena, f, &ret->cgroup);
	if (spec->uid)
		find_uid(spec->uid, f, &ret->uid);
	ret->by_cgroup = spec->cgroup;
	find_id(spec, arena, f, ret);
}

/* ---- reading ---- */

static int load(const struct render_spec *spec, struct arena *arena, struct faults *f,
		struct policy *ret)
{
	const struct policy_reader reader = { .arena = arena, .faults = f };
	int r = cli_policy_load(&spec->policy, arena, f, ret);

	if (r == 0)
		render_policy_check(&reader, ret);
	return r == -ENOMEM ? r : 0;
}

/* The name servers that the host itself asks, unless others are named. */
static void find_resolvers(struct render_spec *spec)
{
	struct name_servers host = { 0 };
	struct err err = { 0 };

	if (spec->no_resolver || spec->resolver_count > 0 ||
	    name_servers_complete(&host, &err) < 0)
		return;
	for (size_t i = 0; i < host.count; i++)
		spec->resolvers[spec->resolver_count++] = host.items[i].addr;
}

/* ---- writing ---- */

/* Everything that is rendered, until it is printed. */
struct rendering {
	struct arena arena;
	struct faults faults;
	struct policy policy;
	struct render_member member;
	struct render_pins pins;
	uint8_t *names_plan, *plan_bytes; /* owned */
	struct plan plan;
	char *text; /* owned */
	size_t size;
};

static void rendering_done(struct rendering *r)
{
	free(r->names_plan);
	free(r->plan_bytes);
	free(r->text);
	faults_done(&r->faults);
	arena_done(&r->arena);
}

static void write_pins(const struct rendering *r, FILE *out)
{
	char name[DNS_NAME_TEXT_SIZE], text[ADDR_TEXT_SIZE];

	for (size_t i = 0; i < r->pins.count; i++)
		fprintf(out, "#   %s %s\n", addr_format(&r->pins.items[i].addr, text),
			dns_name_format(&r->pins.items[i].name, name));
}

static void write_sources(const struct rendering *r, FILE *out)
{
	char shown[TEXT_ESCAPED_SIZE];

	fputs("# Policy:", out);
	for (size_t i = 0; i < r->policy.source_count; i++)
		fprintf(out, " %s",
			text_escape(text_of(r->policy.sources[i]), shown, sizeof(shown)));
	fputs(r->policy.source_count > 0 ? "\n" : " the command line\n", out);
}

static void write_head(const struct rendering *r, const struct render_spec *spec,
		       FILE *out)
{
	time_t now = (time_t)(clock_wall_ms() / 1000);
	char text[ADDR_TEXT_SIZE], when[32] = "";
	struct tm tm;

	if (gmtime_r(&now, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(out, RENDER_FIRST_LINE "%s by weir " WEIR_VERSION " on %s.\n",
		r->member.id, when);
	if (r->member.by_cgroup)
		fprintf(out, "# For the processes of the control group %s.\n",
			r->member.cgroup.path);
	else
		fprintf(out, "# For the processes of the user %u.\n", r->member.uid);
	write_sources(r, out);
	fputs("# Name servers:", out);
	for (size_t i = 0; i < spec->resolver_count; i++)
		fprintf(out, " %s", addr_format(&spec->resolvers[i], text));
	fprintf(out, "%s\n# Names, as they were resolved then:\n",
		spec->resolver_count > 0 ? "" : " none");
	write_pins(r, out);
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
	find_member(spec, &r->arena, &r->faults, &r->member);
	if (load(spec, &r->arena, &r->faults, &r->policy) < 0) {
		log_error("out of memory");
		return RUN_STATUS_FAILED;
	}
	if (spec->no_resolver && spec->resolver_count > 0)
		option_fault(&r->faults, "--resolver", "none and an address");
	faults_print(&r->faults, false);
	return r->faults.errors > 0 ? RUN_STATUS_BAD_INPUT : 0;
}

static int resolve_names(struct rendering *r, struct render_spec *spec,
			 render_resolve_fn *resolve, struct err *err)
{
	struct plan names;
	size_t size;
	int error = policy_compile(&r->policy, &r->names_plan, &size, err);

	if (error == 0)
		error = plan_open(r->names_plan, size, &names, err);
	if (error == 0 && policy_asks_names(&r->policy))
		error = name_servers_complete(&spec->upstreams, err);
	if (error == 0)
		error = render_policy_resolve(spec, &names, resolve, &r->arena, &r->pins,
					      err);
	if (error == 0 && r->pins.missing > 0)
		error = err_set(err, -ENOENT, "a name that is required has no address");
	return error;
}

static int make(struct rendering *r, struct render_spec *spec, render_resolve_fn *resolve,
		struct err *err)
{
	int error = resolve_names(r, spec, resolve, err);

	if (error < 0)
		return error;
	find_resolvers(spec);
	error = render_policy_fix(&r->policy, &r->pins, spec, &r->arena, &r->plan_bytes,
				  &r->plan, err);
	return error < 0 ? error : write_text(r, spec, err);
}

static int render(struct render_spec *spec, render_resolve_fn *resolve)
{
	struct rendering r = { 0 };
	struct err err = { 0 };
	int status = prepare(&r, spec);

	if (status == 0 && make(&r, spec, resolve, &err) < 0) {
		log_error("%s", err.text[0] ? err.text : strerror(-err.code));
		status = RUN_STATUS_FAILED;
	}
	if (status == 0 && spec->install)
		status = render_install(r.member.id, r.text, r.size);
	else if (status == 0 && fwrite(r.text, 1, r.size, stdout) != r.size)
		status = RUN_STATUS_FAILED;
	rendering_done(&r);
	return status;
}

int cli_render(int argc, char **argv, render_resolve_fn *resolve)
{
	CLEAN(mem) struct render_spec *spec = calloc(1, sizeof(*spec));
	struct err err = { 0 };
	int first;

	if (!spec) {
		log_error("out of memory");
		return RUN_STATUS_FAILED;
	}
	spec->policy.verify = POLICY_VERIFY_DNS;
	first = cli_options_parse(&cli_render_options, spec, argc, argv, NULL, &err);
	if (first >= 0 && first < argc)
		first = err_set(&err, -EINVAL, "render takes no argument");
	if (first < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	return render(spec, resolve);
}

void cli_teardown_usage(FILE *out)
{
	fputs("usage: weir teardown ID\n\n"
	      "Take away what `weir render --install` has put there: the table and the "
	      "file.\nThis opens.\n",
	      out);
}

int cli_teardown(int argc, char **argv)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (argc != 2) {
		log_error("teardown takes one id");
		return RUN_STATUS_BAD_INPUT;
	}
	if (!is_valid_id(argv[1])) {
		log_error("'%s' is not an id",
			  text_escape(text_of(argv[1]), shown, sizeof(shown)));
		return RUN_STATUS_BAD_INPUT;
	}
	return render_teardown(argv[1]);
}
