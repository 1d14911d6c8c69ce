# SPDX-License-Identifier: Apache-2.0
"""C22: the relay dials other addresses of a name when the one that was asked for is silent. What else could it be made
to dial? The address asked for is a black hole here, and every address that was dialled is counted outside."""
import subprocess

import pytest

HOLD = """
import socket, ssl, sys, time
name, address, shown, wait = sys.argv[1:5]
for n in name.split(','): socket.getaddrinfo(n, 443)
time.sleep(float(wait))
if wait != '0': socket.getaddrinfo(name.split(',')[0], 443)
s = socket.create_connection((address, 443), 5)
s.settimeout(2)
try:
    if shown == '-': s.sendall(b'\\0\\1bytes'); s.recv(1)
    else: ssl._create_unverified_context().wrap_socket(s, server_hostname=shown)
    print('open')
except OSError as e: print('closed', e)
"""


class Race:
    """A name with a silent address first, and the answers of others."""

    def __init__(self, world, attack):
        n = world.number()
        self.world, self.attack = world, attack
        self.name, self.other = f"race-{n}.test", f"other-{n}.test"
        self.dead, self.live, self.third = world.address(), world.address(), world.address()
        self.table = f"race{n}"
        self.nft(f"add table inet {self.table}; add chain inet {self.table} in {{ type filter hook input priority 0; }}; "
                 f"add rule inet {self.table} in ip daddr {self.dead} drop")

    def nft(self, script):
        subprocess.run(self.world.internet.command("nft", script), check=True, capture_output=True)

    def dial(self, names, shown, allow, wait=0, **rest):
        """What one connection to the dead address has Weir dial."""
        done = self.attack.run("/usr/bin/python3", "-c", HOLD, names, self.dead, shown, str(wait), allow=allow,
                               timeout=60, **rest)
        dialled = {p.dst for p in self.attack.packets if p.proto == "tcp"}
        assert self.dead in dialled, (done, dialled)  # the control: the connection did leave
        return dialled - {self.dead}, done


@pytest.fixture
def race(world, attack):
    it = Race(world, attack)
    yield it
    it.nft(f"delete table inet {it.table}")


@pytest.mark.parametrize("verify", ["tls", "dns"])
def test_C22_an_address_of_the_name_is_dialled(race, user, verify):
    race.world.dns.add(race.name, race.dead, race.live)
    dialled, done = race.dial(race.name, race.name, (f"{race.name}:443",), user=user, options=("--verify", verify))
    assert dialled == {race.live} and "open" in done.text, done


@pytest.mark.parametrize("verify", ["tls", "dns"])
def test_C22_another_names_address_is_not(race, user, verify):
    race.world.dns.add(race.name, race.dead)
    race.world.dns.add(race.other, race.live)
    allow = (f"{race.name}:443", f"{race.other}:443")
    dialled, done = race.dial(f"{race.name},{race.other}", race.name, allow, user=user, options=("--verify", verify))
    assert dialled == set() and "open" not in done.text, done


def test_C22_the_name_that_is_shown_decides_whose_addresses_are_dialled(race):
    race.world.dns.add(race.name, race.dead, race.live)
    race.world.dns.add(race.other, race.dead, race.third)
    allow = (f"{race.name}:443", f"{race.other}:443")
    both = f"{race.name},{race.other}"
    assert race.dial(both, race.other, allow)[0] == {race.third}
    assert race.dial(both, race.name, allow)[0] == {race.live}


@pytest.mark.parametrize("what, options, shown", [("no name is read", ("--verify", "dns"), "-"), ("bytes", (), "-")])
def test_C22_without_a_shown_name_only_what_all_names_taught(race, tmp_path, world, what, options, shown):
    race.world.dns.add(race.name, race.dead, race.live)
    race.world.dns.add(race.other, race.dead, race.third)
    policy = world.workdir() / "policy.yaml"
    policy.write_text("egress:\n" + "".join(f"- {{action: allow, target: {n}, ports: [443], raw: true}}\n"
                                            for n in (race.name, race.other)))
    options = (*options, "--policy", policy)
    assert race.dial(f"{race.name},{race.other}", shown, (), options=options)[0] == set()
    assert race.dial(race.name, shown, (), options=options)[0] == {race.live}


def test_C22_an_address_that_a_rule_denies_is_not(race):
    race.world.dns.add(race.name, race.dead, race.live, race.third)
    dialled, _ = race.dial(race.name, race.name, (f"{race.name}:443",), deny=(race.live,))
    assert dialled == {race.third}


@pytest.mark.parametrize("address", ["192.168.77.9", "169.254.169.254", "127.0.0.1", "5.100.0.2", "172.17.0.1"])
def test_C22_a_special_address_is_not(race, address):
    race.world.dns.add(race.name, race.dead, address, race.third)
    dialled, _ = race.dial(race.name, race.name, (f"{race.name}:443",))
    assert dialled == {race.third}


def test_C22_an_expired_address_is_not(race, world):
    answers = [(race.dead, race.live), (race.dead, race.third)]
    race.world.dns.on(race.name, lambda q: q.answer(*(answers[0] if len(answers) == 1 else answers.pop(0)), ttl=1)
                      if q.type == "A" else q.answer())
    policy = world.workdir() / "policy.yaml"
    policy.write_text(f"egress: [{{action: allow, target: {race.name}, ports: [443]}}]\n"
                      "limits: {min_lifetime: 1, grace: 1}\n")
    dialled, _ = race.dial(race.name, race.name, (), wait=8, options=("--policy", policy))
    assert dialled == {race.third}


def test_C22_another_port_is_not(race):
    race.world.dns.add(race.name, race.dead, race.live)
    race.dial(race.name, race.name, (f"{race.name}:443",))
    assert {p.dport for p in race.attack.packets if p.proto == "tcp"} == {443}


def test_C22_an_address_that_a_rule_names_is_dialled_alone(race):
    race.world.dns.add(race.name, race.dead, race.live)
    for verify in "tls", "dns":
        dialled, _ = race.dial(race.name, race.name, (f"{race.name}:443", f"{race.dead}:443"), options=("--verify", verify))
        assert dialled == set()
