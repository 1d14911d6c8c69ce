#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Messages that dnspython writes are read as dnspython means them, and what dns/ writes
is read by dnspython. usage: test_against_dnspython.py PEER"""
import subprocess
import sys

import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import dns.rrset
from hypothesis import given, settings, strategies as st

KIND_NXDOMAIN, KIND_NODATA, KIND_RECORDS = 4, 5, 6  # enum dns_answer_kind
CAP_SEC = 300

settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")

peer = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(command, wire):
    peer.stdin.write(f"{command} {wire.hex()}\n")
    peer.stdin.flush()
    return peer.stdout.readline().split()


labels = st.text("abcXYZ019-_", min_size=1, max_size=20)
names = st.lists(labels, min_size=1, max_size=5).map(lambda parts: ".".join(parts) + ".")
ttls = st.integers(0, 2**31 - 1)
last_octets = st.lists(st.integers(1, 254), min_size=1, max_size=32, unique=True)


def lowered(name):
    return name.lower().rstrip(".")


@st.composite
def chains(draw):
    """A question and the names that it leads through, none twice."""
    found = draw(st.lists(names, min_size=1, max_size=6, unique_by=lowered))
    return found, draw(st.lists(ttls, min_size=len(found), max_size=len(found)))


def response(chain, ttl, octets, rdtype, shuffle):
    query = dns.message.make_query(chain[0], rdtype)
    made = dns.message.make_response(query)
    made.flags |= dns.flags.RA
    records = [dns.rrset.from_text(owner, ttl[i], "IN", "CNAME", chain[i + 1])
               for i, owner in enumerate(chain[:-1])]
    if octets:
        made_addrs = [f"198.51.100.{n}" if rdtype == "A" else f"2001:db8::{n:x}" for n in octets]
        records.append(dns.rrset.from_text(chain[-1], ttl[-1], "IN", rdtype, *made_addrs))
    shuffle.shuffle(records)
    made.answer = records
    return made


@settings(max_examples=150)
@given(names, st.sampled_from(["A", "AAAA", "TXT", "HTTPS", "ANY"]), st.booleans(),
       st.booleans(), st.integers(0, 65535))
def a_query_means_the_same(name, rdtype, edns, dnssec, payload):
    query = dns.message.make_query(name, rdtype, use_edns=0 if edns or dnssec else -1,
                                   want_dnssec=dnssec, payload=payload)
    got = ask("query", query.to_wire())
    has_edns = edns or dnssec
    assert got == ["4", lowered(name), str(int(dns.rdatatype.from_text(rdtype))), "1", "1", "0",
                   "0", str(int(has_edns)), str(int(dnssec)),
                   str(max(512, payload) if has_edns else 512)], got


@settings(max_examples=150)
@given(chains(), last_octets, st.sampled_from(["A", "AAAA"]), st.randoms(use_true_random=False))
def an_answer_means_the_same(chain_and_ttls, octets, rdtype, shuffle):
    chain, ttl = chain_and_ttls
    made = response(chain, ttl, octets, rdtype, shuffle)
    got = ask("answer", made.to_wire())
    addrs = [f"198.51.100.{n}" if rdtype == "A" else f"2001:db8::{n:x}" for n in octets]
    expected = [f"{lowered(name)}/{ttl[i]}" for i, name in enumerate(chain[1:])]
    assert got[:2] == [str(KIND_RECORDS), str(min(ttl))], got
    assert got[2:2 + len(expected)] == expected, got
    assert sorted(got[2 + len(expected):]) == sorted(f"{a}/{ttl[-1]}" for a in addrs), got


@settings(max_examples=150)
@given(chains(), last_octets, st.sampled_from(["A", "AAAA"]), st.randoms(use_true_random=False))
def a_reply_is_read_by_dnspython(chain_and_ttls, octets, rdtype, shuffle):
    chain, ttl = chain_and_ttls
    made = response(chain, ttl, octets, rdtype, shuffle)
    wire = bytes.fromhex("".join(ask("reply", made.to_wire())))
    reply = dns.message.from_wire(wire)
    assert len(wire) <= 512
    assert reply.question[0].name.to_text() == chain[0]  # its case too
    if reply.flags & dns.flags.TC:
        assert not reply.answer
        return
    final = reply.resolve_chaining()
    assert final.canonical_name == dns.name.from_text(chain[-1])
    assert len(final.cnames) == len(chain) - 1
    wanted = {r.to_text() for rrset in made.answer for r in rrset if rrset.rdtype == final.answer.rdtype}
    written = {r.to_text() for r in final.answer}
    assert written and written <= wanted
    assert all(rrset.ttl <= CAP_SEC for rrset in reply.answer)


@settings(max_examples=100)
@given(chains(), st.booleans(), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1),
       st.randoms(use_true_random=False))
def a_negative_answer_means_the_same(chain_and_ttls, nxdomain, soa_ttl, minimum, shuffle):
    chain, ttl = chain_and_ttls
    made = response(chain, ttl, [], "A", shuffle)
    made.set_rcode(3 if nxdomain else 0)
    made.authority = [dns.rrset.from_text(chain[-1], soa_ttl, "IN", "SOA",
                                          f"ns.test. host.test. 1 2 3 4 {minimum}")]
    got = ask("answer", made.to_wire())
    assert got[0] == str(KIND_NXDOMAIN if nxdomain else KIND_NODATA), got
    assert got[1] == str(min([soa_ttl, minimum] + ttl[:-1])), got
    reply = dns.message.from_wire(bytes.fromhex("".join(ask("reply", made.to_wire()))))
    if not reply.flags & dns.flags.TC:
        final = reply.resolve_chaining()
        assert final.answer is None and final.minimum_ttl <= CAP_SEC
        assert reply.rcode() == (3 if nxdomain else 0)


@settings(max_examples=150)
@given(chains(), last_octets, st.randoms(use_true_random=False), st.data())
def damage_never_teaches_an_address_that_is_not_there(chain_and_ttls, octets, shuffle, data):
    chain, ttl = chain_and_ttls
    wire = bytearray(response(chain, ttl, octets, "A", shuffle).to_wire())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    got = ask("answer", bytes(wire))
    assert got
    for word in got[2:]:
        text = word.split("/")[0]
        if got[0] == str(KIND_RECORDS) and text.count(".") == 3 and text.replace(".", "").isdigit():
            assert bytes(int(part) for part in text.split(".")) in bytes(wire)


for rule in (a_query_means_the_same, an_answer_means_the_same, a_reply_is_read_by_dnspython,
             a_negative_answer_means_the_same,
             damage_never_teaches_an_address_that_is_not_there):
    rule()
    print("ok", rule.__name__)
peer.stdin.close()
sys.exit(peer.wait())
