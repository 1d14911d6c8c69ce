# SPDX-License-Identifier: Apache-2.0
"""The filter's verdicts, with real packets, in network namespaces of their own.

filter_driver runs the real code inside; both as root and as an ordinary user, who gets a
user namespace as well. Nothing leaves: the way out is a veth pair with both ends inside.
"""
import contextlib
import os
import subprocess
import time

import pytest

from world.built import DRIVERS
from world.lines import FilterDriver

ALLOWED = "203.0.113.9"
ALLOWED6 = "2600:1::9"
DENIED = "203.0.113.7"
OTHER = "198.18.0.9"
OTHER6 = "2600:2::9"
ORDINARY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
FLAGS = "ru6"  # a relay for TCP, the link for UDP, IPv6

STUB = """
ip link set lo up
ip link add weir0 type veth peer name weir1
ip link set weir0 arp off up
ip link set weir1 arp off up
ip addr add 10.77.0.1/30 dev weir0
ip -6 addr add 2001:db8:77::1/64 dev weir0 nodad
ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:01 dev weir0 nud permanent
ip -6 neigh add 2001:db8:77::2 lladdr 02:00:00:00:00:01 dev weir0 nud permanent
ip route add default via 10.77.0.2
ip -6 route add default via 2001:db8:77::2
until ip -6 route show table local | grep -q 2001:db8:77::1; do sleep 0.01; done
exec "$0"
"""


class Driver(FilterDriver):
    def __init__(self, user):
        self.user = user
        unshare = ["unshare", "-n"] if user == "root" else [*ORDINARY, "unshare", "-Urn"]
        super().__init__(*unshare, "sh", "-ec", STUB, DRIVERS / "filter_driver")

    def policy(self, default="deny", rules=(), generation=1, flags=FLAGS):
        self.ok(f"policy {default}")
        for rule in rules:
            self.ok(f"rule {rule}")
        self.ok(f"install {generation} {flags}")

    def learn(self, addr, ms=60000, port_list=0, refresh=0, count=1):
        self.ok(f"learn {addr} {port_list} {ms} {refresh} {count}")

    def tcp(self, addr, port):
        """connect()'s error name, "0" when it was connected."""
        error, again = self.ok(f"tcp {addr} {port}")
        assert again == "0", f"the SYN to {addr} was sent {again} times more: nothing answered the first"
        return error

    def udp(self, addr, port):
        return self.ok(f"udp {addr} {port}")[0]

    def events(self):
        """(destination, protocol, uid, prefix) of each report."""
        return [tuple(e.split("|")) for e in self.ok("events")]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)

    def enter(self, pid):
        """A prefix that runs a command as uid 0 of the namespaces of @pid."""
        if self.user == "root":
            return ["nsenter", "-t", str(pid), "-n"]
        return [*ORDINARY, "nsenter", "-t", str(pid), "-U", "-n",
                "--preserve-credentials"]

    def inside(self, *command):
        return subprocess.run([*self.enter(self.process.pid), *command], capture_output=True,
                              text=True, check=False)


@pytest.fixture(name="driver", params=["root", "ordinary"])
def driver_fixture(request):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be both root and an ordinary user")
    driver = Driver(request.param)
    yield driver
    driver.close()


@pytest.fixture(name="guarded")
def guarded_fixture(driver):
    driver.policy(rules=[f"allow {ALLOWED}/24 -", f"deny {DENIED} -", f"allow {ALLOWED6} tcp/443",
                         "allow api.ok.test 443", "allow 203.0.113.53 udp/53"])
    for addr in ("127.0.0.1", "::1"):
        driver.ok(f"listen {addr} 1021")
    return driver


def test_what_was_installed_is_what_stands(guarded):
    assert guarded.ask(f"verify 1 {FLAGS}") == []


@pytest.mark.parametrize("addr,port", [(OTHER, 443), (OTHER6, 443), (ALLOWED6, 80), (OTHER, 80),
                                       ("169.254.169.254", 80), ("10.77.0.2", 22)])
def test_tcp_that_nothing_allows_is_reset_at_once(guarded, addr, port):
    assert guarded.tcp(addr, port) == "ECONNREFUSED"


@pytest.mark.parametrize("addr,port", [(OTHER, 443), (OTHER6, 443), (DENIED, 443),
                                       ("224.0.0.251", 5353), ("10.77.0.2", 123)])
def test_udp_that_nothing_allows_fails_in_the_call(guarded, addr, port):
    assert guarded.udp(addr, port) in ("EPERM", "EACCES")


@pytest.mark.parametrize("addr", [ALLOWED, ALLOWED6])
def test_tcp_of_an_allowed_address_reaches_the_relay(guarded, addr):
    assert guarded.tcp(addr, 443) == "0"


def test_udp_of_an_allowed_address_leaves_by_the_link(guarded):
    assert guarded.udp(ALLOWED, 443) == "0"


def test_udp_without_a_way_out_is_refused(driver):
    driver.policy(rules=[f"allow {ALLOWED} -"], flags="r6")
    assert driver.udp(ALLOWED, 443) == "EPERM"


def test_tcp_without_relay_leaves_only_where_it_may(driver):
    driver.policy(rules=["allow 10.77.0.1 -", f"allow {ALLOWED} -"], flags="6")
    assert driver.tcp(ALLOWED, 443) == "ECONNREFUSED"


def test_a_deny_beats_an_allow_and_what_was_learned(guarded):
    guarded.learn(DENIED)
    assert guarded.tcp(DENIED, 443) == "ECONNREFUSED"


def test_a_deny_is_absolute_whatever_ports_it_lists(driver):
    driver.policy(default="allow", rules=[f"deny {DENIED} 22", f"allow {DENIED} 443"])
    driver.ok("listen 127.0.0.1 1021")
    assert driver.tcp(DENIED, 443) == "ECONNREFUSED"
    assert driver.udp(DENIED, 443) == "EPERM"
    assert driver.tcp(ALLOWED, 443) == "0"


@pytest.mark.parametrize("addr", [OTHER, OTHER6])
def test_a_learned_address_opens_and_a_deleted_one_closes(guarded, addr):
    assert guarded.tcp(addr, 443) == "ECONNREFUSED"
    guarded.learn(addr)
    assert guarded.tcp(addr, 443) == "0"
    guarded.learn(addr, ms=0)
    assert guarded.tcp(addr, 443) == "ECONNREFUSED"


def test_deleting_what_is_not_there_is_no_error(guarded):
    guarded.learn(OTHER, ms=0)


def test_a_learned_address_expires(guarded):
    for ms in (300, 3000, 30000):  # a slow machine may need more than the first of them to connect
        end = time.monotonic() + ms / 1000
        guarded.learn(OTHER, ms=ms)
        connected = guarded.tcp(OTHER, 443) == "0"
        if connected or time.monotonic() < end:
            break
    assert connected
    time.sleep(max(0, end - time.monotonic()) + 0.2)
    assert guarded.tcp(OTHER, 443) == "ECONNREFUSED"


def test_a_refresh_extends(guarded):
    guarded.learn(OTHER, ms=300)
    guarded.learn(OTHER, ms=60000, refresh=1)
    time.sleep(0.5)
    assert guarded.tcp(OTHER, 443) == "0"


def test_a_refresh_can_shorten(guarded):
    guarded.learn(OTHER, ms=60000)
    guarded.learn(OTHER, ms=200, refresh=1)
    time.sleep(0.4)
    assert guarded.tcp(OTHER, 443) == "ECONNREFUSED"


@pytest.mark.parametrize("refresh", [0, 1])
@pytest.mark.parametrize("first,last", [("198.18.1.0", "198.18.1.255"),
                                        ("2600:2::100", "2600:2::1ff")])
def test_256_addresses_at_once(guarded, first, last, refresh):
    guarded.learn(first, count=256, refresh=refresh)
    assert guarded.tcp(first, 443) == "0"
    assert guarded.tcp(last, 443) == "0"


def test_257_addresses_are_too_many_and_change_nothing(guarded):
    assert isinstance(guarded.ask("learn 198.18.1.0 0 60000 0 257"), str)
    assert guarded.tcp("198.18.1.0", 443) == "ECONNREFUSED"


def test_a_port_list_without_a_learned_set_fails_the_batch(guarded):
    assert "No such file" in guarded.ask("learn 198.18.1.0 15 60000 0 1")


def test_a_learned_address_opens_the_ports_of_its_list_only(guarded):
    guarded.learn(OTHER, port_list=0)
    assert guarded.tcp(OTHER, 853) == "ECONNREFUSED"
    assert guarded.tcp(OTHER, 8443) == "0"


@pytest.mark.parametrize("addr", [OTHER, ALLOWED, DENIED, "127.0.0.53", OTHER6])
def test_port_53_goes_to_the_engine_whatever_the_destination(guarded, addr):
    own = "::1" if ":" in addr else "127.0.0.1"
    assert guarded.tcp(addr, 53) == "ECONNREFUSED"  # by the engine's port: nobody listens
    guarded.ok(f"listen {own} 53")
    assert guarded.tcp(addr, 53) == "0"


@pytest.mark.parametrize("addr", [OTHER, OTHER6])
def test_a_flow_older_than_the_redirect_does_not_carry_dns_past_it(driver, addr):
    driver.policy(rules=[f"allow {addr} 53"])
    driver.ok(f"udphold {addr} 53")
    assert driver.ok("again") == ["0"]  # conntrack knows it, the nat chain won't see it again
    driver.policy(default="allow", generation=2)
    assert driver.ok("again") in (["EPERM"], ["EACCES"])


def test_an_address_rule_that_names_53_is_left_alone(guarded):
    guarded.ok("listen 127.0.0.1 53")
    assert guarded.ok("udp 203.0.113.53 53") == ["0", "0"]  # nobody answers out there
    assert guarded.ok(f"udp {OTHER} 53") == ["0", "ECONNREFUSED"]  # the engine's own port does


def test_the_relay_port_can_not_be_dialled_directly(guarded):
    for addr in ("127.0.0.1", "::1", "10.77.0.1", "2001:db8:77::1"):
        assert guarded.tcp(addr, 1021) == "ECONNREFUSED"


def test_loopback_is_open(guarded):
    guarded.ok("listen 127.0.0.1 8080")
    assert guarded.tcp("127.0.0.1", 8080) == "0"
    assert guarded.tcp("0.0.0.0", 8080) == "0"


def test_the_default_allow_opens_all_but_dns_and_its_kin(driver):
    driver.policy(default="allow", rules=[f"deny {DENIED} -"])
    driver.ok("listen 127.0.0.1 1021")
    driver.ok("listen ::1 1021")
    assert driver.tcp(OTHER, 443) == "0"
    assert driver.tcp(OTHER6, 443) == "0"
    assert driver.udp(OTHER, 443) == "0"
    assert driver.tcp(DENIED, 443) == "ECONNREFUSED"
    assert driver.tcp(OTHER, 853) == "ECONNREFUSED"
    assert driver.tcp("169.254.169.254", 80) == "ECONNREFUSED"


def test_without_ipv6_nothing_of_it_leaves_even_by_default(driver):
    driver.policy(default="allow", flags="ru")
    assert driver.tcp(OTHER6, 443) == "ECONNREFUSED"
    assert driver.udp(OTHER6, 443) == "EPERM"


def test_a_new_generation_refuses_the_flows_of_the_old_one(driver):
    driver.policy(rules=[f"allow {ALLOWED} -"])
    assert driver.ok(f"udphold {ALLOWED} 443") == ["0"]
    assert driver.ok("again") == ["0"]
    driver.policy(generation=2)
    # Again and again: the refusal must not mark the flow that it refuses.
    assert [driver.ok("again")[0] for _ in range(4)] == ["EPERM", "EHOSTUNREACH", "EPERM",
                                                         "EHOSTUNREACH"]


def test_a_new_generation_keeps_the_flows_that_it_allows(driver):
    driver.policy(rules=[f"allow {ALLOWED} -"])
    driver.ok(f"udphold {ALLOWED} 443")
    driver.ok("again")
    driver.policy(rules=[f"allow {ALLOWED} -"], generation=2)
    assert [driver.ok("again")[0] for _ in range(3)] == ["0"] * 3


def test_refusals_are_reported_with_address_port_and_user(guarded):
    guarded.tcp(OTHER, 443)
    guarded.udp(OTHER6, 8443)
    assert guarded.events() == [(f"{OTHER}:443", "6", "0", "prefix"),
                                (f"[{OTHER6}]:8443", "17", "0", "prefix")]


def test_allowed_traffic_and_kernel_chatter_are_no_reports(guarded):
    guarded.tcp(ALLOWED, 443)
    guarded.udp(ALLOWED, 443)
    time.sleep(0.3)
    assert guarded.events() == []


def test_a_flood_reports_each_destination_once_and_the_rest_at_a_limit(guarded):
    guarded.ok(f"flood {OTHER} 5000")
    destinations = [e[0] for e in guarded.events()]
    assert 1024 <= len(destinations) + destinations.count("lost") <= 1200 or "lost" in destinations
    guarded.ok(f"flood {OTHER} 1000")
    assert len(guarded.events()) <= 120


def test_a_new_destination_is_reported_during_a_flood(guarded):
    for _ in range(20):
        guarded.ok(f"flood {OTHER} 50")
    guarded.events()
    guarded.tcp("198.18.0.77", 443)
    assert ("198.18.0.77:443", "6", "0", "prefix") in guarded.events()


@pytest.mark.parametrize("command", [
    ["flush", "ruleset"], ["delete", "table", "inet", "weir"],
    ["add", "rule", "inet", "weir", "output", "accept"], ["flush", "chain", "inet", "weir", "output"],
    ["add", "element", "inet", "weir", "learned4_0", "{ 198.18.0.9 timeout 1h }"]])
def test_nobody_else_changes_the_table(guarded, command):
    assert guarded.inside("nft", "list", "tables").stdout == "table inet weir\n"
    guarded.inside("nft", *command)
    assert guarded.ask(f"verify 1 {FLAGS}") == []
    assert guarded.tcp(OTHER, 443) == "ECONNREFUSED"


@pytest.mark.parametrize("what,difference", [
    ("flush", "rule 1 of 'input'"), ("policy", "policy of chain 'output'"),
    ("rule", "a rule of chain 'output'"), ("chain", "another chain"), ("set", "another set"),
    ("table", "another table")])
def test_verify_names_what_was_changed(guarded, what, difference):
    guarded.ok(f"tamper {what}")
    assert difference in guarded.ask(f"verify 1 {FLAGS}")


def test_sets_in_use_can_not_be_changed_even_by_us(guarded):
    assert "busy" in guarded.ask("tamper element")


@pytest.mark.parametrize("default,rules,difference", [
    ("deny", [], "is not in its place"),
    ("deny", ["allow 203.0.113.0/25 443"], "elements of set 'allow4_1_a'"),
    ("deny", ["allow 203.0.113.0/24 443", "allow 203.0.112.0/24 443"], "elements of set 'allow4_1_a'"),
    ("deny", ["allow 203.0.113.0/24 444"], "elements of set 'tcp_1_a'"),
    ("deny", ["deny 203.0.113.0/24 443"], "is not in its place"),
    ("deny", ["allow 203.0.113.0/24 443", "allow x.test 443"], "set 'learned4_1'"),
    ("allow", ["allow 203.0.113.0/24 443"], "set")])
def test_verify_sees_another_policy(driver, default, rules, difference):
    driver.policy(rules=["allow 203.0.113.0/24 443"])
    driver.ok(f"policy {default}")
    for rule in rules:
        driver.ok(f"rule {rule}")
    assert difference in driver.ask(f"verify 1 {FLAGS}")


def test_verify_sees_another_generation_and_other_ways_out(driver):
    driver.policy()
    assert "generation" in driver.ask(f"verify 2 {FLAGS}")
    assert "rule" in driver.ask("verify 1 tu6")
    assert driver.ask(f"verify 1 {FLAGS}") == []


def test_verify_without_a_table_says_so(driver):
    driver.ok("policy deny")
    assert "missing" in driver.ask(f"verify 1 {FLAGS}")


def test_generation_0_is_never_built(driver):
    driver.ok("policy deny")
    assert "generation 0" in driver.ask(f"install 0 {FLAGS}")


def test_every_change_moves_the_generation_id(guarded):
    before = int(guarded.ok("generation")[0])
    guarded.learn(OTHER)
    assert int(guarded.ok("generation")[0]) == before + 1


def test_four_thousand_prefixes_install_and_verify(driver):
    rules = [f"allow {16 + i % 64}.{i // 64}.{i % 5}.0/24 443" for i in range(4096)]
    driver.policy(rules=[*rules, "allow 0.0.0.0/1 8443", "allow 255.255.255.255 8443",
                         "allow ::/0 8443"])
    assert driver.ask(f"verify 1 {FLAGS}") == []
    driver.ok("listen 127.0.0.1 1021")
    assert driver.tcp("16.0.0.1", 443) == "0"
    assert driver.tcp("16.0.5.1", 443) == "ECONNREFUSED"


@contextlib.contextmanager
def neighbour(driver):
    """Another namespace, 10.78.0.2, at the end of a link to the driver's, 10.78.0.1. Yields the
    prefix that runs a command there."""
    # pylint: disable-next=consider-using-with
    peer = subprocess.Popen([*driver.enter(driver.process.pid), "unshare", "-n", "sh", "-c",
                             "echo; exec sleep 60"], stdout=subprocess.PIPE)
    try:
        peer.stdout.readline()
        outside = driver.enter(peer.pid)
        for line in ("ip link add in0 type veth peer name in1",
                     f"ip link set in1 netns {peer.pid}",
                     "ip addr add 10.78.0.1/24 dev in0", "ip link set in0 up"):
            done = driver.inside(*line.split())
            assert done.returncode == 0, f"{line}: {done.stderr}"
        for line in ("ip addr add 10.78.0.2/24 dev in1", "ip link set in1 up"):
            subprocess.run([*outside, *line.split()], check=True)
        yield outside
    finally:
        peer.kill()
        peer.wait()
        peer.stdout.close()


def dials_in(outside, seconds="1"):
    done = subprocess.run([*outside, "timeout", seconds, "bash", "-c",
                           "exec 3<>/dev/tcp/10.78.0.1/7777"], capture_output=True, check=False)
    return done.returncode == 0


def test_nobody_dials_in(driver):
    driver.ok("listen 0.0.0.0 7777")
    with neighbour(driver) as outside:
        assert dials_in(outside, "10")
        driver.policy(default="allow", rules=["allow 10.78.0.0/24 -"], flags="tu6")
        assert not dials_in(outside)


def test_replies_come_in(driver):
    driver.policy(rules=["allow 10.78.0.2 7000", "deny 10.78.0.3 -"], flags="tu6")
    with neighbour(driver) as outside:
        driver.ok("tcp 10.78.0.2 7000")  # may wait for the link to come up
        # Refused by the neighbour itself: its reset is the reply.
        assert driver.tcp("10.78.0.2", 7000) == "ECONNREFUSED"
        assert driver.events() == []
        # Its ICMP error comes in as well.
        assert driver.ok("udp 10.78.0.2 7000")[0] == "0"
        assert driver.tcp("10.78.0.2", 7001) == "ECONNREFUSED"
        assert [e[0] for e in driver.events()] == ["10.78.0.2:7001"]
        assert outside
