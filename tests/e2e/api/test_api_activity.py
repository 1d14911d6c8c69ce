# SPDX-License-Identifier: Apache-2.0
"""What the API says of some time, from the store: /activity, /top, /events/stored; and of a policy before it is in force."""
import json

import jsonschema
import pytest

from test_api_own import OPENAPI
from world.apid import Api
from world.sidecar import policy, wait_for
from world.store import Store

HOSTILE = b'<img src=x onerror=1>"\n\x1b[2J\xff'
HOUR = 3600


def holds(value, name):
    jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": OPENAPI["components"]}).validate(value)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Three hours of one sandbox's events, and some of another's and of last week."""
    folder = tmp_path_factory.mktemp("activity") / "state"
    with Store(folder) as store:
        for i in range(3):
            store.put(address=f"192.0.2.{i + 1}", port=443, ago=i * HOUR + 60, packets=10 * (i + 1), command="curl")
            store.drain()  # what is equal within a second would be one
        store.put("a.test", action="allow", ago=2 * HOUR, packets=5)
        store.put(HOSTILE, ago=90, packets=2)
        store.put("limited.test", action="limit", ago=60)
        store.put("old.test", ago=7 * 24 * HOUR, packets=1000)
        store.put("other.test", sandbox="sb-2", ago=60, packets=7)
        store.drain()
    return folder


@pytest.fixture(scope="module")
def side(world, state):
    from world.sidecar import Pod
    with Pod(world) as pod:
        yield pod.sidecar("--state-dir", state, rules=policy("allow open.test", {"action": "deny", "target": "*.gist.test",
                                                                                  "comment": "no uploads"}))


def get(side, path, name=None):
    reply = side.get(path)
    assert reply.status == 200, reply
    if name:
        holds(reply.json(), name)
    return reply.json()


def test_what_happened_when(side):
    day = get(side, "/activity?since=24h&buckets=24", "Activity")
    assert day["step"] == HOUR and 24 <= len(day["deny"]) <= 25 and {len(day[k]) for k in ("allow", "limit", "fail", "bytes")} == {len(day["deny"])}
    assert sum(day["deny"]) == 10 + 20 + 30 + 2 + 7 and sum(day["allow"]) >= 5 and sum(day["limit"]) == 1
    week = get(side, "/activity?since=8d&buckets=8")
    assert sum(week["deny"]) == 1069
    hour = get(side, "/activity?since=50m&buckets=50")
    assert hour["step"] == 60 and sum(hour["deny"]) == 10 + 2 + 7
    assert get(side, "/activity?since=10d&until=9d")["deny"].count(0) in (60, 61)


def test_what_it_was_about(side):
    top = get(side, "/top?by=address&since=24h", "Top")
    assert [(t["key"], t["packets"]) for t in top["top"]] == [("192.0.2.3", 30), ("192.0.2.2", 20), ("192.0.2.1", 10)]
    assert top["complete"] is True
    assert [t["key"] for t in get(side, "/top?by=sandbox&limit=1")["top"]] == ["sb-1"]
    assert "a.test" in [t["key"] for t in get(side, "/top?of=allow&by=destination")["top"]]
    names = [t["key"] for t in get(side, "/top?by=name")["top"]]
    assert any(n.startswith("<img src=x onerror=1>") for n in names)


def test_events_come_in_pages(side):
    seen, before = [], ""
    while before is not None:
        page = get(side, f"/events/stored?since=8d&limit=3{before and '&before=' + before}", "StoredEvents")
        assert len(page["events"]) <= 3
        seen += page["events"]
        before = page["next"]
    mine = [e for e in seen if e["sandbox"] in ("sb-1", "sb-2")]
    assert len(mine) == 8 and len({e["id"] for e in seen}) == len(seen)
    assert [e["ts"] for e in seen] == sorted((e["ts"] for e in seen), reverse=True)
    assert [e["name"] for e in get(side, "/events/stored?since=8d&action=limit")["events"]] == ["limited.test"]
    assert {e["remote_ip"] for e in get(side, "/events/stored?find=CURL")["events"]} == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    assert [e["packets"] for e in get(side, "/events/stored?find=192.0.2.2:44")["events"]] == [20]
    text = side.get("/events/stored?find=%3Cimg").text
    assert "onerror" in text and "<" not in text and text.isascii() and "\x1b" not in text


@pytest.mark.parametrize("query, what", [
    ("activity?since=soon", "since"), ("activity?since=1h&until=2h", "since"), ("activity?since=500d", "since"),
    ("activity?buckets=0", "buckets"), ("activity?buckets=500", "buckets"), ("activity?until=%00", "until"),
    ("top?of=all", "of"), ("top?by=colour", "by"), ("top?of=allow&by=rule", "by"), ("top?limit=1001", "limit"),
    ("top?of=%zz", "of"), ("events/stored?action=none", "action"), ("events/stored?action=DROP", "action"),
    ("events/stored?limit=501", "limit"), ("events/stored?before=x", "before"), ("events/stored?before=-1-1", "before"),
    ("events/stored?find=" + "a" * 400, "find"), ("policy/explain", "target"), ("policy/explain?target=", "target"),
    ("policy/explain?target=" + "a" * 600, "target")])
def test_asked_wrongly(side, query, what):
    reply = side.get("/" + query)
    if query.endswith("target="):
        assert reply.status == 400 and "is not" in reply.text
    else:
        assert (reply.status, reply.text[:len(what) + 8]) == (400, f"invalid {what}")


def test_no_store_says_so():
    with Api() as api:
        for path in ("/activity", "/top", "/events/stored"):
            assert api.request("GET", path)[::2] == (404, "events are not stored here\n")
        assert api.status("GET", "/activity", headers={}) == 401
        assert api.request("GET", "/policy/explain?target=a.test")[0] == 503


def test_one_of_a_daemons_sandboxes(host, pod, other, denied):
    daemon = host.daemon("--state-dir", host.folder / "state")
    daemon.attach("one", pod)
    daemon.attach("two", other)
    other.probe(["dns", denied.name])
    wait_for(lambda: sum(daemon.call("GET", "/sandboxes/two/activity").json()["deny"]), step=0.1)
    assert sum(daemon.call("GET", "/activity").json()["deny"]) == sum(daemon.call("GET", "/sandboxes/two/activity").json()["deny"]) > 0
    assert sum(daemon.call("GET", "/sandboxes/one/activity").json()["deny"]) == 0
    assert daemon.call("GET", "/sandboxes/one/top").json()["top"] == []
    assert [t["key"] for t in daemon.call("GET", "/top?by=sandbox").json()["top"]] == ["two"]
    assert denied.name in [t["key"] for t in daemon.call("GET", "/sandboxes/two/top").json()["top"]]
    assert denied.name in [e["name"] for e in daemon.call("GET", "/sandboxes/two/events/stored").json()["events"]]
    assert daemon.call("GET", "/sandboxes/one/events/stored?action=deny").json()["events"] == []
    assert daemon.call("GET", "/policy/explain?target=a.test").status == 404


def test_a_page_ends_where_enough_was_looked_at(host, pod):
    """What one sandbox has too much of delays nobody who looks for something else of it."""
    with Store(host.folder / "state") as store:
        store.put("rare.test", action="limit", ago=600)
        store.drain()
        store("add 0 20500")
        store.drain()
    daemon = host.daemon("--state-dir", host.folder / "state")
    daemon.attach("sb-1", pod)
    for wanted in ("action=limit", "find=RARE"):
        first = get(daemon, f"/sandboxes/sb-1/events/stored?{wanted}", "StoredEvents")
        assert first["events"] == [] and first["next"]
        second = get(daemon, f"/sandboxes/sb-1/events/stored?{wanted}&before={first['next']}")
        assert [e["name"] for e in second["events"]] == ["rare.test"] and second["next"] is None


# ---- a policy, before ----

def test_why(side):
    said = get(side, "/policy/explain?target=x.gist.test:443", "Explanation")
    assert said["action"] == "deny" and said["rule"]["target"] == "*.gist.test" and said["rule"]["comment"] == "no uploads"
    assert "deny *.gist.test" in said["text"]
    said = get(side, "/policy/explain?target=new.test:443", "Explanation")
    assert (said["action"], said["rule"], said["allow"]) == ("deny", None, "new.test:tcp/443")
    assert get(side, "/policy/explain?target=open.test")["action"] == "allow"
    assert get(side, "/policy/explain?target=169.254.169.254", "Explanation")["action"] == "deny"
    reply = side.get("/policy/explain?target=" + "%1b%5b2J%3cimg%3e%0a")
    assert reply.status == 400 and reply.text.isprintable() is False and "\x1b" not in reply.text


def test_faults_before_anything_changes(side):
    before = side.get("/policy").json()

    def check(body):
        reply = side.call("POST", "/policy/check", body if isinstance(body, str) else json.dumps(body))
        assert reply.status == 200, reply
        holds(reply.json(), "PolicyCheck")
        return reply.json()
    good = check({"egress": [{"action": "allow", "target": "fine.test", "for": "10m"}]})
    assert good == {"valid": True, "mode": "enforcing", "faults": []}
    bad = check({"egress": [{"action": "allow", "target": "10.0.0.0/33"}, {"action": "allow", "target": "a..b"}]})
    assert bad["valid"] is False and len([f for f in bad["faults"] if f["level"] == "error"]) == 2
    assert check("[")["valid"] is False and check("")["mode"] == "deny_all"
    warned = check({"egress": [], "nonsense<b>": 1})
    assert warned["valid"] is True and "nonsense<b>" in warned["faults"][0]["text"]
    assert side.get("/policy").json() == before and side.get("/status").json()["policyUpdates"] == 0


def test_who_may_not_change_may_not_check():
    with Api(token=None) as api:
        assert api.request("POST", "/policy/check", "{}")[::2] == (403, "forbidden\n")
    with Api() as api:
        assert api.status("POST", "/policy/check", "{}", headers={}) == 401
        assert api.status("GET", "/policy/check") == 405
