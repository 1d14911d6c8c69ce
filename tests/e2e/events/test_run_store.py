# SPDX-License-Identifier: Apache-2.0
"""`weir run --state-dir`: the events of a run are in the store as well, and only when that is asked for."""
import json
import os
import sqlite3
import subprocess
import time

import pytest

ASK = "getent hosts evil.test; curl -sm 50 http://203.0.113.9/ -o /dev/null; true"


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
    ask = f"for i in 1 2 3; do curl -sm 50 http://{site.name}/ -o /dev/null; done; getent hosts localhost >/dev/null; true"
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
        end = time.monotonic() + 60
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


# root may write to every file
@pytest.mark.parametrize("user, what", [
    *((user, what) for user in ("root", "weir-test") for what in ("a folder", "a link", "a pipe", "a newer version")),
    ("weir-test", "another user's")], indirect=["user"])
def test_a_store_that_cannot_be_opened_is_an_error(world, user, what):
    """The command isn't started. The control is the same folder without what is in the way."""
    folder = world.workdir(user)
    database = folder / "events.db"
    options = {"options": ("--state-dir", folder), "user": user}
    if what == "a folder":
        database.mkdir()
    elif what == "a link":
        (folder / "other.db").touch()
        database.symlink_to("other.db")
    elif what == "a pipe":
        os.mkfifo(database)
    elif what == "a newer version":
        with sqlite3.connect(database) as db:
            db.execute("PRAGMA user_version = 999")
        os.chown(database, folder.stat().st_uid, folder.stat().st_gid)
    else:
        database.touch()
        database.chmod(0o600)
    done = world.run("echo", "ran", **options)
    assert done.code == 125 and done.out == b"" and "cannot keep events: " in done.messages, done
    (database.rmdir if what == "a folder" else database.unlink)()
    assert world.run("echo", "ran", **options).text == "ran\n" and database.exists()


def test_the_command_cannot_write_to_the_store(world, user):
    """Also where it lies in the working directory, in which the command may write."""
    cwd = world.workdir(user)
    script = "touch here; echo x >> state/events.db; rm -f state/events.db; touch state/new; mv state gone; getent hosts evil.test; true"
    assert world.run("getent", "hosts", "evil.test", options=("--state-dir", "state"), user=user, cwd=cwd).code == 2
    done = world.run("sh", "-c", script, options=("--state-dir", "state"), user=user, cwd=cwd)
    assert done.code == 0 and (cwd / "here").exists(), done
    assert not (cwd / "gone").exists() and not (cwd / "state" / "new").exists()
    assert "evil.test" in {e["name"] for e in kept(world, cwd / "state", user=user)}


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


PLANT = """
import sqlite3
with sqlite3.connect("state/events.db") as db:
    db.executescript('''CREATE TRIGGER x AFTER INSERT ON event WHEN NEW.name = 'evil.test' BEGIN DELETE FROM event WHERE id = NEW.id;
        INSERT INTO event (ts, sandbox, action, layer, name, packets, bytes) VALUES (NEW.ts, NEW.sandbox, 1, 3, 'fine.test', 1, 1); END;
        CREATE TRIGGER y AFTER INSERT ON review BEGIN DELETE FROM review WHERE id = NEW.id; END''')
"""


def test_G39_no_trigger_that_a_command_left_in_a_store_changes_what_is_kept(world, user):
    """The store lies where a run that didn't keep its events there could write."""
    cwd = world.workdir(user)
    options = {"options": ("--state-dir", "state"), "user": user, "cwd": cwd}
    assert world.run("true", **options).code == 0
    planted = world.run("/usr/bin/python3", "-Ic", PLANT, user=user, cwd=cwd)
    assert planted.code == 0, planted
    done = world.weir("events", "--state-dir", "state", user=user, cwd=cwd)
    assert done.code != 0 and "Weir did not make" in done.messages, done
    done = world.run("sh", "-c", "getent hosts evil.test; true", **options)
    assert done.code == 0 and "was moved aside" in done.messages, done
    assert {e["name"] for e in kept(world, cwd / "state", user=user)} == {"evil.test"}
    tasks = world.weir("review", "list", "--json", "--state-dir", str(cwd / "state"), user=user).json()
    assert [t["destination"] for t in tasks] == ["evil.test"]


def test_nothing_is_started_or_loaded_without_being_asked(world):
    with world.run_start("sh", "-c", "echo there; sleep 60") as run:
        assert run.line() == "there"
        children = subprocess.run(["ps", "--ppid", str(run.pid), "-o", "comm="], text=True, capture_output=True).stdout
        assert children and "weir-store" not in children
        with open(f"/proc/{run.pid}/maps") as maps:
            assert "sqlite" not in maps.read()
