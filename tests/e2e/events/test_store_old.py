# SPDX-License-Identifier: Apache-2.0
"""Stores of other versions, stores that others read meanwhile, and files that break again and again."""
import contextlib
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import time

import pytest

from world.built import BUILD, ROOT
from world.expect import in_time
from world.sidecar import wait_for
from world.store import Store

SCHEMA, = (ROOT / "sql/sqlite").glob("0*.sql")
VERSION = int(SCHEMA.name[:3])
NAMES = 500


def store_of(folder, version=VERSION, rows=0):
    """A store that calls itself of @version, with @rows denials; without tables for version 0."""
    folder.mkdir(mode=0o700)
    db = sqlite3.connect(folder / "events.db", isolation_level=None)
    db.executescript("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;")
    start = int(time.time() * 1000) - rows * 10
    if version:
        db.executescript(SCHEMA.read_text())
        db.execute("BEGIN")
        db.executemany("INSERT INTO event (ts, sandbox, action, layer, name, packets, bytes) VALUES (?, ?, 2, 1, ?, 2, 60)",
                       ((start + i * 10, f"sb-{i % 7}", f"n{i % NAMES}.test") for i in range(rows)))
        db.execute("COMMIT")
    db.execute(f"PRAGMA user_version = {version}")
    db.close()


@pytest.mark.parametrize("version, text", [(VERSION - 1, "a Weir before 0.1.0"), (VERSION + 1, "a newer Weir")])
def test_a_store_of_another_version_is_left_as_it_is(tmp_path, version, text):
    store_of(tmp_path / "state", version, 30)
    with Store(tmp_path / "state") as store:
        store.put("n1.test", packets=5)
        store.drain()
        state = store.state()
        assert text in state["trouble"] and state["lost_rows"] == 1 and state["moved_aside"] == 0, state
        assert store.rows("PRAGMA user_version") == [(version,)]
        assert store.rows("SELECT count(*), sum(packets) FROM event") == [(30, 60)]


def test_who_reads_waits_for_a_store_that_is_being_made(tmp_path):
    """Who follows the events goes on when all of it is there."""
    state = tmp_path / "state"
    with Store(state) as old:
        old.put("old.test")
    following = subprocess.Popen([BUILD / "weir-events", "events", "--follow", "--state-dir", state], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
    try:
        assert "old.test" in following.stdout.readline()
        state.rename(tmp_path / "old")
        store_of(state, 0)
        time.sleep(0.5)     # it looks five times a second
        done = subprocess.run([BUILD / "weir-events", "events", "--state-dir", state], capture_output=True, text=True, check=False)
        assert done.returncode == 125 and "is being made, or is of an older Weir (version 0)" in done.stderr, done
        with Store(state) as new:
            new.put("new.test")
            assert "new.test" in following.stdout.readline(), following.stderr.read()
    finally:
        following.kill()
        following.wait()


def test_who_asks_while_a_store_is_made_waits_for_its_tables(tmp_path):
    def attempt(n):
        state = tmp_path / str(n)
        store_of(state, 0)
        asking = subprocess.Popen([BUILD / "weir-events", "events", "--state-dir", state], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)     # far longer than an answer takes
        with Store(state) as store:
            store.put("new.test")
            store.drain()
            out, err = asking.communicate(timeout=60)
        assert (asking.returncode, err) == (0, ""), err
    in_time(attempt)


def test_a_batch_costs_no_more_in_a_large_store(tmp_path):
    """Seconds of processor time for twenty batches: with sixty thousand denials before them as with none. What others do
    on this machine costs time as well, now and then."""
    took = {1: [], 60000: []}
    with contextlib.ExitStack() as opened:
        stores = {}
        for rows in took:
            folder = tmp_path / str(rows)
            store_of(folder, rows=rows)
            stores[rows] = opened.enter_context(Store(folder))
            stores[rows]("add 0 256")
            stores[rows].drain()
        for attempt in range(4):
            for rows, store in stores.items():
                stat = pathlib.Path(f"/proc/{store.process.pid}/stat")
                before = stat.read_text().split()
                for turn in range(20):
                    store(f"add {1000 + 256 * (turn + 20 * attempt)} 256")
                store.drain()
                after = stat.read_text().split()
                took[rows].append(sum(int(after[i]) - int(before[i]) for i in (13, 14)) / os.sysconf("SC_CLK_TCK"))
            if took[60000][-1] < 2.5 * took[1][0] + 0.1:
                return
    pytest.fail(str(took))


def test_events_are_read_while_they_are_written(tmp_path):
    with Store(tmp_path / "state") as store:
        store("add 0 10")
        store.drain()
        reader = subprocess.Popen([BUILD / "weir-events", "events", "--follow", "--json", "--state-dir", store.folder],
                                  stdout=subprocess.PIPE, text=True)
        lines = []
        for turn in range(1, 6):
            store(f"add {turn * 1000} 200")
            store.drain()
            while len(lines) < 10 + 200 * turn:
                lines.append(reader.stdout.readline())
        reader.kill()
        reader.wait()
        reader.stdout.close()
        names = [re.search(r'"name":"([^"]+)"', line).group(1) for line in lines]
        assert names == [f"n{i}.test" for i in range(10)] + [f"n{t * 1000 + i}.test" for t in range(1, 6) for i in range(200)]


def log_bytes(folder):
    return (folder / "events.db-wal").stat().st_size


def test_a_reader_that_nobody_reads_keeps_no_log_from_being_emptied(tmp_path):
    with Store(tmp_path / "state") as store:
        store("add 0 3000")
        store.drain()
        reader = subprocess.Popen([BUILD / "weir-events", "events", "--json", "--state-dir", store.folder],
                                  stdout=subprocess.PIPE)  # and nobody takes it
        wait_for(lambda: pathlib.Path(f"/proc/{reader.pid}/wchan").read_text().startswith(("pipe", "anon_pipe")), step=0.02)
        for first in range(10000, 30000, 2000):
            store(f"add {first} 2000")
        store.drain()
        assert log_bytes(store.folder) < 3 << 20
        assert store.state()["lost_rows"] == 0
        reader.kill()
        reader.wait()
        reader.stdout.close()


def test_a_reader_that_never_ends_cannot_fill_the_disk(tmp_path):
    """Rows are lost then, counted and told, until it has gone."""
    with Store(tmp_path / "state", 16 << 20) as store:
        store("add 0 100")
        store.drain()
        other = sqlite3.connect(f"file:{store.folder}/events.db", uri=True, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM event").fetchall()
        first = 1000
        while store.state()["lost_rows"] == 0:
            store(f"add {first} 2000")
            first += 2000
            assert first < 200000
        assert log_bytes(store.folder) < 10 << 20
        assert "another process reads it" in store.state()["trouble"]
        other.close()
        store.put("after.test")
        store.drain()
        assert store.state()["trouble"] == ""
        assert store.rows("SELECT count(*) FROM event WHERE name = 'after.test'") == [(1,)]
        assert log_bytes(store.folder) < 3 << 20


def test_files_that_break_again_and_again_do_not_fill_the_disk(tmp_path):
    folder = tmp_path / "state"
    for turn in range(5):
        with Store(folder) as store:
            store(f"add {turn * 100} 10")
            store.drain()
            state = store.state()
            assert state["moved_aside"] == (turn > 0)
            assert ("moved aside" in state["trouble"]) == (turn > 0)
            assert store.rows("SELECT count(*) FROM event") == [(10,)]
        for path in folder.glob("events.db*"):
            if "broken" not in path.name:
                path.write_bytes(b"no database " * 1000)
    broken = sorted(p.name for p in folder.glob("events.db.broken-*") if p.name[-1].isdigit())
    assert len(broken) == 2


def test_hostile_names_are_kept_and_shown_as_text(tmp_path):
    """Bytes as they are where they are UTF-8, and as \\xNN where they aren't; escaped wherever Weir prints them."""
    names = [b"\x1b[2J\x1b]0;x\x07.test", b"<script>alert(1)</script>", b"'); DROP TABLE event; --", b"$(reboot)`id`", b"%s%n%n",
             b"tab\there", b"line\nbreak\r", b"x" * 253, "\u202etxt.\u00e9".encode(), b"\\000.test"]
    with Store(tmp_path / "state") as store:
        for name in names + [b"bad\xff\xc0.test"]:
            store.put(name)
        store.drain()
        kept = {name for name, in store.rows("SELECT name FROM event")}
        assert kept == {name.decode() for name in names} | {"bad\\xff\\xc0.test"}
        assert {d for d, in store.rows("SELECT destination FROM review")} == kept
        for verb in (("events",), ("events", "--json"), ("denies", "--by", "name"), ("review", "list")):
            done = subprocess.run([BUILD / "weir-events", *verb, "--state-dir", store.folder], capture_output=True, check=True)
            assert re.fullmatch(rb"[\n\x20-\x7e]*", done.stdout), verb
            assert b"x" * 200 in done.stdout, verb
            if "--json" in verb:
                assert b"<script>" not in done.stdout


# ---- several writers of one file, as runs with one --state-dir are ----


def together(folder, count, rows, hold=None):
    """That many writers that begin at once, @rows rows each. Return: their states. @hold() while they begin."""
    stores = [Store(folder) for _ in range(count)]
    for i, store in enumerate(stores):
        store.say(f"add {i * 1000} {rows}")
    if hold:
        hold()
    for store in stores:
        store.process.stdout.readline()
    for store in stores:
        store.drain()
    states = [store.state() for store in stores]
    for store in stores:
        store.end()
    return states


def kept(folder):
    with sqlite3.connect(f"file:{folder}/events.db", uri=True) as db:
        return {name for name, in db.execute("SELECT name FROM event")}


def test_writers_that_begin_at_once_lose_nothing(tmp_path):
    """All of them find a file without tables, and each would make them."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    other = sqlite3.connect(folder / "events.db", isolation_level=None)
    other.executescript("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL")
    other.execute("BEGIN IMMEDIATE")

    def hold():
        time.sleep(0.7)  # two ticks of their threads
        other.execute("ROLLBACK")
        other.close()
    states = together(folder, 6, 20, hold)
    assert [(s["lost_rows"], s["moved_aside"], s["trouble"]) for s in states] == [(0, 0, "")] * 6
    assert kept(folder) == {f"n{i * 1000 + k}.test" for i in range(6) for k in range(20)}


def test_writers_of_a_broken_file_move_it_aside_once(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "events.db").write_bytes(b"no database " * 1000)
    states = together(folder, 6, 20)
    assert sum(s["moved_aside"] for s in states) == 1 and sum(s["lost_rows"] for s in states) == 0, states
    assert kept(folder) == {f"n{i * 1000 + k}.test" for i in range(6) for k in range(20)}


@pytest.mark.skipif(not shutil.which("strace"), reason="strace holds the writer back")
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_who_moves_a_broken_file_aside_takes_nobody_elses(tmp_path, suffix):
    """A writer that has found the file broken is slow to move it, or its log: what others make meanwhile stays."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "events.db").write_bytes(b"no database " * 1000)
    when = 1 + ["", "-wal"].index(suffix)
    # Much less than the 2 s after which the other writer takes a lock for a stranger's, also on a busy machine.
    hold = ["strace", "-f", "-qq", "-o", tmp_path / "calls", "-e", "trace=rename", "-e", f"inject=rename:delay_enter=700000:when={when}"]
    with Store(folder, way=hold) as slow:
        slow.put("slow.test")
        slow.say("drain")
        wait_for(lambda: (tmp_path / "calls").exists() and f"events.db{suffix}\"" in (tmp_path / "calls").read_text(), step=0.001,
                 pid=slow.process.pid)
        with Store(folder) as other:  # not before: a writer looks at the file soon after its start
            other.put("other.test")
            other.drain()
            assert slow.process.stdout.readline() == "done\n"
            slow.put("slow2.test")
            slow.drain()
            assert [(s["moved_aside"], s["lost_rows"]) for s in (slow.state(), other.state())] == [(1, 0), (0, 0)]
    assert kept(folder) == {"slow.test", "other.test", "slow2.test"}


def test_a_file_that_is_taken_away_begins_anew(tmp_path):
    """Deleted, or moved aside by another writer: nobody writes on into what has no name."""
    with Store(tmp_path / "state") as store:
        store("add 0 10")
        store.drain()
        for path in store.folder.glob("events.db*"):
            path.rename(path.with_name(path.name.replace("events.db", "elsewhere")))
        store("add 100 10")
        store.drain()
        assert kept(store.folder) == {f"n{100 + i}.test" for i in range(10)}
        for path in store.folder.glob("events.db*"):
            path.unlink()
        store("add 200 10")
        store.drain()
        assert kept(store.folder) == {f"n{200 + i}.test" for i in range(10)}
        assert store.state()["lost_rows"] == 0
