// SPDX-License-Identifier: Apache-2.0
/* The API without a library, also while the kernel lets this user watch nothing more. */
#include "api/api.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "opensandbox/document.h"
#include "unit.h"

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e);
const char *__real_document_mode(const struct document *d);
const char *__wrap_document_mode(const struct document *d);

static bool is_full;

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e)
{
	if (is_full && op == EPOLL_CTL_ADD) {
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(epoll, op, fd, e);
}

static struct document *in_force;

const char *__wrap_document_mode(const struct document *d)
{
	return d == in_force ? __real_document_mode(d) : "of what was freed";
}

static const struct document *policy_in_force(void *data)
{
	return in_force;
}

/* A run's engine may say meanwhile that another policy is in force. */
static void status_of_a_change(void *data, struct api_status *ret)
{
	struct document *old = in_force;

	in_force = document_deny_all();
	assert_non_null(in_force);
	document_free(old);
	ret->enforcement_mode = "dns+nft";
}

static int admitted;

static bool admits(void *data, int fd)
{
	admitted++;
	return true;
}

/* An API, where it listens, and its loop. */
struct served {
	struct api_config config;
	struct api_plain *api;
	struct sockaddr_un here;
	socklen_t size;
};

static struct served serve_with(struct api_ops ops)
{
	struct served s = { .config = { .loop = loop_new(),
					.ops = ops,
					.open = true,
					.sandboxes.admits = admits },
			    .here.sun_family = AF_UNIX,
			    .size = sizeof(s.here) };
	struct err err = { 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	s.config.listen_fd = fd;
	/* The kernel chooses an abstract name. */
	assert_int_equal(
		bind(fd, (const struct sockaddr *)&s.here, sizeof(s.here.sun_family)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&s.here, &s.size), 0);
	assert_int_equal(listen(fd, 4), 0);
	s.api = api_plain_new(&s.config, &err);
	assert_non_null(s.api);
	admitted = 0;
	return s;
}

static struct served serve(void)
{
	return serve_with((struct api_ops){ 0 });
}

static void turn(const struct served *s)
{
	assert_int_equal(loop_turn(s->config.loop, 0), 0);
}

static int dial(const struct served *s)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (const struct sockaddr *)&s->here, s->size), 0);
	return fd;
}

static void served_done(struct served *s)
{
	api_plain_free(s->api);
	loop_free(s->config.loop);
}

TEST(a_client_is_served_after_one_that_left_while_nothing_more_could_be_watched)
{
	struct served s = serve();
	int client = dial(&s);

	turn(&s);
	is_full = true;
	close(client);
	turn(&s);
	is_full = false;
	client = dial(&s);
	turn(&s);
	assert_int_equal(admitted, 2);
	close(client);
	served_done(&s);
}

TEST(clients_are_answered_while_nothing_more_can_be_watched)
{
	static const char request[] = "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char answer[] = "HTTP/1.1 404";
	struct served s = serve();
	char got[4096];

	is_full = true;
	for (int i = 0; i < 3; i++) {
		int gone = dial(&s), client = dial(&s);

		close(gone);
		assert_int_equal(send(client, request, strlen(request), 0),
				 strlen(request));
		turn(&s);
		turn(&s);
		assert_true(recv(client, got, sizeof(got), MSG_DONTWAIT) >
			    (ssize_t)strlen(answer));
		assert_memory_equal(got, answer, strlen(answer));
		close(client);
	}
	is_full = false;
	assert_int_equal(admitted, 6);
	served_done(&s);
}

TEST(what_two_readers_could_read_differently_is_read_by_nobody)
{
	static const char *const rows[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\nHost: x\n\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX: y\n z\r\n\r\n",
		"GET / HTTP/3\r\nHost: x\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
		"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}",
		"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	};
	static const char answer[] = "HTTP/1.1 400";
	struct served s = serve();
	char got[4096];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int client = dial(&s);

		assert_true(send(client, rows[i], strlen(rows[i]), 0) > 0);
		for (int turns = 0; turns < 3; turns++)
			turn(&s);
		if (recv(client, got, sizeof(got), MSG_DONTWAIT) <
			    (ssize_t)strlen(answer) ||
		    memcmp(got, answer, strlen(answer)) != 0)
			fail_msg("%s", rows[i]);
		close(client);
	}
	served_done(&s);
}

TEST(a_policy_is_shown_while_another_one_comes_into_force)
{
	static const char request[] = "GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct served s = serve_with((struct api_ops){ .policy = policy_in_force,
						       .status = status_of_a_change });
	const char *body;
	char got[4096];
	ssize_t n;
	int client;

	in_force = document_deny_all();
	assert_non_null(in_force);
	client = dial(&s);
	assert_int_equal(send(client, request, strlen(request), 0), strlen(request));
	for (int turns = 0; turns < 3; turns++)
		turn(&s);
	n = recv(client, got, sizeof(got) - 1, MSG_DONTWAIT);
	assert_true(n > 0);
	got[n] = '\0';
	body = strstr(got, "\r\n\r\n{\"status\":\"ok\",\"mode\":\"deny_all\",");
	if (!body)
		fail_msg("%s", got);
	close(client);
	served_done(&s);
	document_free(in_force);
}

/* What is answered to @request, sent in one piece. */
static void ask(const struct served *s, const char *request, char *got, size_t size)
{
	int client = dial(s);
	ssize_t n;

	assert_int_equal(send(client, request, strlen(request), 0), strlen(request));
	for (int turns = 0; turns < 3; turns++)
		turn(s);
	n = recv(client, got, size - 1, MSG_DONTWAIT);
	assert_true(n > 0);
	got[n] = '\0';
	close(client);
}

static void assert_status(const char *got, const char *status)
{
	if (strncmp(got, status, strlen(status)) != 0)
		fail_msg("%s", got);
}

TEST(a_head_that_is_too_long_is_refused_in_whatever_pieces_it_comes)
{
	static const char before[] = "GET /nothing HTTP/1.1\r\nHost: x\r\nX: ",
			  behind[] = "\r\n\r\n";
	struct served s = serve();
	char request[API_PLAIN_HEAD_MAX + 2] = "", got[4096];
	size_t filling = API_PLAIN_HEAD_MAX - strlen(before) - strlen(behind);

	snprintf(request, sizeof(request), "%s%0*d%s", before, (int)filling, 0, behind);
	assert_int_equal(strlen(request), API_PLAIN_HEAD_MAX);
	ask(&s, request, got, sizeof(got));
	assert_status(got, "HTTP/1.1 404");
	snprintf(request, sizeof(request), "%s%0*d%s", before, (int)filling + 1, 0,
		 behind);
	ask(&s, request, got, sizeof(got));
	assert_status(got, "HTTP/1.1 431");
	served_done(&s);
}

/* -- a review task ------------------------------------------------------------------ */

static const struct review open_task = { .id = 1,
					 .destination = "a.test",
					 .is_name = true,
					 .advice = "a.test",
					 .state = REVIEW_OPEN };
static struct review task;
static bool store_is_locked, engine_refuses;
static size_t changes;

static int the_task(void *data, int64_t id, struct review *ret, struct err *err)
{
	*ret = task;
	return 0;
}

static int no_tasks(void *data, enum review_state state,
		    bool (*on_task)(void *to, const struct review *t), void *to,
		    struct err *err)
{
	return 0;
}

static int note(void *data, int64_t id, enum review_state state, const char *who,
		struct err *err)
{
	if (store_is_locked)
		return err_set(err, -EBUSY, "the store is locked");
	task.state = state;
	snprintf(task.who, sizeof(task.who), "%s", who);
	return 0;
}

static enum api_failure change(void *data, struct document *next, struct err *err)
{
	changes++;
	document_free(next);
	if (!engine_refuses)
		return API_FAILED_NOT;
	err_set(err, -EIO, "the engine refuses");
	return API_FAILED_APPLY;
}

static void log_change(void *data, const char *rules_json, const char *error,
		       bool callers_fault)
{
}

TEST(a_rule_is_in_force_and_noted_or_neither)
{
	static const struct {
		const char *what;
		bool locked, refuses;
		const char *status;
		size_t changes;
		enum review_state state;
		const char *who;
	} rows[] = {
		{ "both", false, false, "HTTP/1.1 200", 1, REVIEW_ACCEPTED, "ann" },
		{ "not noted", true, false, "HTTP/1.1 503", 0, REVIEW_OPEN, "" },
		{ "refused", false, true, "HTTP/1.1 500", 1, REVIEW_OPEN, "" },
	};
	struct served s = serve_with((struct api_ops){ .policy = policy_in_force,
						       .change = change,
						       .log_change = log_change,
						       .reviews = no_tasks,
						       .review = the_task,
						       .decide = note });
	char got[4096];

	in_force = document_deny_all();
	assert_non_null(in_force);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		task = open_task;
		changes = 0;
		store_is_locked = rows[i].locked;
		engine_refuses = rows[i].refuses;
		ask(&s,
		    "POST /review/1/accept?who=ann HTTP/1.1\r\nHost: localhost\r\n"
		    "Content-Length: 0\r\n\r\n",
		    got, sizeof(got));
		assert_status(got, rows[i].status);
		if (changes != rows[i].changes || task.state != rows[i].state ||
		    strcmp(task.who, rows[i].who) != 0)
			fail_msg("%s: %zu changes, state %d, by '%s'", rows[i].what,
				 changes, task.state, task.who);
	}
	served_done(&s);
	document_free(in_force);
}
