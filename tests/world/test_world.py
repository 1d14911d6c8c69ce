# SPDX-License-Identifier: Apache-2.0
"""The world tested by itself: what it offers works from the host namespace."""
import json
import subprocess
import time

import pytest

from world import World
from world.expect import PATIENCE
from world.run import read_answers
from world.world import ECHO_PORT, HOST4, HOST6, METADATA4, RESOLVER4, RESOLVER6


def on_host(world, *probes):
    argv = ["/usr/bin/python3", "-IS", str(world.tools / "probe.pyc")]
    done = world.command(*argv, input=json.dumps(probes).encode())
    return read_answers(done, len(probes))


@pytest.mark.parametrize("server", [RESOLVER4, RESOLVER6, "8.8.8.8"])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_any_address_answers_dns(world, site, server, transport):
    a, aaaa, missing = on_host(
        world, ["dns", site.name, "A", server, transport],
        ["dns", site.name, "AAAA", server, transport], ["dns", "missing.test", "A", server, transport])
    assert a.addresses == [site.v4] and aaaa.addresses == [site.v6]
    assert missing.result == "NXDOMAIN"
    assert [q.server for q in world.dns.queries(site.name)] == [server, server]


def test_a_function_answers_and_may_be_slow_silent_or_spoofed(world):
    address = world.address()
    world.dns.on("slow.test", lambda q: time.sleep(0.2) or q.answer(address))
    world.dns.on("silent.test", lambda q: None)
    world.dns.on("spoof.test", lambda q: q.send(q.answer(address).to_wire(), source="93.66.6.6"))
    slow, spoof, silent = on_host(world, ["dns", "slow.test", "A", RESOLVER4],
                                  ["dns", "spoof.test", "A", RESOLVER4],
                                  ["dns", "silent.test", "A", RESOLVER4])
    assert slow.addresses == [address] and slow.ms >= 200
    assert spoof.server == "93.66.6.6"
    assert silent.result == "timeout"


def test_a_cname_leads_to_its_addresses(world, site):
    world.dns.add("alias.test", cname=site.name)
    (answer,) = on_host(world, ["dns", "alias.test", "A", RESOLVER4])
    assert [a[0] for a in answer.answers] == ["CNAME", "A"] and answer.addresses == [site.v4]


def test_web_servers_say_how_they_were_reached(world, site):
    for url in (f"http://{site.name}/", f"https://{site.name}/", f"https://{site.name}:8443/"):
        done = world.command("curl", "-sS", "-4", url, resolv_conf=True)
        assert done.code == 0, done
        seen = done.json()
        assert seen["host"] == site.name and seen["address"] == site.v4
        assert seen["sni"] == (site.name if url.startswith("https") else None)


def test_web_servers_have_ipv6_and_addresses_as_names(world, site):
    done = world.command("curl", "-sS", f"https://[{site.v6}]/", f"https://{site.v4}/")
    assert done.code == 0 and site.v6 in done.text and site.v4 in done.text, done


def test_metadata_is_served_on_the_internet_side(world):
    done = world.command("curl", "-sS", f"http://{METADATA4}/latest/")
    assert done.json()["address"] == METADATA4


@pytest.mark.parametrize("address", ["93.1.2.3", "2a01:93::ffff:1", "10.1.2.3", "192.168.77.5"])
def test_echo_answers_everywhere(world, address):
    tcp, udp = on_host(world, ["tcp", address, ECHO_PORT, "abc"], ["udp", address, ECHO_PORT, "def", PATIENCE / 2])
    assert tcp.data == "abc" and udp.data == "def"


def test_a_capture_counts_what_arrives_and_nothing_else(world):
    address = world.address()
    with world.capture() as capture:
        assert capture.count() == 0
        on_host(world, ["udp", address, ECHO_PORT, "one"], ["tcp", address, ECHO_PORT])
        assert [p.payload for p in capture.packets(proto="udp", dst=address)] == [b"one"]
        assert capture.count(lambda p: p.flags == 2, proto="tcp", dst=address) == 1
        assert {p.src for p in capture.packets()} == {HOST4}


def test_a_silent_link_stays_silent():
    """Kernels say nothing by themselves but which groups they have joined, and that is no packet here."""
    with World() as fresh, fresh.capture() as capture:
        assert capture.packets(settle=0.5) == []


def test_the_host_is_reachable_from_the_internet(world):
    with world.tcp(4444, where=world.host) as service:
        for address in (HOST4, HOST6):
            done = subprocess.run(world.internet.command("nc", "-z", "-w20", address, "4444"),
                                  check=False)
            assert done.returncode == 0
        time.sleep(0.05)
        assert len(service.connections) == 2


def test_git_is_served(world, site):
    world.repository()
    done = world.command("git", "clone", "-q", f"https://{site.name}/git/tree.git", resolv_conf=True)
    assert done.code == 0, done
