// SPDX-License-Identifier: Apache-2.0
/* weir-postgres: events of a store, copied into PostgreSQL. It takes the options of `weir
 * sidecar` or `weir daemon`, whose supervisor starts it, ends it, and starts it again. As
 * the service of outputs/postgres_read.h it reads events back. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "outputs/postgres/reader.h"
#include "outputs/postgres/sender.h"
#include "outputs/postgres_read.h"
#include "outputs/postgres_state.h"
#include "settings/settings.h"
#include "settings/state_dir.h"
#include "sys/confine.h"
#include "sys/process.h"

enum {
	LOOK_MS = 250,	    /* while there is nothing new */
	RETRY_MIN_MS = 500, /* after a failure, doubled each time */
	RETRY_MAX_MS = 5000,
	REFUSED_EVERY_MS = 60 * 1000,
	TELL_EVERY_MS = 10 * 1000, /* while nothing changes */
	/* A step that has no end (a name service that hangs, a call of libpq's) ends this
	 * process, and its successor begins anew: nothing is lost by that. */
	STEP_SEC = 600,
};

/* What was said last, so that nothing is said again and again. */
struct said {
	char trouble[ERR_TEXT_SIZE];
	uint64_t refused;
	int64_t refused_ms;
};

static void say(struct said *said, const char *trouble)
{
	if (strcmp(said->trouble, trouble) == 0)
		return;
	if (trouble[0])
		log_warning("%s; what is not copied waits in the store", trouble);
	else
		log_warning("events are copied to PostgreSQL again");
	snprintf(said->trouble, sizeof(said->trouble), "%s", trouble);
}

static void say_refused(struct said *said, uint64_t refused, const char *why)
{
	const int64_t now_ms = clock_now_ms();

	if (said->refused_ms > 0 && now_ms - said->refused_ms < REFUSED_EVERY_MS)
		return;
	log_warning("%s; such events are passed over (%" PRIu64 " so far)", why, refused);
	said->refused_ms = now_ms;
}

static void serve(struct sender *s, const char *directory)
{
	struct said said = { 0 };
	int wait_ms = RETRY_MIN_MS;
	int64_t told_ms = 0;

	for (bool first = true;; first = false) {
		struct err err = { 0 };
		struct sender_state now;
		const char *trouble;
		int r;

		alarm(STEP_SEC);
		r = sender_step(s, &err);
		alarm(0);
		now = sender_state(s);
		trouble = r < 0 ? err.text : now.trouble;
		if (r >= 0 && err.text[0])
			say_refused(&said, now.refused, err.text);
		if (r != 0 || first || said.trouble[0] || trouble[0] ||
		    clock_now_ms() - told_ms > TELL_EVERY_MS) {
			struct postgres_state state = { .sent = now.sent,
							.missed = now.missed,
							.refused = now.refused,
							.waiting = now.waiting };

			snprintf(state.trouble, sizeof(state.trouble), "%s", trouble);
			/* What /status shows. Not worth a failure. */
			(void)!postgres_state_write(directory, &state);
			told_ms = clock_now_ms();
		}
		say(&said, trouble);
		if (r > 0)
			continue;
		/* Not all at once: a server may have thousands of us. */
		poll(NULL, 0, r < 0 ? wait_ms + wait_ms * (getpid() % 32) / 64 : LOOK_MS);
		wait_ms = r < 0 ? MIN(wait_ms * 2, (int)RETRY_MAX_MS) : RETRY_MIN_MS;
	}
}

/* No capability, no program started, files read alone but for those below @directory,
 * which may be NULL. Return: 0 or -errno. */
static int confine(const char *directory, struct err *err)
{
	/* Certificates and password files may be anywhere. */
	const struct landlock_path paths[] = { { .path = "/", .write = false },
					       { .path = directory, .write = true } };
	int r = confine_rights(0, err);

	if (r < 0)
		return r;
	r = landlock_enter(paths, directory ? 2 : 1);
	if (r < 0 && r != -EOPNOTSUPP)
		return err_sys(err, r, "cannot cut file access by Landlock");
	return confine_calls(CONFINE_POSTGRES, err);
}

int main(int argc, char **argv)
{
	static struct sidecar_spec spec;
	bool is_daemon;
	struct err err = { 0 };
	struct sender *s;

	if (settings_take(&argc, &argv) < 0)
		return RUN_STATUS_FAILED;
	prctl(PR_SET_NAME, "weir-postgres");
	if (argc > 1 && strcmp(argv[1], POSTGRES_READ) == 0) {
		int r = confine(NULL, &err);

		if (r == 0)
			r = reader_serve(argc - 1, argv + 1, INHERITED_FIRST, &err);
		if (r < 0)
			log_error("%s", err.text);
		return r == -EINVAL ? RUN_STATUS_BAD_INPUT
		       : r < 0	    ? RUN_STATUS_FAILED
				    : 0;
	}
	if (cli_helper_parse(argc, argv, &is_daemon, &spec, &err) < 0 || !spec.postgres) {
		log_error("%s", err.text[0] ? err.text : "no PostgreSQL is named");
		return RUN_STATUS_BAD_INPUT;
	}
	/* Control makes the store in it; what isn't there yet could not be kept in reach.
	 */
	if (state_dir_take(&spec, NULL, &err) < 0 || !spec.state_dir ||
	    confine(spec.state_dir, &err) < 0) {
		log_error("weir-postgres: %s", err.text);
		return RUN_STATUS_FAILED;
	}
	s = sender_new(spec.state_dir, spec.postgres);
	if (!s) {
		log_error("weir-postgres: out of memory");
		return RUN_STATUS_FAILED;
	}
	serve(s, spec.state_dir);
	return RUN_STATUS_FAILED;
}
