// SPDX-License-Identifier: Apache-2.0
/* Names that could be taken for an allowed one, and names that could not. */
#include "read_world.h"

#include <stdlib.h>

#include "policy/names.h"
#include "policy/policy.h"

struct built {
	struct world w;
	uint8_t *bytes;
	struct plan plan;
};

static void build(struct built *b, const char *text)
{
	struct policy_reader r = reader(&b->w);
	struct err err = { 0 };
	size_t size;

	world_read(&b->w, "p.yaml", text);
	assert_int_equal(b->w.result, 0);
	assert_int_equal(policy_build(&r, &b->w.policy, &b->bytes, &size), 0);
	assert_int_equal(plan_open(b->bytes, size, &b->plan, &err), 0);
}

static void done(struct built *b)
{
	free(b->bytes);
	world_done(&b->w);
}

static const char policy[] = "egress:\n"
			     "  - {action: deny, target: denied.com}\n"
			     "  - {action: deny, target: gist.github.com}\n"
			     "  - {action: allow, target: '**.github.com'}\n"
			     "  - {action: allow, target: pypi.org}\n"
			     "  - {action: allow, target: files.pythonhosted.org}\n"
			     "  - {action: allow, target: registry.npmjs.org}\n"
			     "  - {action: allow, target: api.anthropic.com}\n"
			     "  - {action: allow, target: mycorp.github.io}\n"
			     "  - {action: allow, target: www.amazon.co.uk}\n"
			     "  - {action: allow, target: '*.modern.com'}\n"
			     "  - {action: allow, target: xn--mnchen-3ya.de}\n"
			     "  - {action: allow, target: x.ai}\n"
			     "  - {action: allow, target: registry}\n"
			     "  - {action: allow, target: 10.0.0.1}\n";

static const struct {
	const char *what, *wanted, *like;
} cases[] = {
	/* one letter */
	{ "changed", "githud.com", "github.com" },
	{ "changed, below", "api.v3.githud.com", "github.com" },
	{ "left out", "githb.com", "github.com" },
	{ "added", "githubb.com", "github.com" },
	{ "added in front", "agithub.com", "github.com" },
	{ "doubled", "giithub.com", "github.com" },
	{ "swapped", "gihtub.com", "github.com" },
	{ "swapped at the end", "githbu.com", "github.com" },
	{ "in a short name", "pyip.org", "pypi.org" },
	{ "left out of a short name", "ppi.org", "pypi.org" },
	{ "of a name with a long one", "registry.nprnjs.org", "registry.npmjs.org" },
	{ "two letters are another name", "gitlab.com", "" },
	{ "two changed", "githud.con", "" },
	{ "of a second level", "amazom.co.uk", "www.amazon.co.uk" },
	/* letters that look alike */
	{ "a digit", "g1thub.com", "github.com" },
	{ "a digit for a letter", "pyp1.org", "pypi.org" },
	{ "zero", "files.pyth0nhosted.org", "files.pythonhosted.org" },
	{ "rn for m", "x.modem.com", "modern.com" },
	{ "m for rn", "registry.npmjs.org.evil.dev", "registry.npmjs.org" },
	{ "Cyrillic i", "xn--gthub-n4a.com", "github.com" },
	{ "all Cyrillic", "xn--80ak6aa92e.com", "" },
	{ "Cyrillic, another suffix", "xn--gthub-n4a.evil", "github.com" },
	{ "an accent", "xn--pyp-sma.org", "pypi.org" },
	{ "without the accent", "munchen.de", "xn--mnchen-3ya.de" },
	{ "letters alone in punycode", "xn--github-.com", "github.com" },
	{ "bad punycode", "xn--99999999.com", "" },
	{ "long punycode",
	  "xn--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.com", "" },
	/* another suffix */
	{ "a country's", "github.co", "github.com" },
	{ "a country's second level", "github.com.co", "github.com" },
	{ "another one", "pypi.com", "pypi.org" },
	{ "of a short name", "x.com", "" },
	{ "below one", "mycorp.github.dev", "github.com" },
	/* a hyphen */
	{ "within", "git-hub.com", "github.com" },
	{ "behind", "github-login.com", "github.com" },
	{ "in front", "my-github.net", "github.com" },
	{ "of a short name", "my-pypi.net", "" },
	/* the beginning of a longer one */
	{ "labels", "github.com.evil.dev", "github.com" },
	{ "labels, below", "api.github.com.evil.dev", "github.com" },
	{ "labels that look alike", "xn--gthub-n4a.com.evil.dev", "github.com" },
	{ "with hyphens", "github-com.evil.dev", "github.com" },
	{ "with hyphens and more", "github-com-login.evil.dev", "github.com" },
	{ "whole names", "pypi.org.x", "pypi.org" },
	{ "many labels", "github.com.1.2.3.4.5.6.7.8.9.a.b.c.evil.dev", "github.com" },
	/* shared domains: the tenant counts */
	{ "another tenant", "mycorpp.github.io", "mycorp.github.io" },
	{ "somebody else there", "other.github.io", "" },
	/* what is no lookalike */
	{ "allowed", "api.github.com", "" },
	{ "denied, of the same owner", "gist.github.com", "" },
	{ "the same owner", "pythonhosted.org", "" },
	{ "below an allowed name", "test.pypi.org", "" },
	{ "beside one", "api2.anthropic.com", "" },
	{ "like a denied one", "deniet.com", "" },
	{ "a word", "example.com", "" },
	{ "one label", "registry.evil.dev", "" },
	{ "one label, one letter", "registri", "registry" },
	{ "short names", "y.ai", "" },
	{ "nothing", "", "" },
	{ "the root", ".", "" },
	{ "an address", "10.0.0.2", "" },
	{ "control characters", "githu\033b.com", "" },
	{ "two dots", "github..com", "" },
	{ "upper case", "GITHUD.com", "github.com" },
};

TEST(test_what_looks_alike)
{
	char buf[EVENT_NAME_SIZE];
	struct built b = { 0 };

	build(&b, policy);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		lookalike_find(&b.plan, cases[i].wanted, buf);
		if (strcmp(buf, cases[i].like) != 0)
			fail_msg("%s: %s: '%s', not '%s'", cases[i].what, cases[i].wanted,
				 buf, cases[i].like);
	}
	done(&b);
}

/* ---- the names of one profile, held against each other ---- */

/* No name of @all looks like @name. Return: how many were held against it. */
static size_t hold_against(const struct plan *all, const struct dns_name *name)
{
	char own[DNS_NAME_TEXT_SIZE], text[DNS_NAME_TEXT_SIZE], buf[EVENT_NAME_SIZE];
	char one[DNS_NAME_TEXT_SIZE + 64];
	struct built b = { 0 };
	struct dns_name other;
	uint32_t at = 0;
	size_t count = 0;

	snprintf(one, sizeof(one), "egress: [{action: allow, target: '%s'}]",
		 dns_name_format(name, own));
	build(&b, one);
	while (plan_name_next(all, &at, &other)) {
		lookalike_find(&b.plan, dns_name_format(&other, text), buf);
		if (buf[0])
			fail_msg("%s looks like %s", text, buf);
		count++;
	}
	done(&b);
	return count;
}

TEST(test_names_of_a_profile_are_apart)
{
	const struct policy_embedded *e;
	size_t pairs = 0, profiles = 0;
	struct file files[32];

	for (; (e = policy_embedded_at(profiles)) && profiles < ARRAY_SIZE(files);
	     profiles++)
		files[profiles] = (struct file){ e->name, e->text.ptr };
	for (size_t i = 0; i < profiles; i++) {
		struct built b = { .w = { .files = files, .file_count = profiles } };
		struct dns_name name;
		uint32_t at = 0;

		build(&b, files[i].text);
		while (plan_name_next(&b.plan, &at, &name))
			pairs += hold_against(&b.plan, &name);
		done(&b);
	}
	assert_true(profiles > 10 && pairs > 500);
}

/* ---- as many as a policy may well have ---- */

TEST(test_many_names)
{
	enum { NAMES = 8192 };
	const size_t size = NAMES * 96;
	char *text = malloc(size), buf[EVENT_NAME_SIZE], wanted[DNS_NAME_MAX + 1];
	size_t used = (size_t)snprintf(text, size, "egress:\n");
	struct built b = { 0 };

	for (int i = 0; i < NAMES; i++)
		used += (size_t)snprintf(
			text + used, size - used,
			"  - {action: allow, target: api%d.service%d.com}\n", i, i);
	build(&b, text);
	/* As many labels as there can be */
	for (int i = 0; i < 126; i++)
		memcpy(wanted + 2 * i, "a.", 3);
	assert_string_equal(lookalike_find(&b.plan, wanted, buf), "");
	assert_string_equal(lookalike_find(&b.plan, "nothing.like-that.dev", buf), "");
	lookalike_find(&b.plan, "x.servlce8191.com", buf);
	assert_string_equal(buf, "api8191.service8191.com");
	done(&b);
	free(text);
}
