// SPDX-License-Identifier: Apache-2.0
/* weir-webhook: tells URLs of denied names. Weir starts it, with descriptor 3 leading to
 * itself (outputs/webhook.h); it ends when that does. Nobody else has a use for it. */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "outputs/webhook/hook.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/settings.h"
#include "sys/sock.h"

enum { CA_MAX = 8 << 20, FILES_MAX = 64 };

static struct text read_file(const char *path)
{
	const struct file_how how = { .max_bytes = CA_MAX,
				      .follow = true,
				      .anybodys = true };
	struct file_bytes file = { 0 };

	if (file_read(AT_FDCWD, path, &how, &file, NULL) < 0)
		return (struct text){ 0 };
	return (struct text){ file.bytes, file.size };
}

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
	struct text ca = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(paths) && ca.len == 0; i++)
		if (paths[i] && paths[i][0])
			ca = read_file(paths[i]);
	return ca;
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

static int post_all(struct hooks *h)
{
	int r;

	do {
		r = hooks_wait(h, clock_now_ms());
		if (r == 0)
			r = hooks_receive(h);
		if (r == 0)
			r = hooks_work(h, clock_now_ms());
	} while (r == 0);
	return r;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	struct hooks *h;
	int r;

	if (settings_take(&argc, &argv) < 0)
		return 1;
	if (!sock_is_channel(WEBHOOK_FD)) {
		log_error("weir-webhook is started by Weir, not by hand");
		return 2;
	}
	prctl(PR_SET_NAME, "weir-webhook", 0, 0, 0);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		log_error("cannot start libcurl");
		return 1;
	}
	h = hooks_new(WEBHOOK_FD, read_certificates());
	if (!h || confine(&err) < 0) {
		log_error("weir-webhook: %s", h ? err.text : "out of memory");
		return 1;
	}
	r = post_all(h);
	if (r != -EPIPE)
		log_error("weir-webhook: %s", strerror(-r));
	return r == -EPIPE ? 0 : 1;
}
