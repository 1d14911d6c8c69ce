# SPDX-License-Identifier: Apache-2.0
"""E: the name that a connection shows has to be one that taught its address.

Two names share an address, as on a content network; one of them is allowed.
"""
import struct

import pytest

from world import expect


@pytest.fixture
def shared(world):
    """(allowed name, denied name, the address that both have)."""
    number, address = world.number(), world.address()
    names = f"good-{number}.test", f"bad-{number}.test"
    for name in names:
        world.dns.add(name, address)
    return (*names, address)


def client_hello(name, split_records=False, ech=False):
    """A ClientHello for @name by hand; nothing of it is ever answered."""
    sni = name.encode()
    server_name = struct.pack("!HBH", len(sni) + 3, 0, len(sni)) + sni
    extensions = struct.pack("!HH", 0, len(server_name)) + server_name
    if ech:
        extensions += struct.pack("!HH", 0xFE0D, 8) + b"\0\0\1\0\1\0\0\0"
    body = b"\3\3" + b"R" * 32 + b"\0" + struct.pack("!HH", 2, 0x1301) + b"\1\0"
    body += struct.pack("!H", len(extensions)) + extensions
    message = b"\1" + struct.pack("!I", len(body))[1:] + body
    pieces = [message[:20], message[20:]] if split_records else [message]
    return b"".join(b"\x16\3\1" + struct.pack("!H", len(p)) + p for p in pieces)


def lines(*words):
    return "\r\n".join(words) + "\r\n\r\n"


def test_E2_B8_another_name_on_an_allowed_address_is_refused(attack, world, shared, user):
    good, bad, address = shared
    _, same, other, doh = attack.probe(
        ["lookup", good], ["https", address, 443, good], ["https", address, 443, bad],
        ["https", address, 443, "dns.google"], allow=(good,), user=user)
    assert same.result == "ok" and good in same.data
    expect.tcp_gave_nothing(other)
    expect.tcp_gave_nothing(doh)
    assert world.web.reached(bad) == [] and world.web.reached(good) != []


def test_E1_an_allowed_name_at_an_address_that_it_does_not_have_is_refused(attack, shared):
    good, _, _ = shared
    answer = attack.probe(["https", "93.9.9.9", 443, good], allow=(good,))
    expect.tcp_gave_nothing(answer)
    assert attack.packets == []


def test_C16_another_host_in_a_plain_request_is_refused(attack, world, shared):
    good, bad, address = shared
    _, same, other = attack.probe(
        ["lookup", good], ["tcp", address, 80, lines("GET / HTTP/1.1", f"Host: {good}", "Connection: close")],
        ["tcp", address, 80, lines("GET / HTTP/1.1", f"Host: {bad}", "Connection: close")], allow=(good,))
    assert "200 OK" in same.data
    assert "200 OK" not in other.get("data", ""), dict(other)
    assert world.web.reached(bad) == []


REQUESTS = [
    ("E9", "two hosts", lines("GET / HTTP/1.1", "Host: {good}", "Host: {bad}")),
    ("E9", "two hosts, the other way", lines("GET / HTTP/1.1", "Host: {bad}", "Host: {good}")),
    ("E9", "another host in the target", lines("GET http://{bad}/ HTTP/1.1", "Host: {good}")),
    ("E9", "a space before the colon", lines("GET / HTTP/1.1", "Host : {bad}", "Host: {good}")),
    ("E9", "a folded header", lines("GET / HTTP/1.1", "X: a", " Host: {good}", "Host: {bad}")),
    ("E9", "a tab in the host", lines("GET / HTTP/1.1", "Host:{bad}\t{good}")),
    ("E9", "a comma in the host", lines("GET / HTTP/1.1", "Host: {good},{bad}")),
    ("E9", "an @ in the host", lines("GET / HTTP/1.1", "Host: {good}@{bad}")),
    ("E9", "bare line feeds", "GET / HTTP/1.1\nHost: {bad}\n\n"),
    ("E9", "a lower-case host", lines("GET / HTTP/1.1", "host: {bad}")),
    ("E9", "no host", lines("GET / HTTP/1.0")),
    ("E9", "an empty host", lines("GET / HTTP/1.1", "Host:")),
    ("E9", "HTTP/0.9", "GET /\r\n"),
    ("E9", "CONNECT", lines("CONNECT {bad}:443 HTTP/1.1", "Host: {good}")),
    ("A8", "a zero byte in the host", lines("GET / HTTP/1.1", "Host: {bad}\0{good}")),
    ("A7", "two dots at the end", lines("GET / HTTP/1.1", "Host: {good}..")),
    ("A16", "the address as host", lines("GET / HTTP/1.1", "Host: {address}")),
    ("E9", "bytes that are no protocol", "hello hello hello hello\r\n\r\n"),
    ("E9", "the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\0\0\0\4\0\0\0\0\0"),
]


@pytest.mark.parametrize("case, what, request_text", REQUESTS, ids=[f"{c}-{w}" for c, w, _ in REQUESTS])
def test_a_request_whose_name_is_not_clear_goes_nowhere(attack, world, shared, case, what, request_text):
    good, bad, address = shared
    text = request_text.format(good=good, bad=bad, address=address)
    before = len(world.web.requests)
    _, answer = attack.probe(["lookup", good], ["tcp", address, 80, text], allow=(good,))
    assert "200 OK" not in answer.get("data", ""), dict(answer)
    assert answer.ms < expect.FAST_MS, dict(answer)
    assert world.web.requests[before:] == []
    assert [p for p in attack.packets if p.payload] == []


@pytest.mark.parametrize("pieces", [1, 5, 50])
@pytest.mark.parametrize("split_records", [False, True], ids=["one-record", "two-records"])
def test_E7_a_hello_in_pieces_is_judged_whole(attack, shared, pieces, split_records):
    good, bad, address = shared
    _, denied, allowed = attack.probe(
        ["lookup", good], ["pieces", address, 443, client_hello(bad, split_records).hex(), pieces],
        ["pieces", address, 443, client_hello(good, split_records).hex(), pieces], allow=(good,))
    expect.tcp_gave_nothing(denied)
    sent = b"".join(p.payload for p in attack.packets)
    assert bad.encode() not in sent and good.encode() in sent, dict(allowed)


HELLOS = [("E2", "no SNI", lambda good: client_hello("").replace(b"\0\0\0\5\0\3\0\0\0", b"\0\x99\0\5\0\3\0\0\0")),
          ("E2", "an empty SNI", lambda good: client_hello("")),
          ("A8", "a zero byte", lambda good: client_hello(f"{good}\0.evil.test")),
          ("A7", "an empty label", lambda good: client_hello(good.replace("-", ".."))),
          ("A16", "an address", lambda good: client_hello("93.9.9.9")),
          ("A12", "a space", lambda good: client_hello(f"{good} x")),
          ("E7", "half a hello", lambda good: client_hello(good)[:30])]


@pytest.mark.parametrize("case, what, hello", HELLOS, ids=[f"{c}-{w}" for c, w, _ in HELLOS])
def test_a_hello_without_an_allowed_name_goes_nowhere(attack, shared, case, what, hello):
    good, _, address = shared
    _, answer = attack.probe(["lookup", good], ["pieces", address, 443, hello(good).hex(), 4096], allow=(good,))
    assert answer.result in ("reset", "closed", "alert", "timeout"), dict(answer)
    assert [p for p in attack.packets if p.payload] == []


def test_A5_A6_spellings_of_the_allowed_name_are_the_name(attack, shared):
    good, _, address = shared
    answers = attack.probe(["lookup", good], ["https", address, 443, good.upper()],
                           ["tcp", address, 80, lines("GET / HTTP/1.0", f"Host: {good.upper()}")],
                           ["tcp", address, 80, lines("GET / HTTP/1.0", f"Host: {good}.")],
                           ["tcp", address, 80, lines("GET / HTTP/1.0", f"Host: {good}:80")], allow=(good,))
    for answer in answers[1:]:
        assert "200 OK" in answer.get("data", ""), dict(answer)


def test_E11_the_second_request_of_a_connection_may_not_name_another_host(attack, world, shared):
    good, bad, address = shared
    text = lines("GET /one HTTP/1.1", f"Host: {good}") + lines("GET /two HTTP/1.1", f"Host: {bad}")
    _, answer, late = attack.probe(["lookup", good], ["tcp", address, 80, text],
                                   ["two_requests", address, 80, good, bad], allow=(good,))
    assert world.web.reached(bad) == [], (dict(answer), dict(late))


def test_E15_other_protocols_need_their_port_in_the_rule(attack, world, shared):
    good, _, address = shared
    before = attack.probe(["lookup", good], ["tcp", address, 7007, "EHLO x\r\n"], allow=(good,))
    expect.tcp_gave_nothing(before[1])
    assert [p for p in attack.packets if p.payload] == []
    after = attack.probe(["lookup", good], ["tcp", address, 7007, "EHLO x\r\n"], allow=(f"{good}:7007",))
    assert after[1].get("data") == "EHLO x\r\n"


def test_E15_a_listed_web_port_is_no_way_for_bytes_without_a_name(attack, shared):
    good, _, address = shared
    _, answer = attack.probe(["lookup", good], ["tcp", address, 443, "SSH-2.0-x\r\n"], allow=(f"{good}:443",))
    assert answer.result != "ok", dict(answer)
    assert [p for p in attack.packets if p.payload] == []


def test_E15_tls_on_any_port_is_judged_by_its_name(attack, world, shared):
    good, bad, address = shared
    with world.tcp(7200, world.web._tls):
        _, same, other = attack.probe(["lookup", good], ["https", address, 7200, good],
                                      ["https", address, 7200, bad], allow=(f"{good}:7200",))
    assert same.result == "ok", dict(same)
    expect.tcp_gave_nothing(other)


def test_verify_dns_trusts_the_address(attack, world, shared):
    good, bad, address = shared
    _, other = attack.probe(["lookup", good], ["https", address, 443, bad], allow=(good,),
                            options=("--verify", "dns"))
    assert other.result == "ok"
