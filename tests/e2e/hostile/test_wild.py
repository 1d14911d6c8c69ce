# SPDX-License-Identifier: Apache-2.0
"""Packets that no program sends, from an app with NET_RAW: not one of them leaves."""
import random

import pytest

from world import expect
from world.sidecar import Pod
from world.world import RESOLVER4, RESOLVER6

WILD = f"{__file__.rpartition('/')[0]}/../../world/app_wild.py"
MARKER = "LEAKED-BY-THE-APP"
COUNT = 4000


def places(pod, site):
    """Denied addresses, resolvers, an allowed address on ports that its rule leaves out, the link, groups."""
    return ["93.9.9.9", "8.8.8.8", RESOLVER4, site.v4, pod._gate4, "224.0.0.251", "169.254.169.254", "127.0.0.1",
            pod.ip4, f"{pod.ip4.rsplit('.', 1)[0]}.255", "2a01:93::9:9", RESOLVER6, site.v6, pod._gate6, "ff02::1",
            "fe80::1", "::1", pod.ip6]


def wild(pod, site, seed, **options):
    done = pod.run("/usr/bin/python3", "-IS", WILD, seed, COUNT, MARKER, pod.ip4, pod.ip6, *places(pod, site),
                   caps=("net_raw",), timeout=120, **options)
    assert done.code == 0, done
    return int(done.text)


def leaked(pod):
    """Whatever has the marker, noise by its type or not."""
    pod.capture.packets(settle=0.1)
    return [p for p in pod.capture._seen if MARKER.encode() in p.payload]


def test_without_a_sidecar_they_leave(world, site):
    with Pod(world) as pod:
        assert wild(pod, site, 1, uid=0) > COUNT / 4 and len(leaked(pod)) > COUNT / 10


@pytest.mark.parametrize("mode", ["dns+nft", "dns+nft+tls"])
@pytest.mark.parametrize("uid", [0, 1000])
def test_no_packet_that_was_made_by_hand_leaves(pod, guarded, site, mode, uid):
    side = guarded({"action": "allow", "target": site.name, "ports": [9999]}, mode=mode)
    pod.probe(["dns", site.name], ["dns", site.name, "AAAA"])
    seed = random.randrange(1 << 30)
    wild(pod, site, seed, uid=uid)
    assert leaked(pod) == [], f"seed {seed}"
    # and nothing of it broke what is allowed
    assert side.get("/healthz").status == 200
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))


def test_mode_dns_keeps_its_resolvers_to_itself(pod, guarded, site):
    """There addresses are open; port 53 of anybody and Docker's resolver are not."""
    guarded(f"allow {site.name}", mode="dns")
    seed = random.randrange(1 << 30)
    wild(pod, site, seed, uid=0)
    assert [p for p in leaked(pod) if p.dport == 53 and p.proto in ("udp", "tcp")] == [], f"seed {seed}"
