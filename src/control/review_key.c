// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "control/control.h"
#include "sys/files.h"

/* In the state directory, so that a link that was sent holds over a restart. */
#define KEY_FILE "review.key"

static int make_review_key(int dir, struct review_key *ret, struct err *err)
{
	int r = 0;

	if (getrandom(ret->bytes, sizeof(ret->bytes), 0) != sizeof(ret->bytes))
		r = -errno;
	if (r == 0)
		r = file_replace(dir, KEY_FILE ".new", KEY_FILE, 0600, ret->bytes,
				 sizeof(ret->bytes));
	return r < 0 ? err_sys(err, r, "cannot write " KEY_FILE) : 0;
}

static int read_review_key(int dir, struct review_key *ret, struct err *err)
{
	const struct file_how how = { .max_bytes = sizeof(ret->bytes),
				      .anybodys = true,
				      .own = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	int r = file_read(dir, KEY_FILE, &how, &file, err);

	if (r < 0)
		return r;
	if (file.stat.st_mode & 077)
		return err_set(err, -EPERM, KEY_FILE ": others may read it");
	if (file.size != sizeof(ret->bytes))
		return err_set(err, -EBADMSG, KEY_FILE ": it is no key");
	memcpy(ret->bytes, file.bytes, file.size);
	explicit_bzero(file.bytes, file.size);
	return 0;
}

int control_review_key_open(struct control *s, struct err *err)
{
	struct err why = { 0 };
	CLEAN(fd) int dir = -1;
	int r;

	if (!s->spec.review_url || !s->spec.state_dir)
		return 0;
	dir = open(s->spec.state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = dir < 0 ? err_sys(&why, -errno, "cannot open it")
		    : read_review_key(dir, &s->review_key, &why);
	if (r == -ENOENT && dir >= 0) {
		why = (struct err){ 0 };
		r = make_review_key(dir, &s->review_key, &why);
	}
	if (r < 0)
		return err_set(err, r, "--review-url: %s: %s", s->spec.state_dir,
			       why.text);
	s->signs_answers = true;
	return 0;
}
