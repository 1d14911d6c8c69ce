# SPDX-License-Identifier: Apache-2.0
"""C: addresses dialled without a name, and those that are nobody's business."""
import pytest

from world import expect
from world.world import DOCKER4, GATEWAY4, GATEWAY6, HOST4, HOST6, METADATA4

PORTS = [22, 25, 53, 80, 443, 853, 7007, 8080, 65535]


@pytest.mark.parametrize("case, address", [("C1", "93.9.9.9"), ("C3", "2a01:93::9:9")])
def test_an_unlisted_address_is_refused_on_every_port(attack, user, case, address):
    ports = [p for p in PORTS if p != 53]  # that one is Weir's own, see B2
    answers = attack.probe(*[["tcp", address, p] for p in ports],
                           *[["udp", address, p] for p in ports], user=user)
    for answer in answers[:len(ports)]:
        expect.tcp_refused(answer)
    for answer in answers[len(ports):]:
        expect.udp_refused(answer)
    attack.assert_silent()


def test_C1_other_protocols_have_no_socket(attack, user):
    for answer in attack.probe(*[["new_socket", "AF_INET", "SOCK_RAW", n] for n in (0, 2, 33, 41, 47, 50, 94, 132, 136, 255)], user=user):
        expect.call_refused(answer)


def test_C1_sctp_mptcp_dccp_and_udplite_are_no_way_out(attack):
    kinds = [("SOCK_STREAM", 132), ("SOCK_SEQPACKET", 132), ("SOCK_STREAM", 262), ("SOCK_DGRAM", 136), (6, 33)]
    for answer in attack.probe(*[["other_transport", address, 443, *kind] for address in ("93.9.9.9", "2a01:93::9:9") for kind in kinds]):
        assert answer.result != "ok" and answer.ms < expect.FAST_MS, dict(answer)
    attack.assert_silent()


@pytest.mark.parametrize("field", ["v4", "v6"])
def test_C2_the_address_of_an_allowed_name_opens_when_it_was_looked_up(attack, site, field):
    address = getattr(site, field)
    before, name, after = attack.probe(["tcp", address, 7007], ["lookup", site.name],
                                       ["tcp", address, 7007, "hi"], allow=(f"{site.name}:7007",))
    expect.tcp_refused(before)
    assert address in name.addresses
    assert after.data == "hi"


def test_C2_what_one_sandbox_learned_another_did_not(attack, site):
    first = attack.probe(["connect", site.name, 7007, "hi"], allow=(f"{site.name}:7007",))
    assert first.data == "hi"
    expect.tcp_refused(attack.probe(["tcp", site.v4, 7007], allow=(f"{site.name}:7007",)))
    assert attack.packets == []


def test_C2_a_learned_address_is_open_on_the_rules_ports_only(attack, site):
    answers = attack.probe(["lookup", site.name], ["https", site.v4, 443, site.name], ["tcp", site.v4, 80],
                           ["tcp", site.v4, 7007], ["udp", site.v4, 443], ["udp", site.v4, 7007],
                           allow=(f"{site.name}:tcp/443",))
    assert answers[1].result == "ok"
    for answer in answers[2:4]:
        expect.tcp_refused(answer)
    for answer in answers[4:]:
        expect.udp_refused(answer)
    assert {p.dport for p in attack.packets} == {443}


METADATA = [METADATA4, "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "169.254.170.2",
            "192.0.0.192", "fd20:ce::254"]


def test_C6_metadata_is_refused(attack, user):
    for answer in attack.probe(*[["tcp", address, 80] for address in METADATA], user=user):
        expect.tcp_refused(answer)
    attack.assert_silent()


def test_C6_metadata_is_refused_even_when_everything_is_allowed(attack, world):
    policy = world.workdir() / "policy.yaml"
    policy.write_text("defaultAction: allow\n")
    *refused, other = attack.probe(*[["tcp", address, 80] for address in METADATA[:4]], ["tcp", "93.9.9.9", 7007, "hi"], allow=(),
                                   options=("--policy", policy))
    for answer in refused:
        expect.tcp_refused(answer)
    assert other.data == "hi"
    assert {p.dst for p in attack.packets} == {"93.9.9.9"}


@pytest.mark.parametrize("wide", ["169.254.0.0/16", "0.0.0.0/0"])
def test_C6_a_wide_range_does_not_name_the_metadata_address(attack, wide):
    done = attack.run("true", allow=(wide,))
    if done.code == 2:
        return
    expect.tcp_refused(attack.probe(["tcp", METADATA4, 80], allow=(wide,)))
    attack.assert_silent()


def test_C6_metadata_named_itself_is_reachable(attack):
    answer = attack.probe(["tcp", METADATA4, 80, "GET / HTTP/1.0\r\n\r\n"], allow=(f"{METADATA4}:80",))
    assert answer.result == "ok", dict(answer)


def test_C6_the_name_of_the_metadata_server_is_refused(attack):
    expect.name_refused(attack.probe(["dns", "metadata.google.internal"]))
    attack.assert_silent()


HOST_ADDRESSES = ["127.0.0.1", "::1", "127.0.0.2", HOST4, HOST6, DOCKER4, GATEWAY4, GATEWAY6,
                  "10.0.2.2", "10.0.2.3", "0.0.0.0", "::", "::ffff:127.0.0.1", f"::ffff:{HOST4}",
                  "192.168.127.1", "169.254.1.1"]


def test_C7_services_of_the_host_are_out_of_reach(attack, world, user):
    with world.tcp(4170, where=world.host) as service, world.udp(4170, where=world.host) as datagrams:
        answers = attack.probe(*[[kind, address, 4170, "secret"] for address in HOST_ADDRESSES for kind in ("tcp", "udp")], user=user)
        for address, tcp, udp in zip(HOST_ADDRESSES, answers[::2], answers[1::2]):
            assert tcp.result != "ok" and tcp.ms < expect.FAST_MS, (address, dict(tcp))
            assert udp.result in expect.UDP_REFUSALS | {"sent", "EINVAL"}, (address, dict(udp))
        assert service.connections == [] and datagrams.datagrams == []
    attack.assert_silent()


@pytest.mark.parametrize("wide", ["0.0.0.0/0", "5.0.0.0/8", "5.100.0.0/24"])
def test_C7_a_wide_range_does_not_open_the_hosts_own_addresses(attack, world, wide):
    with world.tcp(4171, where=world.host) as service:
        host, other = attack.probe(["tcp", HOST4, 4171, "secret"], ["tcp", GATEWAY4, 7007, "hi"], allow=(wide,))
        expect.tcp_gave_nothing(host)
        assert other.data == "hi", dict(other)
        assert service.connections == []


def test_C7_a_name_that_resolves_to_the_host_does_not_open_it(attack, world):
    name = f"host-{world.number()}.test"
    world.dns.add(name, HOST4, HOST6)
    with world.tcp(4172, where=world.host) as service:
        four, six = attack.probe(["connect", name, 4172, "secret"], ["tcp", HOST6, 4172, "secret"],
                                 allow=(f"{name}:4172",))
        expect.tcp_gave_nothing(four)
        expect.tcp_gave_nothing(six)
        assert service.connections == []


def test_C7_the_hosts_own_address_opens_when_a_rule_names_it(attack, world):
    with world.tcp(4173, where=world.host) as service:
        answer = attack.probe(["tcp", HOST4, 4173, "hi"], allow=(f"{HOST4}:4173",))
        assert answer.data == "hi"
        assert len(service.connections) == 1


def test_C7_weirs_own_ports_lead_nowhere(attack, world):
    """The relay's listener dialled directly is not a way to the host's loopback."""
    with world.tcp(1021, where=world.host) as service:
        for answer in attack.probe(*[["tcp", address, 1021, "secret"] for address in ("127.0.0.1", "::1")], allow=("0.0.0.0/0",)):
            expect.tcp_gave_nothing(answer)
        assert service.connections == []
    assert attack.packets == []


def test_C7_names_of_the_host_are_refused(attack):
    for answer in attack.probe(*[["dns", name] for name in ("host.docker.internal", "gateway.docker.internal",
                                                            "host.containers.internal", "kubernetes.default.svc")]):
        expect.name_refused(answer)
    attack.assert_silent()


def test_C8_F9_another_sandbox_is_out_of_reach(attack, world, user):
    """Its addresses are those of this sandbox too: they lead to oneself."""
    serve = ("import socket; s = socket.socket(); s.bind(('0.0.0.0', 4180)); s.listen(); "
             "print('up', flush=True); s.settimeout(20); s.accept(); print('reached', flush=True)")
    with world.run_start("/usr/bin/python3", "-c", serve, user=user) as other:
        assert other.line() == "up"
        own = attack.probe(["own_addresses"], user=user)
        addresses = [*own.addresses, "127.0.0.1", "10.0.2.15", "10.0.2.100"]
        for address, answer in zip(addresses, attack.probe(*[["tcp", address, 4180, "secret"] for address in addresses], user=user)):
            assert answer.result != "ok", (address, dict(answer))
        assert other.process.poll() is None
    attack.assert_silent()


LOCAL = ["10.0.0.1", "172.31.255.254", "192.168.77.5", "100.64.0.1", "fc00::1", "fd12:3456::1", "fec0::1",
         "169.254.9.9", "198.18.0.1", "240.0.0.1", "192.88.99.1", "64:ff9b::93.1.1.1", "2002:5d01:101::1"]


def test_C9_local_and_special_ranges_are_refused(attack):
    answers = attack.probe(*[[kind, address, 7007] for address in LOCAL for kind in ("tcp", "udp")])
    for address, tcp, udp in zip(LOCAL, answers[::2], answers[1::2]):
        assert tcp.result in expect.TCP_REFUSALS | expect.UDP_REFUSALS | {"EINVAL"}, (address, dict(tcp))
        assert tcp.ms < expect.FAST_MS
        expect.udp_refused(udp)
    attack.assert_silent()


def test_C9_link_local_with_a_scope_is_refused(attack):
    answers = attack.probe(*[["tcp", "fe80::1", 7007, {"scope": i}] for i in range(1, 5)])
    for answer in answers:
        assert answer.result != "ok" and answer.ms < expect.FAST_MS, dict(answer)
    attack.assert_silent()


GROUPS = ["224.0.0.1", "239.255.255.250", "255.255.255.255", "93.1.1.255", "ff02::1", "ff02::2", "ff05::1:3"]


def test_C10_groups_and_broadcasts_are_dropped(attack, user):
    for address, answer in zip(GROUPS, attack.probe(*[["udp", address, 7007, "secret", {"broadcast": True}] for address in GROUPS], user=user)):
        assert answer.result in expect.UDP_REFUSALS | {"EINVAL"}, (address, dict(answer))
    attack.assert_silent()


def test_C10_joining_a_group_says_nothing_outside(attack):
    attack.probe(["join", "239.1.2.3"], ["join", "ff05::123"])
    attack.assert_silent()


ACTIONS = ["ip link add x type veth", "ip link add x type dummy", "ip link set lo down", "ip route add 93.9.9.9 dev lo", "ip rule add lookup 5",
           "ip tuntap add x mode tun", "ip address add 93.9.9.9 dev lo", "ip neighbour add 93.9.9.9 lladdr 02:00:00:00:00:01 dev lo",
           "tc qdisc add dev lo root netem delay 1s", "ip xfrm policy flush"]


def test_C15_links_and_routes_cannot_be_changed(attack, user):
    done = attack.run("sh", "-c", 'for line; do $line && echo "done: $line"; done; echo tried', "sh", *ACTIONS, user=user)
    assert done.text == "tried\n", done


@pytest.mark.parametrize("address", ["93.9.9.9", "2a01:93::9:9"])
def test_C1_unusual_ways_to_send_are_refused_too(attack, user, address):
    fast, large, device = attack.probe(["fast_open", address, 7007], ["big_datagram", address, 7007, 60000],
                                       ["by_device", address, 7007], user=user)
    assert fast.result in ("refused", "EOPNOTSUPP"), dict(fast)
    assert large.result != "ok", dict(large)
    assert "ok" not in device.by_device.values(), dict(device)
    attack.assert_silent()


def test_C7_weirs_ports_cannot_be_taken(attack, user):
    probes = [["bind", port, address] for port in (53, 1021) for address in ("0.0.0.0", "127.0.0.1", "::1")]
    for probe, answer in zip(probes, attack.probe(*probes, user=user)):
        assert answer.result in ("EACCES", "EADDRINUSE"), probe


@pytest.mark.parametrize("allow", [("api.ok.test:443",), ("api.ok.test",), ("**.pkg.test",)])
def test_C16_the_address_of_the_self_test_is_not_open_to_the_command(attack, user, allow):
    """It may still be in a set; nothing answers there and nothing leaves."""
    answers = attack.probe(*[["tcp", "192.0.2.77", port, "secret"] for port in (443, 80, 22, 7007)],
                           allow=allow, user=user)
    for answer in answers:
        expect.tcp_gave_nothing(answer)
    attack.assert_silent()
