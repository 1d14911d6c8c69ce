// SPDX-License-Identifier: Apache-2.0
/* What weir-init calls of the C library without a system call: see libc.c. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "launch/init_errors.h" /* generated: errors[] */

/* -- memory and text ----------------------------------------------------------------- */

void *memcpy(void *to, const void *from, size_t n)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	while (n-- > 0)
		*t++ = *f++;
	return to;
}

void *memset(void *to, int byte, size_t n)
{
	uint8_t *t = to;

	while (n-- > 0)
		*t++ = (uint8_t)byte;
	return to;
}

int memcmp(const void *one, const void *other, size_t n)
{
	const uint8_t *a = one, *b = other;

	for (; n > 0; n--, a++, b++)
		if (*a != *b)
			return *a < *b ? -1 : 1;
	return 0;
}

void *memchr(const void *bytes, int c, size_t n)
{
	const uint8_t *b = bytes;

	for (; n > 0; n--, b++)
		if (*b == (uint8_t)c)
			return (void *)(uintptr_t)b;
	return NULL;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

char *strchr(const char *s, int c)
{
	while (*s && *s != (char)c)
		s++;
	return *s == (char)c ? (char *)(uintptr_t)s : NULL;
}

size_t strcspn(const char *s, const char *ends)
{
	size_t n = 0;

	while (s[n] && !strchr(ends, s[n]))
		n++;
	return n;
}

char *strerror(int error)
{
	const char *text = "unknown error";

	if (error >= 0 && (size_t)error < ARRAY_SIZE(errors) && errors[error])
		text = errors[error];
	return (char *)(uintptr_t)text;
}

struct out {
	char *bytes;
	size_t size, used; /* used counts what didn't fit as well */
};

static void put(struct out *o, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++, o->used++)
		if (o->used + 1 < o->size)
			o->bytes[o->used] = text[i];
}

static void put_number(struct out *o, unsigned int n, unsigned int base)
{
	char digits[12];
	size_t first = sizeof(digits);

	do
		digits[--first] = "0123456789abcdef"[n % base];
	while ((n /= base) > 0);
	put(o, digits + first, sizeof(digits) - first);
}

static void end(struct out *o)
{
	if (o->size > 0)
		o->bytes[MIN(o->used, o->size - 1)] = '\0';
}

/* %s, %.*s and %u. */
int snprintf(char *bytes, size_t size, const char *format, ...)
{
	struct out o = { bytes, size, 0 };
	va_list ap;

	va_start(ap, format);
	for (; *format; format++) {
		size_t max = SIZE_MAX, len = 0;
		const char *text;

		if (*format != '%') {
			put(&o, format, 1);
			continue;
		}
		if (format[1] == '.' && format[2] == '*') {
			max = (size_t)va_arg(ap, int);
			format += 2;
		}
		format++;
		if (*format == 'u') {
			put_number(&o, va_arg(ap, unsigned int), 10);
			continue;
		}
		if (*format != 's')
			_exit(EXIT_FAILURE);
		text = va_arg(ap, const char *);
		while (len < max && text[len])
			len++;
		put(&o, text, len);
	}
	va_end(ap);
	end(&o);
	return (int)o.used;
}

/* -- addresses ----------------------------------------------------------------------- */

/* RFC 5952: the first of the longest runs of zeros, of two words at least, is "::". */
static void put_v6(struct out *o, const uint8_t *bytes)
{
	size_t run = 8, longest = 1;
	unsigned int words[8];

	for (size_t i = 0; i < 8; i++)
		words[i] = (unsigned int)(bytes[2 * i] << 8 | bytes[2 * i + 1]);

	for (size_t i = 0; i < 8; i++) {
		size_t n = 0;

		while (i + n < 8 && words[i + n] == 0)
			n++;
		if (n > longest) {
			run = i;
			longest = n;
		}
	}
	for (size_t i = 0; i < 8; i++) {
		if (i == run) {
			put(o, "::", 2);
			i += longest - 1;
			continue;
		}
		if (i > 0 && i != run + longest)
			put(o, ":", 1);
		put_number(o, words[i], 16);
	}
}

const char *inet_ntop(int family, const void *bytes, char *text, socklen_t size)
{
	struct out o = { text, size, 0 };
	const uint8_t *v4 = bytes;

	if (family != AF_INET)
		put_v6(&o, bytes);
	for (size_t i = 0; family == AF_INET && i < 4; i++) {
		if (i > 0)
			put(&o, ".", 1);
		put_number(&o, v4[i], 10);
	}
	end(&o);
	return text;
}
