// SPDX-License-Identifier: Apache-2.0
/* The daemon's API over TCP: the same, to whoever has the token, over TLS. A second one
 * beside that of the unix socket, on a socket that the daemon has opened; when its files
 * have changed another one takes its place, and streams come back by themselves. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/control.h"
#include "sys/files.h"

enum {
	FILE_SIZE_MAX = 256 * 1024, /* more is no certificate, key or token */
	TOKEN_LEN_MIN = 16,
};

struct files {
	char *cert, *key, *token; /* owned */
};

struct control_secure {
	struct control *side;
	struct api *api; /* NULL: nobody is served */
	struct files files;
	struct loop_source
		closing; /* while nobody is served: who comes isn't left hanging
			  */
	struct loop_deferred again;
	char trouble[ERR_TEXT_SIZE];
};

/* ---- files ---- */

static void wipe(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

static void files_done(struct files *f)
{
	wipe(&f->cert);
	wipe(&f->key);
	wipe(&f->token);
}

static int read_file(const char *path, char **ret, struct err *err)
{
	const struct file_how how = { .max_bytes = FILE_SIZE_MAX,
				      .follow = true,
				      .anybodys = true };
	struct file_bytes file = { 0 };
	int r = file_read(AT_FDCWD, path, &how, &file, err);

	if (r < 0)
		return r;
	*ret = file.bytes;
	if (file.size == 0 || strlen(file.bytes) != file.size)
		return err_set(err, -EINVAL, "cannot read '%.200s': it is %s", path,
			       file.size == 0 ? "empty" : "no text");
	return 0;
}

static int files_read(const struct sidecar_spec *spec, struct files *ret, struct err *err)
{
	const char *path = spec->token_file;
	int r = read_file(spec->tls_cert, &ret->cert, err);
	struct text t;

	if (r == 0)
		r = read_file(spec->tls_key, &ret->key, err);
	if (r == 0)
		r = read_file(path, &ret->token, err);
	if (r < 0)
		return r;
	/* What no header can show would keep everybody out, which is better told. */
	t = text_trim(text_of(ret->token));
	memmove(ret->token, t.ptr, t.len);
	ret->token[t.len] = '\0';
	if (t.len < TOKEN_LEN_MIN)
		return err_set(err, -EINVAL,
			       "the token in '%.200s' is shorter than %d letters", path,
			       TOKEN_LEN_MIN);
	for (size_t i = 0; i < t.len; i++)
		if (ret->token[i] <= ' ' || ret->token[i] > '~')
			return err_set(err, -EINVAL,
				       "the token in '%.200s' is not one word of ASCII",
				       path);
	return 0;
}

/* ---- the API ---- */

static struct api *make(struct control *s, const struct files *f, struct err *err)
{
	struct api_config config;

	control_api_config(s, &config);
	config.listen_fd = fcntl(INHERITED_FIRST + INHERITED_TLS, F_DUPFD_CLOEXEC, 0);
	config.tls_cert = f->cert;
	config.tls_key = f->key;
	config.token = f->token;
	config.limits_failures = true;
	config.open = false;
	/* Who comes is not known by the connection. */
	config.sandboxes.admits = NULL;
	if (config.listen_fd >= 0)
		return api_new(&config, err);
	err_sys(err, -errno, "cannot take the API's socket");
	return NULL;
}

static void on_refused(struct loop_source *source, uint32_t events)
{
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	clean_fd(&fd);
}

static void start_api(struct control_secure *x)
{
	struct control *s = x->side;
	struct files files = { 0 };
	struct err err = { 0 };
	struct api *api = NULL;

	if (!sock_listens(INHERITED_FIRST + INHERITED_TLS))
		return;
	if (files_read(&s->spec, &files, &err) == 0)
		api = make(s, &files, &err);
	if (!api) {
		/* The library doesn't say what it dislikes about a certificate or a key.
		 */
		if (err.code == -EKEYREJECTED)
			err_set(&err, -EKEYREJECTED,
				"'%.150s' and '%.150s' are no certificate and key that "
				"go together",
				s->spec.tls_cert, s->spec.tls_key);
		files_done(&files);
		snprintf(x->trouble, sizeof(x->trouble), "%.300s; %s", err.text,
			 x->api ? "those before serve on"
				: "no request is served over TCP");
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR, "%s", x->trouble);
		if (x->api)
			return;
		x->closing.on_ready = on_refused;
		x->closing.fd = INHERITED_FIRST + INHERITED_TLS;
		if (!x->closing.added && loop_add(s->loop, &x->closing, EPOLLIN) < 0)
			loop_stop(s->loop);
		return;
	}
	loop_remove(s->loop, &x->closing);
	x->trouble[0] = '\0';
	api_free(x->api);
	files_done(&x->files);
	x->api = api;
	x->files = files;
}

static void on_files_again(struct loop_deferred *d)
{
	start_api(CONTAINER_OF(d, struct control_secure, again));
}

int control_secure_open(struct control *s, struct err *err)
{
	struct control_secure *x = calloc(1, sizeof(*x));

	if (!x)
		return err_set(err, -ENOMEM, "out of memory");
	x->side = s;
	x->again.run = on_files_again;
	s->secure = x;
	start_api(x);
	return 0;
}

void control_secure_listen(struct control *s)
{
	if (s->secure && !s->secure->api && !s->secure->closing.added)
		start_api(s->secure);
}

void control_secure_reload(struct control *s)
{
	if (s->secure)
		loop_defer(s->loop, &s->secure->again);
}

void control_secure_event(const struct control *s, const struct event_row *row)
{
	if (s->secure && s->secure->api)
		api_on_event(s->secure->api, row);
}

const char *control_secure_trouble(const struct control *s)
{
	return s->secure ? s->secure->trouble : "";
}

void control_secure_close(struct control *s)
{
	if (!s->secure)
		return;
	api_free(s->secure->api);
	files_done(&s->secure->files);
	free(s->secure);
	s->secure = NULL;
}
