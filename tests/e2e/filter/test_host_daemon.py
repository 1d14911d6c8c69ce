# SPDX-License-Identifier: Apache-2.0
"""The daemon guards cgroups and users of the host that it runs on.

The host is a namespace with a link into the world; cgroups and users are the machine's."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from world import expect
from world.member import Member, cgroup_root
from world.sidecar import Flow, policy, wait_for
from world.world import RESOLVER4, ROOT

STRANGER, STRANGER6 = "93.9.9.9", "2a01:93::9:9"
UID, OTHER_UID = 1203, 1204
SYN, ACK = 2, 16
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


@pytest.fixture(name="cgroup")
def fixture_cgroup(tree):
    """In a slice of its own."""
    return tree.cgroup("slice").below("job")


def put(daemon, name, *rules, **where):
    return daemon.call("PUT", f"/sandboxes/{name}", {**where, "policy": json.loads(policy(*rules))})


def attach(daemon, name, *rules, **where):
    reply = put(daemon, name, *rules, **where)
    assert reply.status == 201, f"{reply}\n{daemon}"
    return reply.json()


def where(cgroup):
    return "/" + str(cgroup.path.relative_to(cgroup.root))


def refused_text(reply):
    assert reply.status == 500, reply
    return reply.text


def is_guarded(app, site):
    lookup, tcp, stranger, udp = app.probe(["dns", site.name], ["tcp", site.v4, 443], ["tcp", STRANGER, 443],
                                           ["udp", STRANGER, 9999, "x"])
    expect.tcp_refused(stranger)
    expect.udp_refused(udp)
    return lookup.addresses == [site.v4] and tcp.result == "ok"


def is_free(app):
    return app.probe(["tcp", STRANGER, 443]).result == "ok"


def sent_to_strangers(host):
    """Beginnings: what an earlier connection's end still says is none."""
    return [p for p in host.packets(dst=STRANGER) if p.proto != "tcp" or p.flags & (SYN | ACK) == SYN]


def tables(host):
    return host.nft("list", "tables").split("\n")


class Told:
    """What the stream of events says from now on of changes."""

    def __init__(self, daemon):
        self.reasons, self._socket = [], socket.socket(socket.AF_UNIX)
        self._socket.connect(str(daemon.socket))
        self._socket.sendall(b"GET /events HTTP/1.0\r\n\r\n")
        self._lines = self._socket.makefile(encoding="utf-8", errors="replace")
        while self._lines.readline().strip():
            pass
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError, ValueError):
            for line in self._lines:
                if line.startswith("data: "):
                    self.reasons.append(json.loads(line[6:]).get("reason"))

    def wait(self, reason):
        try:
            wait_for(lambda: reason in self.reasons)
        except AssertionError as late:
            raise AssertionError(f"not {reason!r}, but {self.reasons}") from late


def attached(host, tree, kind):
    """Whoever is to be guarded, somebody like him who isn't, and where."""
    if kind == "uid":
        return Member(host, uid=UID), Member(host, uid=OTHER_UID), {"uid": UID}
    cgroup = tree.cgroup("slice").below("job")
    return Member(host, cgroup), Member(host, tree.cgroup("other")), {"cgroup": str(cgroup.path)}


# who is guarded

@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_it_reaches_what_its_policy_lists_and_nothing_else(host, tree, kind, site, denied):
    daemon = host.daemon()
    app, other, who = attached(host, tree, kind)
    assert is_free(app)
    before = len(sent_to_strangers(host))
    attach(daemon, "one", f"allow {site.name}", **who)
    assert daemon.names() == ["one"]
    assert is_guarded(app, site)
    expect.name_refused(app.probe(["dns", denied.name]))
    for server in ("8.8.8.8", "127.0.0.1", "10.1.2.3"):
        expect.name_refused(app.probe(["dns", denied.name, {"server": server}]))
    assert not host.world.dns.queries(denied.name)
    assert len(sent_to_strangers(host)) == before
    wait_for(lambda: daemon.status("one")["counters"]["queries_denied"] == 4)
    assert daemon.status("one")["fullIsolation"] is True
    wait_for(lambda: denied.name in {d["name"] for d in daemon.denies("one")})
    # nobody else is
    assert is_free(other)
    assert daemon.weir("detach", "one").code == 0
    assert is_free(app) and daemon.names() == []
    assert list((daemon.run_dir / "sandboxes").iterdir()) == []
    attach(daemon, "one", **who)
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))


def test_what_is_shown_is_what_was_meant(host, cgroup):
    daemon = host.daemon()
    assert attach(daemon, "job", cgroup=str(cgroup.path))["cgroup"] == where(cgroup)
    assert attach(daemon, "user", uid="daemon")["uid"] == 1
    shown = {s["id"]: s for s in daemon.get("/sandboxes").json()["sandboxes"]}
    assert shown["job"]["cgroup"] == where(cgroup) and shown["user"]["uid"] == 1


def test_a_host_without_such_sandboxes_has_no_table(host, pod, cgroup):
    daemon = host.daemon()
    daemon.attach("one", pod)
    assert "weir_host" not in host.nft("list", "tables")
    attach(daemon, "two", cgroup=where(cgroup))
    assert "table inet weir_host" in tables(host)


def test_nothing_is_left_of_the_self_test(host, cgroup):
    daemon = host.daemon()
    attach(daemon, "one", cgroup=where(cgroup))
    assert (cgroup.path / "cgroup.procs").read_text() == ""
    assert [p for p in cgroup.path.iterdir() if p.is_dir()] == []


def test_where_no_process_can_be_the_test_is_below(host, cgroup):
    """A cgroup that shares controllers out has none itself."""
    top = [cgroup.root, cgroup.path.parent.parent, cgroup.path.parent, cgroup.path]
    if "hugetlb" not in (cgroup.root / "cgroup.controllers").read_text().split():
        pytest.skip("no controller here")
    before = (cgroup.root / "cgroup.subtree_control").read_text()
    try:
        for path in top:
            (path / "cgroup.subtree_control").write_text("+hugetlb")
        inner = cgroup.below("inner")
        daemon = host.daemon()
        attach(daemon, "one", cgroup=where(cgroup))
        expect.tcp_refused(Member(host, inner).probe(["tcp", STRANGER, 443]))
        assert [p.name for p in cgroup.path.iterdir() if p.is_dir()] == ["inner"]
    finally:
        for path in reversed(top[1:]):
            (path / "cgroup.subtree_control").write_text("-hugetlb")
        if "hugetlb" not in before:
            (cgroup.root / "cgroup.subtree_control").write_text("-hugetlb")


def test_of_nested_ones_the_deeper_counts(host, cgroup, site, denied):
    daemon = host.daemon()
    inner = cgroup.below("inner")
    attach(daemon, "outer", f"allow {site.name}", cgroup=where(cgroup))
    attach(daemon, "inner", f"allow {denied.name}", cgroup=where(inner))
    assert is_guarded(Member(host, cgroup), site) and is_guarded(Member(host, inner), denied)
    expect.name_refused(Member(host, inner).probe(["dns", site.name]))
    assert daemon.weir("detach", "inner").code == 0
    assert is_guarded(Member(host, inner), site)


# who isn't

@pytest.mark.parametrize("path, said_of_it", [
    ("/", "is no cgroup below"), ("/no/such/one", "cannot find the cgroup"), ("/cgroup.procs", "is no cgroup of version 2"),
    ("/../../../../etc", "is no cgroup below"), (str(cgroup_root()), "is no cgroup below")])
def test_what_is_no_cgroup_is_refused(host, path, said_of_it):
    daemon = host.daemon()
    assert said_of_it in refused_text(put(daemon, "one", cgroup=path))
    assert daemon.names() == [] and "weir_host" not in host.nft("list", "tables")


def test_the_daemons_own_cgroup_is_refused(host, tree):
    own = tree.cgroup("services").below("weir")
    daemon = host.daemon(way=["sh", "-ec", f"echo $$ > {own.path}/cgroup.procs; " 'exec "$@"', "sh"])
    for path in (own, own.path.parent, tree):
        path = getattr(path, "path", path)
        assert "the daemon itself lives in the cgroup" in refused_text(put(daemon, "one", cgroup=str(path)))
    beside = tree.cgroup("beside")
    attach(daemon, "one", cgroup=where(beside))


def test_a_member_in_another_network_is_refused(host, cgroup):
    daemon = host.daemon()
    with subprocess.Popen(["unshare", "-n", "sh", "-c", f"echo $$ > {cgroup.path}/cgroup.procs; echo; exec sleep 99"],
                          stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        text = refused_text(put(daemon, "one", cgroup=where(cgroup)))
        other.kill()
    assert f"attach it with --netns {other.pid}" in text


def test_one_that_could_be_left_is_refused(host, cgroup):
    daemon = host.daemon()
    above = cgroup.path.parent / "cgroup.procs"
    os.chown(above, UID, -1)
    assert "could leave the cgroup" in refused_text(put(daemon, "one", cgroup=where(cgroup)))
    os.chown(above, 0, -1)
    attach(daemon, "one", cgroup=where(cgroup))


def test_one_that_is_frozen_or_for_threads_is_refused(host, tree):
    daemon = host.daemon()
    frozen, threads = tree.cgroup("frozen"), tree.cgroup("domain").below("threads")
    (frozen.path / "cgroup.freeze").write_text("1")
    (threads.path / "cgroup.type").write_text("threaded")
    assert "is frozen" in refused_text(put(daemon, "one", cgroup=where(frozen)))
    assert "its type is 'threaded'" in refused_text(put(daemon, "one", cgroup=where(threads)))
    (frozen.path / "cgroup.freeze").write_text("0")
    attach(daemon, "one", cgroup=where(frozen))


def test_two_sandboxes_for_one_are_refused(host, cgroup):
    daemon = host.daemon()
    attach(daemon, "one", cgroup=where(cgroup))
    attach(daemon, "two", uid=UID)
    assert "sandbox 'one' is that cgroup already" in refused_text(put(daemon, "three", cgroup=str(cgroup.path)))
    assert "sandbox 'two' is that user already" in refused_text(put(daemon, "three", uid=UID))
    assert sorted(daemon.names()) == ["one", "two"]


@pytest.mark.parametrize("uid", [0, "root"])
def test_root_is_refused(host, uid):
    daemon = host.daemon()
    assert put(daemon, "one", uid=uid).status in (400, 500) and daemon.names() == []


def test_what_was_refused_can_be_attached(host, cgroup, site):
    """Its id is in the table, perhaps: nobody else gets it."""
    daemon = host.daemon()
    (cgroup.path / "cgroup.freeze").write_text("1")
    for _ in range(3):
        refused_text(put(daemon, "one", cgroup=where(cgroup)))
    (cgroup.path / "cgroup.freeze").write_text("0")
    attach(daemon, "two", f"allow {site.name}", cgroup=where(cgroup))
    assert is_guarded(Member(host, cgroup), site)


@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_a_failed_self_test_leaves_it_closed(host, tree, kind, site):
    """Somebody else's table is in the way. Then the same can be attached, by any name."""
    daemon = host.daemon()
    app, other, who = attached(host, tree, kind)
    attach(daemon, "first", **({"uid": 1} if kind == "cgroup" else {"cgroup": where(tree.cgroup("x").below("y"))}))
    host.nft("add table inet t; add chain inet t o { type filter hook output priority -300; }; add rule inet t o udp dport 53 drop")
    for name in ("one", "one", "two"):
        assert "self-test got no answer" in refused_text(put(daemon, name, f"allow {site.name}", **who))
        assert daemon.names() == ["first"]
        expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
        assert is_free(other)
    assert [p.name for p in (daemon.run_dir / "sandboxes").iterdir()] == ["first"]
    host.nft("delete table inet t")
    attach(daemon, "three", f"allow {site.name}", **who)
    assert is_guarded(app, site)
    daemon.kill_child("engine")
    assert is_guarded(app, site)
    assert daemon.weir("detach", "three").code == 0
    assert is_free(app)


def test_what_failed_is_closed_after_all_have_died(host, tree, site):
    daemon = host.daemon()
    app, _, who = attached(host, tree, "cgroup")
    attach(daemon, "first", uid=UID)
    host.nft("add table inet t; add chain inet t o { type filter hook output priority -300; }; add rule inet t o udp dport 53 drop")
    refused_text(put(daemon, "one", f"allow {site.name}", **who))
    daemon.kill_child("engine")
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    daemon.kill()
    daemon = host.daemon()
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    host.nft("delete table inet t")
    attach(daemon, "one", f"allow {site.name}", **who)
    assert is_guarded(app, site)


# what was there before

DIALLER = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("open", flush=True)
s.settimeout(1)
for line in sys.stdin:
    try:
        if line == "answer\\n":
            s.recv(99)
        s.send(b"secret")
        print("sent", flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
"""


@pytest.mark.parametrize("first", ["server", "server over IPv6", "app"])
@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_what_was_open_before_is_judged_anew(host, tree, kind, first):
    """Whoever speaks first afterwards: the kernel has not seen the connection's beginning."""
    app, other, who = attached(host, tree, kind)
    daemon = host.daemon()
    address = STRANGER6 if first.endswith("6") else STRANGER
    with host.world.internet.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, 7999))
        listener.listen()
        listener.settimeout(5)
        started, peers = [], []
        for member in (app, other):
            started.append(member.start("/usr/bin/python3", "-c", DIALLER, address, 7999))
            assert started[-1].line() == "open"
            peers.append(listener.accept()[0])
        told = Told(daemon)
        attach(daemon, "one", **who)
        told.wait("1 connections from before were ended")
        heard = []
        for caller, peer in zip(started, peers):
            with peer:
                peer.settimeout(0.5)
                if first != "app":
                    peer.send(b"go on")
                caller.say("now\n" if first == "app" else "answer\n")
                caller.line()
                try:
                    heard.append(peer.recv(99))
                except OSError:
                    heard.append(b"")
        # the other's goes on
        assert heard == [b"", b"secret"]


def test_connections_that_the_kernel_has_seen_begin_are_judged(host, tree, cgroup, site, denied):
    app, daemon = Member(host, cgroup), host.daemon()
    attach(daemon, "first", uid=OTHER_UID)  # from now on connections are tracked
    kept, cut = Flow(app, site.v4), Flow(app, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    attach(daemon, "one", f"allow {site.v4}", cgroup=where(cgroup))
    assert kept.say() == "got" and cut.say() != "got"


@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_what_the_kernel_took_up_in_the_middle_is_ended(host, tree, kind):
    """The peer has spoken first since connections are tracked: it would count as who began."""
    app, _, who = attached(host, tree, kind)
    daemon = host.daemon()
    with host.world.internet.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((STRANGER, 7999))
        listener.listen()
        listener.settimeout(5)
        caller = app.start("/usr/bin/python3", "-c", DIALLER, STRANGER, 7999)
        assert caller.line() == "open"
        attach(daemon, "first", uid=OTHER_UID)
        with listener.accept()[0] as peer:
            peer.settimeout(0.5)
            peer.send(b"first")
            caller.say("answer\n")
            assert caller.line() == "sent" and peer.recv(99) == b"secret"
            told = Told(daemon)
            attach(daemon, "one", **who)
            told.wait("1 connections from before were ended")
            with contextlib.suppress(OSError):
                peer.send(b"go on")
            caller.say("answer\n")
            caller.line()
            try:
                assert peer.recv(99) == b""
            except OSError:
                pass


SERVER = """
import socket
s = socket.create_server(("0.0.0.0", 7998))
print("open", flush=True)
c, _ = s.accept()
while data := c.recv(99):
    c.send(data)
"""


def test_whoever_had_dialled_in_goes_on(host, cgroup):
    app, daemon = Member(host, cgroup), host.daemon()
    attach(daemon, "first", uid=OTHER_UID)
    server = app.start("/usr/bin/python3", "-c", SERVER)
    assert server.line() == "open"
    with host.world.internet.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        caller.settimeout(5)
        caller.connect((host.ip4, 7998))
        caller.send(b"one")
        assert caller.recv(99) == b"one"
        attach(daemon, "one", cgroup=where(cgroup))
        caller.send(b"two")
        assert caller.recv(99) == b"two"


STRAY = """import socket, sys
s = socket.socket(); s.connect((sys.argv[1], 7007)); print("open", flush=True)
sys.stdin.readline()
"""


def test_sockets_from_outside_are_told(host, cgroup, site):
    app = Member(host, uid=UID)
    started = app.start("/usr/bin/python3", "-c", STRAY, site.v4)
    assert started.line() == "open"
    (cgroup.path / "cgroup.procs").write_text(str(started.process.pid))
    daemon = host.daemon()
    told = Told(daemon)
    attach(daemon, "one", cgroup=where(cgroup))
    told.wait("1 sockets from outside are not held")
    wait_for(lambda: f"one is {started.process.pid}" in "\n".join(daemon.errors))


# it is made again

def test_one_that_is_made_again_is_guarded(host, cgroup, site, denied):
    daemon = host.daemon()
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    app = Member(host, cgroup)
    assert is_guarded(app, site)
    told = Told(daemon)
    cgroup.make_again()
    told.wait("its cgroup was made again")
    # nothing that was learned counts
    expect.tcp_refused(app.probe(["tcp", site.v4, 443]))
    wait_for(lambda: app.probe(["dns", site.name]).result == "NOERROR")
    assert is_guarded(app, site)
    expect.name_refused(app.probe(["dns", denied.name]))
    daemon.kill_child("engine")
    assert is_guarded(app, site)
    assert not [d for d in daemon.denies("one") if d["sandbox"] != "one"]


def test_it_is_waited_for_until_its_parent_goes(host, tree, site):
    daemon = host.daemon()
    cgroup = tree.cgroup("slice").below("job")
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    told = Told(daemon)
    cgroup.path.rmdir()
    told.wait("its cgroup is gone: waiting for it")
    assert daemon.names() == ["one"]
    daemon.kill_child("engine")
    cgroup.path.mkdir()
    app = Member(host, cgroup)
    wait_for(lambda: app.probe(["dns", site.name]).result == "NOERROR")
    assert is_guarded(app, site)
    cgroup.path.rmdir()
    cgroup.path.parent.rmdir()
    wait_for(lambda: daemon.names() == [])
    left = {p.name for p in (daemon.run_dir / "sandboxes").iterdir()}
    assert left <= {".ended"}  # for as long as the kernel has a rest of any group


# A process that joins the cgroup as soon as it is there, and sends; again and again.
SENDER = """import os, socket, sys
path, address, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(rounds):
    os.rmdir(path)
    os.mkdir(path)
    pid = os.fork()
    if pid == 0:
        open(path + "/cgroup.procs", "w").write("0")
        for port in range(10000, 10040):
            try:
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (address, port))
            except OSError:
                pass
        os._exit(0)
    os.waitpid(pid, 0)
print("done")
"""


def send_while_made_again(host, cgroup, rounds):
    """Return: how many datagrams to the stranger left the host."""
    before = len(sent_to_strangers(host))
    done = subprocess.run(host.ns.command("/usr/bin/python3", "-c", SENDER, str(cgroup.path), STRANGER, str(rounds)),
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done
    return len(sent_to_strangers(host)) - before


def test_not_one_packet_leaves_while_it_is_made_again(host, tree, cgroup, site):
    daemon = host.daemon()
    other = tree.cgroup("elsewhere").below("job")
    assert send_while_made_again(host, other, 2) == 2 * 40
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    assert send_while_made_again(host, cgroup, 30) == 0
    app = Member(host, cgroup)
    wait_for(lambda: app.probe(["dns", site.name]).result == "NOERROR")
    assert is_guarded(app, site)


def test_a_parent_that_others_share_is_guarded_if_asked(host, tree, cgroup, site):
    shared = Member(host, cgroup.path.parent and tree.cgroup("slice2").below("other"))
    parent = tree.path / "slice2"
    job = type(cgroup)(parent / "job", cgroup.root)
    daemon = host.daemon()
    attach(daemon, "one", f"allow {site.name}", cgroup=where(job))
    assert "weir_parents" not in host.nft("list", "tables")
    assert daemon.weir("detach", "one").code == 0
    attach(daemon, "one", f"allow {site.name}", cgroup=where(job), guardParent=True)
    assert "weir_parents" in host.nft("list", "tables")
    assert is_free(shared) and is_guarded(Member(host, job), site)
    # somebody else's is let through as soon as it is seen
    late = Member(host, type(cgroup)(parent / "late", cgroup.root))
    wait_for(lambda: is_free(late))
    assert send_while_made_again(host, job, 10) == 0
    # detached, it is one of the others; while the daemon takes in the last one that was made, it says so
    wait_for(lambda: daemon.weir("detach", "one").code == 0)
    assert is_free(Member(host, job)) and "weir_parents" not in host.nft("list", "tables")


def test_one_that_is_made_below_a_guarded_parent_can_be_attached_at_once(host, tree, site):
    daemon = host.daemon()
    slice_ = tree.cgroup("slice")
    for k in range(10):
        cgroup = slice_.below(f"job{k}")
        attach(daemon, f"s{k}", f"allow {site.name}", cgroup=where(cgroup))
        assert "weir_parents" in host.nft("list", "tables")
    assert is_guarded(Member(host, cgroup), site)
    assert send_while_made_again(host, cgroup, 5) == 0


def test_a_parent_is_guarded_after_a_restart_and_those_below_it_are_known(host, tree, site):
    daemon = host.daemon()
    slice_ = tree.cgroup("slice")
    first, second = slice_.below("job1"), slice_.below("job2")
    attach(daemon, "one", f"allow {site.name}", cgroup=where(first))
    assert "weir_parents" not in host.nft("list", "tables")
    attach(daemon, "two", f"allow {site.name}", cgroup=where(second))
    assert "weir_parents" in host.nft("list", "tables")
    assert daemon.weir("detach", "two").code == 0
    daemon.kill()
    daemon = host.daemon()
    wait_for(lambda: daemon.names() == ["one"])
    assert "weir_parents" in host.nft("list", "tables")
    late = Member(host, slice_.below("late"))
    wait_for(lambda: is_free(late))
    third = slice_.below("job3")
    attach(daemon, "three", f"allow {site.name}", cgroup=where(third))
    assert is_guarded(Member(host, third), site)


def test_the_root_is_no_parent_to_be_guarded(host, tree):
    daemon = host.daemon()
    assert "that can't be guarded" in refused_text(put(daemon, "one", cgroup=where(tree), guardParent=True))
    attach(daemon, "one", cgroup=where(tree))


# it can't be seen

def in_mounts_of(daemon, *argv):
    subprocess.run(["nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt", *map(str, argv)], check=True)


def looks():
    """So long that whoever looks every second has looked."""
    time.sleep(2.5)


def test_what_is_not_mounted_any_more_is_not_gone(host, tree, site, denied):
    """The directory isn't there, and the processes are."""
    cgroup = tree.cgroup("slice").below("job")
    daemon = host.daemon(way=["unshare", "--mount"])
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    app = Member(host, cgroup)
    assert is_guarded(app, site)
    sender = Flow(app, site.v4)
    before = len(sent_to_strangers(host))
    in_mounts_of(daemon, "umount", "-l", cgroup.root)
    looks()
    assert daemon.names() == ["one"] and is_guarded(app, site) and sender.say() == "got"
    expect.name_refused(app.probe(["dns", denied.name]))
    assert len(sent_to_strangers(host)) == before
    # nor is it lost when it is made again, and it is known to be gone when it is
    told = Told(daemon)
    sender.close()
    wait_for(lambda: "populated 0" in (cgroup.path / "cgroup.events").read_text())
    cgroup.make_again()
    told.wait("its cgroup was made again")
    wait_for(lambda: app.probe(["dns", site.name]).result == "NOERROR")
    assert is_guarded(app, site)
    cgroup.path.rmdir()
    cgroup.path.parent.rmdir()
    wait_for(lambda: daemon.names() == [])


def test_what_something_is_mounted_over_is_not_gone(host, tree, site):
    cgroup = tree.cgroup("slice").below("job")
    daemon = host.daemon(way=["unshare", "--mount"])
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    app = Member(host, cgroup)
    before = len(sent_to_strangers(host))
    for hidden in (cgroup.path.parent, cgroup.root):
        in_mounts_of(daemon, "mount", "-t", "tmpfs", "none", hidden)
        looks()
        assert daemon.names() == ["one"] and is_guarded(app, site)
    assert len(sent_to_strangers(host)) == before


def test_a_daemon_that_starts_before_cgroups_are_mounted_keeps_them_guarded(host, tree, site, denied):
    cgroup = tree.cgroup("slice").below("job")
    daemon = host.daemon()
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    attach(daemon, "user", uid=OTHER_UID)
    app = Member(host, cgroup)
    assert is_guarded(app, site)
    before = len(sent_to_strangers(host))
    daemon.kill()
    daemon = host.daemon(way=["unshare", "--mount", "sh", "-ec", f'umount -l {cgroup.root}; exec "$@"', "sh"])
    assert sorted(daemon.names()) == ["one", "user"]
    assert is_guarded(app, site)
    expect.name_refused(app.probe(["dns", denied.name]))
    assert "can't be seen" in str(daemon.status("one")["degradations"])
    looks()
    assert sorted(daemon.names()) == ["one", "user"] and is_guarded(app, site)
    assert len(sent_to_strangers(host)) == before
    told = Told(daemon)
    in_mounts_of(daemon, "mount", "-t", "cgroup2", "none", cgroup.root)
    told.wait("its cgroup is seen again")
    assert not daemon.status("one")["degradations"] and is_guarded(app, site)


# who dies

@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_a_dead_daemon_leaves_it_closed_and_the_next_guards_it(host, tree, kind, site, denied):
    daemon = host.daemon()
    app, other, who = attached(host, tree, kind)
    attach(daemon, "one", f"allow {site.name}", **who)
    assert is_guarded(app, site)
    flow = Flow(app, site.v4)
    before = len(sent_to_strangers(host))
    daemon.kill()
    known, unknown, lookup = app.probe(["tcp", site.v4, 443], ["tcp", STRANGER, 443], ["dns", denied.name])
    assert known.result == "ok" and flow.say() == "got"
    expect.tcp_refused(unknown)
    assert lookup.result != "NOERROR"
    again = host.daemon()
    assert again.names() == ["one"] and again.status("one")["counters"]["adopted"] > 0
    assert flow.say() == "got" and app.probe(["tcp", site.v4, 443]).result == "ok"
    assert is_guarded(app, site)
    assert len(sent_to_strangers(host)) == before
    assert is_free(other)


def test_what_it_was_denied_counts_on_when_it_is_made_again(host, cgroup, site, denied):
    daemon, app = host.daemon(), Member(host, cgroup)
    attach(daemon, "one", cgroup=where(cgroup))
    stop = {"count": 5, "window": "1h", "action": "stop"}
    assert daemon.call("POST", "/sandboxes/one/policy", policy(f"allow {site.name}", on_denies=stop)).status == 200
    told = Told(daemon)
    for answer in app.probe(*(["dns", f"{k}.{denied.name}"] for k in range(4))):
        expect.name_refused(answer)
    assert app.probe(["dns", site.name]).addresses and not daemon.status("one").get("closed")
    cgroup.make_again()
    told.wait("its cgroup was made again")
    wait_for(lambda: app.probe(["dns", site.name]).result == "NOERROR")
    # who asks is ended with the cgroup, perhaps before the answer is read
    with contextlib.suppress(Exception):
        app.probe(*(["dns", f"again-{k}.{denied.name}"] for k in range(4)))
    wait_for(lambda: daemon.status("one").get("closed"))


def test_one_that_was_made_again_meanwhile(host, cgroup, site, denied):
    daemon = host.daemon()
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    app = Member(host, cgroup)
    assert is_guarded(app, site)
    daemon.kill()
    cgroup.make_again()
    # the parent is guarded by the kernel alone
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    again = host.daemon()
    assert again.names() == ["one"]
    expect.tcp_refused(app.probe(["tcp", site.v4, 443]))
    assert is_guarded(app, site)
    expect.name_refused(app.probe(["dns", denied.name]))


def test_one_that_went_meanwhile(host, tree, site):
    daemon = host.daemon()
    stays, goes = tree.cgroup("a").below("job"), tree.cgroup("b").below("job")
    attach(daemon, "stays", f"allow {site.name}", cgroup=where(stays))
    attach(daemon, "goes", cgroup=where(goes))
    daemon.kill()
    for path in (stays.path, goes.path, goes.path.parent):
        path.rmdir()
    again = host.daemon()
    assert again.names() == ["stays"]
    stays.path.mkdir()
    app = Member(host, stays)
    wait_for(lambda: app.probe(["dns", site.name]).result == "NOERROR")
    assert is_guarded(app, site)


def test_with_its_units_capabilities_alone(host, tree, site):
    unit = (ROOT / "deploy" / "systemd" / "weir.service").read_text()
    caps = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).lower().replace("cap_", "+").replace(" ", ",")
    daemon = host.daemon(way=["setpriv", f"--bounding-set=-all,{caps}", "--no-new-privs"])
    for kind in ("cgroup", "uid"):
        app, _, who = attached(host, tree, kind)
        attach(daemon, kind, f"allow {site.name}", **who)
        assert is_guarded(app, site)
        assert kind == "uid" or (app.cgroup.path / "cgroup.procs").read_text() == ""


def test_whoever_flushes_finds_them_again(host, cgroup):
    daemon = host.daemon()
    attach(daemon, "one", cgroup=where(cgroup))
    subprocess.run(host.ns.command("nft", "flush", "ruleset"), check=False, capture_output=True)
    app = Member(host, cgroup)
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    wait_for(lambda: "weir_parents" in host.nft("list", "tables"))


def test_what_is_in_its_folder_is_checked(host, cgroup, site):
    daemon = host.daemon()
    attach(daemon, "one", f"allow {site.name}", cgroup=where(cgroup))
    daemon.kill()
    folder = pathlib.Path(daemon.run_dir) / "sandboxes"
    for name, spec in (("two", {"id": 2, "cgroup": where(cgroup), "cgroup_id": 1, "level": 99, "guard_parent": False, "guards": False}),
                       ("three", {"id": 3, "uid": 0}), ("four", {"id": 4, "uid": -1}), ("five", {"id": 5, "cgroup": 7})):
        (folder / name).mkdir()
        (folder / name / "attach.json").write_text(json.dumps(spec))
        (folder / name / "policy.json").write_text("{}")
    # it says that it doesn't serve all that was guarded before
    again = host.daemon(ready=False)
    wait_for(again.answers)
    wait_for(lambda: again.names() == ["one"])
    assert is_guarded(Member(host, cgroup), site)
    assert again.get("/healthz").status == 503


@pytest.mark.parametrize("harm", ["broken", "empty", "gone", "a folder"])
@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_one_whose_folder_cant_be_read_stays_closed(host, tree, kind, site, harm):
    """The table of the others takes the old one's place: the lost one is not let out by it."""
    daemon = host.daemon()
    app, _, who = attached(host, tree, kind)
    second = tree.cgroup("second").below("job")
    attach(daemon, "lost", f"allow {site.name}", **who)
    attach(daemon, "kept", f"allow {site.name}", cgroup=where(second))
    other = Member(host, second)
    assert is_guarded(app, site) and is_guarded(other, site)
    before = len(sent_to_strangers(host))
    daemon.kill()
    file = pathlib.Path(daemon.run_dir) / "sandboxes" / "lost" / "attach.json"
    text, kept = file.read_text(), (file.parent / "policy.json").read_text()
    file.unlink()
    if harm == "a folder":
        file.mkdir()
    elif harm != "gone":
        file.write_text(text[:9] if harm == "broken" else "")
    daemon = host.daemon(ready=False)
    wait_for(daemon.answers)
    wait_for(lambda: daemon.names() == ["kept"])

    def is_closed():
        known, stranger, udp = app.probe(["tcp", site.v4, 443], ["tcp", STRANGER, 443], ["udp", STRANGER, 9999, "x"])
        expect.tcp_refused(stranger)
        expect.udp_refused(udp)
        return known.result != "ok"
    assert is_closed() and is_guarded(other, site)
    # a new one gets nothing of the lost one's
    third = tree.cgroup("third")
    attach(daemon, "third", f"allow {site.name}", cgroup=where(third))
    assert is_guarded(Member(host, third), site) and is_closed() and is_guarded(other, site)
    os.kill(daemon.children()["engine"], signal.SIGKILL)
    wait_for(lambda: other.probe(["dns", site.name]).get("addresses") == [site.v4])
    assert is_guarded(other, site)
    assert is_closed()
    assert len(sent_to_strangers(host)) == before
    shown = next(d["reason"] for d in daemon.get("/status").json()["degradations"] if d["what"] == "sandboxes")
    assert "'lost' can't be guarded again" in shown
    assert (file.parent / "policy.json").read_text() == kept
    # it is guarded as asked for as soon as it is attached again
    attach(daemon, "again", f"allow {site.name}", **who)
    assert is_guarded(app, site) and len(sent_to_strangers(host)) == before


@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_one_that_comes_late_is_guarded_though_its_number_is_taken(host, tree, pod, kind, site):
    """Somebody has its port when the daemon starts, and another sandbox is attached meanwhile."""
    daemon = host.daemon()
    app, _, who = attached(host, tree, kind)
    attach(daemon, "late", f"allow {site.name}", **who)
    daemon.kill()
    thief = host.start("/usr/bin/python3", "-c", "import socket\ns=socket.socket(2,2); s.bind(('127.0.0.1',15353))\n"
                       "print('mine',flush=True); input()")
    assert thief.line() == "mine"
    daemon = host.daemon(ready=False)
    wait_for(lambda: [line for line in daemon.errors if "cannot guard 'late' again" in line])
    wait_for(daemon.answers)
    attach(daemon, "new", f"allow {site.name}", netns=pod.ns.path)
    numbers = {p.name: json.loads((p / "attach.json").read_text())["id"] for p in (daemon.run_dir / "sandboxes").iterdir() if p.name[0] != "."}
    assert numbers["new"] == numbers["late"]
    thief.kill()
    wait_for(lambda: sorted(daemon.names()) == ["late", "new"])
    assert is_guarded(app, site) and is_guarded(pod, site)


@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_one_that_was_begun_or_removed_when_the_daemon_was_killed_is_no_fault(host, tree, kind, site):
    """Nobody was told that it is guarded, or somebody has asked for its end: the daemon goes on whole, and opens nothing."""
    daemon = host.daemon()
    app, _, who = attached(host, tree, kind)
    attach(daemon, "begun", f"allow {site.name}", **who)
    attach(daemon, "kept", f"allow {site.name}", cgroup=where(tree.cgroup("second").below("job")))
    folder = pathlib.Path(daemon.run_dir) / "sandboxes" / "begun"
    assert is_guarded(app, site) and sorted(p.name for p in folder.iterdir()) == ["attach.json", "image", "policy.json"]
    daemon.kill()
    (folder / "attach.json").rename(folder / "unfinished")
    daemon = host.daemon()
    wait_for(lambda: daemon.names() == ["kept"])
    wait_for(lambda: not folder.exists())
    assert daemon.get("/healthz").status == 200
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    attach(daemon, "again", f"allow {site.name}", **who)
    assert is_guarded(app, site)


class Actor:
    """A member in a random sequence: what it may reach, None when it is not attached."""

    def __init__(self, host, tree, number):
        self.name, self.allowed = f"s{number}", None
        if number == 0:
            self.member, self.where = Member(host, uid=UID), {"uid": UID}
        else:
            cgroup = tree.cgroup(f"slice{number}").below("job")
            self.member, self.where = Member(host, cgroup), {"cgroup": where(cgroup)}

    def reaches(self, sites):
        """Names that are answered and addresses that are open, as seen from there."""
        asked = [p for site in sites for p in (["dns", site.name, {"server": RESOLVER4}], ["tcp", site.v4, 443])]
        answers = self.member.probe(*asked)
        return {site.name for k, site in enumerate(sites)
                if answers[2 * k].result == "NOERROR" or answers[2 * k + 1].result == "ok"}

    def make_again(self):
        if self.member.cgroup:
            self.member.cgroup.make_again()


def test_a_random_sequence(host, tree, world):
    """Attach, change, detach, kill, make again: after each step nothing passes that no policy of that moment allows."""
    rng = random.Random(11)
    sites = [world.site(f"random-{world.number()}.test") for _ in range(3)]
    actors = [Actor(host, tree, k) for k in range(3)]
    daemon = host.daemon()
    steps = ["attach", "change", "detach", "engine", "control", "all", "again", "again", "again while away"]
    for _ in range(30):
        actor, site, step = rng.choice(actors), rng.choice(sites), rng.choice(steps)
        if step == "attach" and not actor.allowed:
            attach(daemon, actor.name, f"allow {site.name}", **actor.where)
            actor.allowed = site
        elif step == "change" and actor.allowed:
            daemon.set_policy(actor.name, f"allow {site.name}")
            actor.allowed = site
        elif step == "detach" and actor.allowed:
            assert daemon.weir("detach", actor.name).code == 0
            actor.allowed = None
        elif step in ("engine", "control"):
            daemon.kill_child(step)
        elif step == "again":
            actor.make_again()
        elif step.endswith("all") or step.endswith("away"):
            daemon.kill()
            if step.endswith("away"):
                actor.make_again()
                assert not actor.allowed or not actor.reaches(sites) - {actor.allowed.name}
            daemon = host.daemon()
        for a in actors:
            want = {a.allowed.name} if a.allowed else {s.name for s in sites}
            found = a.reaches(sites)
            assert found <= want, (step, a.name, found)
            wait_for(lambda a=a, want=want, found=found: found == want or a.reaches(sites) == want, step=0.1)
        assert sorted(daemon.names()) == sorted(a.name for a in actors if a.allowed)


def test_the_list_says_of_each_what_it_was_denied(host, site):
    """More of them than one answer of the engine holds."""
    daemon = host.daemon()
    wanted = {f"u{n}": 0 for n in range(60)}
    for n in range(60):
        attach(daemon, f"u{n}", f"allow {site.name}", uid=21000 + n)
    for n, times in ((0, 1), (47, 2), (48, 3), (59, 4)):
        Member(host, uid=21000 + n).probe(*(["dns", "other.test"] for _ in range(times)))
        wanted[f"u{n}"] = times
    wait_for(lambda: {s["id"]: s["denies"] for s in daemon.get("/sandboxes").json()["sandboxes"]} == wanted)


def test_a_cgroup_that_was_left_closed_and_is_gone_leaves_nothing(host, tree, site):
    daemon = host.daemon()
    attach(daemon, "first", cgroup=where(tree.cgroup("x").below("y")))
    cgroup = tree.cgroup("a").below("b")

    def ids():
        return host.nft("list", "map", "inet", "weir_host", f"cgroups_{len(cgroup.path.relative_to(cgroup_root()).parts)}").count(" : 0x")
    before = ids()
    host.nft("add table inet t; add chain inet t o { type filter hook output priority -300; }; add rule inet t o udp dport 53 drop")
    assert "self-test got no answer" in refused_text(put(daemon, "one", f"allow {site.name}", cgroup=where(cgroup)))
    host.nft("delete table inet t")
    assert ids() == before + 1
    cgroup.path.rmdir()
    wait_for(lambda: ids() == before)
    assert daemon.names() == ["first"]


def test_no_parent_stays_guarded_for_nobody(host, tree, site):
    daemon = host.daemon()
    above = tree.cgroup("slice")
    job = above.below("job")
    attach(daemon, "one", f"allow {site.name}", cgroup=where(job), guardParent=True)
    assert "weir_parents" in host.nft("list", "tables")
    daemon.kill()
    job.path.rmdir()
    above.path.rmdir()
    daemon = host.daemon()
    wait_for(lambda: "weir_parents" not in host.nft("list", "tables"))
    assert daemon.names() == []
