// SPDX-License-Identifier: Apache-2.0
/* Keys, each at its time: nothing is answered before it was quiet, and what grants is the
 * letter and the end of a line, with nothing but a terminal's sequences in between. */
#include <stdlib.h>
#include <string.h>

#include "run/asking.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

/* Two bytes for each key: what came how much later. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char letters[][3] = {
		[PROMPT_NO] = "n",	 [PROMPT_NONE] = "N",
		[PROMPT_ONCE] = "oO",	 [PROMPT_TEN_MINUTES] = "1",
		[PROMPT_SESSION] = "sS", [PROMPT_ALWAYS] = "aA",
	};
	int64_t now_ms = 1, last_ms = 1;
	uint8_t before = 0;
	struct prompt p;

	prompt_begin(&p, now_ms);
	for (size_t i = 0; i + 1 < size; i += 2) {
		const bool early = now_ms + data[i + 1] * 8 < p.quiet_at_ms;
		const uint8_t key = data[i];
		const bool within = p.sequence != SEQUENCE_NONE || key == 27;
		enum prompt_answer a;

		now_ms += data[i + 1] * 8;
		a = prompt_take(&p, key, now_ms);
		HOLD(a < PROMPT_ANSWER_COUNT);
		HOLD(!early || a == PROMPT_WAITS);
		if (early)
			last_ms = now_ms;
		if (a >= PROMPT_ONCE) {
			HOLD(key == '\r' || key == '\n');
			HOLD(before != 0 && strchr(letters[a], before));
			HOLD(now_ms - last_ms >= PROMPT_QUIET_MS);
		}
		if (a == PROMPT_NO)
			HOLD(key == 4 || key == '\r' || key == '\n');
		if (a == PROMPT_NONE)
			HOLD(key == 3 || key == '\r' || key == '\n');
		if (!within)
			before = key;
	}
	return 0;
}
