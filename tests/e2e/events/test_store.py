# SPDX-License-Identifier: Apache-2.0
"""Events in SQLite where it hurts: a killed writer, a full disk, a flood of equal events, other readers."""
import json
import os
import pathlib
import signal
import sqlite3
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Driver:
    """tests/drivers/store_driver.c at work."""

    def __init__(self, folder, max_bytes=0):
        build = pathlib.Path(os.environ.get("WEIR_BUILD", ROOT / "build"))
        self.folder = folder
        self.process = subprocess.Popen([build / "tests/drivers/store_driver", folder, str(max_bytes)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def __call__(self, order):
        self.say(order)
        return self.process.stdout.readline().strip()

    def state(self):
        return json.loads(self("state"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


def rows(folder, sql, *args):
    db = sqlite3.connect(f"file:{folder}/events.db", uri=True)
    try:
        return db.execute(sql, args).fetchall()
    finally:
        db.close()


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
        driver = Driver(tmp_path)
        driver(f"add {first} 300")
        driver("drain")
        driver.say(f"add {first + 10000} 100000")  # under way when it is killed
        driver.kill()
        first += 300
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]
    kept = {name for name, in rows(tmp_path, "SELECT name FROM event")}
    assert {f"n{i}.test" for i in range(1500)} <= kept
    # Counters and rows are of one transaction.
    assert rows(tmp_path, "SELECT packets, rows FROM counter WHERE action = 2") == rows(
        tmp_path, "SELECT sum(packets), count(*) FROM event")
    driver = Driver(tmp_path)
    driver("add 77777777 1")
    driver("drain")
    assert driver.state()["rows"] == 1
    driver.end()


def test_a_full_disk_lets_old_rows_go_and_keeps_counting(small_disk):
    driver = Driver(small_disk, 64 << 20)  # far more than there is
    for first in range(0, 100000, 4000):
        driver(f"add {first} 4000")
    driver("drain")
    state = driver.state()
    assert state["rows"] + state["lost_rows"] == 100000
    assert state["moved_aside"] == 0
    there, newest = rows(small_disk, "SELECT count(*), max(id) FROM event")[0]
    assert 1000 < there < 90000, "old rows went"
    assert rows(small_disk, "SELECT count(*) FROM event WHERE name = 'n0.test'") == [(0,)]
    assert newest == state["rows"]
    assert rows(small_disk, "SELECT sum(rows) FROM counter") == [(state["rows"],)]
    assert rows(small_disk, "PRAGMA integrity_check") == [("ok",)]
    driver.end()


def test_a_disk_that_others_fill_is_told_and_used_again(small_disk):
    driver = Driver(small_disk)
    driver("add 0 1000")
    with open(small_disk / "big", "wb", buffering=0) as big, pytest.raises(OSError, match="No space"):
        while True:
            big.write(b"\0" * 4096)
    for first in range(1000, 21000, 2000):
        driver(f"add {first} 2000")
    driver("drain")
    state = driver.state()
    assert state["rows"] + state["lost_rows"] == 21000
    if state["lost_rows"]:
        assert state["trouble"]
    (small_disk / "big").unlink()
    driver("add 50000 1")
    driver("drain")
    after = driver.state()
    assert after["rows"] == state["rows"] + 1 and after["trouble"] == ""
    assert rows(small_disk, "SELECT count(*) FROM event WHERE name = 'n50000.test'") == [(1,)]
    assert rows(small_disk, "PRAGMA integrity_check") == [("ok",)]
    driver.end()


def test_a_flood_of_equal_events_is_few_rows_and_counted_whole(tmp_path):
    driver = Driver(tmp_path)
    driver("same 200000")
    driver("drain")
    state = driver.state()
    assert state["packets"] + state["lost_packets"] == 200000
    assert state["rows"] < 50
    assert rows(tmp_path, "SELECT sum(packets) FROM event WHERE name = 'same.test'") == [(state["packets"],)]
    driver.end()


def test_a_database_that_is_taken_away_begins_anew(tmp_path):
    driver = Driver(tmp_path / "state")
    driver("add 0 10")
    driver("drain")
    for path in (tmp_path / "state").glob("events.db*"):
        path.write_bytes(b"no database " * 1000)
    driver.kill()
    driver = Driver(tmp_path / "state")
    driver("add 10 10")
    driver("drain")
    state = driver.state()
    assert state["moved_aside"] == 1 and state["rows"] == 10
    assert rows(tmp_path / "state", "SELECT count(*) FROM event") == [(10,)]
    driver.end()


def test_only_its_owner_can_read_it(tmp_path):
    driver = Driver(tmp_path / "state")
    driver("add 0 1")
    driver("drain")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "state").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    driver.end()
