# SPDX-License-Identifier: Apache-2.0
"""A rule that ends, in each product: while it lasts it is a rule as any other; then it is as if it weren't there, an open
flow is cut, and an event says so. The clocks are tests/unit/sandbox/test_grants.c's."""
import datetime

import pytest

from world import expect
from world.guarded import guarded
from world.sidecar import policy, wait_for


def in_seconds(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).isoformat()


def grant(target, seconds, **more):
    return {"action": "allow", "target": target, "until": in_seconds(seconds), **more}


def grants(box):
    return {g["target"]: g["secondsLeft"] for g in box.send("GET", "/status").json()["grants"]}


@pytest.mark.parametrize("product, verify", [("run", "tls"), ("sidecar", "dns"), ("netns", "tls"), ("cgroup", "dns")])
def test_a_flow_is_cut_when_its_rule_ends(world, product, verify):
    site, other = (world.site(f"grant{world.number()}.test") for _ in range(2))
    always, bare = {"action": "allow", "target": other.name, "ports": [7007]}, world.address()
    with guarded(world, product, policy(always, verify=verify)) as box:
        expect.name_refused(box.probe(["dns", site.name]))
        box.assert_silent()
        box.change(policy(grant(site.name, 3600, ports=[7007]), grant(bare, 3600), always, verify=verify))
        left = grants(box)
        assert left.keys() == {site.name, bare} and all(3500 < seconds <= 3600 for seconds in left.values()), left
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name]))
        flow, direct, stays = box.flow(site.v4), box.flow(bare), box.flow(other.v4)
        assert [f.say() for f in (flow, direct, stays)] == ["got"] * 3
        # on a slow machine the change itself cuts it
        box.change(policy(grant(site.name, 1, ports=[7007]), grant(bare, 1), always, verify=verify))
        wait_for(lambda: not grants(box), 60, 0.1)
        wait_for(lambda: flow.say() != "got" and direct.say() != "got")
        expect.name_refused(box.probe(["dns", site.name]))
        box.assert_silent()
        for address in (site.v4, bare):
            expect.tcp_refused(box.probe(["tcp", address, 7007]))
            assert not box.packets
        assert stays.say() == "got"
        if product == "run":
            wait_for(lambda: {e["name"] for e in box.events("change") if "time of the rule is over" in e["reason"]}
                     == {site.name, bare})


def test_an_end_outlives_the_processes(world, pod, guarded):
    site, other = (world.site(f"grant{world.number()}.test") for _ in range(2))
    side = guarded(f"allow {other.name}")
    assert side.patch({"action": "allow", "target": site.name, "for": "1h"}).status == 200
    assert pod.probe(["dns", site.name]).addresses
    assert 3500 < side.get("/status").json()["grants"][0]["secondsLeft"] <= 3600
    until = side.get("/policy").json()["policy"]["egress"][0]["until"]
    old = {name: side.kill_child(name) for name in ("engine", "control")}
    for name, pid in old.items():
        side.wait_replaced(name, pid)
    assert side.get("/policy").json()["policy"]["egress"][0]["until"] == until
    assert pod.probe(["dns", site.name]).addresses
    # it ends while nobody looks, and whoever comes knows
    assert side.patch({"action": "allow", "target": site.name, "until": in_seconds(0.5)}).status == 200
    side.wait_replaced("engine", side.kill_child("engine"))
    wait_for(lambda: not pod.probe(["dns", site.name]).addresses)
    assert not pod.packets(dst=site.v4)
    assert pod.probe(["dns", other.name]).addresses
    # what has ended is left out of the next text
    assert side.patch({"action": "allow", "target": "more.test"}).status == 200
    assert [r["target"] for r in side.get("/policy").json()["policy"]["egress"]] == ["more.test", other.name]


def test_an_end_that_cannot_be_read_opens_nothing(world, pod, guarded):
    site, other = (world.site(f"grant{world.number()}.test") for _ in range(2))
    side = guarded(f"allow {other.name}")
    for rule in ({"until": "soon"}, {"until": 7}, {"for": "0s"}, {"for": "1y"}, {"for": "1h", "until": in_seconds(9)}):
        reply = side.call("PATCH", "/policy", [{"action": "allow", "target": site.name, **rule}])
        assert reply.status == 400, (rule, reply)
    assert side.call("PATCH", "/policy", [{"action": "deny", "target": site.name, "for": "1h"}]).status == 400
    assert not pod.probe(["dns", site.name]).addresses and not pod.queries(site.name)
    assert pod.probe(["dns", other.name]).addresses


def test_an_address_rule_that_ends_while_a_run_starts_fails_nothing(world, tmp_path):
    """At some moment of the start: the launch child, the engine and the check of the filter have to mean the same one."""
    path = tmp_path / "policy.json"
    for ms in range(4, 64, 2):
        path.write_text(policy(grant(world.address(), ms / 1000)))
        done = world.weir("run", "--policy", path, "--", "/bin/true")
        assert done.code == 0, (ms, done)
