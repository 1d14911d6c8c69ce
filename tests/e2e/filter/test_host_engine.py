# SPDX-License-Identifier: Apache-2.0
"""The daemon's engine with sandboxes of the host's own network, known by cgroup or by user id.

engine_driver stands in for the supervisor and control; the engine, the table, processes, cgroups and
packets are real. The host is a namespace with a link into the world."""
import json
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest

from world import expect
from world.member import Member, Tree, cgroup_root
from world.sidecar import Flow, Pod, wait_for
from world.world import RESOLVER4

STRANGER = "93.9.9.9"
DENY, PANIC = 2, 3
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


def driver_path():
    root = pathlib.Path(__file__).resolve().parents[3]
    beside = pathlib.Path(os.environ.get("WEIR") or root / "build" / "weir").resolve().parent / "tests" / "drivers" / "engine_driver"
    return beside if beside.exists() else pathlib.Path(os.environ.get("WEIR_BUILD") or root / "build") / "tests" / "drivers" / "engine_driver"


class Refused(Exception):
    pass


class Engine:
    """An engine on @host."""

    def __init__(self, host, folder):
        self.host, self.folder = host, folder
        self.process = subprocess.Popen(host.ns.command(driver_path()), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ids = {}
        self.ask("start", RESOLVER4)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer.startswith("ok"):
            raise Refused(answer)
        return answer[3:]

    def policy(self, number, rules):
        file = self.folder / f"policy-{number}.json"
        file.write_text(json.dumps(rules))
        return file

    def attach(self, number, who, *targets, flags="-", **options):
        """@who: a Member, or what the driver calls one. A target is a name or a whole rule."""
        if isinstance(who, Member):
            who = f"cgroup:{who.cgroup.number}:{who.cgroup.level}" if who.cgroup else f"uid:{who.uid}"
        self.ask("attach", number, who, self.policy(number, policy(*targets, **options)), flags)
        self.ids[number] = who

    def change(self, number, *targets, **options):
        self.ask("change", number, self.policy(number, policy(*targets, **options)))

    def detach(self, number):
        self.ask("detach", number)
        del self.ids[number]

    def load(self):
        self.ask("load")

    def restart(self, between=None):
        """SIGKILL, and a successor that gets all of them again."""
        self.ask("kill")
        if between:
            between()
        self.ask("start", RESOLVER4)
        for number, who in self.ids.items():
            self.ask("attach", number, who, self.folder / f"policy-{number}.json", "r")
        self.load()

    def stats(self, number):
        return {k: int(v) for k, v in (pair.split("=") for pair in self.ask("stats", number).split())}

    def events(self):
        """(sandbox, action, address, port, reason) of what came since the last call."""
        found = [e.split("|") for e in self.ask("events").split("\t") if e]
        return [(int(e[0]), int(e[1]), e[3], int(e[4]), e[5]) for e in found]

    def wait_until_repaired(self):
        """All of it: members are shut out by a table of its own until then."""
        def is_there():
            tables = self.host.nft("list", "tables")
            return "weir_host\n" in tables and "weir_host_guard" not in tables
        wait_for(is_there)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def policy(*targets, **options):
    return {"egress": [t if isinstance(t, dict) else {"action": "allow", "target": t} for t in targets], **options}


@pytest.fixture
def host(world):
    with Pod(world, link="up0") as pod:
        yield pod


@pytest.fixture
def engine(host, tmp_path):
    engine = Engine(host, tmp_path)
    yield engine
    engine.close()


@pytest.fixture
def tree(host):  # after the host's processes have ended
    tree = Tree()
    yield tree
    for started in host._started:
        started.kill()
    tree.close()


@pytest.fixture
def app(host, tree):
    return Member(host, tree.cgroup("a"))


@pytest.fixture
def other(host, tree):
    return Member(host, tree.cgroup("b"))


def reaches(app, site):
    return app.probe(["tcp", site.v4, 443]).result == "ok"


def arrived(host, *addresses):
    return [p for p in host.packets() if p.dst in addresses]


def test_it_reaches_what_its_policy_lists_and_nothing_else(engine, host, app, site, denied):
    engine.attach(1, app, site.name)
    engine.load()
    allowed, refused, stranger, udp, dot = app.probe(["dns", site.name], ["dns", denied.name], ["tcp", STRANGER, 443],
                                                     ["udp", STRANGER, 9999, "x"], ["tcp", RESOLVER4, 853])
    assert allowed.addresses == [site.v4]
    expect.name_refused(refused)
    expect.tcp_refused(stranger)
    expect.udp_refused(udp)
    expect.tcp_refused(dot)
    assert reaches(app, site)
    assert app.probe(["tcp", site.v6, 443]).result == "refused", "nobody has asked for it"
    assert app.probe(["dns", site.name, "AAAA"]).addresses == [site.v6]
    assert app.probe(["tcp", site.v6, 443]).result == "ok"
    assert not [p for p in host.packets() if p.dst not in (site.v4, site.v6)]
    assert not host.world.dns.queries(denied.name)
    stats = engine.stats(1)
    assert stats["nflog"] == 1 and stats["queries_denied"] == 1 and stats["packets_denied"] >= 3
    told = {e[2:4] for e in engine.events() if e[0] == 1 and e[1] == DENY}
    assert {(STRANGER, 443), (STRANGER, 9999), (RESOLVER4, 853)} <= told


def test_nobody_else_is_touched(engine, host, app, other, site, denied):
    engine.attach(1, app, site.name)
    engine.load()
    for free in (other, Member(host, uid=1203)):
        assert free.probe(["dns", denied.name, {"server": RESOLVER4}]).addresses == [denied.v4]
        assert free.probe(["tcp", STRANGER, 443]).result == "ok"
    assert engine.stats(1).get("packets_denied", 0) == 0
    assert not engine.events()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_every_resolver_is_its_own(engine, host, app, site, denied, transport):
    engine.attach(1, app, site.name)
    engine.load()
    for server in ("8.8.8.8", "127.0.0.1", "10.1.2.3", "2001:4860::8888"):
        options = {"server": server, "transport": transport}
        expect.name_refused(app.probe(["dns", denied.name, options]))
        assert app.probe(["dns", site.name, options]).addresses == [site.v4]
    assert not host.world.dns.queries(denied.name)


def test_who_is_no_sandbox_gets_no_answer(engine, host, app, other, site):
    engine.attach(1, app, site.name)
    engine.load()
    udp, tcp, relay = other.probe(["dns", site.name, {"port": 15353}], ["dns", site.name, {"port": 15353, "transport": "tcp"}],
                                  ["tcp", "127.0.0.1", 15354, "x"])
    assert udp.result == "timeout" and tcp.result in ("reset", "closed", "EPIPE") and relay.result != "ok", (udp, tcp, relay)
    assert engine.stats(0)["strangers"] >= 3
    assert app.probe(["dns", site.name]).addresses == [site.v4]


@pytest.mark.parametrize("second", ["cgroup", "uid"])
def test_two_know_nothing_of_each_other(engine, host, app, tree, site, denied, second):
    other = Member(host, tree.cgroup("b")) if second == "cgroup" else Member(host, uid=1203)
    engine.attach(1, app, site.name)
    engine.attach(2, other, denied.name)
    engine.load()
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    assert other.probe(["dns", denied.name]).addresses == [denied.v4]
    assert reaches(app, site) and reaches(other, denied)
    expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    expect.tcp_refused(app.probe(["tcp", denied.v4, 443]))
    expect.name_refused(other.probe(["dns", site.name]))
    told = engine.events()
    assert (2, DENY, site.v4, 443) in {e[:4] for e in told} and (1, DENY, denied.v4, 443) in {e[:4] for e in told}
    assert engine.stats(1).get("queries_denied", 0) == 0 and engine.stats(2)["queries_denied"] == 1
    assert len(arrived(host, site.v4)) > 0


def test_a_fresh_one_needs_no_order_to_load(engine, app, site):
    """With the self-test's name, which the engine answers by itself."""
    engine.attach(1, app, site.name, flags="p")
    assert app.probe(["dns", "probe.test"]).addresses == ["93.8.8.8"]
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    engine.ask("run", 1)
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    expect.name_refused(app.probe(["dns", "probe.test"]))
    assert STRANGER not in {e[2] for e in engine.events()}
    assert engine.stats(1)["self_tests"] == 1


def test_names_that_connections_show(engine, host, app, site):
    """verify: tls goes through the relay, which dials from the host."""
    engine.attach(1, app, site.name, verify="tls")
    engine.load()
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    good, bad, none = app.probe(["https", site.v4, 443, site.name], ["https", site.v4, 443, "evil.test"], ["tcp", STRANGER, 443])
    assert good.result == "ok", dict(good)
    expect.tcp_gave_nothing(bad)
    expect.tcp_refused(none)
    stats = engine.stats(1)
    assert stats["flows"] >= 1 and stats["flows_denied"] >= 1
    assert "evil.test" not in str(host.packets())


def test_the_relay_is_no_way_to_the_host(engine, host, app, other, site):
    """D, E: its own port, loopback, the host's addresses, another sandbox's."""
    engine.attach(1, app, site.name, verify="tls")
    engine.attach(2, other, verify="tls")
    engine.load()
    app.probe(["dns", site.name])
    listener = host.start("/usr/bin/python3", "-c", "import socket\ns=socket.create_server(('',7123)); print('up',flush=True)\n"
                          "while 1: s.accept()[0].sendall(b'hello')", uid=0)
    assert listener.line() == "up"
    for address, port in (("127.0.0.1", 15354), ("127.0.0.1", 7123), (host.ip4, 7123), (host.ip4, 15354), ("127.0.0.2", 7123)):
        expect.tcp_gave_nothing(app.probe(["tcp", address, port]))
    expect.tcp_gave_nothing(other.probe(["https", site.v4, 443, site.name]))


def test_root_in_a_cgroup_can_be_nobody_else(engine, host, tree, other, site, denied):
    """With every capability: marks of another sandbox's, raw packets, pings, a metadata service, a stub resolver."""
    caps = ("net_raw", "net_admin")
    root = Member(host, tree.cgroup("root"), uid=0)
    engine.attach(1, root, site.name)
    engine.attach(2, other, denied.name)
    engine.load()
    assert other.probe(["dns", denied.name]).addresses == [denied.v4]
    mark = 2 << 16
    for n in range(4):
        found = root.probe(["with_option", socket.SOL_SOCKET, socket.SO_MARK, mark + n, denied.v4, 443, "SOCK_STREAM"],
                           ["with_option", socket.SOL_SOCKET, socket.SO_MARK, mark + n, STRANGER, 443, "SOCK_DGRAM"], caps=caps)
        assert [f.result for f in found] == ["refused", "EPERM"], found
    program = ("import socket,sys\ns=socket.socket(2,2); s.settimeout(2)\n"
               "s.setsockopt(1,36,int(sys.argv[1])); s.sendto(bytes.fromhex(sys.argv[2]),('127.0.0.1',int(sys.argv[3])))\n"
               "print(s.recv(999)[3]&15)")
    query = bytes([0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"".join(bytes([len(p)]) + p.encode() for p in denied.name.split("."))
    for port, answer in ((53, "3\n"), (15353, "")):  # NXDOMAIN; nat alone leads there
        done = root.run("/usr/bin/python3", "-c", program, mark + 1, (query + b"\0\0\1\0\1").hex(), port, caps=caps)
        assert done.text == answer, done
    for address in ("169.254.169.254", "127.0.0.53", "172.17.0.1", RESOLVER4):
        expect.tcp_refused(root.probe(["tcp", address, 80]))
    assert root.run("/bin/ping", "-c1", "-W1", STRANGER, caps=caps).code != 0
    assert not arrived(host, STRANGER, "169.254.169.254")
    assert engine.stats(2).get("queries_denied", 0) == 0 and engine.stats(1)["queries_denied"] == 1


def test_a_change_cuts_what_it_forbids(engine, app, site, denied):
    engine.attach(1, app, site.name, denied.name)
    engine.load()
    app.probe(["dns", site.name], ["dns", denied.name])
    kept, cut = Flow(app, site.v4), Flow(app, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    engine.change(1, site.name)
    assert kept.say() == "got" and cut.say() != "got"
    expect.name_refused(app.probe(["dns", denied.name]))
    expect.tcp_refused(app.probe(["tcp", denied.v4, 443]))
    assert reaches(app, site), "what was learned is forgotten"
    engine.change(1, site.name, denied.name)
    assert app.probe(["dns", denied.name]).addresses == [denied.v4]
    assert kept.say() == "got" and reaches(app, denied)
    assert engine.stats(1)["policy_changes"] == 2


def test_a_relayed_flow_is_cut_by_a_change_as_well(engine, app, site, denied):
    rules = [{"action": "allow", "target": t.name, "raw": True, "ports": [7007]} for t in (site, denied)]
    engine.attach(1, app, *rules, verify="tls")
    engine.load()
    app.probe(["dns", site.name], ["dns", denied.name])
    kept, cut = Flow(app, site.v4), Flow(app, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    engine.change(1, rules[0], verify="tls")
    assert kept.say() == "got" and cut.say() != "got"


RANGES = [f"11.{n >> 8}.{n & 255}.0/25" for n in range(4096)]


def plan_names(host):
    """The names of what plans have in the kernel, without the plans' numbers."""
    found = re.findall(r"(?:set|chain) p(\d+)_", host.nft("-t", "list", "table", "inet", "weir_host"))
    return set(found)


def test_a_policy_of_many_ranges_comes_in_steps(engine, host, app, other, site):
    engine.attach(1, app, site.name)
    engine.attach(2, other, site.name)
    engine.load()
    app.probe(["dns", site.name])
    flow = Flow(app, site.v4)
    engine.change(1, site.name, *RANGES)
    assert flow.say() == "got" and reaches(app, site)
    inside, outside = app.probe(["tcp", "11.15.255.1", 443], ["tcp", "11.15.255.129", 443])
    assert inside.result == "ok"
    expect.tcp_refused(outside)
    expect.tcp_refused(other.probe(["tcp", "11.15.255.1", 443]))
    many = plan_names(host)
    engine.change(1, site.name)
    expect.tcp_refused(app.probe(["tcp", "11.15.255.1", 443]))
    assert flow.say() == "got"
    assert len(many) == 2 and len(plan_names(host) & many) == 1, "the old one is still there"


def test_so_does_one_that_is_attached_with_them(engine, host, app, other, site):
    engine.attach(2, other, site.name)
    engine.load()
    engine.attach(1, app, site.name, *RANGES)
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    inside, outside = app.probe(["tcp", "11.15.255.1", 443], ["tcp", "11.15.255.129", 443])
    assert inside.result == "ok"
    expect.tcp_refused(outside)
    with pytest.raises(Refused, match="sandbox 2 is that"):
        engine.attach(3, other, *RANGES[:2000])
    assert len(plan_names(host)) == 2, "something is left of the one that was refused"
    engine.detach(1)
    assert len(plan_names(host)) == 1 and app.probe(["tcp", "11.15.255.129", 443]).result == "ok"


def test_steps_that_lead_nowhere_leave_nothing(engine, host, app, other, site):
    engine.attach(1, app, site.name)
    engine.attach(2, other, site.name)
    engine.load()
    for end in ("detach", "tamper"):
        engine.ask("begin", 1, engine.policy("many", policy(*RANGES)))
        if end == "detach":
            engine.detach(1)
            assert len(plan_names(host)) == 1
            engine.attach(1, app, site.name)
        else:
            engine.ask("tamper")
            engine.wait_until_repaired()
            wait_for(lambda: app.probe(["tcp", "11.15.255.1", 443]).result == "ok")
            expect.name_refused(app.probe(["dns", site.name]))
            assert len(plan_names(host)) == 2


def test_one_that_ends_while_it_comes_in_steps_does_not_come(engine, host, app, other, site):
    engine.attach(2, other, site.name)
    engine.load()
    before = plan_names(host)
    for end in ("forget", "detach"):
        engine.attach(1, app, *RANGES, flags="n")
        engine.ask(end, 1)
        assert app.probe(["tcp", "11.15.255.129", 443]).result == "ok" and plan_names(host) == before
    engine.attach(1, app, site.name)
    assert app.probe(["dns", site.name]).addresses == [site.v4] and reaches(app, site)


def test_detach_frees_it_and_others_stay(engine, host, app, other, site):
    engine.attach(1, app)
    engine.attach(2, other)
    engine.load()
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    engine.detach(1)
    assert app.probe(["tcp", STRANGER, 443]).result == "ok"
    assert app.probe(["dns", site.name, {"server": RESOLVER4}]).addresses == [site.v4]
    expect.tcp_refused(other.probe(["tcp", STRANGER, 443]))
    engine.attach(3, app)
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))


def test_what_is_forgotten_stays_closed_until_it_comes_again(engine, app, other, site):
    engine.attach(1, app, site.name)
    engine.attach(2, other, site.name)
    engine.load()
    for number in (1, 2):
        engine.ask("forget", number)
    for member in (app, other):
        expect.tcp_refused(member.probe(["tcp", STRANGER, 443]))
        for transport in ("udp", "tcp"):
            expect.name_refused(member.probe(["dns", site.name, {"transport": transport}]))
    assert engine.stats(0)["strangers"] > 4
    engine.attach(1, app, site.name)     # in its own place
    engine.attach(7, other, site.name)   # under another number
    for member in (app, other):
        assert member.probe(["dns", site.name]).addresses == [site.v4]
        assert reaches(member, site)
        expect.tcp_refused(member.probe(["tcp", STRANGER, 443]))


def test_a_member_that_takes_the_place_of_another(engine, host, tree, site):
    """As a cgroup that was made again: of the one before nothing is left."""
    old, new = Member(host, tree.cgroup("a")), Member(host, tree.cgroup("b"))
    engine.attach(1, old, site.name)
    engine.load()
    assert old.probe(["dns", site.name]).addresses == [site.v4]
    engine.attach(1, new, site.name, flags="rm")
    expect.tcp_refused(new.probe(["tcp", site.v4, 443]))
    assert new.probe(["dns", site.name]).addresses == [site.v4]
    expect.tcp_refused(new.probe(["tcp", STRANGER, 443]))
    assert host.nft("list", "map", "inet", "weir_host", f"cgroups_{old.cgroup.level}").count(" : 0x") == 1


def test_whose_number_another_one_gets_stays_closed(engine, app, other, site):
    engine.attach(1, app, site.name)
    engine.load()
    engine.ask("forget", 1)
    engine.attach(1, other, site.name)
    assert other.probe(["dns", site.name]).addresses == [site.v4] and reaches(other, site)
    expect.name_refused(app.probe(["dns", site.name]))
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    engine.attach(2, app, site.name)
    for member in (app, other):
        assert member.probe(["dns", site.name]).addresses == [site.v4] and reaches(member, site)
        expect.tcp_refused(member.probe(["tcp", STRANGER, 443]))


def test_nobody_is_two_sandboxes(engine, app, site):
    for number in (1, 2):
        if number == 2:
            with pytest.raises(Refused, match="sandbox 1 is that"):
                engine.attach(2, app)
        else:
            engine.attach(1, app, site.name)
    engine.load()
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    with pytest.raises(Refused, match="sandbox 1 is that"):
        engine.attach(2, app)
    assert reaches(app, site)


def test_an_engine_that_dies_loses_nothing(engine, host, app, other, site, denied):
    engine.attach(1, app, site.name)
    engine.attach(2, other, denied.name)
    engine.load()
    app.probe(["dns", site.name])
    other.probe(["dns", denied.name])
    flow = Flow(app, site.v4)
    assert flow.say() == "got"

    def meanwhile():
        assert flow.say() == "got"
        assert reaches(app, site) and reaches(other, denied)
        expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
        expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    engine.restart(meanwhile)
    meanwhile()
    assert engine.stats(1)["adopted"] == 1 and engine.stats(2)["adopted"] == 1
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    engine.change(1)
    assert flow.say() != "got"
    expect.tcp_refused(app.probe(["tcp", site.v4, 443]))
    assert reaches(other, denied)
    assert not arrived(host, STRANGER)


def test_a_question_that_came_while_nobody_was_there_is_answered(engine, app, site):
    engine.attach(1, app, site.name)
    engine.load()
    asked = []

    def ask():
        asked.append(app.probe_start(["dns", site.name]))
        # it has been sent, and waits in the socket
        wait_for(lambda: any(" 0100007F:3BF9 " in line and not line.split()[4].endswith(":00000000")
                             for line in pathlib.Path(f"/proc/{app_pid(asked[0])}/net/udp").read_text().splitlines()))
    engine.restart(ask)
    assert json.loads(asked[0].line())["addresses"] == [site.v4]


def app_pid(started):
    """A process in the host's namespace; the shell that it was is still on its way at first."""
    return started.pid


def test_whom_nobody_sets_again_stays_closed(engine, host, app, other, site):
    engine.attach(1, app, site.name)
    engine.attach(2, other, site.name)
    engine.load()
    del engine.ids[2]
    engine.restart()
    expect.tcp_refused(other.probe(["tcp", STRANGER, 443]))
    expect.name_refused(other.probe(["dns", site.name]))
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    engine.attach(2, other, site.name, flags="r")
    assert other.probe(["dns", site.name]).addresses == [site.v4]
    assert reaches(other, site)
    assert not arrived(host, STRANGER)


# Takes the table whose owner has ended, and keeps it until its input ends.
CLAIM = r"""
import os, socket, struct, sys
def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)
def message(kind, flags, family, resource, body=b""):
    body = struct.pack("!BBH", family, 0, resource) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
s.bind((0, 0))
table = attribute(1, b"weir_host\0") + attribute(2, struct.pack("!I", 2))  # owned
s.send(message(16, 1, 0, 10) + message(10 << 8, 1 | 4, 1, 0, table) + message(17, 1, 0, 10))
print(struct.unpack_from("=i", s.recv(8192), 16)[0], flush=True)
sys.stdin.read()
"""


def test_what_can_not_be_installed_is_no_change(engine, host, app, site):
    """Another process has a table of the name."""
    with subprocess.Popen(host.ns.command("/usr/bin/python3", "-c", CLAIM), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as claim:
        assert claim.stdout.readline() == "0\n"
        engine.attach(1, app, site.name)
        with pytest.raises(Refused):
            engine.load()
        with pytest.raises(Refused, match="what stood before stays"):
            engine.change(1)
        claim.stdin.close()
        claim.wait()

    def is_changed():
        try:
            engine.change(1)
        except Refused:
            return False
        return True
    wait_for(is_changed)
    expect.tcp_refused(app.probe(["tcp", site.v4, 443]))


def test_a_table_that_is_gone_is_put_back(engine, host, app, other, site):
    """As root can't do it here, with the socket that owns the table."""
    engine.attach(1, app, site.name)
    engine.attach(2, other)
    engine.load()
    app.probe(["dns", site.name])
    flow = Flow(app, site.v4)
    engine.ask("tamper")
    engine.wait_until_repaired()
    told = []
    wait_for(lambda: told.extend(engine.events()) or {e[0] for e in told if e[1] == PANIC} == {1, 2})
    assert {e[4] for e in told if e[1] == PANIC} == {"others had changed the filter; it was put back"}
    for number in (1, 2):
        assert engine.stats(number)["repairs"] == 1
    assert flow.say() == "got" and reaches(app, site)
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))
    expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    assert app.probe(["dns", site.name]).addresses == [site.v4]


def test_others_may_have_tables_of_their_own(engine, host, app, site):
    """Docker, firewalld: nothing is repaired, nothing is told; and none of ours can be flushed."""
    engine.attach(1, app, site.name)
    engine.load()
    for n in range(20):
        host.nft(f"add table ip other{n}; add chain ip other{n} c {{ type nat hook output priority -100; }}")
    subprocess.run(host.ns.command("nft", "flush", "ruleset"), check=False)
    time.sleep(0.15)  # three looks
    assert "repairs" not in engine.stats(1)
    assert not [e for e in engine.events() if e[1] == PANIC]
    assert "weir_host" in host.nft("list", "tables")
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))


def test_pinned_names(engine, host, app, site, denied):
    engine.attach(1, app, site.name, dns="pinned")
    engine.load()
    wait_for(lambda: {q.type for q in host.world.dns.queries(site.name)} == {"A", "AAAA"} and
             app.probe(["dns", site.name]).addresses == [site.v4])
    asked = len(host.world.dns.queries(site.name))
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    assert len(host.world.dns.queries(site.name)) == asked
    assert reaches(app, site)
    expect.name_refused(app.probe(["dns", denied.name]))
    engine.restart()
    wait_for(lambda: app.probe(["dns", site.name]).get("addresses") == [site.v4])
    assert reaches(app, site)


def test_without_ipv6_there_are_no_such_addresses(world, tmp_path, tree, site):
    with Pod(world, link="up0", ipv6=False) as host:
        engine, app = Engine(host, tmp_path), Member(host, tree.cgroup("a"))
        try:
            engine.attach(1, app, site.name)
            engine.load()
            expect.no_data(app.probe(["dns", site.name, "AAAA"]))
            assert app.probe(["dns", site.name]).addresses == [site.v4]
        finally:
            engine.close()


def test_two_hundred(engine, host, tree, site):
    """All of one plan and some of others; each has its own addresses."""
    members = [Member(host, tree.cgroup(f"m{n}")) for n in range(200)]
    sites = [site, *(host.world.site(f"more{n}-{site.name}") for n in range(3))]
    for n, member in enumerate(members, 1):
        engine.attach(n, member, sites[n % 4].name)
    engine.load()
    for n in (1, 100, 200):
        assert members[n - 1].probe(["dns", sites[n % 4].name]).addresses == [sites[n % 4].v4]
        assert reaches(members[n - 1], sites[n % 4])
        expect.tcp_refused(members[n - 1].probe(["tcp", sites[(n + 1) % 4].v4, 443]))
    # the same plan, and nobody has asked
    expect.tcp_refused(members[103].probe(["tcp", sites[0].v4, 443]))
    engine.restart()
    assert reaches(members[99], sites[0])
    for n in range(1, 201):
        engine.detach(n)
    assert members[0].probe(["tcp", STRANGER, 443]).result == "ok"
    rules = host.nft("list", "table", "inet", "weir_host")
    assert not re.search(r"\bp[0-9]+_", rules), rules


SENDER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in sys.stdin:
    address, port, count = line.split()
    for _ in range(int(count)):
        try:
            s.sendto(b"x", (address, int(port)))
        except OSError:
            pass
    print("sent", flush=True)
"""


def test_a_change_counts_what_was_refused_so_far_once(engine, host, app, other, site):
    engine.attach(1, app, site.name)
    engine.attach(2, other, site.name)
    engine.load()
    mine, others = (member.start("/usr/bin/python3", "-c", SENDER) for member in (app, other))

    def send(started, *what):
        started.say(" ".join(map(str, what)) + "\n")
        assert started.line() == "sent"
    total = 0
    for turn in range(3):
        for port in (7001, 7002, 7001 + 10 * turn):
            send(mine, STRANGER, port, 40)
            send(others, STRANGER, port, 7)
            total += 40
        engine.change(1, site.name, f"turn{turn}.test")
        assert engine.stats(1)["packets_denied"] == total
    engine.change(2, site.name, "more.test")
    assert engine.stats(2)["packets_denied"] == total * 7 // 40
    time.sleep(1.3)  # a look at everybody
    assert engine.stats(1)["packets_denied"] == total and engine.stats(2)["packets_denied"] == total * 7 // 40


def test_many_address_rules_are_put_back(engine, host, app, site):
    """Each of these plans has sets of its own: more than 500 in all."""
    engine.attach(1, app, site.v4)
    engine.load()
    for n in range(2, 60):
        engine.attach(n, f"uid:{30000 + n}", *({"action": "allow", "target": t, "ports": [p]} for p in range(440, 445)
                                               for t in (f"11.{p & 7}.{n}.0/24", f"2a01:{p}:{n}::/64")))
    assert len(re.findall(r"set p[0-9]+_", host.nft("list", "sets"))) > 512
    engine.ask("tamper")
    engine.wait_until_repaired()
    wait_for(lambda: engine.stats(1).get("repairs") == 1)
    assert app.probe(["tcp", site.v4, 443]).result == "ok"
    expect.tcp_refused(app.probe(["tcp", STRANGER, 443]))


def test_every_repair_is_told_whatever_the_rate_of_events(engine, app):
    engine.attach(1, app, limits={"events_per_second": 1})
    engine.load()
    told = []
    for number in range(1, 5):
        engine.ask("tamper")
        wait_for(lambda number=number: engine.stats(1).get("repairs") == number)
    wait_for(lambda: told.extend(engine.events()) or sum(e[1] == PANIC for e in told) >= 4)
