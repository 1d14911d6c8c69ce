# SPDX-License-Identifier: Apache-2.0
"""A resolver inside the namespace that asks others from inside it, as Docker's at 127.0.0.11 does."""
import contextlib
import json
import select
import socket
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from world import expect
from world.sidecar import wait_for
from world.world import RESOLVER4, RESOLVER6

SERVICE, SERVICE_ADDRESS = "db", "10.99.0.7"


class Inner:
    """127.0.0.11 as dockerd has it: the services' names from a table, all others from @servers, one after the other
    while they say SERVFAIL, by a socket of the pod's namespace without any mark."""

    def __init__(self, pod, servers, silent=False, keep=False, addresses=(SERVICE_ADDRESS,)):
        self.pod, self.servers, self.silent = pod, servers, silent
        self.hold = None    # an event that answers wait for
        self.addresses, self.over_tcp = addresses, 0
        self.asked, self.sent_on, self.kept = [], [], [] if keep else None
        self._stop = threading.Event()
        self._sock = pod.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.11", 0))
        self._tcp = pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._tcp.bind(("127.0.0.11", 0))
        self._tcp.listen()
        pod.nft("add table ip docker; add chain ip docker output { type nat hook output priority -100; }; add rule ip docker "
                f"output ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:{self._sock.getsockname()[1]}; add rule ip docker "
                f"output ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:{self._tcp.getsockname()[1]}")
        pod.resolv_conf.write_text("nameserver 127.0.0.11\noptions ndots:0\n")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while not self._stop.is_set():
            ready = select.select([self._sock, self._tcp], [], [], 0.1)[0]
            if self._tcp in ready:
                self._answer_tcp(self._tcp.accept()[0])
            if self._sock in ready:
                data, peer = self._sock.recvfrom(4096)
                threading.Thread(target=self._answer, args=(data, peer), daemon=True).start()

    def _answer(self, data, peer):
        query = dns.message.from_wire(data)
        name = str(query.question[0].name).rstrip(".").lower()
        self.asked.append(name)
        if self.kept is not None:
            self.kept.append((data, peer))
        if self.hold:
            self.hold.wait(10)
        if self.silent:
            return
        if name == SERVICE:
            self._sock.sendto(self._service(query, 1), peer)
            return
        answer = None
        for server in self.servers:
            answer = self._ask(server, data) or answer
            if answer and dns.message.from_wire(answer).rcode() != dns.rcode.SERVFAIL:
                break
        if answer:
            self._sock.sendto(answer, peer)

    def _service(self, query, most):
        """Its addresses; TC where there are more than @most."""
        answer = dns.message.make_response(query)
        if len(self.addresses) > most:
            answer.flags |= dns.flags.TC
        elif query.question[0].rdtype == 1:
            answer.answer.append(dns.rrset.from_text(query.question[0].name, 600, "IN", "A", *self.addresses))
        return answer.to_wire(max_size=65535)

    def _answer_tcp(self, sock):
        with sock:
            self.over_tcp += 1
            size = int.from_bytes(sock.recv(2, socket.MSG_WAITALL), "big")
            answer = self._service(dns.message.from_wire(sock.recv(size, socket.MSG_WAITALL)), 1000)
            sock.sendall(len(answer).to_bytes(2, "big") + answer)

    def _ask(self, server, data):
        with self.pod.ns.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(4)
            s.connect((server, 53))
            self.sent_on.append(server)
            with contextlib.suppress(OSError):
                s.send(data)
                return s.recv(4096)
        return None

    def close(self):
        self._stop.set()
        self._thread.join()
        self._sock.close()
        self._tcp.close()


@pytest.fixture
def inner(pod):
    with contextlib.ExitStack() as stack:
        def start(*servers, **options):
            return stack.enter_context(contextlib.closing(Inner(pod, servers or (RESOLVER4,), **options)))
        yield start


def test_services_and_names_outside_are_both_answered(pod, inner, guarded, world, site, denied):
    docker = inner()
    side = guarded(f"allow {site.name}", {"action": "allow", "target": SERVICE, "private": True})

    def ask(_):
        outside, service, tcp = pod.probe(["dns", site.name], ["dns", SERVICE], ["connect", site.name, 7007])
        assert outside.addresses == [site.v4] and service.addresses == [SERVICE_ADDRESS] and tcp.result == "ok"
        assert max(outside.ms, service.ms, tcp.ms) < 3500, "something waited for a timeout"
    expect.in_time(ask)
    expect.name_refused(pod.probe(["dns", denied.name, {"server": "127.0.0.11"}]))
    expect.name_refused(pod.probe(["dns", denied.name]))
    assert denied.name not in docker.asked and not world.dns.queries(denied.name)
    assert not world.dns.queries("*.invalid"), "the test's question has left"
    assert {q.name.lower() for q in world.dns.queries()} >= {site.name}
    assert side.get("/status").json()["degradations"] == []
    assert wait_for(lambda: [e for e in side.log() if f"asked of {RESOLVER4}:53" in e["msg"]])


@pytest.mark.parametrize("servers", [("8.8.4.4", RESOLVER4), (RESOLVER6,), (RESOLVER6, RESOLVER4)])
def test_all_of_its_servers_are_found(pod, inner, guarded, world, site, servers):
    """By IPv4 and IPv6, and in its order."""
    inner(*servers)
    side = guarded(f"allow {site.name}")
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    lines = wait_for(lambda: [e["msg"] for e in side.log() if "is asked of" in e["msg"]])
    assert [line.rpartition(" ")[2] for line in lines] == \
        [f"[{s}]:53" if ":" in s else f"{s}:53" for s in servers]


def test_many_names_at_once(pod, inner, guarded, world):
    """Every one of them goes round once; none waits for itself."""
    base = f"many{world.number()}.test"
    world.site(f"*.{base}")
    inner()
    guarded(f"allow *.{base}", {"action": "allow", "target": SERVICE, "private": True})
    names = [f"n{i}.{base}" for i in range(60)]
    answers = pod.probe(*[["dns", name] for name in names], *[["dns", SERVICE]] * 5)
    assert all(a.result == "NOERROR" and a.addresses for a in answers), answers


def test_the_next_engine_finds_them_too(pod, inner, guarded, site):
    inner()
    side = guarded(f"allow {site.name}")
    side.wait_replaced("engine", side.kill_child("engine"))
    wait_for(lambda: side.get("/healthz").status == 200)
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


def test_nobody_behind_it_is_said_at_once(pod, inner, guarded, site):
    """Its servers can't be used (a loopback address): SERVFAIL without a wait, a line, and /status."""
    inner("127.0.0.1")
    side = guarded(f"allow {site.name}", {"action": "allow", "target": SERVICE, "private": True})

    def ask(_):
        answer = pod.probe(["dns", site.name])
        assert answer.result == "SERVFAIL" and answer.ms < 3500, dict(answer)
    expect.in_time(ask)
    assert pod.probe(["dns", SERVICE]).addresses == [SERVICE_ADDRESS]
    assert wait_for(lambda: [e for e in side.log() if "OPENSANDBOX_EGRESS_DNS_UPSTREAM" in e["msg"] and e["level"] == "error"])
    assert "dns" in [d["what"] for d in side.get("/status").json()["degradations"]]


def test_the_app_cannot_name_a_server(pod, inner, guarded, world, site):
    """It asks evil's server what is allowed, as the inner resolver would: nothing of it is believed."""
    inner()
    side = guarded(f"allow {site.name}")
    for server in ("6.6.6.6", "6.6.6.7"):
        for name in (site.name, "0123456789abcdef0123456789abcdef.invalid"):
            pod.probe(["dns", name, {"server": server}])
    pod.probe(["dns", site.name])
    assert not [p for p in pod.capture.packets() if p.dst.startswith("6.6.6.")]
    assert not [e for e in side.log() if "6.6.6." in e["msg"]]


def test_it_may_be_silent_at_the_start(pod, inner, guarded, site):
    """The sidecar is healthy all the same, and asks again."""
    docker = inner(silent=True)
    guarded(f"allow {site.name}")
    docker.silent = False
    wait_for(lambda: pod.probe(["dns", site.name]).result == "NOERROR", step=0.2)


def test_a_refusal_of_our_own_is_no_answer(pod, inner, guarded, site):
    """The policy forbids the name while 127.0.0.11 has the question: what it then sends back is not refused to it, or
    that refusal would come back as an answer, and be remembered."""
    docker = inner()
    side = guarded(f"allow {site.name}")
    docker.hold = threading.Event()
    lookup = pod.probe_start(["dns", site.name])
    wait_for(lambda: site.name in docker.asked)
    side.post()
    docker.hold.set()
    assert json.loads(lookup.line())["result"] == "NXDOMAIN"
    side.post(f"allow {site.name}")
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


def test_a_large_answer_of_its_own_comes_by_tcp(pod, guarded, inner):
    """A service with more addresses than a datagram holds."""
    many = [f"10.99.{i}.7" for i in range(100)]
    docker = inner(addresses=many)
    guarded({"action": "allow", "target": SERVICE, "private": True})
    answer = pod.probe(["dns", SERVICE, {"transport": "tcp"}])
    assert len(answer.addresses) > 20 and set(answer.addresses) <= set(many), dict(answer)
    assert docker.over_tcp == 1
