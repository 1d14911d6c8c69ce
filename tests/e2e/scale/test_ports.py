# SPDX-License-Identifier: Apache-2.0
"""The machine's ports to a server are shared by all sandboxes and by the machine's own programs: here it has a hundred."""
import socket

import pytest

from world.expect import PATIENCE
from world.sidecar import policy

PORTS = 100
# Connections to an echo, one after the other, each ended by the client.
SPEND = """
import socket, sys
done = 0
for _ in range(int(sys.argv[2])):
    with socket.socket() as s:
        s.settimeout(10)
        try:
            s.connect((sys.argv[1], 7007)); s.send(b'x'); done += s.recv(1) == b'x'
        except OSError:
            pass
print(done, flush=True)
"""


@pytest.fixture
def guarded_two(host, pod, other, tmp_path):
    """Start a daemon that guards both: guarded_two(rule, …). Return: it."""
    host.ns.sysctl(ipv4__ip_local_port_range=f"40000 {40000 + PORTS - 1}")

    def start(*rules):
        daemon, file = host.daemon(), tmp_path / "policy.json"
        file.write_text(policy(*rules, verify="tls"))
        for name, place in (("one", pod), ("two", other)):
            daemon.attach(name, place, "--policy", file)
        return daemon
    return start


def test_one_sandbox_leaves_others_ports_to_a_server(guarded_two, host, pod, other, world, site):
    """What it ends first rests for a minute, as everywhere; it may not have them all."""
    far = world.site(f"far-{world.number()}.test")
    daemon = guarded_two(*({"action": "allow", "target": s.name, "ports": [7007]} for s in (site, far)))
    for place in (pod, other):
        assert place.probe(["dns", site.name]).addresses == [site.v4]
    spent = pod.run("/usr/bin/python3", "-ISc", SPEND, site.v4, PORTS + 50, timeout=120)
    assert int(spent.text) == PORTS // 2, spent
    assert daemon.status("one")["counters"]["flows_limited"] == PORTS + 50 - PORTS // 2
    assert other.probe(["tcp", site.v4, 7007, "hello"]).result == "ok"
    with host.ns.socket(socket.AF_INET, socket.SOCK_STREAM) as own:  # a program of the machine's own
        own.settimeout(PATIENCE)
        own.connect((site.v4, 7007))
    assert pod.probe(["dns", far.name], ["tcp", far.v4, 7007, "hello"])[1].result == "ok"


def test_what_is_asked_by_tcp_takes_no_port_from_others(guarded_two, pod, other, world):
    """Each answer that was truncated is fetched over a connection of its own, by Weir."""
    below, address = f"cut-{world.number()}.test", world.address()

    def answer(query):
        reply = query.answer(address)
        if not query.tcp:
            reply.flags |= 0x0200
            reply.answer.clear()
        return reply
    world.dns.on(f"*.{below}", answer)
    guarded_two({"action": "allow", "target": f"*.{below}", "unmetered": True})
    pod.probe(*[["dns", f"n{i}.{below}"] for i in range(PORTS + 50)])
    assert sum(query.tcp for query in world.dns.queries(f"*.{below}")) >= PORTS
    assert other.probe(["dns", f"other.{below}"]).addresses == [address]
