// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

static int64_t read_ms(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t clock_now_ms(void)
{
	return read_ms(CLOCK_BOOTTIME);
}

/* In this order: what is between the two readings is never taken for a suspend. */
int64_t clock_slept_ms(void)
{
	const int64_t boot_ms = read_ms(CLOCK_BOOTTIME);

	return boot_ms - read_ms(CLOCK_MONOTONIC);
}

int64_t clock_wall_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}

/* ---- as text ---- */

/* Exactly @count digits, at most @max. */
static bool take_digits(struct text *t, size_t count, int max, int *ret)
{
	int value = 0;

	if (t->len < count)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (t->ptr[i] < '0' || t->ptr[i] > '9')
			return false;
		value = value * 10 + (t->ptr[i] - '0');
	}
	t->ptr += count;
	t->len -= count;
	*ret = value;
	return value <= max;
}

static bool take_char(struct text *t, const char *any)
{
	if (t->len == 0 || *t->ptr == '\0' || !strchr(any, *t->ptr))
		return false;
	t->ptr++;
	t->len--;
	return true;
}

enum { LEAP_YEARS_TO_1969 = 477 };

struct date {
	int year, month, day, hour, minute, second;
};

static int days_of(int year, int month)
{
	static const int8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	return days[month - 1] + (month == 2 && is_leap);
}

static bool take_clock(struct text *t, struct date *d, int *ret_ms)
{
	int weight = 100;

	*ret_ms = 0;
	if (!take_digits(t, 2, 23, &d->hour) || !take_char(t, ":") ||
	    !take_digits(t, 2, 59, &d->minute) || !take_char(t, ":") ||
	    !take_digits(t, 2, 60, &d->second))
		return false;
	if (!take_char(t, "."))
		return true;
	if (t->len == 0 || !isdigit((unsigned char)*t->ptr))
		return false;
	for (int digit; take_digits(t, 1, 9, &digit); weight /= 10)
		*ret_ms += digit * weight;
	return true;
}

bool timestamp_parse(struct text t, int64_t *ret_ms)
{
	struct date d = { 0 };
	int64_t days, seconds;
	int ms, sign, hours = 0, minutes = 0;

	if (!take_digits(&t, 4, 9999, &d.year) || !take_char(&t, "-") ||
	    !take_digits(&t, 2, 12, &d.month) || !take_char(&t, "-") ||
	    !take_digits(&t, 2, 31, &d.day) || !take_char(&t, "Tt ") || d.year < 1970 ||
	    d.month == 0 || d.day == 0 || d.day > days_of(d.year, d.month))
		return false;
	if (!take_clock(&t, &d, &ms))
		return false;
	sign = t.len > 0 && *t.ptr == '-' ? -1 : 1;
	if (!take_char(&t, "Zz") &&
	    (!take_char(&t, "+-") || !take_digits(&t, 2, 23, &hours) ||
	     !take_char(&t, ":") || !take_digits(&t, 2, 59, &minutes)))
		return false;
	if (t.len > 0)
		return false;
	/* Every leap year up to the one before; there were LEAP_YEARS_TO_1969. */
	days = (int64_t)365 * (d.year - 1970) + (d.year - 1) / 4 - (d.year - 1) / 100 +
	       (d.year - 1) / 400 - LEAP_YEARS_TO_1969 + d.day - 1;
	for (int month = 1; month < d.month; month++)
		days += days_of(d.year, month);
	seconds = ((days * 24 + d.hour) * 60 + d.minute) * 60 + MIN(d.second, 59);
	*ret_ms = (seconds - sign * (hours * 3600 + minutes * 60)) * 1000 + ms;
	return true;
}
