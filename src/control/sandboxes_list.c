// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "control/control.h"

enum {
	GROUPS_MAX = 256,
	HTTP_OK = 200,
	HTTP_BAD_REQUEST = 400,
	HTTP_NOT_FOUND = 404,
	HTTP_CONFLICT = 409,
	HTTP_FAILED = 500
};

/* -- one sandbox, as a sidecar shows it --------------------------------------------- */

static const struct document *control_sandbox_policy(void *data)
{
	return ((struct control_sandbox *)data)->document;
}

static enum api_failure control_sandbox_apply(void *data, struct document *next,
					      struct err *err)
{
	return control_sandbox_change(data, next, err);
}

static bool control_sandbox_healthy(void *data)
{
	return ((struct control_sandbox *)data)->link->stands;
}

static const struct event_ring *control_sandbox_events(void *data)
{
	struct control_sandbox *w = data;
	struct event_ring *ring = control_sandbox_ring(w);

	return ring ? ring : w->side->ring;
}

static void control_sandbox_row(void *data, const struct event *e, struct event_row *ret)
{
	control_row(((struct control_sandbox *)data)->side, e, ret);
}

static void control_sandbox_log_change(void *data, const char *rules_json,
				       const char *error, bool callers_fault)
{
	const struct control_sandbox *w = data;
	int64_t now_ms = clock_wall_ms();

	if (error)
		loglines_policy_failed(w->side->log, now_ms, w->spec.name, error,
				       callers_fault);
	else
		loglines_policy_updated(
			w->side->log, now_ms, w->spec.name,
			plan_default_action(&w->plan) == POLICY_ALLOW ? "allow" : "deny",
			rules_json ? rules_json : "[]");
}

static void degrade(struct api_status *ret, const struct control_sandbox *w,
		    const char *what, const char *reason)
{
	if (reason[0] && ret->degradation_count < API_DEGRADATIONS_MAX)
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = what, .reason = reason, .since_ms = w->since_ms
		};
}

static void fill_counters(struct api_counter *counters, const struct ipc_stats *stats,
			  struct api_status *ret)
{
	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		counters[i] = (struct api_counter){
			.name = sandbox_counter_name((enum sandbox_counter)i),
			.value = stats->counters[i],
		};
	ret->counters = counters;
	ret->counter_count = SANDBOX_COUNTER_COUNT;
	ret->learned_names = stats->names;
	ret->learned_addresses = stats->addresses;
}

static void control_sandbox_status(void *data, struct api_status *ret)
{
	struct control_sandbox *w = data;
	const struct control *s = w->side;
	bool names = plan_verify(&w->plan) == POLICY_VERIFY_TLS;

	control_sandbox_stats(w);
	ret->mode = names ? API_MODE_DNS_NFT_TLS : API_MODE_DNS_NFT;
	ret->enforcement_mode = "dns+nft+tls";
	ret->sandbox_id = w->spec.name;
	ret->since_ms = w->since_ms;
	if (!w->link->stands)
		degrade(ret, w, "engine",
			"the engine is being started again; the rules stand");
	else if (!w->stats.nflog)
		degrade(ret, w, "nflog", "refused packets are not reported");
	degrade(ret, w, "confinement", s->lacking);
	if (w->look.packet)
		degrade(ret, w, "packet-sockets",
			"the sandbox has packet sockets open: with NET_RAW it can send "
			"past the filter");
	if (w->look.raw)
		degrade(ret, w, "raw-sockets",
			"the sandbox has raw sockets open: it has NET_RAW");
	if (!w->look.known)
		degrade(ret, w, "unknown-sockets", CONTROL_SOCKETS_UNKNOWN);
	if (w->look.waiting)
		degrade(ret, w, "cgroup",
			"the cgroup is gone; it is guarded when it comes again");
	if (w->look.unseen)
		degrade(ret, w, "unseen",
			"whether what is guarded is gone can't be seen; its rules stay");
	snprintf(w->strays, sizeof(w->strays),
		 "%u sockets of its processes are from outside of the cgroup, such as "
		 "of process %d",
		 w->look.strays, w->look.stray_of);
	if (w->look.strays > 0)
		degrade(ret, w, "outside-sockets", w->strays);
	ret->full_isolation = ret->degradation_count == 0;
	/* That lets nothing out. */
	control_closed_status(w->document, &w->closing, w->since_ms, ret);
	if (w->stats.snapshot_full)
		degrade(ret, w, "snapshot", CONTROL_SNAPSHOT_FULL);
	/* What is read of them is of all sandboxes. */
	control_store_status(w->side, ret);
	ret->generation = w->stats.generation;
	ret->engine_restarts = w->link->restarts + w->link->daemon_restarts;
	ret->rule_count = document_rule_count(w->document);
	fill_counters(w->counters, &w->stats, ret);
	ret->log_dropped = loglines_dropped(s->log);
	ret->policy_updates = w->updates;
	ret->policy_failures = w->failures;
}

/* Of all engines, as it was when all of them were there. */
static void add_stats(struct control *s)
{
	const struct control_answer answer = { IPC_STATS, IPC_STATS };
	const struct ipc_message ask = { .type = IPC_STATS };
	struct ipc_stats all = { 0 };
	struct ipc_message m;
	size_t heard = 0;

	for (size_t i = 0; i < s->link_count; i++) {
		if (!s->links[i].stands ||
		    control_ask_engine(&s->links[i], &ask, -1, &answer, &m, NULL) < 0)
			continue;
		for (size_t c = 0; c < SANDBOX_COUNTER_COUNT; c++)
			all.counters[c] += m.stats.counters[c];
		all.names += m.stats.names;
		all.addresses += m.stats.addresses;
		heard++;
	}
	if (heard == s->link_count)
		s->stats = all;
}

/* Whether each of them is guarded in full is said of each. */
void control_sandboxes_list_status(void *data, struct api_status *ret)
{
	struct control *s = data;
	const struct control_sandbox *w;

	add_stats(s);
	ret->mode = API_MODE_DNS_NFT_TLS;
	ret->enforcement_mode = "dns+nft+tls";
	ret->sandbox_id = "";
	ret->since_ms = s->since_ms;
	if (!control_engines_stand(s))
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = "engine",
			.reason = "the engine is being started, or takes its sandboxes "
				  "over; the rules stand",
			.since_ms = s->since_ms,
		};
	if (control_lacking(s)[0])
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = "sandboxes",
			.reason = control_lacking(s),
			.since_ms = s->since_ms,
		};
	if (s->lacking[0])
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = "confinement",
			.reason = s->lacking,
			.since_ms = s->since_ms,
		};
	ret->full_isolation = ret->degradation_count == 0;
	control_store_status(s, ret);
	/* No sandbox is guarded less by it. */
	if (control_secure_trouble(s)[0] && ret->degradation_count < API_DEGRADATIONS_MAX)
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = "tls",
			.reason = control_secure_trouble(s),
			.since_ms = s->since_ms,
		};
	for (size_t i = 0; i < s->link_count; i++)
		ret->engine_restarts +=
			s->links[i].restarts + s->links[i].daemon_restarts;
	ret->engine_count = s->link_count;
	for (uint32_t id = 0; (w = control_sandbox_after(s, id)); id = w->id) {
		if (w->gone[0])
			continue;
		ret->rule_count += document_rule_count(w->document);
		ret->policy_updates += w->updates;
		ret->policy_failures += w->failures;
	}
	fill_counters(s->counters, &s->stats, ret);
	ret->log_dropped = loglines_dropped(s->log);
}

static bool sandboxes_knows_all(void *data)
{
	return control_sandboxes_are_known(data);
}

static bool sandboxes_find(void *data, const char *id, struct api_ops *ret,
			   uint32_t *ret_number)
{
	struct control_sandbox *w = control_sandbox_named(data, id);

	if (!w)
		return false;
	*ret = (struct api_ops){
		.data = w,
		.policy = control_sandbox_policy,
		.change = control_sandbox_apply,
		.healthy = control_sandbox_healthy,
		.status = control_sandbox_status,
		.events = control_sandbox_events,
		.row = control_sandbox_row,
		.log_change = control_sandbox_log_change,
	};
	control_sandbox_review_ops(w, ret);
	control_sandbox_count_ops(w, ret);
	*ret_number = w->id;
	return true;
}

/* -- all of them -------------------------------------------------------------------- */

/* @j is taken. */
static char *to_text(json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	json_decref(j);
	return text;
}

static char *sandboxes_list(void *data)
{
	struct control *s = data;
	json_t *all = json_array();
	struct control_sandbox *w;

	control_sandboxes_denies(s);
	for (uint32_t id = 0; (w = control_sandbox_after(s, id)); id = w->id) {
		if (w->gone[0])
			continue;
		if (json_array_append_new(all, control_sandbox_json(w)) < 0)
			break;
	}
	/* Who reads this must not take some for all. */
	return to_text(
		control_sandboxes_are_known(s)
			? json_pack("{s:o}", "sandboxes", all)
			: json_pack("{s:o, s:b}", "sandboxes", all, "takingOver", true));
}

static char *sandboxes_show(void *data, const char *id)
{
	struct control_sandbox *w = control_sandbox_named(data, id);

	if (!w)
		return NULL;
	control_sandbox_counters(w);
	return to_text(control_sandbox_json(w));
}

static unsigned int change(struct control_sandbox *w, struct document *policy,
			   struct err *err)
{
	switch (control_sandbox_change(w, policy, err)) {
	case API_FAILED_NOT:
		return HTTP_OK;
	case API_FAILED_POLICY:
		return HTTP_BAD_REQUEST;
	default:
		return HTTP_FAILED;
	}
}

/* What was closed for what it did is not opened by being started once more. */
static unsigned int attach_again(struct control_sandbox *w, struct control_wish *wish,
				 struct err *err)
{
	const struct ipc_message ask = { .type = IPC_AGAIN,
					 .sandbox = w->id,
					 .attached = wish->spec };
	const struct control_answer answer = { IPC_ATTACHED, IPC_REFUSED };
	struct ipc_message m = { 0 };

	if (document_closed(w->document))
		err_set(err, -EPERM, "it is closed: %s", document_closed(w->document));
	else if (control_ask_supervisor(w->link, &ask, NULL, 0, &answer, &m, NULL) < 0)
		err_set(err, -EPIPE, "the supervisor does not answer");
	else if (m.type == IPC_ATTACHED)
		return change(w, TAKE_PTR(wish->policy), err);
	else
		control_tame(m.text, sizeof(m.text));
	if (err->code == 0)
		err_set(err, -EEXIST, "%s", m.text);
	return HTTP_CONFLICT;
}

static unsigned int sandboxes_attach(void *data, const char *id, struct text body,
				     struct err *err)
{
	struct control_wish wish = { 0 };
	struct control_sandbox *there = control_sandbox_named(data, id);
	unsigned int status;

	if (control_attach_read(data, id, body, &wish, err) < 0)
		return HTTP_BAD_REQUEST;
	if (!there || !wish.again)
		return control_sandbox_attach(data, &wish.spec, wish.policy, err);
	status = attach_again(there, &wish, err);
	document_free(wish.policy);
	return status;
}

static unsigned int sandboxes_detach(void *data, const char *id, struct err *err)
{
	struct control_sandbox *w = control_sandbox_named(data, id);

	if (w)
		return control_sandbox_detach(data, w, err);
	err_set(err, -ENOENT, "no such sandbox");
	return HTTP_NOT_FOUND;
}

/* -- who may ask -------------------------------------------------------------------- */

/* The file's mode keeps others out already; a descriptor that was passed on doesn't. */
static bool sandboxes_admits(void *data, int fd)
{
	const struct control *s = data;
	gid_t groups[GROUPS_MAX];
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	if (peer.uid == 0)
		return true;
	if (s->group == 0)
		return false;
	size = sizeof(groups);
	if (peer.gid == s->group)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		return false;
	for (size_t i = 0; i < size / sizeof(groups[0]); i++)
		if (groups[i] == s->group)
			return true;
	return false;
}

void control_sandboxes_list(struct control *s, struct api_sandboxes *ret)
{
	*ret = (struct api_sandboxes){
		.data = s,
		.knows_all = sandboxes_knows_all,
		.find = sandboxes_find,
		.list = sandboxes_list,
		.show = sandboxes_show,
		.attach = sandboxes_attach,
		.detach = sandboxes_detach,
		.admits = sandboxes_admits,
	};
}
