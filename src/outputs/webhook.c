// SPDX-License-Identifier: Apache-2.0
#include "outputs/webhook.h"

#include <errno.h>
#include <string.h>

#include "event/event.h"
#include "event/json.h"
#include "sys/sock.h"

enum {
	HEAD_SIZE = offsetof(struct webhook_message, text),
	SANDBOX_MAX = 128,
	RECEIVED_MAX = 64, /* messages that are taken care of in one call */
};

/* ---- messages ---- */

static bool is_sound(const struct webhook_message *m)
{
	const uint32_t most = m->type == WEBHOOK_STATE ? sizeof(m->counters)
			      : m->type == WEBHOOK_URL ? WEBHOOK_URL_SIZE
			      : m->type == WEBHOOK_JOB ? WEBHOOK_PAYLOAD_SIZE
						       : 0;

	return m->type > WEBHOOK_NONE && m->type <= WEBHOOK_DONE && m->size <= most &&
	       (m->type != WEBHOOK_STATE || m->size == most);
}

int webhook_message_send(int sock, const struct webhook_message *m, int fd)
{
	const ssize_t n = fds_send(sock, m, HEAD_SIZE + m->size, &fd, fd >= 0);

	return n == -ECONNRESET ? -EPIPE : (int)MIN(n, (ssize_t)0);
}

int webhook_message_receive(int sock, struct webhook_message *ret, int *ret_fd)
{
	CLEAN(fd) int fd = -1;
	size_t count;
	const ssize_t n = fds_receive(sock, ret, sizeof(*ret), &fd, 1, &count);

	if (n <= 0)
		return n == 0 ? -EPIPE : (int)n;
	if (n < (ssize_t)HEAD_SIZE || (size_t)n != HEAD_SIZE + ret->size ||
	    !is_sound(ret) || (fd >= 0 && ret->type != WEBHOOK_SOCKET))
		return -EBADMSG;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* ---- URLs ---- */

static bool skip(struct text *t, const char *start)
{
	const size_t n = strlen(start);

	if (t->len < n || strncasecmp(t->ptr, start, n) != 0)
		return false;
	t->ptr += n;
	t->len -= n;
	return true;
}

/* @t is what stands before the port. */
static bool read_host(struct text t, struct webhook_url *ret)
{
	if (t.len > 2 && t.ptr[0] == '[' && t.ptr[t.len - 1] == ']') {
		t.ptr++;
		t.len -= 2;
		if (!addr_parse(t.ptr, t.len, &ret->addr) || ret->addr.family != ADDR_V6)
			return false;
	} else if (!addr_parse(t.ptr, t.len, &ret->addr)) {
		ret->addr = (struct addr){ 0 };
	} else if (ret->addr.family != ADDR_V4) {
		return false; /* IPv6 wants its brackets */
	}
	if (t.len == 0 || t.len >= sizeof(ret->host))
		return false;
	for (size_t i = 0; i < t.len; i++) {
		char c = text_lower(t.ptr[i]);

		if (ret->addr.family != ADDR_V6 && !(c >= 'a' && c <= 'z') &&
		    !text_is_digit(c) && c != '-' && c != '.' && c != '_')
			return false;
		ret->host[i] = c;
	}
	return true;
}

/* The last @c of @t, or NULL. */
static const char *last_of(struct text t, char c)
{
	for (size_t i = t.len; i > 0; i--)
		if (t.ptr[i - 1] == c)
			return &t.ptr[i - 1];
	return NULL;
}

static bool read_authority(struct text t, struct webhook_url *ret)
{
	const char *at = last_of(t, '@');
	const char *colon;
	struct text port;
	uint32_t n;

	if (at) {
		t.len -= (size_t)(at + 1 - t.ptr);
		t.ptr = at + 1;
	}
	colon = last_of(t, ':');
	if (colon && !memchr(colon, ']', t.len - (size_t)(colon - t.ptr))) {
		port.ptr = colon + 1;
		port.len = t.len - (size_t)(colon + 1 - t.ptr);
		if (!text_to_u32(port, 65535, &n) || n == 0)
			return false;
		ret->port = (uint16_t)n;
		t.len = (size_t)(colon - t.ptr);
	}
	return read_host(t, ret);
}

int webhook_url_parse(struct text url, struct webhook_url *ret, struct err *err)
{
	struct webhook_url u = { 0 };
	struct text t = url;
	bool ok = t.len > 0 && t.len < WEBHOOK_URL_SIZE;

	for (size_t i = 0; ok && i < t.len; i++)
		ok = t.ptr[i] > 0x20 && t.ptr[i] < 0x7f && t.ptr[i] != '\\';
	if (ok && skip(&t, "https://"))
		u.tls = true;
	else if (ok)
		ok = skip(&t, "http://");
	u.port = u.tls ? 443 : 80;
	for (size_t i = 0; ok && i < t.len; i++)
		if (strchr("/?#", t.ptr[i]))
			t.len = i;
	if (!ok || t.len == 0 || !read_authority(t, &u))
		return err_set(err, -EINVAL, "'%s' is not an http or https URL",
			       TEXT_SHOWN(url));
	*ret = u;
	return 0;
}

/* ---- payloads ---- */

size_t webhook_payload(const char *name, int64_t wall_ms, const char *sandbox_id,
		       char *buf)
{
	char host[EVENT_NAME_SIZE], when[JTEXT_TIME_SIZE];
	size_t n = strnlen(name, sizeof(host));
	struct jtext j;

	if (n > 1 && name[n - 1] == '.')
		n--;
	for (size_t i = 0; i < n; i++)
		host[i] = text_lower(name[i]);
	jtext_init(&j, buf, WEBHOOK_PAYLOAD_SIZE);
	jtext_open(&j, NULL, '{');
	jtext_key(&j, "hostname");
	jtext_string(&j, (struct text){ host, n }, sizeof(host));
	jtext_member(&j, "timestamp", jtext_time(wall_ms, false, when));
	jtext_member(&j, "source", "opensandbox-egress");
	jtext_key(&j, "sandboxId");
	jtext_string(&j, text_of(sandbox_id), SANDBOX_MAX);
	jtext_close(&j, '}');
	return j.used;
}

/* ---- the parent's end ---- */

struct webhook {
	size_t url_count;
	char *texts[WEBHOOK_URLS_MAX];
	struct webhook_url urls[WEBHOOK_URLS_MAX];
	char *sandbox_id;
	int fd; /* -1: no program */
	size_t sent_urls;
	/* Jobs that wait for room in the channel. */
	char *jobs[WEBHOOK_QUEUE_MAX]; /* payloads, owned */
	size_t sizes[WEBHOOK_QUEUE_MAX];
	uint32_t masks[WEBHOOK_QUEUE_MAX]; /* of URLs */
	uint32_t ids[WEBHOOK_QUEUE_MAX];
	size_t first, count;
	uint32_t sockets[WEBHOOK_SOCKETS_MAX]; /* ids in use; 0: free */
	uint64_t handed;		       /* jobs times URLs, to this program */
	uint64_t
		before[WEBHOOK_COUNTER_COUNT]; /* of earlier programs, and dropped here */
	uint64_t now[WEBHOOK_COUNTER_COUNT];   /* what this program said */
};

int webhook_new(const char *const *urls, size_t count, const char *sandbox_id,
		struct webhook **ret, struct err *err)
{
	struct webhook *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		return err_sys(err, -ENOMEM, "cannot make the webhook's queue");
	w->fd = -1;
	w->sandbox_id = strdup(sandbox_id ? sandbox_id : "");
	if (!w->sandbox_id)
		r = err_sys(err, -ENOMEM, "cannot make the webhook's queue");
	else if (count > WEBHOOK_URLS_MAX)
		r = err_set(err, -EINVAL, "more than %d webhook URLs", WEBHOOK_URLS_MAX);
	for (size_t i = 0; i < count && r == 0; i++) {
		r = webhook_url_parse(text_of(urls[i]), &w->urls[i], err);
		w->texts[i] = r == 0 ? strdup(urls[i]) : NULL;
		if (r == 0 && !w->texts[i])
			r = err_sys(err, -ENOMEM, "cannot make the webhook's queue");
		w->url_count = i + 1;
	}
	if (r < 0)
		webhook_free(w);
	else
		*ret = w;
	return r;
}

void webhook_free(struct webhook *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->url_count; i++)
		free(w->texts[i]);
	for (; w->count > 0; w->count--, w->first = (w->first + 1) % WEBHOOK_QUEUE_MAX)
		free(w->jobs[w->first]);
	clean_fd(&w->fd);
	free(w->sandbox_id);
	free(w);
}

size_t webhook_url_count(const struct webhook *w)
{
	return w->url_count;
}

const struct webhook_url *webhook_url_at(const struct webhook *w, size_t i)
{
	return i < w->url_count ? &w->urls[i] : NULL;
}

void webhook_attach(struct webhook *w, int fd)
{
	const uint64_t said =
		w->now[WEBHOOK_SENT] + w->now[WEBHOOK_FAILED] + w->now[WEBHOOK_DROPPED];
	size_t kept = 0;

	/* Jobs that somebody asks about go: whoever asks what comes of them asks again.
	 */
	for (size_t i = 0; i < w->count; i++) {
		const size_t from = (w->first + i) % WEBHOOK_QUEUE_MAX;
		const size_t to = (w->first + kept) % WEBHOOK_QUEUE_MAX;

		if (w->ids[from] != 0) {
			free(w->jobs[from]);
			continue;
		}
		w->jobs[to] = w->jobs[from];
		w->sizes[to] = w->sizes[from];
		w->masks[to] = w->masks[from];
		w->ids[to] = 0;
		kept++;
	}
	w->count = kept;
	clean_fd(&w->fd);
	w->fd = fd;
	w->sent_urls = 0;
	/* Jobs that the program had and said nothing of. */
	w->before[WEBHOOK_DROPPED] += w->handed > said ? w->handed - said : 0;
	for (size_t i = 0; i < WEBHOOK_COUNTER_COUNT; i++)
		w->before[i] += w->now[i];
	memset(w->now, 0, sizeof(w->now));
	memset(w->sockets, 0, sizeof(w->sockets));
	w->handed = 0;
}

bool webhook_post(struct webhook *w, uint32_t id, uint32_t urls, const char *body,
		  size_t size)
{
	const size_t slot = (w->first + w->count) % WEBHOOK_QUEUE_MAX;

	urls &= (1u << w->url_count) - 1;
	if (urls == 0)
		return false;
	w->jobs[slot] = w->count < WEBHOOK_QUEUE_MAX ? malloc(size) : w->jobs[slot];
	if (w->count == WEBHOOK_QUEUE_MAX || !w->jobs[slot]) {
		w->before[WEBHOOK_DROPPED] += (uint64_t)__builtin_popcount(urls);
		return false;
	}
	memcpy(w->jobs[slot], body, size);
	w->sizes[slot] = size;
	w->masks[slot] = urls;
	w->ids[slot] = id;
	w->count++;
	return true;
}

void webhook_denied(struct webhook *w, uint32_t urls, const char *name, int64_t wall_ms)
{
	char payload[WEBHOOK_PAYLOAD_SIZE];

	(void)webhook_post(w, 0, urls, payload,
			   webhook_payload(name, wall_ms, w->sandbox_id, payload));
}

static int send_text(struct webhook *w, enum webhook_type type, uint32_t id, uint32_t url,
		     struct text text)
{
	struct webhook_message m = {
		.type = type, .id = id, .url = url, .size = (uint32_t)text.len
	};

	memcpy(m.text, text.ptr, text.len);
	return webhook_message_send(w->fd, &m, -1);
}

int webhook_flush(struct webhook *w)
{
	int r = 0;

	if (w->fd < 0)
		return 0;
	for (; w->sent_urls < w->url_count && r == 0; w->sent_urls += r == 0)
		r = send_text(w, WEBHOOK_URL, 0, (uint32_t)w->sent_urls,
			      text_of(w->texts[w->sent_urls]));
	while (w->count > 0 && r == 0) {
		r = send_text(w, WEBHOOK_JOB, w->ids[w->first], w->masks[w->first],
			      (struct text){ w->jobs[w->first], w->sizes[w->first] });
		if (r < 0)
			break;
		free(w->jobs[w->first]);
		w->handed += (uint64_t)__builtin_popcount(w->masks[w->first]);
		w->first = (w->first + 1) % WEBHOOK_QUEUE_MAX;
		w->count--;
	}
	return r;
}

static uint32_t *socket_slot(struct webhook *w, uint32_t id)
{
	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++)
		if (w->sockets[i] == id)
			return &w->sockets[i];
	return NULL;
}

/* Return: 1 when it is for the caller, 0 when it was taken care of. */
static int take_message(struct webhook *w, const struct webhook_message *m)
{
	uint32_t *slot;
	int r;

	switch (m->type) {
	case WEBHOOK_STATE:
		memcpy(w->now, m->counters, sizeof(w->now));
		return 0;
	case WEBHOOK_WANT:
		if (m->id == 0 || m->url >= w->url_count || socket_slot(w, m->id))
			return -EBADMSG;
		slot = socket_slot(w, 0);
		if (!slot) {
			r = webhook_answer(w, m->id, -EMFILE);
			return r == -EPIPE ? r : 0; /* unheard it times out */
		}
		*slot = m->id;
		return 1;
	case WEBHOOK_DONE:
		if (m->id == 0 || m->url >= w->url_count)
			return -EBADMSG;
		w->handed -= m->error == -EAGAIN && w->handed > 0;
		return 1;
	case WEBHOOK_CLOSED:
		slot = m->id > 0 ? socket_slot(w, m->id) : NULL;
		if (!slot)
			return -EBADMSG;
		*slot = 0;
		return 1;
	default:
		return -EBADMSG;
	}
}

int webhook_receive(struct webhook *w, struct webhook_message *ret)
{
	int fd = -1, r = 0;

	if (w->fd < 0)
		return 0;
	for (int i = 0; r == 0 && i < RECEIVED_MAX; i++) {
		r = webhook_message_receive(w->fd, ret, &fd);
		fd_close(&fd); /* none is ever sent in this direction */
		if (r == 0)
			r = take_message(w, ret);
		else if (r == -EAGAIN)
			return 0;
	}
	return r;
}

int webhook_answer(struct webhook *w, uint32_t id, int fd)
{
	const struct webhook_message m = { .type = WEBHOOK_SOCKET,
					   .id = id,
					   .error = fd < 0 ? fd : 0 };
	uint32_t *slot = socket_slot(w, id);
	const int r = webhook_message_send(w->fd, &m, fd >= 0 ? fd : -1);

	/* What the program didn't get it won't close. */
	if ((fd < 0 || r < 0) && slot)
		*slot = 0;
	return r;
}

struct webhook_state webhook_state(const struct webhook *w)
{
	struct webhook_state s = { 0 };

	for (size_t i = 0; i < WEBHOOK_COUNTER_COUNT; i++)
		s.counters[i] = w->before[i] + w->now[i];
	return s;
}
