// SPDX-License-Identifier: Apache-2.0
#include "base/special.h"

#include <assert.h>

/* Every address of each answer is judged, of cached answers too: rows are numbers, so
 * that a search through all of them takes some ten nanoseconds. */
struct range_v4 {
	uint32_t net;
	uint8_t bits; /* 1 to 32 */
	uint8_t kind; /* enum addr_special */
};

struct range_v6 {
	uint64_t high, low;
	uint8_t bits; /* 0 to 128 */
	uint8_t kind;
};

#define V4(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define V6(a, b, c, d)                                                                   \
	((uint64_t)(a) << 48 | (uint64_t)(b) << 32 | (uint64_t)(c) << 16 | (d))

/* The first row that holds the address decides, so the narrower row comes first. */
static const struct range_v4 ranges_v4[] = {
	/* Most clouds: AWS "Access instance metadata", Google "About VM metadata", Azure
	 * "Instance Metadata Service", OpenStack Nova "Metadata service" */
	{ V4(169, 254, 169, 254), 32, SPECIAL_METADATA },
	{ V4(169, 254, 170, 2), 32, SPECIAL_METADATA },	 /* AWS "ECS task IAM role" */
	{ V4(169, 254, 170, 23), 32, SPECIAL_METADATA }, /* AWS "EKS Pod Identity" */
	{ V4(169, 254, 0, 23), 32, SPECIAL_METADATA },	 /* Tencent "Instance metadata" */
	{ V4(169, 254, 42, 42), 32, SPECIAL_METADATA },	 /* cloud-init "Scaleway" */
	{ V4(168, 63, 129, 16), 32,
	  SPECIAL_METADATA }, /* Azure "What is 168.63.129.16" */
	/* Alibaba "View instance metadata" */
	{ V4(100, 100, 100, 200), 32, SPECIAL_METADATA },
	{ V4(100, 80, 80, 80), 32, SPECIAL_METADATA }, /* UCloud "Metadata server" */
	/* Volcano Engine: its network plugin for Kubernetes (cello) */
	{ V4(100, 96, 0, 96), 32, SPECIAL_METADATA },
	{ V4(192, 0, 0, 192), 32, SPECIAL_METADATA }, /* Oracle Cloud Classic, docs */
	/* metadata.packet.net, Equinix Metal "Metadata" */
	{ V4(192, 80, 8, 124), 32, SPECIAL_METADATA },
	{ V4(255, 255, 255, 255), 32, SPECIAL_BROADCAST },
	{ V4(0, 0, 0, 0), 8, SPECIAL_UNSPECIFIED },
	{ V4(10, 0, 0, 0), 8, SPECIAL_PRIVATE },
	{ V4(172, 16, 0, 0), 12, SPECIAL_PRIVATE },
	{ V4(192, 168, 0, 0), 16, SPECIAL_PRIVATE },
	{ V4(100, 64, 0, 0), 10, SPECIAL_SHARED },
	{ V4(127, 0, 0, 0), 8, SPECIAL_LOOPBACK },
	{ V4(169, 254, 0, 0), 16, SPECIAL_LINK_LOCAL },
	{ V4(224, 0, 0, 0), 4, SPECIAL_MULTICAST },
	{ V4(192, 0, 0, 0), 24, SPECIAL_RESERVED },    /* IETF protocol assignments */
	{ V4(192, 0, 2, 0), 24, SPECIAL_RESERVED },    /* documentation */
	{ V4(192, 31, 196, 0), 24, SPECIAL_RESERVED }, /* AS112 */
	{ V4(192, 52, 193, 0), 24, SPECIAL_RESERVED }, /* AMT */
	{ V4(192, 88, 99, 0), 24, SPECIAL_RESERVED },  /* 6to4 relays, withdrawn */
	{ V4(192, 175, 48, 0), 24, SPECIAL_RESERVED }, /* AS112 */
	{ V4(198, 18, 0, 0), 15, SPECIAL_RESERVED },   /* benchmarking */
	{ V4(198, 51, 100, 0), 24, SPECIAL_RESERVED }, /* documentation */
	{ V4(203, 0, 113, 0), 24, SPECIAL_RESERVED },  /* documentation */
	{ V4(240, 0, 0, 0), 4, SPECIAL_RESERVED },
};

/* What carries an IPv4 address was judged by that address before these are asked. */
static const struct range_v6 ranges_v6[] = {
	/* fd00:ec2::254: AWS "Access instance metadata" */
	{ V6(0xfd00, 0xec2, 0, 0), 0x254, 128, SPECIAL_METADATA },
	/* fd00:ec2::23: AWS "EKS Pod Identity" */
	{ V6(0xfd00, 0xec2, 0, 0), 0x23, 128, SPECIAL_METADATA },
	/* fd20:ce::254: Google "About VM metadata" */
	{ V6(0xfd20, 0xce, 0, 0), 0x254, 128, SPECIAL_METADATA },
	/* fd00:42::42: cloud-init "Scaleway" */
	{ V6(0xfd00, 0x42, 0, 0), 0x42, 128, SPECIAL_METADATA },
	/* fd00:c1::a9fe:a9fe: Oracle's SDK for Python */
	{ V6(0xfd00, 0xc1, 0, 0), 0xa9fea9fe, 128, SPECIAL_METADATA },
	/* fd00:a9fe:a9fe::1: cloud-init "Akamai" */
	{ V6(0xfd00, 0xa9fe, 0xa9fe, 0), 1, 128, SPECIAL_METADATA },
	/* fd00:100::100:200: Alibaba "View instance metadata" */
	{ V6(0xfd00, 0x100, 0, 0), 0x1000200, 128, SPECIAL_METADATA },
	/* fe80::a9fe:a9fe: OpenStack Neutron "Metadata service" */
	{ V6(0xfe80, 0, 0, 0), 0xa9fea9fe, 128, SPECIAL_METADATA },
	{ 0, 0, 128, SPECIAL_UNSPECIFIED },
	{ 0, 1, 128, SPECIAL_LOOPBACK },
	{ V6(0xfc00, 0, 0, 0), 0, 7, SPECIAL_PRIVATE },
	{ V6(0xfe80, 0, 0, 0), 0, 10, SPECIAL_LINK_LOCAL },
	{ V6(0xfec0, 0, 0, 0), 0, 10, SPECIAL_PRIVATE }, /* site-local, withdrawn */
	{ V6(0xff00, 0, 0, 0), 0, 8, SPECIAL_MULTICAST },
	{ V6(0x2001, 0xdb8, 0, 0), 0, 32, SPECIAL_RESERVED }, /* documentation */
	{ V6(0x2001, 0, 0, 0), 0, 23, SPECIAL_RESERVED }, /* IETF protocol assignments */
	{ V6(0x2002, 0, 0, 0), 0, 16, SPECIAL_RESERVED }, /* 6to4 */
	{ V6(0x2620, 0x4f, 0x8000, 0), 0, 48, SPECIAL_RESERVED }, /* AS112 */
	{ V6(0x2000, 0, 0, 0), 0, 3, SPECIAL_NOT }, /* what is given out: 2000::/3 */
	{ 0, 0, 0, SPECIAL_RESERVED },		    /* and nothing else is */
};

/* How a prefix carries an IPv4 address: the offset of its four bytes. Teredo stores
 * the client's address with every bit turned. */
static const struct {
	struct range_v6 range;
	uint8_t at;
	uint8_t invert;
} carriers[] = {
	{ { .low = V6(0, 0xffff, 0, 0), .bits = 96 }, 12, 0x00 },     /* mapped */
	{ { .low = V6(0xffff, 0, 0, 0), .bits = 96 }, 12, 0x00 },     /* RFC 2765 */
	{ { .high = V6(0x64, 0xff9b, 0, 0), .bits = 96 }, 12, 0x00 }, /* NAT64 */
	/* Local NAT64 (RFC 8215), in the one form whose IPv4 address is at the end;
	 * the rest of its /48 is special by itself. */
	{ { .high = V6(0x64, 0xff9b, 1, 0), .bits = 96 }, 12, 0x00 },
	{ { .high = V6(0x2002, 0, 0, 0), .bits = 16 }, 2, 0x00 },  /* 6to4 */
	{ { .high = V6(0x2001, 0, 0, 0), .bits = 32 }, 12, 0xff }, /* Teredo */
};

static uint64_t read_u64(const uint8_t *bytes)
{
	uint64_t n = 0;

	for (size_t i = 0; i < 8; i++)
		n = n << 8 | bytes[i];
	return n;
}

static void write_u64(uint8_t *bytes, uint64_t n)
{
	for (size_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(n >> (56 - 8 * i));
}

static bool range_holds(const struct range_v6 *r, uint64_t high, uint64_t low)
{
	if (r->bits == 0)
		return true;
	if (r->bits <= 64)
		return (high ^ r->high) >> (64 - r->bits) == 0;
	return high == r->high && (low ^ r->low) >> (128 - r->bits) == 0;
}

/* RFC 5214: an interface identifier 00-00-5e-fe or 02-00-5e-fe, then the address. */
static bool is_isatap(const uint8_t *bytes)
{
	return (bytes[8] & 0xfd) == 0 && bytes[9] == 0 && bytes[10] == 0x5e &&
	       bytes[11] == 0xfe;
}

bool addr_embedded_v4(const struct addr *a, struct addr *ret)
{
	uint64_t high = read_u64(a->bytes), low = read_u64(a->bytes + 8);
	/* ::a.b.c.d, but neither :: nor ::1 nor the few below 1.0.0.0 that are no
	 * addresses. */
	const bool is_compatible = high == 0 && low >> 32 == 0 && low >> 24 != 0;
	uint8_t at = 12, invert = 0, v4[4];
	bool found = false;

	if (a->family != ADDR_V6)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(carriers) && !found; i++) {
		if (!range_holds(&carriers[i].range, high, low))
			continue;
		at = carriers[i].at;
		invert = carriers[i].invert;
		found = true;
	}
	if (!found && !is_isatap(a->bytes) && !is_compatible)
		return false;
	for (size_t i = 0; i < sizeof(v4); i++)
		v4[i] = a->bytes[at + i] ^ invert;
	*ret = addr_from_bytes(ADDR_V4, v4);
	return true;
}

static enum addr_special special_v4(const struct addr *a)
{
	uint32_t n = V4(a->bytes[0], a->bytes[1], a->bytes[2], a->bytes[3]);

	for (size_t i = 0; i < ARRAY_SIZE(ranges_v4); i++)
		if ((n ^ ranges_v4[i].net) >> (32 - ranges_v4[i].bits) == 0)
			return ranges_v4[i].kind;
	return SPECIAL_NOT;
}

enum addr_special addr_special(const struct addr *a)
{
	const uint64_t high = read_u64(a->bytes), low = read_u64(a->bytes + 8);
	enum addr_special kind;
	struct addr v4;
	size_t i = 0;

	if (a->family == ADDR_V4)
		return special_v4(a);
	if (a->family != ADDR_V6)
		return SPECIAL_INVALID;
	if (addr_embedded_v4(a, &v4)) {
		kind = special_v4(&v4);
		/* ISATAP is a way to write the lower half of any address: what the upper
		 * half says counts as well. */
		if (kind != SPECIAL_NOT || !is_isatap(a->bytes))
			return kind;
	}
	while (!range_holds(&ranges_v6[i], high, low)) /* the last row holds all */
		i++;
	return ranges_v6[i].kind;
}

bool addr_special_splits(const struct prefix *p)
{
	struct addr net;

	for (size_t i = 0; p->addr.family == ADDR_V4 && i < ARRAY_SIZE(ranges_v4); i++) {
		uint8_t bytes[4];

		for (size_t n = 0; n < sizeof(bytes); n++)
			bytes[n] = (uint8_t)(ranges_v4[i].net >> (24 - 8 * n));
		net = addr_from_bytes(ADDR_V4, bytes);
		if (ranges_v4[i].bits > p->bits && prefix_contains(p, &net))
			return true;
	}
	for (size_t i = 0; p->addr.family == ADDR_V6 && i < ARRAY_SIZE(ranges_v6); i++) {
		uint8_t bytes[16];

		write_u64(bytes, ranges_v6[i].high);
		write_u64(bytes + 8, ranges_v6[i].low);
		net = addr_from_bytes(ADDR_V6, bytes);
		if (ranges_v6[i].bits > p->bits && prefix_contains(p, &net))
			return true;
	}
	return false;
}

const char *addr_special_name(enum addr_special kind)
{
	static const char *const names[] = {
		[SPECIAL_INVALID] = "no address",
		[SPECIAL_NOT] = "an ordinary address",
		[SPECIAL_PRIVATE] = "a private address",
		[SPECIAL_SHARED] = "a shared (carrier NAT) address",
		[SPECIAL_LOOPBACK] = "a loopback address",
		[SPECIAL_LINK_LOCAL] = "a link-local address",
		[SPECIAL_UNSPECIFIED] = "an unspecified address",
		[SPECIAL_MULTICAST] = "a multicast address",
		[SPECIAL_BROADCAST] = "the broadcast address",
		[SPECIAL_METADATA] = "a cloud metadata address",
		[SPECIAL_RESERVED] = "a reserved address",
	};

	static_assert(ARRAY_SIZE(names) == SPECIAL_COUNT, "a name for every kind");
	return (size_t)kind < ARRAY_SIZE(names) ? names[kind] : names[SPECIAL_INVALID];
}

bool addr_special_is_offered(enum addr_special kind)
{
	return kind == SPECIAL_NOT || kind == SPECIAL_PRIVATE || kind == SPECIAL_SHARED ||
	       kind == SPECIAL_RESERVED;
}

bool addr_metadata(size_t i, struct addr *ret)
{
	uint8_t bytes[16] = { 0 };

	for (size_t at = 0; at < ARRAY_SIZE(ranges_v4); at++) {
		if (ranges_v4[at].kind != SPECIAL_METADATA || i-- > 0)
			continue;
		write_u64(bytes, (uint64_t)ranges_v4[at].net << 32);
		*ret = addr_from_bytes(ADDR_V4, bytes);
		return true;
	}
	for (size_t at = 0; at < ARRAY_SIZE(ranges_v6); at++) {
		if (ranges_v6[at].kind != SPECIAL_METADATA || i-- > 0)
			continue;
		write_u64(bytes, ranges_v6[at].high);
		write_u64(bytes + 8, ranges_v6[at].low);
		*ret = addr_from_bytes(ADDR_V6, bytes);
		return true;
	}
	return false;
}
