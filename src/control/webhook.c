// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * weir-webhook asks for a connection to one of its URLs (WEBHOOK_WANT). The host's
 * addresses are looked up past the policy, the engine lends a socket that the filter
 * exempts, connect() is begun and the socket handed over; a copy stays here until the
 * program is done with it, so that the port stays held. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "control/control.h"
#include "dns/answer.h"
#include "events/review.h"
#include "outputs/webhook.h"
#include "sys/process.h"

/* -- the addresses of a URL's host: asked for past the policy, which is the app's, from a
 * socket that the filter exempts ----------------------------------------------------- */

enum {
	LOOKUP_ADDRS_MAX = 8,
	LOOKUP_TTL_MIN_SEC = 30, /* so that a busy hook doesn't ask for each event */
	LOOKUP_TTL_MAX_SEC = 3600,
};

struct lookup {
	/* The caller's */
	struct control *side;
	struct dns_name name;
	void (*on_done)(struct lookup *l); /* count may be 0: nothing was found */

	/* Found; valid until expires_ms of the loop's clock. */
	struct addr addrs[LOOKUP_ADDRS_MAX];
	size_t count;
	int64_t expires_ms;

	/* Under way */
	bool busy;
	size_t server;
	uint16_t type;
	uint32_t ttl_sec;
	struct ipc_socket socket;
	struct loop_source source; /* fd -1: none */
	struct loop_timer timer;
	struct dns_asked asked;
};

enum {
	TRY_MS = 2000, /* each server */
	MESSAGE_MAX = 4096,
};

static void ask(struct lookup *l);

static void drop_socket(struct lookup *l)
{
	struct ipc_message done = { .type = IPC_SOCKET_DONE, .socket = l->socket };

	if (l->source.fd < 0)
		return;
	loop_remove(l->side->loop, &l->source);
	loop_timer_stop(l->side->loop, &l->timer);
	fd_close(&l->source.fd);
	control_send_engine(l->side->link, &done);
}

/* 127.0.0.11 knows the services of its network; other names would come back to the
 * engine as the app's, who may not ask for them. */
static size_t first_server(const struct lookup *l)
{
	const struct control *s = l->side;
	bool is_service = l->name.labels < 2;

	return s->upstreams_given > 0 && !is_service ? s->upstreams_given : 0;
}

/* This server has nothing to say: the next one, the next type, or the end. */
static void next_server(struct lookup *l)
{
	drop_socket(l);
	if (++l->server < l->side->spec.upstream_count) {
		ask(l);
		return;
	}
	if (l->type == DNS_TYPE_AAAA) {
		uint32_t ttl_sec = MIN(MAX(l->ttl_sec, (uint32_t)LOOKUP_TTL_MIN_SEC),
				       (uint32_t)LOOKUP_TTL_MAX_SEC);

		drop_socket(l);
		l->busy = false;
		l->expires_ms =
			loop_now_ms(l->side->loop) +
			(int64_t)(l->count > 0 ? ttl_sec : LOOKUP_TTL_MIN_SEC) * 1000;
		l->on_done(l);
		return;
	}
	l->type = DNS_TYPE_AAAA;
	l->server = first_server(l);
	ask(l);
}

static void on_readable(struct loop_source *source, uint32_t events)
{
	struct lookup *l = CONTAINER_OF(source, struct lookup, source);
	struct dns_answer *a = malloc(sizeof(*a));
	uint8_t bytes[MESSAGE_MAX];
	ssize_t n = recv(source->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		goto undo;
	if (n < 0 || !a) {
		next_server(l);
		goto undo;
	}
	dns_answer_read(bytes, (size_t)n, &l->asked, a);
	if (a->kind == DNS_ANSWER_RECORDS || a->kind == DNS_ANSWER_NODATA ||
	    a->kind == DNS_ANSWER_NXDOMAIN) {
		for (size_t i = 0; i < a->addr_count && l->count < LOOKUP_ADDRS_MAX;
		     i++) {
			l->addrs[l->count++] = a->addrs[i].addr;
			l->ttl_sec = MIN(l->ttl_sec, a->addrs[i].ttl_sec);
		}
		/* Whatever it was, it is this server's word. */
		l->server = l->side->spec.upstream_count;
		next_server(l);
	} else if (a->kind != DNS_ANSWER_MISMATCH && a->kind != DNS_ANSWER_BAD) {
		next_server(l);
	}
undo:
	free(a);
}

static void on_late(struct loop_timer *t)
{
	next_server(CONTAINER_OF(t, struct lookup, timer));
}

static int send_query(struct lookup *l)
{
	uint8_t message[512], random[34];
	int size;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	l->asked.type = l->type;
	l->asked.name = l->name;
	memcpy(&l->asked.id, random + 32, sizeof(l->asked.id));
	size = dns_query_write(message, sizeof(message), l->asked.id, &l->name, l->type,
			       false, random, l->asked.case_name);
	if (size < 0)
		return size;
	return send(l->source.fd, message, (size_t)size, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int open_socket(struct lookup *l)
{
	const struct endpoint *server = &l->side->spec.upstreams[l->server];
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(server, &sa);
	int fd;

	l->socket = (struct ipc_socket){ .family = (uint8_t)server->addr.family,
					 .protocol = IPPROTO_UDP };
	fd = control_borrow_socket(l->side, &l->socket);
	if (fd < 0)
		return fd;
	l->source.fd = fd;
	if (connect(fd, (const struct sockaddr *)&sa, size) < 0)
		return -errno;
	return loop_add(l->side->loop, &l->source, EPOLLIN);
}

static void ask(struct lookup *l)
{
	int r = -ENOENT;

	if (l->server < l->side->spec.upstream_count)
		r = open_socket(l);
	if (r == 0)
		r = send_query(l);
	if (r == 0)
		r = loop_timer_in(l->side->loop, &l->timer, TRY_MS);
	if (r < 0)
		next_server(l);
}

/* A connection that the program has, or waits for. */
struct hook_connection {
	enum { HOOK_FREE = 0, HOOK_WANTED, HOOK_OPEN } state;
	uint32_t id, url, attempt;
	int fd; /* owned, when open */
	struct ipc_socket socket;
};

struct control_webhook {
	struct control *side;
	struct webhook *webhook;
	struct loop_source source; /* fd -1: there is no program */
	struct lookup lookups[WEBHOOK_URLS_MAX];
	struct hook_connection connections[WEBHOOK_SOCKETS_MAX];
};

static void end_connection(struct control_webhook *h, struct hook_connection *c)
{
	struct ipc_message done = { .type = IPC_SOCKET_DONE, .socket = c->socket };

	if (c->state == HOOK_OPEN) {
		close(c->fd);
		control_send_engine(h->side->link, &done);
	}
	c->state = HOOK_FREE;
}

static struct hook_connection *find_connection(struct control_webhook *h, bool used,
					       uint32_t id)
{
	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++) {
		struct hook_connection *c = &h->connections[i];

		if (used ? c->state != HOOK_FREE && c->id == id : c->state == HOOK_FREE)
			return c;
	}
	return NULL;
}

/* Dial the address that it is the turn of. */
static void connect_to(struct control_webhook *h, struct hook_connection *c,
		       const struct addr *addrs, size_t count)
{
	struct endpoint to = { .port = webhook_url_at(h->webhook, c->url)->port };
	struct sockaddr_storage sa;
	socklen_t size;
	int fd = -EHOSTUNREACH;

	if (c->attempt < count) {
		to.addr = addrs[c->attempt];
		size = endpoint_to_sockaddr(&to, &sa);
		c->socket = (struct ipc_socket){ .family = (uint8_t)to.addr.family,
						 .protocol = IPPROTO_TCP };
		fd = control_borrow_socket(h->side, &c->socket);
	}
	if (fd >= 0) {
		c->fd = fd;
		c->state = HOOK_OPEN;
		if (connect(fd, (const struct sockaddr *)&sa, size) < 0 &&
		    errno != EINPROGRESS)
			fd = -errno;
	}
	if (webhook_answer(h->webhook, c->id, fd) < 0 || fd < 0)
		end_connection(h, c);
}

static void on_found(struct lookup *l)
{
	struct control_webhook *h = l->side->webhook;
	uint32_t url = (uint32_t)(l - h->lookups);

	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++) {
		struct hook_connection *c = &h->connections[i];

		if (c->state == HOOK_WANTED && c->url == url)
			connect_to(h, c, l->addrs, l->count);
	}
}

static void on_wanted(struct control_webhook *h, const struct webhook_message *m)
{
	struct hook_connection *c = find_connection(h, false, 0);
	const struct webhook_url *url = webhook_url_at(h->webhook, m->url);
	struct lookup *l = &h->lookups[m->url];

	if (!c) {
		(void)!webhook_answer(h->webhook, m->id, -EMFILE);
		return;
	}
	*c = (struct hook_connection){ .state = HOOK_WANTED,
				       .id = m->id,
				       .url = m->url,
				       .attempt = m->attempt,
				       .fd = -1 };
	if (url->addr.family != ADDR_NONE) {
		connect_to(h, c, &url->addr, 1);
	} else if (!l->busy && l->expires_ms > loop_now_ms(h->side->loop)) {
		connect_to(h, c, l->addrs, l->count);
	} else if (!l->busy) {
		/* Ask, A first, then AAAA. on_found() follows in a later turn, or at once
		 * when nothing can be asked. */
		l->busy = true;
		l->count = 0;
		l->server = first_server(l);
		l->type = DNS_TYPE_A;
		l->ttl_sec = LOOKUP_TTL_MAX_SEC;
		ask(l);
	}
}

static void lose_program(struct control_webhook *h)
{
	if (h->source.fd < 0)
		return;
	loop_remove(h->side->loop, &h->source);
	h->source.fd = -1;
	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++)
		end_connection(h, &h->connections[i]);
}

static void flush(struct control_webhook *h)
{
	int r = h->source.fd < 0 ? 0 : webhook_flush(h->webhook);

	if (r == -EAGAIN || r == 0)
		r = h->source.fd < 0
			    ? 0
			    : loop_modify(h->side->loop, &h->source,
					  EPOLLIN | (r == -EAGAIN ? EPOLLOUT : 0u));
	if (r < 0)
		lose_program(h);
}

static void notify_done(struct control *s, uint32_t id, size_t url, int error);
static void notify_anew(struct control *s);
static void on_notify_reviews(struct loop_timer *t);

static void on_program(struct loop_source *source, uint32_t events)
{
	struct control_webhook *h = CONTAINER_OF(source, struct control_webhook, source);
	/* The review webhooks are behind the others. */
	const size_t first_review = h->side->spec.webhook_count;
	struct webhook_message m;
	struct hook_connection *c;
	int r = 0;

	for (int i = 0; i < IPC_TURN_MAX; i++) {
		r = webhook_receive(h->webhook, &m);
		if (r <= 0)
			break;
		if (m.type == WEBHOOK_WANT) {
			on_wanted(h, &m);
			continue;
		}
		if (m.type == WEBHOOK_DONE) {
			if (m.url >= first_review)
				notify_done(h->side, m.id, m.url - first_review, m.error);
			continue;
		}
		c = find_connection(h, true, m.id);
		if (c)
			end_connection(h, c);
	}
	if (r < 0)
		lose_program(h);
	else
		flush(h);
}

void control_webhook_attach(struct control *s, int fd)
{
	struct control_webhook *h = s->webhook;

	if (!h) {
		close(fd);
		return;
	}
	lose_program(h);
	if (process_dont_wait(fd) < 0) {
		close(fd);
		return;
	}
	webhook_attach(h->webhook, fd);
	h->source.fd = fd;
	if (loop_add(s->loop, &h->source, EPOLLIN) < 0)
		h->source.fd = -1;
	else
		flush(h);
	notify_anew(s);
}

void control_webhook_denied(struct control *s, const struct event *e)
{
	/* A name was asked for: one POST. What has no name is in the log. */
	if (!s->webhook || e->layer != EVENT_DNS || e->name[0] == '\0')
		return;
	webhook_denied(s->webhook->webhook, (1u << s->spec.webhook_count) - 1, e->name,
		       e->ts_ms);
	flush(s->webhook);
}

int control_webhook_open(struct control *s, struct err *err)
{
	const char *urls[SIDECAR_WEBHOOKS_MAX * 2];
	struct control_webhook *h = calloc(1, sizeof(*h));
	size_t count = 0;
	int r;

	if (!h)
		return err_set(err, -ENOMEM, "out of memory");
	h->side = s;
	h->source = (struct loop_source){ .fd = -1, .on_ready = on_program };
	/* In this order bits stand for them. */
	for (size_t i = 0; i < s->spec.webhook_count; i++)
		urls[count++] = s->spec.webhooks[i];
	for (size_t i = 0; i < s->spec.review_webhook_count; i++)
		urls[count++] = s->spec.review_webhooks[i];
	r = webhook_new(urls, count, s->spec.sandbox_id, &h->webhook, err);
	for (size_t i = 0; r == 0 && i < webhook_url_count(h->webhook); i++) {
		const struct webhook_url *url = webhook_url_at(h->webhook, i);

		h->lookups[i] = (struct lookup){
			.side = s,
			.on_done = on_found,
			.source = { .fd = -1, .on_ready = on_readable },
			.timer = { .on_fire = on_late },
		};
		if (url->addr.family == ADDR_NONE)
			r = dns_name_parse(text_of(url->host), &h->lookups[i].name);
	}
	if (r < 0) {
		free(h);
		return err->code < 0 ? r : err_sys(err, r, "cannot use the webhook");
	}
	s->webhook = h;
	s->notify_reviews.on_fire = on_notify_reviews;
	control_notify_soon(s);
	return 0;
}

void control_webhook_count(const struct control *s, struct api_status *ret)
{
	struct webhook_state state;

	if (!s->webhook)
		return;
	state = webhook_state(s->webhook->webhook);
	ret->webhook_sent = state.counters[WEBHOOK_SENT];
	ret->webhook_dropped =
		state.counters[WEBHOOK_DROPPED] + state.counters[WEBHOOK_FAILED];
}

/* -- which tasks are sent ----------------------------------------------------------- */

/* The store's writer opens a task a second or two after its denial. So a denial that may
 * open one has the store looked at some times, for tasks that the webhooks don't know
 * of: the store keeps who was told, and is the queue. NOTIFY_MAX of them at a time, and
 * then a pause: a sandbox that is denied hundreds of destinations keeps nobody awake.
 *
 * weir-webhook says what came of each; only what was taken counts as told. A URL that
 * failed gets one task at a time, after a pause that doubles, until it takes one. An
 * outage may be as long as it likes, and a restart loses nothing: what was under way then
 * is told again. */

enum {
	NOTIFY_MAX = 20,
	PAUSE_MS = 20 * 1000, /* so it is NOTIFY_MAX * 3 in a minute */
	SOON_MS = 1500,
	LATER_MS = 30 * 1000,	   /* without any reason */
	TRIES = 4,		   /* so often, SOON_MS apart, after the last denial */
	UNDER_WAY_MS = 600 * 1000, /* weir-webhook's tries, behind NOTIFY_MAX others */
	TROUBLE_MS = 5 * 1000,	   /* after the first failure; doubles */
	TROUBLE_MAX_MS = 160 * 1000,
};

struct notifying {
	struct control *side;
	struct review_store *store;
	size_t url;
	struct err err;
};

/* Send task @t to the review webhook c->url. notify_done() says what came of it, or
 * notify_anew() that nothing does. */
static void on_task(void *data, const struct review *t)
{
	struct notifying *c = data;
	struct control *s = c->side;
	struct control_webhook *h = s->webhook;
	char json[REVIEW_JSON_SIZE];
	size_t size = review_json(t, true, json);

	if (s->signs_answers)
		size = review_answer_add(&s->review_key, s->spec.review_url, t,
					 clock_wall_ms(), json, size);
	if (t->id > 0 && t->id <= UINT32_MAX && size <= WEBHOOK_PAYLOAD_SIZE && h &&
	    h->source.fd >= 0 &&
	    webhook_post(h->webhook, (uint32_t)t->id,
			 1u << (s->spec.webhook_count + c->url), json, size)) {
		flush(h);
		s->notices[c->url].under_way++;
		return;
	}
	/* There is no room for it. */
	(void)!review_not_notified(c->store, t->id, REVIEW_WEBHOOK + (int)c->url,
				   clock_wall_ms(), &c->err);
}

/* Return: after how long there may be more for it. */
static int64_t notify_one(struct notifying *c, int64_t now_ms)
{
	struct control_notices *u = &c->side->notices[c->url];
	size_t most = u->pause_ms > 0 ? 1 : NOTIFY_MAX;
	int r = 0;

	if (now_ms >= u->again_ms) {
		u->again_ms = now_ms + (u->pause_ms ?: PAUSE_MS);
		u->count = 0;
	}
	/* How many may be told now. */
	most -= MIN(most, MAX(u->count, u->under_way));
	if (most > 0)
		r = review_notify(c->store, REVIEW_WEBHOOK + (int)c->url, most,
				  UNDER_WAY_MS, clock_wall_ms(), on_task, c, &c->err);
	u->count += r > 0 ? (size_t)r : 0;
	return r == (int)most ? MAX(u->again_ms - now_ms, INT64_C(1)) : LATER_MS;
}

static void start_notify(struct control *s, int64_t after_ms)
{
	if (loop_timer_by(s->loop, &s->notify_reviews, loop_now_ms(s->loop) + after_ms) <
	    0)
		s->notify_tries = 0;
}

static void on_notify_reviews(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, notify_reviews);
	struct notifying c = { .side = s };
	int64_t after_ms = LATER_MS;

	if (s->notify_tries > 0 && --s->notify_tries > 0)
		after_ms = SOON_MS;
	if (review_open(s->spec.state_dir, &c.store, &c.err) == 0)
		for (c.url = 0; c.url < s->spec.review_webhook_count; c.url++)
			after_ms = MIN(after_ms, notify_one(&c, loop_now_ms(s->loop)));
	review_close(c.store);
	start_notify(s, after_ms);
}

void control_notify_soon(struct control *s)
{
	if (!s->store || s->spec.review_webhook_count == 0)
		return;
	s->notify_tries = TRIES;
	start_notify(s, SOON_MS);
}

/* @error as WEBHOOK_DONE has it. */
static void notify_done(struct control *s, uint32_t id, size_t url, int error)
{
	struct control_notices *u = &s->notices[url];
	CLEAN(review) struct review_store *store = NULL;
	struct err err = { 0 };
	int r;

	if (url >= s->spec.review_webhook_count)
		return;
	u->under_way -= u->under_way > 0;
	if (error != -EAGAIN && u->pause_ms > 0) {
		u->pause_ms = 0;
		u->again_ms = 0;
	} else if (error == -EAGAIN) {
		u->pause_ms = u->pause_ms ? MIN(u->pause_ms * 2, (uint32_t)TROUBLE_MAX_MS)
					  : TROUBLE_MS;
		u->again_ms = loop_now_ms(s->loop) + u->pause_ms;
	}
	/* What can't be noted now is told again. */
	r = review_open(s->spec.state_dir, &store, &err);
	if (r == 0 && error != -EAGAIN)
		r = review_notified(store, id, REVIEW_WEBHOOK + (int)url,
				    s->spec.review_webhook_count, &err);
	else if (r == 0)
		r = review_not_notified(store, id, REVIEW_WEBHOOK + (int)url,
					clock_wall_ms(), &err);
	start_notify(s, u->pause_ms ?: SOON_MS);
}

/* What weir-webhook had is lost with it. */
static void notify_anew(struct control *s)
{
	CLEAN(review) struct review_store *store = NULL;
	struct err err = { 0 };

	if (!s->store || s->spec.review_webhook_count == 0)
		return;
	for (size_t i = 0; i < s->spec.review_webhook_count; i++)
		s->notices[i].under_way = 0;
	if (review_open(s->spec.state_dir, &store, &err) == 0)
		(void)!review_notify_again(store, REVIEW_WEBHOOK, &err);
	control_notify_soon(s);
}
