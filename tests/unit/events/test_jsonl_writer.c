// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/jsonl_writer.h"
#include "unit.h"

enum { PATIENCE_MS = 60000 };

static char folder[64], path[96];

static int set_up(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/weir-jsonl-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/events.jsonl", folder);
	return 0;
}

static int tear_down(void **state)
{
	DIR *d = opendir(folder);
	const struct dirent *e;

	while ((e = readdir(d)))
		(void)!unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	return rmdir(folder);
}

static struct jsonl_writer *open_writer(uint64_t file_bytes)
{
	const struct jsonl_config config = { .where = path,
					     .files = { .file_bytes = file_bytes } };
	struct jsonl_writer *w = NULL;
	struct err err = { 0 };

	assert_int_equal(jsonl_writer_new(&config, &w, &err), 0);
	return w;
}

static void add(struct jsonl_writer *w, const char *name, uint64_t packets)
{
	struct event_row row = {
		.event = { .action = EVENT_DENY, .layer = EVENT_DNS, .packets = packets }
	};

	snprintf(row.event.name, sizeof(row.event.name), "%s", name);
	jsonl_writer_add(w, &row);
}

static size_t count_files(void)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	size_t n = 0;

	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* When @rows have been written or counted as lost. */
static struct jsonl_state settled(struct jsonl_writer *w, uint64_t rows)
{
	struct jsonl_state st;

	for (int ms = 0; ms < PATIENCE_MS; ms++) {
		jsonl_writer_state(w, &st);
		if (st.rows + st.lost_rows == rows)
			return st;
		usleep(1000);
	}
	fail_msg("not all rows were written");
	return st;
}

TEST_WITH(each_event_is_a_line, set_up, tear_down)
{
	struct jsonl_writer *w = open_writer(0);
	struct jsonl_state st;
	char text[EVENT_JSON_SIZE * 2] = "";
	FILE *f;

	add(w, "a.test", 1);
	add(w, "b\n.test", 2);
	st = settled(w, 2);
	assert_int_equal(st.rows, 2);
	assert_int_equal(st.lost_rows, 0);
	assert_string_equal(st.trouble, "");
	jsonl_writer_free(w);
	f = fopen(path, "re");
	assert_int_equal(fread(text, 1, sizeof(text), f) > 0, 1);
	fclose(f);
	assert_non_null(strstr(text, "\"name\":\"b\\u000a.test\""));
	assert_ptr_equal(strrchr(text, '\n'), text + strlen(text) - 1);
}

TEST_WITH(a_big_file_is_turned_over, set_up, tear_down)
{
	struct jsonl_writer *w = open_writer(4096);

	for (int i = 0; i < 40; i++)
		add(w, "a.test", 1);
	settled(w, 40);
	assert_true(count_files() > 1);
	jsonl_writer_free(w);
}

TEST_WITH(what_cannot_be_written_is_counted, set_up, tear_down)
{
	struct jsonl_writer *w;
	struct jsonl_state st;

	assert_int_equal(mkdir(path, 0700), 0);
	w = open_writer(0);
	add(w, "a.test", 3);
	add(w, "b.test", 4);
	st = settled(w, 2);
	assert_int_equal(st.rows, 0);
	assert_int_equal(st.lost_rows, 2);
	assert_int_equal(st.lost_packets, 7);
	assert_non_null(strstr(st.trouble, "not a regular file"));
	/* And used again as soon as somebody has made room. */
	assert_int_equal(rmdir(path), 0);
	jsonl_writer_reopen(w);
	add(w, "c.test", 1);
	st = settled(w, 3);
	assert_int_equal(st.rows, 1);
	assert_string_equal(st.trouble, "");
	jsonl_writer_free(w);
}
