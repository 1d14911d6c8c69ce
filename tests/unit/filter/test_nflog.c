// SPDX-License-Identifier: Apache-2.0
#include "filter/nflog.h"

#include <netinet/in.h>
#include <string.h>

#include "sys/netlink.h"
#include "unit.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>

/* One report with @packet as its payload. */
struct report {
	_Alignas(struct nlmsghdr) uint8_t bytes[512];
	size_t size;
};

static struct report report(const uint8_t *packet, size_t size)
{
	struct report r = { 0 };
	struct nl_writer w = nl_writer(r.bytes, sizeof(r.bytes), 0);

	nl_begin(&w, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET, 0,
		 sizeof(struct nfgenmsg));
	nl_put_text(&w, NFULA_PREFIX, "weir out");
	nl_put_be32(&w, NFULA_UID, 1000);
	nl_put_be32(&w, NFULA_MARK, 0x50001);
	nl_put(&w, NFULA_PAYLOAD, packet, size);
	nl_end(&w);
	r.size = w.size;
	return r;
}

static void keep(void *data, const struct nflog_packet *p)
{
	*(struct nflog_packet *)data = *p;
}

static int parse(const uint8_t *packet, size_t size, struct nflog_packet *ret)
{
	struct report r = report(packet, size);

	return nflog_parse(r.bytes, r.size, keep, ret);
}

static const uint8_t udp4[] = { 0x45, 0,    0,	  29,	0, 0, 0,   0, 64, 17,
				0,    0,    10,	  0,	0, 1, 192, 0, 2,  7,
				0x12, 0x34, 0x01, 0xbb, 0, 9, 0,   0, 'x' };
static const uint8_t tcp6[] = { 0x60, 0, 0,    0, 0, 20, 6, 64, 0x20, 1,    0xd,
				0xb8, 0, 0,    0, 0, 0,	 0, 0,	0,    0,    0,
				0,    1, 0x26, 0, 0, 0,	 0, 0,	0,    0,    0,
				0,    0, 0,    0, 0, 0,	 9, 0,	80,   0x01, 0xbb };

TEST(ipv4_gives_addresses_ports_and_sender)
{
	struct nflog_packet p;
	struct addr want = addr_v4(192, 0, 2, 7);

	assert_int_equal(parse(udp4, sizeof(udp4), &p), 1);
	assert_true(addr_equal(&p.destination, &want));
	assert_int_equal(p.source_port, 0x1234);
	assert_int_equal(p.destination_port, 443);
	assert_int_equal(p.protocol, IPPROTO_UDP);
	assert_int_equal(p.length, 29);
	assert_int_equal(p.uid, 1000);
	assert_int_equal(p.mark, 0x50001);
	assert_string_equal(p.prefix, "weir out");
}

TEST(ipv6_gives_the_same)
{
	struct nflog_packet p;

	assert_int_equal(parse(tcp6, sizeof(tcp6), &p), 1);
	assert_int_equal(p.destination.family, ADDR_V6);
	assert_int_equal(p.destination.bytes[15], 9);
	assert_int_equal(p.destination_port, 443);
	assert_int_equal(p.length, 60);
}

TEST(ipv6_extensions_are_skipped)
{
	uint8_t packet[sizeof(tcp6) + 8];
	struct nflog_packet p;

	memcpy(packet, tcp6, 40);
	packet[6] = IPPROTO_DSTOPTS;
	memset(packet + 40, 0, 8);
	packet[40] = IPPROTO_TCP;
	memcpy(packet + 48, tcp6 + 40, sizeof(tcp6) - 40);
	assert_int_equal(parse(packet, sizeof(packet), &p), 1);
	assert_int_equal(p.protocol, IPPROTO_TCP);
	assert_int_equal(p.destination_port, 443);
}

TEST(a_later_fragment_has_no_ports)
{
	uint8_t packet[sizeof(udp4)];
	struct nflog_packet p;

	memcpy(packet, udp4, sizeof(packet));
	packet[7] = 1;
	assert_int_equal(parse(packet, sizeof(packet), &p), 1);
	assert_int_equal(p.destination_port, 0);
}

TEST(cut_packets_give_what_is_there_or_nothing)
{
	struct nflog_packet p;

	assert_int_equal(parse(udp4, 22, &p), 1);
	assert_int_equal(p.destination_port, 0);
	assert_int_equal(parse(udp4, 19, &p), 0);
	assert_int_equal(parse(tcp6, 39, &p), 0);
	assert_int_equal(parse(udp4, 0, &p), 0);
}

TEST(other_messages_and_cut_ones_are_no_packets)
{
	struct report r = report(udp4, sizeof(udp4));
	struct nlmsghdr *h = (void *)r.bytes;
	struct nflog_packet p;

	assert_int_equal(nflog_parse(r.bytes, r.size - 4, keep, &p), 0);
	h->nlmsg_type = NLMSG_ERROR;
	assert_int_equal(nflog_parse(r.bytes, r.size, keep, &p), 0);
}
