# SPDX-License-Identifier: Apache-2.0
"""One policy means the same in every product: the same answers, the same connections, the same rows about what was refused."""
import os
import random
import re
import time

import pytest

from world.guarded import PRODUCTS, guarded
from world.sidecar import policy, wait_for

ROUNDS = 3
PORTS = [None, None, [443], [80, 443], ["tcp/7007"], ["7000-7010"], ["udp/7007"], [443, "tcp/80"]]
UNLIMITED = {"queries_per_second": "unlimited", "events_per_second": "unlimited"}
# What tells one refusal from another, and doesn't depend on who asked and when.
COLUMNS = ("layer", "remote_ip", "remote_port", "protocol", "name", "rule", "reason")


class Sites:
    """Names and addresses of one round."""

    def __init__(self, world):
        n = world.number()
        self.top = f"top{n}.test"
        self.plain = [world.site(f"{word}{n}.test") for word in ("one", "two")]
        self.below = [world.site(f"{word}.{self.top}") for word in ("a", "b")]
        self.all = [*self.plain, *self.below]
        self.twin = f"twin{n}.test"     # at the addresses of the first
        world.dns.add(self.twin, self.plain[0].v4, self.plain[0].v6)
        self.private = f"private{n}.test"
        world.dns.add(self.private, "10.1.2.3", world.address6())
        self.stranger = world.address()

    def targets(self):
        yield from (s.name for s in self.all)
        yield from (f"*.{self.top}", f"**.{self.top}", self.twin, self.private)
        for site in self.plain:
            yield from (site.v4, site.v6, site.v4.rsplit(".", 1)[0] + ".0/24")


def rules(draw, sites):
    for target in draw.sample(list(sites.targets()), draw.randint(1, 6)):
        rule = {"action": draw.choice(["allow", "allow", "allow", "deny"]), "target": target}
        if rule["action"] == "allow":
            rule.update({"ports": draw.choice(PORTS), "raw": draw.random() < 0.2,
                         "private": target == sites.private and draw.random() < 0.5})
        yield {key: value for key, value in rule.items() if value}


def document(draw, sites):
    default = draw.choice(["deny", "deny", "deny", "allow"])
    return policy(*rules(draw, sites), default=default, verify=draw.choice(["tls", "dns"]), limits=UNLIMITED)


def probes(sites):
    """What doesn't reach the sandbox's own machine, and needs no UDP, which `weir run` has with an uplink alone."""
    names = [s.name for s in sites.all] + [sites.twin, sites.private, "nowhere.test"]
    for name in names:
        yield from (["dns", name], ["dns", name, "AAAA"], ["dns", name, "TXT"], ["dns", name, "A", {"transport": "tcp"}])
    for site in sites.all:
        for address in (site.v4, site.v6):
            yield from (["https", address, 443, site.name], ["https", address, 443, sites.twin], ["tcp", address, 7007, "hello"],
                        ["tcp", address, 80, f"GET / HTTP/1.1\r\nHost: {site.name}\r\n\r\n"],
                        ["tcp", address, 80, f"GET / HTTP/1.1\r\nHost: {sites.twin}\r\n\r\n"])
    for address in (sites.stranger, "10.1.2.3", "169.254.169.254"):
        yield from (["tcp", address, 443], ["tcp", address, 7007])
    yield from (["dns", sites.all[0].name, "A", sites.stranger], ["tcp", sites.stranger, 853])


def seen(answer):
    """What a program sees. A connection that ends without a byte may end with a reset as well."""
    result = {"reset": "closed", "EPIPE": "closed", "tls": "closed"}.get(answer["result"], answer["result"])
    return result, tuple(sorted(answer.get("addresses", ())))


def rows(box, wanted=None):
    """The refusals: once they are those that are @wanted, or no more of them come for a while."""
    known, quiet = None, 0
    while quiet < 10:
        found = {tuple(re.sub(r" \([^ ]*:1\)$", "", row[c]) if c == "reason" else row[c] for c in COLUMNS) for row in box.denies()}
        quiet = quiet + 1 if found == known else 0
        known = found
        if known == wanted:
            break
        time.sleep(0.4)
    return known


METADATA, RESOLVER = "169.254.169.254", "8.8.8.8"


@pytest.mark.parametrize("verify", ["tls", "dns"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_C6_a_rule_for_one_port_of_what_is_closed_by_default_opens_that_port(world, product, verify):
    """Under `defaultAction: allow`, which would open the others; a name that leads there opens none."""
    shut = [METADATA] if product == "sidecar" else [METADATA, RESOLVER]  # a sidecar closes no resolver unasked
    traps = {f"trap{world.number()}.test": a for a in shut}
    for trap, address in traps.items():
        world.dns.add(trap, address)
    rules = [{"action": "allow", "target": a, "ports": ["7007"]} for a in (METADATA, RESOLVER)]
    with guarded(world, product, policy(*rules, default="allow", verify=verify)) as box:
        opened = box.probe(*[["tcp", a, 7007, "hi"] for a in (METADATA, RESOLVER, "93.9.9.9")])
        assert [a.data for a in opened] == ["hi"] * 3, opened
        box.probe(*[["lookup", trap] for trap in traps])
        closed = box.probe(*[["tcp", a, p] for a in shut for p in (80, 443)], *[["udp", a, p, "x"] for a in shut for p in (80, 9999)],
                           *[["https", a, 443, trap] for trap, a in traps.items()],
                           *[["tcp", a, 80, f"GET / HTTP/1.1\r\nHost: {trap}\r\n\r\n"] for trap, a in traps.items()])
        assert [a.result for a in closed if a.result in ("ok", "sent")] == [], closed
        assert box.packets == [], box.packets
        wait_for(lambda: {(d["remote_ip"], d["remote_port"]) for d in box.denies()} >= {(a, p) for a in shut for p in (80, 443, 9999)})


@pytest.mark.parametrize("product", PRODUCTS)
def test_C6_a_rule_for_one_port_of_metadata_leaves_the_others_closed_to_a_range(world, product):
    rules = [{"action": "allow", "target": METADATA, "ports": ["7007"]}, {"action": "allow", "target": "169.254.0.0/16"}]
    with guarded(world, product, policy(*rules, verify="dns")) as box:
        opened = box.probe(["tcp", METADATA, 7007, "hi"])
        assert opened.data == "hi", opened
        closed = box.probe(["tcp", METADATA, 80], ["udp", METADATA, 80, "x"], ["udp", METADATA, 9999, "x"])
        assert [a.result for a in closed if a.result in ("ok", "sent")] == [], closed
        assert box.packets == [], box.packets


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_random_policy_decides_alike_everywhere(world, turn):
    seed = int(os.environ.get("WEIR_SEED", random.randrange(1 << 32)))
    draw, sites = random.Random(seed), Sites(world)
    text, asked = document(draw, sites), list(probes(sites))
    with guarded(world, "netns", text) as box:
        answers, refused = [seen(a) for a in box.probe(*asked)], rows(box)
    assert refused
    for product in PRODUCTS:
        if product == "netns":
            continue
        with guarded(world, product, text) as box:
            other = [seen(a) for a in box.probe(*asked)]
            others = rows(box, refused)
        differences = [(probe, a, b) for probe, a, b in zip(asked, answers, other) if a != b]
        assert not differences, f"seed {seed}, {product}, {text}: {differences}"
        differences = {"only there": sorted(others - refused, key=str), "only netns": sorted(refused - others, key=str)}
        assert not any(differences.values()), f"seed {seed}, {product}, {text}: {differences}"
