// SPDX-License-Identifier: Apache-2.0
/* name_server ADDRESS ANSWER - says each name that it is asked for, and answers every
 * question for an IPv4 address with ANSWER. For the emulated machine, which has no other.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { HEADER = 12, QUESTION_END = 5, RECORD = 16, NAME_SIZE = 256 };

/* Return: the size of the question behind the header; 0, it is no question. */
static size_t read_question(const uint8_t *bytes, size_t size, char *ret_name)
{
	size_t at = HEADER, written = 0;

	while (at < size && bytes[at] != 0) {
		size_t len = bytes[at++];

		if (at + len >= size || written + len + 2 > NAME_SIZE)
			return 0;
		memcpy(ret_name + written, bytes + at, len);
		written += len;
		ret_name[written++] = '.';
		at += len;
	}
	ret_name[written] = '\0';
	return at + QUESTION_END <= size ? at + QUESTION_END - HEADER : 0;
}

static size_t answer(uint8_t *bytes, size_t question, const char *address)
{
	const uint8_t record[RECORD] = { 0xc0, HEADER, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4 };
	size_t end = HEADER + question;
	int is_ipv4 = bytes[end - 3] == 1;

	bytes[2] |= 0x84;
	bytes[3] = 0x80;
	memset(bytes + 6, 0, 6);
	bytes[7] = (uint8_t)is_ipv4;
	if (!is_ipv4)
		return end;
	memcpy(bytes + end, record, RECORD);
	inet_pton(AF_INET, address, bytes + end + RECORD - 4);
	return end + RECORD;
}

int main(int argc, char **argv)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(53) }, from;
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc != 3 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1 ||
	    bind(s, (struct sockaddr *)&here, sizeof(here)) < 0)
		return 1;
	for (;;) {
		uint8_t bytes[1024];
		char name[NAME_SIZE];
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(s, bytes, sizeof(bytes) - RECORD, 0,
				     (struct sockaddr *)&from, &size);
		size_t question = n > HEADER ? read_question(bytes, (size_t)n, name) : 0;

		if (question == 0)
			continue;
		printf("asked: %s\n", name);
		fflush(stdout);
		sendto(s, bytes, answer(bytes, question, argv[2]), 0,
		       (struct sockaddr *)&from, size);
	}
}
