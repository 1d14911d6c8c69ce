# SPDX-License-Identifier: Apache-2.0
"""What asks (`action: ask`), end to end: decided by a link of a webhook, copied to PostgreSQL, granted while the engine is
killed, by two people at once, and beside what nobody can be asked for."""
import concurrent.futures
import contextlib
import json
import os
import signal
import time
import types

import pytest

from world.copies import Sender
from world.postgres import Database, binaries
from world.sidecar import policy, wait_for

GET = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
BASE = "https://weir.example/api"


def talk(site):
    return ["connect", site.name, 80, GET.format(site.name)]


@contextlib.contextmanager
def waiting(pod, *sites):
    """Connections to @sites that wait, while the block runs: {name: a future of its answer}."""
    with concurrent.futures.ThreadPoolExecutor(len(sites)) as pool:
        yield {site.name: pool.submit(pod.probe, talk(site)) for site in sites}


def tasks(side):
    reply = side.get("/review?state=all")  # 503 before the first row is stored
    return {t["destination"]: t for t in reply.json()["tasks"]} if reply.status == 200 else {}


@pytest.fixture
def sites(world):
    return [world.site(f"ask{world.number()}.test") for _ in range(2)]


@pytest.fixture
def asking(pod, sites, state):
    """asking(option…): a sidecar whose policy asks for @sites."""
    def start(*args, env=None, **more):
        document = policy(*(f"ask {s.name}" for s in sites), verify="tls", **more)
        return pod.sidecar("--state-dir", str(state), *args, rules=document, mode="dns+nft+tls", env=env)
    return start


def test_a_link_decides_what_waits(world, pod, sites, asking, hook):
    side = asking("--review-webhook", hook.secure_url, "--review-url", BASE, env={"SSL_CERT_FILE": str(world.ca.cert)})
    yes, no = sites
    with waiting(pod, yes, no) as clients:
        sent = wait_for(lambda: len(found := {body["destination"]: body for _, _, body in list(hook.calls)}) == 2 and found)
        assert pod.queries(yes.name) == pod.queries(no.name) == 0
        for name, key, form in ((yes.name, "accept_url", "for=10m"), (no.name, "deny_url", None)):
            link = sent[name][key]
            assert link.startswith(BASE + "/answer/")
            done = side.call("POST", link[len(BASE):], form, token=None, headers={"Content-Type": "application/x-www-form-urlencoded"})
            assert done.status == 200, done
        assert "200 OK" in clients[yes.name].result(60).data
        refused = clients[no.name].result(60).data
        assert "403 Forbidden" in refused and "refused by who was asked" in refused
    assert pod.queries(no.name) == 0 and not pod.packets(dst=no.v4)
    assert {name: (t["state"], t["who"]) for name, t in tasks(side).items()} == {
        yes.name: ("accepted", "signed link"), no.name: ("dismissed", "signed link")}


@pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")
def test_what_asks_and_its_answer_are_in_postgres(shared, pod, sites, asking, state):
    server = Database(shared, f"d{time.monotonic_ns()}")
    side = asking()
    site = sites[0]

    def copied():
        return server.rows("SELECT destination, state, coalesce(who, ''), rule -> 'ports' ->> 0 FROM sandbox_egress_review")
    with contextlib.ExitStack() as opened:
        opened.callback(server.end)
        clients = opened.enter_context(waiting(pod, site))
        task = wait_for(lambda: tasks(side).get(site.name))
        opened.enter_context(Sender(types.SimpleNamespace(folder=state), server.conninfo))
        wait_for(lambda: server.rows("SELECT 1 FROM pg_tables WHERE tablename = 'sandbox_egress_review'"), step=0.05)
        wait_for(lambda: copied() == [(site.name, "open", "", "tcp/80")], step=0.05)
        assert side.call("POST", f"/review/{task['id']}/accept?who=alice", '{"for": "10m"}').status == 200
        wait_for(lambda: copied() == [(site.name, "accepted", "alice", "tcp/80")], step=0.05)
        assert "200 OK" in clients[site.name].result(60).data
        wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_notice WHERE action = 'ask'") == 1, step=0.05)


@pytest.mark.parametrize("verb", ["accept", "dismiss"])
def test_an_answer_while_the_engine_is_killed(pod, sites, asking, verb):
    """It is stopped first, so that the answer is under way when it dies. What waits is refused or served, and what comes later
    is as the policy then says."""
    side = asking()
    site = sites[0]
    with waiting(pod, site) as clients, concurrent.futures.ThreadPoolExecutor(1) as person:
        task = wait_for(lambda: tasks(side).get(site.name))
        engine = side.kill_child("engine", signal.SIGSTOP)
        answer = person.submit(side.call, "POST", f"/review/{task['id']}/{verb}", '{"for": "10m"}' if verb == "accept" else None)
        assert not clients[site.name].done() and pod.queries(site.name) == 0
        os.kill(engine, signal.SIGKILL)
        side.wait_replaced("engine", engine)
        said, waited = answer.result(60), clients[site.name].result(60)
    wait_for(side.healthy)
    granted = any(r["action"] == "allow" for r in side.get("/policy").json()["policy"]["egress"])
    assert granted == (said.status == 200 and verb == "accept"), said
    assert "200 OK" not in waited.get("data", "") or granted, waited
    if granted:
        assert "200 OK" in pod.probe(talk(site)).data
        return
    assert pod.queries(site.name) == 0 and not pod.packets(dst=site.v4)
    # it can be granted still; an engine that came in time to hear of the dismissal refuses until then
    with waiting(pod, site) as clients:
        again = wait_for(lambda: (clients[site.name].done() or tasks(side)[site.name]["state"] == "open") and tasks(side)[site.name])
        assert side.call("POST", f"/review/{again['id']}/accept").status == 200
        told = clients[site.name].result(60).data
    assert "200 OK" in told or again["state"] == "dismissed" and "403 Forbidden" in told, (again, told)
    assert "200 OK" in pod.probe(talk(site)).data


def test_two_who_grant_at_once(pod, sites, asking):
    side = asking()
    site = sites[0]
    with waiting(pod, site) as clients, concurrent.futures.ThreadPoolExecutor(2) as people:
        task = wait_for(lambda: tasks(side).get(site.name))
        done = list(people.map(lambda t: side.call("POST", f"/review/{task['id']}/accept?who={t}", json.dumps({"for": t})).status, ("10m", "2h")))
        assert done == [200, 200]
        assert "200 OK" in clients[site.name].result(60).data
    rules = [r for r in side.get("/policy").json()["policy"]["egress"] if r["action"] == "allow"]
    assert all(r["target"] == site.name and r["ports"] == ["tcp/80"] for r in rules), rules
    # neither shortens the other
    assert max(g["secondsLeft"] for g in side.get("/status").json()["grants"]) > 3600
    assert tasks(side)[site.name]["state"] == "accepted"


def test_no_grant_weakens_the_isolation(pod, sites, asking, tmp_path):
    """A policy that requires the whole filter has it or nothing: nobody is asked instead."""
    side = asking(require_full_isolation=True)
    site = sites[0]
    with waiting(pod, site) as clients:
        task = wait_for(lambda: tasks(side).get(site.name))
        assert side.call("POST", f"/review/{task['id']}/accept").status == 200
        assert "200 OK" in clients[site.name].result(60).data
    document = side.get("/policy").json()["policy"]
    assert document["require_full_isolation"] is True and document["verify"] == "tls", document
    assert side.get("/status").json()["fullIsolation"] and {t["destination"] for t in tasks(side).values()} == {site.name}
    assert side.stop() == 0
    # without the filter nothing starts, and nothing asks
    weaker = pod.sidecar(mode="dns", rules=json.dumps(document), ready=False)
    assert weaker.ended() != 0
