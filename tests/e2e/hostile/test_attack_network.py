# SPDX-License-Identifier: Apache-2.0
"""The app, as root with what Docker gives, against the sidecar's own sockets and packets."""
import contextlib
import json
import socket
import threading
import time

import pytest

from test_inner import Inner
from world.expect import PATIENCE
from world.lies import DETOURS, LIES
from world.sidecar import policy, wait_for
from world.world import RESOLVER4

EVIL = "93.66.66.66"
BESIDE_DOCKER = """
import json, select, socket, sys
low, high = int(sys.argv[1]), int(sys.argv[2])
evil = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
evil.bind(("127.0.0.11", 53))
sent = 0
for port in range(low, high):
    try: sent += evil.sendto(b"x", ("127.0.0.1", port))
    except OSError: pass
print(sent, flush=True)
for line in sys.stdin:
    port, answer = json.loads(line)
    for _ in range(20):
        try: sent += evil.sendto(bytes.fromhex(answer), ("127.0.0.1", port))
        except OSError: pass
    got = []
    while select.select([evil], [], [], 0.2)[0]:
        try: got.append(evil.recv(999).hex())
        except OSError: pass
    print(json.dumps([sent, got]), flush=True)
"""


def forged(question):
    """The answer that the app would like to have believed."""
    record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x02\x58\x00\x04" + socket.inet_aton(EVIL)
    end = question.index(b"\0", 12) + 5
    return question[:2] + b"\x81\x80" + b"\0\1\0\1\0\0\0\0" + question[12:end] + record


@pytest.mark.parametrize("mode", ["dns+nft", "dns"])
def test_nobody_takes_the_place_of_dockers_resolver(pod, world, site, mode):
    """From 127.0.0.11:53, which is local and free, to every port that the sidecar may take later: its question would be
    the reply of that flow, pass by Docker's nat and reach the app. Then answers with the question's id and case."""
    pod.ns.sysctl(ipv4__ip_local_port_range="40000 40150")
    inner = Inner(pod, (RESOLVER4,), keep=True)
    try:
        pod.sidecar(rules=policy(f"allow {site.name}"), mode=mode)
        app = pod.start("/usr/bin/python3", "-c", BESIDE_DOCKER, 40000, 40151, uid=0, caps=("net_bind_service",))
        assert app.line() == "0"
        release = threading.Event()
        inner.hold = release
        lookup = pod.probe_start(["dns", site.name])
        label = site.name.encode().split(b".")[0]
        data, peer = wait_for(lambda: next(((d, p) for d, p in inner.kept if label in d.lower()), None))
        app.say(json.dumps([peer[1], forged(data).hex()]) + "\n")
        assert json.loads(app.line()) == [0, []]
        release.set()
        assert EVIL not in json.loads(lookup.line()).get("addresses", [])
        wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4], step=0.1)
    finally:
        inner.close()


@pytest.mark.parametrize("port53", [False, True], ids=["", "port 53"])
@pytest.mark.parametrize("uid, caps", [(1000, ()), (0, ("net_admin", "net_raw"))], ids=["app", "root"])
def test_lies_and_detours(pod, guarded, site, uid, caps, port53):
    """Sources that are made up (root may do so in IPv4 too), answers to them, IP options and routing headers."""
    ports = [7007] + [53] * port53
    guarded(*({"action": "allow", "target": a, "ports": ports} for a in (site.v4, site.v6)))
    assert pod.probe(["udp", site.v6, 7007, "first", PATIENCE / 2]).data == "first"
    far, near = ["93.66.66.66", "2a01:93::66:66"], [["127.0.0.1", pod.ip4], ["::1", pod.ip6]]
    for program, args in ((LIES, (far, near, [site.v4, site.v6], [site.v4, site.v6], int(uid == 0))),
                          (DETOURS, ([site.v4, site.v6], far, [site.v4, site.v6]))):
        done = pod.run("/usr/bin/python3", "-IS", "-c", program, *map(json.dumps, args), uid=uid, caps=caps, timeout=120)
        assert done.code == 0 and "ANSWER" not in done.text, done
    left = [p for p in pod.capture.packets(0.2) if not p.is_noise()]
    assert any(p.payload == b"first" for p in left)
    assert [p for p in left if {p.src, p.dst} & set(far) or p.proto in ("43", "icmp", "icmp6") or p.payload.endswith((b"LIE", b"OPTION"))] == []


JOIN = """
import socket, struct, sys
found = []
for i in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    group = socket.inet_pton(socket.AF_INET6, "ff05::") [:8] + struct.pack("!Q", 0x4c45414b45440000 + i)
    try: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("I", 0))
    except OSError: s.close()
    else: found.append(s)
    for family, option in ((socket.AF_INET, "239.76.69.%d" % (i & 255)),):
        t = socket.socket(family, socket.SOCK_DGRAM)
        try: t.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(option) + bytes(4))
        except OSError: pass
        t.close()
print(len(found), flush=True)
sys.stdin.read()
"""


def test_memberships_carry_little_to_the_neighbours(pod, guarded):
    """Which multicast groups the kernel reports is the app's choice, without any right: 16 bytes a group."""
    guarded()
    frames = pod.world.internet.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with frames:
        frames.bind((pod.net, 3))
        frames.settimeout(0.05)
        app = pod.start("/usr/bin/python3", "-c", JOIN, 300)
        assert int(app.line()) == 300
        told, reports, until = 0, 0, time.monotonic() + 4
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                frame = frames.recv(65536)
                assert b"\xef\x4c\x45" not in frame, "an IPv4 group has left"
                told += frame.count(b"LEAKED")
                reports += b"LEAKED" in frame
        assert told <= 4 * 8 and reports <= 8
