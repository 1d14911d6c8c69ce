// SPDX-License-Identifier: Apache-2.0
#include "resolver/udp.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "dns/message.h"

#ifndef SO_RCVMARK
#define SO_RCVMARK 75 /* since 5.19; not in Debian 12's headers */
#endif

int dns_read_marks(int fd)
{
	int one = 1;

	return setsockopt(fd, SOL_SOCKET, SO_RCVMARK, &one, sizeof(one)) < 0 ? -errno : 0;
}

int dns_read(struct dns_read *in, int fd)
{
	for (size_t i = 0; i < DNS_READ_MAX; i++) {
		in->vectors[i] = (struct iovec){ in->bytes[i], sizeof(in->bytes[i]) };
		in->headers[i].msg_hdr = (struct msghdr){
			.msg_name = &in->peers[i],
			.msg_namelen = sizeof(in->peers[i]),
			.msg_iov = &in->vectors[i],
			.msg_iovlen = 1,
			.msg_control = in->control[i],
			.msg_controllen = sizeof(in->control[i]),
		};
	}
	return recvmmsg(fd, in->headers, DNS_READ_MAX, MSG_DONTWAIT, NULL);
}

size_t dns_read_size(const struct dns_read *in, int i)
{
	if (in->headers[i].msg_hdr.msg_flags & MSG_TRUNC)
		return DNS_HEADER_SIZE;
	return in->headers[i].msg_len;
}

uint32_t dns_read_mark(const struct dns_read *in, int i)
{
	struct msghdr m = in->headers[i].msg_hdr;
	const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	uint32_t mark;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_MARK ||
	    c->cmsg_len != CMSG_LEN(sizeof(mark)))
		return 0;
	memcpy(&mark, CMSG_DATA(c), sizeof(mark));
	return mark;
}
