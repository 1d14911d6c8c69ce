// SPDX-License-Identifier: Apache-2.0
#include "supervisor/open.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "filter/filter.h"
#include "opensandbox/policy.h"
#include "opensandbox/policy_file.h"
#include "sandbox/budgets.h"
#include "sandbox/plan_file.h"
#include "settings/state_dir.h"
#include "sys/files.h"

enum {
	/* As many as the kernel takes: a connection that finds no room is tried again
	 * after a second, and a burst of silent ones must cost no other caller that. */
	HTTP_BACKLOG = 4096,
	PORT_WAIT_MS = 3000, /* for a sidecar that was killed to let go of its ports */
};

void supervisor_fds_init(struct supervisor_fds *h)
{
	*h = (struct supervisor_fds){ .http_fd = -1,
				      .tls_fd = -1,
				      .snapshot_fd = -1,
				      .plan_fd = -1,
				      .text_fd = -1 };
	sandbox_fds_init(&h->sandbox);
}

/* -- the policy at the start -------------------------------------------------------- */

static void print_fault(void *data, const char *text, enum fault_level level)
{
	if (level == FAULT_ERROR)
		log_error("%s", text);
	else if (level == FAULT_WARNING)
		log_warning("%s", text);
}

/* Where a policy comes from. */
struct origin {
	const char *name;
	bool strict; /* a key that means nothing is a fault: of a file, which a person has
		      * written */
};

static void on_unknown(void *data, const char *key)
{
	const struct origin *o = data;

	log_warning("%s: unknown key '%s', ignoring", o->name, key);
}

static int parse(struct text text, struct origin *o, struct document **ret,
		 struct err *err)
{
	struct err why = { 0 };
	int r = o->strict ? document_parse_strict(text, ret, &why)
			  : document_parse(text, on_unknown, o, ret, &why);

	return r < 0 ? err_set(err, r, "%s: invalid policy: %s", o->name, why.text) : 0;
}

/* Whatever it was, other rules might be wider. */
static int close_for(const char *why, struct document **ret, struct err *err)
{
	log_error("%s; nothing is let out until a policy is set", why);
	*ret = document_close(why);
	return *ret ? 1 : err_set(err, -ENOMEM, "out of memory");
}

/* Return: 1 with the policy of the file, or one that denies everything where the file had
 * one that can't be read any more; 0: it never had one; -errno: it is there and can't be
 * opened. */
static int document_of_file(const struct sidecar_spec *spec, struct arena *arena,
			    struct document **ret, struct err *err)
{
	const struct policy_file file = { .path = spec->policy_file,
					  .spare_dir = spec->state_dir };
	struct origin from = { .name = spec->policy_file, .strict = true };
	struct err why = { 0 }, unnoted = { 0 };
	struct text text;
	int r = policy_file_read(&file, arena, &text, &why);

	if (r < 0 && r != -ENOENT)
		return err_set(err, r, "%s", why.text);
	if (r < 0 || text_trim(text).len == 0) {
		if (!spec->state_dir || !closed_file_had_policy(spec->state_dir))
			return 0;
		return close_for(r < 0 ? "its policy file is gone"
				       : "its policy file is empty",
				 ret, err);
	}
	if (spec->state_dir && closed_file_note_policy(spec->state_dir, &unnoted) < 0)
		log_warning("%s", unnoted.text);
	r = parse(text, &from, ret, &why);
	if (r == 0)
		return 1;
	log_error("%s", why.text);
	return close_for("its policy file can't be read", ret, err);
}

/* A sandbox that was closed stays so. Else the file, if it has a policy or had one; else
 * the rules of the environment; else nothing is allowed. */
static int first_document(const struct sidecar_spec *spec, struct arena *arena,
			  struct document **ret, const char **ret_from, struct err *err)
{
	struct origin from_rules = { .name = "OPENSANDBOX_EGRESS_RULES" };
	struct err why = { 0 };
	int r = spec->state_dir ? closed_file_read(spec->state_dir, ret, &why) : 0;

	if (r < 0) {
		log_warning("%s; nothing is let out", why.text);
		*ret = document_close("closed.json can't be read");
	}
	if (r != 0) {
		*ret_from = "closed.json";
		return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
	}
	*ret_from = spec->policy_file;
	if (spec->policy_file)
		r = document_of_file(spec, arena, ret, err);
	if (r != 0)
		return MIN(r, 0);
	*ret_from = from_rules.name;
	if (spec->rules)
		return parse(text_of(spec->rules), &from_rules, ret, err);
	*ret = document_deny_all();
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int read_static_rules(const struct sidecar_spec *spec, struct arena *arena,
			     struct sidecar_policy_context *c, struct err *err)
{
	struct log_skip_names *names = NULL;
	struct static_rules static_rules;
	int r = static_rules_open(&static_rules, spec->static_rules_dir);

	if (r == 0)
		r = static_rules_read(&static_rules, arena, c->static_rules, err);
	for (size_t i = 0; r == 0 && i < STATIC_RULES_COUNT; i++)
		c->paths[i] = arena_text(arena, text_of(static_rules.paths[i]));
	static_rules_done(&static_rules);
	/* Control uses them; here it is only seen to that it can. */
	if (r == 0)
		r = log_skip_names_parse(c->static_rules[STATIC_RULES_LOG_SKIP],
					 c->paths[STATIC_RULES_LOG_SKIP], &names, err);
	log_skip_names_free(names);
	return r;
}

/* Plan and text into memfds. */
static int seal(struct supervisor_fds *h, const struct document *d, const uint8_t *plan,
		size_t size, struct err *err)
{
	CLEAN(mem) char *json = document_json(d, false);
	CLEAN(fd) int plan_fd = -1;
	int text_fd;

	if (!json)
		return err_set(err, -ENOMEM, "out of memory");
	plan_fd = plan_file_make(plan, size, err);
	text_fd = plan_fd < 0 ? -1
			      : plan_file_make((const uint8_t *)json, strlen(json), err);
	if (text_fd < 0)
		return err->code;
	clean_fd(&h->plan_fd);
	clean_fd(&h->text_fd);
	h->plan_fd = TAKE_FD(plan_fd);
	h->text_fd = text_fd;
	return 0;
}

/* What control will make of the text that it gets: with other bytes it would have the
 * policy installed a second time. */
static int compile_kept(struct sidecar_policy_context *c, const struct document *d,
			uint8_t **ret_plan, size_t *ret_size, struct err *err)
{
	CLEAN(mem) char *text = document_json(d, false);
	CLEAN(document) struct document *kept = NULL;
	int r = text ? document_parse(text_of(text), NULL, NULL, &kept, err)
		     : err_set(err, -ENOMEM, "out of memory");

	c->file = POLICY_IN_FORCE;
	return r < 0 ? r
		     : sidecar_policy_build(c, kept, NULL, NULL, ret_plan, ret_size, err);
}

static int open_policy(const struct sidecar_spec *spec, struct supervisor_fds *h,
		       struct err *err)
{
	struct sidecar_policy_context c = {
		.filters = spec->mode != SIDECAR_MODE_DNS,
		.names = spec->mode == SIDECAR_MODE_DNS_NFT_TLS,
	};
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(document) struct document *d = NULL;
	struct err reason = { 0 };
	CLEAN(mem) uint8_t *checked = NULL, *plan = NULL;
	struct plan opened;
	size_t size;
	int r = first_document(spec, &arena, &d, &c.file, err);

	if (r == 0)
		r = read_static_rules(spec, &arena, &c, err);
	if (r == 0) {
		/* Faults are told with the place where they are. */
		r = sidecar_policy_build(&c, d, print_fault, NULL, &checked, &size,
					 &reason);
		if (r == 0)
			r = compile_kept(&c, d, &plan, &size, &reason);
		if (r < 0)
			err_set(err, r, "%s", reason.text);
	}
	if (r < 0)
		err_context(err, "failed to load initial egress policy");
	if (r == 0)
		r = seal(h, d, plan, size, err);
	if (r == 0)
		h->needs_filter = plan_open(plan, size, &opened, NULL) < 0 ||
				  plan_requires_full_isolation(&opened) ||
				  plan_budget_count(&opened) > 0;
	return r;
}

int supervisor_deny_all(struct supervisor_fds *h, struct err *err)
{
	const struct sidecar_policy_context c = { .filters = true, .file = "" };
	CLEAN(document) struct document *d = document_deny_all();
	CLEAN(mem) uint8_t *plan = NULL;
	size_t size;
	int r = d ? sidecar_policy_build(&c, d, NULL, NULL, &plan, &size, err)
		  : err_set(err, -ENOMEM, "out of memory");

	return r < 0 ? r : seal(h, d, plan, size, err);
}

/* -- sockets ------------------------------------------------------------------------ */

bool supervisor_has_ipv6(void)
{
	const struct sockaddr_in6 loopback = { .sin6_family = AF_INET6,
					       .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	CLEAN(fd) int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd >= 0 &&
	       bind(fd, (const struct sockaddr *)&loopback, sizeof(loopback)) == 0;
}

int supervisor_open_http(const struct sidecar_spec *spec, bool ipv6, int *ret,
			 struct err *err)
{
	const uint8_t any[16] = { 0 };
	struct endpoint e = spec->http;
	struct sockaddr_storage sa;
	CLEAN(fd) int fd = -1;
	socklen_t size;
	int on = 1, off = 0, r;

	if (e.addr.family == ADDR_NONE)
		e.addr = ipv6 ? addr_from_bytes(ADDR_V6, any) : addr_v4(0, 0, 0, 0);
	size = endpoint_to_sockaddr(&e, &sa);
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, -errno, "cannot open the API's socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    (sa.ss_family == AF_INET6 && spec->http.addr.family == ADDR_NONE &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0))
		return err_sys(err, -errno, "cannot set up the API's socket");
	r = sock_serve(fd, (const struct sockaddr *)&sa, size, 0,
		       clock_now_ms() + PORT_WAIT_MS);
	if (r < 0)
		return err_sys(err, r, "cannot serve the API at %s", spec->http_addr);
	*ret = TAKE_FD(fd);
	return 0;
}

int supervisor_listen(const struct supervisor_fds *h, struct err *err)
{
	if (listen(h->http_fd, HTTP_BACKLOG) == 0 &&
	    (h->tls_fd < 0 || listen(h->tls_fd, HTTP_BACKLOG) == 0))
		return 0;
	return err_sys(err, -errno, "cannot serve the API");
}

enum { BOOT_ID_SIZE = 36 };
static const char image_prefix[] = "learned.";

/* Files of @state_dir that sidecars had on other boots. One that another machine's
 * sidecar has locked is not counted. @removes: take them away. Return: how many; 1 as
 * well where that can't be seen. */
static size_t earlier_images(const char *state_dir, const char *boot_id, bool removes)
{
	const struct file_how how = { .flags = O_RDWR, .anybodys = true, .own = true };
	const size_t prefix = strlen(image_prefix);
	CLEAN(directory)
	DIR *all = directory_open(open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct dirent *e;
	size_t count = !all;

	while (all && (e = directory_next(all))) {
		const char *name = e->d_name;
		CLEAN(fd) int fd = -1;

		if (strncmp(name, image_prefix, prefix) != 0 ||
		    strcmp(name + prefix, boot_id) == 0)
			continue;
		fd = file_open(dirfd(all), name, &how, NULL);
		if (fd < 0 || file_lock(fd) < 0)
			continue;
		count++;
		if (removes)
			(void)!unlinkat(dirfd(all), name, 0);
	}
	return count + (all && errno != 0);
}

/* A file that the next sidecar finds: one that comes back in a pod goes on with what this
 * one has learned. Only the supervisor may have it. *@ret_lost: what another one has
 * counted isn't in there, also on failure. Return: it, or -errno. */
static int open_image_file(const char *state_dir, bool *ret_found, bool *ret_lost)
{
	const struct file_how how = {
		.flags = O_RDWR | O_CREAT, .mode = 0600, .anybodys = true, .own = true
	};
	CLEAN(arena) struct arena arena = { 0 };
	char boot_id[BOOT_ID_SIZE + 1];
	CLEAN(fd) int fd = -1;
	struct stat st;
	char *path;
	int r;

	/* What was learned has times of this boot's clock. */
	if (file_read_kernel(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot_id,
			     sizeof(boot_id)) != BOOT_ID_SIZE)
		return -EIO;
	path = arena_printf(&arena, "%s/%s%s", state_dir, image_prefix, boot_id);
	if (!path)
		return -ENOMEM;
	fd = file_open(AT_FDCWD, path, &how, NULL);
	if (fd < 0)
		return fd;
	r = file_lock(fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_found = st.st_size == LEARNED_SNAPSHOT_SIZE;
	/* Another size is another version's: begin anew. */
	*ret_lost = !*ret_found &&
		    (st.st_size > 0 || earlier_images(state_dir, boot_id, false) > 0);
	/* What is lost is noted before the file has its size: a crash in between loses
	 * nothing. */
	if (!*ret_found && (ftruncate(fd, 0) < 0 || (*ret_lost && budgets_lose(fd) < 0) ||
			    posix_fallocate(fd, 0, LEARNED_SNAPSHOT_SIZE) != 0))
		return -ENOSPC;
	(void)earlier_images(state_dir, boot_id, true);
	return TAKE_FD(fd);
}

/* Rules of a sidecar stand in this namespace, or that can't be asked. */
static bool do_rules_stand(void)
{
	struct filter_conn conn = { .fd = -1 };
	struct filter_said said = { 0 };
	struct err ignored = { 0 };
	CLEAN(fd) int fd = -1;
	int r = sandbox_netlink_open(&fd, &ignored);

	if (r == 0)
		r = filter_conn_init(&conn, fd, &ignored);
	conn.naming = FILTER_NAMES_SHARED;
	if (r == 0)
		r = filter_standing(&conn, &said);
	return r < 0 || said.generation != 0;
}

static int open_image(const struct sidecar_spec *spec, struct supervisor_fds *h,
		      struct err *err)
{
	bool is_lost = false;
	CLEAN(fd)
	int fd = spec->state_dir
			 ? open_image_file(spec->state_dir, &h->snapshot_found, &is_lost)
			 : -ENOENT;
	int r;

	if (fd < 0 && spec->state_dir)
		log_warning("cannot keep in %s what is learned: %s; a restart of the "
			    "container forgets it",
			    spec->state_dir, strerror(-fd));
	if (fd < 0) {
		h->snapshot_found = false;
		fd = memfd_create("weir-learned", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0 || ftruncate(fd, LEARNED_SNAPSHOT_SIZE) < 0)
			return err_sys(err, -errno, "cannot make shared memory");
	}
	if (!h->snapshot_found && (is_lost || do_rules_stand())) {
		r = budgets_lose(fd);
		if (r < 0)
			return err_sys(err, r, "cannot note what is lost");
		h->snapshot_found = true;
	}
	h->snapshot_fd = TAKE_FD(fd);
	return 0;
}

/* -- directories -------------------------------------------------------------------- */

static void make_parents(const char *path)
{
	int r = path[0] == '/' ? file_make_parents(path) : 0;

	if (r < 0)
		log_warning("cannot make the directory of %s: %s", path, strerror(-r));
}

void supervisor_open_directories(struct sidecar_spec *spec)
{
	struct err err = { 0 };
	bool shared;

	if (state_dir_take(spec, &shared, &err) < 0)
		log_warning("%s; nothing is kept there", err.text);
	if (shared)
		log_warning(
			"others may write to '%s': they can take away what is kept there",
			spec->state_dir);
	if (spec->jsonl)
		make_parents(spec->jsonl);
	for (size_t i = 0; i < spec->log_output_count; i++)
		make_parents(spec->log_outputs[i]);
}

int supervisor_open(struct sidecar_spec *spec, struct supervisor_fds *ret,
		    struct err *err)
{
	const struct sandbox_ports ports = {
		.dns = SUPERVISOR_DNS_PORT,
		.relay = spec->mode == SIDECAR_MODE_DNS_NFT_TLS ? SUPERVISOR_RELAY_PORT
								: 0,
		.until_ms = clock_now_ms() + PORT_WAIT_MS,
	};
	int r;

	supervisor_open_directories(spec);
	r = open_policy(spec, ret, err);
	ret->ipv6 = supervisor_has_ipv6();
	if (r == 0)
		r = supervisor_open_http(spec, ret->ipv6, &ret->http_fd, err);
	if (r == 0)
		r = sandbox_fds_open(&ret->sandbox, &ports, ret->ipv6, err);
	if (r == 0)
		r = open_image(spec, ret, err);
	return r;
}
