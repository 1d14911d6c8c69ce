# SPDX-License-Identifier: Apache-2.0
"""The app lives next to it: in one network namespace, perhaps with one user id, and sees its ports and processes."""
import json
import os

import pytest

from world import expect
from world.sidecar import API_PORT, DNS_PORT, RELAY_PORT, SIDE_UID, policy, wait_for

BIND = """
import json, socket, sys
out = {}
for word in sys.argv[1:]:
    kind, address, port = word.split("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        s.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        s.bind((address, int(port)))
        if kind == "tcp": s.listen()
        out[word] = "bound"
    except OSError as e:
        out[word] = e.errno
    s.close()
print(json.dumps(out))
"""


@pytest.mark.parametrize("uid", [0, 1000, SIDE_UID])
def test_no_socket_of_its_own_can_be_doubled(pod, uid):
    """Not even by who has its user id and asks for the port to be shared."""
    pod.sidecar(mode="dns+nft+tls", rules=policy(), uid=SIDE_UID)
    wanted = [f"{kind}/{address}/{port}" for kind, port in (("tcp", API_PORT), ("tcp", DNS_PORT), ("udp", DNS_PORT),
                                                            ("tcp", RELAY_PORT))
              for address in ("127.0.0.1", "0.0.0.0", "::1", "::")]
    got = json.loads(pod.run("/usr/bin/python3", "-c", BIND, *wanted, uid=uid).text)
    assert set(got.values()) == {98}, got


def test_whoever_has_its_user_id_reads_nothing_of_it(pod):
    side = pod.sidecar(uid=SIDE_UID, token="a-very-secret-token", rules=policy())
    for pid in (side.pid, *side.children().values()):
        answers = pod.probe(["read", f"/proc/{pid}/environ"], ["listdir", f"/proc/{pid}/fd"], ["steal", pid],
                            ["write", f"/proc/{pid}/mem"], uid=SIDE_UID)
        for answer in answers:
            assert answer.result in ("EACCES", "EPERM"), (pid, dict(answer))


def test_whoever_has_its_user_id_can_end_it_and_gains_nothing(pod, site):
    """One process namespace and one user id, which the documentation advises against."""
    side = pod.sidecar(uid=SIDE_UID, rules=policy(f"allow {site.name}"))
    pod.probe(["dns", site.name])
    for pid in (*side.children().values(), side.pid):
        pod.probe(["kill", pid, 9], uid=SIDE_UID)
    wait_for(lambda: side.process.poll() is not None)
    four, dns = pod.probe(["tcp", "93.9.9.9", 443], ["udp", "8.8.8.8", 53, "x"], uid=SIDE_UID)
    expect.tcp_refused(four)
    assert pod.packets() == [] and not [p for p in pod.capture.packets() if p.dst == "8.8.8.8"]


def test_a_dead_sidecars_ports_in_other_hands(pod, guarded, site):
    """The app may take the DNS port then. It answers itself; the filter learns nothing from that."""
    guarded(f"allow {site.name}").process.kill()
    wait_for(lambda: pod.probe(["bind", DNS_PORT, "127.0.0.1"]).result == "ok")
    program = ("import socket\ns=socket.socket(2,2); s.bind(('127.0.0.1',15353)); print('up',flush=True)\n"
               "while 1:\n d,p=s.recvfrom(999)\n"
               " s.sendto(d[:2]+b'\\x81\\x80'+d[4:6]+b'\\0\\1\\0\\0\\0\\0'+d[12:d.index(b'\\0',12)+5]+"
               "b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4\\x5d\\x09\\x09\\x09',p)\n")
    server = pod.start("/usr/bin/python3", "-c", program)
    assert server.line() == "up"
    lookup, tcp = pod.probe(["dns", "evil.test", {"edns": False}], ["tcp", "93.9.9.9", 443])
    assert lookup.addresses == ["93.9.9.9"]
    expect.tcp_refused(tcp)
    # and no sidecar starts beside it, which would be healthy without being asked
    again = pod.sidecar(rules=policy(f"allow {site.name}"), ready=False)
    assert again.ended() != 0 and str(DNS_PORT) in str(again)
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))


def test_no_abstract_socket_is_there_for_the_app(pod, guarded):
    """Abstract unix sockets belong to the network namespace, which is shared."""
    guarded()
    names = [line.split()[-1] for line in pod.run("/bin/cat", "/proc/net/unix").text.splitlines()[1:]
             if len(line.split()) > 7]
    assert not [n for n in names if n.startswith("@")], names


CROWD = """
import socket, sys, time
held = []
for i in range(int(sys.argv[1])):
    s = socket.socket(); s.settimeout(0.5)
    try:
        s.bind((f"127.0.{i % 200}.{i // 200 + 1}", 0)); s.connect(("127.0.0.1", 18080))
        if i % 2: s.sendall(b"GET /policy HTTP/1.1\\r\\nHost: x\\r\\n")
        held.append(s)
    except OSError: pass
print(len(held), flush=True)
sys.stdin.read()
"""


def test_a_crowd_at_the_api_keeps_nobody_out(pod, guarded, site):
    """From as many loopback addresses as it likes, half of a request each."""
    side = guarded(f"allow {site.name}")
    crowd = pod.start("/usr/bin/python3", "-c", CROWD, 600)
    assert int(crowd.line()) > 50
    for _ in range(3):
        assert side.get("/healthz", outside=True).status == 200
    assert side.call("PATCH", "/policy", [{"action": "allow", "target": "a.test"}], outside=True).status == 200
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


PING = """
import socket, struct, sys
for address in sys.argv[1:]:
    six = ":" in address
    try:
        s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM, 58 if six else 1)
        s.sendto(struct.pack("!BBHHH", 128 if six else 8, 0, 0, 1, 1) + b"LEAKED", (address, 0)); print("sent")
    except OSError as e: print(e.errno)
"""


def test_pings_carry_nothing_out(pod, guarded, site):
    """Docker lets everybody send them, by ping sockets."""
    pod.ns.sysctl(**{"ipv4/ping_group_range": "0 2147483647"})
    guarded(f"allow {site.name}")
    pod.probe(["dns", site.name])
    done = pod.run("/usr/bin/python3", "-c", PING, "93.9.9.9", "2a01:93::9:9")
    assert done.code == 0 and pod.packets() == [], done


def test_pings_are_no_way_past_a_budget_of_all_that_leaves(pod):
    """Nobody counts a ping, so none leaves; without such a budget pings pass where everything is open."""
    pod.ns.sysctl(**{"ipv4/ping_group_range": "0 2147483647"})
    side = pod.sidecar(rules=policy(default="allow"))
    done = pod.run("/usr/bin/python3", "-c", PING, "93.9.9.9", "2a01:93::9:9")
    assert done.text.split() == ["sent", "sent"] and pod.packets() != [], done
    assert side.call("POST", "/policy", policy(default="allow", limits={"sent_total": "1M"})).status == 200
    before = len(pod.packets())
    done = pod.run("/usr/bin/python3", "-c", PING, "93.9.9.9", "2a01:93::9:9")
    assert done.text.split()[0] != "sent" and pod.packets()[before:] == [], done  # of IPv6 the kernel says nothing


def test_data_in_first_packets_and_fragments_does_not_pass(pod, guarded):
    guarded()
    for probe in (["fast_open", "93.9.9.9", 443], ["big_datagram", "93.9.9.9", 443, 20000],
                  ["big_datagram", "2a01:93::9:9", 443, 20000], ["by_device", "93.9.9.9", 443]):
        pod.probe(probe)
    assert pod.packets() == []


def test_other_addresses_that_are_local_somewhere_do_not_pass(pod, guarded, world):
    """The link's other end, its neighbours, broadcast, mapped and odd spellings."""
    guarded()
    for address in (pod._gate4, pod._gate6, f"{pod.ip4.rsplit('.', 1)[0]}.77", f"{pod.ip4.rsplit('.', 1)[0]}.255",
                    "255.255.255.255", "169.254.169.254", "::ffff:93.9.9.9", "64:ff9b::5d09:909"):
        answer = pod.probe(["tcp", address, 443])
        assert answer.result != "ok", (address, dict(answer))
    assert [p for p in pod.packets() if p.proto in ("tcp", "udp")] == []


def test_metadata_stays_shut_under_allow_all(pod, guarded):
    guarded(default="allow")
    for address in ("169.254.169.254", "100.100.100.200", "168.63.129.16"):
        expect.tcp_refused(pod.probe(["tcp", address, 80]))
    expect.tcp_refused(pod.probe(["tcp", "fd00:ec2::254", 80]))
    assert not [p for p in pod.packets() if p.dst.startswith(("169.254", "100.100", "168.63", "fd00"))]


def test_an_app_that_changes_its_resolver_changes_nothing(pod, guarded, site, denied):
    guarded(f"allow {site.name}")
    pod.resolv_conf.write_text("nameserver 9.9.9.9\nnameserver 2620:fe::fe\noptions use-vc\n")
    good, bad = pod.probe(["lookup", site.name], ["lookup", denied.name])
    assert site.v4 in good.addresses
    expect.lookup_refused(bad)
    assert not [p for p in pod.capture.packets() if p.dst in ("9.9.9.9", "2620:fe::fe")]


def test_memory_and_descriptors_do_not_grow_with_what_the_app_does(pod, guarded, site):
    side = guarded(f"allow {site.name}")

    def use():
        total = 0
        for pid in (side.pid, *side.children().values()):
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        return total, sum(len(os.listdir(f"/proc/{p}/fd")) for p in (side.pid, *side.children().values()))
    pod.probe(["dns_flood", 2000, ".first.test"])
    before = use()
    pod.probe(["dns_flood", 20000, ".flood.test"], ["dns_connections", 100])
    wait_for(lambda: use()[1] <= before[1] + 4, step=0.2)
    after = use()
    assert after[0] < before[0] + 3000, (before, after)  # kB
    assert before[0] < 8 * 1024, f"{before[0]} kB"
