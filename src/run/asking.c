// SPDX-License-Identifier: Apache-2.0
#include "run/asking.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/text.h"
#include "policy/names.h"
#include "sys/print.h"

/* === a question, and the keys that answer it === */

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
			       ? SEQUENCE_MORE
			       : SEQUENCE_NONE;
	}
}

/* How many characters belong to ESC [ and @byte: a function key's of Linux' console, and
 * the mouse's in its oldest forms. */
static uint8_t behind_control(uint8_t byte)
{
	switch (byte) {
	case '[':
		return 1;
	case 't':
		return 2;
	case 'M':
		return 3;
	case 'T':
		return 6;
	default:
		return 0;
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
		p->more = 1;
		p->sequence = after_escape(byte);
		break;
	case SEQUENCE_CONTROL:
	case SEQUENCE_PARAMETERS:
		p->more = was == SEQUENCE_CONTROL ? behind_control(byte) : 0;
		if (byte == KEY_ESCAPE)
			p->sequence = SEQUENCE_BEGUN;
		else if (byte < 0x40 || byte > 0x7e)
			p->sequence = SEQUENCE_PARAMETERS;
		else
			p->sequence = p->more > 0 ? SEQUENCE_MORE : SEQUENCE_NONE;
		break;
	case SEQUENCE_MORE:
		/* One character of UTF-8 may have several bytes. */
		p->more -= (byte & 0xc0) != 0x80;
		if (byte == KEY_ESCAPE)
			p->sequence = SEQUENCE_BEGUN;
		else if (p->more == 0)
			p->sequence = SEQUENCE_NONE;
		break;
	case SEQUENCE_STRING:
		if (byte == KEY_BELL || byte == KEY_CANCEL)
			p->sequence = SEQUENCE_NONE;
		else if (byte == KEY_ESCAPE)
			p->sequence = SEQUENCE_STRING_ENDS;
		break;
	case SEQUENCE_STRING_ENDS:
		p->more = 1;
		p->sequence = byte == '\\' ? SEQUENCE_NONE : after_escape(byte);
		break;
	}
	return true;
}

/* What a line of one letter answers. */
static const enum prompt_answer answers[UINT8_MAX + 1] = {
	['o'] = PROMPT_ONCE,	['O'] = PROMPT_ONCE,	['1'] = PROMPT_TEN_MINUTES,
	['s'] = PROMPT_SESSION, ['S'] = PROMPT_SESSION, ['a'] = PROMPT_ALWAYS,
	['A'] = PROMPT_ALWAYS,	['n'] = PROMPT_NO,	['N'] = PROMPT_NONE,
};

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
	answer = p->is_line ? PROMPT_WAITS : answers[p->letter];
	begin_line(p);
	if (answer != PROMPT_WAITS)
		return answer;
	/* Of a text that somebody has pasted no later line is an answer either. */
	prompt_begin(p, now_ms);
	return PROMPT_NOT_AN_ANSWER;
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

/* === the terminal === */

enum { CLOSE_MS = 2000 }; /* a terminal that takes nothing loses the rest */

/* Whatever the command left the terminal in: an unfinished sequence is cancelled, and
 * so are xterm's modes that take no such sequence (Tektronix, VT52), its status line,
 * other alphabets, a part of the screen that scrolls, by lines or columns, insertion,
 * lines that don't wrap, colours, text that isn't erased, what the colours' numbers and
 * the default ones mean, and an update that isn't shown before it is whole. Below the
 * question is nothing. What ESC 7 keeps and ESC 8 brings back is set behind these. */
#define PLAIN_SCREEN                                                                     \
	"\030\033\003\033\\\033<\033[0$}\017\033(B\0337\033[r\033[?69l\033[4l\0338"      \
	"\033[?7h\033[0m\033[0\"q\033]104\033\\\033]110\033\\\033]111\033\\\033[?2026l"
/* Pictures over the text (kitty's). To tmux and screen, which have none, the sequence
 * would be a title. */
#define NO_PICTURES "\033_Ga=d,q=2\033\\"
#define CLEAR_BELOW "\033[J"

/* To a question that put_first() put; no other one stands there by then. A terminal
 * that is gone answers PROMPT_NO. */
static void on_answer(struct terminal *terminal, enum prompt_answer answer);

/* ---- opening ---- */

/* No terminal; before anything else. */
static void terminal_init(struct terminal *t)
{
	*t = (struct terminal){ .tty = -1, .master = -1, .slave = -1 };
	t->from_tty.fd = t->from_master.fd = -1;
}

/* Open the caller's and make the command's, with its modes and size. Return: 0; -ENXIO:
 * the caller has none; -EIO: Weir is not in its foreground; or another -errno. */
int asking_open(struct asking *a, struct err *err)
{
	static const char no_terminal[] = "--ask tty: cannot make the command's terminal";
	struct terminal *t = &a->terminal;
	struct winsize size;
	int unlock = 0;

	/* An open file of its own: its O_NONBLOCK is nobody else's. */
	t->tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (t->tty < 0)
		return err_set(err, -ENXIO, "--ask tty: there is no terminal to ask on");
	if (tcgetattr(t->tty, &t->before) < 0)
		return err_sys(err, -errno,
			       "--ask tty: cannot read the terminal's modes");
	if (tcgetpgrp(t->tty) != getpgrp())
		return err_set(err, -EIO,
			       "--ask tty: weir runs in the background, where it can't "
			       "ask");
	t->out.bytes = malloc(TERMINAL_OUT_SIZE);
	t->in.bytes = malloc(TERMINAL_IN_SIZE);
	if (!t->out.bytes || !t->in.bytes)
		return err_sys(err, -ENOMEM, no_terminal);
	t->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (t->master < 0 || ioctl(t->master, TIOCSPTLCK, &unlock) < 0)
		return err_sys(err, -errno, no_terminal);
	t->slave = ioctl(t->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (t->slave < 0 || tcsetattr(t->slave, TCSANOW, &t->before) < 0)
		return err_sys(err, -errno, no_terminal);
	if (ioctl(t->tty, TIOCGWINSZ, &size) == 0)
		(void)!ioctl(t->master, TIOCSWINSZ, &size);
	return 0;
}

/* ---- modes ---- */

/* Raw, or as it was before. */
static void set_raw(struct terminal *t, bool raw)
{
	struct termios modes = t->before;

	if (t->tty < 0 || t->is_raw == raw)
		return;
	if (raw)
		cfmakeraw(&modes);
	t->is_raw = tcsetattr(t->tty, TCSANOW, &modes) == 0 && raw;
}

/* ---- carrying ---- */

/* Watch for what can go on: what the command prints or takes, and what is typed. */
static void update_interest(struct terminal *t)
{
	const bool out_has_room = t->out.used < TERMINAL_OUT_SIZE - TERMINAL_OWN_SIZE &&
				  !t->asks;
	const uint32_t tty = (t->in.used < TERMINAL_IN_SIZE || t->asks ? EPOLLIN : 0u) |
			     (t->out.used > 0 ? EPOLLOUT : 0u);
	const uint32_t master = (out_has_room ? EPOLLIN : 0u) |
				(t->in.used > 0 ? EPOLLOUT : 0u);

	if (t->from_tty.added && t->from_tty.events != tty)
		(void)!loop_modify(t->loop, &t->from_tty, tty);
	if (t->from_master.added && t->from_master.events != master)
		(void)!loop_modify(t->loop, &t->from_master, master);
}

static void lose_tty(struct terminal *t)
{
	if (t->from_tty.added)
		loop_remove(t->loop, &t->from_tty);
	close(t->tty);
	t->tty = -1;
	t->is_raw = false;
	t->out.used = 0;
	if (!t->asks)
		return;
	t->asks = false;
	on_answer(t, PROMPT_NO);
}

/* Return: 0, or -errno but for -EAGAIN: the other side is gone. */
static int send_buffer(int fd, struct terminal_buffer *b)
{
	while (b->used > 0) {
		const ssize_t n = write(fd, b->bytes, b->used);

		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		b->used -= (size_t)n;
		memmove(b->bytes, b->bytes + n, b->used);
	}
	return 0;
}

static void flush_tty(struct terminal *t)
{
	if (t->tty < 0)
		t->out.used = 0;
	else if (send_buffer(t->tty, &t->out) < 0)
		lose_tty(t);
}

/* What Weir writes itself has a place of its own. */
static void put_own(struct terminal *t, const char *text)
{
	const size_t size = MIN(strlen(text), TERMINAL_OUT_SIZE - t->out.used);

	if (t->tty < 0)
		return;
	memcpy(t->out.bytes + t->out.used, text, size);
	t->out.used += size;
}

static void put_question(struct terminal *t)
{
	const char *kind = getenv("TERM");
	const bool is_dumb = !kind || !kind[0] || strcmp(kind, "dumb") == 0;
	char text[PROMPT_TEXT_SIZE];
	struct winsize size;

	if (ioctl(t->tty, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		size.ws_col = TERM_WIDTH_DEFAULT;
	if (!is_dumb)
		put_own(t, PLAIN_SCREEN);
	if (!is_dumb && !text_matches("tmux*", text_of(kind), false) &&
	    !text_matches("screen*", text_of(kind), false))
		put_own(t, NO_PICTURES);
	put_own(t, "\r\n");
	put_own(t, is_dumb ? "weir: " : CLEAR_BELOW "\033[7mweir:\033[0m ");
	put_own(t, prompt_text(&t->question, size.ws_col, text));
}

/* A program that has the whole screen draws it again when the size changes. */
static void have_redrawn(struct terminal *t)
{
	struct winsize size;

	if (t->tty < 0 || ioctl(t->tty, TIOCGWINSZ, &size) < 0 || size.ws_row < 2)
		return;
	size.ws_row--;
	(void)!ioctl(t->master, TIOCSWINSZ, &size);
	size.ws_row++;
	(void)!ioctl(t->master, TIOCSWINSZ, &size);
}

static void take_keys(struct terminal *t, const uint8_t *keys, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		const enum prompt_answer a =
			prompt_take(&t->prompt, keys[i], loop_now_ms(t->loop));

		if (keys[i] == PROMPT_CTRL_C) {
			/* Where there is no room nobody has read what was typed before.
			 */
			if (t->in.used == TERMINAL_IN_SIZE)
				t->in.used = 0;
			t->in.bytes[t->in.used++] = keys[i];
			(void)!send_buffer(t->master, &t->in);
		}
		if (a == PROMPT_NOT_AN_ANSWER)
			put_question(t);
		else if (a == PROMPT_WAITS && t->prompt.sequence == SEQUENCE_NONE &&
			 t->prompt.letter == keys[i] && keys[i] > ' ' && keys[i] < 0x7f)
			/* Raw mode shows nothing by itself. */
			put_own(t, (const char[]){ (char)keys[i], '\0' });
		if (a == PROMPT_WAITS || a == PROMPT_NOT_AN_ANSWER)
			continue;
		/* What came behind it was no answer to what comes now. */
		t->asks = false;
		put_own(t, "\r\n");
		have_redrawn(t);
		on_answer(t, a);
		return;
	}
}

static void on_tty(struct loop_source *s, uint32_t events)
{
	struct terminal *t = CONTAINER_OF(s, struct terminal, from_tty);
	uint8_t keys[TERMINAL_IN_SIZE];
	const size_t room = t->asks ? sizeof(keys) : TERMINAL_IN_SIZE - t->in.used;
	ssize_t n = -1;

	if (events & EPOLLIN && room > 0)
		n = read(t->tty, keys, room);
	if (n == 0 || (n < 0 && events & (EPOLLHUP | EPOLLERR))) {
		lose_tty(t);
		update_interest(t);
		return;
	}
	if (n > 0 && t->asks) {
		take_keys(t, keys, (size_t)n);
	} else if (n > 0) {
		memcpy(t->in.bytes + t->in.used, keys, (size_t)n);
		t->in.used += (size_t)n;
		(void)!send_buffer(t->master, &t->in);
	}
	flush_tty(t);
	update_interest(t);
}

static void read_command(struct terminal *t)
{
	const size_t most = TERMINAL_OUT_SIZE - TERMINAL_OWN_SIZE;
	ssize_t n;

	if (t->asks || t->out.used >= most)
		return;
	n = read(t->master, t->out.bytes + t->out.used, most - t->out.used);
	if (n > 0)
		t->out.used += (size_t)n;
}

static void on_master(struct loop_source *s, uint32_t events)
{
	struct terminal *t = CONTAINER_OF(s, struct terminal, from_master);

	read_command(t);
	(void)!send_buffer(t->master, &t->in);
	flush_tty(t);
	update_interest(t);
}

/* Carry the bytes from now on. */
int asking_serve(struct asking *a, struct live *live, struct loop *loop,
		 int64_t timeout_ms)
{
	struct terminal *t = &a->terminal;
	int r;

	if (t->tty < 0)
		return 0;
	a->live = live;
	a->timeout_ms = timeout_ms;
	t->loop = loop;
	t->from_tty = (struct loop_source){ .fd = t->tty, .on_ready = on_tty };
	t->from_master = (struct loop_source){ .fd = t->master, .on_ready = on_master };
	r = loop_add(loop, &t->from_tty, EPOLLIN);
	if (r == 0)
		r = loop_add(loop, &t->from_master, EPOLLIN);
	if (r == 0)
		set_raw(t, true);
	return r;
}

/* ---- asking ---- */

/* A line of Weir's own, printable ASCII; no question stands there. */
static void terminal_say(struct terminal *t, const char *text)
{
	put_own(t, "weir: ");
	put_own(t, text);
	put_own(t, "\r\n");
	flush_tty(t);
	update_interest(t);
}

/* The question is over without an answer: say @why. */
static void terminal_take_back(struct terminal *t, const char *why)
{
	if (!t->asks)
		return;
	t->asks = false;
	put_own(t, why);
	put_own(t, "\r\n");
	have_redrawn(t);
	flush_tty(t);
	update_interest(t);
}

/* ---- size, stops, what Weir prints ---- */

void terminal_resize(struct terminal *t)
{
	struct winsize size;

	if (t->tty >= 0 && ioctl(t->tty, TIOCGWINSZ, &size) == 0)
		(void)!ioctl(t->master, TIOCSWINSZ, &size);
	if (!t->asks)
		return;
	put_question(t);
	flush_tty(t);
	update_interest(t);
}

void terminal_pause(struct terminal *t)
{
	if (t->tty < 0 || !t->loop)
		return;
	/* What the command printed before comes first. */
	read_command(t);
	if (t->asks)
		put_own(t, "\r\n");
	flush_tty(t);
	set_raw(t, false);
}

void terminal_resume(struct terminal *t)
{
	if (t->tty < 0 || !t->loop)
		return;
	set_raw(t, true);
	terminal_resize(t);
	update_interest(t);
}

/* ---- the end ---- */

/* What the command has printed is shown; the caller's terminal is as it was. */
void asking_close(struct asking *a)
{
	struct terminal *t = &a->terminal;

	t->asks = false;
	while (t->loop && t->tty >= 0) {
		struct pollfd p = { .fd = t->tty, .events = POLLOUT };
		const size_t before = t->out.used;

		read_command(t);
		if (t->out.used == 0)
			break;
		if (t->out.used > before || poll(&p, 1, CLOSE_MS) == 1)
			flush_tty(t);
		else
			t->out.used = 0;
	}
	set_raw(t, false);
	if (t->from_tty.added)
		loop_remove(t->loop, &t->from_tty);
	if (t->from_master.added)
		loop_remove(t->loop, &t->from_master);
	fd_close(&t->tty);
	fd_close(&t->master);
	fd_close(&t->slave);
	free(t->out.bytes);
	free(t->in.bytes);
	terminal_init(t);
	a->live = NULL;
}

/* === who waits === */

#define WHO	    "terminal"
#define ONCE	    "1m"
#define TEN_MINUTES "10m"

static_assert((int)ASKING_MAX < (int)RUN_REVIEWS_MAX,
	      "a task that is asked for has to stay");

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

static void refuse_first(struct asking *a)
{
	struct review *t = first_task(a);
	struct err err = { 0 };

	if (t && t->state == REVIEW_OPEN && live_dismiss(a->live, t, WHO, &err) < 0)
		terminal_say(&a->terminal, SHOWN(err.text));
	drop_first(a);
}

static void on_answer(struct terminal *terminal, enum prompt_answer answer)
{
	struct asking *a = CONTAINER_OF(terminal, struct asking, terminal);
	const char *length = answer == PROMPT_ONCE	    ? ONCE
			     : answer == PROMPT_TEN_MINUTES ? TEN_MINUTES
							    : "";
	char rule[REVIEW_RULE_SIZE], line[REVIEW_RULE_SIZE + 64];
	struct err err = { 0 };
	struct review *t;

	if (a->count == 0)
		return;
	loop_timer_stop(terminal->loop, &a->patience);
	t = first_task(a);
	if (answer == PROMPT_NONE) {
		while (a->count > 0)
			refuse_first(a);
		return;
	}
	if (!t || t->state != REVIEW_OPEN || answer == PROMPT_NO) {
		refuse_first(a);
		return;
	}
	if (live_accept(a->live, t, length, WHO, &err) < 0) {
		terminal_say(terminal, SHOWN(err.text));
	} else if (answer == PROMPT_ALWAYS && review_rule(t, rule)) {
		snprintf(line, sizeof(line),
			 "to allow it always, add to the policy: - %s", rule);
		terminal_say(terminal, line);
	}
	drop_first(a);
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
}

static size_t find_item(const struct asking *a, int64_t task)
{
	size_t i = 0;

	while (i < a->count && a->items[i].task != task)
		i++;
	return i;
}

bool asking_has(const struct asking *a, int64_t task)
{
	return find_item(a, task) < a->count;
}

void asking_note(struct asking *a, const struct review *t, const char *command)
{
	const size_t i = t ? find_item(a, t->id) : 0;

	if (!a->live || !t || t->state != REVIEW_OPEN || i == ASKING_MAX)
		return;
	if (i == a->count) {
		a->items[a->count++] = (struct asking_item){ .task = t->id };
		snprintf(a->items[i].command, PROMPT_COMMAND_SIZE, "%s", command);
	}
	a->items[i].at_ms = loop_now_ms(a->terminal.loop);
	if (i == 0 && a->patience.slot > 0)
		(void)!loop_timer_start(a->terminal.loop, &a->patience,
					a->items[0].at_ms + a->timeout_ms);
}

/* Ask for @task, the first one's. No other question may stand there. */
static void put_first(struct asking *a, const struct review *task)
{
	struct terminal *t = &a->terminal;
	struct prompt_question q = { .port = task->port,
				     .is_udp = task->protocol == IPPROTO_UDP,
				     .more = a->count - 1 };

	snprintf(q.what, sizeof(q.what), "%s", task->destination);
	snprintf(q.command, sizeof(q.command), "%s", a->items[0].command);
	snprintf(q.like, sizeof(q.like), "%s", task->looks_like);
	if (loop_timer_start(t->loop, &a->patience, a->items[0].at_ms + a->timeout_ms) <
	    0)
		return;
	if (t->tty < 0 || !t->loop) {
		on_answer(t, PROMPT_NO);
		return;
	}
	t->question = q;
	prompt_begin(&t->prompt, loop_now_ms(t->loop));
	t->asks = true;
	put_question(t);
	flush_tty(t);
	update_interest(t);
}

void asking_turn(struct asking *a)
{
	struct review *t;

	while (a->live && a->count > 0) {
		/* The first task was refused while others were asked for. */
		const bool is_late = !a->terminal.asks &&
				     loop_now_ms(a->terminal.loop) >=
					     a->items[0].at_ms + a->timeout_ms;

		t = first_task(a);
		if (t && t->state == REVIEW_OPEN && !is_late)
			break;
		terminal_take_back(&a->terminal, "decided elsewhere");
		drop_first(a);
	}
	if (a->live && a->count > 0 && !a->terminal.asks)
		put_first(a, t);
}
