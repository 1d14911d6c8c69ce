# SPDX-License-Identifier: Apache-2.0
"""The table of a whole host, with processes in real cgroups and real packets that arrive, or don't.

The world is that of test_filter_shared.py: a namespace with a link to a sink. Here the namespace
is the host: apps are in a cgroup each, or have a user id, or are somebody else.
"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

import test_filter_shared as shared
from test_filter_shared import ALLOWED, ALLOWED6, DENIED, HERE, OTHER, OTHER6
from world.member import Tree, cgroup_root

DNS, RELAY, UID = 15353, 15354, 1203
WEB = f"allow {ALLOWED} 443"
WEB6 = f"allow {ALLOWED6} 443"
REFUSED = "ECONNREFUSED"

# More steps for the app: listeners at an address, and the mark that a datagram came with.
STEPS = r"""
import socket, struct
def serve(n, kind, addr, port):
    s = socket.socket(family(addr), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if kind == "udp":
        s.setsockopt(socket.SOL_SOCKET, 75, 1)  # SO_RCVMARK
    s.bind((addr, port))
    if kind == "tcp":
        s.listen(64)
    sockets[n] = s
    return "0"
def take(n, into, seconds=60):
    sockets[n].settimeout(seconds)
    try:
        sockets[into], peer = sockets[n].accept()
    except OSError as e:
        return name(e)
    return "0"
def hear_mark(n, seconds=60):
    sockets[n].settimeout(seconds)
    try:
        data, ancillary, _, peer = sockets[n].recvmsg(2048, 256)
        sockets[n].sendto(data, peer)
    except OSError as e:
        return name(e)
    marks = [struct.unpack("=I", v)[0] for _, kind, v in ancillary if kind == 36]  # SO_MARK
    return [data.decode(), marks[0] if marks else 0]
"""


class HostWorld(shared.World):
    def __init__(self):
        if not cgroup_root():
            pytest.skip("no cgroup v2 here")
        self.tree = Tree()
        super().__init__()
        self.cgroups = {}
        self.load()

    def load(self):
        self.driver.ok(f"hostopen {DNS} {RELAY}")
        self.driver.ok("hostload")

    def start(self, uid, cgroup=None):
        """Somebody with @uid, in @cgroup from the first moment on."""
        where = str((cgroup or self.tree).path / "cgroup.procs") if cgroup else "/dev/null"
        app = shared.App(*self.enter(), "sh", "-c", 'echo $$ > "$0" && exec /usr/bin/python3 -IS -c "$@"', where,
                         STEPS + shared.APP_PROGRAM, str(uid))
        self.all.append(app)
        return app

    def cgroup(self, name):
        self.cgroups[name] = self.tree.below(name)
        return self.cgroups[name]

    def member(self, name, uid=shared.APP):
        """A cgroup with an app in it."""
        cgroup = self.cgroup(name)
        return cgroup, self.start(uid, cgroup)

    def attach(self, sandbox, who, *rules, default="deny", flags="-"):
        self.driver.ok(f"policy {default}")
        for rule in rules:
            self.driver.ok(f"rule {rule}")
        self.driver.ok(f"hostset {sandbox} {getattr(who, 'who', who)} {flags}")
        self.driver.ok("hostverify")

    def events(self):
        """(sandbox, destination) of what was refused."""
        return [(int(e.split("|")[0]), e.split("|")[1]) for e in self.driver.ok("hostevents")]

    def nft(self, *words, check=True, **rest):
        return subprocess.run([*self.enter(), "nft", *words], check=check, capture_output=True, text=True, **rest).stdout

    def close(self):
        super().close()
        self.tree.close()


@pytest.fixture(name="world")
def fixture_world():
    world = HostWorld()
    yield world
    world.close()


def test_a_member_reaches_what_its_policy_allows(world):
    cgroup = world.cgroup("a")
    world.attach(1, cgroup, WEB, WEB6)
    app = world.start(shared.APP, cgroup)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(ALLOWED6, 443) == "0"
    assert app.udp(ALLOWED, 443, "one") == "0"
    assert app.tcp(OTHER, 443) == REFUSED and app.tcp(OTHER6, 443) == REFUSED
    assert app.tcp(ALLOWED, 7000) == REFUSED
    assert app.udp(OTHER, 443) == "EPERM" and app.udp(OTHER6, 443) == "EPERM"
    assert {a for _, a, *_ in world.arrived()} == {ALLOWED, ALLOWED6}
    events = world.events()
    assert (1, f"{OTHER}:443") in events and (1, f"[{OTHER6}]:443") in events
    assert all(sandbox == 1 for sandbox, _ in events)


def test_nobody_else_is_touched(world):
    """Counted behind our chains: no packet of others carries a mark, nothing is logged."""
    cgroup, app = world.member("a")
    world.nft("-f", "-", input="""table inet t {
        chain out { type filter hook postrouting priority 300; 
            meta mark & 0xffff0000 != 0 counter
            ct mark != 0 counter
            counter
        }
    }""")
    world.attach(1, cgroup, WEB)
    world.attach(2, f"uid:{UID}", WEB)
    for other in (world.app, world.root):
        assert other.tcp(OTHER, 443) == "0" and other.tcp(OTHER6, 7000) == "0"
        assert other.udp(OTHER, 53, "free") == "0"
        other.listen("here", "tcp", 7100)
        assert other.tcp("127.0.0.1", 7100) == "0"
        other.close_("here")
    got = world.arrived()
    assert got.count(("udp", OTHER, 53, "free")) == 2
    counters = re.findall(r"packets (\d+)", world.nft("list", "chain", "inet", "t", "out"))
    assert counters[:2] == ["0", "0"] and int(counters[2]) > 10
    assert not world.events()
    assert app.tcp(ALLOWED, 443) == "0"  # and so are packets of members, but for their flows
    counters = re.findall(r"packets (\d+)", world.nft("list", "chain", "inet", "t", "out"))
    assert counters[0] == "0" and counters[1] != "0"


def test_the_marks_of_others_stay(world):
    cgroup, _ = world.member("a")
    world.attach(1, cgroup, WEB)
    world.nft("-f", "-", input="""table inet t {
        chain out { type filter hook postrouting priority 300
            meta mark 0x99 counter
        }
    }""")
    assert world.root.udp(OTHER, 443, "marked", 0, 0x99) == "0"
    assert "packets 1 " in world.nft("list", "chain", "inet", "t", "out")


def test_processes_below_a_cgroup_are_members_and_the_deeper_one_counts(world):
    outer, _ = world.member("outer")
    inner = outer.below("inner")
    app = world.start(shared.APP, inner)
    world.attach(1, outer, WEB)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
    world.attach(2, inner, f"allow {OTHER} 443")
    assert app.tcp(ALLOWED, 443) == REFUSED and app.tcp(OTHER, 443) == "0"
    assert [s for s, _ in world.events()] == [1, 2]
    world.driver.ok("hostremove 2")
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED


def test_a_user_is_a_member(world):
    app = world.start(UID)
    world.attach(7, f"uid:{UID}", WEB)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
    assert app.udp(OTHER, 443) == "EPERM"
    assert {s for s, _ in world.events()} == {7}
    assert world.app.tcp(OTHER, 443) == "0"


@pytest.mark.parametrize("first", ["user", "cgroup"])
def test_a_users_process_in_a_cgroup_that_is_a_member_is_the_cgroups(world, first):
    cgroup, app = world.member("a", UID)
    outside = world.start(UID)
    members = [(1, cgroup, WEB), (2, f"uid:{UID}", f"allow {OTHER} 443")]
    for sandbox, who, policy in members if first == "cgroup" else reversed(members):
        world.attach(sandbox, who, policy)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
    assert outside.tcp(ALLOWED, 443) == REFUSED and outside.tcp(OTHER, 443) == "0"
    assert [s for s, _ in world.events()] == [1, 2]
    world.driver.ok("hostload")
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED


def test_what_one_learned_opens_nothing_to_another(world):
    """With one plan, so one chain: the sets are asked for the sandbox as well."""
    (one, app), (two, other) = world.member("a"), world.member("b")
    for sandbox, cgroup in ((1, one), (2, two)):
        world.attach(sandbox, cgroup, "allow name.example 443")
    assert world.driver.ok("hostlearn 1 203.0.113.9 0 60000 1") == []
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(ALLOWED, 7000) in ("0", REFUSED)
    assert other.tcp(ALLOWED, 443) == REFUSED
    assert len(re.findall(r"chain p\d+_output", world.nft("list", "table", "inet", "weir_host"))) == 1


def test_a_learned_address_is_open_until_its_time_is_over(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow name.example -")
    assert app.tcp(ALLOWED, 443) == REFUSED
    world.driver.ok(f"hostlearn 1 {ALLOWED} 0 400 1")
    app.open("kept", "tcp")
    assert app.dial("kept", ALLOWED, 443) == "0"
    until = time.monotonic() + 60
    while app.tcp(ALLOWED, 443) == "0":
        assert time.monotonic() < until
    assert app.say("kept", "still") == "0" and app.hear("kept") == "still"


def test_a_change_cuts_what_it_revokes_and_leaves_the_rest(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, WEB, f"allow {OTHER} 443")
    for name, addr in (("stays", ALLOWED), ("goes", OTHER)):
        app.open(name, "tcp")
        assert app.dial(name, addr, 443) == "0" and app.say(name, "a") == "0" and app.hear(name) == "a"
    world.attach(1, cgroup, WEB)
    world.arrived()
    assert app.say("stays", "b") == "0" and app.hear("stays") == "b"
    app.say("goes", "leak")
    assert app.hear("goes") in ("ECONNRESET", "EPIPE")
    assert "leak" not in [text for *_, text in world.arrived()]
    # Back again: flows of the first time are judged like new ones.
    world.attach(1, cgroup, WEB, f"allow {OTHER} 443")
    assert app.say("stays", "c") == "0" and app.hear("stays") == "c"
    assert app.tcp(OTHER, 443) == "0"


@pytest.mark.parametrize("line", ["go on", "SYN"])
@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_nobody_takes_up_what_was_cut(world, kind, line):
    cgroup = world.cgroup("a")
    app = world.start(shared.APP if kind == "cgroup" else UID, cgroup if kind == "cgroup" else None)
    who = cgroup if kind == "cgroup" else f"uid:{UID}"
    world.attach(1, who, f"allow {OTHER} 7100")
    shared.assert_nobody_takes_up_what_was_cut(world, app, lambda: world.attach(1, who, WEB), line)


def test_a_name_that_is_revoked_takes_its_learned_addresses_along(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow name.example 443", "allow other.example 443")
    world.driver.ok(f"hostlearn 1 {ALLOWED} 0 60000 1")
    world.driver.ok(f"hostlearn 1 {OTHER} 0 60000 1")
    for name, addr in (("stays", ALLOWED), ("goes", OTHER)):
        app.open(name, "tcp")
        assert app.dial(name, addr, 443) == "0"
    world.driver.ok(f"hoststate learned {ALLOWED} 0 60000")
    world.attach(1, cgroup, "allow name.example 443")
    assert app.say("stays", "b") == "0" and app.hear("stays") == "b"
    app.say("goes", "leak")
    assert app.hear("goes") in ("ECONNRESET", "EPIPE") and app.tcp(OTHER, 443) == REFUSED
    # The first plan again, under its old number or another: what was learned then is no longer open.
    world.attach(1, cgroup, "allow name.example 443", "allow other.example 443")
    assert app.tcp(OTHER, 443) == REFUSED and app.tcp(ALLOWED, 443) == REFUSED
    world.driver.ok("hosttidy")
    assert world.driver.ok("hostlearned") == []
    world.driver.ok("hostverify")


def test_kept_addresses_go_on_and_begin_nothing(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow name.example 443")
    world.driver.ok(f"hostlearn 1 {ALLOWED} 0 60000 1")
    app.open("kept", "tcp")
    assert app.dial("kept", ALLOWED, 443) == "0"
    world.driver.ok(f"hoststate kept {ALLOWED} 0 0")
    world.attach(1, cgroup, "allow name.example 443", "allow more.example 443")
    assert app.say("kept", "on") == "0" and app.hear("kept") == "on"
    assert app.tcp(ALLOWED, 443) == REFUSED


@contextlib.contextmanager
def flooded(app):
    """@app sends to a stranger meanwhile; afterwards: how many were not refused, and how many there were."""
    stop, said = pathlib.Path(f"/tmp/weir-test-{os.getpid()}-flood"), []
    app.put(json.dumps(["flood", OTHER, 7000, 60, str(stop)]))
    assert json.loads(app.line()) == "runs"
    try:
        yield said
    finally:
        stop.touch()
        said += json.loads(app.line())
        stop.unlink()


def test_no_packet_slips_through_while_plans_change(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, WEB)
    with flooded(app) as said:
        for change in range(50):
            world.driver.ok("policy deny")
            world.driver.ok(f"rule allow {ALLOWED} {400 + change % 7}")
            world.driver.ok(f"hostset 1 {cgroup.who} -")
    assert said[0] == 0 and said[1] > 1000
    assert not [a for _, a, *_ in world.arrived() if a == OTHER]


def test_a_detached_cgroup_is_free_and_nothing_of_it_is_left(world):
    (cgroup, app), (other, guarded) = world.member("a"), world.member("b")
    world.attach(2, other, f"allow {OTHER} 443")
    before = world.nft("list", "table", "inet", "weir_host")
    world.attach(1, cgroup.below("deep"), WEB)
    world.attach(3, f"uid:{UID}", WEB6)
    world.attach(1, cgroup, WEB, "allow name.example -")
    world.driver.ok(f"hostlearn 1 {ALLOWED6} 0 60000 9")
    for sandbox in (1, 3):
        world.driver.ok(f"hostremove {sandbox}")
    world.driver.ok("hosttidy")
    world.driver.ok("hostverify")
    assert world.nft("list", "table", "inet", "weir_host") == before
    assert app.tcp(DENIED, 443) == "0" and guarded.tcp(DENIED, 443) == REFUSED


def test_loopback_is_open_among_the_processes_of_one_cgroup(world):
    (cgroup, app), (other, stranger) = world.member("a"), world.member("b")
    mate = world.start(shared.APP, cgroup.below("inner"))
    for sandbox, who in ((1, cgroup), (2, other)):
        world.attach(sandbox, who, WEB)
    for listener, port in ((mate, 7201), (world.app, 7202), (stranger, 7203)):
        for addr in ("127.0.0.1", "::1", HERE):
            assert listener.serve(f"t{addr}", "tcp", addr, port) == "0"
            assert listener.serve(f"u{addr}", "udp", addr, port) == "0"
    for addr in ("127.0.0.1", "::1", HERE):
        app.open("t", "tcp6" if ":" in addr else "tcp")
        assert app.dial("t", addr, 7201) == "0"
        assert mate.take(f"t{addr}", "c") == "0"
        assert app.say("t", "hello") == "0" and mate.hear("c") == "hello"
        assert mate.say("c", "you") == "0" and app.hear("t") == "you"
        app.open("u", "udp6" if ":" in addr else "udp")
        assert app.dial("u", addr, 7201) == "0" and app.say("u", "one") == "0"
        assert mate.hear_mark(f"u{addr}") == ["one", 0] and app.hear("u") == "one"
        assert app.say("u", "two") == "0" and mate.hear_mark(f"u{addr}")[0] == "two"
        for listener, port in ((world.app, 7202), (stranger, 7203)):
            assert app.tcp(addr, port) == REFUSED
            app.udp(addr, port, "leak")
            assert listener.hear(f"u{addr}", 0.3) == "timeout"
            assert listener.take(f"t{addr}", "c", 0) == "EAGAIN"
    assert world.app.tcp("127.0.0.1", 7201) == "0"  # others are free to
    assert (1, "127.0.0.1:7202") in world.events()


def test_an_address_rule_opens_a_listener_of_the_host_and_a_change_cuts_it(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow 127.0.0.1 7301")
    for port in (7301, 7302):
        world.app.serve(f"t{port}", "tcp", "127.0.0.1", port)
        world.app.serve(f"u{port}", "udp", "127.0.0.1", port)
    app.open("t", "tcp")
    assert app.dial("t", "127.0.0.1", 7301) == "0" and app.tcp("127.0.0.1", 7302) == REFUSED
    app.open("u", "udp")
    assert app.dial("u", "127.0.0.1", 7301) == "0" and app.say("u", "one") == "0"
    assert world.app.hear_mark("u7301")[0] == "one" and app.hear("u") == "one"
    world.app.take("t7301", "c")
    world.attach(1, cgroup, WEB)
    app.say("t", "leak")
    assert world.app.hear("c", 0.3) in ("timeout", "ECONNRESET") and app.hear("t") in ("ECONNRESET", "EPIPE")
    app.say("u", "leak")
    assert world.app.hear_mark("u7301", 0.3) == "timeout"


def test_loopback_is_closed_to_a_user_but_for_rules(world):
    app = world.start(UID)
    world.attach(1, f"uid:{UID}", "allow 127.0.0.1 7401")
    for port in (7401, 7402):
        world.app.serve(f"t{port}", "tcp", "127.0.0.1", port)
    assert app.tcp("127.0.0.1", 7401) == "0" and app.tcp("127.0.0.1", 7402) == REFUSED


def test_the_host_is_closed_by_default_even_when_all_else_is_open(world):
    cgroup, app = world.member("a", 0)
    world.attach(1, cgroup, default="allow")
    world.app.serve("t", "tcp", "127.0.0.1", 7501)
    assert app.tcp(OTHER, 443) == "0" and app.ping(OTHER) == "0"
    assert app.tcp("127.0.0.1", 7501) == REFUSED and app.tcp("169.254.169.254", 80) == REFUSED


def test_queries_go_to_the_engine_and_say_who_asks(world):
    (one, app), (two, other) = world.member("a"), world.member("b")
    for kind in ("udp", "tcp"):
        for addr in ("127.0.0.1", "::1"):
            world.root.serve(kind + addr, kind, addr, DNS)
    world.attach(1, one, WEB)
    world.attach(2, two, WEB, WEB6)
    for who, sandbox in ((app, 1), (other, 2)):
        for to, at in ((OTHER, "127.0.0.1"), (OTHER6, "::1"), ("127.0.0.53", "127.0.0.1"), (ALLOWED, "127.0.0.1")):
            who.open("u", "udp6" if ":" in to else "udp")
            assert who.dial("u", to, 53) == "0"
            for text in ("first", "second"):  # of one flow: nat is asked once
                assert who.say("u", text) == "0"
                got, mark = world.root.hear_mark("udp" + at)
                assert got == text and mark >> 16 == sandbox and who.hear("u") == text
            assert who.tcp(to, 53) == "0" and world.root.take("tcp" + at, "c") == "0"
    assert world.app.udp(OTHER, 53, "mine") == "0"
    assert world.root.hear("udp127.0.0.1", 0.3) == "timeout"
    assert ("udp", OTHER, 53, "mine") in world.arrived()


def test_of_a_connection_conntrack_says_whose_it_is(world):
    (one, app), (two, other) = world.member("a"), world.member("b")
    user = world.start(UID)
    for sandbox, who in ((1, one), (2, two), (3, f"uid:{UID}")):
        world.attach(sandbox, who, WEB, WEB6, flags="r")
    for port, to, to6 in ((DNS, (OTHER, 53), (OTHER6, 53)), (RELAY, (ALLOWED, 443), (ALLOWED6, 443))):
        for addr, (target, number) in (("127.0.0.1", to), ("::1", to6)):
            world.driver.ok(f"hostlisten {addr} {port}")
            for who, sandbox in ((app, "1"), (other, "2"), (user, "3")):
                assert who.tcp(target, number) == "0"
                assert world.driver.ok("hostwho") == [sandbox]
    world.driver.ok(f"hostlisten 127.0.0.1 {DNS}")
    assert world.app.tcp("127.0.0.1", DNS) == "0"
    assert world.driver.ask("hostwho") in (["0"], "No such file or directory")


def test_port_53_is_closed_to_a_tuple_that_was_known_before(world):
    """A flow that somebody else began skips nat; nobody of a sandbox can go on with it."""
    cgroup, app = world.member("a")
    world.attach(1, cgroup, WEB)
    for port in (53, 443):
        assert world.app.udp(OTHER, port, "before", 5300) == "0"
        world.arrived()
        assert app.udp(OTHER, port, "leak", 5300) in ("EPERM", REFUSED)
    assert "leak" not in [text for *_, text in world.arrived()]


def test_tcp_goes_to_the_relay_and_the_relay_is_nobody_elses(world):
    cgroup, app = world.member("a")
    world.root.serve("relay", "tcp", "127.0.0.1", RELAY)
    world.attach(1, cgroup, WEB, f"allow {DENIED} 443", flags="r")
    assert app.tcp(ALLOWED, 443) == "0" and world.root.take("relay", "c") == "0"
    assert app.tcp("127.0.0.1", RELAY) == REFUSED and app.tcp(OTHER, 443) == REFUSED
    assert not [a for k, a, *_ in world.arrived() if k == "tcp"]
    world.attach(1, cgroup, WEB)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp("127.0.0.1", RELAY) == REFUSED
    assert [a for k, a, *_ in world.arrived() if k == "tcp"] == [ALLOWED]


def test_who_dials_in_is_answered(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup)
    app.listen("l", "tcp", 7600)
    code = f"import socket; s = socket.create_connection(('{HERE}', 7600), 60); s.send(b'in'); print(s.recv(9).decode())"
    with subprocess.Popen([*world.enter(world.sink), "/usr/bin/python3", "-c", code], stdout=subprocess.PIPE, text=True) as dials:
        assert app.take("l", "c") == "0"
        assert app.hear("c") == "in" and app.say("c", "back") == "0"
        assert dials.stdout.read().strip() == "back"


def test_a_cgroup_that_is_made_again_is_another_one(world):
    cgroup = world.cgroup("a")
    world.attach(1, cgroup, WEB)
    first = cgroup.who
    cgroup.path.rmdir()
    cgroup.path.mkdir()
    assert cgroup.who != first
    world.attach(1, cgroup)  # everything is closed first
    app = world.start(shared.APP, cgroup)
    assert app.tcp(ALLOWED, 443) == REFUSED
    world.attach(1, cgroup, WEB)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED


def test_a_parent_that_denies_guards_what_is_not_known_yet(world):
    parent = world.cgroup("all")
    world.attach(1, parent)
    app = world.start(shared.APP, parent.below("new"))
    assert app.tcp(ALLOWED, 443) == REFUSED
    world.attach(2, world.tree.path and f"cgroup:{(parent.path / 'new').stat().st_ino}:3", WEB)
    assert app.tcp(ALLOWED, 443) == "0"


def test_the_table_is_ours_and_outlives_us(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow name.example 443")
    world.driver.ok(f"hostlearn 1 {ALLOWED} 0 60000 1")
    app.open("flow", "tcp")
    assert app.dial("flow", ALLOWED, 443) == "0"
    world.nft("flush", "ruleset", check=False)
    world.nft("delete", "table", "inet", "weir_host", check=False)
    world.driver.ok("hostverify")
    world.driver.ok("hostclose")
    assert app.tcp(OTHER, 443) == REFUSED and app.tcp(ALLOWED, 443) == "0"
    # The next one begins where the last one ended.
    world.driver.ok(f"hostopen {DNS} {RELAY}")
    assert [x.rsplit("|", 1)[0] for x in world.driver.ok("hostlearned")] == [f"1|{ALLOWED}|0"]
    world.driver.ok("policy deny")
    world.driver.ok("rule allow name.example 443")
    world.driver.ok(f"hoststate learned {ALLOWED} 0 60000")
    world.driver.ok(f"hostset 1 {cgroup.who} -")
    assert app.tcp(OTHER, 443) == REFUSED and app.tcp(ALLOWED, 443) == "0"
    world.driver.ok("hostload")
    world.driver.ok("hostverify")
    assert app.say("flow", "on") == "0" and app.hear("flow") == "on"
    assert app.tcp(OTHER, 443) == REFUSED and app.tcp(ALLOWED, 443) == "0"


def test_loading_again_loses_nothing(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow name.example 443")
    world.driver.ok(f"hostlearn 1 {ALLOWED} 0 60000 1")
    world.driver.ok("hostload")
    world.driver.ok("hostverify")
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED


def test_what_differs_is_found(world):
    cgroup, _ = world.member("a")
    world.attach(1, cgroup, WEB)
    world.driver.ok("hostverifyone 1")
    assert "No such" in world.driver.ask("hostverifyone 2")


def test_what_is_no_sandbox_is_refused(world):
    for line in ("hostset 0 uid:5 -", "hostset 1 cgroup:0:2 -", "hostset 1 cgroup:9:0 -", "hostset 1 cgroup:9:33 -",
                 "hostset 1 nobody -"):
        assert "cannot attach" in world.driver.ask(line), line
    cgroup, app = world.member("a")
    world.attach(1, cgroup, WEB)
    assert "sandbox 1 is that" in world.driver.ask(f"hostset 2 {cgroup.who} -")
    world.driver.ok("hostverify")
    assert app.tcp(ALLOWED, 443) == "0"


def test_whose_number_another_one_gets_stays_closed(world):
    """Numbers of the left over are counted down from the last one; whoever gives them out may not know that."""
    left = [world.member(name) for name in "abc"]
    user = world.start(UID)
    for sandbox, who in enumerate([*(cgroup for cgroup, _ in left), f"uid:{UID}"], start=1):
        world.attach(sandbox, who, WEB)
    world.driver.ok("hostclose")
    world.driver.ok(f"hostopen {DNS} {RELAY}")
    assert world.driver.ok("hostload") == ["4"]
    numbers = range(65535, 65531, -1)
    fresh = [world.member(f"new{number}") for number in numbers]
    for number, (cgroup, app) in zip(numbers, fresh):
        world.attach(number, cgroup, WEB)
        assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
    for app in (*(app for _, app in left), user):
        assert app.tcp(ALLOWED, 443) == REFUSED and app.udp(OTHER, 443) == "EPERM"
    assert world.driver.ok("hostload") == ["4"]
    # who was left over comes under the number that another one who was left over has
    for number in numbers:
        world.driver.ok(f"hostremove {number}")
    world.driver.ok("hostclose")
    world.driver.ok(f"hostopen {DNS} {RELAY}")
    assert world.driver.ok("hostload") == ["4"]
    for number, (cgroup, app) in zip((65534, 65533, 65535), left):
        world.attach(number, cgroup, WEB)
        assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
        assert user.tcp(ALLOWED, 443) == REFUSED
    assert world.driver.ok("hostload") == ["1"]
    assert user.tcp(ALLOWED, 443) == REFUSED


def test_many_members(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, "allow name.example 443")
    print("attach and read back, 2,000 sandboxes: p50, slowest in us:", *world.driver.ok("hostbench 2 2000"))
    print("learn beside them: p50, p99 in ns:", *world.driver.ok("hostlearnbench 2000"))
    world.driver.ok("hostverify")
    world.driver.ok(f"hostlearn 1 {ALLOWED} 0 60000 1")
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
    started = time.monotonic()
    world.driver.ok("hostload")
    print(f"all of it anew: {1000 * (time.monotonic() - started):.0f} ms")
    assert app.tcp(OTHER, 443) == REFUSED


def test_no_packet_slips_through_while_the_table_is_made_anew(world):
    cgroup, app = world.member("a")
    world.attach(1, cgroup, WEB)
    app.open("flow", "tcp")
    assert app.dial("flow", ALLOWED, 443) == "0"
    with flooded(app) as said:
        for _ in range(25):
            world.driver.ok("hostload")
    assert said[0] == 0 and said[1] > 1000
    assert not [a for _, a, *_ in world.arrived() if a == OTHER]
    assert app.say("flow", "on") == "0" and app.hear("flow") == "on"
    assert "weir_host_guard" not in world.nft("list", "tables")


def test_who_was_guarded_before_is_closed_until_he_is_known_again(world):
    (one, app), (two, other) = world.member("a"), world.member("b")
    user = world.start(UID)
    for sandbox, who in ((1, one), (2, two), (3, f"uid:{UID}")):
        world.attach(sandbox, who, WEB)
    world.driver.ok("hostclose")
    world.driver.ok(f"hostopen {DNS} {RELAY}")
    world.driver.ok("policy deny")
    world.driver.ok(f"rule {WEB}")
    world.driver.ok(f"hostset 2 {two.who} -")
    assert world.driver.ok("hostload") == ["2"]
    world.driver.ok("hostverify")
    assert other.tcp(ALLOWED, 443) == "0"
    for who in (app, user):
        assert who.tcp(ALLOWED, 443) == REFUSED and who.udp(OTHER, 443) == "EPERM"
    # Another sandbox gets the number that one of them had, and then he is known again.
    world.attach(1, world.cgroup("c"), WEB)
    assert app.tcp(ALLOWED, 443) == REFUSED
    world.attach(4, one, WEB)
    assert app.tcp(ALLOWED, 443) == "0" and app.tcp(OTHER, 443) == REFUSED
    assert user.tcp(ALLOWED, 443) == REFUSED
    assert world.driver.ok("hostload") == ["1"]
    assert user.tcp(ALLOWED, 443) == REFUSED and app.tcp(ALLOWED, 443) == "0"
