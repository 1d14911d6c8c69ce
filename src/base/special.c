// SPDX-License-Identifier: Apache-2.0
#include "base/special.h"

#include <assert.h>
#include <string.h>

struct special_range {
	uint8_t bytes[16];
	uint8_t bits;
	uint8_t kind; /* enum addr_special */
};

/* The first row that holds the address decides, so the narrower one stands first. */
static const struct special_range ranges_v4[] = {
	{ { 169, 254, 169, 254 }, 32, SPECIAL_METADATA }, /* most clouds */
	{ { 169, 254, 170, 2 }, 32, SPECIAL_METADATA },	  /* AWS container credentials */
	{ { 169, 254, 170, 23 }, 32, SPECIAL_METADATA },  /* AWS EKS pod identity */
	{ { 169, 254, 0, 23 }, 32, SPECIAL_METADATA },	  /* Tencent Cloud */
	{ { 168, 63, 129, 16 }, 32, SPECIAL_METADATA },	  /* Azure host agent */
	{ { 100, 100, 100, 200 }, 32, SPECIAL_METADATA }, /* Alibaba Cloud */
	{ { 192, 0, 0, 192 }, 32, SPECIAL_METADATA },	  /* Oracle Cloud */
	{ { 255, 255, 255, 255 }, 32, SPECIAL_BROADCAST },
	{ { 0 }, 8, SPECIAL_UNSPECIFIED },
	{ { 10 }, 8, SPECIAL_PRIVATE },
	{ { 172, 16 }, 12, SPECIAL_PRIVATE },
	{ { 192, 168 }, 16, SPECIAL_PRIVATE },
	{ { 100, 64 }, 10, SPECIAL_SHARED },
	{ { 127 }, 8, SPECIAL_LOOPBACK },
	{ { 169, 254 }, 16, SPECIAL_LINK_LOCAL },
	{ { 224 }, 4, SPECIAL_MULTICAST },
	{ { 192, 0, 0 }, 24, SPECIAL_RESERVED },    /* IETF protocol assignments */
	{ { 192, 0, 2 }, 24, SPECIAL_RESERVED },    /* documentation */
	{ { 192, 31, 196 }, 24, SPECIAL_RESERVED }, /* AS112 */
	{ { 192, 52, 193 }, 24, SPECIAL_RESERVED }, /* AMT */
	{ { 192, 88, 99 }, 24, SPECIAL_RESERVED },  /* 6to4 relays, withdrawn */
	{ { 192, 175, 48 }, 24, SPECIAL_RESERVED }, /* AS112 */
	{ { 198, 18 }, 15, SPECIAL_RESERVED },	    /* benchmarking */
	{ { 198, 51, 100 }, 24, SPECIAL_RESERVED }, /* documentation */
	{ { 203, 0, 113 }, 24, SPECIAL_RESERVED },  /* documentation */
	{ { 240 }, 4, SPECIAL_RESERVED },
};

/* What carries an IPv4 address was judged by that address before these are asked. */
static const struct special_range ranges_v6[] = {
	/* fd00:ec2::254 AWS, fd00:ec2::23 EKS pod identity, fd20:ce::254 Google Cloud,
	 * fd00:42::42 Scaleway */
	{ { 0xfd, 0, 0x0e, 0xc2, [14] = 0x02, 0x54 }, 128, SPECIAL_METADATA },
	{ { 0xfd, 0, 0x0e, 0xc2, [14] = 0, 0x23 }, 128, SPECIAL_METADATA },
	{ { 0xfd, 0x20, 0, 0xce, [14] = 0x02, 0x54 }, 128, SPECIAL_METADATA },
	{ { 0xfd, 0, 0, 0x42, [15] = 0x42 }, 128, SPECIAL_METADATA },
	{ { 0 }, 128, SPECIAL_UNSPECIFIED },
	{ { [15] = 1 }, 128, SPECIAL_LOOPBACK },
	{ { 0xfc }, 7, SPECIAL_PRIVATE },
	{ { 0xfe, 0x80 }, 10, SPECIAL_LINK_LOCAL },
	{ { 0xfe, 0xc0 }, 10, SPECIAL_PRIVATE }, /* site-local, withdrawn */
	{ { 0xff }, 8, SPECIAL_MULTICAST },
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, SPECIAL_RESERVED }, /* documentation */
	{ { 0x20, 0x01 }, 23, SPECIAL_RESERVED }, /* IETF protocol assignments */
	{ { 0x20, 0x02 }, 16, SPECIAL_RESERVED }, /* 6to4 */
	{ { 0x26, 0x20, 0, 0x4f, 0x80 }, 48, SPECIAL_RESERVED }, /* AS112 */
	{ { 0x20 }, 3, SPECIAL_NOT },	/* what is given out: 2000::/3 */
	{ { 0 }, 0, SPECIAL_RESERVED }, /* and nothing else is */
};

static bool range_holds(const struct special_range *r, const uint8_t *bytes)
{
	size_t whole = r->bits / 8;
	unsigned int rest = r->bits % 8;

	if (memcmp(r->bytes, bytes, whole) != 0)
		return false;
	return rest == 0 || ((r->bytes[whole] ^ bytes[whole]) >> (8 - rest)) == 0;
}

static enum addr_special range_find(const struct special_range *ranges, size_t count,
				    const uint8_t *bytes)
{
	for (size_t i = 0; i < count; i++) {
		if (range_holds(&ranges[i], bytes))
			return ranges[i].kind;
	}
	return SPECIAL_NOT;
}

/* How a prefix carries an IPv4 address: where its four bytes stand. */
static const struct {
	uint8_t bytes[16];
	uint8_t bits;
	uint8_t at;
	uint8_t invert; /* Teredo stores the client's address with every bit turned */
} carriers[] = {
	{ { [10] = 0xff, 0xff }, 96, 12, 0x00 },	 /* mapped */
	{ { [8] = 0xff, 0xff, 0, 0 }, 96, 12, 0x00 },	 /* translated, RFC 2765 */
	{ { 0, 0x64, 0xff, 0x9b }, 96, 12, 0x00 },	 /* NAT64 */
	{ { 0, 0x64, 0xff, 0x9b, 0, 1 }, 48, 12, 0x00 }, /* local-use NAT64, /96 */
	{ { 0x20, 0x02 }, 16, 2, 0x00 },		 /* 6to4 */
	{ { 0x20, 0x01, 0, 0 }, 32, 12, 0xff },		 /* Teredo */
};

static bool carrier_holds(size_t i, const uint8_t *bytes)
{
	struct special_range r = { .bits = carriers[i].bits };

	memcpy(r.bytes, carriers[i].bytes, sizeof(r.bytes));
	return range_holds(&r, bytes);
}

/* ::a.b.c.d, but neither :: nor ::1 nor the few below 1.0.0.0 that are no addresses. */
static bool is_compatible(const uint8_t *bytes)
{
	static const uint8_t zero[12];

	return memcmp(bytes, zero, sizeof(zero)) == 0 && bytes[12] != 0;
}

/* RFC 5214: an interface identifier 00-00-5e-fe or 02-00-5e-fe, then the address. */
static bool is_isatap(const uint8_t *bytes)
{
	return (bytes[8] & 0xfd) == 0 && bytes[9] == 0 && bytes[10] == 0x5e &&
	       bytes[11] == 0xfe;
}

bool addr_embedded_v4(const struct addr *a, struct addr *ret)
{
	uint8_t at = 12, invert = 0, v4[4];
	bool found = false;

	if (a->family != ADDR_V6)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(carriers) && !found; i++) {
		if (!carrier_holds(i, a->bytes))
			continue;
		at = carriers[i].at;
		invert = carriers[i].invert;
		found = true;
	}
	if (!found && !is_isatap(a->bytes) && !is_compatible(a->bytes))
		return false;
	for (size_t i = 0; i < sizeof(v4); i++)
		v4[i] = a->bytes[at + i] ^ invert;
	*ret = addr_from_bytes(ADDR_V4, v4);
	return true;
}

static enum addr_special special_v4(const struct addr *a)
{
	return range_find(ranges_v4, ARRAY_SIZE(ranges_v4), a->bytes);
}

enum addr_special addr_special(const struct addr *a)
{
	enum addr_special kind;
	struct addr v4;

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
	return range_find(ranges_v6, ARRAY_SIZE(ranges_v6), a->bytes);
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

static bool metadata_at(const struct special_range *ranges, size_t count,
			enum addr_family family, size_t *skip, struct addr *ret)
{
	for (size_t i = 0; i < count; i++) {
		if (ranges[i].kind != SPECIAL_METADATA || (*skip)-- > 0)
			continue;
		*ret = addr_from_bytes(family, ranges[i].bytes);
		return true;
	}
	return false;
}

bool addr_metadata(size_t i, struct addr *ret)
{
	return metadata_at(ranges_v4, ARRAY_SIZE(ranges_v4), ADDR_V4, &i, ret) ||
	       metadata_at(ranges_v6, ARRAY_SIZE(ranges_v6), ADDR_V6, &i, ret);
}
