# SPDX-License-Identifier: Apache-2.0
"""B: the DNS as a way out."""
import struct

import pytest

from world import expect
from world.world import RESOLVER4

OTHERS = ["8.8.8.8", "2001:4860:4860::8888", RESOLVER4, "169.254.169.254", "10.0.0.53"]


def test_B1_an_unlisted_name_is_answered_here(attack, user):
    for answer in attack.probe(*[["dns", "evil.test", kind] for kind in ("A", "AAAA", "TXT", "HTTPS", "ANY", "PTR")], user=user):
        expect.name_refused(answer)
    attack.assert_silent()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_B2_B3_other_resolvers_are_our_resolver_or_refused(attack, transport):
    """Port 53 of any address is Weir's, or closed; nothing of it is seen outside."""
    answers = attack.probe(*[["dns", name, "A", server, transport] for server in OTHERS for name in ("evil.test", "api.ok.test")])
    served = 0
    for denied, allowed in zip(answers[::2], answers[1::2]):
        if denied.result == "NXDOMAIN":
            expect.name_refused(denied)
            assert allowed.result == "NOERROR"
            served += 1
        else:
            refused = expect.tcp_refused if transport == "tcp" else expect.udp_refused
            refused(denied)
            refused(allowed)
    assert set(attack.names) == ({"api.ok.test"} if served else set()) and attack.packets == []


def test_B2_the_source_port_changes_nothing(attack):
    """Neither a well-known port nor the same port again, as tuples are reused."""
    ports = [{"source_port": source} if source else {} for source in (0, 5353, 40053) for _ in range(3)]
    answers = attack.probe(*[["dns", "evil.test", "A", "8.8.8.8", "udp", port] for port in ports])
    for answer in answers:
        assert answer.result in {"NXDOMAIN"} | expect.UDP_REFUSALS, dict(answer)
    attack.assert_silent()


@pytest.mark.parametrize("server", ["127.0.0.1", "::1"])
def test_B3_our_resolver_serves_tcp(attack, server):
    denied, allowed = attack.probe(["dns", "evil.test", "A", server, "tcp"],
                                   ["dns", "api.ok.test", "A", server, "tcp"])
    expect.name_refused(denied)
    assert allowed.result == "NOERROR" and allowed.addresses


@pytest.mark.parametrize("pieces", [None, 1, 3])
def test_B4_each_message_of_a_segment_is_judged(attack, pieces):
    names = ["api.ok.test", "evil.test", "x.pkg.test", "y.evil.test"]
    answer = attack.probe(["dns_pipeline", names, {"pieces": pieces}])
    results = {i: answer.replies[i]["result"] for i in answer.replies}
    assert results == {"1": "NOERROR", "2": "NXDOMAIN", "3": "NOERROR", "4": "NXDOMAIN"}
    assert set(attack.names) == {"api.ok.test", "x.pkg.test"}


def test_B6_B7_encrypted_dns_of_others_is_refused(attack):
    for answer in attack.probe(*[["tcp", address, port] for address in ("8.8.8.8", "2001:4860:4860::8888") for port in (853, 443, 8443)]):
        expect.tcp_refused(answer)
    attack.assert_silent()


def test_B6_a_rule_without_ports_opens_neither_53_nor_853(attack, world):
    address = world.address()
    with world.tcp(853):
        dot, plain, echo = attack.probe(["tcp", address, 853], ["dns", "evil.test", "A", address, "tcp"],
                                        ["tcp", address, 7007, "echo"], allow=(address,))
    expect.tcp_refused(dot)
    assert plain.result in ("NXDOMAIN", "refused"), dict(plain)
    assert echo.data == "echo"
    assert {p.dport for p in attack.packets} == {7007}


def test_B6_a_name_allowed_on_443_has_no_853(attack, world, site):
    learned, dot = attack.probe(["lookup", site.name], ["tcp", site.v4, 853], allow=(f"{site.name}:443",))
    assert site.v4 in learned.addresses
    expect.tcp_refused(dot)
    assert attack.packets == []


def test_B7_the_names_of_public_resolvers_are_refused(attack):
    for answer in attack.probe(*[["dns", name] for name in ("dns.google", "cloudflare-dns.com", "mozilla.cloudflare-dns.com", "dns.nextdns.io")]):
        expect.name_refused(answer)
    attack.assert_silent()


DATAGRAMS = [("B9", "8.8.8.8", 853), ("B9", "8.8.8.8", 443), ("B9", "224.0.0.251", 5353),
             ("B9", "224.0.0.252", 5355), ("B9", "192.168.77.255", 137), ("B9", "ff02::fb", 5353),
             ("B9", "ff02::1:3", 5355), ("B9", "93.1.1.1", 123), ("B9", "93.1.1.1", 5353)]


def test_datagrams_to_resolvers_of_any_kind_are_refused(attack):
    for answer in attack.probe(*[["udp", address, port, "hello", {"broadcast": True}] for _, address, port in DATAGRAMS]):
        expect.udp_refused(answer)
    attack.assert_silent()


def test_B11_other_types_of_an_allowed_name_are_no_data(attack):  # B31
    kinds = ["TXT", "NULL", "ANY", "AXFR", "SRV", "MX", "PTR", "HTTPS", "SVCB", "NS", "SOA", 65280]
    for answer in attack.probe(*[["dns", "api.ok.test", kind, {"transport": transport}] for kind in kinds for transport in ("udp", "tcp")]):
        expect.no_data(answer)
    attack.assert_silent()


REBINDING = [
    ("B22", "10.1.2.3"), ("B22", "172.16.0.1"), ("B22", "192.168.77.5"), ("B22", "127.0.0.1"),
    ("B22", "127.1.2.3"), ("B22", "169.254.169.254"), ("B22", "169.254.1.1"), ("B22", "100.64.0.1"),
    ("B22", "0.0.0.0"), ("B22", "0.1.2.3"), ("B22", "224.0.0.1"), ("B22", "239.1.1.1"),
    ("B22", "255.255.255.255"), ("B22", "240.0.0.1"), ("B22", "192.0.2.1"), ("B22", "198.18.0.1"),
    ("B22", "168.63.129.16"), ("B22", "100.100.100.200"),
    ("B22", "::"), ("B22", "::1"), ("B22", "fe80::1"), ("B22", "fc00::1"), ("B22", "fd00:ec2::254"),
    ("B22", "ff02::1"), ("B22", "2001:db8::1"), ("B22", "fec0::1"),
    ("B23", "::ffff:169.254.169.254"), ("B23", "::ffff:10.0.0.1"), ("B23", "64:ff9b::a9fe:a9fe"),
    ("B23", "2002:7f00:1::"), ("B23", "2002:a9fe:a9fe::1"), ("B23", "::7f00:1"),
    ("B23", "2001:0:5ef5:79fb:0:0:5601:5601"), ("B23", "64:ff9b::10.0.0.1"),
    ("B23", "2a01:93::5efe:10.0.0.1"),
]


def test_an_allowed_name_teaches_no_special_address(attack, world):
    """Neither the answer nor the connection; a good address in the same answer stays."""
    names, probes = [], []
    for _, address in REBINDING:
        kind, good = ("AAAA", world.address6()) if ":" in address else ("A", world.address())
        names.append((f"rebind-{world.number()}.test", good))
        world.dns.add(names[-1][0], address, good)
        probes += [["dns", names[-1][0], kind], ["tcp", address, 7007, "secret"]]
    answers = attack.probe(*probes, allow=[name for name, _ in names])
    for (case, address), (_, good), answer, dial in zip(REBINDING, names, answers[::2], answers[1::2]):
        assert address not in answer.addresses and good in answer.addresses, (case, address, dict(answer))
        assert dial.result != "ok" and dial.ms < expect.FAST_MS, (case, address, dict(dial))
    assert attack.packets == []


def test_B22_a_name_with_nothing_but_special_addresses_has_none(attack, world):
    """Of that type: the other one is answered."""
    name, good = f"rebind-{world.number()}.test", world.address6()
    world.dns.add(name, "10.0.0.1", "127.0.0.1", good)
    four, six = attack.probe(["dns", name], ["dns", name, "AAAA"], allow=(name,))
    expect.address_refused(four)
    assert six.addresses == [good], dict(six)


def test_B22_a_rule_may_open_a_private_address_for_a_name(attack, world):
    """By an address rule; without it the same name teaches nothing."""
    name = f"private-{world.number()}.test"
    world.dns.add(name, "10.9.8.7")
    answer = attack.probe(["connect", name, 7007, "hi"], allow=(f"{name}:7007", "10.9.8.0/24"))
    assert answer.get("data") == "hi", dict(answer)


@pytest.mark.parametrize("verify", ["dns", "tls"])
@pytest.mark.parametrize("address", ["10.9.8.7", "169.254.169.254", "fd00:9::7"])
def test_B22_a_rule_for_one_port_opens_no_other_one_for_a_name(attack, world, address, verify):
    """The name's own rule says 7007, the address's 7077: together they open nothing more than each alone."""
    name = f"private-{world.number()}.test"
    world.dns.add(name, address)
    rule = f"[{address}]:7077" if ":" in address else f"{address}:7077"
    kind = "AAAA" if ":" in address else "A"
    _, dial, named = attack.probe(["dns", name, kind], ["tcp", address, 7007, "secret"], ["connect", name, 7007, "secret"],
                                  allow=(f"{name}:7007", rule), options=("--verify", verify))
    assert dial.result != "ok" and named.result != "ok", (dict(dial), dict(named))
    assert attack.packets == []


SMUGGLED = [
    ("an address of another owner", lambda q, a: q.answer("93.77.0.1", records=[("evil.test", 60, "A", a)])),
    ("an address behind a CNAME that is not in the chain",
     lambda q, a: q.answer("93.77.0.1", records=[("other.test", 60, "CNAME", "x.test."), ("x.test", 60, "A", a)])),
    ("an answer to another question", lambda q, a: q.answer(a, owner="other.test.")),
]


@pytest.mark.parametrize("what, reply", SMUGGLED, ids=[w for w, _ in SMUGGLED])
def test_B20_records_of_other_owners_teach_nothing(attack, world, what, reply):
    name, address = f"smuggle-{world.number()}.test", world.address()
    world.dns.on(name, lambda q: reply(q, address))
    asked, dial = attack.probe(["dns", name], ["tcp", address, 7007], allow=(name,))
    assert address not in asked.get("addresses", []), dict(asked)
    expect.tcp_refused(dial)
    assert attack.packets == []


@pytest.mark.parametrize("what, source", [("another server", "93.66.6.6"), ("the wrong id", None)])
def test_B18_a_spoofed_answer_is_not_believed(attack, world, what, source):
    name, bad, good = f"spoof-{world.number()}.test", world.address(), world.address()

    def reply(q):
        forged = q.answer(bad).to_wire()
        if source is None:
            forged = bytes([forged[0] ^ 0xFF]) + forged[1:]
        q.send(forged, source=source)
        return q.answer(good)

    world.dns.on(name, reply)
    asked, dial = attack.probe(["dns", name], ["tcp", bad, 7007], allow=(name,))
    assert asked.addresses == [good], dict(asked)
    expect.tcp_refused(dial)


def test_B20_a_cname_leads_to_addresses_of_the_asked_name_only(attack, world, denied):
    alias = f"alias-{world.number()}.test"
    world.dns.add(alias, cname=denied.name)
    asked, dial, other = attack.probe(["dns", alias], ["tcp", denied.v4, 7007, "hi"], ["dns", denied.name],
                                      allow=(f"{alias}:7007",))
    assert asked.addresses == [denied.v4]
    assert dial.data == "hi"
    expect.name_refused(other)


@pytest.mark.parametrize("what, reply", [
    ("a loop", lambda q: q.answer(records=[(q.name, 60, "CNAME", "b.test."), ("b.test", 60, "CNAME", q.name + ".")])),
    ("a chain of 40", lambda q: q.answer(records=[
        (q.name if i == 0 else f"c{i}.test", 60, "CNAME", f"c{i + 1}.test.") for i in range(40)]
        + [("c40.test", 60, "A", "93.77.0.2")])),
])
def test_B20_a_cname_chain_without_an_end_is_an_error_in_time(attack, world, what, reply):
    name = f"chain-{world.number()}.test"
    world.dns.on(name, reply)
    answer = attack.probe(["again", "dns", name, {"times": 1}], allow=(name,))
    assert answer.result in ("SERVFAIL", "NXDOMAIN", "NOERROR", "timeout") and not answer.get("addresses")


def test_B33_environment_and_files_of_the_resolver_change_nothing(attack, world, user):
    """The resolver's configuration is the sandbox's to change; the filter isn't."""
    script = ("import os, socket\n"
              "os.environ['RES_OPTIONS'] = 'use-vc'\n"
              "try:\n    open('/etc/resolv.conf', 'w').write('nameserver 8.8.8.8\\n')\n"
              "except OSError: pass\n"
              "try:\n    print(socket.getaddrinfo('evil.test', 443))\n"
              "except OSError as e: print('refused', e)\n")
    done = attack.run("/usr/bin/python3", "-c", script, user=user,
                      env={"RES_OPTIONS": "attempts:1 timeout:1", "LOCALDOMAIN": "evil.test",
                           "HOSTALIASES": "/nonexistent"})
    assert done.code == 0 and done.text.startswith("refused"), done
    attack.assert_silent()


def test_B33_a_resolver_of_ones_own_gets_the_same_answers(attack):
    done = attack.run("dig", "+time=15", "+tries=1", "@8.8.8.8", "evil.test")
    assert "NXDOMAIN" in done.text or done.code != 0, done
    attack.assert_silent()


def raw(flags=0x0100, counts=(1, 0, 0, 0), body=None, tail=b""):
    """A message by hand: api.ok.test A IN unless @body says something else."""
    question = b"\3api\2ok\4test\0\0\1\0\1" if body is None else body
    return (struct.pack("!HHHHHH", 0x4242, flags, *counts) + question + tail).hex()


MALFORMED = [
    ("no question", raw(counts=(0, 0, 0, 0), body=b"")),
    ("two questions", raw(counts=(2, 0, 0, 0), tail=b"\4evil\4test\0\0\1\0\1")),
    ("a question that is counted and missing", raw(counts=(2, 0, 0, 0))),
    ("half a header", raw()[:16]),
    ("one byte", "42"),
    ("half a name", raw()[:36]),
    ("no type", raw(body=b"\3api\2ok\4test\0")),
    ("a pointer to itself", raw(body=b"\xc0\x0c\0\1\0\1")),
    ("pointers in a loop", raw(body=b"\xc0\x0e\xc0\x0c\0\1\0\1")),
    ("a pointer forward", raw(body=b"\xc0\xff\0\1\0\1")),
    ("a label type that is none", raw(body=b"\x43api\0\0\1\0\1")),
    ("an answer in the query", raw(counts=(1, 1, 0, 0), tail=b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\1\2\3\4")),
    ("a reply", raw(flags=0x8180)),
    ("an update", raw(flags=0x2800)),
    ("a notify", raw(flags=0x2000)),
    ("an inverse query", raw(flags=0x0800)),
    ("class CHAOS", raw(body=b"\3api\2ok\4test\0\0\1\0\3")),
    ("class ANY", raw(body=b"\3api\2ok\4test\0\0\1\0\xff")),
    ("EDNS version 1", raw(counts=(1, 0, 0, 1), tail=b"\0\0\x29\4\xd0\0\1\0\0\0\0")),
    ("EDNS twice", raw(counts=(1, 0, 0, 2), tail=b"\0\0\x29\4\xd0\0\0\0\0\0\0" * 2)),
    ("1 KiB of zeros", "00" * 1024),
    ("1 KiB of ones", "ff" * 1024),
    ("bytes behind the question", raw(tail=b"secret secret secret")),
]


def test_B16_a_malformed_message_is_refused_and_the_next_is_served(attack):
    probes = [probe for i, (_, message) in enumerate(MALFORMED) for probe in (["dns_raw", message, {"wait": 0.3}], ["dns", f"x{i}.pkg.test"])]
    answers = attack.probe(*probes)
    for (what, _), answer, next_one in zip(MALFORMED, answers[::2], answers[1::2]):
        assert answer.result in ("FORMERR", "NOTIMP", "NXDOMAIN", "NOERROR", "16", "REFUSED", "timeout"), (what, dict(answer))
        assert next_one.result == "NOERROR", (what, dict(next_one))
    assert set(attack.names) <= {*(f"x{i}.pkg.test" for i in range(len(MALFORMED))), "api.ok.test"}
    assert not [q for q in attack.world.dns.queries() if b"secret" in q.raw]


def test_B12_options_of_the_client_are_not_passed_on(attack, world):
    """Whatever is put into EDNS stays here, and isn't reflected either."""
    codes = [3, 8, 10, 12, 15, 65001]
    names = [world.site(f"option-{world.number()}.test").name for _ in codes]
    for answer in attack.probe(*[["dns_option", name, code, "SECRET-IN-OPTION"] for name, code in zip(names, codes)], allow=names):
        assert answer.result in ("NOERROR", "FORMERR") and not answer.echoed, dict(answer)
    asked = [q for name in names for q in world.dns.queries(name)]
    assert asked and not [q for q in asked if b"SECRET-IN-OPTION" in q.raw]


def test_B18_id_case_and_port_upstream_are_not_the_clients(attack, world):
    names = [f"id{i}.pkg.test" for i in range(8)]
    attack.probe(*[["dns", name] for name in names])
    asked = [q for name in names for q in world.dns.queries(name)]
    assert len({q.message.id for q in asked}) > 4 and [q.message.id for q in asked].count(0x1234) < 2
    assert min(q.port for q in asked) > 1023
    assert any(str(q.message.question[0].name) != q.name + "." for q in asked), "no 0x20 at all"


def test_B12_new_names_under_a_wildcard_have_a_budget(attack, world):
    """Data in labels: after 200 new names in a minute the rest stays here, and it is told."""
    world.dns.add("*.budget.test", world.address())
    answer = attack.probe(["dns_flood", 300, ".budget.test"], allow=("*.budget.test",))
    assert answer.answered == 300, dict(answer)
    assert answer.rcodes["NOERROR"] <= 210 and answer.rcodes["SERVFAIL"] >= 90, dict(answer)
    assert len(set(attack.names)) <= 210


def test_B35_a_flood_is_answered_at_once_and_ends_at_its_limit(attack, world):
    answer, after = attack.probe(["dns_flood", 4000, ".evil.test"], ["dns", "api.ok.test"])
    assert answer.answered == 4000 and answer.rcodes.get("NXDOMAIN", 0) >= 1000, dict(answer)
    assert set(answer.rcodes) <= {"NXDOMAIN", "SERVFAIL"}
    assert after.result in ("NOERROR", "SERVFAIL") and after.ms < expect.FAST_MS
    assert not [n for n in attack.names if n.endswith("evil.test")]


def test_B35_idle_connections_to_the_resolver_block_nobody(attack):
    answer = attack.probe(["dns_connections", 30])
    assert answer.result == "NOERROR", dict(answer)


def test_B28_what_one_sandbox_may_ask_another_may_not(attack, site):
    """Cached or not."""
    allowed = attack.probe(["dns", site.name], allow=(site.name,))
    assert allowed.addresses == [site.v4]
    expect.name_refused(attack.probe(["dns", site.name]))


def test_B2_the_upstream_resolver_itself_is_not_open(attack):
    """On some clouds the resolver is the metadata server."""
    own, *others = attack.probe(*[["tcp", RESOLVER4, port, "GET / HTTP/1.0\r\n\r\n"] for port in (53, 80, 443, 853, 7007)])
    assert own.get("data", "") == "" or "HTTP" not in own.data  # our own resolver answers there, or nobody
    for answer in others:
        expect.tcp_refused(answer)
    attack.assert_silent()


def test_B25_a_ttl_of_zero_is_usable_and_a_huge_one_is_cut(attack, world):
    short, long = f"ttl-{world.number()}.test", f"ttl-{world.number()}.test"
    world.dns.add(short, world.address(), ttl=0)
    world.dns.add(long, world.address(), ttl=2**31 - 1)
    one, two, dial = attack.probe(["dns", short], ["dns", long], ["connect", short, 7007, "hi"],
                                  allow=(f"{short}:7007", long))
    assert one.addresses and dial.data == "hi"
    assert two.answers[0][2] <= 86400, dict(two)


def test_C17_H7_a_learned_address_expires_and_open_connections_stay(attack, world):
    """A TTL of 1 is raised to the cache's 5 seconds; the grace is added to that."""
    name, address = f"expire-{world.number()}.test", world.address()
    world.dns.add(name, address, ttl=1)
    policy = world.workdir() / "policy.yaml"
    policy.write_text(f"egress:\n  - {{action: allow, target: {name}, ports: [7007]}}\n"
                      "limits: {min_lifetime: 1, grace: 1}\n")
    learned, later = attack.probe(["lookup", name], ["flow", address, 7007, 7], allow=(),
                                  options=("--policy", policy))
    assert learned.addresses == [address]
    assert later.old == "still" and later.result == "refused", dict(later)
