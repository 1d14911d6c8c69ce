# SPDX-License-Identifier: Apache-2.0
"""Text that a sandbox chose, wherever Weir shows it: terminal, JSON, streams, log, files. It is escaped everywhere."""
import json

import pytest

from world.sidecar import wait_for

LONG = [("n" * 62 + "\x1b")] * 3 + ["l" * 57]    # 253 bytes with its dots
LABELS = {
    "ANSI": ["\x1b[31mred\x1b[0m\x07", "test"],
    "HTML": ["<script>alert(1)</script>", "<img src=x>", "test"],
    "SQL": ["'; DROP TABLE event; --", "\" OR 1=1", "test"],
    "lines": ["a\nid: 1\ndata: {}", "\r\0b", "test"],
    "invalid UTF-8": ["\xc0\xaf\xff\xfe", "\xed\xa0\x80", "test"],
    "253 bytes": LONG,
}


def is_plain(data):
    """Printable ASCII and line ends."""
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
    return all(byte == 0x0a or 0x20 <= byte < 0x7f for byte in text)


@pytest.fixture
def told(host, pod, other):
    lines = host.folder / "lines.jsonl"
    daemon = host.daemon("--state-dir", host.folder / "state", "--jsonl", lines)
    daemon.attach("bad", pod)
    daemon.attach("good", other)
    pod.probe(*[["dns", labels] for labels in LABELS.values()])
    other.probe(["dns", "one.good.test"])
    wait_for(lambda: len(daemon.denies("bad")) >= len(LABELS) and len(daemon.denies("good")) == 1)
    env = {"WEIR_STATE_DIR": str(host.folder / "state")}

    def weir(*args):
        return host.world.weir(*args, env=env)
    wait_for(lambda: weir("denies").out.count(b"\n") > len(LABELS))
    return daemon, weir, lines


def test_it_is_escaped_everywhere(told):
    daemon, weir, lines = told
    shown = {
        "events": weir("events").out, "denies": weir("denies").out, "by name": weir("denies", "--by", "name").out,
        "review": weir("review", "list").out, "events as JSON": weir("events", "--json").out,
        "events as OCSF": weir("events", "--format", "ocsf").out,
        "denies as JSON": weir("denies", "--json").out, "review as JSON": weir("review", "list", "--json").out,
        "the API": daemon.get("/sandboxes/bad/denies").body, "its tasks": daemon.get("/sandboxes/bad/review").body,
        "the log": "\n".join(daemon.lines + daemon.errors), "JSON lines": lines.read_bytes()}
    for where, data in shown.items():
        assert data and is_plain(data), where
    for where in ("events as JSON", "events as OCSF", "denies as JSON", "review as JSON", "the API", "its tasks", "JSON lines"):
        data = shown[where]
        assert not set(b"<>&") & set(data), f"{where}: a page could read it as markup"
        for line in data.decode().splitlines() if where in ("events as JSON", "events as OCSF", "JSON lines") else [data.decode()]:
            json.loads(line)
    found = [e for e in map(json.loads, shown["events as JSON"].splitlines()) if e["sandbox"] == "bad" and e["action"] == "deny"]
    assert len({e["name"] for e in found}) == len(LABELS)
    assert all(e["rule"] is None and e["packets"] >= 1 for e in found)
    lookups = [e for e in map(json.loads, shown["events as OCSF"].splitlines()) if e["class_uid"] == 4003]
    assert {e["query"]["hostname"] for e in lookups if e["unmapped"]["sandbox"] == "bad"} == {e["name"] for e in found}


def test_no_task_and_no_rule_is_made_of_it(told):
    """What no rule can name waits for nobody; the other sandbox's task is there."""
    daemon, _, _ = told
    assert daemon.get("/sandboxes/bad/review?state=all").json()["tasks"] == []
    (task,) = daemon.get("/sandboxes/good/review?state=all").json()["tasks"]
    assert task["rule"] == {"action": "allow", "target": "one.good.test"}


def test_each_sandbox_shows_its_own_alone(told):
    daemon, weir, _ = told
    assert {e["name"] for e in daemon.denies("good")} == {"one.good.test"}
    assert {e["sandbox"] for e in daemon.denies("bad")} == {"bad"}
    own = [json.loads(line) for line in weir("events", "--sandbox", "good", "--json").text.splitlines()]
    assert {e["sandbox"] for e in own} == {"good"} and "one.good.test" in {e["name"] for e in own}
    assert weir("events", "--sandbox", "nobody").out == b""
    assert len(weir("review", "list", "--sandbox", "good", "--json").json()) == 1
    one = daemon.get("/sandboxes/good/denies/count").json()
    assert one["packets"] < daemon.get("/sandboxes/bad/denies/count").json()["packets"] and one["events"] == 1
