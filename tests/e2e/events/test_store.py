# SPDX-License-Identifier: Apache-2.0
"""Events in SQLite where it hurts: a killed writer, a full disk, a flood of equal events, other readers."""
import subprocess

import pytest

from world.store import Store


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_killed_writer_loses_nothing_that_was_written(tmp_path):
    first = 0
    for _ in range(5):
        store = Store(tmp_path)
        store(f"add {first} 300")
        store("drain")
        store.say(f"add {first + 10000} 100000")  # under way when it is killed
        store.kill()
        first += 300
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    kept = {name for name, in store.rows("SELECT name FROM event")}
    assert {f"n{i}.test" for i in range(1500)} <= kept
    # Counters and rows are of one transaction.
    assert store.rows("SELECT packets, rows FROM counter WHERE action = 2") == store.rows(
        "SELECT sum(packets), count(*) FROM event")
    store = Store(tmp_path)
    store("add 77777777 1")
    store("drain")
    assert store.state()["rows"] == 1
    store.end()


def test_a_full_disk_lets_old_rows_go_and_keeps_counting(small_disk):
    store = Store(small_disk, 64 << 20)  # far more than there is
    for first in range(0, 100000, 4000):
        store(f"add {first} 4000")
    store("drain")
    state = store.state()
    assert state["rows"] + state["lost_rows"] == 100000
    assert state["moved_aside"] == 0
    there, newest = store.rows("SELECT count(*), max(id) FROM event")[0]
    assert 1000 < there < 90000, "old rows went"
    assert store.rows("SELECT count(*) FROM event WHERE name = 'n0.test'") == [(0,)]
    assert newest == state["rows"]
    assert store.rows("SELECT sum(rows) FROM counter") == [(state["rows"],)]
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    store.end()


def test_a_disk_that_others_fill_is_told_and_used_again(small_disk):
    store = Store(small_disk)
    store("add 0 1000")
    with open(small_disk / "big", "wb", buffering=0) as big, pytest.raises(OSError, match="No space"):
        while True:
            big.write(b"\0" * 4096)
    for first in range(1000, 21000, 2000):
        store(f"add {first} 2000")
    store("drain")
    state = store.state()
    assert state["rows"] + state["lost_rows"] == 21000
    if state["lost_rows"]:
        assert state["trouble"]
    (small_disk / "big").unlink()
    store("add 50000 1")
    store("drain")
    after = store.state()
    assert after["rows"] == state["rows"] + 1 and after["trouble"] == ""
    assert store.rows("SELECT count(*) FROM event WHERE name = 'n50000.test'") == [(1,)]
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    store.end()


def test_a_flood_of_equal_events_is_few_rows_and_counted_whole(tmp_path):
    store = Store(tmp_path)
    store("same 200000")
    store("drain")
    state = store.state()
    assert state["packets"] + state["lost_packets"] == 200000
    assert state["rows"] < 50
    assert store.rows("SELECT sum(packets) FROM event WHERE name = 'same.test'") == [(state["packets"],)]
    store.end()


def test_a_database_that_is_taken_away_begins_anew(tmp_path):
    store = Store(tmp_path / "state")
    store("add 0 10")
    store("drain")
    for path in (tmp_path / "state").glob("events.db*"):
        path.write_bytes(b"no database " * 1000)
    store.kill()
    store = Store(tmp_path / "state")
    store("add 10 10")
    store("drain")
    state = store.state()
    assert state["moved_aside"] == 1 and state["rows"] == 10
    assert store.rows("SELECT count(*) FROM event") == [(10,)]
    store.end()


def test_only_its_owner_can_read_it(tmp_path):
    store = Store(tmp_path / "state")
    store("add 0 1")
    store("drain")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "state").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    store.end()
