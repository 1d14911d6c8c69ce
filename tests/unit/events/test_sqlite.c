// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "events/sqlite_file.h"

#define T0 INT64_C(1763633203424)

enum { PATIENCE_MS = 60 * 1000 }; /* a bound for a hang */

static char directory[64];

static int make_directory(void **state)
{
	snprintf(directory, sizeof(directory), "/tmp/weir-sqlite-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static size_t remove_like(const char *part, bool remove_them)
{
	DIR *d = opendir(directory);
	const struct dirent *e;
	char path[PATH_MAX];
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' || !strstr(e->d_name, part))
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
		n++;
		if (remove_them)
			remove(path);
	}
	closedir(d);
	return n;
}

static int remove_directory(void **state)
{
	remove_like("", true);
	return rmdir(directory);
}

static int open_file(uint64_t max_bytes, sqlite3 **ret)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = max_bytes };

	return sqlite_file_open(&config, ret, NULL);
}

static int64_t wall_ms(void)
{
	return T0 + 60 * 1000;
}

static int64_t no_time_passes(void)
{
	return 0;
}

/* By these clocks no row of T0 is too old to be kept, whenever the writer tidies. */
static const struct sqlite_clock clock_of_then = { clock_now_ms, wall_ms },
				 still_clock = { no_time_passes, wall_ms };

static struct sqlite_writer *writer_by(const struct sqlite_clock *clock,
				       uint64_t max_bytes)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = max_bytes,
					      .clock = clock };
	struct sqlite_writer *w = NULL;

	assert_int_equal(sqlite_writer_new(&config, &w, NULL), 0);
	return w;
}

static struct sqlite_writer *writer(uint64_t max_bytes)
{
	return writer_by(&clock_of_then, max_bytes);
}

/* Its window ends when it is drained, however slow the machine is. */
static struct sqlite_writer *writer_of_one_window(void)
{
	return writer_by(&still_clock, 0);
}

static struct sqlite_reader *reader(void)
{
	struct sqlite_reader *r = NULL;
	struct err err = { 0 };

	if (sqlite_reader_open(directory, 5000, &r, &err) < 0)
		fail_msg("%s", err.text);
	return r;
}

static struct event_row denied(const char *name, int64_t ts_ms)
{
	struct event e = { .ts_ms = ts_ms,
			   .packets = 1,
			   .bytes = 60,
			   .rule = EVENT_NO_RULE,
			   .uid = 1000,
			   .action = EVENT_DENY,
			   .layer = EVENT_DNS,
			   .query_type = 1 };
	struct event_row row;

	snprintf(e.name, sizeof(e.name), "%s", name);
	snprintf(e.reason, sizeof(e.reason), "no rule allows it");
	event_row_fill(&row, &e, "sb-1", NULL);
	return row;
}

static struct event_row refused(struct addr remote, uint16_t port)
{
	struct event_row row = denied("", T0);

	row.event.layer = EVENT_ADDRESS;
	row.event.query_type = 0;
	row.event.remote = remote;
	row.event.port = port;
	row.event.protocol = IPPROTO_TCP;
	return row;
}

/* To free a writer alone is to lose what a slow machine doesn't write in time. */
static void end(struct sqlite_writer *w)
{
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_free(w);
}

struct found {
	struct event_row rows[16];
	int64_t ids[16];
	size_t count, most;
};

static bool keep(void *data, int64_t id, const struct event_row *row)
{
	struct found *f = data;

	f->ids[f->count] = id;
	f->rows[f->count++] = *row;
	return f->count < f->most;
}

static struct found find(struct sqlite_query q)
{
	struct sqlite_reader *r = reader();
	struct found f = { .most = 16 };

	assert_int_equal(sqlite_find(r, &q, keep, &f, NULL), 0);
	sqlite_reader_close(r);
	return f;
}

static bool add_to_sum(void *data, int64_t id, const struct event_row *row)
{
	struct sqlite_sum *sum = data;

	sum->rows++;
	sum->packets += row->event.packets;
	return true;
}

static struct sqlite_sum count(struct sqlite_query q)
{
	struct sqlite_reader *r = reader();
	struct sqlite_sum sum = { 0 };

	q.max = SIZE_MAX / 2;
	assert_int_equal(sqlite_find(r, &q, add_to_sum, &sum, NULL), 0);
	sqlite_reader_close(r);
	return sum;
}

TEST_WITH(what_was_added_is_found_as_it_was, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer(0);
	struct event_row row = refused(addr_v4(192, 0, 2, 7), 8443);
	struct found f;

	snprintf(row.rule, sizeof(row.rule), "deny 192.0.2.0/24");
	snprintf(row.rule_file, sizeof(row.rule_file), "p.yaml");
	snprintf(row.event.command, sizeof(row.event.command), "curl");
	row.rule_line = 3;
	row.event.pid = 42;
	row.event.limit = 2;
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	f = find((struct sqlite_query){ 0 });
	assert_int_equal(f.count, 1);
	assert_memory_equal(&f.rows[0], &row, sizeof(row));
	sqlite_writer_free(w);
}

TEST_WITH(equal_events_become_one_row_and_others_do_not, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer_of_one_window();
	struct event_row row = refused(addr_v4(192, 0, 2, 7), 443), other = row;
	struct sqlite_state s;
	struct found f;

	for (int i = 0; i < 100; i++) {
		row.event.ts_ms = T0 + 100 - i;
		sqlite_writer_add(w, &row);
	}
	other.event.port = 80;
	sqlite_writer_add(w, &other);
	other = row;
	snprintf(other.sandbox, sizeof(other.sandbox), "sb-2");
	sqlite_writer_add(w, &other);
	other = row;
	other.event.protocol = IPPROTO_UDP;
	sqlite_writer_add(w, &other);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.rows, 4);
	assert_int_equal(s.packets, 103);
	assert_int_equal(s.lost_rows, 0);
	f = find((struct sqlite_query){ .sandbox = "sb-1",
					.remote = addr_v4(192, 0, 2, 7) });
	assert_int_equal(f.count, 3);
	assert_int_equal(f.rows[0].event.packets + f.rows[1].event.packets +
				 f.rows[2].event.packets,
			 102);
	/* The first of each counts: the port 80 one was at T0. */
	assert_int_equal(f.rows[0].event.ts_ms, T0 + 1);
	assert_int_equal(f.rows[1].event.ts_ms, T0 + 1);
	assert_int_equal(f.rows[2].event.ts_ms, T0);
	sqlite_writer_free(w);
}

static bool keep_task(void *data, const struct review *t)
{
	*(struct review *)data = *t;
	return true;
}

static bool count_task(void *data, const struct review *t)
{
	(*(size_t *)data)++;
	return true;
}

TEST_WITH(a_task_is_of_one_denial_and_not_of_parts_of_several, make_directory,
	  remove_directory)
{
	struct event_row first = refused(addr_v4(192, 0, 2, 7), 9000),
			 last = refused(addr_v4(192, 0, 2, 7), 8);
	struct sqlite_writer *w = writer(0);
	struct review_store *store = NULL;
	struct review t = { 0 };

	first.event.allowable = last.event.allowable = true;
	snprintf(first.event.advice, sizeof(first.event.advice), "192.0.2.7:tcp/9000");
	snprintf(last.event.advice, sizeof(last.event.advice), "192.0.2.7:udp/8");
	first.event.ts_ms += 10;
	last.event.protocol = IPPROTO_UDP;
	sqlite_writer_add(w, &first);
	sqlite_writer_add(w, &last);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	assert_int_equal(review_open(directory, &store, NULL), 0);
	assert_int_equal(review_list(store, REVIEW_OPEN, NULL, keep_task, &t, NULL), 0);
	assert_int_equal(t.port, 8);
	assert_int_equal(t.protocol, IPPROTO_UDP);
	assert_string_equal(t.advice, "192.0.2.7:udp/8");
	assert_int_equal(t.rows, 2);
	assert_int_equal(t.packets, 2);
	assert_int_equal(t.first_ms, T0);
	assert_int_equal(t.last_ms, T0 + 10);
	review_close(store);
	sqlite_writer_free(w);
}

TEST_WITH(what_was_changed_is_all_there, make_directory, remove_directory)
{
	static const char *const said[] = { "the sandbox was attached",
					    "the policy was changed",
					    "the policy was changed",
					    "the sandbox was detached" };
	struct sqlite_writer *w = writer_of_one_window();
	struct event_row row = { .sandbox = "sb-1", .event.packets = 1 };
	struct sqlite_state s;

	row.event.action = EVENT_CHANGE;
	row.event.layer = EVENT_LAUNCH;
	row.event.ts_ms = T0;
	row.event.rule = EVENT_NO_RULE;
	for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
		snprintf(row.event.reason, sizeof(row.event.reason), "%s", said[i]);
		sqlite_writer_add(w, &row);
	}
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.rows, 3);
	assert_int_equal(s.packets, 4);
	sqlite_writer_free(w);
}

TEST_WITH(more_than_the_window_holds_is_all_there, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer(0);
	char name[32];
	struct sqlite_sum sum;

	for (int i = 0; i < 3 * SQLITE_FOLD_MAX + 7; i++) {
		struct event_row row;

		snprintf(name, sizeof(name), "n%d.test", i);
		row = denied(name, T0 + i);
		sqlite_writer_add(w, &row);
		if (i % 200 == 0)
			assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	}
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sum = count((struct sqlite_query){ .action = EVENT_DENY });
	assert_int_equal(sum.rows, 3 * SQLITE_FOLD_MAX + 7);
	assert_int_equal(sum.packets, 3 * SQLITE_FOLD_MAX + 7);
	sqlite_writer_free(w);
}

TEST_WITH(a_window_is_written_without_being_asked, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer(0);
	struct event_row row = denied("a.test", T0);
	struct sqlite_state s = { 0 };

	sqlite_writer_add(w, &row);
	for (int i = 0; i < 3000 && s.rows == 0; i++) {
		usleep(20000);
		sqlite_writer_state(w, &s);
	}
	assert_int_equal(s.rows, 1);
	sqlite_writer_free(w);
}

TEST_WITH(each_question_finds_its_own, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer(0);
	struct event_row row;
	struct found f;

	for (int i = 0; i < 10; i++) {
		row = denied(i % 2 ? "odd.test" : "even.test", T0 + i * 1000);
		row.event.action = i < 8 ? EVENT_DENY : EVENT_ALLOW;
		row.event.query_type = (uint16_t)i; /* so that none folds */
		sqlite_writer_add(w, &row);
	}
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	assert_int_equal(count((struct sqlite_query){ .name = "odd.test" }).rows, 5);
	assert_int_equal(count((struct sqlite_query){ .name = "none.test" }).rows, 0);
	assert_int_equal(count((struct sqlite_query){ .action = EVENT_ALLOW }).rows, 2);
	assert_int_equal(
		count((struct sqlite_query){ .action = EVENT_DENY, .name = "even.test" })
			.rows,
		4);
	assert_int_equal(count((struct sqlite_query){ .since_ms = T0 + 3000,
						      .until_ms = T0 + 5000 })
				 .rows,
			 2);
	/* Newest first, page by page. */
	f = find((struct sqlite_query){ .max = 4 });
	assert_int_equal(f.count, 4);
	assert_int_equal(f.rows[0].event.ts_ms, T0 + 9000);
	const int64_t last = f.ids[3];

	f = find((struct sqlite_query){
		.max = 4, .until_ms = T0 + 6001, .below_id = last });
	assert_int_equal(f.rows[0].event.ts_ms, T0 + 5000);
	/* The order is of times: an older row may have a higher number. */
	f = find((struct sqlite_query){
		.max = 4, .until_ms = T0 + 6001, .below_id = last + 1 });
	assert_int_equal(f.rows[0].event.ts_ms, T0 + 6000);
	f = find((struct sqlite_query){ .max = 4, .until_ms = T0 + 6002, .below_id = 1 });
	assert_int_equal(f.rows[0].event.ts_ms, T0 + 6000);
	sqlite_writer_free(w);
}

TEST_WITH(hostile_text_is_stored_as_text, make_directory, remove_directory)
{
	static const char *const names[] = {
		"'); DROP TABLE event; --",
		"\x1b[2J\x1b]0;x\x07",
		"<script>alert(1)</script>",
		"%s%n%d",
		"a\342\200\256b",
	};
	struct sqlite_writer *w = writer(0);
	char longest[254];
	struct event_row row;
	struct found f;

	memset(longest, 'x', 253);
	longest[253] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		row = denied(names[i], T0);
		sqlite_writer_add(w, &row);
	}
	row = denied(longest, T0);
	sqlite_writer_add(w, &row);
	row = denied("bad\xff\xc0.test", T0);
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		f = find((struct sqlite_query){ .name = names[i] });
		assert_int_equal(f.count, 1);
		assert_string_equal(f.rows[0].event.name, names[i]);
	}
	assert_int_equal(find((struct sqlite_query){ .name = longest }).count, 1);
	assert_int_equal(
		find((struct sqlite_query){ .name = "bad\\xff\\xc0.test" }).count, 1);
	sqlite_writer_free(w);
}

TEST_WITH(counters_outlive_rows_and_restarts, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer(0);
	struct event_row row = denied("a.test", T0);
	sqlite3 *db = NULL;

	row.event.packets = 7;
	sqlite_writer_add(w, &row);
	end(w);
	w = writer(0);
	sqlite_writer_add(w, &row);
	end(w);
	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_false(sqlite_tidy(db, 1 << 20, T0 + 1, T0 + 1));
	assert_int_equal(sqlite_number(db, "SELECT sum(rows) FROM counter"), 2);
	assert_int_equal(sqlite_number(db, "SELECT sum(packets) FROM counter"), 14);
	sqlite3_close(db);
	/* The newest stays, for its number. */
	assert_int_equal(count((struct sqlite_query){ 0 }).rows, 1);
}

static void fill(sqlite3 *db, int rows, int64_t from_ms)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n"
		 " WHERE i < %d) INSERT INTO event (ts, sandbox, action, layer, name,"
		 " packets, bytes) SELECT %lld + i, 's', 2, 1, hex(randomblob(100)), 1,"
		 " 1 FROM n",
		 rows - 1, (long long)from_ms);
	assert_int_equal(sqlite_run(db, sql, NULL), 0);
}

TEST_WITH(the_oldest_go_when_it_is_too_big_or_too_old, make_directory, remove_directory)
{
	enum { MAX_BYTES = 2 << 20 };
	sqlite3 *db = NULL;
	struct found f;
	struct stat st;
	int rounds = 0;
	char path[128];

	assert_int_equal(open_file(MAX_BYTES * 10, &db), 0);
	fill(db, 20000, T0);
	while (sqlite_tidy(db, MAX_BYTES, INT64_MIN, INT64_MIN))
		assert_true(++rounds < 1000);
	f = find((struct sqlite_query){ .max = 1 });
	assert_int_equal(f.rows[0].event.ts_ms, T0 + 19999);
	assert_in_range(count((struct sqlite_query){ 0 }).rows, 1000, 10000);
	assert_int_equal(count((struct sqlite_query){ .until_ms = T0 + 5000 }).rows, 0);
	sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	snprintf(path, sizeof(path), "%s/events.db", directory);
	for (int i = 0; i < 20; i++)
		sqlite_tidy(db, MAX_BYTES, INT64_MIN, INT64_MIN);
	sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	assert_int_equal(stat(path, &st), 0);
	assert_in_range(st.st_size, 1 << 20, MAX_BYTES + MAX_BYTES / 4);
	assert_int_equal(st.st_mode & 07777, 0600);
	while (sqlite_tidy(db, MAX_BYTES, T0 + 19990, T0 + 19990))
		;
	assert_int_equal(count((struct sqlite_query){ 0 }).rows, 10);
	sqlite3_close(db);
}

static void overwrite(const char *name, off_t at, size_t size)
{
	char path[128], junk[4096];
	int fd;

	memset(junk, 0x5a, sizeof(junk));
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (size_t i = 0; i < size; i += sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at + (off_t)i),
				 sizeof(junk));
	close(fd);
}

/* As somebody else who has SQLite. */
static void plant(const char *sql)
{
	char path[PATH_MAX];
	sqlite3 *db = NULL;

	snprintf(path, sizeof(path), "%s/events.db", directory);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

TEST_WITH(a_broken_file_is_moved_aside_and_told, make_directory, remove_directory)
{
	static const struct {
		const char *what;
		off_t at;
	} rows[] = { { "no database", 0 }, { "broken inside", 4096 } };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sqlite_writer *w = writer(0);
		struct event_row row = denied("a.test", T0);
		struct sqlite_state s;

		sqlite_writer_add(w, &row);
		end(w);
		overwrite("events.db", rows[i].at, 1 << 16);
		w = writer(0);
		sqlite_writer_add(w, &row);
		assert_true(sqlite_writer_drain(w, PATIENCE_MS));
		sqlite_writer_state(w, &s);
		assert_int_equal(s.moved_aside, 1);
		assert_non_null(strstr(s.trouble, "moved aside (1 since the start)"));
		assert_int_equal(s.rows, 1);
		assert_int_equal(s.lost_rows, 0);
		sqlite_writer_free(w);
		assert_int_equal(count((struct sqlite_query){ 0 }).rows, 1);
		assert_true(remove_like("events.db.broken-", true) >= 1);
	}
}

/* What an earlier command could leave where a store is kept. */
TEST_WITH(a_schema_that_is_not_weirs_is_moved_aside, make_directory, remove_directory)
{
	static const char *const planted[] = {
		"CREATE TRIGGER x AFTER INSERT ON event BEGIN"
		" DELETE FROM event WHERE id = NEW.id; END",
		"CREATE TRIGGER x BEFORE INSERT ON EVENT BEGIN SELECT raise(IGNORE); END",
		"CREATE TRIGGER x AFTER INSERT ON review BEGIN"
		" UPDATE review SET state = 2; END",
		"CREATE UNIQUE INDEX x ON event (action)",
		"CREATE INDEX x ON event (abs(-9223372036854775807 - action))",
		"DROP TRIGGER review_opened",
		"DROP VIEW denied_written;"
		"CREATE VIEW denied_written (id, ts, sandbox, packets, kind, key)"
		" AS SELECT 1, 1, 1, 1, 1, 1 WHERE 0",
		"DROP INDEX event_by_ts; CREATE INDEX event_by_ts ON event (ts)"
		" WHERE name IS NULL",
		"ALTER TABLE event RENAME TO hidden;"
		"CREATE VIEW event AS SELECT * FROM hidden WHERE name <> 'b.test'",
		/* Behind a table of the name that is asked. */
		"CREATE TRIGGER x AFTER INSERT ON event BEGIN"
		" DELETE FROM event WHERE id = NEW.id; END;"
		"CREATE TABLE y (type, name, tbl_name, rootpage, sql);"
		"PRAGMA writable_schema = 1; UPDATE sqlite_master SET name = "
		"'sqlite_schema',"
		" tbl_name = 'sqlite_schema', sql = replace(sql, 'TABLE y',"
		" 'TABLE sqlite_schema') WHERE name = 'y'",
	};

	for (size_t i = 0; i < ARRAY_SIZE(planted); i++) {
		struct event_row a = denied("a.test", T0), b = denied("b.test", T0 + 1);
		struct sqlite_reader *r = NULL;
		struct sqlite_writer *w = writer(0);
		struct sqlite_state s;
		struct err err = { 0 };
		sqlite3 *db = NULL;

		sqlite_writer_add(w, &a);
		end(w);
		plant(planted[i]);
		assert_int_equal(open_file(1 << 20, &db), -EBADMSG);
		assert_int_equal(sqlite_reader_open(directory, 5000, &r, &err), -EBADMSG);
		w = writer(0);
		sqlite_writer_add(w, &b);
		assert_true(sqlite_writer_drain(w, PATIENCE_MS));
		sqlite_writer_state(w, &s);
		assert_int_equal(s.moved_aside, 1);
		assert_int_equal(s.rows, 1);
		sqlite_writer_free(w);
		assert_int_equal(count((struct sqlite_query){ .name = "b.test" }).rows,
				 1);
		remove_like("", true);
	}
}

static size_t open_tasks(void)
{
	struct review_store *store = NULL;
	size_t n = 0;

	assert_int_equal(review_open(directory, &store, NULL), 0);
	assert_int_equal(review_list(store, REVIEW_OPEN, NULL, count_task, &n, NULL), 0);
	review_close(store);
	return n;
}

/* As a writer does when it opens the store, before or after it writes its first rows. */
static void tidy(void)
{
	sqlite3 *db = NULL;

	if (open_file(1 << 20, &db) < 0)
		return;
	sqlite_tidy(db, 1 << 20, T0 - 1, wall_ms());
	sqlite3_close(db);
}

/* What an earlier command could leave in Weir's own tables. */
TEST_WITH(values_that_weir_cannot_go_on_from_lose_nothing, make_directory,
	  remove_directory)
{
	static const struct {
		const char *sql;
		uint32_t moved_aside;
	} planted[] = {
		{ "UPDATE counter SET packets = 9223372036854775807", 1 },
		{ "UPDATE denied SET packets = 9223372036854775807", 1 },
		{ "UPDATE activity SET bytes = 9223372036854775807", 1 },
		{ "UPDATE review SET packets = 9223372036854775807", 1 },
		{ "UPDATE review_change SET last = 9223372036854775807", 1 },
		{ "UPDATE review_number SET last = 9223372036854775807;"
		  "DELETE FROM review",
		  1 },
		{ "UPDATE event SET id = 9223372036854775807", 1 },
		{ "DELETE FROM review_change", 1 },
		{ "DELETE FROM review_number", 1 },
		{ "INSERT INTO review_number VALUES (0)", 1 },
		{ "DELETE FROM store", 1 },
		{ "PRAGMA user_version = 0", 1 },
		{ "UPDATE review SET state = 2, decided_ts = 1 << 62", 0 },
		{ "UPDATE review SET state = 2, decided_ts = NULL", 0 },
		{ "UPDATE review SET state = 7", 0 },
	};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(planted); i++) {
		const char *sql = planted[i / 2].sql;
		struct event_row a = denied("a.test", wall_ms());
		struct sqlite_writer *w = writer(0);
		struct sqlite_state s;

		a.event.allowable = true;
		sqlite_writer_add(w, &a);
		end(w);
		plant(sql);
		if (i % 2 == 1)
			tidy();
		w = writer(0);
		sqlite_writer_add(w, &a);
		assert_true(sqlite_writer_drain(w, PATIENCE_MS));
		sqlite_writer_state(w, &s);
		sqlite_writer_free(w);
		if (s.moved_aside != planted[i / 2].moved_aside || s.rows != 1 ||
		    s.lost_rows != 0 || open_tasks() != 1)
			fail_msg("%s%s: %s", sql, i % 2 == 1 ? ", tidied" : "",
				 s.trouble);
		remove_like("", true);
	}
}

/* The sums of such rows have no number, so that none of them can go. */
TEST_WITH(a_full_store_that_lets_no_row_go_is_moved_aside, make_directory,
	  remove_directory)
{
	static const char hostile[] =
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <"
		" 20000) INSERT INTO event (ts, sandbox, action, layer, name, packets,"
		" bytes) SELECT i, 's', 2, 1, 'n' || i || '.test', 9223372036854775807, 1"
		" FROM n";
	enum { ROWS = 500 };
	struct event_row row = denied("a.test", T0);
	struct sqlite_writer *w = writer(1 << 20);
	struct sqlite_state s;

	sqlite_writer_add(w, &row);
	end(w);
	plant(hostile);
	w = writer(1 << 20);
	for (int i = 0; i < ROWS; i++) {
		snprintf(row.event.name, sizeof(row.event.name), "m%d.test", i);
		sqlite_writer_add(w, &row);
	}
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	sqlite_writer_free(w);
	assert_int_equal(s.lost_rows, 0);
	assert_int_equal(s.rows, ROWS);
}

/* What a person keeps there is never used. */
TEST_WITH(tables_and_views_beside_weirs_stay, make_directory, remove_directory)
{
	struct event_row a = denied("a.test", T0);
	struct sqlite_writer *w = writer(0);
	struct sqlite_state s;

	sqlite_writer_add(w, &a);
	end(w);
	plant("CREATE TABLE seen (id INTEGER, UNIQUE (id)); CREATE VIEW mine AS"
	      " SELECT * FROM event JOIN seen USING (id); ANALYZE");
	w = writer(0);
	sqlite_writer_add(w, &a);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.moved_aside, 0);
	sqlite_writer_free(w);
	assert_int_equal(count((struct sqlite_query){ 0 }).rows, 2);
}

/* Whoever may write there could cut a file that is mapped. */
TEST_WITH(where_others_may_write_no_memory_is_shared, make_directory, remove_directory)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = 1 << 20,
					      .shared = true,
					      .clock = &clock_of_then };
	struct sqlite_writer *w = writer(1 << 20);
	struct event_row row = denied("a.test", T0);
	struct found f;
	char path[PATH_MAX], other[PATH_MAX];

	/* Of a store that was not shared before. */
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	assert_int_equal(remove_like("-shm", false), 1);
	sqlite_writer_free(w);
	assert_int_equal(sqlite_writer_new(&config, &w, NULL), 0);
	row = denied("b.test", T0);
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	f = find((struct sqlite_query){ 0 });
	assert_int_equal(f.count, 2);
	assert_int_equal(remove_like("-shm", false) + remove_like("-wal", false), 0);
	sqlite_writer_free(w);
	/* Another's file is none: here, one with another name. */
	snprintf(path, sizeof(path), "%s/events.db", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	assert_int_equal(link(path, other), 0);
	assert_int_equal(sqlite_file_open(&config, &(sqlite3 *){ NULL }, NULL), -EPERM);
}

TEST_WITH(a_database_of_a_newer_weir_is_left_alone, make_directory, remove_directory)
{
	struct sqlite_writer *w;
	struct event_row row = denied("a.test", T0);
	struct sqlite_state s;
	sqlite3 *db = NULL;

	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_int_equal(sqlite_run(db, "PRAGMA user_version = 99", NULL), 0);
	sqlite3_close(db);
	w = writer(0);
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.rows, 0);
	assert_int_equal(s.lost_rows, 1);
	assert_non_null(strstr(s.trouble, "newer Weir (version 99)"));
	assert_int_equal(s.moved_aside, 0);
	sqlite_writer_free(w);
	assert_int_equal(remove_like("broken", false), 0);
}

TEST_WITH(a_directory_that_cannot_be_had_is_trouble_and_no_more, make_directory,
	  remove_directory)
{
	const struct sqlite_config config = { .directory = "/proc/none/weir" };
	struct event_row row = denied("a.test", T0);
	struct sqlite_writer *w = NULL;
	struct sqlite_reader *r = NULL;
	struct sqlite_state s;

	assert_int_equal(sqlite_writer_new(&config, &w, NULL), 0);
	for (int i = 0; i < 10; i++)
		sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.lost_packets, 10);
	assert_non_null(strstr(s.trouble, "/proc/none/weir"));
	sqlite_writer_free(w);
	assert_int_equal(sqlite_reader_open(directory, 100, &r, NULL), -ENOENT);
	sqlite_reader_close(NULL);
	sqlite_writer_free(NULL);
}

/* Also when the first look at it isn't for writing. */
TEST_WITH(trouble_is_told_before_anything_happens, make_directory, remove_directory)
{
	const struct sqlite_config config = { .directory = "/proc/none/weir" };
	struct sqlite_writer *w = NULL;
	struct sqlite_state s = { 0 };

	assert_int_equal(sqlite_writer_new(&config, &w, NULL), 0);
	for (int i = 0; i < 3000 && !s.trouble[0]; i++) {
		usleep(20000);
		sqlite_writer_state(w, &s);
	}
	assert_non_null(strstr(s.trouble, "/proc/none/weir"));
	sqlite_writer_free(w);
}

TEST_WITH(what_others_copy_is_on_the_disk_first, make_directory, remove_directory)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = 1 << 20,
					      .durable = true };
	sqlite3 *db = NULL;

	assert_int_equal(sqlite_file_open(&config, &db, NULL), 0);
	assert_int_equal(sqlite_number(db, "PRAGMA synchronous"), 2); /* FULL */
	sqlite3_close(db);
	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_int_equal(sqlite_number(db, "PRAGMA synchronous"), 1);
	sqlite3_close(db);
}

TEST_WITH(a_version_that_is_none_is_a_broken_file, make_directory, remove_directory)
{
	struct sqlite_writer *w;
	struct event_row row = denied("a.test", T0);
	struct sqlite_state s;
	sqlite3 *db = NULL;

	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_int_equal(sqlite_run(db, "PRAGMA user_version = -1", NULL), 0);
	sqlite3_close(db);
	w = writer(0);
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.moved_aside, 1);
	assert_int_equal(s.rows, 1);
	sqlite_writer_free(w);
}

/* Somebody else holds the write lock: the caller doesn't feel it, and nothing is lost. */
TEST_WITH(a_locked_database_waits_and_loses_nothing, make_directory, remove_directory)
{
	struct sqlite_writer *w = writer(0);
	struct event_row row = denied("a.test", T0);
	struct sqlite_state s = { 0 };
	sqlite3 *db = NULL;

	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_int_equal(sqlite_run(db, "BEGIN IMMEDIATE", NULL), 0);
	for (int i = 0; i < 10000; i++)
		sqlite_writer_add(w, &row);
	for (int i = 0; i < 3000 && !s.trouble[0]; i++) {
		usleep(20000);
		sqlite_writer_state(w, &s);
	}
	assert_non_null(strstr(s.trouble, "locked"));
	assert_int_equal(sqlite_run(db, "COMMIT", NULL), 0);
	sqlite3_close(db);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_state(w, &s);
	assert_int_equal(s.packets + s.lost_packets, 10000);
	assert_string_equal(s.trouble, "");
	assert_in_range(s.packets, 500, 10000);
	sqlite_writer_free(w);
}

TEST_WITH(a_search_that_takes_too_long_is_ended, make_directory, remove_directory)
{
	struct sqlite_reader *r = NULL;
	struct sqlite_sum sum;
	sqlite3 *db = NULL;

	assert_int_equal(open_file(64 << 20, &db), 0);
	fill(db, 20000, T0);
	assert_int_equal(sqlite_reader_open(directory, 1000, &r, NULL), 0);
	sqlite_reader_close(r);
	/* The opening itself reads a few rows, and has no limit. */
	assert_int_equal(sqlite_reader_open(directory, -1, &r, NULL), 0);
	assert_int_equal(sqlite_count_denied(r, NULL, 0, 100000, &sum, NULL), -ETIMEDOUT);
	sqlite_reader_close(r);
	sqlite3_close(db);
}
