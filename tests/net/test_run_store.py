# SPDX-License-Identifier: Apache-2.0
"""`weir run --state-dir`: the events of a run are in the store as well, and only when that is asked for."""
import json
import os
import subprocess
import time

ASK = "getent hosts evil.test; curl -sm 5 http://203.0.113.9/ -o /dev/null; true"


def kept(world, folder, *args, **options):
    done = world.weir("events", "--json", "--state-dir", str(folder), *args, **options)
    assert done.code == 0, done
    return [json.loads(line) for line in done.text.splitlines()]


def test_what_a_run_was_denied_is_in_the_store(world, user):
    folder = world.workdir(user) / "state"
    done = world.run("sh", "-c", ASK, options=("--state-dir", str(folder), "--quiet"), user=user)
    assert done.code == 0 and done.err == b"", done
    events = kept(world, folder, user=user)
    assert {e["action"] for e in events} == {"deny"}
    assert "evil.test" in {e["name"] for e in events} and "203.0.113.9" in {e["remote_ip"] for e in events}
    (sandbox,) = {e["sandbox"] for e in events}
    assert sandbox.startswith("run-")
    assert (folder / "events.db").stat().st_uid == world.user(user).uid
    world.run("true", options=("--state-dir", str(folder)), user=user)
    done = world.run("sh", "-c", "getent hosts other.test; true", options=("--state-dir", str(folder)), user=user)
    assert "other.test" in {e["name"] for e in kept(world, folder, user=user)}
    tasks = world.weir("review", "list", "--json", "--state-dir", str(folder), user=user).json()
    assert {"evil.test", "other.test"} <= {t["destination"] for t in tasks}


def test_what_a_run_was_allowed_is_in_the_store(world, user, site):
    """One row for all connections, when it is over; nothing of the self-test."""
    folder = world.workdir(user) / "state"
    ask = f"for i in 1 2 3; do curl -sm 5 http://{site.name}/ -o /dev/null; done; getent hosts localhost >/dev/null; true"
    done = world.run("sh", "-c", ask, options=("--state-dir", str(folder), "--quiet", "--allow", site.name), user=user)
    assert done.code == 0, done
    (row,) = [e for e in kept(world, folder, user=user) if e["action"] == "allow"]
    assert (row["name"], row["remote_port"], row["protocol"], row["layer"]) == (site.name, 80, "tcp", "name")
    assert row["remote_ip"] in (site.v4, site.v6) and row["packets"] == 3 and row["bytes"] > 100
    assert row["rule"] == f"allow {site.name}"


def test_events_are_there_while_the_command_runs_and_after_a_kill(world):
    folder = world.workdir() / "state"
    with world.run_start("sh", "-c", "getent hosts evil.test; echo asked; sleep 60", options=("--state-dir", str(folder))) as run:
        assert run.line() == "asked"
        end = time.monotonic() + 10
        while not ((folder / "events.db").exists() and "evil.test" in {
                e["name"] for e in json.loads("[" + ",".join(world.weir(
                    "events", "--json", "--state-dir", str(folder)).text.splitlines()) + "]")}):
            assert time.monotonic() < end
            time.sleep(0.05)
        run.process.kill()
    assert "evil.test" in {e["name"] for e in kept(world, folder)}


def test_a_store_that_cannot_be_had_is_an_error(world):
    folder = world.workdir() / "state"
    folder.write_text("no directory")
    done = world.run("echo", "ran", options=("--state-dir", str(folder)))
    assert done.code == 125 and done.out == b"" and "cannot keep events: " in done.messages, done


def test_G11_a_store_behind_a_link_is_not_written_to(world, user):
    """An earlier command may have left it."""
    folder, victim = world.workdir(user), world.workdir(user)
    assert world.run("ln", "-s", victim, "state", cwd=folder, user=user).code == 0
    for state in ("state", "state/below"):
        done = world.run("echo", "ran", cwd=folder, options=("--state-dir", state), user=user)
        assert done.code == 125 and done.out == b"" and "state'" in done.messages, done
        assert os.listdir(victim) == []
    done = world.run("echo", "ran", cwd=folder, options=("--state-dir", victim / "below"), user=user)
    assert done.text == "ran\n" and os.listdir(victim) == ["below"], done


def test_nothing_is_started_or_loaded_without_being_asked(world):
    with world.run_start("sh", "-c", "echo there; sleep 60") as run:
        assert run.line() == "there"
        children = subprocess.run(["ps", "--ppid", str(run.pid), "-o", "comm="], text=True, capture_output=True).stdout
        assert children and "weir-store" not in children
        with open(f"/proc/{run.pid}/maps") as maps:
            assert "sqlite" not in maps.read()
