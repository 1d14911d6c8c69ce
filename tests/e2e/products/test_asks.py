# SPDX-License-Identifier: Apache-2.0
"""`action: ask`: what asks waits, with nothing sent for it, until somebody grants it, and then goes on without a retry; or is
refused. Where TCP goes through the relay connections wait, elsewhere lookups do (`waits`)."""
import concurrent.futures
import contextlib
import json
import os
import signal
import tempfile

import pytest

from world import expect
from world.expect import PATIENCE
from world.guarded import Run, guarded
from world.sidecar import policy, wait_for

GET = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


def waits(product, verify):
    return "connection" if verify == "tls" or product.startswith("run") else "lookup"


class Asking:
    """The probes, while the block runs: their answers at its end are in `answers`."""

    def __init__(self, box, *probes):
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future = self._pool.submit(box.probe, *probes)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.answer = self._future.result(60)
        self._pool.shutdown(wait=kind is None)


@contextlib.contextmanager
def asked(world, product, *rules, **more):
    """A sandbox under a policy that asks, with a store where the product needs one for its tasks."""
    with tempfile.TemporaryDirectory() as state:
        args = () if product.startswith("run") else ("--state-dir", state)
        with guarded(world, product, policy(*rules, **more), args) as box:
            yield box


def task(box, name):
    """The open task about @name, as soon as there is one."""
    return wait_for(lambda: next((t for t in box.reviews() if t["destination"] == name and t["state"] == "open"), None))


@pytest.mark.parametrize("product, verify", [("run", "tls"), ("run-user", "dns"), ("sidecar", "tls"), ("netns", "tls"), ("cgroup", "dns")])
def test_what_waits_goes_on_when_it_is_granted(world, product, verify):
    site, denied = (world.site(f"ask{world.number()}.test") for _ in range(2))
    rules = [f"deny {denied.name}", f"ask {site.name}"]
    with asked(world, product, *rules, verify=verify) as box:
        expect.name_refused(box.probe(["dns", denied.name]))
        with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
            waiting = task(box, site.name)
            assert (waiting["port"] or 0) == (80 if waits(product, verify) == "connection" else 0), waiting
            assert box.left() == ([], set())
            box.accept(waiting)
        assert "200 OK" in client.answer.data, client.answer
        assert site.name in box.names
        # and so does what comes later
        assert "200 OK" in box.probe(["connect", site.name, 80, GET.format(site.name)]).data
        assert not [e for e in box.denies() if e["name"] == site.name], box.denies()


def test_nothing_else_is_decided_while_a_grant_may_still_come(world):
    """A run's engine is late: who is told that the grant failed, and then says no, would have said no to what is open."""
    site = world.site(f"ask{world.number()}.test")
    with asked(world, "run", f"ask {site.name}", verify="dns") as box:
        box.probe(["own_addresses"])  # the command runs, and nothing is stored so far
        _, engine = world.guards(box.started.pid)
        with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
            waiting = task(box, site.name)
            os.kill(engine, signal.SIGSTOP)
            try:
                late, no = (box.send("POST", f"/review/{waiting['id']}/{word}") for word in ("accept", "dismiss"))
            finally:
                os.kill(engine, signal.SIGCONT)
        assert late.status == 500 and b"the change may still take effect" in late.body, late
        assert no.status >= 500 and b"another change is under way" in no.body, no
        assert "200 OK" in client.answer.data, client.answer


@pytest.mark.parametrize("product, verify", [("run", "tls"), ("sidecar", "dns")])
def test_nobody_answers_or_says_no(world, product, verify):
    site = world.site(f"ask{world.number()}.test")
    parked = waits(product, verify) == "connection"
    with asked(world, product, f"ask {site.name}", verify=verify, limits={"ask_timeout": 2}) as box:
        answer = box.probe(["connect", site.name, 80, GET.format(site.name)])
        if parked:
            assert "403 Forbidden" in answer.data and "asked, and not answered" in answer.data, answer
        else:
            expect.lookup_refused(answer)
        box.assert_silent()
        assert task(box, site.name)
        wait_for(lambda: [e for e in box.denies() if e["name"] == site.name and "asked, and not answered" in e["reason"]])


@pytest.mark.parametrize("product, verify", [("run", "dns"), ("sidecar", "dns"), ("uid", "tls")])
def test_a_dismissal_and_another_policy_refuse_what_waits(world, product, verify):
    site, other = (world.site(f"ask{world.number()}.test") for _ in range(2))
    with asked(world, product, f"ask {site.name}", f"ask {other.name}", verify=verify) as box:
        for name, decide, why in ((site.name, lambda: box.dismiss(task(box, site.name)), "refused by who was asked"),
                                  (other.name, lambda: task(box, other.name) and box.change(policy(f"deny {other.name}", verify=verify)),
                                   "deny" if waits(product, verify) == "lookup" else "not allowed")):
            with Asking(box, ["connect", name, 80, GET.format(name)]) as client:
                decide()
            if waits(product, verify) == "connection":
                assert "403 Forbidden" in client.answer.data and why in client.answer.data, client.answer
            else:
                expect.lookup_refused(client.answer)
            box.assert_silent()
            wait_for(lambda: [e for e in box.denies() if e["name"] == name and why in e["reason"]])
            if name == site.name:  # what was dismissed is refused at once, and asks nobody
                again = box.probe(["connect", name, 80, GET.format(name)])
                assert "403 Forbidden" in again.get("data", "") if waits(product, verify) == "connection" else again.result.startswith("EAI_")
                assert not [t for t in box.reviews() if t["destination"] == name]


def test_nobody_is_asked_for_what_stays_closed(world):
    n = world.number()
    denied, site = world.site(f"denied{n}.test"), world.site(f"ask{n}.test")
    names = ["metadata.google.internal", "dns.google", denied.name, "word", "x.invalid", "1.2.3.4.in-addr.arpa"]
    with asked(world, "run", f"deny {denied.name}", default="ask", verify="tls") as box:
        answers = box.probe(*(["dns", name] for name in names))
        assert [a.result for a in answers] == ["NXDOMAIN"] * len(names), answers
        # nor for what is no address, and what another name is claimed for
        no_data, stand_in = box.probe(["dns", site.name, "TXT"], ["dns", site.name])
        assert (no_data.result, no_data.addresses) == ("NOERROR", []) and stand_in.addresses[0].startswith("198.19.254."), stand_in
        for address in ("169.254.169.254", "127.0.0.2"):
            expect.tcp_refused(box.probe(["tcp", address, 80]))
        box.assert_silent()
        assert box.reviews() == []
        with Asking(box, ["tcp", stand_in.addresses[0], 80, GET.format("other.test")]) as client:
            box.accept(task(box, site.name), **{"for": "10m"})
        assert "403 Forbidden" in client.answer.data and "other.test" in client.answer.data, client.answer
        assert box.names == {site.name} and not [p for p in box.packets if p.payload], box.packets


def test_a_packet_is_refused_and_passes_after_the_grant(world):
    address, other, site = world.address(), world.address(), world.site(f"ask{world.number()}.test")
    with asked(world, "netns", f"ask {site.name}", "ask 93.0.0.0/8", verify="tls") as box:
        for probe, about in ((["tcp", address, 7007, "x"], address), (["udp", other, 7007, {"wait": PATIENCE / 2}], other),
                             (["udp", None, 7007, {"wait": PATIENCE / 2}], site.name)):
            def send():
                to = box.probe(["dns", site.name]).addresses[0]
                return box.probe([probe[0], probe[1] or to, *probe[2:]])
            assert send().result not in ("ok", "sent"), probe
            box.assert_silent()
            box.accept(task(box, about))
            assert send().result == "ok", probe


def test_what_was_dismissed_asks_no_more_when_a_cgroup_is_made_again(world):
    site, other = (world.site(f"ask{world.number()}.test") for _ in range(2))
    with asked(world, "cgroup", f"ask {site.name}", f"allow {other.name}", verify="dns") as box:
        with Asking(box, ["dns", site.name]):
            box.dismiss(task(box, site.name))
        box.app.cgroup.make_again()
        wait_for(lambda: box.probe(["dns", other.name]).get("addresses"))
        assert box.probe(["dns", site.name]).result == "NXDOMAIN"
        box.assert_silent()
        assert box.reviews() == []


@pytest.mark.parametrize("product", ["run", "netns"])
def test_a_packet_that_was_dismissed_asks_no_more(world, product):
    address, site = world.address(), world.site(f"ask{world.number()}.test")
    probes = [(["tcp", address, 7007, "x"], address)] + ([(["udp", None, 7007], site.name)] if product == "netns" else [])
    with asked(world, product, f"ask {site.name}", "ask 93.0.0.0/8", verify="tls") as box:
        for probe, about in probes:
            def send(port=7007):
                to = probe[1] or box.probe(["dns", site.name]).addresses[0]
                return box.probe([probe[0], to, port, *probe[3:]])
            assert send().result not in ("ok", "sent"), probe
            box.dismiss(task(box, about))
            assert send().result not in ("ok", "sent"), probe
            box.assert_silent()
            wait_for(lambda: [e for e in box.denies() if about in (e["name"], e["remote_ip"]) and "refused by who was asked" in e["reason"]])
            assert not [t for t in box.reviews() if t["destination"] == about]
        if product == "run":  # where a task has one port, so has its dismissal
            box.probe(["tcp", address, 7008, "x"])
            assert task(box, address)["port"] == 7008
        # a rule that allows ends it, and what comes after that rule asks again
        box.change(policy(f"allow {address}", verify="tls"))
        assert box.probe(["tcp", address, 7007, "x"]).result == "ok"
        box.change(policy("ask 93.0.0.0/8", verify="tls"))
        assert box.probe(["tcp", address, 7007, "x"]).result != "ok"
        wait_for(lambda: [t for t in box.reviews() if t["destination"] == address and (t["port"] or 7007) == 7007])


@pytest.mark.parametrize("product", ["run", "sidecar"])
def test_of_two_who_decide_at_once_one_does(world, product):
    site = world.site(f"ask{world.number()}.test")
    with asked(world, product, f"ask {site.name}", verify="tls") as box, concurrent.futures.ThreadPoolExecutor(2) as people:
        with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
            number = task(box, site.name)["id"]
            yes, no = people.map(lambda verb: box.send("POST", f"/review/{number}/{verb}", "").status, ("accept", "dismiss"))
        answer = client.answer.data
        assert yes == 200 and no in (200, 409), (yes, no)
        # who said no first was overruled: it is open now, whatever became of the one that waited
        assert ("200 OK" in answer) or (no == 200 and "refused by who was asked" in answer), (yes, no, answer)
        assert "200 OK" in box.probe(["connect", site.name, 80, GET.format(site.name)]).data
        assert box.reviews() == []


def test_weir_review_decides_of_a_run_while_it_waits(world):
    yes, no = (world.site(f"ask{world.number()}.test") for _ in range(2))
    with asked(world, "run", f"ask {yes.name}", f"ask {no.name}", verify="tls") as box:
        def review(*words):
            return world.weir("review", *words, "--state-dir", box.store)

        def waiting(name):
            return [t for t in json.loads(review("list", "--json").text or "[]") if t["destination"] == name]
        for site, words, status in ((yes, ("accept", "--live", "--yes", "--for", "12d"), "200 OK"), (no, ("dismiss", "--live"), "403 Forbidden")):
            with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
                done = review(words[0], str(wait_for(lambda: waiting(site.name))[0]["id"]), *words[1:])
                assert done.code == 0, done
            assert status in client.answer.data, client.answer
            assert not waiting(site.name)


def test_weir_review_shows_what_accepting_adds(world):
    """The rule, and the allowed name that it looks like, before anybody says yes."""
    site = world.site(f"askhub{world.number()}.test")
    known = site.name.replace("askhub", "askhubs")
    with asked(world, "run", f"allow {known}", f"ask {site.name}", verify="tls") as box:
        def review(*words):
            return world.weir("review", *words, "--state-dir", box.store)
        with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
            wait_for(lambda: any(t["destination"] == site.name for t in json.loads(review("list", "--json").text or "[]")))
            (number,) = [str(t["id"]) for t in review("list", "--json").json() if t["destination"] == site.name]
            done = review("accept", number, "--live", "--for", "10m")
            rule = f'+ {{"action":"allow","target":"{site.name}","ports":["tcp/80"]'
            assert done.code == 1 and rule + ',"for":"10m"}' in done.messages and f"'{site.name}' looks like '{known}'" in done.messages, done
            done = review("accept", number, "--live", "--for", "10m", "--yes")
            assert done.code == 0 and rule in done.messages and f"'{site.name}' looks like '{known}'" in done.messages, done
        assert "200 OK" in client.answer.data, client.answer


@pytest.mark.parametrize("kinds", [("tcp", "udp"), ("tcp", "udp", "tcp")], ids="-".join)
def test_weir_review_decides_the_protocol_that_was_asked_last(world, kinds):
    """A run has a task for each protocol, and its store one for all: the other one of the same port stays."""
    address, options = world.address(), ("--uplink", "slirp4netns")
    with contextlib.closing(Run("run", world, policy(f"ask {address}", verify="tls"), options)) as box:
        def stored():
            return json.loads(world.weir("review", "list", "--json", "--state-dir", box.store).text or "[]")
        for kind in kinds:
            box.probe([kind, address, 7007, "x"])
            wait_for(lambda kind=kind: [t["protocol"] for t in stored()] == [kind], step=0.05)
        done = world.weir("review", "dismiss", str(stored()[0]["id"]), "--live", "--state-dir", box.store)
        assert done.code == 0, done
        left, = {"tcp", "udp"} - {kinds[-1]}
        assert [(t["protocol"], t["port"]) for t in box.reviews() if t["state"] == "open"] == [(left, 7007)]


TWO = """
import concurrent.futures, socket, sys
def talk(port, text):
    with socket.create_connection((sys.argv[1], port), 60) as s:
        s.sendall(text.encode())
        try:
            return s.recv(100).decode()
        except ConnectionResetError:
            return "reset"
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print([a.split("\\r")[0] for a in pool.map(talk, (80, 7007), (sys.argv[2], "x"))], flush=True)
sys.stdin.readline()
"""


def grants(box):
    rules = box.send("GET", "/policy").json()["policy"]["egress"]
    return [(r["ports"], "until" in r) for r in rules if r["action"] == "allow"]


def test_two_ports_of_a_name_that_wait_are_granted_one_after_the_other(world):
    site = world.site(f"ask{world.number()}.test")
    command = ("/usr/bin/python3", "-c", TWO, site.name, GET.format(site.name))
    with contextlib.closing(Run("run", world, policy(f"ask {site.name}", verify="tls"), command=command)) as box:
        waiting = wait_for(lambda: len(box.reviews()) == 2 and {t["port"]: t for t in box.reviews()})
        box.accept(waiting[80], **{"for": "10m"})
        box.accept(waiting[7007], **{"for": "1h"})
        assert box.started.line() == "['HTTP/1.1 200 OK', 'x']"
        assert grants(box) == [(["tcp/80", "tcp/7007"], True), (["tcp/7007"], True)]


def test_one_port_of_a_name_is_dismissed_while_the_other_one_is_granted(world):
    """What waits for it is refused at once, with the reason of who said no."""
    site = world.site(f"ask{world.number()}.test")
    command = ("/usr/bin/python3", "-c", TWO, site.name, GET.format(site.name))
    with contextlib.closing(Run("run", world, policy(f"ask {site.name}", verify="tls"), command=command)) as box:
        waiting = wait_for(lambda: len(box.reviews()) == 2 and {t["port"]: t for t in box.reviews()})
        box.accept(waiting[80], **{"for": "10m"})
        box.dismiss(waiting[7007])
        assert box.started.line() == "['HTTP/1.1 200 OK', 'reset']"
        wait_for(lambda: [e for e in box.denies() if "refused by who was asked" in e["reason"]])


def test_a_grant_of_another_port_leaves_the_first(world):
    site = world.site(f"ask{world.number()}.test")
    talk = ["connect", site.name, 80, GET.format(site.name)], ["connect", site.name, 7007, "x"]
    with asked(world, "sidecar", f"ask {site.name}", verify="tls") as box:
        box.change(json.dumps({"verify": "tls", "egress": [
            {"action": "allow", "target": site.name, "ports": [80], "for": "10m"}, {"action": "ask", "target": site.name}]}))
        web, other = box.probe(*talk)
        assert "200 OK" in web.data and other.result != "ok", (web, other)
        box.accept(task(box, site.name), **{"for": "1h"})
        web, other = box.probe(*talk)
        assert "200 OK" in web.data and other.result == "ok", (web, other)
        assert grants(box) == [(["80", "tcp/7007"], True), (["tcp/7007"], True)]


def test_what_is_proposed_follows_the_policy(world):
    site = world.site(f"ask{world.number()}.test")
    with asked(world, "run", f"ask {site.name}", verify="tls") as box:
        with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
            waiting = task(box, site.name)
            assert waiting["rule"]["ports"] == ["tcp/80"]
            box.change(policy(f"deny {site.name}", verify="tls"))
            assert task(box, site.name)["rule"] is None
            refused = box.send("POST", f"/review/{waiting['id']}/accept")
            assert refused.status == 409 and "no rule can allow this" in refused.text, refused
        assert "403 Forbidden" in client.answer.data
        expect.name_refused(box.probe(["dns", site.name]))
        box.assert_silent()
