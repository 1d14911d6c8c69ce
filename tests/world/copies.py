# SPDX-License-Identifier: Apache-2.0
"""weir-postgres by itself, and what it has to have copied."""
import subprocess
import time

from .built import BUILD

PROGRAM = BUILD / "weir-postgres"


class Sender:
    """weir-postgres, as the supervisor starts it; in @netns where one is given."""

    def __init__(self, store, conninfo, netns=None, env=None):
        self.folder = store.folder
        self.log = open(store.folder / "sender.log", "ab")
        argv = [str(PROGRAM), "--state-dir", str(store.folder), "--resolv-conf", "/dev/null"]
        self.argv = netns.command(*argv) if netns else argv
        self.env = {"WEIR_POSTGRES": conninfo, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "WEIR_DNS_UPSTREAM": "192.0.2.1",
                    **(env or {})}
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.argv, env=self.env, stdout=self.log, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def said(self):
        return (self.folder / "sender.log").read_text()

    def told(self):
        """What control reads: (sent, missed, refused, waiting, trouble)."""
        try:
            words = (self.folder / "postgres.state").read_text().split(maxsplit=4)
        except FileNotFoundError:
            return 0, 0, 0, 0, ""
        return (*map(int, words[:4]), words[4].strip() if len(words) > 4 else "")

    def trouble(self):
        return self.told()[4]

    def wait_trouble(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.trouble():
            assert time.monotonic() < end and self.process.poll() is None, f"no '{text}': {self.told()}"
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.log.close()


def count(server, table="sandbox_egress_event"):
    return server.value(f"SELECT count(*) FROM {table}")


def each_once(server, store):
    """The same rows in both, by number, with the same packets."""
    there = server.rows("SELECT store_row, packets FROM sandbox_egress_event UNION ALL"
                        " SELECT store_row, packets FROM sandbox_egress_notice ORDER BY 1")
    here = store.rows("SELECT id, packets FROM event ORDER BY id")
    return [(int(a), int(b)) for a, b in there] == here and here


def wait_each_once(server, store, seconds=60):
    end = time.monotonic() + seconds
    expected = store.rows("SELECT count(*) FROM event WHERE action < 4")[0][0]
    while count(server) != expected:
        assert time.monotonic() < end, f"{count(server)} of {expected} rows: {(store.folder / 'postgres.state').read_text()}"
        time.sleep(0.1)
    assert each_once(server, store)
