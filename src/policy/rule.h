// SPDX-License-Identifier: Apache-2.0
/* policy/rule - one rule of a policy, checked. */
#pragma once

#include "base/addr.h"
#include "base/arena.h"
#include "dns/name.h"
#include "policy/plan.h"

enum rule_target {
	TARGET_NONE = 0,
	TARGET_NAME,   /* api.github.com: that name only */
	TARGET_BELOW,  /* *.pypi.org: every name below, any depth */
	TARGET_WITHIN, /* **.pypi.org: both */
	TARGET_PREFIX, /* an address or a CIDR */
};

struct rule_ports {
	const struct plan_port_range *ranges; /* sorted, disjoint; borrowed */
	size_t count;			      /* 0: the default list */
	bool with_default;		      /* the default list as well as these */
};

struct rule {
	enum policy_action action;
	enum rule_target kind;
	struct dns_name name; /* TARGET_NAME, _BELOW, _WITHIN */
	struct prefix prefix; /* TARGET_PREFIX */
	struct rule_ports ports;
	uint8_t flags;		   /* PLAN_PRIVATE … */
	uint8_t types;		   /* PLAN_TYPE_… */
	int64_t until_ms;	   /* wall clock: the rule's end; 0: it has none */
	struct plan_budget budget; /* sent and received 0: it has none */
	size_t shares;		   /* the same number: rules share one budget; 0: none */
	const char *target;	   /* as written */
	const char *comment;	   /* "" when none */
	const char *file;
	uint32_t line, column;
};

/* What the key `for` takes: a year at most. */
enum { RULE_FOR_MIN_MS = 1000 };
#define RULE_FOR_MAX_MS (INT64_C(366) * 86400 * 1000)
#define RULE_FOR_WORDS	"a time from 1s to 366d, like 10m"

/* "443", "80,443", "8000-8100", "tcp/22", "udp/443,tcp/80-90". A number alone is TCP
 * and UDP. Ranges are sorted and merged into @ret, which takes PLAN_PORT_RANGES_MAX. The
 * word "default" is the default list, and sets *@ret_default; without @ret_default it is
 * no port.
 * Return: count, or -EINVAL with the reason in @err. */
int rule_ports_parse(struct text t, struct plan_port_range *ret, bool *ret_default,
		     struct err *err) MUST_CHECK;
/* The same, kept in @arena. Return: 0, -EINVAL with @err, -ENOMEM. */
int rule_ports_read(struct text t, struct arena *arena, struct rule_ports *ret,
		    struct err *err) MUST_CHECK;
bool rule_ports_equal(const struct rule_ports *a, const struct rule_ports *b);
bool rule_ports_have(const struct rule_ports *ports, uint16_t port);
#define RULE_NO_DNS_PORT                                                                 \
	"port 53 of a name can't be opened, because Weir answers DNS itself; "           \
	"name the address of the server"
char *rule_ports_format(const struct plan_port_range *ranges, size_t count, char *buf,
			size_t size);
/* The ports of a rule as text that rule_ports_read() reads: "default,853". */
char *rule_ports_text(const struct rule_ports *ports, char *buf, size_t size);
/* What a rule without `ports` opens: everything but DNS, DNS over TLS and, where
 * connections must name themselves, QUIC. Return: how many. */
enum { RULE_DEFAULT_RANGES = 7 };
size_t rule_ports_default(enum policy_verify verify,
			  struct plan_port_range ret[RULE_DEFAULT_RANGES]);
/* Sort and merge what overlaps or touches. Return: the new count. */
size_t rule_ports_normalise(struct plan_port_range *r, size_t count);

/* "20M", or the number of bytes. Return: @buf, of RULE_SIZE_SIZE. */
enum { RULE_SIZE_SIZE = 24 };
char *rule_size_text(uint64_t bytes, char *buf);

/* The rule as it stands in a document: {"action":"allow","target":"a.test"}, or
 * {action: allow, target: a.test}. Return: false: @size bytes are too few. */
enum { POLICY_RULE_SIZE = 4096 }; /* fits all but the longest lists of ports */
bool rule_write(const struct rule *r, bool is_json, char *buf, size_t size) MUST_CHECK;
/* The same, however long. For free(); NULL: out of memory. */
char *rule_text(const struct rule *r, bool is_json) MUST_CHECK;

/* However each is written. */
bool rule_same_target(const struct rule *a, const struct rule *b);
/* The target of @r is @name, or a pattern over it. */
bool rule_covers(const struct rule *r, const struct dns_name *name);
/* What the stars in front of a pattern's text say, which are cut: TARGET_NAME: it has
 * none. */
enum rule_target rule_target_stars(struct text *t);
/* A target alone. Sets kind, name or prefix of @ret. Return: 0, or -EINVAL. */
int rule_target_parse(struct text t, struct rule *ret, struct err *err) MUST_CHECK;

/* The keys of a rule that are true or false, and the words under `types`, bit by bit. */
enum { RULE_FLAG_COUNT = 4, RULE_TYPE_COUNT = 4, RULE_ACTION_COUNT = 3 };
struct rule_flag_word {
	const char *key;
	uint8_t flag;
};
extern const struct rule_flag_word rule_flag_words[RULE_FLAG_COUNT];
extern const char *const rule_type_words[RULE_TYPE_COUNT];
extern const char *const rule_action_words[RULE_ACTION_COUNT];
/* "allow"; of no action: "deny". */
const char *policy_action_name(enum policy_action action);
