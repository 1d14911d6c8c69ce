# SPDX-License-Identifier: Apache-2.0
"""A sidecar whose sandbox was denied too much is closed: everything, until somebody sets a policy."""
import json
import re
import subprocess
import time

import pytest

from world.expect import name_refused, tcp_refused
from world.sidecar import Flow, policy, wait_for

STOP = {"count": 5, "window": "1m", "action": "stop"}


def provoke(pod, denied, count=8):
    pod.probe(*[["dns", f"n{i}.{denied.name}"] for i in range(count)])


def closed(side):
    return side.get("/status").json()["closed"]


def wait_closed(side):
    return wait_for(lambda: closed(side))


def events(side, state):
    """What its store has."""
    done = subprocess.run([side.pod.world.weir_path, "events", "--state-dir", state, "--json"], capture_output=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def start(pod, tmp_path, site):
    tmp_path.chmod(0o755)
    always = tmp_path / "rules"
    always.mkdir()
    (always / "allow.always").write_text("7.7.7.7\n")

    def run(*args, on_denies=STOP, **options):
        rules = policy(f"allow {site.name}", on_denies=on_denies)
        return pod.sidecar("--always-dir", str(always), *args, rules=rules, **options)
    return run


def test_too_many_denials_close_it_and_a_policy_opens_it(pod, start, site, denied):
    side = start()
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    flow, always = Flow(pod, site.v4), Flow(pod, "7.7.7.7")
    assert flow.say() == always.say() == "got"
    provoke(pod, denied, 5)
    wait_for(lambda: side.get("/denies/count").json()["packets"] == 5)
    assert closed(side) is None
    provoke(pod, denied, 1)
    assert wait_closed(side) == "more than 5 denies in 1m"
    assert re.search(r"^weir_closed(\{.*\})? 1$", side.get("/metrics").text, re.M)
    # what was open is cut, what is always allowed as well, and nothing comes anew
    assert flow.say() != "got" and always.say() != "got"
    name_refused(pod.probe(["dns", site.name]))
    tcp_refused(pod.probe(["tcp", "7.7.7.7", 7007]))
    shown = side.get("/policy").json()
    assert shown["mode"] == "deny_all" and shown["policy"] == {
        "egress": [], "defaultAction": "deny", "closed": "more than 5 denies in 1m"}
    side.wait_log("the sandbox is closed: more than 5 denies in 1m")
    # a patch doesn't open it, nor does the end of its processes
    for method, body in (("PATCH", [{"action": "allow", "target": site.name}]), ("DELETE", [site.name])):
        reply = side.call(method, "/policy", body)
        assert reply.status == 409 and "closed" in reply.text
    for name in ("control", "engine"):
        side.wait_replaced(name, side.kill_child(name))
        wait_for(side.healthy)
        assert closed(side)
        name_refused(pod.probe(["dns", site.name]))
        tcp_refused(pod.probe(["tcp", "7.7.7.7", 7007]))
    side.post(f"allow {site.name}")
    assert closed(side) is None
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert pod.probe(["tcp", "7.7.7.7", 7007]).result == "ok"


def test_an_event_closes_nothing(pod, start, site, denied, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    side = start("--state-dir", str(state), on_denies={**STOP, "action": "event"})
    provoke(pod, denied, 20)
    limits = wait_for(lambda: [e for e in events(side, state) if e["action"] == "limit"])
    assert [(e["reason"], e["limit"], e["packets"]) for e in limits] == [("more than 5 denies in 1m", "on_denies", 1)]
    assert closed(side) is None and pod.probe(["dns", site.name]).addresses == [site.v4]


@pytest.mark.parametrize("where", ["policy-file", "state-dir"])
def test_a_restart_of_the_container_opens_nothing(pod, start, site, denied, tmp_path, where):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    args = ("--policy-file", str(state / "policy.json")) if where == "policy-file" else ("--state-dir", str(state))
    side = start(*args)
    provoke(pod, denied)
    wait_closed(side)
    kept = state / ("policy.json" if where == "policy-file" else "closed.json")
    wait_for(lambda: kept.exists() and "closed" in json.loads(kept.read_text()))
    assert side.stop() == 0
    side = start(*args)
    assert closed(side) == "more than 5 denies in 1m"
    name_refused(pod.probe(["dns", site.name]))
    tcp_refused(pod.probe(["tcp", "7.7.7.7", 7007]))
    side.post(f"allow {site.name}")
    assert side.stop() == 0
    side = start(*args)
    assert closed(side) is None and pod.probe(["dns", site.name]).addresses == [site.v4]


def test_what_cannot_be_kept_is_closed_all_the_same(pod, start, site, denied, tmp_path):
    side = start("--policy-file", str(tmp_path / "policy.json"))
    in_the_way = tmp_path / ".policy.json.weir-new"
    in_the_way.mkdir()
    provoke(pod, denied)
    wait_closed(side)
    name_refused(pod.probe(["dns", site.name]))
    side.wait_log("cannot close the sandbox, trying again")
    assert not side.log("the sandbox is closed")
    in_the_way.rmdir()
    side.wait_log("the sandbox is closed")
    assert "closed" in json.loads((tmp_path / "policy.json").read_text())


def test_a_file_that_cannot_be_written_reopens_nothing_and_takes_no_generation(pod, start, site, denied, tmp_path):
    """As in a volume of Kubernetes': a symbolic link stands in the file's place."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (tmp_path / "elsewhere.json").write_text(policy(f"allow {site.name}", on_denies=STOP))
    (tmp_path / "policy.json").symlink_to("elsewhere.json")
    args = ("--policy-file", str(tmp_path / "policy.json"), "--state-dir", str(state))
    side = start(*args)
    provoke(pod, denied)
    wait_closed(side)
    side.wait_log("cannot close the sandbox, trying again")
    before = side.get("/status").json()["generation"]
    wait_for((state / "closed.json").exists)
    time.sleep(2.5)     # in which it is tried again
    assert side.get("/status").json()["generation"] == before
    assert side.stop() == 0
    side = start(*args)
    assert closed(side) == "more than 5 denies in 1m"
    name_refused(pod.probe(["dns", site.name]))
    tcp_refused(pod.probe(["tcp", site.v4, 7007]))


def test_packets_count_as_lookups_do(pod, start, site, denied):
    side = start()
    pod.probe(*[["tcp", f"9.9.{i}.9", 443] for i in range(5)])
    assert closed(side) is None
    pod.probe(["udp", "9.9.9.9", 123])
    wait_closed(side)
    tcp_refused(pod.probe(["tcp", "7.7.7.7", 7007]))


def broken(file):
    file.write_text(file.read_text()[:20])


def emptied(file):
    file.write_text("")


def gone(file):
    file.unlink()


@pytest.fixture
def kept(pod, tmp_path):
    """A sidecar's file for its policy, and a way to start it with much wider rules in the environment."""
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    file = tmp_path / "policy.json"

    def run():
        return pod.sidecar("--policy-file", str(file), "--state-dir", str(state), rules=policy(default="allow"))
    run.file, run.state = file, state
    return run


def whats(side):
    return {d["what"]: d["reason"] for d in side.get("/status").json()["degradations"]}


@pytest.mark.parametrize("harm, why", [(broken, "its policy file can't be read"), (emptied, "its policy file is empty"),
                                       (gone, "its policy file is gone")])
def test_a_policy_file_that_is_lost_opens_nothing(pod, kept, site, denied, harm, why):
    side = kept()
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4], "the environment's rules, as long as none was set"
    side.post(f"allow {site.name}")
    name_refused(pod.probe(["dns", denied.name]))
    assert side.stop() == 0
    harm(kept.file)
    side = kept()
    assert closed(side) == why and why in whats(side)["policy"]
    for one in (site, denied):
        name_refused(pod.probe(["dns", one.name]))
        tcp_refused(pod.probe(["tcp", one.v4, 7007]))
    assert pod.queries(denied.name) == 1, "one from before"
    assert wait_for(lambda: [e for e in events(side, kept.state) if e["reason"] == f"closed: {why}"])
    side.post(f"allow {site.name}")
    assert side.stop() == 0
    side = kept()
    assert closed(side) is None and pod.probe(["dns", site.name]).addresses == [site.v4]
    name_refused(pod.probe(["dns", denied.name]))


def test_a_file_that_was_closed_and_is_lost_opens_nothing(pod, kept, site, denied):
    side = kept()
    assert side.call("POST", "/policy", policy(f"allow {site.name}", on_denies=STOP)).status == 200
    provoke(pod, denied)
    wait_closed(side)
    wait_for(lambda: "closed" in json.loads(kept.file.read_text()))
    assert side.stop() == 0
    broken(kept.file)
    side = kept()
    assert closed(side) == "more than 5 denies in 1m"
    name_refused(pod.probe(["dns", site.name]))
    tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    side.post(f"allow {site.name}")
    assert side.stop() == 0
    side = kept()
    assert closed(side) is None and pod.probe(["dns", site.name]).addresses == [site.v4]
