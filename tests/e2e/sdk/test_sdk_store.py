# SPDX-License-Identifier: Apache-2.0
"""What was denied, out of SQLite and PostgreSQL alike, and the pieces of isolated_run that put rules in force."""
import datetime
import pathlib
import pwd
import subprocess

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
