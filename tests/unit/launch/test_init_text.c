// SPDX-License-Identifier: Apache-2.0
/* What weir-init has in place of the C library says what the C library says. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int own_snprintf(char *bytes, size_t size, const char *format, ...);
const char *own_inet_ntop(int family, const void *bytes, char *text, socklen_t size);
char *own_strerror(int error);
size_t own_strlen(const char *s);
char *own_strchr(const char *s, int c);
size_t own_strcspn(const char *s, const char *ends);
void *own_memcpy(void *to, const void *from, size_t n);
void *own_memset(void *to, int byte, size_t n);
int own_memcmp(const void *one, const void *other, size_t n);
void *own_memchr(const void *bytes, int c, size_t n);

#undef snprintf
#undef strerror
#undef strlen
#undef strchr
#undef strcspn
#undef memcpy
#undef memset
#undef memcmp
#undef memchr
#define snprintf  own_snprintf
#define inet_ntop own_inet_ntop
#define strerror  own_strerror
#define strlen	  own_strlen
#define strchr	  own_strchr
#define strcspn	  own_strcspn
#define memcpy	  own_memcpy
#define memset	  own_memset
#define memcmp	  own_memcmp
#define memchr	  own_memchr
#include "../../../src/launch/init/text.c"
#undef snprintf
#undef inet_ntop
#undef strerror
#undef strlen
#undef strchr
#undef strcspn
#undef memcpy
#undef memset
#undef memcmp
#undef memchr

#include "unit.h"

TEST(test_text_is_cut_and_ended_as_the_library_does)
{
	for (size_t size = 0; size < 24; size++) {
		char own[32] = "................", libs[32] = "................";
		int a = own_snprintf(own, size, "%s: [%.*s]:%u%s", "name", 3, "abcdef",
				     4294967295u, "");
		int b = snprintf(libs, size, "%s: [%.*s]:%u%s", "name", 3, "abcdef",
				 4294967295u, "");

		assert_int_equal(a, b);
		assert_memory_equal(own, libs, sizeof(own));
	}
}

TEST(test_addresses_are_written_as_the_library_does)
{
	static const char *const all[] = {
		"0.0.0.0",
		"255.1.20.3",
		"::",
		"::1",
		"1::",
		"2001:db8::1",
		"1:0:0:2:0:0:0:3",
		"1:0:0:2::",
		"0:1::2:0",
		"1:0:2:3:4:5:6:7",
		"fe80::1:0:0:1",
		"1:2:3:4:5:6:7:8",
		"0:1:2:3:4:5:6:0",
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int family = strchr(all[i], ':') ? AF_INET6 : AF_INET;
		char own[INET6_ADDRSTRLEN], libs[INET6_ADDRSTRLEN];
		uint8_t bytes[16];

		assert_int_equal(inet_pton(family, all[i], bytes), 1);
		inet_ntop(family, bytes, libs, sizeof(libs));
		own_inet_ntop(family, bytes, own, sizeof(own));
		assert_string_equal(own, libs);
	}
}

TEST(test_errors_have_the_librarys_texts)
{
	for (int error = 1; error < 134; error++)
		if (strstr(strerror(error), "Unknown error") == NULL)
			assert_string_equal(own_strerror(error), strerror(error));
	assert_string_equal(own_strerror(-1), "unknown error");
	assert_string_equal(own_strerror(100000), "unknown error");
}

TEST(test_bytes_and_strings)
{
	char copy[8] = "xxxxxxx";

	own_memcpy(copy, "abcdefg", 4);
	own_memset(copy + 4, 'z', 2);
	assert_string_equal(copy, "abcdzzx");
	assert_true(own_memcmp("ab\xff", "ab\x01", 3) > 0);
	assert_true(own_memcmp("ab", "ac", 2) < 0);
	assert_int_equal(own_memcmp("ab", "ac", 1), 0);
	assert_ptr_equal(own_memchr(copy, 'c', 7), copy + 2);
	assert_ptr_equal(own_memchr(copy, 'c', 2), NULL);
	assert_int_equal(own_strlen(""), 0);
	assert_int_equal(own_strcspn("a=b:c", ":="), 1);
	assert_int_equal(own_strcspn("abc", "="), 3);
	assert_ptr_equal(own_strchr(copy, 'q'), NULL);
	assert_ptr_equal(own_strchr(copy, '\0'), copy + 7);
}
