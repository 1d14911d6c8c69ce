# SPDX-License-Identifier: Apache-2.0
"""Events as JSON lines: what a row carries, files that are moved away, disks that are full."""
import json
import pathlib
import signal
import subprocess

import jsonschema
import pytest

from world.expect import name_refused
from world.sidecar import wait_for

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[3] / "docs" / "event-schema.json").read_text())


def whole(text):
    """What finds no place on a full disk is cut off again after it was begun."""
    return [text] if not text or text.endswith("\n") else None


def rows(path):
    """Every line is a whole event. Nothing there: none."""
    [text] = wait_for(lambda: whole(path.read_text())) if path.exists() else [""]
    found = [json.loads(line) for line in text.splitlines()]
    for row in found:
        jsonschema.validate(row, SCHEMA)
    return found


def names(path):
    return {row["name"] for row in rows(path)}


def trouble(side):
    return [d["reason"] for d in side.get("/status").json()["degradations"] if d["what"] == "jsonl"]


def lost(side):
    status = side.get("/status").json()
    return status["storeLostRows"], status["storeLostPackets"]


@pytest.fixture
def path(tmp_path):
    tmp_path.chmod(0o755)
    return tmp_path / "lines" / "events.jsonl"


def test_a_row_carries_all_that_is_known(pod, guarded, path, site, denied):
    side = guarded(f"allow {site.name}", f"deny {denied.name}", args=("--jsonl", str(path), "--sandbox-id", "sb-3"))
    pod.probe(["dns", denied.name], ["dns", "never." + denied.name], ["tcp", "203.0.113.9", 4443])
    wait_for(lambda: len([r for r in rows(path) if r["action"] == "deny"]) >= 3)
    found = {r["name"] or r["remote_ip"]: r for r in rows(path)}
    assert found[denied.name]["rule"] == f"deny {denied.name}" and found[denied.name]["layer"] == "dns"
    assert found["never." + denied.name]["rule"] is None
    packet = found["203.0.113.9"]
    assert (packet["remote_port"], packet["protocol"], packet["layer"]) == (4443, "tcp", "address")
    assert {r["sandbox"] for r in rows(path)} == {"sb-3"} and all(r["packets"] >= 1 for r in rows(path))
    side.post(f"allow {site.name}")
    wait_for(lambda: "change" in {r["action"] for r in rows(path)})
    assert path.stat().st_mode & 0o777 == 0o600
    assert trouble(side) == [] and lost(side) == (0, 0)


def test_standard_output_has_them_beside_the_log(pod, guarded, denied):
    side = guarded(args=("--jsonl", "stdout"))
    pod.probe(["dns", denied.name])
    found = wait_for(lambda: [e for e in map(json.loads, list(side.lines)) if e.get("name") == denied.name])
    jsonschema.validate(found[0], SCHEMA)
    side.wait_log("egress denied")


@pytest.mark.parametrize("told", [True, False], ids=["told", "seen"])
def test_a_file_that_is_moved_away_is_begun_anew(pod, guarded, path, denied, told):
    side = guarded(args=("--jsonl", str(path)))
    pod.probe(["dns", "one." + denied.name])
    wait_for(lambda: "one." + denied.name in names(path))
    old = path.with_name("old.jsonl")
    path.rename(old)
    if told:
        side.process.send_signal(signal.SIGHUP)
        wait_for(path.exists)
    else:
        wait_for(lambda: pod.probe(["dns", f"x.{denied.name}"]) and path.exists(), step=0.1)
    pod.probe(["dns", "two." + denied.name])
    wait_for(lambda: "two." + denied.name in names(path))
    assert "two." + denied.name not in names(old) and "one." + denied.name not in names(path)
    assert side.healthy()


def test_a_full_disk_loses_counted_rows_and_nothing_else(pod, guarded, path, site, denied):
    path.parent.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", path.parent], check=True)
    try:
        side = guarded(f"allow {site.name}", args=("--jsonl", str(path)))


        def full():
            """rows are lost"""
            pod.probe(*[["dns", f"n{i}.{denied.name}"] for i in range(20)])
            return trouble(side)
        assert "No space left" in wait_for(full)[0]
        name_refused(pod.probe(["dns", denied.name]))
        assert pod.probe(["dns", site.name]).addresses == [site.v4]
        wait_for(lambda: lost(side)[0] > 0 and lost(side)[1] >= lost(side)[0])
        side.post(f"allow {site.name}")
        assert rows(path)
        path.write_text("")
        pod.probe(["dns", "after." + denied.name])
        wait_for(lambda: "after." + denied.name in names(path))
        assert trouble(side) == []
    finally:
        subprocess.run(["umount", "-l", path.parent], check=True)


def test_a_place_that_cannot_be_written_is_a_degradation(pod, guarded, tmp_path, site, denied):
    tmp_path.chmod(0o755)
    (tmp_path / "file").write_text("")
    side = guarded(f"allow {site.name}", args=("--jsonl", str(tmp_path / "file" / "events.jsonl")))
    wait_for(lambda: trouble(side))
    name_refused(pod.probe(["dns", denied.name]))
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    wait_for(lambda: lost(side)[0] > 0)
    assert side.get("/status").json()["fullIsolation"] is True


def test_a_folder_that_is_taken_away_is_a_degradation(pod, guarded, path, denied):
    side = guarded(args=("--jsonl", str(path)))
    pod.probe(["dns", "one." + denied.name])
    wait_for(lambda: "one." + denied.name in names(path))
    path.unlink()
    path.parent.rmdir()
    wait_for(lambda: pod.probe(["dns", f"x.{denied.name}"]) and trouble(side), step=0.1)
    wait_for(lambda: lost(side)[0] > 0)
    name_refused(pod.probe(["dns", denied.name]))
