# SPDX-License-Identifier: Apache-2.0
"""slirp4netns and pasta beside the relay: what they carry, and all that stays closed.

Real programs in the test world. /dev/net/tun is a node of the test's own, that every user
may open, in a mount namespace of each command's own.
"""
import json
import os
import pathlib
import signal

import pytest

from world import expect
from world.lies import LIES
from world.listen import TcpService, UdpService
from world.program import children, comm, is_alive
from world.run import finish
from world.sidecar import wait_for
from world.world import DOCKER4, ECHO_PORT, HOST4

GATEWAY, NAME_SERVER = "192.0.0.130", "192.0.0.131"  # of slirp4netns's own network
OTHER = "93.99.99.99"                                # exists, and no rule allows it

# Sends each line that it reads to an address, and says what came of it. "new …" goes out
# from a socket of its own, all else from one that stays open.
TALKER = """
import socket, sys
def open_one():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(50)
    s.connect((sys.argv[1], int(sys.argv[2])))
    return s
first = open_one()
for line in sys.stdin:
    try:
        s = open_one() if line.startswith("new") else first
        s.send(line.encode())
        print(s.recv(100).decode().strip(), flush=True)
        s.settimeout(1)
    except OSError as e:
        print(type(e).__name__, flush=True)
"""


@pytest.fixture
def host_services(world):
    """Services of the host: one on each of its addresses, loopback too."""
    with UdpService(world.host, 9009) as udp, TcpService(world.host, 9009) as tcp:
        yield udp, tcp


def services_heard(host_services):
    udp, tcp = host_services
    return udp.datagrams + tcp.connections


# what works

def test_udp_that_the_policy_allows_works(over, site):
    answer, four = over(["lookup", site.name], ["udp", site.v4, ECHO_PORT, "hello", 30],
                        allow=[f"{site.name}:udp/{ECHO_PORT}"])
    assert answer.result == "ok"
    assert (four.result, four.data) == ("ok", "hello"), dict(four)


def test_udp_over_ipv6_works_at_once(over, world, site):
    """pasta takes the host's link for one with IPv6 only if it has a link-local address."""
    world.host.ip("address replace fe80::2/64 dev up0 nodad", family=6)
    answer, six = over(["lookup", site.name], ["udp", site.v6, ECHO_PORT, "hello", 30],
                       allow=[f"{site.name}:udp/{ECHO_PORT}"])
    assert site.v6 in answer.addresses
    assert (six.result, six.data) == ("ok", "hello"), dict(six)


def test_a_large_datagram_arrives_whole(over, site):
    word = "x" * 20000
    answer = over(["udp", site.v4, ECHO_PORT, word, 30], allow=[f"{site.v4}:udp/{ECHO_PORT}"])
    assert answer.result == "ok" and answer.data == word


def test_tcp_leaves_by_the_relay(over, world, site):
    answer = over(["connect", site.name, ECHO_PORT, "hello"], allow=[f"{site.name}:{ECHO_PORT}"])
    assert answer.result == "ok" and answer.data == "hello", dict(answer)


def test_names_are_checked_as_over_the_relay(over, world, site, denied):
    """Two names on one address: the one that the connection shows decides."""
    world.dns.add(denied.name, site.v4)
    right, wrong = over(["connect", site.name, 443], ["https", site.v4, 443, denied.name],
                        allow=[f"{site.name}:443"])
    assert right.result == "ok"
    expect.tcp_gave_nothing(wrong)


@pytest.mark.parametrize("beside", [(), (f"{HOST4.split('.', 1)[0]}.0.0.0/8",)], ids=["alone", "in a range"])
def test_an_address_of_the_host_that_a_rule_names_exactly_is_reached(over, host_services, beside):
    answer = over(["udp", HOST4, 9009, "hello", 30], allow=[*beside, f"{HOST4}:udp/9009"])
    assert answer.result == "ok" and answer.data == "hello", dict(answer)


# what stays closed

def test_addresses_that_nothing_allows_are_refused_at_once(over, world, site):
    with world.capture() as capture:
        udp, tcp, other_port = over(
            ["udp", OTHER, ECHO_PORT], ["tcp", OTHER, ECHO_PORT], ["udp", site.v4, ECHO_PORT + 1],
            allow=[f"{site.v4}:udp/{ECHO_PORT}"])
        expect.udp_refused(udp)
        expect.tcp_refused(tcp)
        expect.udp_refused(other_port)
        assert capture.packets(dst=OTHER) == [] and capture.packets(dst=site.v4) == []


def test_every_resolver_is_weirs(over, world, site, denied):
    """dig @elsewhere, dig @gateway: the same answers, and nothing leaves."""
    servers = [OTHER, GATEWAY, NAME_SERVER, "10.0.2.3", "8.8.8.8"]
    with world.capture() as capture:
        answers = over(*(["dns", denied.name, "A", server, transport] for server in servers
                         for transport in ("udp", "tcp")), allow=[f"{site.name}:udp/{ECHO_PORT}"])
        for answer in answers:
            expect.name_refused(answer)
        for server in servers:
            assert capture.packets(dst=server) == []
    assert world.dns.count(denied.name) == 0


CLOSED_HOST = [
    ("the host's own address", HOST4),
    ("another one", DOCKER4),
    ("slirp4netns's host gateway", "10.0.2.2"),
    ("the gateway", GATEWAY),
    ("the gateway's name server", NAME_SERVER),
]


@pytest.mark.parametrize("rule", ["none", "range"])
def test_the_host_is_not_reached(over, host_services, rule):
    """Not even where a range of addresses is allowed that it is in."""
    answers = over(*[[kind, address, 9009] for _, address in CLOSED_HOST for kind in ("udp", "tcp")],
                   allow=sorted({f"{address.split('.')[0]}.0.0.0/8" for _, address in CLOSED_HOST}) if rule == "range" else [])
    for (_, address), udp, tcp in zip(CLOSED_HOST, answers[::2], answers[1::2]):
        if rule == "none" or address != "10.0.2.2":
            expect.udp_refused(udp)
            expect.tcp_gave_nothing(tcp)
    # Where 10.0.0.0/8 is allowed 10.0.2.2 is what it is on the network, not the host.
    assert services_heard(host_services) == []


def test_a_name_that_leads_to_the_host_does_not_open_it(over, world, host_services):
    world.dns.add("to-host.test", HOST4)
    _, udp = over(["lookup", "to-host.test"], ["udp", HOST4, 9009], allow=["to-host.test:udp/9009"])
    expect.udp_refused(udp)
    assert services_heard(host_services) == []


@pytest.mark.parametrize("beside", ["range", "name"])
def test_a_rule_for_one_port_of_the_host_opens_no_other_one(over, world, host_services, beside):
    """What else is open beside it would open them."""
    name = f"to-host{world.number()}.test"
    world.dns.add(name, HOST4)
    other = f"{HOST4.split('.', 1)[0]}.0.0.0/8" if beside == "range" else name
    _, udp, tcp = over(["lookup", name], ["udp", HOST4, 9009], ["tcp", HOST4, 9009], allow=[other, f"{HOST4}:udp/7777"])
    expect.udp_refused(udp)
    expect.tcp_gave_nothing(tcp)
    assert services_heard(host_services) == []


def test_it_is_said_that_the_host_is_not_reached_by_a_range(world, tun, uplink, user):
    """Over TCP as well, which has a way out else."""
    done = world.run("nc", "-w30", HOST4, "9009", user=user, mounts=tun, options=("--uplink", uplink),
                     allow=[f"{HOST4.split('.', 1)[0]}.0.0.0/8"])
    assert done.code != 0 and "an address of this machine" in done.messages and "no way out" not in done.messages, done


def test_all_addresses_are_not_all_that_a_program_can_send_to(over, world, host_services):
    """A rule for everything opens the internet, not multicast, loopback or the host."""
    targets = ["127.0.0.1", "127.9.9.9", "224.0.0.251", "255.255.255.255", HOST4, GATEWAY]
    *closed, opened = over(*(["udp", a, 9009] for a in targets), ["udp", OTHER, ECHO_PORT, "hello", 30],
                           allow=["0.0.0.0/1", "128.0.0.0/1"])
    assert opened.result == "ok"
    assert all(answer.result != "ok" for answer in closed), closed
    assert services_heard(host_services) == []


@pytest.mark.parametrize("rules", [(), ("0.0.0.0/1", "128.0.0.0/1")], ids=["nothing", "everything"])
def test_the_hosts_loopback_is_not_reached_by_the_link(over, host_services, rules):
    """A socket that is bound to it sends there what is for loopback; both programs would take that for the host's own."""
    calls = [["to_self_by", "weir-up", a, 9009, kind] for a in ("127.0.0.1", "127.9.9.9") for kind in ("SOCK_DGRAM", "SOCK_STREAM")]
    for answer in over(*calls, allow=list(rules)):
        assert answer.result != "sent", dict(answer)
    assert services_heard(host_services) == []


# An answer before anything else is tried: the uplink's program is slow to get ready for IPv6.
WARM = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    s.settimeout(0.5)
    for _ in range(40):
        s.sendto(b"warm", (sys.argv[6], int(sys.argv[7])))
        try: s.recv(9); break
        except OSError: pass
    else: sys.exit("no answer")
"""


@pytest.mark.parametrize("ports", ["udp/{}", "udp/{},udp/53"], ids=["", "port 53"])
def test_a_source_that_is_made_up_opens_nothing(world, tun, uplink, user, site, ports):
    """The far side's answers would come back by the flow that its "packet" has begun."""
    far, allowed = [OTHER, world.site(f"far{world.number()}.test").v6], [site.v4, site.v6]
    argv = ["/usr/bin/python3", "-IS", "-c", WARM + LIES, *map(json.dumps, (far, [["127.0.0.1"], ["::1"]], allowed, allowed, 0)),
            site.v6, ECHO_PORT]
    world.host.ip("address replace fe80::2/64 dev up0 nodad", family=6)  # pasta wants one
    with world.capture() as capture:
        done = world.run(*argv, user=user, mounts=tun, options=("--uplink", uplink, "--verify", "dns"),
                         allow=[f"{a}:{ports.format(ECHO_PORT)}" for a in (site.v4, f"[{site.v6}]")], timeout=120)
        assert done.code == 0 and "ANSWER" not in done.text, done
        left = [p for p in capture.packets(0.3) if p.proto != "tcp"]
    assert {p.payload for p in left if p.dport == ECHO_PORT} == {b"warm"}
    assert [p for p in left if {p.src, p.dst} & set(far) or p.payload.endswith((b"LIE", b"ANSWER"))] == []


def test_another_sandbox_is_not_reached(over, world, tun, uplink, user):
    """Neither by its own addresses, which all sandboxes share, nor by the host's."""
    listener = "import socket; s = socket.socket(2, 2); s.bind(('0.0.0.0', 9010)); print('up', flush=True); s.recv(9)"
    with world.run_start("/usr/bin/python3", "-c", listener, user=user, mounts=tun,
                         options=("--uplink", uplink)) as listening:
        assert listening.line() == "up"
        answers = over(*(["udp", a, 9010] for a in (HOST4, "192.0.0.228", GATEWAY)),
                       allow=["5.0.0.0/8"])
        assert all(a.result != "ok" for a in answers), answers


def test_quic_stays_closed_while_names_are_checked(over, site):
    """Without ports a rule opens all of UDP but 443, where names can't be seen."""
    _, quic, other = over(["lookup", site.name], ["udp", site.v4, 443],
                          ["udp", site.v4, ECHO_PORT, "hello", 30], allow=[site.name])
    expect.udp_refused(quic)
    assert other.result == "ok"


def test_the_namespace_offers_nothing_else(over):
    """No address but the stub's and the link's, and nothing that answers pings."""
    answer = over(["own_addresses"])
    mine = {a for a in answer.addresses if not a.startswith(("fe80:", "127."))}
    assert {"192.0.0.2", "192.0.0.228", "fd00::e4"} <= mine
    assert len(mine) == 4, mine


# over the relay and none

def test_over_the_relay_udp_is_refused_and_the_report_names_the_uplink(world, user, site):
    done = world.run("/usr/bin/python3", "-c", TALKER, site.v4, ECHO_PORT, input=b"hello\n", user=user,
                     allow=[f"{site.v4}:udp/{ECHO_PORT}"])
    assert "--uplink slirp4netns" in done.messages, done


# ends

def program_of(control, name):
    """The pid of the uplink program of one `weir run`."""
    return wait_for(lambda: next((pid for pid in children(control) if comm(pid).startswith(name)), None))


@pytest.fixture
def talking(world, tun, uplink, user, site):
    """A command that has just talked over the uplink, and the program that carried it."""
    name = {"pasta": "pas"}.get(uplink, uplink)  # passt.avx2 where there is AVX2
    started = world.run_start("/usr/bin/python3", "-c", TALKER, site.v4, ECHO_PORT, user=user, mounts=tun,
                              allow=[f"{site.v4}:udp/{ECHO_PORT}", f"{site.v4}:{ECHO_PORT}"],
                              options=("--uplink", uplink))
    with started:
        started.say("one\n")
        assert started.line() == "one"
        yield started, program_of(started.pid, name)


def test_when_the_program_dies_udp_ends_and_nothing_opens(world, talking, site):
    started, program = talking
    with world.capture() as capture:
        os.kill(program, signal.SIGKILL)
        wait_for(lambda: not is_alive(program))

        def is_closed():
            """Weir has to hear of it first."""
            started.say("two\n")
            return started.line() in ("OSError", "PermissionError")
        wait_for(is_closed)
        started.say("new three\n")
        assert started.line() == "PermissionError"
        assert capture.packets(dst=site.v4) == []
    done = finish(started)
    assert done.code == 0, done
    assert "has ended unexpectedly" in done.messages and "UDP" in done.messages, done
    assert "the uplink has ended" in done.messages, done


def test_when_weir_is_killed_the_program_is_gone(talking):
    started, program = talking
    started.signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(program))


def test_when_the_command_ends_the_program_is_gone(talking):
    started, program = talking
    done = finish(started)
    assert done.code == 0 and done.err == b"", done
    wait_for(lambda: not is_alive(program))


def test_the_program_has_none_of_our_descriptors(talking):
    _, program = talking
    targets = {os.readlink(f.path) for f in os.scandir(f"/proc/{program}/fd")}
    unknown = {t for t in targets if not t.startswith(("pipe:", "socket:", "anon_inode:", "/dev/net/tun",
                                                       "/dev/null", "/dev/urandom", "net:[", "/memfd", "/"))}
    assert unknown == set()
    for number in (0, 1):
        assert os.readlink(f"/proc/{program}/fd/{number}") == "/dev/null"
    assert pathlib.Path(f"/proc/{program}/environ").read_bytes() in (b"",), "the environment is empty"


# what is missing

def fake(world, text):
    """A program in the place of the uplink's."""
    path = world.folder / f"fake-{world.number()}"
    path.write_text(f"#!/bin/sh\n# disable-dns no-map-gw\n{text}\n")
    path.chmod(0o755)
    return path


MISSING = [
    ("it is not there", "mount --bind /dev/null {path}", "install"),
    ("it is too old", "mount --bind /bin/true {path}", "too old"),
    ("it fails", "mount --bind {fails} {path}", "cannot do that here"),
    ("it dies", "mount --bind {dies} {path}", "signal 9"),
    ("it can't be executed", "mount --bind {odd} {path}", "cannot execute"),
    ("there is no /dev/net/tun", "mount -t tmpfs none /dev/net", "modprobe tun"),
]


@pytest.mark.parametrize("what, mount, says", MISSING, ids=[m[0] for m in MISSING])
def test_without_the_program_nothing_starts(world, tun, uplink, user, what, mount, says):
    fakes = {"fails": fake(world, "echo something >&2; echo cannot do that here >&2; exit 3"),
             "dies": fake(world, "kill -9 $$"), "odd": fake(world, "")}
    fakes["odd"].write_text("#!/nonexistent/shell\n# disable-dns no-map-gw\n")
    path = os.path.realpath(f"/usr/bin/{uplink}")
    cwd = world.workdir(user)
    done = world.run("touch", "started", user=user, cwd=cwd, options=("--uplink", uplink),
                     mounts=(*tun, mount.format(path=path, **fakes)))
    assert done.code == 125, done
    assert says in done.messages and uplink in done.messages, done
    assert not (cwd / "started").exists()


def test_without_the_right_to_the_device_nothing_starts(world, uplink):
    node = world.folder / "tun-of-root"
    if not node.exists():
        os.mknod(node, 0o600 | 0o020000, os.makedev(10, 200))
    done = world.run("true", user="weir-test", options=("--uplink", uplink),
                     mounts=(f"mount --bind '{node}' /dev/net/tun",))
    assert done.code == 125 and "/dev/net/tun" in done.messages and "chmod" in done.messages, done
    assert len(done.messages.splitlines()) <= 2, done


def test_a_program_that_never_gets_ready_is_given_up(world, tun):
    """The launch waits for its link for ten seconds, not for ever."""
    mount = f"mount --bind {fake(world, 'exec sleep 30')} {os.path.realpath('/usr/bin/slirp4netns')}"
    done = world.run("true", options=("--uplink", "slirp4netns"), mounts=(*tun, mount))
    assert done.code == 125 and "weir-up" in done.messages, done
