# SPDX-License-Identifier: Apache-2.0
"""What is on the host itself: its addresses, the daemon's ports, other sandboxes; by ways that were not made for it."""
import pytest

from test_host_attacks import KINDS, fixture_box  # noqa: F401  # pylint: disable=unused-import
from test_host_daemon import UID, attach, where
from world.member import Member, cgroup_root
from world.sidecar import DNS_PORT, RELAY_PORT, left, to_itself_by

pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")

# Says what came, from whom.
LISTENER = """
import select, socket, sys
found = []
for address in sys.argv[2:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        s = socket.socket(family, kind)
        s.bind((address, int(sys.argv[1])))
        if kind == socket.SOCK_STREAM: s.listen()
        found.append(s)
print("open", flush=True)
while True:
    for s in select.select([*found, sys.stdin], [], [])[0]:
        if s is sys.stdin:
            print("end", flush=True)
            sys.exit()
        if s.type == socket.SOCK_STREAM:
            print("stream", s.accept()[1], flush=True)
        else:
            data, who = s.recvfrom(100)
            print("datagram", who, flush=True)
            s.sendto(b"answer", who)
"""


@pytest.mark.parametrize("port", [DNS_PORT, RELAY_PORT])
def test_ports_of_the_daemon_at_other_addresses(host, tree, box, port):
    """They are its own where it listens, and nowhere else."""
    app = box("cgroup")
    neighbour = Member(host, tree.cgroup("slice-b").below("job"))
    attach(host.daemons[0], "two", cgroup=where(neighbour.cgroup))
    user = Member(host, uid=UID)
    attach(host.daemons[0], "three", uid=UID)
    addresses = ["127.0.0.9", host.ip4, host.ip6]
    listener = neighbour.start("/usr/bin/python3", "-c", LISTENER, port, *addresses)
    assert listener.line() == "open"
    for other in (app, user):
        for answer in other.probe(*(["tcp", a, port] for a in addresses)):
            assert answer.result == "refused", dict(answer)
        for answer in other.probe(*(["udp", a, port, "x"] for a in addresses)):
            assert answer.result != "ok", dict(answer)
    listener.say("\n")
    assert listener.line() == "end"  # and nothing before


# both sides of a conversation over loopback; then either one says it on the link
REBIND = """
import socket, sys
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
a.settimeout(2); b.settimeout(2)
a.bind((sys.argv[1], 0)); b.bind(("127.0.0.1", 0))
a.connect(b.getsockname()); a.send(b"x")
if sys.argv[2] == "cgroup":
    b.connect(b.recvfrom(9)[1]); b.send(b"y")
    print(a.recv(9).decode(), flush=True)
b.connect(a.getsockname())
for s in (a, b):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"up0\\0")
    try: s.send(b"leaves")
    except OSError as e: print(type(e).__name__, flush=True)
"""


@KINDS
def test_what_is_for_this_machine_never_leaves_it(host, box, kind):
    app = box(kind)
    to_itself_by(app, "up0")
    done = app.run("/usr/bin/python3", "-c", REBIND, host.ip4, kind)
    assert kind == "uid" or done.text.split()[:2] == ["y", "PermissionError"], done
    assert left(host) == []


def test_nor_does_it_leave_a_namespace(host, pod):
    host.daemon().attach("one", pod)
    to_itself_by(pod, "eth0")
    assert left(pod) == []


FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", 53))
print("begun", flush=True)
refused = 0
while True:
    try: s.send(bytes.fromhex("1234010000010000000000000161046576696c0000010001"))
    except OSError: refused += 1
    if refused == 10000: print("refused", flush=True)
"""


def test_a_flood_of_queries_is_nobody_elses(host, tree, box, site):
    """All ask at one socket of the daemon's."""
    app = box("cgroup")
    bad = Member(host, tree.cgroup("slice-b").below("job"))
    attach(host.daemons[0], "two", cgroup=where(bad.cgroup))
    floods = [bad.start("/usr/bin/python3", "-c", FLOOD) for _ in range(2)]
    assert [f.line() for f in floods] == ["begun", "begun"]
    answers = [app.probe(["dns", site.name]).result for _ in range(8)]
    assert answers == ["NOERROR"] * 8
    assert floods[0].line() == "refused"
    for flood in floods:
        flood.process.kill()
    assert host.daemons[0].status("two")["counters"]["queries_limited"] > 0
