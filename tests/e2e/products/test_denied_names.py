# SPDX-License-Identifier: Apache-2.0
"""deniedNames: refuse: a denied name leads to an address where every connection is refused in its own protocol, and nothing leaves."""
import pytest

from world import expect
from world.guarded import PRODUCTS, guarded
from world.sidecar import policy, wait_for

# Rules that would open the addresses, if one could.
OPEN = [{"action": "allow", "target": t} for t in ("198.19.255.0/24", "100::/16")]
GET = "GET / HTTP/1.1\r\nHost: {}\r\n\r\n"


def stands_for_denied(answers):
    return all(a.startswith("198.19.255.") or a.startswith("100::") for a in answers) and len(answers) == 2


@pytest.mark.parametrize("product", PRODUCTS)
def test_each_client_is_refused_in_its_own_protocol_and_told_once(world, product):
    n = world.number()
    site, evil, trap = world.site(f"good{n}.test"), f"evil{n}.test", f"trap{n}.test"
    world.dns.add(evil, world.address(), world.address6())
    world.dns.add(trap, "198.19.255.7", "100::7")
    rules = [f"allow {site.name}", {"action": "allow", "target": trap, "private": True}, *OPEN]
    with guarded(world, product, policy(*rules, verify="tls", deniedNames="refuse")) as box:
        looked_up = box.probe(["lookup", evil])
        assert looked_up.result == "ok" and stands_for_denied(looked_up.addresses), looked_up
        box.assert_silent()
        for address in looked_up.addresses:
            web, tls, ssh, mute, udp = box.probe(
                ["tcp", address, 80, GET.format(evil)], ["https", address, 443, evil], ["tcp", address, 22, "SSH-2.0-x\r\n"],
                ["tcp", address, 3306, ""], ["udp", address, 443])
            assert "403 Forbidden" in web.data and f'"name": "{evil}"' in web.data and "the name is not allowed" in web.data, web
            assert "ACCESS_DENIED" in str(tls).upper(), tls
            assert [a.result for a in (ssh, mute)] == ["reset"] * 2, (ssh, mute)
            assert udp.result not in ("ok", "sent"), udp
            box.assert_silent()
        # an allowed name never leads there, whatever upstream says, and is what it was
        trapped = box.probe(["dns", trap])
        expect.address_refused(trapped)
        assert box.names == {trap} and box.packets == [], trapped
        reached = box.probe(["lookup", site.name], ["https", site.v4, 443, site.name])[1]
        assert reached.result == "ok", reached
        told = [d for d in box.denies() if d["name"] == evil or str(d["remote_ip"]).startswith(("198.19.", "100:"))]
        assert {(d["layer"], d["name"]) for d in told if d["name"] != trap} == {("dns", evil)}, told


def test_other_questions_and_other_names(world):
    """A name that has an address has no NXDOMAIN of another type; a search list gets on to the name that is allowed."""
    n = world.number()
    site, evil = world.site(f"good{n}.test"), f"evil{n}.test"
    with guarded(world, "run", policy(f"allow {site.name}", verify="tls", deniedNames="refuse")) as box:
        asked = {
            (evil, "A"): "NOERROR", (evil, "AAAA"): "NOERROR", (evil, "TXT"): "NOERROR", (evil, "MX"): "NOERROR",
            (f"{site.name}.corp.example", "A"): "NXDOMAIN", ("word", "A"): "NXDOMAIN", ("4.3.2.1.in-addr.arpa", "PTR"): "NXDOMAIN",
        }
        answers = box.probe(*(["dns", *question] for question in asked))
        assert [a.result for a in answers] == list(asked.values()), answers
        assert [len(a.addresses) for a in answers] == [1, 1] + [0] * 5 and all(15 in a.ede for a in answers), answers
        assert [a.soa for a in answers] == [False] * 2 + [True] * 5, answers
        box.assert_silent()
        # who dials there without having asked is told of: nothing hides behind another's denial
        shown, = box.probe(["tcp", "198.19.255.99", 80, GET.format("stranger.test")], ["dns", evil])[:1]
        assert "403 Forbidden" in shown.data, shown
        wait_for(lambda: [d for d in box.denies() if d["name"] == "stranger.test"])
