// SPDX-License-Identifier: Apache-2.0
/* How long a large policy takes: reading, checking and compiling it, and one match.
 *
 *   bench_policy NAMES ROUNDS
 *
 * Prints one JSON object with the medians of all rounds, in CPU time. The policy is a
 * list file of NAMES names below a thousand domains, one in ten a wildcard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/text.h"
#include "policy/policy.h"

enum { ROUNDS_MAX = 100, MATCHES = 1000000, QUERIES = 4096, LINE_MAX_SIZE = 64 };

/* The process's own time: other programs on the machine don't count. */
static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int compare_ns(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double median(int64_t *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare_ns);
	return (double)values[count / 2];
}

static char *make_list(uint32_t names, size_t *ret_size)
{
	char *text = malloc((size_t)names * LINE_MAX_SIZE);
	size_t used = 0;

	for (uint32_t i = 0; text && i < names; i++)
		used += (size_t)snprintf(text + used, LINE_MAX_SIZE,
					 "%shost-%u.zone-%u.example.org\n",
					 i % 10 == 0 ? "*." : "", i, i % 1000);
	*ret_size = used;
	return text;
}

static int load(void *data, const char *name, const char *from, struct text *ret_text,
		const char **ret_path, struct err *err)
{
	*ret_text = *(const struct text *)data;
	*ret_path = name;
	return 0;
}

static uint8_t *build(struct text list, size_t *ret_size)
{
	static const char document[] = "allow-list: names.txt\n";
	CLEAN(arena) struct arena arena = { 0 };
	struct faults faults = { 0 };
	const struct policy_reader reader = {
		.arena = &arena, .faults = &faults, .load = load, .load_data = &list
	};
	struct policy policy = { 0 };
	uint8_t *bytes = NULL;

	if (policy_read(&reader, "p.yaml", text_of(document), POLICY_FORMAT_YAML,
			&policy) < 0 ||
	    policy_build(&reader, &policy, &bytes, ret_size) < 0)
		fputs("cannot build the policy\n", stderr);
	faults_done(&faults);
	return bytes;
}

static double match_ns(const struct plan *plan, uint32_t names, uint32_t *ret_allowed)
{
	static struct dns_name queries[QUERIES];
	char text[LINE_MAX_SIZE];
	int64_t began;

	/* Far apart in the list, a third of them in no rule. */
	for (uint32_t i = 0; i < QUERIES; i++) {
		uint32_t n = (uint32_t)((uint64_t)i * 2654435761u % (names + names / 2));

		snprintf(text, sizeof(text), "host-%u.zone-%u.example.org", n, n % 1000);
		if (dns_name_parse(text_of(text), &queries[i]) < 0)
			return -1;
	}
	*ret_allowed = 0;
	began = now_ns();
	for (uint32_t i = 0; i < MATCHES; i++)
		*ret_allowed += plan_match_name(plan, &queries[i % QUERIES]).action ==
				POLICY_ALLOW;
	return (double)(now_ns() - began) / MATCHES;
}

int main(int argc, char **argv)
{
	int64_t times[ROUNDS_MAX];
	uint32_t names = 100000, rounds = 11, allowed = 0;
	struct rusage usage;
	struct plan plan;
	size_t list_size, size = 0;
	uint8_t *bytes = NULL;
	char *list;

	if ((argc > 1 && !text_to_u32(text_of(argv[1]), 1000000, &names)) ||
	    (argc > 2 && !text_to_u32(text_of(argv[2]), ROUNDS_MAX, &rounds)) ||
	    names == 0 || rounds == 0)
		return 2;
	list = make_list(names, &list_size);
	for (uint32_t i = 0; list && i < rounds; i++) {
		int64_t began = now_ns();

		free(bytes);
		bytes = build((struct text){ list, list_size }, &size);
		times[i] = now_ns() - began;
	}
	if (!bytes || plan_open(bytes, size, &plan, NULL) < 0)
		return 1;
	printf("{\"names\": %u, \"check_and_compile_ms\": %.1f, ", names,
	       median(times, rounds) / 1e6);
	printf("\"match_ns\": %.0f, ", match_ns(&plan, names, &allowed));
	getrusage(RUSAGE_SELF, &usage);
	printf("\"plan_mb\": %.1f, \"peak_mb\": %ld, \"allowed\": %u}\n",
	       (double)size / 1e6, usage.ru_maxrss / 1024, allowed);
	free(bytes);
	free(list);
	return 0;
}
