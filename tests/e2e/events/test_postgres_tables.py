# SPDX-License-Identifier: Apache-2.0
"""The tables in PostgreSQL: brought up from each version with data in them, written by a role that may hardly do anything,
read by dashboards as docs/events.md says; review tasks as they stand in the store."""
import pathlib
import re
import time

import pytest

from world.copies import Sender, count, wait_each_once
from world.postgres import Database, binaries
from world.sidecar import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
MIGRATIONS = sorted((ROOT / "sql/postgres").glob("0*.sql"))

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")


@pytest.fixture
def server(shared):
    database = Database(shared, f"d{time.monotonic_ns()}", ("weir_writer", "weir_reader", "old"))
    yield database
    database.end()


def documented(title):
    """The SQL of docs/events.md below the heading @title, statement by statement."""
    text = (ROOT / "docs/events.md").read_text().split(f"### {title}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    blocks = "\n".join(re.findall(r"```sql\n(.*?)```", text, re.DOTALL))
    return [s.strip() for s in re.sub(r"--[^\n]*", "", blocks).split(";") if s.strip()]


def tables_of(server, version):
    for path in MIGRATIONS[:version]:
        server.psql(path.read_text())


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
def test_tables_of_each_version_are_brought_up_with_their_rows(server, store, version):
    tables_of(server, version)
    if version:
        server.psql("INSERT INTO sandbox_egress_event (analysis_id, action, store, store_row, packets) VALUES"
                    " ('before', 'deny', '00000000-0000-0000-0000-000000000001', 7, 3);"
                    " INSERT INTO sandbox_egress_store (store, sent, missed) VALUES ('00000000-0000-0000-0000-000000000001', 7, 2)")
    store.put("a.test")
    store.drain()
    with Sender(store, server.conninfo):
        wait_for(lambda: count(server) == (2 if version else 1), step=0.05)
        wait_for(lambda: count(server, "sandbox_egress_review") == 1, step=0.05)
    assert server.value("SELECT max(version) FROM sandbox_egress_schema") == len(MIGRATIONS)
    if version:
        assert server.rows("SELECT analysis_id, store_row, packets FROM sandbox_egress_event ORDER BY id")[0] == (
            "before", "7", "3")
        assert server.rows("SELECT sent, missed, reviewed FROM sandbox_egress_store ORDER BY store")[0] == ("7", "2", "0")


def test_tables_of_a_newer_weir_do(server, store):
    tables_of(server, len(MIGRATIONS))
    server.psql("INSERT INTO sandbox_egress_schema VALUES (99); ALTER TABLE sandbox_egress_event ADD later TEXT")
    store.put("a.test")
    store.drain()
    with Sender(store, server.conninfo):
        wait_each_once(server, store)


# ---- roles ----


def test_a_role_that_may_hardly_do_anything_is_enough(server, store):
    """As docs/events.md grants it."""
    tables_of(server, len(MIGRATIONS))
    for statement in documented("Permissions"):
        server.psql(statement)
    store.put("a.test")
    store.put(action="change")
    store.drain()
    writer = server.conninfo.replace("user=weir", "user=weir_writer")
    with Sender(store, writer) as sender:
        wait_each_once(server, store)
        wait_for(lambda: count(server, "sandbox_egress_review") == 1, step=0.05)
        store.write("UPDATE review SET state = 3, who = 'alice', decided_ts = 1763633203424")
        wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_review WHERE state = 'dismissed'") == 1, step=0.05)
        assert sender.trouble() == ""
    refused = {"weir_writer": ("SELECT * FROM sandbox_egress_event", "DELETE FROM sandbox_egress_event",
                               "UPDATE sandbox_egress_event SET action = 'allow'", "DELETE FROM sandbox_egress_review",
                               "TRUNCATE sandbox_egress_store", "CREATE TABLE t (i INT)"),
               "weir_reader": ("INSERT INTO sandbox_egress_event (action) VALUES ('deny')",
                               "UPDATE sandbox_egress_review SET state = 'accepted'", "SELECT * FROM sandbox_egress_store",
                               "CREATE TABLE t (i INT)")}
    for role, statements in refused.items():
        for statement in statements:
            assert b"permission denied" in server.psql(statement, check=False, user=role).stderr, (role, statement)


def test_a_role_that_may_not_make_the_new_table_goes_on_with_the_old_ones(server, store):
    tables_of(server, 1)
    server.psql("CREATE ROLE old LOGIN; GRANT SELECT ON sandbox_egress_schema TO old;"
                "GRANT INSERT ON sandbox_egress_event, sandbox_egress_notice TO old;"
                "GRANT SELECT, INSERT, UPDATE ON sandbox_egress_store TO old;"
                "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO old")
    store("add 0 700")
    store.put("a.test")
    store.drain()
    with Sender(store, server.conninfo.replace("user=weir", "user=old")) as sender:
        wait_each_once(server, store)
        sender.wait_trouble("may not make sandbox_egress_review")
        store.put("later.test")
        store.drain()
        wait_each_once(server, store)


# ---- review tasks ----


def tasks(server):
    return server.rows("SELECT analysis_id, destination, remote_port, protocol, packets, events, state, who FROM"
                       " sandbox_egress_review ORDER BY task")


def test_review_tasks_stand_there_as_in_the_store(server, store):
    store.put("a.test", packets=3)
    store.put(address="2001:db8::7", port=443, sandbox="sb-2")
    store.put("never.test", rule="deny", allowable=False)
    store.drain()
    with Sender(store, server.conninfo):
        wait_for(lambda: len(server.rows("SELECT 1 FROM pg_tables WHERE tablename = 'sandbox_egress_review'")) == 1, step=0.05)
        wait_for(lambda: tasks(server) == [("sb-1", "a.test", "", "", "3", "1", "open", ""),
                                           ("sb-2", "2001:db8::7", "443", "tcp", "1", "1", "open", "")], step=0.05)
        assert server.rows("SELECT rule ->> 'target', rule -> 'ports' ->> 0 FROM sandbox_egress_review ORDER BY task") == [
            ("a.test", ""), ("2001:db8::7", "tcp/443")]
        store.put("a.test", packets=4)  # folded
        store.drain()
        wait_for(lambda: tasks(server)[0] == ("sb-1", "a.test", "", "", "7", "2", "open", ""), step=0.05)
        store.write("UPDATE review SET state = 2, who = '<b>al''ice', decided_ts = 1763633203424 WHERE id = 1")
        wait_for(lambda: tasks(server)[0][6:] == ("accepted", "<b>al'ice"), step=0.05)
        assert server.rows("SELECT extract(epoch FROM decided_ts) * 1000 = 1763633203424 FROM sandbox_egress_review WHERE"
                           " task = 1") == [("t",)]
        time.sleep(0.01)
        store.put("a.test")  # after it was accepted: open again
        store.drain()
        wait_for(lambda: tasks(server)[0][4:7] == ("8", "3", "open"), step=0.05)


def test_what_is_written_into_the_table_decides_nothing(server, store):
    """A row of a database opens no way out: the table is a mirror."""
    store.put("a.test")
    store.drain()
    with Sender(store, server.conninfo):
        wait_for(lambda: count(server, "sandbox_egress_review") == 1, step=0.05)
        server.psql("UPDATE sandbox_egress_review SET state = 'accepted', who = 'mallory'")
        store.put("b.test")
        store.drain()
        wait_for(lambda: count(server, "sandbox_egress_review") == 2, step=0.05)
        assert store.rows("SELECT DISTINCT state, who FROM review") == [(1, None)]
        store.put("a.test")
        store.drain()
        wait_for(lambda: tasks(server)[0][6:] == ("open", ""), step=0.05)


def test_a_task_that_the_table_will_not_have_holds_up_neither_events_nor_others(server, store):
    store.put("first.test")
    store.drain()
    with Sender(store, server.conninfo) as sender:
        wait_for(lambda: count(server, "sandbox_egress_review") == 1, step=0.05)
        server.psql("ALTER TABLE sandbox_egress_review ADD CHECK (destination NOT LIKE 'bad%')")
        for name in ("a.test", "bad1.test", "b.test", "bad2.test", "c.test"):
            store.put(name)
        store.drain()
        wait_for(lambda: {t[1] for t in tasks(server)} == {"first.test", "a.test", "b.test", "c.test"}, step=0.05)
        server.psql("ALTER TABLE sandbox_egress_review RENAME TO away")
        store("add 0 800")
        store.put("d.test")
        store.drain()
        wait_each_once(server, store)
        sender.wait_trouble("review")
        server.psql("ALTER TABLE away RENAME TO sandbox_egress_review")
        wait_for(lambda: count(server, "sandbox_egress_review") == 5, step=0.1)
        wait_for(lambda: sender.trouble() == "", step=0.05)


# ---- what dashboards ask ----


def test_the_documented_queries_answer(server, store):
    for i in range(5):
        store.put(f"n{i % 2}.test", packets=10 + i, sandbox=f"sb-{i}", command="curl")
    store.put(address="192.0.2.9", port=22, packets=4)
    store.put("ok.test", action="allow", address="192.0.2.1", port=443)
    store.put(action="change")
    store.put("old.test", ago=40 * 86400)
    store.drain()
    tables_of(server, len(MIGRATIONS))
    for statement in documented("Permissions"):
        server.psql(statement)
    with Sender(store, server.conninfo):
        wait_each_once(server, store)
        wait_for(lambda: (count(server, "sandbox_egress_review") or 0) >= 4, step=0.05)
    answers = [server.rows(f"SET ROLE weir_reader; {query}") for query in documented("Queries")]
    by_name, by_hour, by_sandbox, newest, notices, waiting = answers
    assert by_name[:2] == [("n0.test", "36", "3"), ("n1.test", "24", "2")] and ("192.0.2.9", "4", "1") in by_name
    assert sum(int(row[-1]) for row in by_hour) == 64
    assert by_sandbox[0] == ("sb-1", "15", "2") and len(by_sandbox) == 5
    assert len(newest) == 6 and {row[1] for row in newest} >= {"sb-0", "sb-4"}
    assert [row[1:3] for row in notices] == [("sb-1", "change")]
    assert {row[1] for row in waiting} >= {"n0.test", "192.0.2.9"}
    for statement in documented("Retention there"):
        server.psql(statement)
    assert server.value("SELECT count(*) FROM sandbox_egress_event WHERE fqdn_pinned = 'old.test'") == 0
    assert count(server) == 7
    store.put("after.test")
    store.drain()
    with Sender(store, server.conninfo):
        wait_for(lambda: count(server) == 8, step=0.05)  # and what was deleted doesn't come back
