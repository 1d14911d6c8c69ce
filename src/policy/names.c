// SPDX-License-Identifier: Apache-2.0
#include "policy/names.h"

#include <dlfcn.h>
#include <errno.h>
#include <idn2.h>
#include <libpsl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- IDNA forms and public suffixes ------------------------------------------------ */

enum function { TO_ASCII, TO_UNICODE, BUILTIN, IS_PUBLIC_SUFFIX, FUNCTION_COUNT };

#ifdef WEIR_STATIC
/* They are in the program. */
static void *find(enum function f)
{
	static void *const functions[FUNCTION_COUNT] = {
		[TO_ASCII] = idn2_to_ascii_8z,
		[TO_UNICODE] = idn2_to_unicode_8z8z,
		[BUILTIN] = psl_builtin,
		[IS_PUBLIC_SUFFIX] = psl_is_public_suffix2,
	};

	return functions[f];
}
#else
/* The version that the headers of the build belong to. */
#define LIBIDN2 "libidn2.so.0"
#define LIBPSL	"libpsl.so.5"

static const struct {
	const char *library, *name;
} functions[FUNCTION_COUNT] = {
	[TO_ASCII] = { LIBIDN2, "idn2_to_ascii_8z" },
	[TO_UNICODE] = { LIBIDN2, "idn2_to_unicode_8z8z" },
	[BUILTIN] = { LIBPSL, "psl_builtin" },
	[IS_PUBLIC_SUFFIX] = { LIBPSL, "psl_is_public_suffix2" },
};

/* A loaded library stays. Two threads that come first find the same. */
static void *find(enum function f)
{
	static _Atomic(void *) found[FUNCTION_COUNT];
	void *here = atomic_load(&found[f]), *library;

	if (here)
		return here;
	library = dlopen(functions[f].library, RTLD_NOW | RTLD_LOCAL);
	here = library ? dlsym(library, functions[f].name) : NULL;
	atomic_store(&found[f], here);
	return here;
}
#endif

int name_to_ascii(const char *text, char **ret)
{
	typeof(&idn2_to_ascii_8z) convert = find(TO_ASCII);
	const int flags = IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT;

	if (!convert)
		return -ELIBACC;
	return convert(text, ret, flags) == IDN2_OK ? 0 : -EINVAL;
}

int name_to_unicode(const char *ascii, char **ret)
{
	typeof(&idn2_to_unicode_8z8z) convert = find(TO_UNICODE);

	if (!convert)
		return -ELIBACC;
	return convert(ascii, ret, 0) == IDN2_OK ? 0 : -EINVAL;
}

int name_is_public_suffix(const char *name, bool is_private)
{
	const int type = is_private ? PSL_TYPE_PRIVATE | PSL_TYPE_NO_STAR_RULE
				    : PSL_TYPE_ICANN;
	typeof(&psl_builtin) builtin = find(BUILTIN);
	typeof(&psl_is_public_suffix2) is_suffix = find(IS_PUBLIC_SUFFIX);
	const psl_ctx_t *list = builtin ? builtin() : NULL;

	if (!list || !is_suffix)
		return -ELIBACC;
	return is_suffix(list, name, type) != 0;
}

const char *name_registrable(const char *name)
{
	const char *label = name, *dot;

	while ((dot = strchr(label, '.')) && strchr(dot + 1, '.') &&
	       name_is_public_suffix(dot + 1, false) != 1 &&
	       name_is_public_suffix(dot + 1, true) != 1)
		label = dot + 1;
	return label;
}

/* -- names that could be taken for others ------------------------------------------ */

enum {
	LABELS_SEEN = 16, /* of a wanted name; what stands left of them is passed over */
	EDIT_MIN = 4,	  /* letters: shorter names are all alike */
	PART_MIN = 5,	  /* the same of a part beside a hyphen */
};

/* ---- letters ---- */

/* What one character looks like. Letters with marks are found by their place. */
static const char latin[] =
	"baaaaaa.ceeeeiiiidnooooo.ouuuuypy.a.a.a.c.c.c.c.d.d.e.e.e.e.e.g."
	"g.g.g.h.h.i.i.i.i.i...j.kk.l.l.l.l.l.n.n.nn.n.o.o.o...r.r.r.s.s."
	"s.s.t.t.t.u.u.u.u.u.u.w.y..z.z.zfb.......c.........f......kl...n"
	"..o...p.....t.t..u...y.z.......................a.i.o.u.u.u.u.u.."
	"a.a...g.g.k.o.o..j....g...n.a.....a.a.e.e.i.i.o.o.r.r.u.u.s.t..."
	"h.d...z.a.e.o.o.o.o.ylntj....c..sz......e.j.q.r.y";
static const char latin_more[] =
	".a.b.b.b.c.d.d.d.d.d.e.e.e.e.e.f.g.h.h.h.h.h.i.i.k.k.k.l.l.l.l.m"
	".m.m.n.n.n.n.o.o.o.o.p.p.r.r.r.r.s.s.s.s.s.t.t.t.t.u.u.u.u.u.v.v"
	".w.w.w.w.w.x.x.y.z.z.zhtwy.......a.a.a.a.a.a.a.a.a.a.a.a.e.e.e.e"
	".e.e.e.e.i.i.o.o.o.o.o.o.o.o.o.o.o.o.u.u.u.u.u.u.u.y.y.y.y......";
enum { LATIN = 0xdf, LATIN_MORE = 0x1e00 };

enum { LOOKS_MAX = 10 }; /* of one letter, with the 0 */

/* IPA and small capitals (0x02..), Greek (0x03..), Cyrillic (0x04.. to 0x051d) and
 * Armenian (from 0x0561 on). */
static const struct {
	char to;
	uint16_t from[LOOKS_MAX]; /* up to the first 0 */
} letters[] = {
	{ 'a', { 0x0251, 0x03ac, 0x03b1, 0x0430, 0x04d1, 0x04d3 } },
	{ 'b', { 0x0253, 0x0299, 0x03b2, 0x0432, 0x044a, 0x044c } },
	{ 'c', { 0x0254, 0x0441 } },
	{ 'd', { 0x0256, 0x0257, 0x0501 } },
	{ 'e', { 0x03ad, 0x03b5, 0x0435, 0x0450, 0x0451, 0x04bd, 0x04d7 } },
	{ 'f', { 0x0584 } },
	{ 'g', { 0x0261, 0x0262, 0x0581 } },
	{ 'h', { 0x0266, 0x029c, 0x043d, 0x045b, 0x04bb, 0x0570 } },
	{ 'i',
	  { 0x0268, 0x0269, 0x026a, 0x03af, 0x03b9, 0x03ca, 0x0456, 0x0457, 0x0582 } },
	{ 'j', { 0x0458 } },
	{ 'k', { 0x03ba, 0x043a, 0x045c } },
	{ 'l', { 0x026b, 0x029f, 0x04cf, 0x0513 } },
	{ 'm', { 0x0271, 0x043c } },
	{ 'n', { 0x0272, 0x0273, 0x0274, 0x03ae, 0x03b7, 0x043f, 0x0578, 0x057c } },
	{ 'o', { 0x0275, 0x03bf, 0x03c3, 0x03cc, 0x043e, 0x04e7, 0x0585 } },
	{ 'p', { 0x03c1, 0x0440 } },
	{ 'q', { 0x051b, 0x0563, 0x0566 } },
	{ 'r', { 0x027d, 0x0280, 0x0433 } },
	{ 's', { 0x0282, 0x0455 } },
	{ 't', { 0x0288, 0x03c4, 0x0442 } },
	{ 'u', { 0x0289, 0x028b, 0x03c5, 0x03cb, 0x03cd, 0x057d } },
	{ 'v', { 0x03bd, 0x0475 } },
	{ 'w', { 0x03c9, 0x03ce, 0x0448, 0x0461, 0x051d, 0x0561 } },
	{ 'x', { 0x03c7, 0x0445 } },
	{ 'y', { 0x028f, 0x03b3, 0x0443, 0x045e, 0x04af, 0x04f1 } },
	{ 'z', { 0x0290 } },
};

static uint32_t plain(uint32_t c)
{
	char found = '.';

	if (c < LATIN)
		return c;
	if (c < LATIN + sizeof(latin) - 1)
		found = latin[c - LATIN];
	else if (c >= LATIN_MORE && c < LATIN_MORE + sizeof(latin_more) - 1)
		found = latin_more[c - LATIN_MORE];
	if (found != '.')
		return (uint32_t)found;
	for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
		for (const uint16_t *from = letters[i].from; *from; from++)
			if (*from == c)
				return (uint32_t)letters[i].to;
	return c;
}

/* ---- a label as it looks ---- */

struct looks {
	uint32_t at[DNS_LABEL_MAX];
	size_t count;
};

/* The digits of one number, which moves *@i. Return: false: there is none. */
static bool read_delta(struct text *t, uint32_t bias, uint32_t *i)
{
	uint32_t weight = 1;

	for (uint32_t k = 36; t->len > 0; k += 36) {
		const char c = *t->ptr++;
		const uint32_t digit = text_is_digit(c) ? (uint32_t)(c - '0') + 26
							: (uint32_t)(c - 'a');
		const uint32_t least = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
		uint32_t step;

		t->len--;
		if (digit >= 36 || __builtin_mul_overflow(digit, weight, &step) ||
		    __builtin_add_overflow(*i, step, i))
			return false;
		if (digit < least)
			return true;
		if (__builtin_mul_overflow(weight, 36 - least, &weight))
			return false;
	}
	return false;
}

static void put_basic(struct text t, struct looks *ret)
{
	ret->count = 0;
	for (size_t n = 0; n < t.len; n++)
		ret->at[ret->count++] = (uint8_t)t.ptr[n];
}

/* What stands behind "xn--", RFC 3492, section 6.2. */
static bool decode(struct text t, struct looks *ret)
{
	const char *dash = memrchr(t.ptr, '-', t.len);
	uint32_t n = 128, i = 0, bias = 72;

	ret->count = 0;
	if (dash) {
		put_basic((struct text){ t.ptr, (size_t)(dash - t.ptr) }, ret);
		t.len -= ret->count + 1;
		t.ptr = dash + 1;
	}
	while (t.len > 0) {
		const uint32_t before = i;
		const uint32_t points = (uint32_t)ret->count + 1;
		uint32_t delta;

		if (points > DNS_LABEL_MAX || !read_delta(&t, bias, &i))
			return false;
		/* The next bias, RFC 3492, section 6.1. */
		delta = before == 0 ? (i - before) / 700 : (i - before) / 2;
		bias = 0;
		for (delta += delta / points; delta > 455; bias += 36)
			delta /= 35;
		bias += 36 * delta / (delta + 38);
		if (__builtin_add_overflow(n, i / points, &n) || n > 0x10ffff)
			return false;
		i %= points;
		memmove(&ret->at[i + 1], &ret->at[i],
			(ret->count - i) * sizeof(ret->at[0]));
		ret->at[i++] = n;
		ret->count++;
	}
	return true;
}

/* @label: its length and octets. */
static void look_at(const uint8_t *label, struct looks *ret)
{
	const struct text t = { (const char *)label + 1, label[0] };
	size_t used = 0;

	if (t.len <= 4 || memcmp(t.ptr, "xn--", 4) != 0 ||
	    !decode((struct text){ t.ptr + 4, t.len - 4 }, ret))
		put_basic(t, ret);
	/* "rn" is read as m, "vv" as w, 0 as o, 1 as l; letters as they look. */
	for (size_t i = 0; i < ret->count; i++) {
		uint32_t c = plain(ret->at[i]);
		const uint32_t next = i + 1 < ret->count ? plain(ret->at[i + 1]) : 0;

		if ((c == 'r' && next == 'n') || (c == 'v' && next == 'v')) {
			c = c == 'r' ? 'm' : 'w';
			i++;
		}
		ret->at[used++] = c == '0' ? 'o' : c == '1' ? 'l' : c;
	}
	ret->count = used;
}

static bool equal(const struct looks *a, const struct looks *b)
{
	return a->count == b->count &&
	       memcmp(a->at, b->at, a->count * sizeof(a->at[0])) == 0;
}

static void without_hyphens(struct looks *l)
{
	size_t used = 0;

	for (size_t i = 0; i < l->count; i++)
		if (l->at[i] != '-')
			l->at[used++] = l->at[i];
	l->count = used;
}

/* One letter was added, left out or changed, or two neighbours were swapped. */
static bool is_one_edit(const struct looks *a, const struct looks *b)
{
	const size_t most = MAX(a->count, b->count), least = MIN(a->count, b->count);
	size_t front = 0, back = 0;

	if (most - least > 1)
		return false;
	while (front < least && a->at[front] == b->at[front])
		front++;
	while (back < least - front &&
	       a->at[a->count - 1 - back] == b->at[b->count - 1 - back])
		back++;
	return front + back + 1 >= most ||
	       (most == least && front + back + 2 == most &&
		a->at[front] == b->at[front + 1] && a->at[front + 1] == b->at[front]);
}

/* @part is @all up to a hyphen, or from one on. */
static bool is_beside_hyphen(const struct looks *all, const struct looks *part)
{
	const size_t size = part->count * sizeof(part->at[0]);

	if (part->count < PART_MIN || all->count <= part->count + 1)
		return false;
	return (all->at[part->count] == '-' && memcmp(all->at, part->at, size) == 0) ||
	       (all->at[all->count - part->count - 1] == '-' &&
		memcmp(&all->at[all->count - part->count], part->at, size) == 0);
}

/* ---- names ---- */

/* Below these anybody gets a name. In order. */
static const char *const shared[] = {
	"amazonaws.com", "appspot.com",	   "azureedge.net",   "azurewebsites.net",
	"blogspot.com",	 "cloudfront.net", "firebaseapp.com", "fly.dev",
	"github.io",	 "gitlab.io",	   "herokuapp.com",   "hf.space",
	"netlify.app",	 "ngrok.app",	   "ngrok.io",	      "onrender.com",
	"pages.dev",	 "r2.dev",	   "readthedocs.io",  "run.app",
	"supabase.co",	 "vercel.app",	   "web.app",	      "wordpress.com",
	"workers.dev",
};
/* What registries of countries have a second level of. */
static const char *const second[] = {
	"ac",  "co", "com", "edu", "go", "gob", "gov",
	"mil", "ne", "net", "nom", "or", "org", "sch",
};

struct parts {
	const struct dns_name *name;
	uint8_t at[DNS_LABELS_MAX];
	size_t count;
	size_t domain; /* the label that somebody has registered; its suffix is behind */
};

static int by_text(const void *a, const void *b)
{
	return strcmp(a, *(const char *const *)b);
}

/* The two labels from @l on are the last ones. */
static bool is_shared(const uint8_t *l)
{
	const uint8_t *top = l + *l + 1;
	char text[2 * DNS_LABEL_MAX + 2];

	memcpy(text, l + 1, *l);
	text[*l] = '.';
	memcpy(text + *l + 1, top + 1, *top);
	text[*l + 1 + *top] = '\0';
	return bsearch(text, shared, ARRAY_SIZE(shared), sizeof(shared[0]), by_text);
}

static struct parts parts_of(const struct dns_name *n)
{
	struct parts p;
	const uint8_t *below;
	size_t suffix = 1;

	p.name = n;
	p.count = 0;
	for (size_t at = 0; at < n->size && n->bytes[at] != 0; at += n->bytes[at] + 1u)
		p.at[p.count++] = (uint8_t)at;
	below = n->bytes + (p.count > 2 ? p.at[p.count - 2] : 0);
	if (p.count > 2 &&
	    ((n->bytes[p.at[p.count - 1]] == 2 &&
	      TEXT_FIND(((struct text){ (const char *)below + 1, below[0] }), second)) ||
	     is_shared(below)))
		suffix = 2;
	p.domain = p.count > suffix ? p.count - 1 - suffix : 0;
	return p;
}

/* The octets from label @i on. */
static struct text rest_of(const struct parts *p, size_t i)
{
	const size_t at = i < p->count ? p->at[i] : p->name->size - 1u;

	return (struct text){ (const char *)p->name->bytes + at, p->name->size - at };
}

/* ---- one name and another ---- */

struct wanted {
	struct parts parts;
	struct looks labels[LABELS_SEEN]; /* of parts.at[first] and on */
	size_t first;
	bool has_hyphen; /* one of them */
	const struct looks *domain;
	struct looks joined; /* the same without hyphens */
};

/* The other's domain and suffix stand in it, and more behind. */
static bool is_beginning(const struct wanted *w, const struct parts *p,
			 const struct looks *domain)
{
	const struct text suffix = rest_of(p, p->domain + 1);

	for (size_t i = w->first; i < w->parts.count; i++) {
		const struct looks *l = &w->labels[i - w->first];
		const struct text rest = rest_of(&w->parts, i + 1);

		/* Without the root label, and not at the end */
		if (equal(l, domain) && suffix.len > 1 && rest.len > suffix.len &&
		    memcmp(rest.ptr, suffix.ptr, suffix.len - 1) == 0)
			return true;
	}
	return false;
}

/* "github-com", alone or with more behind a hyphen. */
static bool is_hyphened(const struct wanted *w, const struct parts *p,
			const struct looks *domain)
{
	struct looks joined;

	if (!w->has_hyphen || p->count < 2)
		return false;
	joined = *domain;
	for (size_t i = p->domain + 1; i < p->count; i++) {
		const uint8_t *label = p->name->bytes + p->at[i];

		if (joined.count + 1 + label[0] > DNS_LABEL_MAX)
			return false;
		joined.at[joined.count++] = '-';
		for (size_t n = 1; n <= label[0]; n++)
			joined.at[joined.count++] = label[n];
	}
	for (size_t i = w->first; i < w->parts.count; i++) {
		const struct looks *l = &w->labels[i - w->first];

		if (equal(l, &joined) || is_beside_hyphen(l, &joined))
			return true;
	}
	return false;
}

static bool looks_like(const struct wanted *w, const struct parts *p)
{
	const bool same_suffix = text_same(rest_of(&w->parts, w->parts.domain + 1),
					   rest_of(p, p->domain + 1));
	struct looks domain;

	look_at(p->name->bytes + p->at[p->domain], &domain);
	if (equal(w->domain, &domain))
		return domain.count > 1;
	if (same_suffix && MIN(w->domain->count, domain.count) + 1 >= EDIT_MIN &&
	    domain.count >= EDIT_MIN && is_one_edit(w->domain, &domain))
		return true;
	if (is_beside_hyphen(w->domain, &domain) || is_beginning(w, p, &domain) ||
	    is_hyphened(w, p, &domain))
		return true;
	without_hyphens(&domain);
	return domain.count >= EDIT_MIN && equal(&w->joined, &domain);
}

static bool is_allowed(const struct plan *p, const struct dns_name *n)
{
	struct plan_verdict v = plan_match_name(p, n);

	if (v.rule == PLAN_NO_RULE)
		v = plan_match_below(p, n);
	return v.action == POLICY_ALLOW && v.rule != PLAN_NO_RULE;
}

const char *lookalike_find(const struct plan *plan, const char *wanted, char *buf)
{
	struct dns_name name, other;
	struct wanted w;
	uint32_t at = 0;

	buf[0] = '\0';
	if (dns_name_parse(text_of(wanted), &name) < 0 || name.labels == 0 ||
	    is_allowed(plan, &name))
		return buf;
	w.parts = parts_of(&name);
	w.first = w.parts.count > LABELS_SEEN ? w.parts.count - LABELS_SEEN : 0;
	w.has_hyphen = false;
	for (size_t i = w.first; i < w.parts.count; i++) {
		struct looks *l = &w.labels[i - w.first];

		look_at(name.bytes + w.parts.at[i], l);
		for (size_t c = 0; c < l->count; c++)
			w.has_hyphen |= l->at[c] == '-';
	}
	w.domain = &w.labels[w.parts.domain - w.first];
	w.joined = *w.domain;
	without_hyphens(&w.joined);
	while (plan_name_next(plan, &at, &other)) {
		const struct parts p = parts_of(&other);
		const bool is_kin = text_same(rest_of(&w.parts, w.parts.domain),
					      rest_of(&p, p.domain));

		if (p.count == 0 || (!is_kin && (buf[0] || !looks_like(&w, &p))) ||
		    !is_allowed(plan, &other))
			continue;
		snprintf(buf, EVENT_NAME_SIZE, "%s",
			 is_kin ? "" : DNS_NAME_SHOWN(&other));
		if (is_kin)
			break;
	}
	return buf;
}
