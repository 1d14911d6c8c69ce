# SPDX-License-Identifier: Apache-2.0
"""A rule whose budget is used up, in each product: its flows are cut, and what it allows is refused, until the period is over.
The arithmetic is tests/unit/sandbox/test_budgets.c's."""
import os
import signal
import time

import pytest

from world import expect
from world.guarded import guarded
from world.sidecar import policy, wait_for

WORD = "x" * 499  # and a newline


def rule(target, **budget):
    return {"action": "allow", "target": target, "ports": ["tcp/7007"], **({"budget": budget} if budget else {})}


def sent_to(box, address, since=0):
    return sum(len(p.payload) for p in box.capture.packets()[since:] if p.dst == address and p.dport == 7007)


@pytest.mark.parametrize("product, verify", [("run", "tls"), ("sidecar", "dns"), ("netns", "tls"), ("cgroup", "dns")])
def test_who_has_used_it_up_is_cut(world, product, verify):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    with guarded(world, product, policy(rule(site.name, sent=2000, per="1h"), rule(other.name), verify=verify)) as box:
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name]))
        flow, stays = box.flow(site.v4), box.flow(other.v4)
        assert (flow.say(), stays.say()) == ("got", "got")
        wait_for(lambda: flow.say(WORD) != "got", step=0.1)  # the kernel's counters are read once a second
        if product == "run":
            assert 1500 < sent_to(box, site.v4) <= 2000
        wait_for(lambda: not box.probe(["dns", site.name]).addresses)
        expect.name_refused(box.probe(["dns", site.name]))
        box.assert_silent()
        expect.tcp_refused(box.probe(["tcp", site.v4, 7007]))
        assert not box.packets
        assert stays.say(WORD) == "got"
        wait_for(lambda: any("budget of the rule is used up" in d["reason"] for d in box.denies() if d["name"] == site.name))
        # another text of the same rule doesn't begin anew
        box.change(policy(rule(site.name, sent=2000, per="1h"), rule(other.name), verify=verify, limits={"flows": 99}))
        expect.name_refused(box.probe(["dns", site.name]))
        box.change(policy(rule(site.name, sent=200000, per="1h"), rule(other.name), verify=verify))
        assert box.probe(["dns", site.name]).addresses


def test_what_has_passed_counts_on_with_another_engine(world):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    with guarded(world, "sidecar", policy(rule(site.name, sent=2000), rule(other.name), verify="tls")) as box:
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name]))
        flow = box.flow(site.v4)
        wait_for(lambda: flow.say(WORD) != "got")
        os.kill(box.send.__self__.child("engine"), signal.SIGKILL)
        wait_for(lambda: box.probe(["dns", other.name]).get("addresses"))
        expect.name_refused(box.probe(["dns", site.name]))
        box.assert_silent()
        expect.tcp_refused(box.probe(["tcp", site.v4, 7007]))
        assert 1500 < sent_to(box, site.v4) <= 2000


@pytest.mark.parametrize("product", ["sidecar", "netns", "cgroup"])
def test_what_has_passed_while_no_engine_was_there_counts(world, product):
    """The kernel lets open flows go on, and counts."""
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    with guarded(world, product, policy(rule(site.name, sent=20000), rule(other.name), verify="dns")) as box:
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name]))
        flow = box.flow(site.v4)
        assert flow.say() == "got"
        engine = box.boss.children()["engine"]
        os.kill(engine, signal.SIGSTOP)
        assert [flow.say(WORD) for _ in range(50)] == ["got"] * 50  # 25,000 bytes
        os.kill(engine, signal.SIGKILL)
        wait_for(lambda: box.probe(["dns", other.name]).get("addresses"))
        wait_for(lambda: not box.probe(["dns", site.name]).get("addresses"))
        expect.tcp_refused(box.probe(["tcp", site.v4, 7007]))
        assert flow.say(WORD) != "got"


def test_what_has_passed_counts_on_when_a_cgroup_is_made_again(world):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    with guarded(world, "cgroup", policy(rule(site.name, sent=2000), rule(other.name), verify="dns")) as box:
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name]))
        flow = box.flow(site.v4)
        wait_for(lambda: flow.say(WORD) != "got", step=0.1)
        wait_for(lambda: not box.probe(["dns", site.name]).addresses)
        flow.close()
        box.app.cgroup.make_again()
        wait_for(lambda: box.probe(["dns", other.name]).get("addresses"))
        expect.name_refused(box.probe(["dns", site.name]))
        box.assert_silent()
        expect.tcp_refused(box.probe(["tcp", site.v4, 7007]))


def test_an_open_flow_pays_on_where_its_rule_has_another_number(world):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    with guarded(world, "sidecar", policy(rule(site.name, sent=4000), verify="tls")) as box:
        assert box.probe(["dns", site.name]).addresses
        flow = box.flow(site.v4)
        assert flow.say(WORD) == "got"
        box.change(policy(rule(other.name), rule(site.name, sent=4000), verify="tls"))
        assert flow.say(WORD) == "got"
        wait_for(lambda: flow.say(WORD) != "got")
        assert 3000 < sent_to(box, site.v4) <= 4000


@pytest.mark.parametrize("product", ["run", "netns", "cgroup"])  # no sidecar pins names
def test_a_budget_that_begins_anew_asks_for_no_pinned_name(world, product):
    """Name servers would hear when a sandbox has sent how much, and be asked for all names as often as it likes."""
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    document = policy(rule(site.name, sent=2000, per="5s"), rule(other.name), dns="pinned", verify="tls")
    with guarded(world, product, document) as box:
        wait_for(lambda: all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name])))
        before = world.dns.count(site.name), world.dns.count(other.name)
        for _ in range(2):
            flow = box.flow(site.v4)
            wait_for(lambda: flow.say(WORD) != "got", step=0.1)
            wait_for(lambda: not box.probe(["dns", site.name]).addresses, step=0.1)
            # the address is open again without a query
            wait_for(lambda: box.probe(["tcp", site.v4, 7007]).result == "ok", step=0.2)
            assert box.probe(["dns", site.name]).addresses == [site.v4]
        assert (world.dns.count(site.name), world.dns.count(other.name)) == before


@pytest.mark.parametrize("product", ["sidecar", "netns"])
def test_budgets_that_end_together_are_few_changes(world, product):
    """A change of the filter takes the engine milliseconds, and a sandbox with many budgets could bring about one after the other."""
    sites = [world.site(f"budget{world.number()}.test") for _ in range(24)]
    with guarded(world, product, policy(*(rule(s.name, sent=100, per="1h") for s in sites), verify="tls")) as box:
        def changes():
            return box.send("GET", "/status").json()["generation"]

        assert all(a.addresses for a in box.probe(*(["dns", s.name] for s in sites)))
        before, began = changes(), time.monotonic()
        box.probe(*(["tcp", s.v4, 7007, WORD] for s in sites))
        wait_for(lambda: not any(a.addresses for a in box.probe(*(["dns", s.name] for s in sites))), step=0.1)
        took = time.monotonic() - began
        wait_for(lambda: changes() > before)
        assert changes() - before <= 1 + took / 0.25


@pytest.mark.parametrize("product", ["sidecar", "netns"])
def test_where_not_everything_can_be_counted_it_is_used_up(world, product):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    wide = {"action": "allow", "target": "93.70.0.0/20"}
    with guarded(world, product, policy(rule(site.name, sent="100M"), rule(other.name), wide, verify="dns")) as box:
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", other.name]))
        flow = box.flow(site.v4)
        assert flow.say() == "got"
        # more destinations than the kernel's set holds: the flow's own may be none of them
        box.probe(*(["udp", f"93.70.{i // 250}.{i % 250}", 9, {"wait": 0}] for i in range(1100)))
        wait_for(lambda: flow.say() != "got", step=0.1)
        expect.name_refused(box.probe(["dns", site.name]))
        assert box.probe(["dns", other.name]).addresses
        wait_for(lambda: any("budget of the rule is used up" in d["reason"] for d in box.denies() if d["name"] == site.name))


@pytest.mark.parametrize("product", ["sidecar", "cgroup"])
def test_a_flow_that_outlives_what_opened_it_pays_on(world, product):
    """The name is looked up once; its address is closed to new connections when the flow sends what uses the budget up."""
    site = world.site(f"budget{world.number()}.test", ttl=1)
    short = {"min_lifetime": 1, "grace": 1}
    with guarded(world, product, policy(rule(site.name, sent=40000), verify="dns", limits=short)) as box:  # more than the probes below take
        assert box.probe(["dns", site.name]).addresses
        flow = box.flow(site.v4)
        assert flow.say() == "got"
        wait_for(lambda: box.probe(["tcp", site.v4, 7007]).result != "ok", step=0.2)
        assert flow.say() == "got"
        wait_for(lambda: [flow.say(WORD) for _ in range(20)][-1] != "got", step=0.1)
        expect.name_refused(box.probe(["dns", site.name]))


@pytest.mark.parametrize("product", ["sidecar", "cgroup"])
def test_each_name_of_an_address_pays(world, product):
    """The kernel can't tell them apart: here the last one that was looked up has no budget."""
    site, other, third = (world.site(f"budget{world.number()}.test") for _ in range(3))
    world.dns.add(other.name, site.v4)
    world.dns.add(third.name, site.v4)
    port = {**rule(third.name, sent=100), "ports": ["tcp/7008"]}
    with guarded(world, product, policy(rule(site.name, sent=2000), rule(other.name), port, verify="dns")) as box:
        assert all(a.addresses for a in box.probe(["dns", site.name], ["dns", third.name], ["dns", other.name]))
        flow = box.flow(site.v4)
        wait_for(lambda: flow.say(WORD) == "got" and not box.probe(["dns", site.name], ["dns", other.name])[0].addresses, step=0.1)
        assert flow.say() == "got"  # the other name still opens the address
        assert all(a.addresses for a in box.probe(["dns", other.name], ["dns", third.name]))


def test_what_comes_back_has_a_budget_and_so_has_all_that_leaves(world):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    told = rule(other.name, sent=100, action="event")
    with guarded(world, "run", policy(rule(site.name, received=1000), told, limits={"sent_total": "4K"})) as box:
        box.probe(["dns", site.name], ["dns", other.name])
        flow, stays = box.flow(site.v4), box.flow(other.v4)
        wait_for(lambda: flow.say(WORD) != "got")
        assert [stays.say(WORD) for _ in range(3)] == ["got"] * 3  # it is told of, and cut by nothing
        wait_for(lambda: {e["name"] for e in box.events("change") if "budget of the rule" in e["reason"]}
                 == {site.name, other.name})
        wait_for(lambda: stays.say(WORD) != "got")
        assert sent_to(box, site.v4) + sent_to(box, other.v4) <= 4096
        expect.name_refused(box.probe(["dns", other.name]))
        box.assert_silent()


def test_what_comes_back_has_a_budget_only_where_the_relay_carries_it(world, tmp_path):
    path = tmp_path / "policy.json"
    for verify, ports, why in (("tls", ["tcp/443"], ""), ("dns", ["tcp/443"], "needs verify: tls"), ("tls", [443], "TCP alone"),
                               ("tls", ["tcp/443", "udp/443"], "TCP alone"), ("tls", None, "TCP alone")):
        path.write_text(policy({"action": "allow", "target": "a.test", "budget": {"received": 5}, **({"ports": ports} if ports else {})}, verify=verify))
        done = world.weir("policy", "check", path)
        assert done.code == (2 if why else 0) and why in done.messages, done
    path.write_text(policy(rule("a.test", received=5)))
    done = world.weir("run", "--verify", "dns", "--policy", path, "--", "/bin/true")
    assert done.code == 2 and "needs verify: tls" in done.messages, done


def test_a_budget_that_cannot_be_read_opens_nothing(world, pod, guarded):
    site, other = (world.site(f"budget{world.number()}.test") for _ in range(2))
    side = guarded(f"allow {other.name}")
    for budget in ({}, {"sent": 0}, {"sent": "20MB"}, {"sent": -1}, {"sent": "1M", "per": "0s"}, {"sent": "1M", "action": "ask"},
                   {"sent": "1M", "from": 1}, 7, {"received": "1M"}):
        reply = side.call("PATCH", "/policy", [{"action": "allow", "target": site.name, "budget": budget}])
        assert reply.status == 400, (budget, reply)
    assert side.call("PATCH", "/policy", [{"action": "deny", "target": site.name, "budget": {"sent": 1}}]).status == 400
    assert not pod.probe(["dns", site.name]).addresses and not pod.queries(site.name)
    assert pod.probe(["dns", other.name]).addresses
