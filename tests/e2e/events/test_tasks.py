# SPDX-License-Identifier: Apache-2.0
"""Review tasks and counts of a daemon's sandboxes: each has its own, and decides for itself alone."""
import pytest

from world.sidecar import wait_for


@pytest.fixture
def both(host, pod, other, denied):
    daemon = host.daemon("--state-dir", host.folder / "state")
    daemon.attach("one", pod)
    daemon.attach("two", other)
    pod.probe(["dns", denied.name])
    other.probe(["dns", denied.name], ["dns", "more." + denied.name])
    wait_for(lambda: len(tasks(daemon, "one")) == 1 and len(tasks(daemon, "two")) == 2)
    return daemon


def tasks(daemon, name):
    reply = daemon.get(f"/sandboxes/{name}/review")
    return {t["destination"]: t for t in reply.json()["tasks"]} if reply.status == 200 else {}


def test_a_task_is_decided_by_its_own_sandbox_alone(both, pod, other, denied):
    task = tasks(both, "one")[denied.name]
    for verb in ("accept", "dismiss"):
        assert both.call("POST", f"/sandboxes/two/review/{task['id']}/{verb}").status == 404
    assert both.get(f"/sandboxes/two/review/{task['id']}").status == 404
    assert both.call("POST", f"/sandboxes/one/review/{task['id']}/accept").status == 200
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    assert not other.probe(["dns", denied.name]).addresses
    assert not tasks(both, "one") and denied.name in tasks(both, "two")


def test_the_daemon_has_the_tasks_of_all(both, pod, other, denied):
    """Each is decided for its own sandbox."""
    found = {(t["sandbox"], t["destination"]): t for t in both.get("/review").json()["tasks"]}
    assert set(found) == {("one", denied.name), ("two", denied.name), ("two", "more." + denied.name)}
    number = found["two", denied.name]["id"]
    shown = both.get(f"/review/{number}").json()
    assert (shown["sandbox"], shown["diff"]) == ("two", [f'+ {{"action":"allow","target":"{denied.name}"}}'])
    done = both.call("POST", f"/review/{number}/accept?who=alice")
    assert (done.status, done.json()["who"]) == (200, "alice")
    assert other.probe(["dns", denied.name]).addresses == [denied.v4]
    assert not pod.probe(["dns", denied.name]).addresses
    assert both.call("POST", f"/review/{found['two', 'more.' + denied.name]['id']}/dismiss").status == 200
    assert {t["sandbox"] for t in both.get("/review").json()["tasks"]} == {"one"}
    assert {t["state"] for t in both.get("/review?state=all").json()["tasks"]} == {"open", "accepted", "dismissed"}
    assert both.get("/review/999").status == 404


def test_the_task_of_a_sandbox_that_is_gone_can_only_be_dismissed(both, denied):
    number = tasks(both, "one")[denied.name]["id"]
    assert both.weir("detach", "one").code == 0
    assert both.get(f"/review/{number}").json()["diff"] is None
    assert both.call("POST", f"/review/{number}/accept").status == 409
    assert both.call("POST", f"/review/{number}/dismiss").status == 200
    assert {t["sandbox"] for t in both.get("/review").json()["tasks"]} == {"two"}


def test_denials_are_counted_for_each(both):
    def count(name, query=""):
        return both.get(f"/sandboxes/{name}/denies/count{query}").json()
    one, two = count("one"), count("two")
    assert one["from"] == two["from"] == "store"
    assert 0 < one["packets"] < two["packets"] and one["events"] < two["events"]
    assert count("two", "?since=1h") == two and count("two", "?since=2100-01-01T00:00:00Z")["packets"] == 0
    every = both.get("/denies/count").json()
    assert every == {"events": one["events"] + two["events"], "packets": one["packets"] + two["packets"], "from": "store", "cut": False}


def test_a_task_is_accepted_from_the_command_line(host, both, pod, other, denied):
    """`--live`: after what it changes was shown, the daemon changes that sandbox's policy."""
    number = str(tasks(both, "one")[denied.name]["id"])
    where = ("--state-dir", host.folder / "state", "--live")
    done = both.weir("review", "accept", number, *where)
    assert done.code == 1 and f'+ {{"action":"allow","target":"{denied.name}"}}' in done.messages, done
    assert denied.name in tasks(both, "one") and not pod.probe(["dns", denied.name]).addresses
    done = both.weir("review", "accept", number, *where, "--yes", "--who", "al ice?")
    assert done.code == 0, done
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    assert not other.probe(["dns", denied.name]).addresses
    task = both.get(f"/sandboxes/one/review/{number}").json()
    assert (task["state"], task["who"]) == ("accepted", "al ice?")
    gone = both.weir("review", "accept", str(tasks(both, "two")[denied.name]["id"]), *where, "--yes", "--socket", "/nowhere")
    assert gone.code == 125 and denied.name in tasks(both, "two"), gone
