# SPDX-License-Identifier: Apache-2.0
"""Ways out of a cgroup, or of a user, that the daemon guards on the host that it runs on; and out of a namespace.

The table of README.md says which of the catalogue's ways are tried where."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile

import pytest

import test_host_daemon as host_daemon
from test_host_daemon import STRANGER, UID, attach, is_guarded, where
from world import expect
from world.member import Member, cgroup_root
from world.sidecar import end_input, wait_for

KINDS = pytest.mark.parametrize("kind", ["cgroup", "uid"])
ALL_KINDS = pytest.mark.parametrize("kind", ["cgroup", "uid", "netns"])
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")
SOL_SOCKET, SO_MARK, SO_PRIORITY, SO_BINDTODEVICE, IP_TRANSPARENT = 1, 36, 12, 25, 19


@pytest.fixture(name="box")
def fixture_box(host, tree, pod, site):
    """Who is attached and may reach the site, by kind."""
    def make(kind):
        if kind == "netns":
            app, who = pod, {"netns": pod.ns.path}
        else:
            app, _, who = host_daemon.attached(host, tree, kind)
        attach(host.daemons[0] if host.daemons else host.daemon(), "one", f"allow {site.name}", **who)
        assert is_guarded(app, site)
        return app
    return make


def outside(app):
    """The namespace whose link it sends by."""
    return getattr(app, "host", app)


def nothing_to_strangers(app, before):
    return outside(app).packets(dst=STRANGER)[before:] == []


@ALL_KINDS
def test_other_addresses_near_and_far(box, other, kind):  # C1 C3 C6 C8 C9 C10
    app = box(kind)
    link = outside(app)
    before = len(link.capture.packets())
    targets = [other.ip4, other.ip6, "fec0::1", "10.1.2.3", "192.168.1.1", "172.17.0.1", "100.64.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200",
               STRANGER, "fd00:ec2::254", "fc00::1", "2a01:93::9:9", "::ffff:93.9.9.9"]
    for answer in app.probe(*(["tcp", t, 443] for t in targets)):
        assert answer.result != "ok" and answer.ms < expect.FAST_MS, dict(answer)
    for answer in app.probe(*(["udp", t, 9999, "x"] for t in targets if t != "::ffff:93.9.9.9"),
                            ["udp", "255.255.255.255", 9999, "x", {"broadcast": True}], ["udp", "224.0.0.251", 5353, "x"]):
        assert answer.result not in ("ok", "sent"), dict(answer)
    assert not [p for p in link.capture.packets()[before:] if p.dst in targets or p.dst.startswith(("255.", "224."))]


HEARER = """
import select, socket, struct
sockets = []
for family, any, group in ((socket.AF_INET, "0.0.0.0", "224.0.0.251"), (socket.AF_INET6, "::", "ff02::fb")):
    s = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6: s.setsockopt(41, socket.IPV6_V6ONLY, 1)
    s.bind((any, 7412))
    if family == socket.AF_INET6: s.setsockopt(41, 20, socket.inet_pton(family, group) + struct.pack("i", 0))
    else: s.setsockopt(0, 35, socket.inet_aton(group) + socket.inet_aton("127.0.0.1"))
    sockets.append(s)
print("listens", flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        print(s.recv(99).decode(), flush=True)
"""
SPEAKER = """
import socket, sys
for word, to, *lo in (l.split() for l in sys.stdin):
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(1, socket.SO_BROADCAST, 1)
        if lo: s.setsockopt(0, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        try: s.sendto((word + " " + to).encode(), (to, 7412))
        except PermissionError: pass
"""


@ALL_KINDS
def test_what_several_hosts_hear(host, tree, pod, kind):  # C21
    """Under `defaultAction: allow` too: the host hears it itself, on listeners that are closed at its own addresses."""
    app, who = (pod, {"netns": pod.ns.path}) if kind == "netns" else host_daemon.attached(host, tree, kind)[::2]
    link = outside(app)
    to = ["127.255.255.255", link.ip4.rsplit(".", 1)[0] + ".255", "255.255.255.255", "224.0.0.251 lo", "ff02::fb"]
    hearer = link.start("/usr/bin/python3", "-c", HEARER)
    assert hearer.line() == "listens"

    def say(word, last):
        done = app.run("/usr/bin/python3", "-c", SPEAKER, input="".join(f"{word} {t}\n" for t in [*to, last]).encode())
        assert done.code == 0, done
        return iter(lambda: hearer.line().split("%")[0], f"{word} {last}")

    # Which listener is read first is chance: what one round has not heard the next one does.
    free = set()
    wait_for(lambda: free.update(say("free", "127.0.0.1")) or free == {f"free {t.split()[0]}" for t in to})
    document = {"verify": "dns", "defaultAction": "allow", "egress": [{"action": "allow", "target": "127.0.0.2", "ports": [7412]}]}
    reply = host.daemon().call("PUT", "/sandboxes/one", {**who, "policy": document})
    assert reply.status == 201, reply
    assert [*say("held", "127.0.0.2"), *say("held", "127.0.0.2")] == []
    assert [p for p in link.capture.packets(0.1) if p.payload.startswith(b"held")] == []


@ALL_KINDS
def test_other_transports_and_devices(box, kind):  # D6 D10
    app = box(kind)
    before = len(outside(app).packets(dst=STRANGER))
    for what, protocol in (("SOCK_DGRAM", 1), ("SOCK_SEQPACKET", 132), ("SOCK_DGRAM", 136), (6, 33)):
        assert app.probe(["other_transport", STRANGER, 443, what, protocol]).result != "ok"
    assert "ok" not in app.probe(["by_device", STRANGER, 443]).by_device.values()
    assert nothing_to_strangers(app, before)


@pytest.mark.parametrize("level, number, value", [
    (SOL_SOCKET, SO_MARK, 1 << 16 | 1), (SOL_SOCKET, SO_MARK, 1 << 16), (SOL_SOCKET, SO_MARK, -1), (SOL_SOCKET, SO_PRIORITY, 7),
    (SOL_SOCKET, SO_BINDTODEVICE, "up0\0"), (0, IP_TRANSPARENT, 1)])
@ALL_KINDS
def test_marks_that_it_sets_itself(box, kind, level, number, value):  # D15
    """With the capability to set them."""
    app = box(kind)
    before = len(outside(app).packets(dst=STRANGER))
    for uid, caps in ((1000, ()), (0, ("net_admin", "net_raw"))):
        for answer in app.probe(["with_option", level, number, value, STRANGER, 7007, "SOCK_STREAM"],
                                ["with_option", level, number, value, STRANGER, 7007, "SOCK_DGRAM"], uid=uid, caps=caps):
            assert answer.result != "ok", dict(answer)
    assert nothing_to_strangers(app, before)


def test_it_cant_leave_its_cgroup(host, tree, box):  # D12
    app = box("cgroup")
    free = tree.cgroup("free")
    for path in (free.path, app.cgroup.path.parent, app.cgroup.root):
        assert app.probe(["write", str(path / "cgroup.procs"), "0"]).result in ("EACCES", "EPERM")
    # one who is moved by somebody else is as free as everybody there, and no sooner
    started = app.start("/bin/sleep", 60)
    wait_for(lambda: "populated 1" in (app.cgroup.path / "cgroup.events").read_text())
    (free.path / "cgroup.procs").write_text(str(started.process.pid))
    assert str(started.process.pid) in (free.path / "cgroup.procs").read_text().split()


HOLD = r"""
import array, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.bind(sys.argv[1].replace("@", "\0")), s.listen(1), print("listens", flush=True)
    passed = s.accept()[0].recvmsg(1, 256)[1][0][2]
udp, tcp = (socket.socket(fileno=fd) for fd in array.array("i", passed))
print("has them", flush=True), sys.stdin.readline()
for use in (lambda: udp.sendto(b"x", (sys.argv[2], 9999)), lambda: tcp.connect((sys.argv[2], 443))):
    try:
        use(), print("passed", flush=True)
    except OSError:
        print("refused", flush=True)
"""
FLOOD = r"""
import array, select, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.bind(sys.argv[1].replace("@", "\0")), s.listen(1), print("listens", flush=True)
    passed = s.accept()[0].recvmsg(1, 256)[1][0][2]
udp, count = socket.socket(fileno=array.array("i", passed)[0]), 0
print("has them", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        try:
            udp.sendto(b"x", (sys.argv[2], 9999))
        except PermissionError:
            count += 1
print(count, flush=True)
"""
PASS = r"""
import array, socket, sys
fds = array.array("i", [socket.socket(socket.AF_INET, kind).detach() for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)])
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1].replace("@", "\0")), s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
"""


def has_ended(host):
    """How many groups are gone whose sockets are refused."""
    sets = re.findall(r"set ended_\d+ {[^}]*?elements = {(.*?)}", host.nft("list", "ruleset"), re.S)
    return sum(len(elements.split(",")) for elements in sets)


class Keeper:
    """A sandbox that was passed two sockets of another one, whose group is empty by now."""

    def __init__(self, host, tree, job, hold=HOLD, **more):
        self.host, self.daemon, self.job = host, host.daemon(), job
        holder, name = Member(host, tree.cgroup("slice-b").below("job")), f"@weir-test-{os.getpid()}-{job.number}"
        (job.path.parent / "another").mkdir()
        attach(self.daemon, "one", cgroup=where(job), **more)
        attach(self.daemon, "two", cgroup=where(holder.cgroup))
        self.process = holder.start("/usr/bin/python3", "-c", hold, name, STRANGER, stdin=subprocess.PIPE)
        assert self.process.line() == "listens"
        assert Member(host, job).run("/usr/bin/python3", "-c", PASS, name).code == 0 and self.process.line() == "has them"
        wait_for(lambda: "populated 0" in (job.path / "cgroup.events").read_text())

    def again(self):
        self.daemon = self.host.daemon()
        wait_for(self.daemon.healthy)

    def uses_them(self):
        """Return: what became of it, and how much left the host."""
        before = len(host_daemon.sent_to_strangers(self.host))
        end_input(self.process)
        said = [self.process.line(), self.process.line()]
        wait_for(lambda: len(host_daemon.sent_to_strangers(self.host)) >= before + said.count("passed"))
        return said, len(host_daemon.sent_to_strangers(self.host)) - before


def made_again(keeper):
    told = host_daemon.Told(keeper.daemon)
    keeper.job.make_again()
    told.wait("its cgroup was made again")


def made_again_while_away(keeper):
    keeper.daemon.kill()
    keeper.job.make_again()
    keeper.again()
    wait_for(lambda: keeper.daemon.names() == ["one", "two"])


def made_again_and_restarted(keeper):
    made_again(keeper)
    keeper.daemon.kill()
    keeper.again()


def made_again_and_detached(keeper):
    made_again(keeper)
    assert keeper.daemon.weir("detach", "one").code == 0


def made_again_with_another_engine(keeper):
    made_again(keeper)
    keeper.daemon.kill_child("engine")
    wait_for(keeper.daemon.healthy)


def detached_when_gone(keeper):
    keeper.job.path.rmdir()
    assert keeper.daemon.weir("detach", "one").code == 0


def gone_with_its_slice(keeper):
    for path in (keeper.job.path, keeper.job.path.parent / "another", keeper.job.path.parent):
        path.rmdir()
    wait_for(lambda: keeper.daemon.names() == ["two"])


def gone_with_its_slice_while_away(keeper):
    keeper.daemon.kill()
    for path in (keeper.job.path, keeper.job.path.parent / "another", keeper.job.path.parent):
        path.rmdir()
    keeper.again()
    wait_for(lambda: keeper.daemon.names() == ["two"])


def its_file_is_lost(keeper):
    made_again(keeper)
    keeper.daemon.kill()
    (keeper.daemon.run_dir / "sandboxes" / ".ended").write_text("no line\n")
    keeper.again()


def the_rules_are_lost(keeper):
    made_again(keeper)
    keeper.daemon.kill()
    keeper.host.nft("flush ruleset")
    keeper.again()


HOW_IT_ENDS = [made_again, made_again_while_away, made_again_and_restarted, made_again_and_detached, made_again_with_another_engine,
               detached_when_gone, gone_with_its_slice, gone_with_its_slice_while_away, its_file_is_lost, the_rules_are_lost]


@pytest.mark.parametrize("how", HOW_IT_ENDS, ids=lambda how: how.__name__)
def test_a_socket_that_outlives_its_group(host, tree, how):  # D20
    """Another sandbox keeps it while the group ends, and is made again or not: no packet leaves by it."""
    keeper = Keeper(host, tree, tree.cgroup("slice").below("job"))
    how(keeper)
    assert keeper.uses_them() == (["refused"] * 2, 0)


def test_not_one_packet_leaves_by_a_socket_that_outlives_its_group(host, tree):  # D20
    """However fast they are sent, while the group goes and comes and the daemon's processes do."""
    keeper = Keeper(host, tree, tree.cgroup("slice").below("job"), hold=FLOOD)
    before = len(host_daemon.sent_to_strangers(host))
    for how in (made_again, made_again_with_another_engine, made_again_and_restarted, made_again_while_away):
        how(keeper)
    end_input(keeper.process)
    assert int(keeper.process.line()) > 1000
    assert len(host_daemon.sent_to_strangers(host)) == before


def test_a_socket_that_outlives_a_group_whose_parent_is_guarded(host, tree):  # D20
    keeper = Keeper(host, tree, tree.cgroup("slice").below("job"), guardParent=True)
    made_again(keeper)
    assert keeper.uses_them() == (["refused"] * 2, 0)


def test_a_socket_that_outlives_a_group_within_a_sandbox(host, tree):  # D20
    """What the outer one may do is nothing that the inner one's sockets may."""
    outer = tree.cgroup("slice").below("job")
    keeper = Keeper(host, tree, outer.below("inner"))
    attach(keeper.daemon, "outer", f"allow {STRANGER}", cgroup=where(outer))
    made_again(keeper)
    assert keeper.uses_them() == (["refused"] * 2, 0)


FULL = 65536


def test_a_socket_that_outlives_a_command(host, tree):  # D20
    """`weir run --cgroup` has made the group, and takes it away at its end."""
    daemon, holder, group = host.daemon(), Member(host, tree.cgroup("slice-b").below("job")), tree.path / "run"
    attach(daemon, "two", cgroup=where(holder.cgroup))
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(folder) / "s"
        os.chmod(folder, 0o777)
        holds = holder.start("/usr/bin/python3", "-c", HOLD, name, STRANGER, stdin=subprocess.PIPE)
        assert holds.line() == "listens"
        name.chmod(0o777)
        done = daemon.weir("run", "--no-config", "--cgroup", group, "--uid", UID, "--", "/usr/bin/python3", "-c", PASS, name)
    assert done.code == 0 and holds.line() == "has them" and not group.exists(), done
    assert daemon.names() == ["two"]
    before = len(host_daemon.sent_to_strangers(host))
    end_input(holds)
    assert [holds.line(), holds.line()] == ["refused"] * 2 and len(host_daemon.sent_to_strangers(host)) == before


def listed(keeper):
    """How many the daemon has noted: nft takes minutes to show as many."""
    return len((keeper.daemon.run_dir / "sandboxes" / ".ended").read_text().splitlines())


@contextlib.contextmanager
def rest_of(group):
    """@group is gone, and one of its sockets is not."""
    name = f"weir-test-{os.getpid()}-{group.number}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        subprocess.run(["sh", "-ec", 'echo $$ > "$0"; exec /usr/bin/python3 -c "$1" "$2"', str(group.path / "cgroup.procs"), PASS, f"@{name}"],
                       check=True, timeout=60)
        passed = socket.recv_fds(listener.accept()[0], 1, 2)[1]
    wait_for(lambda: "populated 0" in (group.path / "cgroup.events").read_text())
    group.path.rmdir()
    yield
    for fd in passed:
        os.close(fd)


def fill(keeper, above):
    """The list of groups that are gone, with some that were below @above."""
    keeper.daemon.kill()
    file = keeper.daemon.run_dir / "sandboxes" / ".ended"
    file.write_text("".join(json.dumps({"id": (1 << 40) + n, "level": above.level + 1, "parent": above.number, "above": where(above)}) + "\n"
                            for n in range(FULL)))
    keeper.again()


def test_a_full_list_of_ended_groups_has_the_parent_guarded(host, tree):  # D20
    """Then no id there has to be known: who holds a socket can't have the list roll over."""
    slice_ = tree.cgroup("slice")
    keeper = Keeper(host, tree, slice_.below("job"))
    late = type(slice_)(slice_.path / "late", slice_.root)
    with rest_of(slice_.below("rest")):
        fill(keeper, slice_)
        made_again(keeper)
        wait_for(lambda: "is guarded" in str(keeper.daemon))
        keeper.daemon.kill()
        keeper.again()
        wait_for(lambda: host_daemon.is_free(Member(host, late)))
        assert listed(keeper) == FULL and keeper.uses_them() == (["refused"] * 2, 0)


def test_a_full_list_of_ended_groups_lets_the_oldest_go(host, tree):  # D20
    """Where no sandbox is left for whose sake the parent would be guarded."""
    slice_ = tree.cgroup("slice")
    keeper = Keeper(host, tree, slice_.below("job"))
    with rest_of(slice_.below("rest")):
        fill(keeper, slice_)
        keeper.job.path.rmdir()
        assert keeper.daemon.weir("detach", "one").code == 0
        assert listed(keeper) == FULL - 1024 + 1
        wait_for(lambda: "may be free" in str(keeper.daemon))
        assert keeper.uses_them() == (["refused"] * 2, 0)


def test_a_group_that_is_set_free(host, tree):  # D20
    """Whoever detaches a group that is there sets its sockets free, as documented."""
    keeper = Keeper(host, tree, tree.cgroup("slice").below("job"))
    assert keeper.daemon.weir("detach", "one").code == 0
    keeper.job.path.rmdir()
    assert keeper.uses_them() == (["passed"] * 2, 2) and has_ended(host) == 0


def test_a_user_that_is_set_free(host, tree):  # D20
    """So does whoever detaches a user, as documented; one that is attached again is held to its rules with them."""
    daemon, holder, user = host.daemon(), Member(host, tree.cgroup("slice-b").below("job")), Member(host, uid=UID)
    name, process = f"@weir-test-{os.getpid()}-{holder.cgroup.number}", None
    for again in (True, False):
        attach(daemon, "one", uid=UID)
        if again:
            attach(daemon, "two", cgroup=where(holder.cgroup))
        process = holder.start("/usr/bin/python3", "-c", HOLD, name, STRANGER, stdin=subprocess.PIPE)
        assert process.line() == "listens"
        assert user.run("/usr/bin/python3", "-c", PASS, name).code == 0 and process.line() == "has them"
        assert daemon.weir("detach", "one").code == 0
        if again:
            attach(daemon, "one", uid=UID)
        before = len(host_daemon.sent_to_strangers(host))
        end_input(process)
        assert [process.line(), process.line()] == ["refused" if again else "passed"] * 2
        wait_for(lambda: len(host_daemon.sent_to_strangers(host)) == before + (0 if again else 2))
        if again:
            assert daemon.weir("detach", "one").code == 0


def test_an_ended_group_is_forgotten_with_its_last_socket(host, tree):  # D20
    keeper = Keeper(host, tree, tree.cgroup("slice").below("job"))
    made_again(keeper)
    keeper.job.make_again()
    wait_for(lambda: has_ended(host) == 2)
    assert keeper.uses_them() == (["refused"] * 2, 0)
    assert keeper.process.wait().code == 0
    wait_for(lambda: has_ended(host) == 0)
    assert not (keeper.daemon.run_dir / "sandboxes" / ".ended").exists()


@ALL_KINDS
def test_the_daemon_is_out_of_reach(host, box, kind):  # G1 G3 G5
    app = box(kind)
    daemon = host.daemons[0]
    api, folder, *kills = app.probe(
        ["unix", str(daemon.socket)], ["listdir", str(daemon.run_dir / "sandboxes")],
        *(["kill", pid, signal.SIGKILL] for pid in (daemon.pid, *daemon.children().values())),
        ["netlink_change", 12], ["netlink_change", 0])
    assert api.result == folder.result == "EACCES"
    for answer in kills:
        expect.call_refused(answer)
    assert daemon.healthy()


def test_root_in_the_cgroup_changes_no_rule(host, box, site):  # G3
    """Who may change rules at all can't change a table that has an owner."""
    app = box("cgroup")
    for command in ("flush ruleset", "delete table inet weir_host", "flush chain inet weir_host output", "flush map inet weir_host current",
                    "insert rule inet weir_host member accept", "delete table inet weir_parents"):
        app.run("/usr/sbin/nft", command, uid=0, caps=("net_admin",))
        expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    assert is_guarded(app, site)


LISTENER = """
import socket, sys
listeners = []
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, sys.argv[1]), (socket.AF_INET6, "::1")):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, 7995))
    s.listen()
    listeners.append(s)
print("open", flush=True)
sys.stdin.readline()
"""


def test_sandboxes_of_a_host_dont_meet(host, tree, box):  # C7 C8 F9
    app = box("cgroup")
    daemon = host.daemons[0]
    neighbour = Member(host, tree.cgroup("slice-b").below("job"))
    attach(daemon, "two", cgroup=where(neighbour.cgroup))
    user = Member(host, uid=UID)
    attach(daemon, "three", uid=UID)
    assert neighbour.start("/usr/bin/python3", "-c", LISTENER, host.ip4).line() == "open"
    addresses = ["127.0.0.1", "127.9.9.9", host.ip4, "::1"]
    for other in (app, user):
        for answer in other.probe(*(["tcp", a, 7995] for a in addresses)):
            expect.tcp_refused(answer)
    assert [a.result for a in neighbour.probe(*(["tcp", a, 7995] for a in ("127.0.0.1", host.ip4, "::1")))] == ["ok"] * 3
    # the daemon's own ports are no way in, either
    assert app.probe(["tcp", "127.0.0.1", 15354, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"]).result != "ok"


@KINDS
@pytest.mark.parametrize("what, shown", [("socket.AF_PACKET, socket.SOCK_RAW, 3", "packet-sockets"),
                                         ("socket.AF_INET, socket.SOCK_RAW, 255", "raw-sockets")])
def test_sockets_that_go_round_the_filter_are_shown(host, box, kind, what, shown):  # D7
    app = box(kind)
    daemon = host.daemons[0]

    def is_shown():
        return shown in str(daemon.status("one")["degradations"])
    assert not is_shown()
    program = f"import socket, sys; s = socket.socket({what}); print('open', flush=True); sys.stdin.readline()"
    started = app.start("/usr/bin/python3", "-c", program, caps=("net_raw",))
    assert started.line() == "open"
    wait_for(is_shown)
    assert not daemon.status("one")["fullIsolation"]


def test_another_user_by_setuid_is_another_user(host, box):  # D13
    """As documented: weir run gives no new privileges."""
    app = box("uid")
    before = len(outside(app).packets(dst=STRANGER))
    assert app.probe(["tcp", STRANGER, 443], nnp=True).result == "refused"
    sudo = app.run("/bin/sh", "-c", "exec setpriv --reuid=1299 --clear-groups true")
    assert sudo.code != 0 and nothing_to_strangers(app, before)


@pytest.mark.parametrize("kind", ["cgroup", "netns"])
@pytest.mark.parametrize("uid", [0, 1299, 65534])
def test_another_user_in_there_is_guarded_as_well(host, box, kind, uid):  # D13
    app = box(kind)
    before = len(outside(app).packets(dst=STRANGER))
    who = {"uid": uid} if kind == "netns" else {}
    app = app if who else Member(host, app.cgroup, uid=uid)
    tcp, udp = app.probe(["tcp", STRANGER, 443], ["udp", STRANGER, 9999, "x"], **who)
    expect.tcp_refused(tcp)
    expect.udp_refused(udp)
    assert nothing_to_strangers(app, before)


def test_the_hosts_namespace_cant_be_entered(host, box):  # D16
    app = box("netns")
    for pid in (1, host.daemons[0].pid):
        assert app.probe(["setns", f"/proc/{pid}/ns/net", 0]).result in ("EACCES", "EPERM")
    before = len(host.packets(dst=STRANGER))
    done = app.run("/usr/bin/nsenter", "-t", str(host.daemons[0].pid), "--net", "true", uid=0, caps=("net_admin", "net_raw"))
    assert done.code != 0 and len(host.packets(dst=STRANGER)) == before, done


@ALL_KINDS
def test_its_own_namespaces_lead_nowhere(host, box, kind):  # D14
    """What it sends from a network of its own has to leave by a link, for which it needs the host."""
    app = box(kind)
    done = app.run("/usr/bin/unshare", "--user", "--map-root-user", "--net", "sh", "-c",
                   "ip link set lo up; ip link add v type veth peer name w netns 1 2>&1; true")
    assert "not permitted" in done.text or "Invalid" in done.text or done.code != 0, done
    assert "w@" not in subprocess.run(outside(app).ns.command("ip", "link"), capture_output=True, text=True, check=True).stdout


def test_a_stopped_daemon_still_closes(host, box, site):  # G5
    app = box("cgroup")
    daemon = host.daemons[0]
    engine = daemon.children()["engine"]
    os.kill(engine, signal.SIGSTOP)
    try:
        expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
        assert app.probe(["dns", "other.test"]).result != "NOERROR"
    finally:
        with contextlib.suppress(ProcessLookupError):   # it was replaced
            os.kill(engine, signal.SIGCONT)
    wait_for(lambda: is_guarded(app, site))


HOARD = """
import os, resource, socket, sys, time
files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], int(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
s, end = socket.socket(), os.pipe()
for fd in range(10, files): os.dup2(s.fileno(), fd)
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.close(end[1]); os.read(end[0], 1); os._exit(0)
print(files, flush=True)
sys.stdin.read()
"""


def test_more_descriptors_than_can_be_looked_at(host, tree):  # G28
    """What is to be seen in a sandbox can't be seen in time: nobody waits for it, and nobody is told that all is well."""
    app = Member(host, tree.cgroup("hoard").below("job"))
    daemon = host.daemon()
    attach(daemon, "one", cgroup=where(app.cgroup))
    assert daemon.status("one")["fullIsolation"]
    hoard = app.start("/usr/bin/python3", "-IS", "-c", HOARD, 20000, 150)
    assert hoard.line() == "20000", "too few descriptors to be in anybody's way"
    wait_for(lambda: not daemon.status("one")["fullIsolation"], step=0.1)
    assert [d["what"] for d in daemon.status("one")["degradations"]] == ["unknown-sockets"]
    attach(daemon, "two", cgroup=where(tree.cgroup("other").below("job")))
    end_input(hoard)
    wait_for(lambda: daemon.status("one")["fullIsolation"], step=0.1)
