# SPDX-License-Identifier: Apache-2.0
"""Limits: what programs do at once meets none of the defaults, and what is over one is counted to the last."""
import json

import pytest

PYTHON = ("/usr/bin/python3", "-IS", "-c")

# Questions for one name, so many on the way at a time, and how many were answered.
ASK = """
import select, socket, struct, sys
name, count, window = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0'
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('127.0.0.1', 53))
sent, codes = 0, {}
while sum(codes.values()) < count:
    while sent < count and sent - sum(codes.values()) < window:
        s.send(struct.pack('!6H', sent & 65535, 256, 1, 0, 0, 0) + labels + struct.pack('!2H', 1, 1))
        sent += 1
    if not select.select([s], [], [], 30)[0]:
        break
    code = s.recv(4096)[3] & 15
    codes[code] = codes.get(code, 0) + 1
print(codes.get(0, 0), codes.get(2, 0))
"""

# Connections that are opened all at once, and how many were echoed to.
DIAL = """
import resource, select, socket, sys
name, count = sys.argv[1], int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
address = socket.getaddrinfo(name, 7007, socket.AF_INET)[0][4]
waiting, echoed, poll = {}, 0, select.epoll()
for i in range(count):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(address)
    waiting[s.fileno()] = s
    poll.register(s, select.EPOLLOUT)
while waiting:
    for fd, event in poll.poll(60) or sys.exit('nothing comes: %d' % len(waiting)):
        s = waiting[fd]
        try:
            if event & select.EPOLLOUT and not event & select.EPOLLERR:
                s.send(b'x')
                poll.modify(fd, select.EPOLLIN)
                continue
            echoed += s.recv(1) == b'x'
        except OSError:
            pass
        poll.unregister(fd)
        waiting.pop(fd).close()
print(echoed)
"""


def report(world, *argv, **rest):
    file = world.workdir() / "report.json"
    done = world.run(*PYTHON, *argv, options=(*rest.pop("options", ()), "--report", file), timeout=120, **rest)
    assert done.code == 0, done
    return done, json.loads(file.read_text())


def test_many_lookups_at_once_meet_no_limit(world):
    site = world.site(f"many-{world.number()}.test")
    done, said = report(world, ASK, site.name, "8000", "100", allow=(site.name,))
    assert done.text.split() == ["8000", "0"], done
    assert said["counters"].get("queries_limited", 0) == 0 and said["refusals"] == []


def test_two_thousand_connections_at_once_meet_no_limit(world):
    site = world.site(f"many-{world.number()}.test")
    done, said = report(world, DIAL, site.name, "2000", allow=(f"{site.name}:7007",))
    assert done.text.strip() == "2000", done
    assert said["counters"].get("flows_limited", 0) == 0 and said["refusals"] == []


def test_connections_over_the_rate_wait_for_their_turn(world):
    site = world.site(f"many-{world.number()}.test")
    policy = world.workdir() / "policy.yaml"
    policy.write_text(f"egress: [{{action: allow, target: {site.name}, ports: [7007]}}]\n"
                      "limits: {new_flows_per_second: 50}\n")
    done, said = report(world, DIAL, site.name, "90", options=("--policy", policy))
    assert done.text.strip() == "90" and said["refusals"] == [], done


@pytest.mark.parametrize("what, limits, argv", [
    ("queries_per_second", "queries_per_second: 10, queries_burst: 10", (ASK, "700", "50")),
    ("new_flows_per_second", "new_flows_per_second: 10", (DIAL, "400")),
    ("flows", "flows: 10", (DIAL, "300")),
])
def test_what_is_over_a_limit_is_counted_exactly(world, what, limits, argv):
    site = world.site(f"many-{world.number()}.test")
    policy = world.workdir() / "policy.yaml"
    policy.write_text(f"egress: [{{action: allow, target: {site.name}, ports: [7007]}}]\nlimits: {{{limits}}}\n")
    done, said = report(world, argv[0], site.name, *argv[1:], options=("--policy", policy))
    served, asked = int(done.text.split()[0]), int(argv[1])
    found = [r for r in said["refusals"] if r["limit"] == what]
    assert 0 < served < asked
    assert sum(r["times"] for r in found) == asked - served, (done, said["counters"])
    assert len(said["refusals"]) == 1 and what in (found[0]["reason"] if what[0] == "q" else what)


def test_many_names_of_one_address_are_all_known(world):
    below, address = f"shared{world.number()}.test", world.address()
    world.dns.add(f"*.{below}", address)
    script = f"""
import socket, ssl
names = ['n%d.{below}' % i for i in range(80)]
for n in names: socket.getaddrinfo(n, 443, socket.AF_INET)
for n in names:
    with socket.create_connection(('{address}', 443), 10) as s:
        ssl._create_unverified_context().wrap_socket(s, server_hostname=n).close()
print('all')
"""
    done, said = report(world, script, allow=(f"*.{below}:443",))
    assert done.text.strip() == "all" and said["refusals"] == [], done
