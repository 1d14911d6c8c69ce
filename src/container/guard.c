// SPDX-License-Identifier: Apache-2.0
#include "container/guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/http_status.h"
#include "base/jansson.h"
#include "base/text.h"
#include "container/docker.h"
#include "outputs/client.h"
#include "settings/settings.h"
#include "sys/tasks.h"

enum {
	HEALTHY_MS = 60000,
	LOOK_MS = 20,
	ASK_SEC = 30,
	PIDS_LIMIT = 256, /* a sidecar has about ten */
};

#define PORT_TEXT    "18080/tcp"
#define AUTH_HEADER  "OPENSANDBOX-EGRESS-AUTH: "
#define TOKEN_HEADER AUTH_HEADER "%s\r\n"

json_t *guard_labels(const struct guard *g, const char *role)
{
	return json_pack("{s:s, s:s, s:s, s:s*}", "weir.sandbox", g->spec->id, "weir.run",
			 g->nonce, "weir.role", role, "weir.guard", g->id);
}

/* -- its container ------------------------------------------------------------------- */

int guard_random(char ret[GUARD_RANDOM_SIZE], struct err *err)
{
	uint8_t bytes[(GUARD_RANDOM_SIZE - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return err_sys(err, -errno, "cannot get a random number");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* The holder, and what the sidecar has in common with it: no right that they don't use.
 */
static json_t *describe(const struct guard *g)
{
	const char *network = g->spec->network;
	json_t *j =
		json_pack("{s:s, s:b, s:b, s:o, s:{s:[s]}, s:{s:[s], s:b, s:s*, s:i}}",
			  "Image", g->spec->weir_image, "OpenStdin", 1, "StdinOnce", 1,
			  "Labels", guard_labels(g, "guard"), "Healthcheck", "Test",
			  "NONE", "HostConfig", "CapDrop", "ALL", "ReadonlyRootfs", 1,
			  "NetworkMode", network, "PidsLimit", PIDS_LIMIT);
	json_t *host = json_object_get(j, "HostConfig");

	if (g->is_daemon) {
		json_object_set_new(
			j, "Entrypoint",
			json_pack("[s, s, s]", "/usr/bin/weir", "container", "hold"));
		return j;
	}
	json_object_set_new(
		j, "Env",
		json_pack("[o, s, s, o]",
			  json_sprintf("OPENSANDBOX_EGRESS_TOKEN=%s", g->token),
			  "OPENSANDBOX_EGRESS_MODE=dns+nft+tls",
			  "OPENSANDBOX_EGRESS_MAX_RULES=0",
			  json_sprintf("OPENSANDBOX_EGRESS_SANDBOX_ID=%s", g->spec->id)));
	json_object_set_new(j, "Cmd", json_pack("[s]", "--end-with-stdin"));
	json_object_set_new(j, "ExposedPorts", json_pack("{s:{}}", PORT_TEXT));
	json_object_set_new(host, "CapAdd", json_pack("[s]", "NET_ADMIN"));
	json_object_set_new(host, "PortBindings",
			    json_pack("{s:[{s:s, s:s}]}", PORT_TEXT, "HostIp",
				      "127.0.0.1", "HostPort", ""));
	return j;
}

/* -- its network and first process
 * --------------------------------------------------------------- */

static int check_container(struct guard *g, const json_t *found, struct err *err)
{
	const json_t *settings = json_object_get(found, "NetworkSettings");
	const json_t *state = json_object_get(found, "State");

	/* "host" is a network's name, and that network has an id. */
	if (json_object_get(json_object_get(settings, "Networks"), "host"))
		return err_set(err, -EINVAL,
			       "--network '%.100s' is refused: it is the host's, and a "
			       "container there has no filter of its own",
			       g->spec->network ? g->spec->network : "");
	snprintf(g->pid, sizeof(g->pid), "%d",
		 (int)json_integer_value(json_object_get(state, "Pid")));
	if (container_process_is_of(g->pid, g->id))
		return guest_kernel_refuse(g->pid, err);
	if (!g->is_daemon)
		return 0;
	return err_set(err, -EXDEV,
		       "the daemon can't guard the container from outside: its first "
		       "process is not one of this machine's (--guard sidecar)");
}

/* -- guarded from inside ------------------------------------------------------------- */

static int ask_sidecar(const struct guard *g, const char *method, const char *path,
		       const char *body, struct client_reply *ret, struct err *err)
{
	const struct request_place to = { .at.port = g->port };
	char header[sizeof(TOKEN_HEADER) + GUARD_RANDOM_SIZE];
	const struct request q = { method, path, header, text_of(body), ASK_SEC };
	CLEAN(fd) int fd = -1;
	int r;

	snprintf(header, sizeof(header), TOKEN_HEADER, g->token);
	r = request_send(&to, &q, &fd, err);
	if (r < 0)
		return r;
	r = request_receive(fd, g->arena, ret);
	return r < 0 ? err_sys(err, r, "the sidecar does not answer") : 0;
}

static int wait_until_healthy(struct guard *g, int signals, struct err *err)
{
	const int64_t until_ms = clock_now_ms() + HEALTHY_MS;
	struct pollfd polls[] = { { .fd = signals, .events = POLLIN },
				  { .fd = g->control, .events = POLLIN } };
	struct signalfd_siginfo info;
	struct client_reply reply;
	struct err ignored = { 0 };

	do {
		/* The engine's answer may have come before the process was the program
		 * that it becomes. */
		if (container_process_is_of(g->pid, g->id) &&
		    guest_kernel_refuse(g->pid, err) < 0)
			return err->code;
		if (ask_sidecar(g, "GET", "/healthz", "", &reply, &ignored) == 0 &&
		    reply.status == HTTP_OK)
			return 0;
		(void)!poll(polls, ARRAY_SIZE(polls), LOOK_MS);
		/* The terminal's size and a continuation end nothing. */
		if (polls[0].revents &&
		    read(signals, &info, sizeof(info)) == sizeof(info) &&
		    info.ssi_signo != SIGWINCH && info.ssi_signo != SIGCONT) {
			g->signal = (int)info.ssi_signo;
			return err_set(err, -ECANCELED, "ended by signal %d", g->signal);
		}
		if (polls[1].revents && guard_has_ended(g))
			return err_set(err, -ECHILD, "the sidecar has ended: %s",
				       docker_last_words(g->engine, g->id, g->arena));
	} while (clock_now_ms() < until_ms);
	return err_set(err, -ETIMEDOUT,
		       "the sidecar is not healthy, or not to be reached at "
		       "127.0.0.1:%u: %s",
		       g->port, docker_last_words(g->engine, g->id, g->arena));
}

/* Return: 0, or -EINVAL for what the guard calls bad input. */
static int check_reply(const struct client_reply *reply, const char *reason,
		       struct err *err)
{
	if (reply->status < HTTP_MULTIPLE)
		return 0;
	return err_set(err, reply->status == HTTP_BAD_REQUEST ? -EINVAL : -EREMOTEIO,
		       "the policy is not in force: %s", reason);
}

static int guard_by_sidecar(struct guard *g, const json_t *found, const char *policy,
			    int signals, struct err *err)
{
	const json_t *ports =
		json_object_get(json_object_get(found, "NetworkSettings"), "Ports");
	const json_t *first = json_array_get(json_object_get(ports, PORT_TEXT), 0);
	const char *port = json_string_value(json_object_get(first, "HostPort"));
	struct client_reply reply;
	uint32_t number;
	int r;

	if (!port || !text_to_u32(text_of(port), UINT16_MAX, &number) || number == 0)
		return err_set(err, -EBADMSG,
			       "%s has published no port for the sidecar's API",
			       g->engine->name);
	g->port = (uint16_t)number;
	r = wait_until_healthy(g, signals, err);
	if (r == 0)
		r = ask_sidecar(g, "POST", "/policy", policy, &reply, err);
	if (r < 0)
		return r;
	return check_reply(&reply, request_reason(&reply, "reason", g->arena), err);
}

/* -- guarded from outside ------------------------------------------------------------ */

/* A sandbox that has ended keeps its name until the daemon has seen that nobody is in its
 * namespace: where a process there was late to end, a second later. */
enum { NAME_WAIT_MS = 4000, NAME_AGAIN_MS = 50 };

static int guard_by_daemon(struct guard *g, const char *policy, struct err *err)
{
	const struct client_wish wish = { .policy = policy, .netns = g->pid };
	const int64_t until_ms = clock_now_ms() + NAME_WAIT_MS;
	struct client_reply reply;
	int r;

	for (;;) {
		r = client_attach(g->daemon_socket, g->spec->id, &wish, g->arena, &reply,
				  err);
		if (r < 0 || reply.status != HTTP_CONFLICT || clock_now_ms() >= until_ms)
			break;
		(void)!poll(NULL, 0, NAME_AGAIN_MS);
	}
	return r < 0 ? r : check_reply(&reply, client_reason(&reply, g->arena), err);
}

/* -- both ---------------------------------------------------------------------------- */

int guard_start(struct guard *g, const char *policy, int signals, struct err *err)
{
	CLEAN(json) json_t *found = NULL;
	int r = guard_random(g->token, err);

	g->control = -1;
	if (r == 0)
		r = docker_create(g->engine, g->name, describe(g), g->arena, &g->id, err);
	/* The image is made here, so no registry has it. */
	if (r == -ENOENT && strstr(err->text, g->spec->weir_image))
		err_set(err, r,
			"%s has no image '%.100s': build it from deploy/docker, or name "
			"one with --weir-image",
			g->engine->name, g->spec->weir_image);
	if (r == 0)
		r = docker_attach(g->engine, g->id, true, &g->control, err);
	if (r == 0)
		r = docker_post(g->engine, g->id, "start", err);
	if (r == 0)
		r = docker_inspect(g->engine, g->id, &found, err);
	if (r == 0)
		r = check_container(g, found, err);
	if (r < 0)
		return r;
	return g->is_daemon ? guard_by_daemon(g, policy, err)
			    : guard_by_sidecar(g, found, policy, signals, err);
}

bool guard_has_ended(struct guard *g)
{
	char ignored[4096];
	ssize_t n;

	do
		n = recv(g->control, ignored, sizeof(ignored), 0);
	while (n > 0);
	return n == 0 || errno != EAGAIN;
}

void guard_done(struct guard *g)
{
	fd_close(&g->control);
	explicit_bzero(g->token, sizeof(g->token));
}
