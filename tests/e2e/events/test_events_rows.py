# SPDX-License-Identifier: Apache-2.0
"""What happened in a sandbox stands in the store, as it was and as often as it was."""
import collections
import re
import sqlite3

import pytest

from world.member import Member, attach_member
from world.sidecar import Flow, wait_for

ALLOW, DENY, LIMIT = 1, 2, 5
DNS, ADDRESS, NAME = 1, 2, 3
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
STRANGER4, STRANGER6 = "93.9.9.9", "2a0a::9:9"
WINDOW = 1

# Datagrams to each of @count ports from @port on, @times over; the errors of refused ones are left.
FLOOD = """
import socket, sys
address, port, count, times = sys.argv[1], *map(int, sys.argv[2:])
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(times):
    for i in range(count):
        try:
            s.sendto(b"x" * 10, (address, port + i))
        except OSError:
            pass
"""
PING = """
import os, socket, sys
v6 = ":" in sys.argv[1]
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, 58 if v6 else 1)
for i in range(int(sys.argv[2])):
    try:
        s.sendto(bytes([128 if v6 else 8, 0, 0, 0, 0, 1, 0, i]), (sys.argv[1], 0))
    except OSError:
        pass
"""


class Rows:
    """The rows of the daemon's store."""

    COLUMNS = ("layer", "remote_ip", "remote_port", "protocol", "name", "sum(packets)", "sum(bytes)", "count(*)",
               "max(uid)", "max(rule)", "max(reason)")
    Row = collections.namedtuple("Row", "layer ip port protocol name packets bytes rows uid rule reason")

    def __init__(self, folder):
        self.file = folder / "events.db"

    def __call__(self, sandbox, action):
        try:
            with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as db:
                return {self.Row(*row) for row in db.execute(
                    f"SELECT {','.join(self.COLUMNS)} FROM event WHERE sandbox = ? AND action = ? AND"
                    " (reason IS NULL OR reason NOT LIKE 'names with %')"
                    " GROUP BY layer, remote_ip, remote_port, protocol, name", (sandbox, action))}
        except sqlite3.OperationalError:
            return set()

    def become(self, sandbox, action, wanted, what=lambda r: (r.layer, r.ip, r.port, r.protocol, r.name, r.packets), seconds=60):
        """Wait for exactly @wanted. Return: the rows, by what distinguishes them."""
        def same():
            return {what(r) for r in self(sandbox, action)} == set(wanted)
        try:
            wait_for(same, seconds=seconds, step=0.1)
        except AssertionError:
            got = {what(r) for r in self(sandbox, action)}
            raise AssertionError(f"missing {sorted(map(str, set(wanted) - got))}, too many {sorted(map(str, got - set(wanted)))}") from None
        return {what(r): r for r in self(sandbox, action)}


@pytest.fixture
def rows(host, storing):
    return Rows(host.folder / "state")


def attach(*who, limits={"event_window": WINDOW}, **more):
    attach_member(*who, limits=limits, **more)


def flood(pod, address, port, count=1, times=1):
    assert pod.run("/usr/bin/python3", "-c", FLOOD, address, port, count, times).code == 0


def host_of(app):
    return app.host if isinstance(app, Member) else app


def may_ping(app):
    return {"caps": ("net_raw",)} if isinstance(app, Member) else {"uid": 0, "caps": ("net_raw",)}


def test_denials_of_every_kind_are_the_rows_that_they_were(storing, rows, app, site, denied, tmp_path):
    attach(storing, app, tmp_path, "one", f"allow {site.name}", "deny 93.0.0.0/8")
    app.probe(*[["dns", denied.name]] * 7, ["dns", denied.name, "AAAA"])
    app.probe(*[["tcp", STRANGER4, 443]] * 3, ["tcp", STRANGER6, 443])
    flood(app, STRANGER4, 5000, count=3, times=100)
    flood(app, STRANGER6, 6000, times=250)
    for address, times in ((STRANGER4, 3), (STRANGER6, 2)):
        assert app.run("/usr/bin/python3", "-c", PING, address, times, **may_ping(app)).code == 0
    found = rows.become("one", DENY, {
        (DNS, None, None, None, denied.name, 8),
        (ADDRESS, STRANGER4, 443, TCP, None, 3), (ADDRESS, STRANGER6, 443, TCP, None, 1),
        *((ADDRESS, STRANGER4, port, UDP, None, 100) for port in (5000, 5001, 5002)),
        (ADDRESS, STRANGER6, 6000, UDP, None, 250),
        (ADDRESS, STRANGER4, None, ICMP, None, 3), (ADDRESS, STRANGER6, None, ICMPV6, None, 2)})
    many = found[ADDRESS, STRANGER6, 6000, UDP, None, 250]
    # IPv6 and UDP have 48 bytes; few rows, and each says who
    assert many.bytes == 250 * 58 and many.rows <= 5 and many.uid == 1000
    assert {r.rule for r in found.values() if r.ip == STRANGER4} == {"deny 93.0.0.0/8"}
    assert {r.reason for r in found.values() if r.ip == STRANGER6} == {"no rule allows it"}
    counters = storing.status("one")["counters"]
    assert (counters["packets_denied"], counters["packets_lost"], counters["events_dropped"]) == (3 + 1 + 300 + 250 + 5, 0, 0)


def test_what_passes_by_the_link_is_counted(storing, rows, app, site, tmp_path):
    attach(storing, app, tmp_path, "one", f"allow {site.name}", "allow 93.9.0.0/16")
    app.probe(["dns", site.name], ["dns", site.name, "AAAA"])
    flood(app, STRANGER4, 5000, count=2, times=200)
    flood(app, site.v6, 6000, times=300)
    # what goes on inside is nobody's business
    flood(app, "127.0.0.1", 7000, times=5)
    flood(app, host_of(app).ip4, 7000, times=5)
    found = rows.become("one", ALLOW, {
        *((ADDRESS, STRANGER4, port, UDP, None, 200) for port in (5000, 5001)), (ADDRESS, site.v6, 6000, UDP, site.name, 300)})
    assert found[ADDRESS, STRANGER4, 5000, UDP, None, 200].bytes == 200 * 38
    assert {r.rule for r in found.values()} == {"allow 93.9.0.0/16", f"allow {site.name}"}
    # every packet of a connection, and nothing of it twice
    app.probe(["tcp", site.v4, 7007, "hello"])
    sent = [p for p in host_of(app).packets() if p.dst == site.v4 and p.dport == 7007]
    # The last word is nobody's where the server's end comes late: the kernel has let the socket go by then.
    least = len(sent) - (sent[-1].flags == 0x10)

    def connection():
        return [(r.layer, r.ip, r.protocol, r.name, r.packets) for r in rows("one", ALLOW) if r.port == 7007]
    wait_for(lambda: least <= sum(r[-1] for r in connection()), step=0.1)
    assert connection() in ([(ADDRESS, site.v4, TCP, site.name, n)] for n in (least, len(sent))), (connection(), sent)
    assert len(rows("one", ALLOW)) == len(found) + 1
    # where the host's own listeners are closed, that is a denial
    assert rows("one", DENY) == set() or isinstance(app, Member)


def test_names_that_connections_show(storing, rows, app, site, tmp_path):
    attach(storing, app, tmp_path, "one", f"allow {site.name}", verify="tls", limits={"event_window": 3600})
    app.probe(["dns", site.name])
    good = app.probe(*[["https", site.v4, 443, site.name]] * 3)
    assert [g.result for g in good] == ["ok"] * 3
    app.probe(*[["https", site.v4, 443, "evil.test"]] * 2, ["tcp", STRANGER4, 443])
    rows.become("one", DENY, {(NAME, site.v4, 443, TCP, "evil.test", 2), (ADDRESS, STRANGER4, 443, TCP, None, 1)})
    assert storing.weir("detach", "one").code == 0
    # three connections, in one window
    found = rows.become("one", ALLOW, {(NAME, site.v4, 443, TCP, site.name, 3)})
    only = found[NAME, site.v4, 443, TCP, site.name, 3]
    assert only.rows == 1 and only.bytes > 3 * 200 and only.rule == f"allow {site.name}"


def test_a_connection_that_goes_on_is_told_in_each_window(storing, rows, pod, site, tmp_path):
    attach(storing, pod, tmp_path, "one", {"action": "allow", "target": site.name, "ports": [7007]}, verify="tls")
    pod.probe(["dns", site.name])
    flow = Flow(pod, site.v4)
    said = 0
    for _ in range(3):
        assert flow.say("x" * 99) == "got"
        said += 100
        wait_for(lambda: sum(r.bytes for r in rows("one", ALLOW)) == said, step=0.1)
    (row,) = rows("one", ALLOW)
    assert row.rows >= 2 and (row.ip, row.port, row.name) == (site.v4, 7007, site.name)


def test_what_is_untold_at_the_end_is_told_then(storing, rows, pod, other, site, tmp_path):
    attach(storing, pod, tmp_path, "one", "allow 93.9.0.0/16", limits={"event_window": 3600})
    flood(pod, STRANGER4, 5000, times=20)
    flood(pod, "94.9.9.9", 5000, times=20)
    assert storing.weir("detach", "one").code == 0
    rows.become("one", ALLOW, {(ADDRESS, STRANGER4, 5000, UDP, None, 20)})
    rows.become("one", DENY, {(ADDRESS, "94.9.9.9", 5000, UDP, None, 20)})


def test_a_change_of_policy_takes_no_count_along(storing, rows, pod, site, tmp_path):
    attach(storing, pod, tmp_path, "one", "allow 93.9.0.0/16", limits={"event_window": 3600})
    flood(pod, STRANGER4, 5000, times=20)
    flood(pod, "94.9.9.9", 5000, times=20)
    storing.set_policy("one", "allow 94.9.0.0/16", limits={"event_window": WINDOW})
    flood(pod, STRANGER4, 5000, times=30)
    flood(pod, "94.9.9.9", 5000, times=30)
    rows.become("one", ALLOW, {(ADDRESS, STRANGER4, 5000, UDP, None, 20), (ADDRESS, "94.9.9.9", 5000, UDP, None, 30)})
    rows.become("one", DENY, {(ADDRESS, STRANGER4, 5000, UDP, None, 30), (ADDRESS, "94.9.9.9", 5000, UDP, None, 20)})


def test_more_destinations_than_there_is_room_for(storing, rows, pod, tmp_path):
    """The rest is one row; who is let through stays so."""
    attach(storing, pod, tmp_path, "one", "allow 93.9.0.0/16", limits={"event_window": WINDOW, "events_per_second": "unlimited"})
    flood(pod, "94.9.9.9", 10000, count=3000)
    flood(pod, STRANGER4, 10000, count=3000)

    def accounted():
        """Each is in a row, or in the store's counter."""
        status = storing.status("one")
        counters, known = status["counters"], sum(r.packets for r in rows("one", DENY))
        others = {r.ip: r for r in rows("one", DENY)}.get(None)
        return (others and others.packets >= counters["packets_lost"] > 1000 and others.reason == "more than could be reported one by one" and
                known + status["storeLostPackets"] == counters["packets_denied"] == 3000)
    wait_for(accounted, step=0.1)
    wait_for(lambda: storing.status("one")["counters"]["passed_dropped"] > 0, step=0.1)
    assert len(pod.packets(dst=STRANGER4)) == 3000


def test_a_limit_that_was_reached(storing, rows, pod, site, denied, tmp_path):
    attach(storing, pod, tmp_path, "one", f"allow {site.name}", limits={"queries_per_second": 1, "queries_burst": 2})
    pod.probe(*[["dns", denied.name]] * 6)
    wait_for(lambda: rows("one", LIMIT), step=0.1)
    counters = storing.status("one")["counters"]
    # each query has its row: denied, or over the limit
    wait_for(lambda: sum(r.packets for r in rows("one", LIMIT)) + sum(r.packets for r in rows("one", DENY)) >=
             counters["queries_denied"] + 1, step=0.1)
    # one row for all names
    assert {(r.layer, r.name) for r in rows("one", LIMIT)} == {(DNS, None)}


@pytest.mark.parametrize("child", ["engine", "control"])
def test_counting_goes_on_after_a_child_has_died(storing, rows, pod, tmp_path, child):
    attach(storing, pod, tmp_path, "one", "allow 93.9.0.0/16")
    flood(pod, "94.9.9.9", 5000, times=20)
    rows.become("one", DENY, {(ADDRESS, "94.9.9.9", 5000, UDP, None, 20)})
    storing.kill_child(child)
    wait_for(lambda: storing.get("/sandboxes/one/status").status == 200)
    flood(pod, "94.9.9.9", 6000, times=30)
    flood(pod, STRANGER4, 5000, times=40)
    rows.become("one", DENY, {(ADDRESS, "94.9.9.9", 5000, UDP, None, 20), (ADDRESS, "94.9.9.9", 6000, UDP, None, 30)})
    rows.become("one", ALLOW, {(ADDRESS, STRANGER4, 5000, UDP, None, 40)})


# ---- bytes by destination, in /metrics ----

GET = """
import socket, sys
for name in sys.argv[2:]:
    s = socket.create_connection((sys.argv[1], 80), 60)
    s.sendall(f"GET / HTTP/1.0\\r\\nHost: {name}\\r\\nX: {'x' * 100}\\r\\n\\r\\n".encode())
    while s.recv(65536):
        pass
"""


def by_destination(text):
    """{destination: bytes} that were sent, and that came back."""
    return [{m[1]: int(m[2]) for m in re.finditer(rf'^weir_destination_{way}_bytes_total{{.*destination="([^"]*)"}} (\d+)$', text, re.M)}
            for way in ("sent", "received")]


def test_metrics_have_bytes_by_destination_and_no_end_of_names_fills_them(storing, rows, pod, site, world, tmp_path):
    zone = f"zone-{world.number()}.test"
    names = [f"n{i}.{zone}" for i in range(40)]
    for name in names:
        world.dns.add(name, site.v4)
    attach(storing, pod, tmp_path, "one", f"allow {site.name}", f"allow *.{zone}", "allow 93.9.0.0/16", verify="tls")
    assert pod.run("/usr/bin/python3", "-c", GET, site.name, *[site.name] * 20).code == 0
    flood(pod, STRANGER4, 5000, times=200)

    def has(name, path="/sandboxes/one/metrics"):
        return by_destination(storing.get(path).text)[0].get(name, 0) > 0
    wait_for(lambda: has(site.name) and has(STRANGER4), step=0.1)

    def all_told(path="/sandboxes/one/metrics"):
        text = storing.get(path).text
        sent, received = (sum(counts.values()) for counts in by_destination(text))
        all_received = int(re.search(r"^weir_bytes_received_total\S* (\d+)$", text, re.M)[1])
        return sent == sum(r.bytes for r in rows("one", ALLOW)) and received == all_received and text
    pod.probe(*[["dns", name] for name in names])
    # as many as there are places for first: with half of its bytes told one gives way to another with all of its own
    for some in names[:30], names[30:]:
        assert pod.run("/usr/bin/python3", "-c", GET, site.v4, *some).code == 0
        wait_for(lambda some=some: {r.name for r in rows("one", ALLOW)} >= {*some} and all_told(), step=0.1)
    wait_for(lambda: has("(other)"), step=0.1)
    wait_for(lambda: len({r.name for r in rows("one", ALLOW)} & set(names)) == 40, step=0.1)
    for path in ("/sandboxes/one/metrics", "/metrics"):
        # each byte is in one row, and in the sum
        text = wait_for(lambda path=path: all_told(path), step=0.1)
        sent, received = by_destination(text)
        assert len(sent) == len(received) == 33 and sent[site.name] > 20 * 100 < received[site.name] and sent[STRANGER4] == 200 * 38, text
        assert received[STRANGER4] == 0 and set(sent) <= {site.name, STRANGER4, "(other)", *names}, text
        assert f"weir_bytes_sent_total{'{' if 'one' in path else ''}" in text
