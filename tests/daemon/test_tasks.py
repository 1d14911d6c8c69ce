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
    wait_for(lambda: len(tasks(daemon, "one")) == 1 and len(tasks(daemon, "two")) == 2, 10)
    return daemon


def tasks(daemon, name):
    reply = daemon.get(f"/sandboxes/{name}/review")
    return {t["destination"]: t for t in reply.json()["tasks"]} if reply.status == 200 else {}


def test_a_task_is_decided_by_its_own_sandbox_alone(both, pod, other, denied):
    task = tasks(both, "one")[denied.name]
    for verb in ("accept", "dismiss"):
        assert both.call("POST", f"/sandboxes/two/review/{task['id']}/{verb}").status == 404
    assert both.get(f"/sandboxes/two/review/{task['id']}").status == 404
    assert both.get("/review").status == both.get(f"/review/{task['id']}").status == 404
    assert both.call("POST", f"/review/{task['id']}/accept").status == 404
    assert both.call("POST", f"/sandboxes/one/review/{task['id']}/accept").status == 200
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    assert not other.probe(["dns", denied.name]).addresses
    assert not tasks(both, "one") and denied.name in tasks(both, "two")


def test_denials_are_counted_for_each(both):
    def count(name, query=""):
        return both.get(f"/sandboxes/{name}/denies/count{query}").json()
    one, two = count("one"), count("two")
    assert one["from"] == two["from"] == "store"
    assert 0 < one["packets"] < two["packets"] and one["events"] < two["events"]
    assert count("two", "?since=1h") == two and count("two", "?since=2100-01-01T00:00:00Z")["packets"] == 0
    assert both.get("/denies/count").status == 404


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
    assert gone.code == 1 and denied.name in tasks(both, "two"), gone
