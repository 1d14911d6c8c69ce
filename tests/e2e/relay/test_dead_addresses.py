# SPDX-License-Identifier: Apache-2.0
"""Names some of whose addresses are dead: programs get there all the same, as they do without Weir, and nowhere else."""
import dataclasses
import json
import subprocess
import threading

import pytest

from world.expect import in_time

PYTHON = ("/usr/bin/python3", "-c")
GET = "import urllib.request as u; print(u.urlopen('{url}', timeout={limit}).read().decode())"
PROGRAMS = [("curl", ["curl", "-sSf", "--max-time", "{limit}", "{url}"]), ("python", [*PYTHON, GET])]
LIMIT = 45  # seconds: far over what two addresses take, far under what a dead one takes


@dataclasses.dataclass
class Faults:
    """What is wrong with addresses of the internet."""
    ns: object
    table: str

    def nft(self, script):
        subprocess.run(self.ns.command("nft", script), check=True, capture_output=True)

    def add(self, address, verdict):
        family = "ip6" if ":" in address else "ip"
        self.nft(f"add rule inet {self.table} in {family} daddr {address} tcp dport != 53 {verdict}")

    def drop(self, *addresses):
        for address in addresses:
            self.add(address, "drop")

    def refuse(self, *addresses):
        for address in addresses:
            self.add(address, "reject with tcp reset")

    def clear(self):
        self.nft(f"flush chain inet {self.table} in")


@pytest.fixture
def faults(world):
    it = Faults(world.internet, f"faults{world.number()}")
    it.nft(f"add table inet {it.table}; add chain inet {it.table} in {{ type filter hook input priority 0; }}")
    yield it
    it.nft(f"delete table inet {it.table}")


@dataclasses.dataclass
class Name:
    """A name and its addresses, in the order in which the DNS has them."""
    name: str
    addresses: list


@pytest.fixture
def named(world):
    def make(*kinds, **options):
        addresses = [world.address6() if kind == 6 else world.address() for kind in kinds]
        it = Name(f"dead-{world.number()}.test", addresses)
        world.dns.add(it.name, *addresses, **options)
        return it
    return make


def argv(program, name, limit=LIMIT):
    return [w.format(url=f"https://{name.name}/x", limit=limit) for w in program]


def dialled(capture, port=443):
    """The addresses that were dialled, in order, each once."""
    return list(dict.fromkeys(p.dst for p in capture.packets(proto="tcp", dport=port) if p.flags & 0x12 == 0x02))


def reaches(world, name, program, user=None, options=()):
    done = world.run(*argv(program, name), allow=(f"{name.name}:443",), user=user, options=options, timeout=60)
    assert done.code == 0 and json.loads(done.text)["host"] == name.name, done
    assert "refused" not in done.messages and "failed" not in done.messages, done


@pytest.fixture(params=PROGRAMS, ids=[p[0] for p in PROGRAMS])
def program(request):
    return request.param[1]


@pytest.mark.parametrize("verify", ["tls", "dns"])
def test_the_first_of_two_addresses_is_a_black_hole(world, named, faults, program, user, verify):
    name = named(4, 4)
    faults.drop(name.addresses[0])
    with world.capture() as capture:
        # The answer's order is the resolver's to change: whichever comes first, the name is reached.
        reaches(world, name, program, user, ("--verify", verify))
        assert name.addresses[1] in dialled(capture)


def test_ipv6_is_a_black_hole(world, named, faults, program, user):
    name = named(6, 6, 4)
    faults.drop(*name.addresses[:2])
    with world.capture() as capture:
        reaches(world, name, program, user)
        # The other family comes second.
        assert [":" in a for a in dialled(capture)][:2] == [True, False]


def test_ipv4_is_a_black_hole(world, named, faults, program):
    name = named(4, 4, 6)
    faults.drop(*name.addresses[:2])
    reaches(world, name, program)


def test_most_of_many_addresses_are_black_holes(world, named, faults, program):
    name = named(6, 6, 6, 4, 4, 4)
    faults.drop(*name.addresses[:-1])
    reaches(world, name, program)


def test_a_refusing_address_costs_nothing(world, named, faults, program):
    name = named(4, 6)
    faults.refuse(name.addresses[1])
    reaches(world, name, program)


def test_a_slow_address_is_waited_for(world, named, faults, program):
    name = named(4)
    faults.drop(name.addresses[0])
    timer = threading.Timer(1.5, faults.clear)
    timer.start()
    try:
        reaches(world, name, program)
    finally:
        timer.join()


def test_with_all_addresses_dead_each_is_tried_and_the_program_gives_up_itself(world, named, faults):
    name = named(6, 4, 4)
    faults.drop(*name.addresses)

    def attempt(_):
        with world.capture() as capture:
            done = world.run(*argv(PROGRAMS[0][1], name, 5), allow=(f"{name.name}:443",), timeout=60)
            assert set(dialled(capture)) == set(name.addresses)
        assert done.code == 28, done  # curl: time out
    in_time(attempt)


def test_with_all_addresses_refusing_the_program_is_told_at_once(world, named, faults, program):
    name = named(6, 4)
    faults.refuse(*name.addresses)
    with world.capture() as capture:
        done = world.run(*argv(program, name, 30), allow=(f"{name.name}:443",), timeout=60)
        assert set(dialled(capture)) == set(name.addresses)
    assert done.code not in (0, 28), done


CONNECTIONS = """
import socket, ssl
c = ssl._create_unverified_context()
for i in range(4):
    with socket.create_connection(('{address}', 443), 10) as s:
        with c.wrap_socket(s, server_hostname='{name}') as t: pass
"""


def test_what_failed_is_remembered(world, named, faults):
    name = named(4, 4)
    faults.drop(name.addresses[0])
    script = f"import socket; socket.getaddrinfo('{name.name}', 443)\n" + \
        CONNECTIONS.format(address=name.addresses[0], name=name.name)
    with world.capture() as capture:
        done = world.run(*PYTHON, script, allow=(f"{name.name}:443",), timeout=60)
        syns = [p for p in capture.packets(proto="tcp", dport=443) if p.flags & 0x12 == 0x02]
    assert done.code == 0, done
    # The dead address is dialled by the first connection alone (a retransmission aside); the others go elsewhere first.
    assert 1 <= len([p for p in syns if p.dst == name.addresses[0]]) <= 2
    assert len([p for p in syns if p.dst == name.addresses[1]]) == 4


def test_an_address_rule_is_dialled_alone(world, named, faults):
    name = named(4, 4)
    dead, alive = name.addresses
    faults.refuse(dead)
    script = f"""
import socket
socket.getaddrinfo('{name.name}', 443)
try: print(repr(socket.create_connection(('{dead}', 443), 10).recv(1)))
except ConnectionResetError: print('reset')
"""
    with world.capture() as capture:
        done = world.run(*PYTHON, script, allow=(f"{name.name}:443", f"{dead}:443"), options=("--verify", "dns"),
                         timeout=60)
        assert dialled(capture) == [dead], alive
    assert done.text.strip() == "reset", done
