# SPDX-License-Identifier: Apache-2.0
"""DNS as the app meets it, whatever resolver it names."""
import time

import pytest

from world import expect
from world.sidecar import DNS_PORT, policy
from world.world import RESOLVER4, RESOLVER6

SERVERS = [RESOLVER4, RESOLVER6, "8.8.8.8", "2001:4860:4860::8888", "127.0.0.1", "::1"]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
@pytest.mark.parametrize("server", SERVERS)
def test_B2_B3_whatever_resolver_is_asked_the_same_policy_answers(pod, guarded, world, site, denied, server, transport):
    guarded(f"allow {site.name}")
    good, bad, six = pod.probe(["dns", site.name, {"server": server, "transport": transport}],
                               ["dns", denied.name, {"server": server, "transport": transport}],
                               ["dns", site.name, "AAAA", {"server": server, "transport": transport}])
    assert good.addresses == [site.v4] and six.addresses == [site.v6]
    expect.name_refused(bad)
    assert pod.queries(denied.name) == 0 and pod.packets() == []
    if transport == "udp":
        assert good.server == server


@pytest.mark.parametrize("port", [53, DNS_PORT])
def test_the_listener_on_loopback_answers_by_its_port_too(pod, guarded, site, denied, port):
    guarded(f"allow {site.name}")
    for server in ("127.0.0.1", "::1"):
        good, bad = pod.probe(["dns", site.name, {"server": server, "port": port}],
                              ["dns", denied.name, {"server": server, "port": port}])
        assert good.addresses == [site.v4] and bad.result == "NXDOMAIN"


def test_B1_a_denied_name_never_leaves(pod, guarded, denied, site):
    guarded(f"allow {site.name}")
    for kind in ("A", "AAAA", "TXT", "HTTPS", "ANY", "NS"):
        expect.name_refused(pod.probe(["dns", denied.name, kind]))
    expect.lookup_refused(pod.probe(["lookup", denied.name]))
    assert pod.queries(denied.name) == 0 and pod.packets() == []


def test_types_that_are_not_served_have_no_data(pod, guarded, site):
    guarded(f"allow {site.name}")
    for kind in ("TXT", "HTTPS", "SVCB", "ANY", "SRV", "MX", "NULL"):
        expect.no_data(pod.probe(["dns", site.name, kind]))
    assert pod.queries(site.name) == 0


def test_B4_each_message_of_a_segment_is_judged(pod, guarded, site, denied):
    guarded(f"allow {site.name}")
    answer = pod.probe(["dns_pipeline", [site.name, denied.name, site.name], {"server": "8.8.8.8"}])
    replies = answer["replies"]
    assert [replies[str(i)]["result"] for i in (1, 2, 3)] == ["NOERROR", "NXDOMAIN", "NOERROR"]
    assert pod.queries(denied.name) == 0


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "NOTIMP"])
def test_D2_a_resolver_that_fails_is_followed_by_the_next(pod, world, site, rcode):
    first, second = "5.100.53.1", "5.100.53.2"
    world.dns.on(site.name, lambda q: q.answer(site.v4, site.v6) if q.server == second else q.answer(rcode=rcode))
    side = pod.sidecar(rules=policy(f"allow {site.name}"), env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": f"{first},{second}"})
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert {q.server for q in world.dns.queries(site.name)} == {first, second}
    assert side.wait_log(f"[dns] upstream {first}:53: {rcode}; trying next")


@pytest.mark.parametrize("rcode", ["NOERROR", "NXDOMAIN"])
def test_D2_no_such_data_is_final(pod, world, site, rcode):
    first, second = "5.100.53.1", "5.100.53.2"
    world.dns.on(site.name, lambda q: q.answer(site.v4) if q.server == second else q.answer(rcode=rcode))
    pod.sidecar(rules=policy(f"allow {site.name}"), env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": f"{first},{second}"})
    answer = pod.probe(["dns", site.name])
    assert answer.result == rcode and answer.addresses == []
    assert {q.server for q in world.dns.queries(site.name)} == {first}


def test_D2_when_all_fail_it_is_servfail_and_nothing_opens(pod, world, site):
    world.dns.on(site.name, lambda q: q.answer(site.v4, rcode="SERVFAIL"))
    pod.sidecar(rules=policy(f"allow {site.name}"))
    lookup, tcp = pod.probe(["dns", site.name], ["tcp", site.v4, 7007])
    assert lookup.result == "SERVFAIL"
    expect.tcp_refused(tcp)


def test_D3_what_an_answer_teaches(pod, guarded, world, site):
    """A, AAAA and CNAME chains do; other owners, other types and an answer without addresses don't."""
    other, stray = world.address(), world.address()
    world.dns.on(site.name, lambda q: q.answer(site.v4, other, site.v6, ttl=120,
                                               records=[("stray.test", 60, "A", stray)]))
    guarded(f"allow {site.name}")
    one, two = pod.probe(["dns", site.name], ["dns", site.name, "AAAA"])
    assert set(one.addresses) == {site.v4, other} and two.addresses == [site.v6]
    learned = pod.set_elements("dyn_allow_v4")
    assert set(learned) == {site.v4, other} and all(60 < left <= 151 for left in learned.values()), learned
    assert set(pod.set_elements("dyn_allow_v6")) == {site.v6}
    expect.tcp_refused(pod.probe(["tcp", stray, 7007]))


def test_D3_a_chain_is_learned_under_the_name_that_was_asked(pod, guarded, world, site):
    target = world.site(f"cdn-{world.number()}.test")
    world.dns.add(site.name, cname=target.name)
    world.dns.on(site.name, lambda q: q.answer(cname=target.name,
                                               records=[(target.name, 60, "A", target.v4)] if q.type == "A" else ()))
    guarded(f"allow {site.name}")
    lookup, tcp, alone = pod.probe(["dns", site.name], ["tcp", target.v4, 7007], ["dns", target.name])
    assert lookup.addresses == [target.v4] and tcp.result == "ok"
    expect.name_refused(alone)


SPECIAL = ["169.254.169.254", "127.0.0.1", "0.0.0.0", "10.1.2.3", "100.100.100.200", "192.168.1.1", "224.0.0.1",
           "255.255.255.255"]


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses_teach_nothing(pod, guarded, world, site, address):
    world.dns.on(site.name, lambda q: q.answer(address))
    guarded(f"allow {site.name}")
    lookup, tcp = pod.probe(["dns", site.name], ["tcp", address, 7007])
    assert lookup.addresses == [], dict(lookup)
    assert tcp.result != "ok" and pod.packets() == []
    assert pod.set_elements("dyn_allow_v4") == {}


def test_special_addresses_by_six(pod, guarded, world, site):
    guarded(f"allow *.{site.name}")
    for address in ("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fd00:ec2::254", "fe80::1", "::1"):
        name = f"n{world.number()}.{site.name}"
        world.dns.on(name, lambda q, a=address: q.answer(a, ttl=1))
        assert pod.probe(["dns", name, "AAAA"]).addresses == [], address
    assert pod.set_elements("dyn_allow_v6") == {} and pod.set_elements("dyn_allow_v4") == {}


def test_D4_a_dead_resolver_costs_little_and_is_probed(pod, site):
    """smoke-dns-upstream-probe: nobody listens at the first one."""
    side = pod.sidecar(rules=policy(f"allow {site.name}"),
                       env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": f"127.0.0.1:59123,{RESOLVER4}",
                            "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT": "10"})
    answer = pod.probe(["dns", site.name, {"server": "8.8.8.8"}])
    assert answer.addresses == [site.v4] and answer.ms < expect.FAST_MS
    assert side.wait_log("[dns] upstream probe 127.0.0.1:59123")


def test_D5_a_silent_resolver_is_left_and_left_out(pod, world, site):
    silent = "5.100.53.9"

    def function(q):
        return None if q.server == silent else q.answer(site.v4, site.v6)
    world.dns.on(site.name, function)
    world.dns.on("probe.test", lambda q: None if q.server == silent else q.answer("93.0.0.1"))
    side = pod.sidecar(rules=policy(f"allow {site.name}", f"allow *.{site.name}"),
                       env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": f"{silent},{RESOLVER4}",
                            "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT": "1",
                            "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE": "probe.test",
                            "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC": "1"})
    answer = pod.probe(["dns", site.name])
    assert answer.addresses == [site.v4] and answer.ms < expect.FAST_MS
    assert side.wait_log(f"upstream {silent}:53 exchange error")
    side.wait_log(f"upstream probe {silent}:53 failed")
    name = f"later.{site.name}"
    world.dns.on(name, function)
    assert pod.probe(["dns", name]).addresses == [site.v4]
    assert silent not in {q.server for q in world.dns.queries(name)}


@pytest.mark.parametrize("upstream, asked", [("5.100.53.4", "5.100.53.4"), ("2a01:5353::4", "2a01:5353::4"),
                                             ("[2a01:5353::5]", "2a01:5353::5"), ("5.100.53.6:53", "5.100.53.6")])
def test_F7_resolvers_by_environment(pod, world, site, upstream, asked):
    pod.sidecar(rules=policy(f"allow {site.name}"), env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": upstream})
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert {q.server for q in world.dns.queries(site.name)} == {asked}


def test_D6_the_upstream_query_is_its_own(pod, world, site):
    """Another id and port than the client's, an OPT of ours, none of the client's options."""
    pod.sidecar(rules=policy(f"allow {site.name}"))
    pod.probe(["dns", site.name, {"source_port": 45454}])
    pod.probe(["dns_option", site.name, 8, "secret-subnet"])
    for q in world.dns.queries(site.name):
        assert q.message.id != 0x1234 or q.port != 45454
        assert q.port not in (45454,) and b"secret" not in q.raw and q.message.edns == 0


def test_D7_odd_packets_end_well(pod, guarded, site):
    guarded(f"allow {site.name}")
    head = "1234 0100"
    for data in (head, "1234", "1234 0100 0000 0000 0000 0000", "1234 0100 0002 0000 0000 0000" + "00" * 10,
                 "1234 0100 0001 0000 0000 0000", "1234 0100 0001 0000 0000 0000 c00c 0001 0001",
                 "1234 2000 0001 0000 0000 0000 0161 0000 0100 01", "1234 8100 0001 0000 0000 0000 0161 00 0001 0001",
                 "ff" * 512):
        pod.probe(["dns_raw", data.replace(" ", ""), "8.8.8.8", {"wait": 0.1}])
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert pod.packets() == []


def test_truncated_answers_can_be_fetched(pod, world, site):
    many = [f"93.230.{i >> 8}.{i & 255}" for i in range(200)]
    world.dns.on(site.name, lambda q: q.answer(*many))
    pod.sidecar(rules=policy(f"allow {site.name}"))
    udp, tcp = pod.probe(["dns", site.name, {"edns": False}], ["dns", site.name, {"transport": "tcp"}])
    assert (udp.tc or udp.addresses) and tcp.addresses and not tcp.tc
    assert set(udp.addresses) <= set(many) and set(tcp.addresses) <= set(many)


def test_N5_lifetimes_are_held_between_floor_and_ceiling(pod, guarded, world, site):
    base = site.name
    guarded(f"allow *.{base}")
    ttls = {"t0": 0, "t20": 20, "t300": 300, "t9": 2 ** 31 - 1}
    addresses = {}
    for label, ttl in ttls.items():
        addresses[label] = world.address()
        world.dns.on(f"{label}.{base}", lambda q, a=addresses[label], t=ttl: q.answer(a, ttl=t))
    pod.probe(*[["dns", f"{label}.{base}"] for label in ttls])
    left = pod.set_elements("dyn_allow_v4")
    for label, low, high in (("t0", 55, 91), ("t20", 55, 91), ("t300", 295, 331), ("t9", 80000, 86431)):
        assert low <= left[addresses[label]] <= high, (label, left)


def test_rebinding_does_not_reach_loopback_services(pod, guarded, world, site):
    world.dns.on(site.name, lambda q: q.answer("127.0.0.1"))
    guarded(f"allow {site.name}")
    lookup = pod.probe(["connect", site.name, 18080])
    assert lookup.result.startswith("EAI_"), dict(lookup)


def test_ipv6_off(world, site):
    """No IPv6 in the pod: names, addresses and the API work all the same."""
    from world.sidecar import Pod
    with Pod(world, ipv6=False) as pod:
        side = pod.sidecar(rules=policy(f"allow {site.name}"))
        lookup, tcp, no = pod.probe(["dns", site.name], ["tcp", site.v4, 7007], ["tcp", "93.1.1.1", 443])
        assert lookup.addresses == [site.v4] and tcp.result == "ok"
        expect.tcp_refused(no)
        assert side.get("/healthz").status == 200


def test_a_flood_of_names_does_not_stop_it(pod, guarded, site):
    guarded(f"allow {site.name}")
    flood = pod.probe(["dns_flood", 5000, ".flood.test"])
    assert set(flood.rcodes) <= {"NXDOMAIN", "SERVFAIL"}
    deadline = time.monotonic() + 60
    while (answer := pod.probe(["dns", site.name])).result != "NOERROR" and time.monotonic() < deadline:
        pass
    assert answer.addresses == [site.v4]
    assert not [q for q in pod.packets() if q.dport == 53]


def test_no_more_addresses_are_open_than_the_limit(pod, world):
    """What is pushed out is closed at once, not with the next answer."""
    below, addresses = f"many-{world.number()}.test", {}
    world.dns.on(f"*.{below}", lambda q: q.answer(addresses.setdefault(q.name.lower(), world.address())))
    pod.sidecar(rules=policy(f"allow *.{below}", verify="dns", limits={"addresses": 16}))
    for i in range(20):
        pod.probe(["dns", f"n{i}.{below}"])
    answers = pod.probe(*(["tcp", a, 7007] for a in addresses.values()))
    assert [a.result == "ok" for a in answers] == [False] * 4 + [True] * 16, addresses
