# SPDX-License-Identifier: Apache-2.0
"""What every ruleset refuses before it lets anything through, with packets that arrive, or don't, at another namespace.

The world is that of test_filter_shared.py. The same attack runs below each kind of ruleset, and once below none, where it has to
succeed: made-up sources (IP_FREEBIND takes no capability), IP options and routing headers, and a SYN over an old flow.
"""
import json
import os
import subprocess

import pytest

import test_filter_shared as shared
from test_filter_shared import ALLOWED, ALLOWED6, HERE, HERE6, OTHER, OTHER6
from test_host import STEPS, UID, HostWorld
from world.capture import Capture
from world.lies import DEAF, DETOURS, LIES, OVER
from world.netns import NetNs
from world.sidecar import wait_for

NAMED, NAMED6 = "203.0.113.53", "2600:1::53"  # may be asked on port 53, where a rule says so
RULES = [f"allow {a} 7000" for a in (ALLOWED, ALLOWED6)] + [f"allow {a} 5353" for a in (ALLOWED, ALLOWED6)]
PORT53 = [f"allow {a} 53" for a in (NAMED, NAMED6)]
KINDS = ["owned", "owned relay", "shared", "shared relay", "redirect", "netns", "cgroup", "uid", "rendered cgroup", "rendered uid"]


class OrderWorld(HostWorld):
    """With whoever is guarded, below one kind of ruleset."""

    def __init__(self):
        super().__init__()
        self.box = self.cgroup("box")
        self.uid, self.where, self.loaded = shared.APP, None, False
        self.ok_sysctl("ipv4/ping_group_range", "0 2147483647")
        assert self.app.tcp(OTHER, 7000) == self.app.tcp(OTHER6, 7000) == "0"  # nothing waits for neighbours from now on
        self.arrived()

    def load(self):
        """Once something is attached."""

    def ok_sysctl(self, name, value):
        subprocess.run([*self.enter(), "sh", "-c", 'echo "$1" > /proc/sys/net/$0', name, value], check=True)

    def guard(self, kind, *rules):
        kind, _, more = kind.partition(" ")
        if kind in ("cgroup", "uid"):
            if not self.loaded:
                super().load()
            self.loaded = True
            who = self.box if kind == "cgroup" else f"uid:{UID}"
            self.attach(1, who, *rules)
        elif kind == "rendered":
            self.rules(rules)
            path = self.box.path.relative_to("/sys/fs/cgroup")
            self.driver.ok(f"member {path if more == 'cgroup' else UID} weir")
        elif kind == "owned":
            self.rules(rules)
            self.driver.ok(f"install 1 {'ru6' if more else 'tu6'}")
        else:
            flags = {"redirect": "d"}.get(kind, "r" if more else "-")
            self.driver.policy(*rules, flags=flags, own=kind != "netns")
        self.uid = UID if "uid" in (kind, more) else shared.APP
        self.where = self.box if "cgroup" in (kind, more) else None

    def rules(self, rules):
        for line in ("policy deny", *(f"rule {r}" for r in rules)):
            self.driver.ok(line)

    def member(self, uid=None):  # pylint: disable=arguments-differ
        return self.start(self.uid if uid is None else uid, self.where)

    def run(self, program, *args, root=False):
        """@program as who is guarded, or as root there."""
        join = f'echo $$ > {self.where.path}/cgroup.procs; ' if self.where else ""
        user = [] if root else ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups"]
        done = subprocess.run([*self.enter(), "sh", "-c", join + 'exec "$@"', "sh", *user, "/usr/bin/python3", "-IS", "-c", program,
                               *args], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def outside(self):
        """What comes out of the link from now on."""
        return Capture(Inside(self.sink.process.pid), "in1")


class Inside(NetNs):
    def __init__(self, pid):  # pylint: disable=super-init-not-called
        self.fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)

    def __del__(self):
        os.close(self.fd)


@pytest.fixture(name="world")
def fixture_world():
    if os.geteuid() != 0:
        pytest.skip("needs root, for several users")
    world = OrderWorld()
    yield world
    world.close()


def lie(world, root=False):
    """Who was heard of the far side, and what left from or to it."""
    with world.outside() as capture:
        heard = world.run(LIES, json.dumps([OTHER, OTHER6]), json.dumps([["127.0.0.1", HERE], ["::1", HERE6]]),
                          json.dumps([ALLOWED, ALLOWED6]), json.dumps([NAMED, NAMED6]), str(int(root)), root=root)
        left = [p for p in capture.packets(0.2) if {p.src, p.dst} & {OTHER, OTHER6}]
    return [h for h in heard if h != "LIE"], left


def test_the_lies_work_where_nothing_refuses_them(world):
    heard, left = lie(world)
    assert "ANSWER" in heard, "both ways, to an address that nobody allowed"
    assert {p.proto for p in left} >= {"udp", "tcp", "icmp6"} and {p.dport for p in left} >= {53, 5353, 7000}
    heard, left = lie(world, root=True)
    assert {p.src for p in left} >= {OTHER, OTHER6}


@pytest.mark.parametrize("port53", [False, True], ids=["", "port 53"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_packet_has_a_source_that_is_made_up(world, kind, port53):
    world.guard(kind, *RULES, *(PORT53 if port53 else ()))
    heard, left = lie(world)
    # Who asked may be gone when the answer comes: the kernel says so, and quotes it.
    answers = [p for p in left if p.payload.endswith(b"ANSWER")] if kind == "redirect" else []
    assert [p for p in left if p not in answers] == []
    # With the redirect alone what comes from here may go anywhere; but no flow was begun from there.
    assert heard == [] or kind == "redirect"
    if kind not in ("uid", "rendered uid"):
        _, left = lie(world, root=True)
        assert [p for p in left if p.src in (OTHER, OTHER6)] == [] and (kind == "redirect" or left == [])
    app = world.member()
    for address in (ALLOWED, ALLOWED6):
        assert app.udp(address, 7000, "after") == "0"
    if "relay" not in kind:
        assert app.tcp(ALLOWED, 7000) == app.tcp(ALLOWED6, 7000) == "0"
    after = set()
    wait_for(lambda: after.update(w[1] for w in world.arrived() if w[3] == "after") or after == {ALLOWED, ALLOWED6})


def detour(world):
    with world.outside() as capture:
        took = world.run(DETOURS, json.dumps([ALLOWED, ALLOWED6]), json.dumps([OTHER, OTHER6]), json.dumps([NAMED, NAMED6]))
        packets = capture.packets(0.2)
    return took, [p for p in packets if p.dport in (53, 5353) or p.payload.endswith(b"OPTION") or p.proto == "43"], packets


def test_the_detours_work_where_nothing_refuses_them(world):
    took, left, _ = detour(world)
    assert took >= 24 and {p.dst for p in left} >= {ALLOWED, NAMED, ALLOWED6, OTHER6} and {p.proto for p in left} >= {"udp", "tcp", "43"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_packet_has_options(world, kind):
    world.guard(kind, *RULES, *PORT53)
    took, left, packets = detour(world)
    assert took >= 24 and left == []
    if "relay" not in kind:
        assert {p.dst for p in packets if p.proto == "tcp"} >= {ALLOWED, ALLOWED6}
    assert {p.dst for p in packets if p.payload == b"open"} >= {ALLOWED, ALLOWED6}


@pytest.mark.parametrize("kind", KINDS[:-2])
def test_what_the_kernel_says_of_groups_is_no_denial(world, kind):
    """It tells neighbours of memberships, with IP options."""
    world.guard(kind, *RULES)
    app = shared.App(*world.enter(), "sh", "-c", 'echo $$ > "$0"; exec /usr/bin/python3 -IS -c "$@"',
                     str(world.where.path / "cgroup.procs") if world.where else "/dev/null",
                     JOIN + STEPS + shared.APP_PROGRAM, str(world.uid))
    world.all.append(app)
    app.open("g", "udp")
    app.open("g6", "udp6")
    assert app.join("g", "239.1.2.3", HERE) == app.join6("g6", "ff05::1:3", "in0") == "0"
    assert app.udp(OTHER, 9) == "EPERM" or kind == "redirect"
    events = world.events() if kind in ("cgroup", "uid") else world.driver.events()
    said = [e[1] if kind in ("cgroup", "uid") else e[0] for e in events]
    assert said == ([] if kind == "redirect" else [f"{OTHER}:9"])


JOIN = r"""
import socket, struct
def join(n, group, here):
    sockets[n].setsockopt(0, 35, socket.inet_aton(group) + socket.inet_aton(here))
    return "0"
def join6(n, group, link):
    index = socket.if_nametoindex(link)
    sockets[n].setsockopt(41, 20, socket.inet_pton(socket.AF_INET6, group) + struct.pack("I", index))
    return "0"
"""

def old_flow(world):
    """One that the kernel tracks as established, though both its ends are gone: its port. The end that goes first resets the
    other one where that is late: then there is none, and it takes another try."""
    for _ in range(20):
        port = world.run(DEAF, "7411")
        flows = subprocess.run([*world.enter(), "cat", "/proc/net/nf_conntrack"], capture_output=True, text=True, check=True).stdout
        if any(f"sport={port} dport=7411" in f and "ESTABLISHED" in f for f in flows.splitlines()):
            return port
    pytest.fail(flows)


@pytest.mark.parametrize("kind", ["cgroup", "uid", "rendered cgroup", "rendered uid"])
def test_a_listener_of_the_host_is_not_reached_over_an_old_flow(world, kind):
    own = [] if "cgroup" in kind else ["allow 127.0.0.1 7411"]  # a user's listeners are the host's
    world.guard(kind, *RULES, *own)
    port = old_flow(world)
    if own:
        world.guard(kind, *RULES)
    server = world.start(0)
    server.serve("host", "tcp", "127.0.0.1", 7411)
    assert world.run(OVER, "7411", str(port)) == "ECONNREFUSED"
    assert server.take("host", "c", 0) != "0"
    assert world.app.tcp("127.0.0.1", 7411) == "0" and server.take("host", "c") == "0"


@pytest.mark.parametrize("kind", [k for k in KINDS if "relay" not in k])
def test_the_kernels_reset_without_ack_leaves(world, kind):
    """A peer that speaks on when the socket has gone is told at once."""
    peer = shared.App(*world.enter(world.sink), "/usr/bin/python3", "-IS", "-c", STEPS + shared.APP_PROGRAM, "0")
    world.all.append(peer)
    assert peer.serve("t", "tcp", ALLOWED, 7002) == "0"
    world.guard(kind, *RULES, f"allow {ALLOWED} 7002")
    app = world.member()
    app.open("s", "tcp")
    assert app.dial("s", ALLOWED, 7002) == "0" and peer.take("t", "c") == "0"
    assert app.say("s", "x") == "0" and peer.hear("c") == "x"
    with world.outside() as capture:
        app.close_("s")
        assert peer.hear("c") == "end"
        peer.say("c", "are you there")
        resets = [p for p in capture.packets(0.2, dst=ALLOWED, proto="tcp") if p.flags & 4]
    assert [p.flags & 16 for p in resets] == [0], resets
    assert peer.say("c", "now?") == "EPIPE"
