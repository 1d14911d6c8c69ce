// SPDX-License-Identifier: Apache-2.0
/* sandbox/verdict - may this sandbox connect to this address and port now? And which
 * addresses may a name resolve to?
 *
 * Pure: the plan, the learned addresses, two facts about the address and the time go
 * in, a verdict comes out. The zero verdict denies.
 *
 * Names are always compared with the plan as it is now, never against the verdict
 * that stood when the address was learned. */
#pragma once

#include <stdbool.h>

#include "policy/plan.h"

struct learned;

enum {
	/* Names that are compared for one address. Those beyond it, the oldest, don't
	 * count: the connection is denied. */
	RELAY_VERDICT_NAMES_MAX = 32,
};

struct relay_question {
	const struct plan *plan;
	const struct learned *learned;
	struct endpoint to;
	bool host_local; /* the address is one of the host's own */
	bool shared; /* those are the sandbox's, and don't come here: no rule opens them
		      */
	int64_t now_ms;
};

struct relay_verdict {
	bool allowed;
	uint32_t rule;	      /* the deciding one, or PLAN_NO_RULE */
	const char *reason;   /* why not; a constant text, NULL when allowed */
	bool allowable;	      /* an allow rule for just this name and port would help */
	struct dns_name name; /* that opened it; size 0: an address rule or the default */
	bool taught;	      /* a look-up of @name gave the address */
};

struct relay_verdict relay_verdict_of(const struct relay_question *q);

/* What a connection has shown, under `verify: tls`. */
enum relay_shown {
	SHOWN_NOTHING = 0, /* yet */
	SHOWN_NAME,	   /* a host name, in TLS or HTTP */
	SHOWN_NO_NAME,	   /* TLS or HTTP without a name, or with the address itself */
	SHOWN_BYTES,	   /* neither TLS nor HTTP */
};

/* May what was @shown, with @name, go to that address and port? On top of
 * relay_verdict_of():
 *  - a name has to be allowed on this port, and to have taught this very address, unless
 *    an address rule, or the default action, allows it;
 *  - TLS and HTTP without a name pass only where an address rule allows the address;
 *  - other bytes pass only where an address rule or the default action allows it, or a
 *    name's rule lists the port; and on web ports only if that rule says raw.
 * @name counts for SHOWN_NAME only. @opened_by, which may be of size 0, opened the flow
 * and had taught the address: that counts on, after what it taught has expired. */
struct relay_verdict relay_verdict_shown(const struct relay_question *q,
					 enum relay_shown shown,
					 const struct dns_name *name,
					 const struct dns_name *opened_by);

/* What is shown at an address that stands for denied names (policy/plan.h): never
 * allowed; the reason is about @name. */
struct relay_verdict relay_verdict_sinkhole(const struct relay_question *q,
					    enum relay_shown shown,
					    const struct dns_name *name);

/* For a flow that is open already, after a change of the plan: @name (may be of size 0)
 * opened it or was shown. @taught: it had taught the address then, which counts on after
 * that has expired; a name that was only claimed, where something else let the address
 * through, has to teach it now. Under `verify: tls`, SHOWN_NOTHING is a flow that is
 * still to be judged. */
struct relay_verdict relay_verdict_again(const struct relay_question *q,
					 enum relay_shown shown,
					 const struct dns_name *name, bool taught);

/* May a flow to @asked, which the name @name opened, go to @q->to instead? Not where an
 * address rule opens @asked: then that address alone. Only where @name has taught that
 * address and is what opens it there, and where it is known whom the client means: unless
 * @name was shown, all allowed names that have taught @asked have to have taught @q->to
 * as well. */
bool relay_verdict_other(const struct relay_question *q,
			 const struct relay_question *asked, enum relay_shown shown,
			 const struct dns_name *name);

/* ---- which addresses a name may resolve to, and teach ---- */

/* To an address that is not an ordinary one of the Internet a name resolves only if its
 * rule says `private` or an address rule allows that address; to a metadata address only
 * by an address rule; to what an address rule denies never. What an address rule lets in
 * is open on that rule's ports. So the name teaches it only where that makes none of its
 * own ports more: else whoever decides what a name resolves to would open them. The same
 * holds for what is closed (PLAN_CLOSED). */

/* Return: NULL when a name with this verdict may resolve to @a, else why not. */
const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a);
/* Where rebinding_fault() finds none: does the name teach @a, which opens its ports
 * there?
 */
bool rebinding_teaches(const struct plan *p, const struct plan_verdict *v,
		       const struct addr *a);
