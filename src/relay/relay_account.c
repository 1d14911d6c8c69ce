// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "relay/relay_internal.h"

void relay_flow_account(struct relay_flow *f)
{
	struct relay_guest *g = f->guest;
	struct event e = {
		.action = EVENT_ALLOW,
		.layer = f->shown == SHOWN_NAME ? EVENT_NAME : EVENT_ADDRESS,
		.protocol = IPPROTO_TCP,
		.remote = f->dialled.addr,
		.port = f->dialled.port,
		.rule = f->opened_rule == PLAN_NO_RULE ? EVENT_NO_RULE : f->opened_rule,
		.uid = UINT32_MAX,
		.packets = 1,
		.bytes = f->sent,
	};
	bool refused = f->state == FLOW_CLOSING || f->state == FLOW_REFUSED;
	char text[DNS_NAME_TEXT_SIZE];

	if (f->sent == 0 && (!f->opened || refused))
		return;
	f->sent = 0;
	f->opened = false;
	if (f->name.size > 0)
		snprintf(e.name, sizeof(e.name), "%.*s", EVENT_NAME_SIZE - 1,
			 dns_name_format(&f->name, text));
	sandbox_passed(g->sandbox, &e, loop_now_ms(g->relay->loop));
}
