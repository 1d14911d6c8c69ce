# SPDX-License-Identifier: Apache-2.0
"""What a whole sidecar tells of denials: the webhook (W1 to W3), the store, the log."""
import contextlib
import json
import queue
import sqlite3

import pytest

from world import expect
from world.sidecar import wait_for


class Receiver:
    """A webhook's receiver on the internet; next() is a POST's body."""

    def __init__(self, world, once=False):
        self.got, self.peers, self.once = queue.Queue(), [], once
        self.site = world.site(f"receiver-{world.number()}.test")
        self.service = world.tcp(0, self.serve)
        self.url = f"http://{self.site.name}:{self.service.port}/denied"

    def serve(self, conn, _local, peer):
        self.peers.append(peer)
        with conn.makefile("rb") as lines:
            while line := lines.readline():
                length = 0
                while line not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    line = lines.readline()
                self.got.put(json.loads(lines.read(length)))
                conn.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                if self.once:
                    return

    def next(self):
        return self.got.get()


@pytest.fixture
def receiver(world):
    return Receiver(world)


def test_each_denied_lookup_is_told_and_the_receiver_is_closed_to_the_app(pod, guarded, receiver, site, denied):
    guarded(f"allow {site.name}", env={"OPENSANDBOX_EGRESS_DENY_WEBHOOK": receiver.url,
                                       "OPENSANDBOX_EGRESS_SANDBOX_ID": "sb-7"})
    pod.probe(["dns", site.name])
    pod.probe(["dns", denied.name.upper()])
    told = receiver.next()
    assert (told["hostname"], told["source"], told["sandboxId"]) == (denied.name, "opensandbox-egress", "sb-7")
    # The receiver's own name is denied to the app: one POST for that lookup, and no more than that.
    pod.probe(["dns", receiver.site.name])
    while told["hostname"] != receiver.site.name:
        told = receiver.next()
        assert told["hostname"] in (denied.name, receiver.site.name)
    pod.probe(["dns", denied.name])
    last = receiver.next()
    while last["hostname"] != denied.name:
        last = receiver.next()
    names = [receiver.got.get_nowait()["hostname"] for _ in range(receiver.got.qsize())]
    assert len(names) <= 4, "it feeds itself"
    expect.tcp_refused(pod.probe(["tcp", receiver.site.v4, receiver.service.port]))
    assert {peer[0] for peer in receiver.peers} <= {pod.ip4, pod.ip6}


def test_a_receiver_that_is_away_delays_no_answer(pod, guarded, world, site, denied):
    away = world.address()  # nobody: the world's kernel answers with a reset
    guarded(f"allow {site.name}", env={"OPENSANDBOX_EGRESS_DENY_WEBHOOK": f"http://{away}:1/x"})
    answers = pod.probe(*[["dns", denied.name], ["dns", site.name]] * 20)
    assert all(answer.ms < expect.FAST_MS for answer in answers)


def test_a_killed_webhook_program_is_replaced(pod, guarded, receiver, denied):
    side = guarded(env={"OPENSANDBOX_EGRESS_DENY_WEBHOOK": receiver.url})
    pod.probe(["dns", denied.name])
    assert receiver.next()["hostname"] == denied.name
    old = side.kill_child("weir-webhook")
    side.wait_replaced("weir-webhook", old)
    pod.probe(["dns", "after." + denied.name])
    while receiver.next()["hostname"] != "after." + denied.name:
        pass


def tables(path):
    """Whether the store has begun: its thread makes the file and then what is in it."""
    if not path.exists():
        return False
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as db:
        return db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'event'").fetchone()[0]


def test_events_are_in_the_database_and_outlive_the_sidecar(pod, guarded, tmp_path, site, denied):
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    side = guarded(f"allow {site.name}", args=("--state-dir", str(state)),
                   env={"OPENSANDBOX_EGRESS_SANDBOX_ID": "sb-9"})
    pod.probe(["dns", denied.name], ["tcp", "93.7.7.7", 443])
    side.wait_log("egress denied")

    def rows():
        db = sqlite3.connect(f"file:{state}/events.db?mode=rw", uri=True)
        with contextlib.closing(db):
            return db.execute("SELECT sandbox, action, name, remote_ip, remote_port FROM event").fetchall()

    wait_for(lambda: tables(state / "events.db") and {
        ("sb-9", 2, denied.name, None), ("sb-9", 2, None, "93.7.7.7")} <= {row[:4] for row in rows()})
    assert {row[4] for row in rows() if row[3] == "93.7.7.7"} == {443}
    before = len(rows())
    side.kill()
    side = guarded(f"allow {site.name}", args=("--state-dir", str(state)))
    pod.probe(["dns", "again." + denied.name])
    wait_for(lambda: any(row[2] == "again." + denied.name for row in rows()))
    assert len(rows()) > before
    assert not [d for d in side.get("/status").json()["degradations"] if "store" in json.dumps(d)]


def test_a_store_that_cannot_be_had_is_told_and_no_more(pod, guarded, tmp_path, site, denied):
    tmp_path.chmod(0o755)
    (tmp_path / "events.db").mkdir()
    side = guarded(f"allow {site.name}", args=("--state-dir", str(tmp_path)))
    pod.probe(["dns", denied.name])
    wait_for(lambda: [d for d in side.get("/status").json()["degradations"] if "events.db" in json.dumps(d)])
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


def test_a_log_that_nobody_reads_stops_nothing(pod, guarded, tmp_path, site, denied):
    tmp_path.chmod(0o755)
    log = tmp_path / "egress.log"
    side = guarded(f"allow {site.name}", args=("--log-output", "/dev/full", "--log-output", str(log)))
    for _ in range(3):
        pod.probe(*[["dns", denied.name], ["dns", site.name]] * 20)
    side.post(f"allow {site.name}")

    def lines():
        return [json.loads(line) for line in log.read_text().splitlines()]

    wait_for(lambda: any(line.get("opensandbox.event") == "egress.updated" for line in lines()))
    events = {line.get("opensandbox.event") for line in lines()}
    assert {"egress.loaded", "egress.outbound", "egress.denied", "egress.updated"} <= events
    outbound = [line for line in lines() if line.get("opensandbox.event") == "egress.outbound"]
    assert outbound[0]["target.host"] == site.name and site.v4 in [i for o in outbound for i in o.get("target.ips", ())]
    assert {"level", "ts", "logger", "msg"} <= set(outbound[0])


def test_changes_and_the_webhook_ask_the_engine_in_turn(world, pod, guarded, site, denied):
    """While a change waits for its answer, a denial may want a connection for the webhook from the same engine."""
    receiver = Receiver(world, once=True)  # each POST needs a connection of its own
    side = guarded(f"allow {site.name}", env={"OPENSANDBOX_EGRESS_DENY_WEBHOOK": receiver.url})
    probes = pod.probe_start(*[["dns", f"n{i}.{denied.name}"] for i in range(300)])
    for i in range(60):
        side.post(f"allow {site.name}", f"allow n{i}.extra.test")
    assert all(json.loads(probes.line())["result"] == "NXDOMAIN" for _ in range(300))
    assert receiver.next() and side.get("/status").json()["engineRestarts"] == 0
