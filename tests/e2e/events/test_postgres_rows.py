# SPDX-License-Identifier: Apache-2.0
"""Denials of every kind end up as exactly the right rows in SQLite and in a real PostgreSQL, counted as they were sent."""
import contextlib
import collections
import os
import pathlib
import signal
import sqlite3
import subprocess
import time

import pytest

from world import expect
from world.postgres import binaries
from world.sidecar import policy, wait_for

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")

ACTIONS = ("", "allow", "deny", "panic", "change", "limit")
LAYERS = ("", "dns", "address", "name", "launch")
PROTOCOLS = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmpv6"}
COLUMNS = ("store_row", "analysis_id", "ts", "action", "layer", "remote_ip", "remote_port", "protocol", "fqdn_pinned", "rule",
           "rule_file", "rule_line", "packets", "bytes", "reason", "query_type", "limit_id", "uid", "pid", "command")
HOSTILE = [["\x1b[31mred", "test"], ["<script>alert(1)</script>", "test"], ["'; DROP TABLE event; --", "test"], ["a\0b\n", "test"],
           ["\xff\xc0", "test"], ["n" * 63] * 3 + ["l" * 57, "com"][:1]]


def in_sqlite(state):
    """Each row as PostgreSQL has to have it."""
    with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
        rows = db.execute("SELECT id, sandbox, ts, action, layer, remote_ip, remote_port, protocol, name, rule, rule_file,"
                          " rule_line, packets, bytes, reason, query_type, limit_id, uid, pid, command FROM event ORDER BY id").fetchall()
    found = []
    for row in rows:
        row = list(row)
        row[3], row[4] = ACTIONS[row[3]], LAYERS[row[4]]
        row[7] = PROTOCOLS.get(row[7], row[7])
        found.append(tuple("" if v is None else str(v) for v in row))
    return found


def has_tables(state):
    """The file is there before."""
    try:
        return in_sqlite(state) is not None
    except sqlite3.OperationalError:
        return False


def in_postgres(server):
    columns = ", ".join({"ts": "(extract(epoch FROM ts) * 1000)::bigint", "remote_ip": "host(remote_ip)"}.get(c, c)
                        for c in COLUMNS)
    return server.rows(f"SELECT {columns} FROM sandbox_egress_event UNION ALL SELECT {columns} FROM sandbox_egress_notice ORDER BY 1")


def is_quiet(state):
    """A second without another row."""
    before = in_sqlite(state)
    time.sleep(1.3)
    return before and in_sqlite(state) == before


def test_each_kind_of_denial_is_the_same_rows_in_both(pod, world, server, tmp_path, site, denied):
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    blocked = "blocked-" + denied.name
    pod.sidecar("--state-dir", str(state), "--sandbox-id", "sb-rows", mode="dns+nft+tls",
                rules=policy(f"allow {site.name}", f"deny {blocked}", "deny 93.201.0.0/16", "allow 93.202.0.1"),
                env={"WEIR_POSTGRES": server.conninfo})
    wait_for(lambda: has_tables(state))
    sent = {
        ("dns", denied.name, "", "", ""): [["dns", denied.name]] * 3,
        ("dns", blocked, "", "", ""): [["dns", blocked]] * 2,
        ("address", "", "93.201.7.7", "443", "tcp"): [["tcp", "93.201.7.7", 443]] * 4,
        ("address", "", "93.203.7.7", "8443", "tcp"): [["tcp", "93.203.7.7", 8443]] * 3,
        ("address", "", "2a02:1::7", "443", "tcp"): [["tcp", "2a02:1::7", 443]] * 2,
        ("address", "", "93.203.7.8", "9999", "udp"): [["udp", "93.203.7.8", 9999]] * 2,
        ("address", "", "169.254.169.254", "80", "tcp"): [["tcp", "169.254.169.254", 80]] * 2,
        ("name", "evil.test", site.v4, "443", "tcp"): [["dns", site.name], *[["https", site.v4, 443, "evil.test"]] * 3],
    }
    for probes in sent.values():
        pod.probe(*probes)
    pod.probe(*[["dns", labels] for labels in HOSTILE])
    expected = {key: sum(p[0] != "dns" or key[0] == "dns" for p in probes) for key, probes in sent.items()}
    denials = sum(expected.values()) + len(HOSTILE)

    def are_all_there():
        return sum(int(r[COLUMNS.index("packets")]) for r in in_sqlite(state) if r[COLUMNS.index("action")] == "deny") >= denials
    wait_for(are_all_there, step=0.1)
    wait_for(lambda: is_quiet(state))
    here = in_sqlite(state)
    wait_for(lambda: len(in_postgres(server)) == len(here), step=0.1)
    there = sorted(in_postgres(server), key=lambda row: int(row[0]))
    assert there == here
    counted = collections.Counter()
    for row in here:
        r = dict(zip(COLUMNS, row))
        if r["action"] == "deny":
            counted[r["layer"], r["fqdn_pinned"], r["remote_ip"], r["remote_port"], r["protocol"]] += int(r["packets"])
            assert r["analysis_id"] == "sb-rows" and abs(int(r["ts"]) / 1000 - time.time()) < 120
    assert {key: counted[key] for key in expected} == expected
    others = set(counted) - set(expected)
    assert len(others) == len(HOSTILE) and {key[0] for key in others} == {"dns"}
    assert all(all(0x20 <= ord(c) < 0x7f for c in key[1]) for key in others), "as the DNS writes it"
    rules = {r["fqdn_pinned"] or r["remote_ip"]: r["rule"] for r in (dict(zip(COLUMNS, row)) for row in here) if r["action"] == "deny"}
    assert (rules[denied.name], rules[blocked], rules["93.201.7.7"]) == ("", f"deny {blocked}", "deny 93.201.0.0/16")
    assert server.value("SELECT count(*) - count(DISTINCT (store, store_row)) FROM sandbox_egress_event") == 0
    assert server.value("SELECT count(*) FROM sandbox_egress_event WHERE raw_pkts <> packets") == 0


def test_a_task_that_is_accepted_is_accepted_there(pod, server, tmp_path, denied):
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    side = pod.sidecar("--state-dir", str(state), "--sandbox-id", "sb-task", rules=policy(), env={"WEIR_POSTGRES": server.conninfo})
    pod.probe(["dns", denied.name], ["dns", denied.name])

    def there():
        done = server.psql("SELECT analysis_id, destination, packets, state, who FROM sandbox_egress_review", check=False)
        return done.stdout.decode().rstrip("\n").split("\x1f")
    wait_for(lambda: there() == ["sb-task", denied.name, "2", "open", ""], step=0.05)
    assert side.call("POST", "/review/1/accept?who=alice").status == 200
    wait_for(lambda: there() == ["sb-task", denied.name, "2", "accepted", "alice"], step=0.05)
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]


@pytest.fixture
def small_disk(tmp_path):
    """Twelve megabytes: a store of the usual size doesn't fit."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def counters(state):
    with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
        return db.execute("SELECT coalesce(sum(rows), 0), coalesce(sum(packets), 0) FROM counter").fetchone()


def test_nobody_in_the_sandbox_notices_a_full_disk(pod, site, denied, small_disk):
    """Old rows go, counters stay, lookups and verdicts are as they were; with room again all is well."""
    state = small_disk / "state"
    state.mkdir(mode=0o700)
    side = pod.sidecar("--state-dir", str(state), rules=policy(f"allow {site.name}"))
    pod.probe(["dns", "first." + denied.name])

    def is_counted():
        with contextlib.suppress(sqlite3.OperationalError):  # the store is being made
            return counters(state)[0] >= 1
    wait_for(is_counted, step=0.05)
    with open(small_disk / "big", "wb", buffering=0) as big, pytest.raises(OSError, match="No space"):
        while True:
            big.write(b"\0" * 4096)
    before = counters(state)
    for turn in range(12):
        *_, allowed, refused = pod.probe(*[["dns", f"n{turn}-{i}.{denied.name}"] for i in range(6)], ["dns", site.name],
                                         ["tcp", "93.203.9.9", 443])
        assert allowed.addresses == [site.v4] and allowed.ms < expect.FAST_MS
        assert refused.result == "refused" and refused.ms < expect.FAST_MS
    status = side.get("/status").json()
    assert status["fullIsolation"] and status["mode"] == "dns+nftables"
    assert counters(state)[0] >= before[0], "what is counted stays"
    (small_disk / "big").unlink()
    pod.probe(["dns", "last." + denied.name])

    def is_well():
        pod.probe(["dns", "after." + denied.name])
        return "store" not in [d["what"] for d in side.get("/status").json()["degradations"]]

    def is_written():
        with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM event WHERE name LIKE 'after%'").fetchone()[0]
    spare = pathlib.Path(state / "events.spare")
    end = time.monotonic() + 60
    while not (is_well() and is_written() and spare.exists()):
        assert time.monotonic() < end, (is_well(), is_written(), spare.exists(), side.get("/status").json()["degradations"])
        time.sleep(0.3)
    assert spare.stat().st_size == 2 << 20, "put by again, for the next time"
    assert counters(state)[0] > before[0]
    with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def degraded(status, what="postgres"):
    return [d["reason"] for d in status["degradations"] if d["what"] == what]


def test_a_server_that_hangs_holds_up_nobody_and_is_told(pod, server, tmp_path, site, denied):
    """The sidecar answers, changes its policy and refuses as before; /status and /metrics say what waits."""
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    side = pod.sidecar("--state-dir", str(state), rules=policy(f"allow {site.name}"),
                       env={"WEIR_POSTGRES": server.conninfo + " connect_timeout=2"})
    pod.probe(["dns", "first." + denied.name])
    wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_event"), step=0.05)
    server.signal(signal.SIGSTOP)
    turn, end = 0, time.monotonic() + 60
    while not degraded(side.get("/status").json()) or turn < 5:
        assert time.monotonic() < end
        turn += 1
        assert side.healthy()
        side.post(f"allow {site.name}", f"allow turn{turn}.test")
        lookup, refused, late = pod.probe(["dns", site.name], ["tcp", "93.203.9.9", 443], ["dns", f"t{turn}.{denied.name}"])
        assert lookup.addresses == [site.v4] and refused.result == "refused" and late.ms < expect.FAST_MS
        time.sleep(0.1)
    wait_for(lambda: side.get("/status").json()["postgresWaitingRows"] > 0, step=0.1)
    status = side.get("/status").json()
    assert "no answer within 4 seconds" in degraded(status)[0] or "timeout expired" in degraded(status)[0]
    assert status["fullIsolation"] and (status["postgresMissedRows"], status["postgresRefusedRows"]) == (0, 0)
    metrics = side.get("/metrics").text
    assert 'weir_degraded{what="postgres"} 1' in metrics and "weir_postgres_waiting_rows " in metrics
    server.signal(signal.SIGCONT)
    wait_for(lambda: not degraded(side.get("/status").json()), step=0.1)
    wait_for(lambda: side.get("/status").json()["postgresWaitingRows"] == 0, step=0.1)
    wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_event WHERE fqdn_pinned ="
                                  f" 't{turn}.{denied.name}'") == 1, step=0.1)
    here = in_sqlite(state)
    wait_for(lambda: len(in_postgres(server)) >= len(here), step=0.1)
    assert {row[0] for row in in_postgres(server)} >= {row[0] for row in here}
    assert server.value("SELECT count(*) - count(DISTINCT (store, store_row)) FROM sandbox_egress_event") == 0
    # And a copier that hangs itself.
    os.kill(side.child("weir-postgres"), signal.SIGSTOP)
    os.utime(state / "postgres.state", (time.time() - 120,) * 2)
    wait_for(lambda: "has said nothing" in "".join(degraded(side.get("/status").json())), step=0.05)
    os.kill(side.child("weir-postgres"), signal.SIGCONT)
    pod.probe(["dns", "woken." + denied.name])
    wait_for(lambda: not degraded(side.get("/status").json()), step=0.1)
