// SPDX-License-Identifier: Apache-2.0
#include "sandbox/verdict.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "test_plan.h"
#include "unit.h"

#define NAME "{action: allow, target: x.test"

struct row {
	const char *what;
	const char *rules; /* in the brackets of `egress` */
	const char *addr;
	bool resolves, teaches;
	const char *more; /* behind `egress`, or NULL */
};

static const struct row rows[] = {
	{ "an ordinary address", NAME "}", "93.1.2.3", true, true },
	{ "a private one", NAME "}", "10.0.0.5", false, false },
	{ "a private one that is asked for", NAME ", private: true}", "10.0.0.5", true,
	  true },
	{ "metadata that is asked for", NAME ", private: true}", "169.254.169.254", false,
	  false },
	{ "a rule for all of its ports", NAME "}, {action: allow, target: 10.0.0.0/8}",
	  "10.0.0.5", true, true },
	{ "a rule for one port", NAME "}, {action: allow, target: 10.0.0.5, ports: [22]}",
	  "10.0.0.5", true, false },
	{ "a rule for the name's port",
	  NAME ", ports: [22]}, {action: allow, target: 10.0.0.5, ports: [22, 80]}",
	  "10.0.0.5", true, true },
	{ "a rule for the same port of another protocol",
	  NAME ", ports: [22]}, {action: allow, target: 10.0.0.5, ports: [udp/22]}",
	  "10.0.0.5", true, false },
	{ "a port that no rule has by default",
	  NAME ", ports: [853]}, {action: allow, target: 10.0.0.5}", "10.0.0.5", true,
	  false },
	{ "a rule around a narrower one",
	  NAME ", ports: [80]}, {action: allow, target: 10.0.0.5, ports: [22]}, "
	       "{action: allow, target: 10.0.0.0/8, ports: [80]}",
	  "10.0.0.5", true, true },
	{ "a rule for another address",
	  NAME ", ports: [22]}, {action: allow, target: 10.0.0.6, ports: [22]}",
	  "10.0.0.5", false, false },
	{ "metadata's own port",
	  NAME ", private: true}, "
	       "{action: allow, target: 169.254.169.254, ports: [80]}",
	  "169.254.169.254", true, false },
	{ "an ordinary address that a rule has for one port",
	  NAME "}, {action: allow, target: 93.1.2.3, ports: [22]}", "93.1.2.3", true,
	  true },
	{ "one that is denied",
	  NAME ", private: true}, {action: deny, target: 10.0.0.0/8}", "10.0.0.5", false,
	  false },
	{ "a link-local one that a rule has for one port",
	  NAME ", private: true}, "
	       "{action: allow, target: 169.254.9.0/24, ports: [22]}",
	  "169.254.9.9", true, false, "defaultAction: allow\n" },
	{ "a resolver that a rule has for one port, inside a range",
	  NAME "}, {action: allow, target: 8.8.8.8, ports: [53]}, "
	       "{action: allow, target: 8.8.0.0/16}",
	  "8.8.8.8", true, false, "defaultAction: allow\n" },
};

TEST(a_name_opens_no_port_of_an_address_that_a_rule_lets_it_resolve_to)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		struct plan_verdict v;
		struct dns_name name;
		struct plan plan;
		struct addr a;
		uint8_t *bytes;
		char text[512];
		bool resolves;

		snprintf(text, sizeof(text), "egress: [%s]\n%s", row->rules,
			 row->more ? row->more : "");
		bytes = plan_from(text, &plan);
		assert_int_equal(dns_name_parse(text_of("x.test"), &name), 0);
		assert_true(addr_parse(row->addr, strlen(row->addr), &a));
		v = plan_match_name(&plan, &name);
		resolves = !rebinding_fault(&plan, &v, &a);
		if (resolves != row->resolves ||
		    (resolves && rebinding_teaches(&plan, &v, &a)) != row->teaches)
			fail_msg("%s", row->what);
		free(bytes);
	}
}

int main(void)
{
	return unit_run(NULL, NULL);
}
