# SPDX-License-Identifier: Apache-2.0
"""Who is told that a review task has opened: webhooks, each once for a sandbox and destination."""
import contextlib
import json
import os
import pathlib
import sqlite3
import time

import pytest

from world.daemon import Host
from world.expect import name_refused
from world.sidecar import wait_for


def told(hook):
    return [body for _, _, body in list(hook.calls)]


def noted(state):
    """Who has been told of the tasks: 1 the webhooks, 2 the command."""
    with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
        return {told for told, in db.execute("SELECT told FROM review")}


def taken(state, url=0):
    """How many tasks that webhook is known to have."""
    with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
        return db.execute("SELECT count(*) FROM review_try WHERE whom = ? AND after IS NULL", (4 + url,)).fetchone()[0]


def test_each_task_is_told_once(pod, guarded, hook, state, denied):
    args = ("--state-dir", str(state), "--sandbox-id", "sb-4", "--review-webhook", hook.url)
    side = guarded(f"deny ruled.{denied.name}", args=args)
    for _ in range(3):
        pod.probe(["dns", denied.name], ["dns", f"ruled.{denied.name}"], ["tcp", "9.8.7.6", 4443])
    wait_for(lambda: len(told(hook)) >= 2)
    pod.probe(["dns", denied.name])
    pod.probe(["dns", "more." + denied.name])
    wait_for(lambda: "more." + denied.name in {t["destination"] for t in told(hook)})
    found = {t["destination"]: t for t in told(hook)}
    assert set(found) == {denied.name, "more." + denied.name, "9.8.7.6"} and len(told(hook)) == 3
    task = found[denied.name]
    assert (task["source"], task["event"], task["sandbox"], task["state"]) == ("weir", "review.opened", "sb-4", "open")
    assert task["rule"] == {"action": "allow", "target": denied.name} and task["packets"] >= 1
    assert found["9.8.7.6"]["rule"]["ports"] == ["tcp/4443"]
    assert side.get(f"/review/{task['id']}").json()["destination"] == denied.name
    assert all(path == "/deny?x=1" and kind == "application/json" for path, kind, _ in hook.calls)
    # and not again after a restart, nor by control's successor, once it is noted that it has arrived
    wait_for(lambda: noted(state) == {1})
    side.wait_replaced("control", side.kill_child("control"))
    wait_for(side.healthy)
    assert side.stop() == 0
    guarded(args=args)
    pod.probe(["dns", denied.name], ["dns", "third." + denied.name])
    wait_for(lambda: len(told(hook)) >= 4)
    assert [t["destination"] for t in told(hook)[3:]] == ["third." + denied.name]


def test_deny_webhooks_and_review_webhooks_are_apart(pod, guarded, hook, state, denied):
    """The first are told of every denial, the second of tasks."""
    other = hook.url.replace("/deny?x=1", "/denied")
    guarded(args=("--state-dir", str(state), "--review-webhook", hook.url, "--deny-webhook", other))
    pod.probe(["dns", denied.name])
    pod.probe(["dns", denied.name])
    wait_for(lambda: len(hook.calls) >= 3)
    time.sleep(0.3)
    assert sorted(path for path, _, _ in hook.calls) == ["/denied", "/denied", "/deny?x=1"]
    assert all(("event" in body) == (path == "/deny?x=1") for path, _, body in hook.calls)


def test_a_flood_of_destinations_is_told_in_small_doses(pod, guarded, hook, state, denied):
    """Twenty at a time, and a pause; what waits is in the store, and names are judged meanwhile."""
    side = guarded("allow other.test", args=("--state-dir", str(state), "--review-webhook", hook.url))
    for i in range(3):
        pod.probe(*[["dns", f"n{i}-{k}.{denied.name}"] for k in range(19)])
        time.sleep(1)
    wait_for(lambda: len(told(hook)) >= 20)
    name_refused(pod.probe(["dns", denied.name]))
    assert len(told(hook)) == 20 and len({t["destination"] for t in told(hook)}) == 20
    wait_for(lambda: len(side.get("/review").json()["tasks"]) > 40)


def test_an_outage_loses_nothing_however_it_ends(pod, guarded, hook, state, denied):
    """One URL answers 503, through deaths of the program, of control, and a restart; the other one is told once."""
    down = hook.url.replace("/deny?x=1", "/down")
    hook.statuses["/down"] = 503
    args = ("--state-dir", str(state), "--review-webhook", hook.url, "--review-webhook", down)
    names = [f"n{i}.{denied.name}" for i in range(3)]

    def said(path):
        return [t["destination"] for at, _, t in list(hook.calls) if at == path]
    side = guarded(args=args)
    pod.probe(*[["dns", name] for name in names])
    # what was taken, but not yet noted as told, would rightly be told again
    wait_for(lambda: set(said("/deny?x=1")) == set(names) and said("/down") and taken(state) == len(names))
    tried = len(said("/down"))
    side.wait_replaced("weir-webhook", side.kill_child("weir-webhook"))
    wait_for(lambda: len(said("/down")) > tried)
    tried = len(said("/down"))
    side.wait_replaced("control", side.kill_child("control"))
    wait_for(lambda: len(said("/down")) > tried)
    assert side.stop() == 0
    # by another path: what came at the last moment may be heard of later
    guarded(args=(*args[:-1], down.replace("/down", "/up")))
    wait_for(lambda: set(said("/up")) == set(names))
    time.sleep(2.5)
    assert sorted(said("/up")) == sorted(said("/deny?x=1")) == sorted(names)


def test_a_task_that_was_decided_is_told_no_more(pod, guarded, hook, state, denied):
    hook.status = 503
    args = ("--state-dir", str(state), "--review-webhook", hook.url)
    side = guarded(args=args)
    pod.probe(["dns", denied.name], ["dns", "other." + denied.name])
    wait_for(lambda: hook.calls and len(side.get("/review").json()["tasks"]) == 2)
    number = {t["destination"]: t["id"] for t in side.get("/review").json()["tasks"]}[denied.name]
    assert side.call("POST", f"/review/{number}/dismiss").status == 200
    side.kill_child("weir-webhook")  # what it had is told anew, as far as it is open
    hook.status = 200
    del hook.calls[:]
    wait_for(lambda: told(hook))
    time.sleep(2.5)
    assert [t["destination"] for t in told(hook)] == ["other." + denied.name]


def test_a_daemon_tells_of_each_of_its_sandboxes(world, pod, hook, denied):
    with Host(world) as host:
        daemon = host.daemon("--state-dir", host.folder / "state", "--review-webhook", hook.url)
        daemon.attach("one", pod)
        pod.probe(["dns", denied.name])
        (task,) = wait_for(lambda: told(hook))
        assert (task["sandbox"], task["destination"]) == ("one", denied.name)
        assert task["id"] in {t["id"] for t in daemon.get("/sandboxes/one/review").json()["tasks"]}


@pytest.mark.parametrize("option", [("--review-webhook", "http://x.test/"), ("--review-command", "/bin/true")])
def test_without_a_store_there_is_nothing_to_tell(pod, option):
    side = pod.sidecar(*option, ready=False)
    assert side.ended() == 2 and any("--state-dir is needed" in line for line in side.errors)


SCRIPT = """#!/bin/sh
# says what it was given, and stays or fails as it is told
mkdir -p {out}
{{ cat; echo; cat /proc/$$/cmdline | tr '\\0' '|'; echo; env; grep -E '^(CapEff|NoNewPrivs)' /proc/$$/status; }} > {out}/$$.new
mv {out}/$$.new {out}/$$
{then}
"""


@pytest.fixture
def command(tmp_path):
    def make(then="exit 0"):
        path = tmp_path / "tell"
        path.write_text(SCRIPT.format(out=tmp_path / "out", then=then))
        path.chmod(0o755)
        return path
    make.runs = lambda: [p.read_text() for p in (tmp_path / "out").glob("*") if p.suffix != ".new"]
    return make


def test_a_command_is_run_with_the_task_on_its_input(pod, guarded, state, command, denied):
    path = command()
    side = guarded(args=("--state-dir", str(state), "--sandbox-id", "sb-5", "--review-command", str(path)))
    pod.probe(["dns", denied.name])
    wait_for(command.runs)
    pod.probe(["dns", denied.name], ["dns", ["$(touch /x); `id`", "test"]], ["dns", "other." + denied.name])
    wait_for(lambda: len(command.runs()) == 2)
    tasks = {}
    for run in command.runs():
        task, empty, argv, *rest = run.splitlines()
        task = json.loads(task)
        tasks[task["destination"]] = task
        assert empty == "" and argv == f"/bin/sh|{path}|", "one argument: itself"
        env = {line.split("=")[0] for line in rest if "=" in line}
        assert env - {"PWD", "OLDPWD", "_", "SHLVL"} == {"PATH", "LANG"}
        assert "CapEff:\t0000000000000000" in rest and "NoNewPrivs:\t1" in rest
    assert set(tasks) == {denied.name, "other." + denied.name}
    assert (tasks[denied.name]["event"], tasks[denied.name]["sandbox"]) == ("review.opened", "sb-5")
    side.wait_replaced("weir-review", side.kill_child("weir-review"))
    pod.probe(["dns", denied.name], ["dns", "third." + denied.name])
    wait_for(lambda: len(command.runs()) == 3)


def test_commands_that_hang_or_fail_are_bounded(pod, guarded, state, command, site, denied):
    path = command("exec sleep 3600")
    side = guarded(f"allow {site.name}", args=("--state-dir", str(state), "--review-command", str(path)))
    pod.probe(*[["dns", f"n{i}.{denied.name}"] for i in range(12)])
    wait_for(lambda: len(command.runs()) == 4)
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    name_refused(pod.probe(["dns", denied.name]))
    helper = side.child("weir-review")

    def running():
        return pathlib.Path(f"/proc/{helper}/task/{helper}/children").read_text().split()
    for _ in range(10):  # one that hangs for 30 s is killed, and makes room
        time.sleep(0.1)
        assert len(running()) <= 4, "no more at a time"
    children = wait_for(lambda: len(found := running()) == 4 and found)
    command("exit 3")
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    wait_for(lambda: any("ended with status 3 for task" in line for line in side.errors))
    wait_for(lambda: any("was killed by signal 9 for task" in line and "trying again" in line for line in side.errors))
    assert side.stop() == 0


def test_a_command_is_run_until_it_succeeds(pod, guarded, state, command, tmp_path, denied):
    """Whoever is killed in between runs it again; once it has succeeded nobody does."""
    path = command(f"test -e {tmp_path}/works || {{ sleep 1; exit 3; }}")
    args = ("--state-dir", str(state), "--review-command", str(path))
    side = guarded(args=args)
    pod.probe(["dns", denied.name])
    wait_for(lambda: any("ended with status 3 for task" in line for line in side.errors))
    for _ in range(2):
        begun = len(command.runs())
        side.wait_replaced("weir-review", side.kill_child("weir-review"))
        wait_for(lambda n=begun: len(command.runs()) > n)
    (tmp_path / "works").touch()
    side.wait_replaced("weir-review", side.kill_child("weir-review"))
    wait_for(lambda: noted(state) == {2})
    ended = len(command.runs())
    assert side.stop() == 0
    guarded(args=args)
    time.sleep(2)
    assert len(command.runs()) == ended


def test_a_command_that_is_not_there_is_said(pod, guarded, state, site, denied):
    side = guarded(f"allow {site.name}", args=("--state-dir", str(state), "--review-command", "/nowhere/tell"))
    pod.probe(["dns", denied.name])
    wait_for(lambda: any("cannot run the review command: No such file" in line for line in side.errors))
    assert pod.probe(["dns", site.name]).addresses == [site.v4] and side.healthy()
