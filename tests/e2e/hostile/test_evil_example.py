# SPDX-License-Identifier: Apache-2.0
"""A sandbox that tries https://api.evil.example is refused at once, its deny row is there, its review task is open:
of a run, a sidecar and a daemon, from the packet to what `weir` shows."""
import json
import sqlite3

import pytest

from world.sidecar import wait_for

NAME = "api.evil.example"
TRY = ("env", "RES_OPTIONS=timeout:50", "curl", "-sS", "--max-time", "45", f"https://{NAME}/")
NO_SUCH_HOST = 6    # of curl


@pytest.fixture(scope="module")
def evil(world):
    return world.site(NAME)


@pytest.fixture
def state(world):
    path = world.workdir() / "state"
    path.mkdir(mode=0o700)
    return path


def by_run(world, pod, host, state):
    done = world.run(*TRY, options=("--state-dir", state, "--quiet"))
    return done, None


def by_sidecar(world, pod, host, state):
    pod.sidecar("--state-dir", str(state), "--sandbox-id", "sb-evil", rules='{"egress":[]}')
    done = pod.run(*TRY)
    return done, "sb-evil"


def by_daemon(world, pod, host, state):
    host.daemon("--state-dir", state).attach("sb-evil", pod)
    done = pod.run(*TRY)
    return done, "sb-evil"


@pytest.mark.parametrize("way", [by_run, by_sidecar, by_daemon], ids=["run", "sidecar", "daemon"])
def test_it_is_refused_at_once_and_its_row_and_its_task_are_there(world, host, pod, evil, state, way):
    done, sandbox = way(world, pod, host, state)
    assert done.code == NO_SUCH_HOST, done  # a resolver that hears nothing goes on longer than curl
    assert not world.dns.queries(NAME), "nobody outside was asked"

    def shown(*args):
        found = world.weir(*args, "--json", env={"WEIR_STATE_DIR": str(state)})
        return [json.loads(line) for line in found.text.splitlines()] if args[0] == "events" else json.loads(found.text or "[]")
    wait_for(lambda: (state / "events.db").exists() and [t for t in shown("review", "list") if t["destination"] == NAME])
    rows = [e for e in shown("events", "--name", NAME) if e["sandbox"] == (sandbox or e["sandbox"])]
    assert rows and {(e["action"], e["layer"], e["remote_ip"], e["rule"], e["reason"]) for e in rows} == {
        ("deny", "dns", None, None, "no rule allows it")}
    for task in [t for t in shown("review", "list") if t["destination"] == NAME]:
        assert (task["state"], task["rule"]) == ("open", {"action": "allow", "target": NAME})
    with sqlite3.connect(f"file:{state}/events.db?mode=ro", uri=True) as db:
        assert db.execute("SELECT count(*) FROM event WHERE action = 2 AND name = ?", [NAME]).fetchone()[0] == len(
            shown("events", "--name", NAME))
    assert pod.packets(dst=evil.v4) == []
