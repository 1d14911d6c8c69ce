// SPDX-License-Identifier: Apache-2.0
#include "run/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/term.h"

enum { CLOSE_MS = 2000 }; /* a terminal that takes nothing loses the rest */

/* Whatever the command left the terminal in: an unfinished sequence is cancelled, and
 * so are other alphabets, a part of the screen that scrolls, by lines or columns,
 * insertion, lines that don't wrap, colours, what their numbers and the default ones
 * mean, and an update that isn't shown before it is whole. Below the question is
 * nothing. */
#define PLAIN_SCREEN                                                                     \
	"\030\033\\\017\033(B\0337\033[r\033[?69l\033[?6l\033[4l\0338\033[?7h\033[0m"    \
	"\033]104\033\\\033]110\033\\\033]111\033\\\033[?2026l"
#define CLEAR_BELOW "\033[J"

/* ---- opening ---- */

void terminal_init(struct terminal *t)
{
	*t = (struct terminal){ .tty = -1, .master = -1, .slave = -1 };
	t->from_tty.fd = t->from_master.fd = -1;
}

static int open_pty(struct terminal *t)
{
	struct winsize size;
	int unlock = 0;

	t->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (t->master < 0 || ioctl(t->master, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	t->slave = ioctl(t->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (t->slave < 0 || tcsetattr(t->slave, TCSANOW, &t->before) < 0)
		return -errno;
	if (ioctl(t->tty, TIOCGWINSZ, &size) == 0)
		(void)!ioctl(t->master, TIOCSWINSZ, &size);
	return 0;
}

int terminal_open(struct terminal *t, struct err *err)
{
	int r;

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
	r = t->out.bytes && t->in.bytes ? open_pty(t) : -ENOMEM;
	return r < 0 ? err_sys(err, r, "--ask tty: cannot make the command's terminal")
		     : 0;
}

/* ---- modes ---- */

static void set_raw(struct terminal *t)
{
	struct termios raw = t->before;

	if (t->tty < 0 || t->is_raw)
		return;
	cfmakeraw(&raw);
	t->is_raw = tcsetattr(t->tty, TCSANOW, &raw) == 0;
}

static void set_as_before(struct terminal *t)
{
	if (t->tty >= 0 && t->is_raw)
		(void)!tcsetattr(t->tty, TCSANOW, &t->before);
	t->is_raw = false;
}

/* ---- carrying ---- */

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
	t->on_answer(t, PROMPT_NO);
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
	put_own(t, is_dumb ? "\r\nweir: "
			   : PLAIN_SCREEN "\r\n" CLEAR_BELOW "\033[7mweir:\033[0m ");
	put_own(t, prompt_text(&t->question, size.ws_col, text));
}

/* Raw mode shows nothing by itself. */
static void echo_key(struct terminal *t, uint8_t key)
{
	const char text[] = { (char)key, '\0' };

	if (t->prompt.sequence == SEQUENCE_NONE && t->prompt.letter == key && key > ' ' &&
	    key < 0x7f)
		put_own(t, text);
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
		else if (a == PROMPT_WAITS)
			echo_key(t, keys[i]);
		if (a == PROMPT_WAITS || a == PROMPT_NOT_AN_ANSWER)
			continue;
		/* What came behind it was no answer to what comes now. */
		t->asks = false;
		put_own(t, "\r\n");
		have_redrawn(t);
		t->on_answer(t, a);
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

int terminal_serve(struct terminal *t, struct loop *loop)
{
	int r;

	t->loop = loop;
	t->from_tty = (struct loop_source){ .fd = t->tty, .on_ready = on_tty };
	t->from_master = (struct loop_source){ .fd = t->master, .on_ready = on_master };
	r = loop_add(loop, &t->from_tty, EPOLLIN);
	if (r == 0)
		r = loop_add(loop, &t->from_master, EPOLLIN);
	if (r == 0)
		set_raw(t);
	return r;
}

/* ---- asking ---- */

void terminal_ask(struct terminal *t, const struct prompt_question *q)
{
	if (t->tty < 0 || !t->loop) {
		t->on_answer(t, PROMPT_NO);
		return;
	}
	t->question = *q;
	prompt_begin(&t->prompt, loop_now_ms(t->loop));
	t->asks = true;
	put_question(t);
	flush_tty(t);
	update_interest(t);
}

void terminal_say(struct terminal *t, const char *text)
{
	put_own(t, "weir: ");
	put_own(t, text);
	put_own(t, "\r\n");
	flush_tty(t);
	update_interest(t);
}

void terminal_take_back(struct terminal *t, const char *why)
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
	set_as_before(t);
}

void terminal_resume(struct terminal *t)
{
	if (t->tty < 0 || !t->loop)
		return;
	set_raw(t);
	terminal_resize(t);
	update_interest(t);
}

/* ---- the end ---- */

/* Return: whether there may be more. */
static bool show_more(struct terminal *t)
{
	struct pollfd p = { .fd = t->tty, .events = POLLOUT };
	const size_t before = t->out.used;

	read_command(t);
	if (t->out.used == 0)
		return false;
	if (t->out.used > before || poll(&p, 1, CLOSE_MS) == 1)
		flush_tty(t);
	else
		t->out.used = 0;
	return t->tty >= 0;
}

void terminal_close(struct terminal *t)
{
	t->asks = false;
	while (t->loop && t->tty >= 0 && show_more(t))
		;
	set_as_before(t);
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
}
