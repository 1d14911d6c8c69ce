// SPDX-License-Identifier: Apache-2.0
/* What the rules of `weir render` refuse, read from the kernel's log group while no
 * process of Weir's keeps them. One program at a time can read it, and nothing that
 * happened before is there. The rules log each address and port when it is first seen,
 * and the rest at a limited rate: so lines are no count of packets. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "filter/nflog.h"
#include "filter/ruleset.h"
#include "sys/sock.h"
#include "tools/events_show.h"

struct collector {
	struct show *show;
	uint32_t count; /* that were printed */
};

/* The id in "weir out ID", or NULL: these are not rules of `weir render`. */
static const char *id_of(const struct nflog_packet *p)
{
	const size_t len = strlen(FILTER_PREFIX_REFUSED " ");

	return strncmp(p->prefix, FILTER_PREFIX_REFUSED " ", len) == 0 && p->prefix[len]
		       ? p->prefix + len
		       : NULL;
}

static void on_packet(void *data, const struct nflog_packet *p)
{
	struct collector *c = data;
	const struct sqlite_query *q = &c->show->query;
	const struct event e = {
		.ts_ms = clock_wall_ms(),
		.action = EVENT_DENY,
		.layer = EVENT_ADDRESS,
		.rule = EVENT_NO_RULE,
		.protocol = p->protocol,
		.remote = p->destination,
		.port = p->destination_port,
		.packets = 1,
		.bytes = p->length,
		.uid = p->uid,
		.reason = "refused by rendered rules",
	};
	struct event_row row = { .event = e };
	const char *id = id_of(p);

	if (!id || (c->show->spec.limit > 0 && c->count == c->show->spec.limit))
		return;
	snprintf(row.sandbox, sizeof(row.sandbox), "%s", id);
	if ((q->sandbox && strcmp(q->sandbox, row.sandbox) != 0) ||
	    (q->remote.family != 0 && !addr_equal(&q->remote, &e.remote)))
		return;
	show_row(c->show, &row);
	c->count++;
}

static int open_log(struct err *err)
{
	CLEAN(fd) int fd = -1;
	int r = sandbox_netlink_open(&fd, err);

	if (r < 0)
		return r;
	r = nflog_bind(fd, FILTER_NFLOG_GROUP, err);
	/* The kernel says the same of a group that another program reads. */
	if (r == -EBUSY || r == -EPERM)
		return err_set(err, r,
			       "log group %d can't be read: that takes root, and one "
			       "program at a time can, such as `weir daemon`",
			       FILTER_NFLOG_GROUP);
	return r < 0 ? r : TAKE_FD(fd);
}

/* Return: 0, nobody wants any more; or -errno. */
static int collect(struct collector *c, int fd, struct err *err)
{
	const uint32_t limit = c->show->spec.limit;
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	while ((limit == 0 || c->count < limit) && fflush(stdout) == 0) {
		int r = poll(&wait, 1, -1) < 0 ? -errno : nflog_read(fd, on_packet, c);

		if (r == -ENOBUFS)
			log_warning("some were lost: they came too fast");
		else if (r < 0 && r != -EAGAIN && r != -EINTR)
			return err_sys(err, r, "cannot read the log");
	}
	return 0;
}

int show_collect(struct show *s)
{
	struct collector c = { .show = s };
	struct err err = { 0 };
	CLEAN(fd) int fd = open_log(&err);

	if (fd < 0 || collect(&c, fd, &err) < 0)
		return show_failed(&err);
	return SHOW_OK;
}
