// SPDX-License-Identifier: Apache-2.0
#include "run/prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/addr.h"
#include "base/text.h"
#include "policy/name_libraries.h"

#define CUT "..."

enum {
	SHOWN_SIZE = PROMPT_NAME_SIZE + sizeof(CUT),
	COMMAND_SHOWN = 48,
};

enum {
	KEY_CTRL_D = 0x04,
	KEY_BELL = 0x07,
	KEY_BACKSPACE = 0x08,
	KEY_CTRL_U = 0x15,
	KEY_CANCEL = 0x18,
	KEY_ESCAPE = 0x1b,
	KEY_DELETE = 0x7f,
};

static void begin_line(struct prompt *p)
{
	p->letter = 0;
	p->is_line = false;
}

void prompt_begin(struct prompt *p, int64_t now_ms)
{
	*p = (struct prompt){ .quiet_at_ms = now_ms + PROMPT_QUIET_MS };
}

static enum prompt_sequence after_escape(uint8_t byte)
{
	switch (byte) {
	case KEY_ESCAPE:
		return SEQUENCE_BEGUN;
	case '[':
		return SEQUENCE_CONTROL;
	case ']':
	case 'P':
	case 'X':
	case '^':
	case '_':
		return SEQUENCE_STRING;
	default:
		/* An intermediate byte, or one of two shifts, has one behind it. */
		return byte == 'O' || byte == 'N' || (byte >= 0x20 && byte <= 0x2f)
			       ? SEQUENCE_ONE_MORE
			       : SEQUENCE_NONE;
	}
}

/* Return: whether @byte is part of a sequence. */
static bool pass_over(struct prompt *p, uint8_t byte)
{
	const enum prompt_sequence was = p->sequence;

	if (was == SEQUENCE_NONE && byte != KEY_ESCAPE)
		return false;
	switch (was) {
	case SEQUENCE_NONE:
		p->sequence = SEQUENCE_BEGUN;
		break;
	case SEQUENCE_BEGUN:
		p->sequence = after_escape(byte);
		break;
	case SEQUENCE_CONTROL:
		if (byte == KEY_ESCAPE)
			p->sequence = SEQUENCE_BEGUN;
		else if (byte >= 0x40 && byte <= 0x7e)
			p->sequence = SEQUENCE_NONE;
		break;
	case SEQUENCE_STRING:
		if (byte == KEY_BELL || byte == KEY_CANCEL)
			p->sequence = SEQUENCE_NONE;
		else if (byte == KEY_ESCAPE)
			p->sequence = SEQUENCE_STRING_ENDS;
		break;
	case SEQUENCE_STRING_ENDS:
		p->sequence = byte == '\\' ? SEQUENCE_NONE : after_escape(byte);
		break;
	default:
		p->sequence = SEQUENCE_NONE;
	}
	return true;
}

static enum prompt_answer answer_of(const struct prompt *p)
{
	if (p->is_line)
		return PROMPT_NOT_AN_ANSWER;
	switch (p->letter) {
	case 'o':
	case 'O':
		return PROMPT_ONCE;
	case '1':
		return PROMPT_TEN_MINUTES;
	case 's':
	case 'S':
		return PROMPT_SESSION;
	case 'a':
	case 'A':
		return PROMPT_ALWAYS;
	case 'n':
		return PROMPT_NO;
	case 'N':
		return PROMPT_NONE;
	default:
		return PROMPT_NOT_AN_ANSWER;
	}
}

enum prompt_answer prompt_take(struct prompt *p, uint8_t byte, int64_t now_ms)
{
	const bool counts = now_ms >= p->quiet_at_ms;
	enum prompt_answer answer;

	if (!counts) {
		p->quiet_at_ms = now_ms + PROMPT_QUIET_MS;
		(void)pass_over(p, byte);
		return PROMPT_WAITS;
	}
	/* Within a sequence as well: to deny does no harm. */
	if (byte == PROMPT_CTRL_C || byte == KEY_CTRL_D) {
		begin_line(p);
		p->sequence = SEQUENCE_NONE;
		return byte == PROMPT_CTRL_C ? PROMPT_NONE : PROMPT_NO;
	}
	if (pass_over(p, byte))
		return PROMPT_WAITS;
	if (byte == KEY_BACKSPACE || byte == KEY_DELETE || byte == KEY_CTRL_U) {
		begin_line(p);
		return PROMPT_WAITS;
	}
	if (byte != '\r' && byte != '\n') {
		p->is_line = p->is_line || p->letter != 0;
		p->letter = byte ?: 1;
		return PROMPT_WAITS;
	}
	answer = answer_of(p);
	begin_line(p);
	return answer;
}

/* @name with what fits into @columns of its front. @buf holds SHOWN_SIZE. */
static const char *show_name(const char *name, unsigned int columns, char *buf)
{
	char whole[4 * PROMPT_NAME_SIZE];
	struct addr ignored;
	const char *end;
	size_t most;

	text_escape(text_of(name), whole, sizeof(whole));
	end = name_registrable(whole);
	most = MAX(strlen(end), MIN(columns, PROMPT_NAME_SIZE) - strlen(CUT));
	if (strlen(whole) <= columns || addr_parse(name, strlen(name), &ignored))
		end = whole;
	for (const char *dot = end; dot > whole; dot--)
		if (dot[-1] == '.' && strlen(dot) <= most)
			end = dot;
	/* Only escapes make it longer than any name is. */
	if (strlen(end) > PROMPT_NAME_SIZE)
		end += strlen(end) - PROMPT_NAME_SIZE;
	snprintf(buf, SHOWN_SIZE, "%s%s", end > whole ? CUT : "", end);
	return buf;
}

char *prompt_text(const struct prompt_question *q, unsigned int columns, char *buf)
{
	char what[SHOWN_SIZE], like[SHOWN_SIZE], by[COMMAND_SHOWN];
	char port[12] = "", more[40] = "";
	const bool bracket = strchr(q->what, ':') && q->port > 0;

	columns = MAX(columns, (unsigned int)strlen(CUT));
	if (q->port > 0)
		snprintf(port, sizeof(port), ":%s%u", q->is_udp ? "udp/" : "", q->port);
	if (q->more > 0)
		snprintf(more, sizeof(more), " (%zu more wait)", q->more);
	columns -= MIN(columns - strlen(CUT), strlen("weir: ") + strlen(port));
	show_name(q->what, columns, what);
	show_name(q->like, columns, like);
	text_escape(text_of(q->command), by, sizeof(by));
	snprintf(buf, PROMPT_TEXT_SIZE,
		 "%s%s%s%s wanted%s%s%s%s%s.%s [o]nce, [1]0 minutes, [s]ession, "
		 "[a]lways, [n]o, [N]o to all: ",
		 bracket ? "[" : "", what, bracket ? "]" : "", port, by[0] ? " by " : "",
		 by, like[0] ? ", looks like " : "", like, like[0] ? " (allowed)" : "",
		 more);
	return buf;
}
