// SPDX-License-Identifier: Apache-2.0
/* What both ends of the webhook's channel use: messages, URLs, payloads. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "event/event.h"
#include "event/json.h"
#include "outputs/webhook.h"

enum { HEAD_SIZE = offsetof(struct webhook_message, text), SANDBOX_MAX = 128 };

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
	struct iovec iov = { (void *)(uintptr_t)m, HEAD_SIZE + m->size };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
	}
	if (sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == ECONNRESET ? -EPIPE : -errno;
}

/* The room for one is rounded up to that of two. Return: false for more than one, which
 * are closed then. */
static bool take_fd(struct msghdr *msg, int *ret)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	size_t count = 0;
	int fds[2];

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		count = MIN((c->cmsg_len - CMSG_LEN(0)) / sizeof(int), ARRAY_SIZE(fds));
	if (count > 0)
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
	if (count == 1)
		*ret = fds[0];
	for (size_t i = 0; count > 1 && i < count; i++)
		close(fds[i]);
	return count <= 1;
}

int webhook_message_receive(int sock, struct webhook_message *ret, int *ret_fd)
{
	struct iovec iov = { ret, sizeof(*ret) };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	const ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	CLEAN(fd) int fd = -1;
	bool one;

	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	one = take_fd(&msg, &fd);
	if (n == 0)
		return -EPIPE;
	if (!one || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
	    n < (ssize_t)HEAD_SIZE || (size_t)n != HEAD_SIZE + ret->size ||
	    !is_sound(ret) || (fd >= 0 && ret->type != WEBHOOK_SOCKET))
		return -EBADMSG;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* ---- URLs ---- */

static bool has_only_visible(struct text t)
{
	for (size_t i = 0; i < t.len; i++)
		if (t.ptr[i] <= 0x20 || t.ptr[i] >= 0x7f || t.ptr[i] == '\\')
			return false;
	return t.len > 0 && t.len < WEBHOOK_URL_SIZE;
}

static bool skip(struct text *t, const char *start)
{
	const size_t n = strlen(start);

	if (t->len < n || strncasecmp(t->ptr, start, n) != 0)
		return false;
	t->ptr += n;
	t->len -= n;
	return true;
}

static bool is_host_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_';
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
		char c = t.ptr[i];

		c = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
		if (ret->addr.family != ADDR_V6 && !is_host_byte(c))
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
	char shown[TEXT_ESCAPED_SIZE];
	struct text t = url;
	bool ok = has_only_visible(t);

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
			       text_escape(url, shown, sizeof(shown)));
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
		host[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20
								  : name[i]);
	jtext_init(&j, buf, WEBHOOK_PAYLOAD_SIZE);
	jtext_put(&j, text_of("{"));
	jtext_key(&j, "hostname");
	jtext_string(&j, (struct text){ host, n }, sizeof(host));
	jtext_key(&j, "timestamp");
	jtext_string(&j, text_of(jtext_time(wall_ms, false, when)), sizeof(when));
	jtext_key(&j, "source");
	jtext_string(&j, text_of("opensandbox-egress"), 64);
	jtext_key(&j, "sandboxId");
	jtext_string(&j, text_of(sandbox_id), SANDBOX_MAX);
	jtext_put(&j, text_of("}"));
	return j.used;
}
