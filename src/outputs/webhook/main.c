// SPDX-License-Identifier: Apache-2.0
/* weir-webhook: tells URLs of denied names. Weir starts it, with descriptor 3 leading to
 * itself (outputs/webhook.h); it ends when that does. Nobody else has a use for it.
 *
 * HOW IT WORKS
 * There is a queue for each URL, which has one POST at a time. Its life: libcurl tries
 * with a connection that it still has; without one the parent is asked for a socket,
 * which is waited for until it is connected, and libcurl tries again. A status under 300
 * is done; 5xx and a failed connection (of a job with an id also 408, 425 and 429) are
 * tried three times more, after 1, 2 and 4 seconds; any other status is final, and so is
 * a redirect: it would lead to where the operator didn't point. An attempt takes five
 * seconds at most. */
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "outputs/webhook.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/sock.h"

enum {
	HOOK_ATTEMPT_MS = 5000,
	HOOK_RETRIES = 3,
	HOOK_PAUSE_MS = 1000, /* doubles */
	HOOK_POLL_MAX = WEBHOOK_URLS_MAX + 1,
};

struct hooks;

enum {
	STATE_EVERY_MS = 100,
	WAIT_MAX_MS = 60000,
	ADDRESSES_TRIED = 4,	 /* in one attempt */
	ANSWER_MAX = 256 * 1024, /* bytes of a body that nobody reads */
	DONE_MAX = 64,		 /* then no POST begins until the parent reads */
};

struct job {
	unsigned int holders;
	uint32_t id; /* 0: nobody asks what came of it */
	size_t size;
	char body[];
};

enum hook_state {
	HOOK_IDLE = 0,	 /* no POST, or one that waits its turn */
	HOOK_POSTING,	 /* libcurl has it */
	HOOK_WANTING,	 /* the parent was asked for a socket */
	HOOK_CONNECTING, /* it came, and isn't connected yet */
	HOOK_PAUSED,	 /* until @until_ms, then again */
};

struct hook {
	struct hooks *hooks;
	uint32_t index;
	enum hook_state state;
	struct job *queue[WEBHOOK_QUEUE_MAX];
	size_t first, count;
	CURL *easy;
	struct curl_slist *headers, *resolve;
	uint32_t tries;	  /* that failed */
	uint32_t address; /* which of the URL's to ask for, from 0 in each attempt */
	uint32_t asked;	  /* addresses in this attempt */
	int64_t until_ms; /* the end of this attempt, or of the pause */
	uint32_t want;	  /* id of the socket that was asked for */
	int fd;		  /* that came; -1 */
	bool missed;	  /* libcurl wanted a connection and there was none */
	size_t answer;	  /* bytes of it */
};

struct open_socket {
	int fd; /* -1: free */
	uint32_t id;
};

struct done {
	uint32_t id, url;
	int32_t error;
};

struct hooks {
	int channel;
	struct text ca;
	CURLM *multi;
	struct hook *list[WEBHOOK_URLS_MAX];
	size_t count;
	uint32_t last_id;
	struct open_socket sockets[WEBHOOK_SOCKETS_MAX];
	uint32_t closed[WEBHOOK_SOCKETS_MAX * 2]; /* ids that the parent is to be told */
	size_t closed_count;
	struct done done[DONE_MAX]; /* likewise */
	size_t done_count;
	uint64_t counters[WEBHOOK_COUNTER_COUNT];
	bool changed; /* the counters */
	int64_t sent_ms;
};

/* @channel: to the parent, borrowed. @ca: certificates as PEM, or NULL: then no https
 * server can be verified. */
static struct hooks *hooks_new(int channel, struct text ca)
{
	CLEAN(mem) struct hooks *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->channel = channel;
	h->ca = ca;
	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++)
		h->sockets[i].fd = -1;
	h->multi = curl_multi_init();
	if (!h->multi)
		return NULL;
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)WEBHOOK_URLS_MAX);
	return TAKE_PTR(h);
}

static void count(struct hooks *h, enum webhook_counter which)
{
	h->counters[which]++;
	h->changed = true;
}

/* ---- sockets ---- */

static void close_socket(struct hooks *h, int fd, uint32_t id)
{
	/* The parent has a duplicate: closing alone wouldn't end the connection. */
	shutdown(fd, SHUT_RDWR);
	close(fd);
	assert(h->closed_count < ARRAY_SIZE(h->closed));
	h->closed[h->closed_count++] = id;
}

/* libcurl's callbacks. */
static curl_socket_t on_open(void *data, curlsocktype purpose,
			     struct curl_sockaddr *address)
{
	struct hook *k = data;
	struct hooks *h = k->hooks;
	int fd = k->fd;
	size_t i = 0;

	while (i < WEBHOOK_SOCKETS_MAX && h->sockets[i].fd >= 0)
		i++;
	if (fd < 0 || i == WEBHOOK_SOCKETS_MAX) {
		k->missed = true;
		return CURL_SOCKET_BAD;
	}
	h->sockets[i] = (struct open_socket){ fd, k->want };
	k->fd = -1;
	return fd;
}

/* In libcurl's place: some versions connect a socket that is connected already, and take
 * EISCONN for a failure. After this they wait until it can be written, which is so. */
int connect(int fd, const struct sockaddr *to, socklen_t size)
{
	errno = EINPROGRESS;
	return -1;
}

static int on_socket(void *data, curl_socket_t fd, curlsocktype purpose)
{
	return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static int on_close(void *data, curl_socket_t fd)
{
	struct hooks *h = data;

	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++) {
		if (h->sockets[i].fd != fd)
			continue;
		h->sockets[i].fd = -1;
		close_socket(h, fd, h->sockets[i].id);
		return 0;
	}
	return close(fd);
}

static size_t on_answer(char *bytes, size_t size, size_t n, void *data)
{
	struct hook *k = data;

	k->answer += size * n;
	return k->answer <= ANSWER_MAX ? size * n : 0;
}

/* ---- URLs ---- */

static void set_up_connection(struct hook *k, const struct webhook_url *url)
{
	struct curl_blob ca = { (void *)(uintptr_t)k->hooks->ca.ptr, k->hooks->ca.len,
				CURL_BLOB_NOCOPY };
	char entry[WEBHOOK_HOST_SIZE + 64];
	CURL *c = k->easy;

	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	/* libcurl notices that a connection stands only after this time. */
	curl_easy_setopt(c, CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, 1L);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
	if (ca.len > 0)
		curl_easy_setopt(c, CURLOPT_CAINFO_BLOB, &ca);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_open);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, k);
	curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, on_socket);
	curl_easy_setopt(c, CURLOPT_CLOSESOCKETFUNCTION, on_close);
	curl_easy_setopt(c, CURLOPT_CLOSESOCKETDATA, k->hooks);
	if (url->addr.family != ADDR_NONE)
		return;
	/* libcurl wants an address for the host; the socket that it gets is connected. */
	snprintf(entry, sizeof(entry), "%s:%u:192.0.2.1", url->host, url->port);
	k->resolve = curl_slist_append(NULL, entry);
	curl_easy_setopt(c, CURLOPT_RESOLVE, k->resolve);
}

static int add_url(struct hooks *h, const struct webhook_message *m)
{
	char url[WEBHOOK_URL_SIZE + 1];
	struct webhook_url parsed;
	CLEAN(mem) struct hook *k = NULL;
	CURL *c;

	if (h->count == WEBHOOK_URLS_MAX || m->url != h->count ||
	    webhook_url_parse((struct text){ m->text, m->size }, &parsed, NULL) < 0)
		return -EBADMSG;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	memcpy(url, m->text, m->size);
	url[m->size] = '\0';
	k->hooks = h;
	k->index = m->url;
	k->fd = -1;
	k->easy = curl_easy_init();
	if (!k->easy)
		return -ENOMEM;
	c = k->easy;
	k->headers = curl_slist_append(NULL, "Content-Type: application/json");
	k->headers = curl_slist_append(k->headers, "Expect:");
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, k->headers);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "weir/" WEIR_VERSION);
	curl_easy_setopt(c, CURLOPT_POST, 1L);
	curl_easy_setopt(c, CURLOPT_PRIVATE, k);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_answer);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, k);
	set_up_connection(k, &parsed);
	h->list[h->count++] = TAKE_PTR(k);
	return 0;
}

/* ---- jobs ---- */

static void let_go(struct job *j)
{
	if (--j->holders == 0)
		free(j);
}

/* What finds no room is not told: whoever waits for it asks again. */
static void notify_done(const struct hook *k, const struct job *j, int error)
{
	struct hooks *h = k->hooks;

	if (j->id != 0 && h->done_count < DONE_MAX)
		h->done[h->done_count++] = (struct done){ j->id, k->index, error };
}

static int add_job(struct hooks *h, const struct webhook_message *m)
{
	struct job *j = malloc(sizeof(*j) + m->size);

	if (!j)
		return -ENOMEM;
	j->holders = 1;
	j->id = m->id;
	j->size = m->size;
	memcpy(j->body, m->text, m->size);
	for (size_t i = 0; i < h->count; i++) {
		struct hook *k = h->list[i];

		if (!(m->url >> i & 1))
			continue;
		if (k->count == WEBHOOK_QUEUE_MAX) {
			count(h, WEBHOOK_DROPPED);
			notify_done(k, j, -EAGAIN);
			continue;
		}
		k->queue[(k->first + k->count++) % WEBHOOK_QUEUE_MAX] = j;
		j->holders++;
	}
	let_go(j);
	return 0;
}

static void finish_job(struct hook *k, enum webhook_counter how, int error)
{
	count(k->hooks, how);
	notify_done(k, k->queue[k->first], error);
	let_go(k->queue[k->first]);
	k->first = (k->first + 1) % WEBHOOK_QUEUE_MAX;
	k->count--;
	k->tries = 0;
	k->state = HOOK_IDLE;
}

static void attempt_failed(struct hook *k, int64_t now_ms)
{
	if (k->tries == HOOK_RETRIES) {
		/* The asker of a numbered job sends the job again: the job is neither
		 * lost nor sent. */
		finish_job(k, k->queue[k->first]->id ? WEBHOOK_RETRIED : WEBHOOK_FAILED,
			   -EAGAIN);
		return;
	}
	count(k->hooks, WEBHOOK_RETRIED);
	k->state = HOOK_PAUSED;
	k->until_ms = now_ms + ((int64_t)HOOK_PAUSE_MS << k->tries);
	k->tries++;
}

/* ---- an attempt ---- */

static void hand_to_libcurl(struct hook *k, int64_t now_ms)
{
	const struct job *j = k->queue[k->first];

	curl_easy_setopt(k->easy, CURLOPT_POSTFIELDSIZE, (long)j->size);
	curl_easy_setopt(k->easy, CURLOPT_POSTFIELDS, &j->body[0]);
	curl_easy_setopt(k->easy, CURLOPT_TIMEOUT_MS,
			 (long)MAX(k->until_ms - now_ms, INT64_C(1)));
	k->answer = 0;
	k->missed = false;
	k->state = HOOK_POSTING;
	if (curl_multi_add_handle(k->hooks->multi, k->easy) != CURLM_OK)
		attempt_failed(k, now_ms);
}

/* Return: 0, also when the channel is full (the attempt then ends by its time), or
 * -errno. */
static int want_socket(struct hook *k, int64_t now_ms)
{
	const struct webhook_message m = { .type = WEBHOOK_WANT,
					   .id = k->hooks->last_id + 1,
					   .url = k->index,
					   .attempt = k->address };
	int r;

	if (k->asked++ == ADDRESSES_TRIED) {
		attempt_failed(k, now_ms);
		return 0;
	}
	k->state = HOOK_WANTING;
	r = webhook_message_send(k->hooks->channel, &m, -1);
	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	k->want = ++k->hooks->last_id;
	return 0;
}

static int take_socket(struct hooks *h, const struct webhook_message *m, int fd,
		       int64_t now_ms)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hook *k = h->list[i];

		if (k->state != HOOK_WANTING || k->want != m->id)
			continue;
		if (fd >= 0) {
			k->fd = fd;
			k->state = HOOK_CONNECTING;
			return 0;
		}
		if (m->error == -EHOSTUNREACH) { /* that was the last address */
			attempt_failed(k, now_ms);
			return 0;
		}
		k->address++;
		return want_socket(k, now_ms);
	}
	if (fd >= 0)
		close_socket(h, fd, m->id); /* it came too late */
	return 0;
}

/* Return: 0 or -errno of the channel. */
static int look_at_connection(struct hook *k, int64_t now_ms)
{
	struct pollfd p = { .fd = k->fd, .events = POLLOUT };
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&p, 1, 0) <= 0)
		return 0;
	if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0 &&
	    !(p.revents & (POLLERR | POLLHUP))) {
		hand_to_libcurl(k, now_ms);
		return 0;
	}
	close_socket(k->hooks, TAKE_FD(k->fd), k->want);
	k->address++;
	return want_socket(k, now_ms);
}

static int finish_attempt(struct hook *k, CURLcode code, int64_t now_ms)
{
	long status = 0;
	bool is_for_now;

	curl_multi_remove_handle(k->hooks->multi, k->easy);
	if (k->missed && now_ms < k->until_ms)
		return want_socket(k, now_ms);
	curl_easy_getinfo(k->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code != CURLE_OK && code != CURLE_WRITE_ERROR)
		status = 0;
	/* Request timeout, too early, too many requests: of what must not be lost. */
	is_for_now = k->queue[k->first]->id != 0 &&
		     (status == 408 || status == 425 || status == 429);
	if (status >= 200 && status < 300)
		finish_job(k, WEBHOOK_SENT, 0);
	else if (status >= 300 && status < 500 && !is_for_now)
		finish_job(k, WEBHOOK_FAILED, -EREMOTEIO);
	else
		attempt_failed(k, now_ms);
	/* A connection that was made for this attempt and not used. */
	if (k->fd >= 0)
		close_socket(k->hooks, TAKE_FD(k->fd), k->want);
	return 0;
}

/* ---- a turn ---- */

/* The parent reads what it is told. */
static bool may_begin(const struct hooks *h)
{
	return h->done_count < DONE_MAX / 2;
}

static int work_on(struct hook *k, int64_t now_ms)
{
	int r = 0;

	if (k->state == HOOK_CONNECTING)
		r = look_at_connection(k, now_ms);
	if ((k->state == HOOK_CONNECTING || k->state == HOOK_WANTING) &&
	    now_ms >= k->until_ms) {
		if (k->fd >= 0)
			close_socket(k->hooks, TAKE_FD(k->fd), k->want);
		attempt_failed(k, now_ms);
	}
	if (may_begin(k->hooks) && ((k->state == HOOK_IDLE && k->count > 0) ||
				    (k->state == HOOK_PAUSED && now_ms >= k->until_ms))) {
		k->asked = k->address = 0;
		k->until_ms = now_ms + HOOK_ATTEMPT_MS;
		hand_to_libcurl(k, now_ms);
	}
	return r;
}

/* What the parent is to know. A full channel is tried again in the next turn. */
static int report_done(struct hooks *h, int64_t now_ms)
{
	struct webhook_message m = { .type = WEBHOOK_CLOSED };
	int r = 0;

	while (h->closed_count > 0 && r == 0) {
		m.id = h->closed[h->closed_count - 1];
		r = webhook_message_send(h->channel, &m, -1);
		h->closed_count -= r == 0;
	}
	while (h->done_count > 0 && r == 0) {
		const struct done *d = &h->done[h->done_count - 1];

		m = (struct webhook_message){ .type = WEBHOOK_DONE,
					      .id = d->id,
					      .url = d->url,
					      .error = d->error };
		r = webhook_message_send(h->channel, &m, -1);
		h->done_count -= r == 0;
	}
	if (r == 0 && h->changed && now_ms - h->sent_ms >= STATE_EVERY_MS) {
		m = (struct webhook_message){ .type = WEBHOOK_STATE,
					      .size = sizeof(m.counters) };
		memcpy(m.counters, h->counters, sizeof(m.counters));
		r = webhook_message_send(h->channel, &m, -1);
		h->changed = r < 0;
		h->sent_ms = now_ms;
	}
	return r == -EAGAIN ? 0 : r;
}

/* Take what the parent said. Return: 0, or -errno: leave. */
static int hooks_receive(struct hooks *h)
{
	struct webhook_message m;
	int r, fd = -1;

	while ((r = webhook_message_receive(h->channel, &m, &fd)) == 0) {
		if (m.type == WEBHOOK_URL)
			r = add_url(h, &m);
		else if (m.type == WEBHOOK_JOB)
			r = add_job(h, &m);
		else if (m.type == WEBHOOK_SOCKET)
			r = take_socket(h, &m, fd, clock_now_ms());
		else
			r = -EBADMSG;
		if (r < 0)
			return r;
		fd = -1;
	}
	return r == -EAGAIN ? 0 : r;
}

/* Whatever can be done now. Return: 0, or -errno: leave. */
static int hooks_work(struct hooks *h, int64_t now_ms)
{
	const CURLMsg *m;
	int running, left, r = 0;

	for (size_t i = 0; i < h->count && r == 0; i++)
		r = work_on(h->list[i], now_ms);
	if (r == 0 && curl_multi_perform(h->multi, &running) != CURLM_OK)
		r = -EIO;
	while (r == 0 && (m = curl_multi_info_read(h->multi, &left))) {
		const CURLcode code = m->data.result;
		struct hook *k = NULL;

		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &k);
		r = finish_attempt(k, code, now_ms);
	}
	/* What is done makes room for the next. */
	for (size_t i = 0; i < h->count && r == 0; i++)
		r = work_on(h->list[i], now_ms);
	return r < 0 ? r : report_done(h, now_ms);
}

static int64_t next_ms(const struct hooks *h)
{
	int64_t next = INT64_MAX;

	for (size_t i = 0; i < h->count; i++) {
		const struct hook *k = h->list[i];

		if (!may_begin(h) && (k->state == HOOK_IDLE || k->state == HOOK_PAUSED))
			continue;
		if (k->state == HOOK_IDLE && k->count > 0)
			return 0;
		if (k->state != HOOK_IDLE && k->state != HOOK_POSTING)
			next = MIN(next, k->until_ms);
	}
	if (h->changed || h->closed_count > 0 || h->done_count > 0)
		next = MIN(next, h->sent_ms + STATE_EVERY_MS);
	return next;
}

/* Wait for something to do. Return: 0 or -errno. */
static int hooks_wait(struct hooks *h, int64_t now_ms)
{
	struct curl_waitfd fds[HOOK_POLL_MAX] = { { h->channel, CURL_WAIT_POLLIN, 0 } };
	const int64_t wait_ms = MAX(next_ms(h) - now_ms, INT64_C(0));
	unsigned int n = 1;

	for (size_t i = 0; i < h->count; i++)
		if (h->list[i]->state == HOOK_CONNECTING)
			fds[n++] = (struct curl_waitfd){ h->list[i]->fd,
							 CURL_WAIT_POLLOUT, 0 };
	return curl_multi_poll(h->multi, fds, n, (int)MIN(wait_ms, (int64_t)WAIT_MAX_MS),
			       NULL) == CURLM_OK
		       ? 0
		       : -EIO;
}

enum { CA_MAX = 8 << 20, FILES_MAX = 64 };

/* Read before the program is confined: afterwards it can open no file. */
static struct text read_certificates(void)
{
	const char *const paths[] = {
		getenv("SSL_CERT_FILE"),
		curl_version_info(CURLVERSION_NOW)->cainfo,
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/cert.pem",
	};
	const struct file_how how = { .max_bytes = CA_MAX,
				      .follow = true,
				      .anybodys = true };
	struct file_bytes file = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(paths) && file.size == 0; i++)
		if (paths[i] && paths[i][0])
			(void)!file_read(AT_FDCWD, paths[i], &how, &file, NULL);
	return (struct text){ file.bytes, file.size };
}

/* What the program may still do once it listens: read and write the descriptors that it
 * gets, and compute. No file, no socket of its own, no connection, no program, no
 * capability. Return: 0, or -errno: don't go on. */
static int confine(struct err *err)
{
	const struct rlimit files = { FILES_MAX, FILES_MAX };
	int r;

	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, -errno, "cannot confine the program");
	r = confine_rights(0, err);
	return r < 0 ? r : confine_calls(CONFINE_WEBHOOK, err);
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	struct hooks *h;
	int r;

	if (settings_take(&argc, &argv) < 0)
		return RUN_STATUS_FAILED;
	if (!sock_is_channel(WEBHOOK_FD) || process_dont_wait(WEBHOOK_FD) < 0)
		return log_end(RUN_STATUS_BAD_INPUT,
			       "weir-webhook is started by Weir, not by hand");
	prctl(PR_SET_NAME, "weir-webhook", 0, 0, 0);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return log_end(RUN_STATUS_FAILED, "cannot start libcurl");
	h = hooks_new(WEBHOOK_FD, read_certificates());
	/* The API's token is among what Weir is told by it. */
	process_forget_environment();
	if (!h || confine(&err) < 0)
		return log_end(RUN_STATUS_FAILED, "weir-webhook: %s",
			       h ? err.text : "out of memory");
	do {
		r = hooks_wait(h, clock_now_ms());
		if (r == 0)
			r = hooks_receive(h);
		if (r == 0)
			r = hooks_work(h, clock_now_ms());
	} while (r == 0);
	return r == -EPIPE ? 0
			   : log_end(RUN_STATUS_FAILED, "weir-webhook: %s", strerror(-r));
}
