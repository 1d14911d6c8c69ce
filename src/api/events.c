// SPDX-License-Identifier: Apache-2.0
/* /events: what happens, as it happens, as server-sent events.
 *
 * HOW IT WORKS: a stream is a cursor, the number of the next event that its reader gets,
 * and room for the text of one event. It waits suspended; an event, or a tick that finds
 * it silent for long, wakes it, and the library asks it for bytes as fast as its reader
 * takes them. A reader that is so slow that its next event has left the ring is closed:
 * it comes back with Last-Event-ID and is told what it missed. So a stream costs the same
 * memory whatever happens. */
#include <inttypes.h>
#include <microhttpd.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "api/internal.h"

enum {
	STREAM_HEAD_SIZE = 126,
	STREAM_TEXT_SIZE = STREAM_HEAD_SIZE + EVENT_JSON_SIZE + 2,
	STREAM_BLOCK = 4096,
	STREAM_SEND_BUFFER = 65536, /* bytes that the kernel keeps for a slow reader */
};

struct api_stream {
	struct api_http *http;
	struct MHD_Connection *mhd;
	size_t place;	       /* in api->streams */
	uint64_t next;	       /* number of the event that it gets next */
	int64_t written_ms;    /* when it was last given bytes */
	bool is_waiting;       /* suspended */
	bool is_stopped;       /* the API ends */
	bool is_dropped;       /* its connection is shut down */
	int fd;		       /* the library's; -1: not known */
	struct prefix network; /* of its reader */
	uint64_t begun;	       /* the how manieth stream it is */
	bool is_about_one;     /* events of other sandboxes than this are left out */
	uint32_t sandbox;
	size_t size, at; /* of @text; what is behind @at is still to be sent */
	char text[STREAM_TEXT_SIZE];
};

static uint64_t oldest(const struct api_http *h)
{
	return h->row_next > API_EVENTS_KEPT ? h->row_next - API_EVENTS_KEPT : 0;
}

static bool is_silent(const struct api_stream *s)
{
	const int64_t after_sec = s->http->api.config.heartbeat_sec ?: API_HEARTBEAT_SEC;

	return loop_now_ms(s->http->api.config.loop) - s->written_ms >= after_sec * 1000;
}

static bool is_wanted(const struct api_stream *s, uint64_t number)
{
	return !s->is_about_one ||
	       s->http->rows[number % API_EVENTS_KEPT].event.sandbox == s->sandbox;
}

/* Return: false when there is nothing to say. */
static bool fill(struct api_stream *s)
{
	if (s->at < s->size)
		return true;
	while (s->next < s->http->row_next && !is_wanted(s, s->next))
		s->next++;
	if (s->next < s->http->row_next) {
		const struct event_row *row = &s->http->rows[s->next % API_EVENTS_KEPT];

		/* The JSON has no line end, so nothing in it can end the event or begin
		 * another. */
		s->size = (size_t)snprintf(
			s->text, STREAM_HEAD_SIZE,
			"id: %" PRIx64 "-%" PRIu64 "\nevent: %s\ndata: ", s->http->epoch,
			s->next, event_action_name((enum event_action)row->event.action));
		s->size += event_json(row, s->text + s->size);
		s->text[s->size++] = '\n';
		s->text[s->size++] = '\n';
		s->at = 0;
		s->next++;
		return true;
	}
	s->at = s->size = 0;
	if (is_silent(s))
		s->size = (size_t)snprintf(s->text, sizeof(s->text), ": still here\n\n");
	return s->size > 0;
}

/* The library wants bytes for the reader. */
static ssize_t on_read(void *data, uint64_t position, char *buf, size_t max)
{
	struct api_stream *s = data;
	size_t size;

	if (s->is_stopped)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (s->is_dropped)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (!fill(s)) {
		s->is_waiting = true;
		MHD_suspend_connection(s->mhd);
		return 0;
	}
	size = MIN(max, s->size - s->at);
	memcpy(buf, s->text + s->at, size);
	s->at += size;
	s->written_ms = loop_now_ms(s->http->api.config.loop);
	return (ssize_t)size;
}

static void wake(struct api_stream *s)
{
	if (!s->is_waiting)
		return;
	s->is_waiting = false;
	MHD_resume_connection(s->mhd);
	api_run_soon(s->http);
}

static void on_free(void *data)
{
	struct api_stream *s = data;

	s->http->streams[s->place] = NULL;
	free(s);
}

/* Where a reader that comes back goes on; a new one, and one from before a restart of
 * the API, gets what happens from now on, or all that is kept. */
static void start_at(struct api_stream *s, struct text last_id)
{
	struct api_http *h = s->http;
	struct request_event_id id;
	const char *missed = "";

	s->next = h->row_next;
	if (text_trim(last_id).len > 0) {
		s->next = oldest(h);
		if (request_event_id(text_trim(last_id), &id) && id.epoch == h->epoch &&
		    id.number < h->row_next && id.number + 1 >= oldest(h))
			s->next = id.number + 1;
		else
			missed = ": some events may be missing\n";
	}
	s->size = (size_t)snprintf(s->text, sizeof(s->text), "retry: 2000\n%s\n", missed);
}

static struct MHD_Response *stream_response(struct api_stream *s)
{
	static const struct api_reply head = {
		.type = "text/event-stream",
		.headers = { { "Cache-Control", "no-store" },
			     { "X-Accel-Buffering", "no" } },
	};
	struct reply_header header;
	struct MHD_Response *response = MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, s, on_free);

	if (!response)
		return NULL;
	for (size_t i = 0; reply_header_at(&head, i, &header); i++)
		(void)!MHD_add_response_header(response, header.name, header.value);
	return response;
}

static void drop(struct api_stream *s)
{
	s->is_dropped = true;
	s->http->api.counts.streams_dropped++;
	if (s->fd >= 0)
		shutdown(s->fd, SHUT_RDWR);
	wake(s);
}

static size_t held_by_network(const struct api_http *h, const struct prefix *network)
{
	size_t held = 0;

	for (size_t i = 0; i < API_STREAM_PLACES; i++)
		held += h->streams[i] && !h->streams[i]->is_dropped &&
			conns_same_network(&h->streams[i]->network, network);
	return held;
}

/* The oldest stream of the network that has most of them, if that is at least two more
 * than @network has: then it has more than its share, and @network hasn't. */
static struct api_stream *find_crowding(const struct api_http *h,
					const struct prefix *network)
{
	struct api_stream *found = NULL;
	size_t most = held_by_network(h, network) + 1;

	for (size_t i = 0; i < API_STREAM_PLACES; i++) {
		struct api_stream *s = h->streams[i];
		size_t held = s && !s->is_dropped ? held_by_network(h, &s->network) : 0;

		if (held > most || (found && held == most && s->begun < found->begun)) {
			found = s;
			most = held;
		}
	}
	return found;
}

/* Drop one whose reader has hung up, or says no more; the library learns of it with the
 * next bytes that it sends, which can take until the next heartbeat. */
static void drop_who_left(struct api_http *h)
{
	for (size_t i = 0; i < API_STREAM_PLACES; i++) {
		struct api_stream *s = h->streams[i];
		struct pollfd p = { .fd = s ? s->fd : -1, .events = POLLRDHUP };

		if (p.fd < 0 || s->is_dropped || poll(&p, 1, 0) != 1)
			continue;
		drop(s);
		return;
	}
}

/* Return: false when all are taken, and fairly. */
static bool find_place(struct api_http *h, const struct api_request *r, size_t *ret)
{
	const struct conn *conn = r->conn;
	struct api_stream *crowding = NULL;
	size_t place = 0;

	if (streams_count(h) >= API_STREAMS_MAX)
		drop_who_left(h);
	if (streams_count(h) >= API_STREAMS_MAX) {
		crowding = conn ? find_crowding(h, &conn->network) : NULL;
		if (!crowding)
			return false;
	}
	while (place < API_STREAM_PLACES && h->streams[place])
		place++;
	if (place == API_STREAM_PLACES)
		return false;
	if (crowding)
		drop(crowding);
	*ret = place;
	return true;
}

void answer_events(struct api_request *r)
{
	const int send_buffer = STREAM_SEND_BUFFER;
	struct api_http *h = http_of(r->api);
	struct MHD_Response *response;
	struct api_stream *s;
	size_t place;

	s = find_place(h, r, &place) ? calloc(1, sizeof(*s)) : NULL;
	if (!s) {
		reply_error(r, HTTP_UNAVAILABLE, "too many event streams");
		return;
	}
	*s = (struct api_stream){ .http = h, .mhd = r->mhd, .place = place, .fd = -1 };
	s->begun = h->streams_begun++;
	s->is_about_one = r->is_about_one;
	s->sandbox = r->sandbox;
	s->written_ms = loop_now_ms(h->api.config.loop);
	start_at(s, request_header(r, "Last-Event-ID"));
	response = stream_response(s);
	if (!response) {
		free(s);
		return;
	}
	h->streams[place] = s;
	/* The stream keeps its connection whoever else comes. */
	if (r->conn) {
		conns_keep(&h->conns, r->conn);
		s->fd = r->conn->fd;
		s->network = r->conn->network;
		setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer,
			   sizeof(send_buffer));
	}
	if (MHD_queue_response(r->mhd, HTTP_OK, response) == MHD_YES)
		reply_sent(r, HTTP_OK);
	MHD_destroy_response(response);
}

void api_on_event(struct api *a, const struct event_row *row)
{
	struct api_http *h = http_of(a);

	h->rows[h->row_next++ % API_EVENTS_KEPT] = *row;
	for (size_t i = 0; i < API_STREAM_PLACES; i++) {
		if (!h->streams[i])
			continue;
		/* It has got all others, and this one isn't for it. */
		if (h->streams[i]->next + 1 == h->row_next &&
		    !is_wanted(h->streams[i], h->streams[i]->next)) {
			h->streams[i]->next++;
			continue;
		}
		/* Its next event has left the ring. */
		if (!h->streams[i]->is_dropped && h->streams[i]->next < oldest(h))
			drop(h->streams[i]);
		wake(h->streams[i]);
	}
}

void streams_tick(struct api_http *h)
{
	for (size_t i = 0; i < API_STREAM_PLACES; i++)
		if (h->streams[i] && is_silent(h->streams[i]))
			wake(h->streams[i]);
}

void streams_wake(struct api_http *h)
{
	for (size_t i = 0; i < API_STREAM_PLACES; i++) {
		if (!h->streams[i])
			continue;
		h->streams[i]->is_stopped = true;
		wake(h->streams[i]);
	}
}

size_t streams_count(const struct api_http *h)
{
	size_t count = 0;

	for (size_t i = 0; i < API_STREAM_PLACES; i++)
		count += h->streams[i] && !h->streams[i]->is_dropped;
	return count;
}
