# SPDX-License-Identifier: Apache-2.0
"""The catalogue's ways out by names, DNS and requests (A, B, C, E), from a sandbox of each product; the cases are those
of the files beside it."""
import contextlib

import pytest

import test_a_names as names
import test_b_dns as dns
import test_e_names_shown as shown
from world import expect
from world.guarded import PRODUCTS, guarded
from world.sidecar import policy

STANDARD = [{"action": "allow", "target": "api.ok.test", "ports": [443]},
            {"action": "allow", "target": "*.pkg.test", "ports": [443]}]
MANY = {"queries_per_second": "unlimited", "new_names_per_minute": "unlimited"}


@pytest.fixture(name="box", params=PRODUCTS)
def fixture_box(request, world):
    """A sandbox of that product with these rules."""
    for name in ("api.ok.test", "pkg.test", "*.pkg.test", "ok.test", "*.ok.test", "evil.test", "*.evil.test", "evilpkg.test",
                 "dns.google", "cloudflare-dns.com", "mozilla.cloudflare-dns.com", "dns.nextdns.io"):
        world.site(name)
    with contextlib.ExitStack() as opened:
        def make(*rules, verify="tls"):
            return opened.enter_context(guarded(world, request.param, policy(*rules, verify=verify, limits=MANY)))
        yield make


def test_names_that_look_like_an_allowed_one_and_spellings_of_those_that_are(box):  # A
    box = box(*STANDARD)
    probes = [["dns", name, "A", {"transport": transport}] for _, _, name in names.DENIED for transport in ("udp", "tcp")]
    for (_, name, _, how), answer in zip(probes, box.probe(*probes)):
        assert answer.result in ("NXDOMAIN", "FORMERR") and answer.addresses == [], (name, how, dict(answer))
    assert box.packets == [] and box.names == set()
    allowed = [name for _, _, name, rules in names.ALLOWED if rules[0].lower().rstrip(".") in ("api.ok.test", "*.pkg.test")]
    assert len(allowed) > 6
    for name, answer in zip(allowed, box.probe(*(["dns", name] for name in allowed))):
        assert answer.result == "NOERROR" and answer.addresses and answer.question == name, (name, dict(answer))
    assert box.names == {name.lower() for name in allowed}


def test_dns_as_a_way_out(box):  # B1 B2 B3 B4 B6 B7 B9 B11 B31
    box = box(*STANDARD)
    kinds = [["dns", "evil.test", kind] for kind in ("A", "AAAA", "TXT", "HTTPS", "ANY", "PTR")]
    others = [["dns", "evil.test", "A", server, how] for server in dns.OTHERS for how in ("udp", "tcp")]
    public = [["dns", name] for name in ("dns.google", "cloudflare-dns.com", "mozilla.cloudflare-dns.com", "dns.nextdns.io")]
    for probe, answer in zip(kinds + others + public, box.probe(*kinds, *others, *public)):
        assert answer.result in ("NXDOMAIN", *expect.UDP_REFUSALS), (probe, dict(answer))
    encrypted = [["tcp", address, port] for address in ("8.8.8.8", "2001:4860:4860::8888") for port in (853, 443, 8443)]
    for answer in box.probe(*encrypted):
        expect.tcp_refused(answer)
    datagrams = [["udp", address, port, "hello", {"broadcast": True}] for _, address, port in dns.DATAGRAMS]
    for probe, answer in zip(datagrams, box.probe(*datagrams)):
        assert answer.result in expect.UDP_REFUSALS, (probe, dict(answer))
    assert box.packets == [] and box.names == set()
    types = [["dns", "api.ok.test", kind] for kind in ("TXT", "NULL", "ANY", "SRV", "MX", "PTR", "HTTPS", "SVCB", "NS", "SOA")]
    for answer in box.probe(*types):
        expect.no_data(answer)
    assert box.packets == [] and box.names == set()
    pipeline = box.probe(["dns_pipeline", ["api.ok.test", "evil.test", "x.pkg.test", "y.evil.test"]])
    assert {i: r["result"] for i, r in pipeline.replies.items()} == {"1": "NOERROR", "2": "NXDOMAIN", "3": "NOERROR", "4": "NXDOMAIN"}
    assert box.names == {"api.ok.test", "x.pkg.test"}


def test_what_an_answer_must_not_teach(box, world):  # B22 B23
    below = f"rebind{world.number()}.test"
    cases = [(f"n{i}.{below}", address, world.address6() if ":" in address else world.address())
             for i, (_, address) in enumerate(dns.REBINDING)]
    for name, address, good in cases:
        world.dns.add(name, address, good)
    box = box(f"allow *.{below}", verify="dns")
    answers = box.probe(*(["dns", name, "AAAA" if ":" in address else "A"] for name, address, _ in cases))
    for (_, address, good), answer in zip(cases, answers):
        assert address not in answer.addresses and good in answer.addresses, (address, dict(answer))
    special = {address for _, address, _ in cases}
    dials = box.probe(*(["tcp", address, 7007, "secret"] for address in special))
    assert all(d.result != "ok" for d in dials)
    assert not [p for p in box.packets if p.dst in special or b"secret" in p.payload]


def test_requests_and_hellos_that_show_another_name(box, world):  # D1 E1 E2 E7 E9 A7 A8 A16 B8 C16
    number, address = world.number(), world.address()
    good, bad = f"good-{number}.test", f"bad-{number}.test"
    for name in (good, bad):
        world.dns.add(name, address)
    box = box(f"allow {good}")
    texts = [text.format(good=good, bad=bad, address=address) for _, _, text in shown.REQUESTS]
    hellos = [hello(good) for _, what, hello in shown.HELLOS if what != "half a hello"] + [shown.client_hello(bad, True)]
    _, same, *refused = box.probe(["lookup", good], ["https", address, 443, good], ["https", address, 443, bad],
                                  ["https", address, 443, "dns.google"], ["https", "93.9.9.9", 443, good])
    assert same.result == "ok" and good in same.data
    for answer in refused:
        expect.tcp_gave_nothing(answer)
    quic = box.probe(["udp", address, 443, "quic"])
    expect.udp_refused(quic)
    for text, answer in zip(texts, box.probe(*(["tcp", address, 80, text] for text in texts))):
        assert "200 OK" not in answer.get("data", ""), (text, dict(answer))
    assert [p for p in box.packets if p.payload] == []
    for answer in box.probe(*(["pieces", address, 443, hello.hex(), 5] for hello in hellos)):
        assert answer.result in ("reset", "closed", "alert", "timeout"), dict(answer)
    assert [p for p in box.packets if p.payload] == []
    assert world.web.reached(bad) == [] and world.web.reached(good) != []


def test_addresses_that_nobody_lists_or_asked_for(box, site):  # C1 C2 C3 C6 H5
    box = box(f"allow {site.name}")
    probes = [["tcp", address, 443] for address in (site.v4, site.v6, "93.9.9.9", "2a01:93::9:9", "10.1.2.3", "169.254.169.254",
                                                    "fd00:ec2::254")]
    for answer in box.probe(*probes):
        expect.tcp_refused(answer)
    assert box.packets == [] and box.names == set()
    _, tcp = box.probe(["dns", site.name], ["https", site.v4, 443, site.name])
    assert tcp.result == "ok", dict(tcp)
