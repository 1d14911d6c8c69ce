# SPDX-License-Identifier: Apache-2.0
"""The app attacks: other people's ports, marks, users, resolvers, tables and tokens."""
import json
import re
import socket
import threading

import dns.message
import dns.rrset
import pytest

from world import expect
from world.sidecar import DNS_PORT, RELAY_PORT, policy, wait_for
from world.world import RESOLVER4, RESOLVER6

MARKER = "LEAKED-BY-THE-APP"

SCAN_UDP = """
import errno, socket, sys
server, marker = sys.argv[1], sys.argv[2].encode()
family = socket.AF_INET6 if ":" in server else socket.AF_INET
bound = refused = 0
for port in range(1024, 65536):
    s = socket.socket(family, socket.SOCK_DGRAM)
    try:
        s.bind(("", port)); bound += 1
        s.sendto(marker, (server, 53))
    except OSError as e:
        refused += e.errno == errno.EPERM
    s.close()
print(bound, refused)
"""

SCAN_TCP = """
import socket, sys
server, marker, ports = sys.argv[1], sys.argv[2].encode(), sys.argv[3].split(",")
for port in ports:
    for reuse in (0, 1):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        s.settimeout(0.05)
        try:
            s.bind(("", int(port))); s.connect((server, 53)); s.sendall(marker)
        except OSError: pass
        s.close()
print("done")
"""


def leaked(pod):
    """Packets outside that carry the marker, or connections to a resolver that aren't the sidecar's."""
    return [p for p in pod.capture.packets() if MARKER.encode() in p.payload]


@pytest.mark.parametrize("server", [RESOLVER4, RESOLVER6])
def test_ports_that_its_own_queries_used_cannot_be_borrowed(pod, world, server):
    """Conntrack tuple reuse: 1,000 look-ups, then every source port towards the resolver, as an ordinary user."""
    base = f"tuple{world.number()}.test"
    world.site(f"*.{base}")
    rules = [f"allow n{i}.{base}" for i in range(1000)]
    pod.sidecar(rules=policy(*rules, limits={"queries_per_second": "unlimited"}),
                env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": server})
    for start in range(0, 1000, 100):
        pod.probe(*[["dns", f"n{start + i}.{base}"] for i in range(100)])
    asked = {q.port for q in world.dns.queries(f"*.{base}")}
    assert len(world.dns.queries(f"*.{base}")) > 900, "too few went out to prove anything"
    scan = pod.run("/usr/bin/python3", "-c", SCAN_UDP, server, MARKER, timeout=120)
    bound = int(scan.text.split()[0])
    assert bound > 60000, scan
    if server == RESOLVER4:
        pod.run("/usr/bin/python3", "-c", SCAN_TCP, server, MARKER, ",".join(map(str, sorted(asked)[:300])), timeout=120)
    assert leaked(pod) == []
    assert not [p for p in pod.capture.packets() if p.proto == "tcp" and p.dport == 53 and p.sport in asked]


def mark_of(pod):
    """The mark of Weir's own packets, as a rule of the table shows it."""
    found = re.findall(r"meta mark (0x[0-9a-f]+)", pod.nft("list", "table", "inet", "opensandbox"))
    assert found
    return int(found[0], 16)


IMITATE = """
import json, os, socket, sys
mark, targets = int(sys.argv[1]), sys.argv[2:]
out = []
for target in targets:
    address, port = target.rsplit("/", 1)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        s.settimeout(0.3)
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            s.connect((address, int(port))); s.send(b"LEAKED-BY-THE-APP")
            out.append("sent")
        except OSError as e:
            out.append(e.__class__.__name__ + str(e.errno))
        s.close()
print(json.dumps(out))
"""


@pytest.mark.parametrize("uid", [0, 65532])
def test_mark_and_uid_without_the_port_are_dropped_and_reported(pod, uid):
    """An app as root with Docker's default capabilities, NET_RAW and SETUID among them."""
    side = pod.sidecar(rules=policy(), uid=uid)
    targets = ["93.9.9.9/443", "8.8.8.8/53", f"{RESOLVER4}/53", f"{RESOLVER6}/53", "2a01:93::9:9/443"]
    done = pod.run("/usr/bin/python3", "-c", IMITATE, mark_of(pod), *targets, uid=uid,
                   caps=("net_raw", "setuid", "setgid", "chown", "dac_override"))
    assert len(json.loads(done.text)) == 2 * len(targets), done
    assert leaked(pod) == [] and pod.packets() == []
    assert not [p for p in pod.capture.packets() if p.proto == "tcp" and p.dport == 53]
    assert wait_for(lambda: [e for e in side.log() if "imitate" in json.dumps(e).lower()]), side


def test_without_net_raw_the_mark_cannot_be_set(pod, guarded):
    guarded()
    done = pod.run("/usr/bin/python3", "-c", IMITATE, mark_of(pod), "93.9.9.9/443", uid=0)
    assert json.loads(done.text) == ["PermissionError1"] * 2 and leaked(pod) == []


def test_a_port_that_it_holds_cannot_be_bound(pod, world, site):
    """A query hangs, so its port is held; the app, as root with the mark, wants it too."""
    release = threading.Event()
    world.dns.on(site.name, lambda q: release.wait(8) and None)
    pod.sidecar(rules=policy(f"allow {site.name}"))
    pod.probe_start(["dns", site.name])
    wait_for(lambda: world.dns.queries(site.name))
    held = world.dns.queries(site.name)[0].port
    program = ("import socket,sys\nout=[]\nfor fam,addr in ((2,''),(2,'127.0.0.1'),(2,sys.argv[3]),(10,'')):\n"
               " s=socket.socket(fam,socket.SOCK_DGRAM)\n"
               " s.setsockopt(1,2,1); s.setsockopt(1,15,1)\n"
               " try:\n  s.setsockopt(1,36,int(sys.argv[2])); s.bind((addr,int(sys.argv[1])))\n"
               f"  s.sendto(b'{MARKER}',('8.8.8.8' if fam==2 else '2001:4860:4860::8888',53)); out.append('sent')\n"
               " except OSError as e: out.append(e.errno)\nprint(out)\n")
    done = pod.run("/usr/bin/python3", "-c", program, held, mark_of(pod), pod.ip4, uid=0, caps=("net_raw", "setuid"))
    release.set()
    assert leaked(pod) == [], done


RAW = """
import socket, struct, sys
destination, source, sport, dport = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
payload = b"LEAKED-BY-THE-APP"
udp = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(destination))
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
try:
    s.sendto(ip + udp, (destination, 0)); print("sent")
except OSError as e:
    print(e)
"""


def test_raw_packets_with_anybodys_source_are_refused(pod, guarded, site):
    """With NET_RAW a reply can be made up: what isn't from a local address passes no rule."""
    guarded(f"allow {site.name}")
    pod.probe(["dns", site.name])
    for source in (pod.ip4, "9.9.9.9", "127.0.0.1", RESOLVER4):
        for destination, dport in (("93.9.9.9", 443), ("8.8.8.8", 53), (RESOLVER4, 53)):
            pod.run("/usr/bin/python3", "-c", RAW, destination, source, 5353, dport, uid=0, caps=("net_raw",))
    assert leaked(pod) == []


def test_spoofed_answers_on_loopback_do_not_reach_it(pod, world, site):
    """A raw packet to Weir's own upstream socket, from the resolver's address, through lo."""
    asked, release = threading.Event(), threading.Event()

    def answer(q):
        asked.port, asked.raw = q.port, q.raw
        asked.set()
        release.wait(8)
        return q.answer(site.v4)
    world.dns.on(site.name, answer)
    pod.sidecar(rules=policy(f"allow {site.name}"), env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT": "9"})
    lookup = pod.probe_start(["dns", site.name])
    assert asked.wait(60)
    evil = bytearray(asked.raw)  # even who could read the wire could not answer over lo
    evil[2:4] = b"\x81\x80"
    program = RAW.replace('payload = b"LEAKED-BY-THE-APP"', f'payload = bytes.fromhex("{bytes(evil).hex()}")')
    pod.run("/usr/bin/python3", "-c", program, pod.ip4, RESOLVER4, 53, asked.port, uid=0, caps=("net_raw",))
    release.set()
    assert json.loads(lookup.line())["addresses"] == [site.v4]


def test_127_0_0_11_answers_the_sidecar_alone(pod, world, site, denied):
    """Docker's resolver: in the namespace, at a port that /proc/net/udp shows, behind a nat rule of its own."""
    answered = []

    def reply(data):
        query = dns.message.from_wire(data)
        name = str(query.question[0].name).rstrip(".").lower()
        answered.append(name)
        response = dns.message.make_response(query)
        address = {site.name: site.v4, denied.name: denied.v4}.get(name)
        if address and query.question[0].rdtype == 1:
            response.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "A", address))
        return response.to_wire()
    sock = pod.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.11", 0))
    port = sock.getsockname()[1]
    sock.settimeout(0.2)
    stop = threading.Event()

    def serve():
        while not stop.is_set():
            try:
                data, peer = sock.recvfrom(4096)
            except OSError:
                continue
            sock.sendto(reply(data), peer)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        pod.nft("add table ip docker; add chain ip docker output { type nat hook output priority -100; }; "
                f"add rule ip docker output ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:{port}")
        pod.resolv_conf.write_text("nameserver 127.0.0.11\noptions ndots:0\n")
        pod.sidecar(rules=policy(f"allow {site.name}"))
        assert pod.probe(["lookup", site.name]).addresses == [site.v4]
        expect.name_refused(pod.probe(["dns", denied.name, {"server": "127.0.0.11"}]))
        for target in (port, 80):
            answer = pod.probe(["udp", "127.0.0.11", target, "x"])
            assert answer.result not in ("ok", "sent"), dict(answer)
        direct = pod.probe(["dns", denied.name, {"server": "127.0.0.11", "port": port}])
        assert direct.result not in ("NOERROR",), dict(direct)
        expect.tcp_refused(pod.probe(["tcp", "127.0.0.11", port]))
        assert denied.name not in answered and site.name in answered
    finally:
        stop.set()
        thread.join()
        sock.close()


@pytest.mark.parametrize("port", [DNS_PORT, RELAY_PORT])
def test_its_own_ports_cannot_be_taken(pod, guarded, port):
    guarded(mode="dns+nft+tls")
    for address in ("0.0.0.0", "127.0.0.1"):
        assert pod.probe(["bind", port, address]).result == "EADDRINUSE"


def test_dialling_the_relay_leads_nowhere(pod, guarded, site):
    guarded(f"allow {site.name}", mode="dns+nft+tls")
    pod.probe(["dns", site.name])
    hello = f"GET / HTTP/1.1\r\nHost: {site.name}\r\n\r\n"
    for address in ("127.0.0.1", "::1", pod.ip4):
        answer = pod.probe(["tcp", address, RELAY_PORT, hello])
        expect.tcp_gave_nothing(answer)
    assert pod.packets() == []


def test_G1_without_a_token_the_api_shows_and_changes_nothing(pod, site):
    side = pod.sidecar(rules=policy(f"allow {site.name}"), token=None)
    for outside in (False, True):
        assert side.get("/policy", outside=outside).status == 200
        for method, body in (("POST", policy(default="allow")), ("PUT", policy(default="allow")), ("PATCH", "[]"),
                             ("DELETE", json.dumps([site.name])), ("POST", "")):
            reply = side.call(method, "/policy", body, outside=outside)
            assert (reply.status, reply.text) == (403, "forbidden\n"), (method, reply)
    assert side.get("/policy").json()["policy"]["egress"][0]["target"] == site.name
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))


def test_G1_open_has_to_be_spelled(pod, site):
    side = pod.sidecar("--api-open", token=None)
    assert side.call("POST", "/policy", policy(f"allow {site.name}")).status == 200


def test_G1_the_token_is_not_the_apps_to_read(pod, guarded):
    side = guarded(token="a-very-secret-token")
    for pid in (side.pid, *side.children().values()):
        for name in ("environ", "mem", "fd/0", "root"):
            answer = pod.probe(["read", f"/proc/{pid}/{name}"])
            assert answer.result in ("EACCES", "EPERM", "EISDIR"), (name, dict(answer))
        assert b"very-secret" not in open(f"/proc/{pid}/cmdline", "rb").read()
    assert "a-very-secret-token" not in str(side)


@pytest.mark.parametrize("uid", [0, 1000])
def test_G3_the_rules_are_not_the_apps_to_change(pod, guarded, uid):
    guarded()
    for command in (("nft", "flush", "ruleset"), ("nft", "delete", "table", "inet", "opensandbox"),
                    ("iptables", "-t", "nat", "-F"), ("ip", "link", "set", "eth0", "down"),
                    ("ip", "route", "add", "93.9.9.9/32", "dev", "eth0"), ("conntrack", "-F")):
        done = pod.run("/bin/sh", "-c", " ".join(command), uid=uid)
        assert done.code != 0, (command, done)
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443], uid=uid))
    assert pod.packets() == []


def test_G5_the_apps_root_cannot_kill_it_without_the_capability(pod, guarded):
    """As another user; in one process namespace and as the same user the pod has to be told apart by the runtime."""
    side = guarded()
    for pid in (side.pid, *side.children().values()):
        assert pod.probe(["kill", pid, 9]).result == "EPERM"
    assert side.get("/healthz").status == 200


def test_a_new_namespace_inside_leads_nowhere(pod, guarded):
    guarded()
    done = pod.run("unshare", "--user", "--map-root-user", "--net", "sh", "-c",
                   "ip link set lo up; nft flush ruleset; ping -c1 -W1 93.9.9.9")
    assert done.code != 0 and pod.packets() == []


def test_other_protocols_do_not_pass(pod, guarded):
    guarded()
    for kind, protocol in (("SOCK_DGRAM", 136), (5, 132)):
        answer = pod.probe(["other_transport", "93.9.9.9", 443, kind, protocol])
        assert answer.result not in ("ok", "sent"), dict(answer)
    for address in ("224.0.0.251", "255.255.255.255", "ff02::fb"):
        pod.probe(["udp", address, 5353, {"broadcast": True, "scope": 2 if ":" in address else 0}]
                  if ":" in address else ["udp", address, 5353, {"broadcast": True}])
    assert pod.packets() == []


def test_redirected_ports_are_not_open_resolvers_for_the_outside(pod, guarded, world, site):
    """Nobody outside the pod gets DNS from it, or its relay."""
    guarded(f"allow {site.name}", mode="dns+nft+tls")
    for port in (53, DNS_PORT, RELAY_PORT):
        with world.internet.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.settimeout(0.5)
            with pytest.raises(OSError):
                s.connect((pod.ip4, port))


def test_denials_cannot_flood_the_log(pod, guarded):
    side = guarded()
    pod.run("/usr/bin/python3", "-c",
            "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            "for i in range(20000):\n try: s.sendto(b'x',('93.9.%d.%d'%(i>>8,i&255),99))\n except OSError: pass\n")
    assert side.get("/healthz").status == 200
    assert len(side.lines) < 1000
