// SPDX-License-Identifier: Apache-2.0
#include "run/asking.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define WHO	    "terminal"
#define ONCE	    "1m"
#define TEN_MINUTES "10m"

static struct review *first_task(const struct asking *a)
{
	return run_reviews_find(&a->live->reviews, a->items[0].task);
}

static void drop_first(struct asking *a)
{
	loop_timer_stop(a->terminal.loop, &a->patience);
	memmove(&a->items[0], &a->items[1], --a->count * sizeof(a->items[0]));
}

/* ---- an answer ---- */

static void say_rule(struct asking *a, const struct review *t)
{
	char rule[REVIEW_RULE_SIZE], line[REVIEW_RULE_SIZE + 64];

	if (!review_rule(t, rule))
		return;
	snprintf(line, sizeof(line), "to allow it always, add to the policy: - %s", rule);
	terminal_say(&a->terminal, line);
}

static void say_fault(struct asking *a, const char *fault)
{
	terminal_say(&a->terminal, SHOWN(fault));
}

static void grant_first(struct asking *a, struct review *t, enum prompt_answer answer)
{
	const char *length = answer == PROMPT_ONCE	    ? ONCE
			     : answer == PROMPT_TEN_MINUTES ? TEN_MINUTES
							    : "";
	struct err err = { 0 };

	if (live_accept(a->live, t, length, WHO, &err) < 0)
		say_fault(a, err.text);
	else if (answer == PROMPT_ALWAYS)
		say_rule(a, t);
	drop_first(a);
}

static void refuse_first(struct asking *a)
{
	struct review *t = first_task(a);
	struct err err = { 0 };

	if (t && t->state == REVIEW_OPEN && live_dismiss(a->live, t, WHO, &err) < 0)
		say_fault(a, err.text);
	drop_first(a);
}

static void on_answer(struct terminal *terminal, enum prompt_answer answer)
{
	struct asking *a = CONTAINER_OF(terminal, struct asking, terminal);
	struct review *t;

	if (a->count == 0)
		return;
	loop_timer_stop(terminal->loop, &a->patience);
	t = first_task(a);
	if (answer == PROMPT_NONE)
		while (a->count > 0)
			refuse_first(a);
	else if (!t || t->state != REVIEW_OPEN || answer == PROMPT_NO)
		refuse_first(a);
	else
		grant_first(a, t, answer);
}

/* Who waits has been refused by then. The task stays. */
static void on_question_late(struct loop_timer *timer)
{
	struct asking *a = CONTAINER_OF(timer, struct asking, patience);

	terminal_take_back(&a->terminal, "refused: no answer");
	if (a->count > 0)
		drop_first(a);
}

/* ---- questions ---- */

void asking_init(struct asking *a)
{
	*a = (struct asking){ .patience.on_fire = on_question_late };
	terminal_init(&a->terminal);
	a->terminal.on_answer = on_answer;
}

int asking_open(struct asking *a, struct err *err)
{
	return terminal_open(&a->terminal, err);
}

int asking_serve(struct asking *a, struct live *live, struct loop *loop,
		 int64_t timeout_ms)
{
	if (a->terminal.tty < 0)
		return 0;
	a->live = live;
	a->timeout_ms = timeout_ms;
	return terminal_serve(&a->terminal, loop);
}

void asking_note(struct asking *a, const struct review *t, const char *command)
{
	if (!a->live || !t || t->state != REVIEW_OPEN)
		return;
	for (size_t i = 0; i < a->count; i++)
		if (a->items[i].task == t->id)
			return;
	if (a->count == ASKING_MAX)
		return;
	a->items[a->count] =
		(struct asking_item){ .task = t->id,
				      .at_ms = loop_now_ms(a->terminal.loop) };
	snprintf(a->items[a->count++].command, PROMPT_COMMAND_SIZE, "%s", command);
}

static void put_first(struct asking *a, const struct review *t)
{
	struct prompt_question q = { .port = t->port,
				     .is_udp = t->protocol == IPPROTO_UDP,
				     .more = a->count - 1 };

	snprintf(q.what, sizeof(q.what), "%s", t->destination);
	snprintf(q.command, sizeof(q.command), "%s", a->items[0].command);
	snprintf(q.like, sizeof(q.like), "%s", t->looks_like);
	if (loop_timer_start(a->terminal.loop, &a->patience,
			     a->items[0].at_ms + a->timeout_ms) < 0)
		return;
	terminal_ask(&a->terminal, &q);
}

/* It was refused while others were asked for. */
static bool is_late(const struct asking *a)
{
	return !a->terminal.asks &&
	       loop_now_ms(a->terminal.loop) >= a->items[0].at_ms + a->timeout_ms;
}

void asking_turn(struct asking *a)
{
	struct review *t;

	while (a->live && a->count > 0) {
		t = first_task(a);
		if (t && t->state == REVIEW_OPEN && !is_late(a))
			break;
		terminal_take_back(&a->terminal, "decided elsewhere");
		drop_first(a);
	}
	if (a->live && a->count > 0 && !a->terminal.asks)
		put_first(a, t);
}

void asking_close(struct asking *a)
{
	terminal_close(&a->terminal);
	a->live = NULL;
}
