# SPDX-License-Identifier: Apache-2.0
"""A policy that changes while the sandbox runs: the same in every product."""
import pytest

from world import expect
from world.guarded import PRODUCTS, guarded
from world.sidecar import policy, wait_for

OVER = ("reset", "closed", "ConnectionResetError", "BrokenPipeError", "timeout", "TimeoutError")


@pytest.fixture(name="box", params=PRODUCTS)
def fixture_box(request, world):
    with guarded(world, request.param, policy(verify="dns")) as box:
        yield box


def allow(*sites):
    return policy(*(f"allow {s.name}" for s in sites), verify="dns")


def test_what_is_forbidden_is_cut_and_the_rest_goes_on(box, world):
    one, two = (world.site(f"{word}{world.number()}.test") for word in ("one", "two"))
    box.change(allow(one, two))
    box.probe(["dns", one.name], ["dns", two.name])
    stays, goes = box.flow(one.v4), box.flow(two.v4)
    assert (stays.say(), goes.say()) == ("got", "got")
    box.change(allow(one))
    before = len(box.capture.packets())
    assert goes.say("secret") in OVER and stays.say() == "got"
    again, dial, dial6 = box.probe(["tcp", one.v4, 7007, "hello"], ["tcp", two.v4, 7007], ["dns", two.name])
    assert again.result == "ok" and box.names == set()  # what the name taught is known yet
    expect.tcp_refused(dial)
    expect.name_refused(dial6)
    assert not [p for p in box.capture.packets()[before:] if p.dst == two.v4 and (b"secret" in p.payload or p.flags & 2)]
    wait_for(lambda: {("address", two.v4), ("dns", None)} <= {(r["layer"], r["remote_ip"]) for r in box.denies()})


def test_what_comes_back_has_to_be_asked_for_again(box, site):
    box.change(allow(site))
    box.probe(["dns", site.name])
    box.change(policy(verify="dns"))
    box.change(allow(site))
    expect.tcp_refused(box.probe(["tcp", site.v4, 7007]))
    box.assert_silent()
    _, dial = box.probe(["dns", site.name], ["tcp", site.v4, 7007, "hello"])
    assert dial.result == "ok"


def test_a_policy_that_is_wrong_changes_nothing(box, site):
    box.change(allow(site))
    for text in ("{", '{"defaultAction": "deny", "egress": [{"action": "allow", "target": "a..b"}]}', '[]', "\0"):
        reply = box.send("POST", "/policy", text)
        assert 400 <= reply.status < 500, (text, reply)
        name, dial = box.probe(["dns", site.name], ["tcp", site.v4, 7007, "hello"])
        assert (name.result, dial.result) == ("NOERROR", "ok"), text
