# SPDX-License-Identifier: Apache-2.0
"""Review tasks on the API of a whole sidecar: denied, listed, accepted, reached."""
import json

import pytest

from world.sidecar import wait_for


@pytest.fixture
def side(guarded, tmp_path, site):
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    return guarded("allow other.test", args=("--state-dir", str(state), "--sandbox-id", "sb-9"))


def task_of(side, name):
    """The open task of @name, once it is there."""
    def found():
        reply = side.get("/review")
        return reply.status == 200 and [t for t in reply.json()["tasks"] if t["destination"] == name]
    return wait_for(found)[0]


def test_what_was_denied_is_accepted_and_reached(pod, side, site, denied):
    assert not pod.probe(["dns", site.name]).addresses
    pod.probe(["dns", denied.name])
    task = task_of(side, site.name)
    assert (task["sandbox"], task["state"]) == ("sb-9", "open")
    shown = side.get(f"/review/{task['id']}").json()
    assert shown["diff"] == [f'+ {{"action":"allow","target":"{site.name}"}}']
    done = side.call("POST", f"/review/{task['id']}/accept?who=alice")
    assert done.status == 200, done
    assert (done.json()["state"], done.json()["who"], done.json()["diff"]) == ("accepted", "alice", shown["diff"])
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    side.wait_log("egress policy updated")
    other = task_of(side, denied.name)
    assert side.call("POST", f"/review/{other['id']}/dismiss").json()["state"] == "dismissed"
    assert side.get("/review").json()["tasks"] == []
    assert {t["destination"]: t["state"] for t in side.get("/review?state=all").json()["tasks"]} == {
        site.name: "accepted", denied.name: "dismissed"}
    assert not pod.probe(["dns", denied.name]).addresses


def test_what_is_accepted_for_a_time_ends(pod, side, site):
    pod.probe(["dns", site.name])
    path = f"/review/{task_of(side, site.name)['id']}/accept"
    for body in ('{"for": "soon"}', '{"for": 7}', '{"for": "10m", "who": "x"}', '["10m"]', "10m", '{"for": "10m\\"}'):
        assert side.call("POST", path, body).status == 400, body
    assert not pod.probe(["dns", site.name]).addresses
    done = side.call("POST", path, '{"for": "10m"}')
    assert done.status == 200 and '"until":' in done.json()["diff"][0], done
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    grant, = side.get("/status").json()["grants"]
    assert grant["target"] == site.name and 500 < grant["secondsLeft"] <= 600


def test_denials_are_counted_in_the_store(pod, side, site):
    pod.probe(*[["dns", f"n{i}.{site.name}"] for i in range(5)])
    wait_for(lambda: (reply := side.get("/denies/count")).status == 200 and reply.json()["packets"] >= 5)
    count = side.get("/denies/count?since=10m").json()
    assert count["from"] == "store" and count["packets"] >= count["events"] >= 5
    assert side.get("/denies/count?since=2100-01-01T00:00:00Z").json() == {"events": 0, "packets": 0, "from": "store", "cut": False}


def test_strangers_and_nonsense_decide_nothing(pod, side, site):
    pod.probe(["dns", site.name])
    task = task_of(side, site.name)
    path = f"/review/{task['id']}/accept"
    assert side.call("POST", path, token="wrong").status == 401
    assert side.call("GET", path).status == 405
    assert side.call("POST", f"/review/{task['id']}").status == 405
    for target, status in (("/review/99999", 404), ("/review/x", 404), ("/review/", 404), ("/review/1/burn", 404),
                           ("/review/-1", 404), ("/review?state=done", 400), ("/review/4294967297", 404)):
        assert side.get(target).status == status, target
    assert side.call("POST", path + "?who=" + "x" * 500).status == 400
    assert task_of(side, site.name)["state"] == "open"
    assert not pod.probe(["dns", site.name]).addresses


def test_without_a_store_there_are_no_tasks(guarded, site):
    side = guarded(f"deny {site.name}")
    reply = side.get("/review")
    assert reply.status == 404 and "not stored" in reply.text


def test_a_store_that_cannot_be_read_is_503(guarded, site, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "events.db").mkdir()
    side = guarded(f"deny {site.name}", args=("--state-dir", str(tmp_path)))
    assert side.get("/review").status in (404, 503)
    assert json.loads(side.get("/policy").text)
