# SPDX-License-Identifier: Apache-2.0
"""Real resolvers in a sandbox: each gets what is allowed, and a refusal at once."""
import dataclasses
import functools
import ipaddress
import pathlib
import shutil
import subprocess

import pytest

from world.expect import in_time

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / "world" / "clients"
# What a client takes for a refusal; more means that it waited for something.
REFUSED_MS = 1900  # less than the least that one of them waits before it asks again


class Missing(Exception):
    """A program that this machine lacks."""


def _tool(name):
    path = shutil.which(name)
    if not path:
        raise Missing(name)
    return path


def _build(folder, *argv, env=None):
    subprocess.run([str(a) for a in argv], check=True, cwd=folder, capture_output=True, env=env)


def _c(compiler, *options):
    @functools.cache
    def make(folder):
        _build(folder, _tool(compiler), "-O1", *options, "-o", f"lookup-{compiler}", CLIENTS / "lookup.c")
        return [folder / f"lookup-{compiler}"]
    return make


def _go(folder):
    env = {"PATH": "/usr/bin:/bin:/usr/local/go/bin", "HOME": str(folder), "CGO_ENABLED": "0",
           "GOCACHE": str(folder / "go"), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
    _build(folder, _tool("go"), "build", "-o", "lookup-go", CLIENTS / "lookup.go", env=env)
    return [folder / "lookup-go"]


@functools.cache
def _java(folder):
    _tool("java")
    _build(folder, _tool("javac"), "-d", folder, CLIENTS / "Lookup.java")
    # Its tables of C2-compiled code would take longer than the test.
    return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", folder, "Lookup"]


def _node(how):
    def make(folder):
        shutil.copy(CLIENTS / "lookup.mjs", folder)
        return [_tool("node"), folder / "lookup.mjs", how]
    return make


MAKERS = {"glibc": _c("cc"), "musl": _c("musl-gcc", "-static"), "go": _go, "java": _java,
          "node": _node("libc"), "node c-ares": _node("cares")}


@dataclasses.dataclass
class Found:
    ms: int
    addresses: list


def _short(address):
    return str(ipaddress.ip_address(address))


class Client:
    """One program that looks names up."""

    def __init__(self, world, name, argv):
        self.world, self.name, self.argv = world, name, argv

    def look_up(self, *names, **rest):
        """Return: a Found for each name; the first name's includes the client's start."""
        done = self.world.run(*self.argv, *names, **rest)
        assert done.code == 0, done
        lines = [line.split() for line in done.text.splitlines()]
        assert len(lines) == len(names), done
        return [Found(int(ms), [] if found == ["failed"] else [_short(a) for a in found])
                for ms, *found in lines]


@pytest.fixture(scope="module", params=list(MAKERS))
def client(world, request):
    folder = world.tools / "clients"
    folder.mkdir(exist_ok=True)
    try:
        return Client(world, request.param, MAKERS[request.param](folder))
    except Missing as e:
        pytest.skip(f"{e} is not installed")


def test_an_allowed_name_has_its_addresses_and_a_denied_one_none(client, site, denied):
    def look_up(_):
        first, refused, again = client.look_up(site.name, denied.name, site.name, allow=(site.name,))
        assert set(first.addresses) == {site.v4, site.v6} == set(again.addresses)
        assert refused.addresses == [] and refused.ms < REFUSED_MS, refused
    in_time(look_up)
    assert client.world.dns.count(denied.name) == 0


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_a_name_of_one_family_is_found(client, world, family):
    name = f"one-{world.number()}.test"
    address = world.address() if family == "v4" else world.address6()
    world.dns.add(name, address)
    def look_up(_):
        first, found = client.look_up(name, name, allow=(name,))
        assert first.addresses == found.addresses == [address] and found.ms < REFUSED_MS
    in_time(look_up)


def test_a_chain_of_cnames_is_followed(client, world):
    name, address = f"chain-{world.number()}.test", world.address()
    links = [name] + [f"link-{world.number()}.test" for _ in range(5)]
    records = [(a, 300, "CNAME", b + ".") for a, b in zip(links, links[1:])]

    def answer(q):
        return q.answer(records=records + ([(links[-1], 300, "A", address)] if q.type == "A" else []))
    world.dns.on(name, answer)
    found, = client.look_up(name, allow=(name,))
    assert found.addresses == [address]


def test_a_large_answer_needs_no_tcp(client, world):
    """As many addresses as fit are given, all of which the name has."""
    name, addresses = f"large-{world.number()}.test", [world.address() for _ in range(100)]

    def answer(q):
        reply = q.answer(*addresses)
        if not q.tcp and len(reply.to_wire(max_size=65535)) > 1232:
            reply = q.answer()
            reply.flags |= 0x0200
        return reply
    world.dns.on(name, answer)
    found, = client.look_up(name, allow=(name,))
    assert len(found.addresses) >= 20 and set(found.addresses) <= set(addresses), found


def test_a_name_that_upstream_denies_is_refused_at_once(client, world):
    name = f"nothing-{world.number()}.gone.test"

    def look_up(_):
        _, found = client.look_up("localhost", name, allow=("*.gone.test",))
        assert found.addresses == [] and found.ms < REFUSED_MS
    in_time(look_up)


def test_a_failing_upstream_is_a_failure_and_no_hang(client, world):
    name = f"failing-{world.number()}.test"
    world.dns.on(name, lambda q: q.answer(rcode="SERVFAIL"))
    _, found = client.look_up("localhost", name, allow=(name,))
    assert found.addresses == []


# resolv.conf is Weir's; what the environment may change of it is tried here.
@pytest.mark.parametrize("options", ["ndots:5", "use-vc", "single-request", "single-request-reopen",
                                     "no-aaaa", "trust-ad", "rotate timeout:1 attempts:1",
                                     "ndots:15 use-vc"])
def test_options_of_the_resolver_change_no_answer(world, site, denied, options):
    folder = world.tools / "clients"
    folder.mkdir(exist_ok=True)
    client = Client(world, "glibc", MAKERS["glibc"](folder))

    def look_up(_):
        found, refused = client.look_up(site.name, denied.name, allow=(site.name,), env={"RES_OPTIONS": options})
        assert site.v4 in found.addresses
        assert refused.addresses == [] and refused.ms < REFUSED_MS
    in_time(look_up)
    assert world.dns.count(denied.name) == 0


@pytest.mark.parametrize("maker", ["glibc", "node", "node c-ares", "java"])
@pytest.mark.parametrize("options", ["", "ndots:3"])
def test_a_search_list_finds_what_is_allowed_and_asks_nobody_else(world, maker, options):
    """Expansions that no rule allows cost no packet, and next to no time."""
    number = world.number()
    short, site = f"host{number}", world.site(f"host{number}.second{number}.test")
    folder = world.tools / "clients"
    folder.mkdir(exist_ok=True)
    try:
        client = Client(world, maker, MAKERS[maker](folder))
    except Missing as e:
        pytest.skip(f"{e} is not installed")
    first = f"first{number}.test"
    env = {"LOCALDOMAIN": f"{first} second{number}.test third.test", "RES_OPTIONS": options}

    def look_up(_):
        _, found = client.look_up("localhost", short, allow=(site.name,), env=env)
        if maker != "node c-ares":  # its resolve4() takes names as they are
            assert site.v4 in found.addresses
        assert found.ms < REFUSED_MS
    in_time(look_up)
    assert world.dns.count(f"*.{first}") == world.dns.count(short) == 0


@pytest.mark.parametrize("arguments", [[], ["+tcp"], ["+noedns"], ["+dnssec"], ["+ednsopt=10:0011223344556677"],
                                       ["+bufsize=512"], ["+cdflag", "+adflag"], ["+keepopen", "+tcp"]])
def test_dig_gets_an_answer_however_it_asks(world, site, denied, arguments):
    done = world.run("dig", "+short", "+time=20", "+tries=1", *arguments, site.name, "A", site.name, "AAAA",
                     allow=(site.name,))
    assert done.text.split() == [site.v4, site.v6], done
    refused = world.run("dig", "+time=20", "+tries=1", *arguments, denied.name, allow=(site.name,))
    assert "NXDOMAIN" in refused.text, refused


def test_dig_searches(world):
    number = world.number()
    site = world.site(f"host{number}.found{number}.test")
    done = world.run("dig", "+short", "+search", f"+domain=found{number}.test", f"host{number}",
                     allow=(site.name,))
    assert done.text.split() == [site.v4], done


PAIRS = """
import socket, struct, sys, time
def query(name, kind, number):
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    return struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, 1)
slowest = 0
for i in range(1000):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.1", 53))
        s.settimeout(20)
        began, wanted = time.monotonic(), {1, 2}
        s.send(query(f"n{i}.{sys.argv[1]}.pair.test", 1, 1))
        s.send(query(f"n{i}.{sys.argv[1]}.pair.test", 28, 2))
        while wanted:
            reply = s.recv(2048)
            assert reply[3] & 15 == 0 and reply[7] == 1, reply
            wanted.remove(reply[1])
        slowest = max(slowest, time.monotonic() - began)
print(round(slowest * 1000))
"""


def test_a_thousand_pairs_from_one_socket_each_need_no_second_try(world):
    """A and AAAA at once, as glibc and systemd-resolved ask."""
    world.dns.add("*.pair.test", world.address(), world.address6())
    policy = world.workdir() / "policy.yaml"
    policy.write_text('egress: [{action: allow, target: "*.pair.test"}]\n'
                      "limits: {new_names_per_minute: unlimited, queries_per_second: unlimited}\n")
    def take_one_try(turn):
        done = world.run("/usr/bin/python3", "-IS", "-c", PAIRS, f"try{turn}", options=("--policy", policy))
        assert done.code == 0, done
        assert int(done.text) < 1400 and world.dns.count(f"*.try{turn}.pair.test") == 2000, done
    in_time(take_one_try)
