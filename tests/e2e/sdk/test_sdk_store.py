# SPDX-License-Identifier: Apache-2.0
"""What was denied, out of SQLite and PostgreSQL alike, and the pieces of isolated_run that put rules in force."""
import contextlib
import datetime
import os
import pathlib
import pwd
import sqlite3
import subprocess
import time

import pytest

import weir
from world.postgres import Postgres

ROOT = pathlib.Path(__file__).resolve().parents[3]
psycopg2 = pytest.importorskip("psycopg2")


@pytest.fixture(scope="module")
def database():
    server = Postgres()
    for file in sorted((ROOT / "sql/postgres").glob("*.sql")):
        server.psql(file.read_text())
    db = psycopg2.connect(server.conninfo)
    yield db
    db.close()
    server.end()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    return tmp_path / "state" if request.param == "sqlite" else request.getfixturevalue("database")


def test_both_stores_say_the_same(store):
    old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=30)
    for analysis, action, address, name, packets, when in (
            ("a", "deny", "93.1.1.1", None, 3, None), ("b", "deny", "93.1.1.1", "x.test", 2, None), ("a", "deny", None, "evil.test", 1, None),
            ("a", "allow", "93.2.2.2", "ok.test", 9, None), ("a", "deny", "93.3.3.3", None, 7, old), ("a", "panic", None, None, 1, None)):
        weir.record_egress_event(analysis, action, address, 443, name, packets, when, store=store)
    with pytest.raises(ValueError):
        weir.record_egress_event("a", "perhaps", store=store)
    assert [(d.remote_ip, d.name, d.packets, d.events) for d in weir.get_recent_egress_denies(24, store)] == \
        [("93.1.1.1", None, 5, 2), (None, "evil.test", 1, 1)]
    assert [d.remote_ip for d in weir.get_recent_egress_denies(48, store)] == ["93.3.3.3", "93.1.1.1", None]
    tile = weir.egress_denies_24h(store)
    assert (tile["title"], tile["total"]) == ("Egress denies (24 h)", 6) and len(tile["by_remote_ip"]) == 2
    tasks = []

    def broken(task):
        raise RuntimeError(task.destination)
    with pytest.raises(RuntimeError):
        weir.check_and_emit_egress_review_tasks(store=store, sink=broken)
    emitted = weir.check_and_emit_egress_review_tasks(store=store, sink=tasks.append)
    assert emitted == tasks and {(t.analysis_id, t.destination, t.packets) for t in tasks} == \
        {("a", "93.1.1.1", 3), ("b", "x.test", 2), ("a", "evil.test", 1)}
    assert weir.check_and_emit_egress_review_tasks(store=store, sink=broken) == []


def test_what_weir_has_stored_is_there(monkeypatch, world, tmp_path):
    monkeypatch.setenv("WEIR_PROGRAM", str(world.weir_path))
    world.run("getent", "hosts", "evil.test", options=("--state-dir", tmp_path, "--id", "one"))
    weir.record_egress_event("two", "deny", "93.1.1.1", 443, store=tmp_path)
    assert {(d.remote_ip, d.name) for d in weir.get_recent_egress_denies(1, tmp_path)} == {(None, "evil.test"), ("93.1.1.1", None)}
    assert {(t.analysis_id, t.destination) for t in weir.check_and_emit_egress_review_tasks(1, store=tmp_path)} == \
        {("one", "evil.test"), ("two", "93.1.1.1")}
    with contextlib.closing(weir.open_store(tmp_path)) as db:
        [row] = set(db.execute("SELECT analysis_id, action, layer, remote_port FROM sandbox_egress_event WHERE fqdn_pinned = 'evil.test'"))
        [(ts, raw, packets)] = db.execute("SELECT min(ts), sum(raw_pkts), sum(packets) FROM sandbox_egress_event WHERE analysis_id = 'one'")
    assert row == ("one", "deny", "dns", None) and raw == packets >= 1
    assert abs(datetime.datetime.fromisoformat(ts[:-1] + "+00:00").timestamp() - time.time()) < 3600


PLANTED = ["CREATE TRIGGER x AFTER INSERT ON event BEGIN DELETE FROM event; END",
           "ALTER TABLE event RENAME TO hidden; CREATE VIEW event AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
           " SELECT i AS id, 1 AS ts, 's' AS sandbox, 2 AS action FROM n"]


@pytest.mark.parametrize("sql", PLANTED, ids=["trigger", "view"])
def test_a_store_that_is_not_weir_s_is_not_read(monkeypatch, world, tmp_path, sql):
    """What a command can leave where it may write to the state directory."""
    monkeypatch.setenv("WEIR_PROGRAM", str(world.weir_path))
    world.run("getent", "hosts", "evil.test", options=("--state-dir", tmp_path))
    with contextlib.closing(sqlite3.connect(tmp_path / "events.db")) as db:
        db.executescript(sql)
    for ask in (weir.open_store, weir.egress_denies_24h):
        with pytest.raises(weir.WeirError, match="which Weir did not make"):
            ask(tmp_path)


@pytest.mark.parametrize("left", ["link", "hard link", "pipe", "another user's"])
def test_what_is_recorded_goes_to_a_file_of_the_caller_s_own(tmp_path, left):
    state, other = tmp_path / "state", tmp_path / "other"
    weir.record_egress_event("a", "deny", "93.1.1.1", store=state)
    [mine] = state.iterdir()
    other.write_bytes(mine.read_bytes())
    before = other.read_bytes()
    if left == "another user's":
        os.chown(mine, 1, 1)
    else:
        mine.unlink()
        {"link": mine.symlink_to, "hard link": mine.hardlink_to, "pipe": lambda _: os.mkfifo(mine)}[left](other)
    for ask in (weir.open_store, lambda store: weir.record_egress_event("a", "deny", "93.1.1.2", store=store)):
        with pytest.raises((OSError, weir.WeirError)):
            ask(state)
    assert other.read_bytes() == before


def test_lines_that_nobody_recorded_are_told_and_passed_over(tmp_path, caplog):
    weir.record_egress_event("a", "deny", "93.1.1.1", store=tmp_path)
    [mine] = tmp_path.iterdir()
    with mine.open("a") as file:
        file.write("\n[]\n{\n" + "[" * 100000 + '\n{"event": ["a", "2999", "deny", null, null, null, 9223372036854775807]}\n'
                   '{"event": ["a", {}, "deny", 1, 1, 1, 1]}\n{"event": ["a", "2999", "perhaps", null, null, null, 1]}\n\377{"emit')
    weir.record_egress_event("a", "deny", "93.1.1.2", store=tmp_path)
    assert sorted(d.remote_ip for d in weir.get_recent_egress_denies(1, tmp_path)) == ["93.1.1.1", "93.1.1.2"]
    assert "7 lines" in caplog.text, caplog.text
    with mine.open("ab") as file:
        file.truncate(1 << 40)
    weir.record_egress_event("a", "deny", "93.1.1.3", store=tmp_path)
    assert [d.remote_ip for d in weir.get_recent_egress_denies(1e6, tmp_path)] == ["93.1.1.3"]


def test_the_allowlist_and_the_ruleset_of_a_profile(monkeypatch, world):
    monkeypatch.setenv("WEIR_PROGRAM", str(world.weir_path))
    assert weir.build_allowlist("none") == [] and weir.build_allowlist("default")[0] == "pubmed.ncbi.nlm.nih.gov"
    assert set(weir.build_allowlist("default")) < set(weir.build_allowlist("notebook"))
    with pytest.raises(weir.InputError):
        weir.build_allowlist("nothing")
    text = weir.apply_nft_ruleset("none", sandbox_uid=61992)
    subprocess.run(world.host.command("nft", "-c", "-f", "-"), input=text.encode(), check=True)
    assert "skuid 61992" in text
    for words in ({}, {"sandbox_uid": 1, "sandbox_cgroup": "/x"}):
        with pytest.raises(weir.InputError):
            weir.apply_egress_ruleset("none", **words)


def test_all_that_a_profile_says_is_enforced(monkeypatch, world, daemon, site):
    """As `weir attach --profile` does. The profile is root's own: for these commands alone, another file system is root's home."""
    folder, home = world.workdir(), pwd.getpwuid(0).pw_dir
    (folder / "strict.yaml").write_text("verify: tls\ndeniedNames: refuse\nlimits: {queries_per_second: 7}\n"
                                        f"egress: [{{action: allow, target: {site.name}, ports: [443]}}]\n")
    program, there = folder / "weir", f"{home}/.config/weir/profiles"
    inside = f'mount -t tmpfs none {home} && mkdir -p {there} && cp {folder}/strict.yaml {there} && exec {daemon.program} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{inside}' weir \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("WEIR_PROGRAM", str(program))
    socket = str(daemon.socket)
    name = weir.apply_egress_ruleset("strict", sandbox_uid=61994, socket=f"unix:{socket}")
    subprocess.run([program, "attach", "--id", "beside", "--uid", "61995", "--profile", "strict", "--socket", socket], check=True)
    put, beside = (weir.Client(socket).sandbox(one).get_policy() for one in (name, "beside"))
    assert put["policy"] == beside["policy"] and put["policy"]["limits"] == {"queries_per_second": 7}, (put, beside)
    assert put["policy"]["deniedNames"] == "refuse" and put["enforcementMode"] == beside["enforcementMode"] == "dns+nft+tls", put
    with pytest.raises(weir.InputError):
        weir.apply_egress_ruleset("nothing", sandbox_uid=61994, socket=socket)


def test_a_user_is_guarded_until_it_is_torn_down(monkeypatch, world, daemon):
    monkeypatch.setenv("WEIR_PROGRAM", str(daemon.program))
    socket = str(daemon.socket)
    name = weir.apply_egress_ruleset("notebook", sandbox_uid=61993, socket=socket)
    assert daemon.names() == [name] == ["uid-61993"]
    put = weir.Client(socket).sandbox(name).get_policy()
    assert [r["target"] for r in put["policy"]["egress"]] == weir.build_allowlist("notebook") and put["enforcementMode"] == "dns+nft+tls"
    assert weir.apply_egress_ruleset("none", sandbox_uid=61993, socket=socket) == name
    weir.tear_down(name, socket)
    assert daemon.names() == []
    with pytest.raises(weir.EgressSetupError):
        weir.apply_egress_ruleset("none", sandbox_cgroup="/sys/fs/cgroup/nothing", socket=socket)
