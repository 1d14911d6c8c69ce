# SPDX-License-Identifier: Apache-2.0
"""kill -9 of whoever, whenever: what is in the store is in PostgreSQL, each row once."""
import os
import random
import signal
import time

import pytest

from world.copies import Sender, count, wait_each_once
from world.postgres import binaries
from world.sidecar import wait_for
from world.store import Store

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")

SECONDS = float(os.environ.get("WEIR_KILL_SECONDS", "5"))
TASKS = 20


class Victims:
    """A writer, a sender and a server, which die and come again."""

    def __init__(self, folder, server, dice):
        self.folder, self.server, self.dice = folder, server, dice
        self.store = Store(folder)
        self.sender = Sender(self.store, server.conninfo + " connect_timeout=2")
        self.next = 0
        self.kills = dict.fromkeys(("writer", "sender", "server", "backend", "both"), 0)

    def write(self):
        """Some thousand rows, and tasks, in the background."""
        self.store.say(f"add {self.next} {self.dice.randrange(500, 4000)}")
        self.next += 10000
        for _ in range(3):
            self.store.say(f"put sb-1 deny - 0 - - 1 0 1 {f'task{self.dice.randrange(TASKS)}.test'.encode().hex()}")

    def kill_writer(self):
        self.store.kill()
        self.store = Store(self.folder)

    def kill_sender(self):
        self.sender.kill()
        self.sender.start()

    def kill_server(self):
        self.server.kill()
        self.server.start()

    def kill_backend(self):
        """One process of the server's: it ends all the others by itself and begins anew."""
        if children := self.server.children():
            os.kill(self.dice.choice(children), signal.SIGKILL)

    def kill_both(self):
        self.server.kill()
        self.sender.kill()
        self.kill_writer()
        self.server.start()
        self.sender.start()

    def end(self):
        self.sender.kill()
        self.store.kill()


def same_tasks(server, store):
    there = server.rows("SELECT task, destination, packets, events, state FROM sandbox_egress_review ORDER BY task")
    here = store.rows("SELECT id, destination, packets, rows, 'open' FROM review ORDER BY id")
    return [(int(i), d, int(p), int(e), s) for i, d, p, e, s in there] == here


def test_whoever_is_killed_each_row_is_there_once(server, tmp_path):
    seed = time.time_ns()
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    v = Victims(folder, server, random.Random(seed))
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or sum(v.kills.values()) < 5:
            v.write()
            time.sleep(v.dice.uniform(0.01, 0.4))
            victim = v.dice.choice(list(v.kills))
            v.kills[victim] += 1
            getattr(v, f"kill_{victim}")()
        wait_for(lambda: server.psql("SELECT 1", check=False).returncode == 0, step=0.05)
        v.kill_writer()
        v.store.put("last.test")
        v.store.drain()
        assert v.store.rows("PRAGMA integrity_check") == [("ok",)]
        assert v.store.rows("SELECT sum(rows), sum(packets) FROM counter") == v.store.rows(
            "SELECT count(*), sum(packets) FROM event"), f"seed {seed}"
        wait_each_once(server, v.store, 60 + 3 * SECONDS)
        wait_for(lambda: same_tasks(server, v.store), step=0.05)
    except AssertionError as e:
        raise AssertionError(f"seed {seed}, {v.kills}") from e
    finally:
        v.end()
    assert count(server) > 100 and sum(v.kills.values()) >= 5, v.kills
    assert server.rows("SELECT missed, refused FROM sandbox_egress_store") == [("0", "0")]
    assert server.value("SELECT count(*) - count(DISTINCT store_row) FROM sandbox_egress_event") == 0
