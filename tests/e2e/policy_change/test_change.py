# SPDX-License-Identifier: Apache-2.0
"""A policy that changes while the app runs: what it forbids from then on does not pass (catalogue H6)."""
import ctypes
import ipaddress
import json
import random
import select
import socket
import struct
import subprocess
import threading
import time

import pytest

from world import expect
from world.capture import parse
from world.sidecar import Flow, end_input, wait_for

FIN, ACK = 1, 16
HAMMER = f"{__file__.rpartition('/')[0]}/../../world/app_hammer.py"
UPLOAD = f"{__file__.rpartition('/')[0]}/../../world/app_upload.py"
SINK = f"{__file__.rpartition('/')[0]}/../../world/sink.py"


def test_H6_a_revoked_flow_is_reset_with_its_next_packet(pod, guarded, world, site):
    side = guarded(f"allow {site.name}", "allow 93.251.1.1")
    pod.probe(["dns", site.name])
    by_name, by_address = Flow(pod, site.v4), Flow(pod, "93.251.1.1")
    assert by_name.say() == by_address.say() == "got"
    side.post()
    before = len(pod.packets())
    assert by_name.say("secret") == by_address.say("secret") == "ConnectionResetError"
    assert not [p for p in pod.packets()[before:] if b"secret" in p.payload]


def test_what_stays_allowed_stays_open(pod, guarded, site):
    side = guarded(f"allow {site.name}", "allow 93.251.1.1")
    pod.probe(["dns", site.name])
    flows = [Flow(pod, site.v4), Flow(pod, "93.251.1.1")]
    for n in range(20):
        side.post(f"allow {site.name}", "allow 93.251.1.1", f"allow other{n}.test")
        assert [f.say() for f in flows] == ["got", "got"], n
    assert site.v4 in pod.set_elements("dyn_allow_v4")  # learned, and not asked for again
    assert pod.queries(site.name) == 1
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"


def test_what_was_learned_goes_with_its_name(pod, guarded, site):
    side = guarded(f"allow {site.name}")
    assert pod.probe(["connect", site.name, 7007]).result == "ok"
    side.post("allow other.test")
    assert pod.set_elements("dyn_allow_v4") == {} and pod.set_elements("dyn_allow_v6") == {}
    four, six = pod.probe(["tcp", site.v4, 7007], ["tcp", site.v6, 7007])
    expect.tcp_refused(four)
    expect.tcp_refused(six)
    # and comes back by being asked for, not by itself
    side.post(f"allow {site.name}")
    expect.tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    assert pod.probe(["connect", site.name, 7007]).result == "ok"


def test_an_address_that_two_names_taught_stays_while_one_is_allowed(pod, guarded, world, site):
    twin = f"twin-{world.number()}.test"
    world.dns.add(twin, site.v4, site.v6)
    side = guarded(f"allow {site.name}", f"allow {twin}")
    pod.probe(["dns", site.name], ["dns", twin])
    side.post(f"allow {twin}")
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"
    side.post()
    expect.tcp_refused(pod.probe(["tcp", site.v4, 7007]))


def test_a_private_address_goes_with_the_ports_that_let_its_name_teach_it(pod, guarded, world):
    """The name's rule has every port; the address rule has them too, and then one alone."""
    name, address = f"private-{world.number()}.test", "10.9.8.7"
    world.dns.add(name, address)
    side = guarded(f"allow {name}", f"allow {address}")
    assert pod.probe(["connect", name, 7007]).result == "ok"
    flow = Flow(pod, address)
    assert flow.say() == "got"
    side.post(f"allow {name}", {"action": "allow", "target": address, "ports": [7077]})
    assert flow.say("secret") == "ConnectionResetError"
    looked_up, *dials = pod.probe(["dns", name], ["tcp", address, 7007], ["connect", name, 7007])
    assert looked_up.addresses == [address] and all(answer.result != "ok" for answer in dials), [dict(a) for a in dials]


def test_an_answer_under_way_is_judged_by_the_policy_of_its_moment(pod, guarded, world, site):
    """The name was allowed when it was asked for, and isn't any more when its answer comes."""
    asked, release = threading.Event(), threading.Event()

    def answer(q):
        asked.set()
        release.wait(5)
        return q.answer(site.v4, site.v6)
    world.dns.on(site.name, answer)
    side = guarded(f"allow {site.name}")
    lookup = pod.probe_start(["dns", site.name])
    assert asked.wait(60)
    side.post("allow other.test")
    release.set()
    reply = json.loads(lookup.line())
    assert reply["result"] in ("NXDOMAIN", "SERVFAIL") and reply["addresses"] == []
    expect.tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    assert pod.set_elements("dyn_allow_v4") == {} and pod.packets() == []


def test_a_cached_answer_does_not_outlive_its_rule(pod, guarded, site):
    side = guarded(f"allow {site.name}")
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    side.post(f"deny {site.name}")
    expect.name_refused(pod.probe(["dns", site.name]))
    side.post(f"allow {site.name}")
    lookup, tcp = pod.probe(["dns", site.name], ["tcp", site.v4, 7007])
    assert lookup.addresses == [site.v4] and tcp.result == "ok"


def test_a_udp_flow_is_cut_too(pod, guarded):
    side = guarded("allow 93.251.2.2")
    flow = Flow(pod, "93.251.2.2", kind=socket.SOCK_DGRAM)
    assert flow.say() == "got"
    side.post()
    before = len(pod.packets())
    assert flow.say("secret") != "got"
    assert pod.packets()[before:] == []


def test_a_big_policy_is_taken_and_works(pod, guarded, site):
    side = guarded()
    rules = [{"action": "allow", "target": f"10.{i >> 8}.{i & 255}.0/25"} for i in range(4095)]
    reply = side.call("POST", "/policy", {"egress": [*rules, {"action": "allow", "target": site.name}]})
    assert reply.status == 200, reply
    assert pod.probe(["connect", site.name, 7007]).result == "ok"
    ok, shut = pod.probe(["tcp", "10.9.9.1", 7007], ["tcp", "10.9.9.200", 7007])
    assert ok.result == "ok"
    expect.tcp_refused(shut)


@pytest.mark.parametrize("before", [0, 1])
def test_a_small_policy_is_followed_by_a_big_one(pod, guarded, before):
    """The big one's sets are loaded beside what stands, in odd generations and in even ones."""
    side = guarded("allow 93.253.1.1")
    big = [*(f"allow 10.{i >> 8}.{i & 255}.0/25" for i in range(4000)), "allow 93.251.1.1"]
    for _ in range(before):
        side.post("allow 93.253.1.1")
    for _ in range(3):
        side.post(*big)
        old, new = pod.probe(["tcp", "93.253.1.1", 7007], ["tcp", "93.251.1.1", 7007])
        assert new.result == "ok"
        expect.tcp_refused(old)
    side.post("allow 93.253.1.1")
    old, new = pod.probe(["tcp", "93.253.1.1", 7007], ["tcp", "93.251.1.1", 7007])
    assert old.result == "ok"
    expect.tcp_refused(new)


@pytest.mark.parametrize("who", ["control", "engine"])
def test_one_may_die_while_a_big_policy_is_loaded(pod, guarded, who):
    """Thousands of ranges are loaded in steps. Whenever it ends: what is shown is what is enforced, and all of it."""
    side = guarded("allow 93.253.1.1")
    big = {"egress": [{"action": "allow", "target": f"10.{i >> 8}.{i & 255}.0/25"} for i in range(4095)]
           + [{"action": "allow", "target": "93.251.1.1"}]}

    def post():
        try:
            side.call("POST", "/policy", big)
        except OSError:
            pass
    for delay in (0.002, 0.006, 0.01, 0.015, 0.02, 0.03):
        time.sleep(1.1)  # what ends sooner than a second after its start waits a while
        side.post("allow 93.253.1.1")
        caller = threading.Thread(target=post)
        caller.start()
        time.sleep(delay)
        side.wait_replaced(who, side.kill_child(who))
        caller.join()
        wait_for(side.healthy)
        shown = {r["target"] for r in side.get("/policy").json()["policy"]["egress"]}
        old, new, ranges = pod.probe(["tcp", "93.253.1.1", 7007], ["tcp", "93.251.1.1", 7007], ["tcp", "10.9.9.1", 7007])
        assert shown == {"93.253.1.1"} or len(shown) == 4096
        assert (old.result == "ok") == (len(shown) == 1), delay
        assert (new.result == "ok") == (ranges.result == "ok") == (len(shown) == 4096), delay
    side.post()
    sets = pod.nft("-t", "list", "table", "inet", "opensandbox")
    assert sets.count("set allow_v4 ") == 1 and "allow_v4_" not in sets
    expect.tcp_refused(pod.probe(["tcp", "10.9.9.1", 7007]))


def test_a_failed_change_leaves_everything(pod, guarded, site):
    side = guarded(f"allow {site.name}")
    flow_first = pod.probe(["connect", site.name, 7007])
    assert flow_first.result == "ok"
    flow = Flow(pod, site.v4)
    for body in ("{", '{"egress":[{"action":"foo","target":"a.test"}]}', '{"defaultAction":"block"}'):
        assert side.call("POST", "/policy", body).status == 400
    assert flow.say() == "got" and side.get("/policy").json()["policy"]["egress"][0]["target"] == site.name


class Watch:
    """Leaks: what left for a target while the policy of that moment forbade it."""

    def __init__(self, pod, names):
        self.pod, self.names, self.leaks = pod, names, []

    def is_the_kernels(self, p):
        """No byte of the app's, and no word of Weir's: the acknowledgement of the other side's FIN, which comes after our
        own, and the error that answers a late datagram of the other side's."""
        if p.proto == "tcp" and p.flags == ACK and not p.payload:
            return any(q.flags & FIN and (q.sport, q.dport, q.dst) == (p.sport, p.dport, p.dst)
                       for q in self.pod.capture._seen)
        return (p.proto, p.sport) in (("icmp", 3), ("icmp6", 1))

    def window(self, forbidden, seconds):
        """For @seconds nothing may leave for @forbidden addresses, nor a question for their names."""
        self.pod.packets(settle=0)
        start = len(self.pod.capture._seen)
        time.sleep(seconds)
        self.pod.capture.read()
        labels = [self.names[a].split(".")[0].encode() for a in forbidden if a in self.names]
        labels = [bytes([len(label)]) + label for label in labels]
        for p in self.pod.capture._seen[start:]:
            if p.src not in (self.pod.ip4, self.pod.ip6) or self.is_the_kernels(p):
                continue
            asked = p.dport == 53 and any(label in p.payload.lower() for label in labels)
            if p.dst in forbidden or asked:
                self.leaks.append(p)


@pytest.mark.parametrize("mode", ["dns+nft", "dns+nft+tls"])
def test_H6_random_changes_under_load_leak_nothing(pod, guarded, world, mode):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    sites = [world.site(f"h{world.number()}.test") for _ in range(4)]
    names = {s.v4: s.name for s in sites}
    fixed = ["93.252.1.1", "93.252.2.2", "2a01:93:252::1"]
    side = guarded(mode=mode)
    hammer = pod.start("/usr/bin/python3", "-IS", HAMMER, "8.8.8.8",
                       *[f"{n}={a}" for a, n in names.items()], *fixed)
    assert hammer.line() == "up"
    watch = Watch(pod, names)
    everything = [*names, *fixed]
    for _ in range(80):
        allowed = {a for a in everything if chance.random() < 0.5}
        if chance.random() < 0.2:
            rules = [f"deny {names.get(a, a)}" for a in everything if a not in allowed]
            # a name that is denied says nothing of its address while everything is allowed
            forbidden = {a for a in fixed if a not in allowed}
            side.post(*rules, default="allow")
        else:
            side.post(*[f"allow {names.get(a, a)}" for a in everything if a in allowed])
            forbidden = set(everything) - allowed
        watch.window(forbidden, 0.015)
    # What the watch would see if something left:
    side.post(*[f"allow {names.get(a, a)}" for a in everything])
    check = Watch(pod, names)

    def sees_all():
        check.window(set(everything), 0.1)
        return {p.dst for p in check.leaks} >= set(everything)
    wait_for(sees_all)
    end_input(hammer)
    counts = json.loads(hammer.line())
    assert watch.leaks == [], f"seed {seed}: {watch.leaks[:5]} of {len(watch.leaks)}"
    assert all(min(c) > 0 for c in counts.values()), counts
    assert side.get("/status").json()["mode"].startswith("dns+nftables")


def headers_to(address):
    """What SO_ATTACH_FILTER takes (struct sock_fprog of linux/filter.h), and what that points to: of packets of IPv4 to @address the headers."""
    code = [(0x28, 0, 0, 12), (0x15, 0, 3, 0x0800),  # the type of the frame
            (0x20, 0, 0, 30), (0x15, 0, 1, int(ipaddress.IPv4Address(address))), (0x06, 0, 0, 96), (0x06, 0, 0, 0)]
    kept = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    return struct.pack("HP", len(code), ctypes.addressof(kept)), kept


class Stamped:
    """What leaves a pod for @address from now on: of each packet the kernel's time in ns, the source port, flags and bytes of payload.

    It is read at once, and the kernel keeps the headers alone: a thousand uploads fill any buffer before a busy machine
    has answered."""

    def __init__(self, pod, address):
        self._pod, self._address = pod, address
        self._found, self._is_over = [], False
        self._sock = pod.world.internet.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._sock.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        program, _kept = headers_to(address)
        self._sock.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER
        self._sock.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self._sock.bind((pod.net, 3))
        self._sock.settimeout(0.05)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while True:
            try:
                frame, control, _, _ = self._sock.recvmsg(65600, 64)
            except TimeoutError:
                if self._is_over:
                    return
                continue
            p = parse(frame)
            if p.src == self._pod.ip4 and p.dst == self._address:
                seconds, ns = struct.unpack("qq", control[0][2])
                missing = struct.unpack_from("!H", frame, 16)[0] + 14 - len(frame)
                self._found.append((seconds * 10**9 + ns, p.sport, p.flags, len(p.payload) + max(missing, 0)))

    def packets(self):
        self._is_over = True
        self._reader.join()
        assert struct.unpack("II", self._sock.getsockopt(263, 6, 8))[1] == 0  # SOL_PACKET, PACKET_STATISTICS
        self._sock.close()
        return self._found


def received(pod):
    """Bytes that have come by the pod's link."""
    with pod.world.internet.entered(), open("/proc/thread-self/net/dev", encoding="ascii") as f:
        return next(int(line.split(":")[1].split()[0]) for line in f if line.split(":")[0].strip() == pod.net)


@pytest.mark.parametrize("default", ["deny", "allow"])
@pytest.mark.parametrize("count", [1, 1000])
def test_H6_nothing_of_a_revoked_upload_leaves_after_the_answer(pod, guarded, count, default):
    """The relay's sockets hold what the app has sent long ago: they are cut before the caller hears that all is done."""
    address, port = "93.254.1.1", 7100
    side = guarded(f"allow {address}", "allow 93.254.2.2", mode="dns+nft+tls", default=default)
    sink = subprocess.Popen(pod.world.internet.command("/usr/bin/python3", SINK, str(port)), stdout=subprocess.PIPE)
    assert sink.stdout.readline() == b"up\n"
    try:
        stays = Flow(pod, "93.254.2.2")
        upload = pod.start("/usr/bin/python3", "-IS", UPLOAD, address, port, count)
        assert upload.line() == "up"
        seen = Stamped(pod, address)
        begun = received(pod)
        wait_for(lambda: received(pod) > begun + 100_000)
        side.post("allow 93.254.2.2", f"deny {address}", default=default)
        answered = time.time_ns()
        assert upload.line() == "all cut"
        packets = seen.packets()
        # The kernel begins to stamp a moment after it was asked to; what comes before has the time at which it is read here.
        last = max(i for i, (t, *_) in enumerate(packets) if t <= answered)
        assert sum(size for *_, size in packets[:last + 1]) > 10_000
        assert packets[last + 1:] == [], [(t - answered, *rest) for t, *rest in packets[last + 1:]][:9]
        assert stays.say() == "got"
    finally:
        sink.kill()
        sink.communicate()


LIAR = """import socket, sys
s = socket.create_connection((sys.argv[1], 7007), 30)
s.sendall(f"POST / HTTP/1.1\\r\\nHost: {sys.argv[2]}\\r\\nContent-Length: 100000\\r\\n\\r\\n".encode())
print('open' if s.recv(999) else 'closed', flush=True)
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        print('got' if s.recv(999) else 'closed', flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
"""


@pytest.mark.parametrize("before", [("allow 93.254.3.0/24",), ("default",)], ids=["a range", "everything"])
def test_a_claimed_name_does_not_outlive_what_let_it_through(pod, guarded, site, before):
    """E18: a connection to any address may claim a name that is allowed; only one that the name had taught stays open."""
    allowed = f"allow {site.name}"
    side = guarded(allowed, *[r for r in before if r != "default"], mode="dns+nft+tls",
                   default="allow" if "default" in before else "deny")
    pod.probe(["dns", site.name])
    honest, liar = [pod.start("/usr/bin/python3", "-IS", "-c", LIAR, a, site.name) for a in (site.v4, "93.254.3.3")]
    assert honest.line() == liar.line() == "open"
    side.post(allowed)
    start = len(pod.packets())
    for flow in honest, liar:
        flow.say("secret\n")
    assert honest.line() == "got" and liar.line() == "ConnectionResetError"
    assert not [p for p in pod.packets()[start:] if p.dst == "93.254.3.3" and p.payload]


def test_changes_from_many_callers_are_one_after_the_other(pod, guarded):
    side = guarded()
    replies = []

    def post(n):
        replies.append(side.call("PATCH", "/policy", [{"action": "allow", "target": f"c{n}.test"}]).status)
    threads = [threading.Thread(target=post, args=(n,)) for n in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    targets = {r["target"] for r in side.get("/policy").json()["policy"]["egress"]}
    assert replies == [200] * 20 and targets == {f"c{n}.test" for n in range(20)}


def test_a_slow_caller_delays_nobody(pod, guarded, site):
    side = guarded(f"allow {site.name}")

    def ask(_):
        with pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM) as slow:
            slow.connect(("127.0.0.1", 18080))
            slow.sendall(b"POST /policy HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: token\r\nContent-Length: 100\r\n\r\n{")
            assert side.get("/healthz").status == 200
            assert side.call("PATCH", "/policy", [{"action": "allow", "target": "a.test"}]).status == 200
            assert pod.probe(["dns", site.name]).addresses == [site.v4]
            assert not select.select([slow], [], [], 0)[0], "the others came after the end of the slow one"
    expect.in_time(ask)


def test_the_filter_is_put_back_when_somebody_flushes_it(pod, guarded, site):
    """G9: firewalld, docker, kube-proxy; as root of the namespace with NET_ADMIN."""
    side = guarded(f"allow {site.name}")
    pod.probe(["dns", site.name])
    pod.nft("add table ip other; add chain ip other c { type nat hook output priority -110; }")
    for command in (("flush", "ruleset"), ("delete", "table", "inet", "opensandbox"),
                    ("flush", "chain", "inet", "opensandbox", "egress")):
        try:
            pod.nft(*command)
        except AssertionError:
            pass  # not permitted: the kernel keeps it for its owner
        wait_for(lambda: "chain egress" in pod.nft("list", "ruleset"))
        expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))
    lookup, tcp = pod.probe(["dns", site.name, {"server": "8.8.8.8"}], ["tcp", site.v4, 7007])
    assert lookup.addresses == [site.v4] and tcp.result == "ok"
    assert side.get("/healthz").status == 200
