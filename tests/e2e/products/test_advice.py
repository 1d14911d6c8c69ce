# SPDX-License-Identifier: Apache-2.0
"""Whoever does what a refusal says lets that through: the same in every product. tests/unit/policy/test_advice.c has it for
policies and refusals without number; this is what the kernel and the relay make of it."""
import json

import pytest

from world import expect
from world.guarded import guarded
from world.sidecar import policy, wait_for


def advised(box, is_it):
    """What the refusal that @is_it is true of says."""
    found = []

    def look():
        found[:] = [d["allow"] for d in box.denies() if is_it(d)]
        return found
    wait_for(look)
    return found[-1]


def rules_of(world, option):
    done = world.weir("policy", "show", "--json", "--allow", option)
    assert done.code == 0, done
    return done.json()["egress"]


def in_front(world, document, option):
    """What a review that is accepted makes of the policy."""
    both = json.loads(document)
    both["egress"] = rules_of(world, option) + both["egress"]
    return json.dumps(both)


@pytest.fixture(name="box_of", params=["run", "sidecar", "cgroup"])
def fixture_box_of(request, world):
    def open_box(document, option=None):
        args = ("--allow", option) if option and request.param == "run" else ()
        text = in_front(world, document, option) if option and not args else document
        return guarded(world, request.param, text, args)
    return open_box


def test_a_port_besides_those_that_a_rule_lists(box_of, world, site):
    document = policy({"action": "allow", "target": f"**.{site.name}", "ports": [80]}, verify="dns")
    with box_of(document) as box:
        box.probe(["dns", site.name])
        expect.tcp_refused(box.probe(["tcp", site.v4, 7007]))
        assert not box.packets
        option = advised(box, lambda d: d["remote_ip"] == site.v4)
    assert option == f"{site.name}:80,tcp/7007"
    with box_of(document, option) as box:
        _, wanted, before, never = box.probe(["dns", site.name], ["tcp", site.v4, 7007, "hello"], ["tcp", site.v4, 80],
                                             ["tcp", site.v4, 7070])
        assert (wanted.result, before.result) == ("ok", "ok")
        expect.tcp_refused(never)


def test_bytes_without_a_name_on_a_port_that_no_rule_lists(box_of, world, site):
    document = policy({"action": "allow", "target": site.name}, verify="tls")
    with box_of(document) as box:
        _, refused = box.probe(["dns", site.name], ["tcp", site.v4, 7007, "hello"])
        assert refused.result != "ok"
        option = advised(box, lambda d: d["name"] == site.name)
    assert option == f"{site.name}:default,tcp/7007"
    with box_of(document, option) as box:
        _, wanted = box.probe(["dns", site.name], ["tcp", site.v4, 7007, "hello"])
        assert wanted.result == "ok"


def test_a_private_address_and_a_service(box_of, world):
    name, service = f"nas{world.number()}.test", f"_s._tcp.s{world.number()}.test"
    world.dns.add(name, "10.9.9.9")
    document = policy({"action": "allow", "target": name, "ports": [443]}, verify="dns")
    with box_of(document) as box:
        private, absent = box.probe(["dns", name], ["dns", service, "SRV"])
        expect.address_refused(private)
        expect.name_refused(absent)
        options = [advised(box, lambda d, n=n: d["name"] == n) for n in (name, service)]
    assert options == [f"{name}:443,private", f"{service}:SRV"]
    with box_of(document, options[0]) as box:
        found, still = box.probe(["dns", name], ["dns", service, "SRV"])
        assert found.result == "NOERROR"
        expect.name_refused(still)
    with box_of(document, options[1]) as box:
        still, _ = box.probe(["dns", name], ["dns", service, "SRV"])
        expect.address_refused(still)
        assert box.names == {name, service}


@pytest.mark.parametrize("verify", ["tls", "dns"])
def test_options_add_up(world, site, verify):
    """As advised: one more --allow, whatever was allowed before."""
    document = policy(verify=verify)
    first = ("--allow", site.name, "--allow", f"{site.name}:9418")
    with guarded(world, "run", document, first) as box:
        _, other = box.probe(["dns", site.name], ["tcp", site.v4, 9418])
        assert other.result != "timeout" and any(p.dport == 9418 for p in box.packets), (other, box.packets)
