// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "control/control.h"
#include "policy/rule.h"
#include "settings/settings.h"
#include "settings/state_dir.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/process.h"

/* -- the key of links that decide
 * -------------------------------------------------------- */

/* In the state directory, so that a link that was sent holds over a restart. */
#define KEY_FILE "review.key"

static int read_review_key(int dir, struct review_key *ret, struct err *err)
{
	const struct file_how how = { .max_bytes = sizeof(ret->bytes),
				      .anybodys = true,
				      .own = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	int r = file_read(dir, KEY_FILE, &how, &file, err);

	if (r < 0)
		return r;
	if (file.stat.st_mode & 077)
		return err_set(err, -EPERM, KEY_FILE ": others may read it");
	if (file.size != sizeof(ret->bytes))
		return err_set(err, -EBADMSG, KEY_FILE ": it is no key");
	memcpy(ret->bytes, file.bytes, file.size);
	explicit_bzero(file.bytes, file.size);
	return 0;
}

/* Read or made, where --review-url asks for such links. */
static int open_review_key(struct control *s, struct err *err)
{
	uint8_t *key = s->review_key.bytes;
	struct err why = { 0 };
	CLEAN(fd) int dir = -1;
	int r;

	if (!s->spec.review_url || !s->spec.state_dir)
		return 0;
	dir = open(s->spec.state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = dir < 0 ? err_sys(&why, -errno, "cannot open it")
		    : read_review_key(dir, &s->review_key, &why);
	if (r == -ENOENT && dir >= 0) {
		why = (struct err){ 0 };
		r = getrandom(key, sizeof(s->review_key.bytes), 0) !=
				    sizeof(s->review_key.bytes)
			    ? -errno
			    : file_replace(dir, KEY_FILE ".new", KEY_FILE, 0600, key,
					   sizeof(s->review_key.bytes));
		if (r < 0)
			err_sys(&why, r, "cannot write " KEY_FILE);
	}
	if (r < 0)
		return err_set(err, r, "--review-url: %s: %s", s->spec.state_dir,
			       why.text);
	s->signs_answers = true;
	return 0;
}

/* -- what this process may reach ---------------------------------------------------- */

enum {
	PATHS_MAX = SIDECAR_OUTPUTS_MAX + 12,
	LOG_END_MS = 250, /* for outputs that still have lines */
};

struct paths {
	struct landlock_path items[PATHS_MAX];
	size_t count;
};

static void allow_path(struct paths *p, const char *path, bool write)
{
	if (path && p->count < PATHS_MAX)
		p->items[p->count++] =
			(struct landlock_path){ .path = path, .write = write };
}

/* The directory of @path, where files are made anew beside the old ones. */
static void add_directory(struct paths *p, struct arena *arena, const char *path,
			  bool write)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	char *parent;

	if (!path)
		return;
	if (!slash)
		parent = arena_printf(arena, ".");
	else if (slash == path)
		parent = arena_printf(arena, "/");
	else
		parent = arena_text(arena, (struct text){ path, (size_t)(slash - path) });
	allow_path(p, parent, write);
}

/* A log's. A device is only written to; what else stands there may have been put in the
 * place of the file, which is made anew when it goes. */
static void add_log(struct paths *p, struct arena *arena, const char *path)
{
	struct stat st;

	if (strcmp(path, "stdout") == 0 || strcmp(path, "stderr") == 0)
		return;
	if (stat(path, &st) == 0 && S_ISCHR(st.st_mode))
		allow_path(p, path, true);
	else
		add_directory(p, arena, path, true);
}

/* Give up what weir-control doesn't need before it hears its first caller: every
 * capability, every file but those that it was started to read and write, and every
 * system call that it doesn't need, among them all that make sockets and processes.
 * Before the first thread. @ret_missing, ERR_TEXT_SIZE bytes, says what this kernel could
 * not do ("" when all of it stands). Return: 0, or -errno: do not go on. */
static int confine_control(const struct sidecar_spec *spec, char *ret_missing,
			   struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct paths p = { 0 };
	int r;

	ret_missing[0] = '\0';
	if (confine_rights(0, err) < 0)
		return err->code;
	add_directory(&p, &arena, spec->policy_file, true);
	for (size_t i = 0; i < spec->log_output_count; i++)
		add_log(&p, &arena, spec->log_outputs[i]);
	if (spec->jsonl)
		add_log(&p, &arena, spec->jsonl);
	/* New ones take the place of the old. */
	add_directory(&p, &arena, spec->tls_cert, false);
	add_directory(&p, &arena, spec->tls_key, false);
	add_directory(&p, &arena, spec->token_file, false);
	allow_path(&p, spec->state_dir, true);
	allow_path(&p, spec->static_rules_dir, false);
	allow_path(&p, "/proc/net", false);
	r = landlock_enter(p.items, p.count);
	if (r == -EOPNOTSUPP)
		snprintf(ret_missing, ERR_TEXT_SIZE,
			 "this kernel has no Landlock: control's file access is not cut");
	else if (r < 0)
		return err_sys(err, r, "cannot cut file access by Landlock");
	return confine_calls(CONFINE_CONTROL, err);
}

enum {
	LARGE_BLOCK = 32 * 1024,
	/* While it runs: a policy of thousands of rules is some such blocks, for some
	 * milliseconds, and pages that are given back have to be asked for anew. */
	LARGER_BLOCK = 2 * 1024 * 1024,
	KEPT_FREE = 4 * 1024 * 1024,
};

/* ---- signals ---- */

/* SIGHUP: the file of events was moved away, files have changed. All others mean: end.
 * Nobody else's state hangs on this process. */
static void on_signal(struct loop_source *source, uint32_t events)
{
	struct control *s = CONTAINER_OF(source, struct control, signals);
	struct signalfd_siginfo info;

	while (read(source->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGHUP) {
			loop_stop(s->loop);
			continue;
		}
		if (s->jsonl)
			jsonl_writer_reopen(s->jsonl);
		control_secure_reload(s);
	}
}

static int open_signals(struct control *s, struct err *err)
{
	static const int handled[] = { SIGTERM, SIGINT, SIGHUP };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	int fd;

	sigaction(SIGPIPE, &ignore, NULL);
	fd = process_take_signals(handled, ARRAY_SIZE(handled), err);
	if (fd < 0)
		return fd;
	s->signals = (struct loop_source){ .fd = fd, .on_ready = on_signal };
	if (loop_add(s->loop, &s->signals, EPOLLIN) < 0)
		return err_set(err, -ENOMEM, "cannot watch signals");
	return 0;
}

/* ---- the log ---- */

static int open_log(struct control *s, struct err *err)
{
	struct loglines_attr attrs[SIDECAR_ATTRS_MAX];
	const struct loglines_config config = {
		.level = (enum loglines_level)s->spec.log_level,
		.outputs = s->spec.log_outputs,
		.output_count = s->spec.log_output_count,
		.attrs = attrs,
		.attr_count = s->spec.attr_count,
		.sandbox_id = s->spec.sandbox_id,
		.opensandbox = !s->many,
	};

	for (size_t i = 0; i < s->spec.attr_count; i++)
		attrs[i] = (struct loglines_attr){ .key = s->spec.attrs[i].key,
						   .value = s->spec.attrs[i].value };
	return loglines_new(&config, &s->log, err);
}

static void log_loaded(struct control *s)
{
	CLEAN(mem) char *rules = document_rules_json(s->own.document);
	int64_t now_ms = clock_wall_ms();

	for (size_t i = 0; i < s->spec.warning_count; i++)
		loglines_say(s->log, now_ms, LOGLINES_WARN, "%s", s->spec.warnings[i]);
	if (rules)
		loglines_policy(s->log, now_ms, LOGLINES_LOADED, "",
				policy_action_name(plan_default_action(&s->own.plan)),
				rules);
}

/* ---- the store ---- */

/* What is wrong with a store shows in the status; nothing waits for it. */
static int open_stores(struct control *s, struct err *err)
{
	const struct sqlite_config config = { .directory = s->spec.state_dir,
					      .durable = s->spec.postgres != NULL,
					      .shared = s->is_state_shared };
	const struct jsonl_config lines = { .where = s->spec.jsonl };
	int r = 0;

	if (s->spec.state_dir)
		r = sqlite_writer_new(&config, &s->store, err);
	if (r == 0 && s->spec.jsonl)
		r = jsonl_writer_new(&lines, &s->jsonl, err);
	return r;
}

/* ---- the API ---- */

static const struct document *policy(void *data)
{
	return ((struct control_sandbox *)data)->document;
}

static enum api_failure change(void *data, struct document *next, struct err *err)
{
	return control_change(data, next, err);
}

static int check(void *data, const struct document *d, sidecar_fault_fn *on_fault,
		 void *to, struct err *err)
{
	return control_check(((struct control_sandbox *)data)->side, d, on_fault, to,
			     err);
}

static const struct plan *plan(void *data)
{
	const struct control_sandbox *w = data;

	return w->plan.bytes ? &w->plan : NULL;
}

static const struct event_ring *events(void *data)
{
	struct control_sandbox *w = data;
	struct event_ring *ring = control_sandbox_ring(w);

	return ring ? ring : w->side->own.ring;
}

static void log_change(void *data, const char *rules_json, const char *error,
		       bool callers_fault)
{
	const struct control_sandbox *w = data;
	int64_t now_ms = clock_wall_ms();

	if (error)
		loglines_policy_failed(w->side->log, now_ms, w->spec.name, error,
				       callers_fault);
	else
		loglines_policy(w->side->log, now_ms, LOGLINES_UPDATED, w->spec.name,
				policy_action_name(plan_default_action(&w->plan)),
				rules_json ? rules_json : "[]");
}

static bool logs_rules(void *data)
{
	const struct control_sandbox *w = data;

	return loglines_has_level(w->side->log, LOGLINES_INFO);
}

static void log_unknown_key(void *data, const char *key)
{
	const struct control_sandbox *w = data;

	loglines_say(w->side->log, clock_wall_ms(), LOGLINES_WARN,
		     "%s%sa policy has the key '%s', which means nothing here, ignoring",
		     w->spec.name, w->spec.name[0] ? ": " : "", key);
}

void control_ops(struct control_sandbox *w, struct api_ops *ret)
{
	*ret = (struct api_ops){
		.data = w,
		.policy = policy,
		.change = change,
		.check = check,
		.plan = plan,
		.healthy = control_healthy,
		.status = control_status,
		.events = events,
		.row = control_row,
		.log_change = log_change,
		.logs_rules = logs_rules,
		.log_unknown_key = log_unknown_key,
	};
	control_store_ops(w->side, ret);
}

void control_api_config(struct control *s, struct api_config *ret)
{
	*ret = (struct api_config){
		.loop = s->loop,
		.listen_fd = INHERITED_FIRST + INHERITED_HTTP,
		.token = s->spec.token,
		.open = s->spec.api_open,
		.ui = s->spec.ui,
		.hosts = s->hosts,
		.host_count = 1 + s->spec.api_host_count,
		.max_rules = s->spec.max_rules,
		.review_key = s->signs_answers ? &s->review_key : NULL,
		.labels = s->labels,
		.label_count = s->spec.attr_count,
	};

	control_ops(&s->own, &ret->ops);
	if (s->many) {
		ret->open = true; /* to who may connect at all */
		control_sandboxes_list(s, &ret->sandboxes);
	}
}

static int open_api(struct control *s, struct err *err)
{
	struct api_config config;

	s->hosts[0] = uname(&s->host) == 0 ? s->host.nodename : "localhost";
	memcpy(s->hosts + 1, s->spec.api_hosts, sizeof(s->spec.api_hosts));
	control_api_config(s, &config);
	for (size_t i = 0; i < s->spec.attr_count; i++)
		s->labels[i] = (struct api_label){ .key = s->spec.attrs[i].key,
						   .value = s->spec.attrs[i].value };
	s->api = api_new(&config, err);
	if (!s->api)
		return err->code;
	return s->many && s->spec.http_addr ? control_secure_open(s, err) : 0;
}

/* ---- start and end ---- */

/* What belongs to none of a daemon's sandboxes has no policy. */
static int open_daemon(struct control *s, struct err *err)
{
	const struct group *g = getgrnam("weir");
	struct stat st;

	if (stat("/proc/self/ns/net", &st) == 0)
		s->network = st.st_ino;
	s->group = g ? g->gr_gid : 0;
	s->policy.names = s->policy.daemon = true;
	s->policy.file = POLICY_IN_FORCE;
	s->own.document = document_deny_all();
	return s->own.document ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int start_all(struct control *s, struct err *err)
{
	struct err untrusted = { 0 };
	int r;

	s->loop = loop_new();
	control_link_init(s);
	s->own = (struct control_sandbox){ .side = s,
					   .link = s->link,
					   .since_ms = clock_wall_ms() };
	control_change_init(&s->own);
	if (!s->loop || !control_sandbox_ring(&s->own))
		return err_set(err, -ENOMEM, "out of memory");
	if (s->many && open_daemon(s, err) < 0)
		return err->code;
	if (state_dir_take(&s->spec, &s->is_state_shared, &untrusted) < 0)
		snprintf(s->untrusted, sizeof(s->untrusted), "%s", untrusted.text);
	r = confine_control(&s->spec, s->lacking, err);
	if (r == 0)
		r = open_signals(s, err);
	if (r == 0)
		r = open_log(s, err);
	if (r == 0)
		r = open_stores(s, err);
	if (r == 0)
		r = open_review_key(s, err);
	if (r == 0 && !s->many)
		r = control_policy_open(s, err);
	if (r == 0 && s->spec.webhook_count + s->spec.review_webhook_count > 0)
		r = control_webhook_open(s, err);
	if (r == 0)
		r = open_api(s, err);
	if (r == 0 && document_closed(s->own.document))
		control_record_policy(&s->own);
	/* Last: the engine's first word finds everything there. */
	if (r == 0)
		r = control_link_open(s, err);
	if (r == 0)
		control_socket_owner_open(s);
	return r == 0 && s->many ? control_sandboxes_open(s, err) : r;
}

int main(int argc, char **argv)
{
	static struct control s;
	struct err err = { 0 };
	int r;

	if (settings_take(&argc, &argv) < 0)
		return RUN_STATUS_FAILED;
	prctl(PR_SET_NAME, "weir-control");
	/* Rings get pages of their own, which are no memory until they are used. */
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
	/* Once more what the supervisor or the daemon has found to be right. */
	if (cli_helper_parse(argc, argv, &s.many, &s.spec, &err) < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "%s", err.text);
	r = start_all(&s, &err);
	mallopt(M_MMAP_THRESHOLD, LARGER_BLOCK);
	mallopt(M_TRIM_THRESHOLD, KEPT_FREE);
	if (r == 0) {
		if (!s.many)
			log_loaded(&s);
		r = loop_run(s.loop);
	}
	if (r < 0)
		log_error("%s", err.code < 0 ? err.text : strerror(-r));
	if (r == 0)
		control_socket_owner_close(&s);
	control_secure_close(&s);
	if (s.api)
		api_free(s.api);
	if (s.store)
		sqlite_writer_free(s.store);
	jsonl_writer_free(s.jsonl);
	if (s.log)
		loglines_free(s.log, LOG_END_MS);
	return r < 0 ? RUN_STATUS_FAILED : 0;
}
