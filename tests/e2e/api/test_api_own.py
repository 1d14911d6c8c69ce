# SPDX-License-Identifier: Apache-2.0
"""What the API has beyond the contract: status, metrics, events, denials, its own description."""
import datetime
import http.client
import json
import pathlib
import re
import time

import jsonschema
import pytest
import yaml

from world.apid import TOKEN, TOKEN_HEADER, Api, Events, until
from world.netns import NetNs
from world.openapi import LOADER, OPENAPI as WHOLE

ROOT = pathlib.Path(__file__).parents[3]
# what a sidecar has; the rest is tested with the daemon
OPENAPI = {**WHOLE, "paths": {path: item for path, item in WHOLE["paths"].items() if not path.startswith("/sandboxes")}}
HOSTILE = b'a"\\\n\nid: 9\ndata: {}\n\r\n\r<script>\xff\xfe\xe2\x80\xa8\x7f\x1b[2J'


def holds(value, schema):
    jsonschema.Draft202012Validator({**schema, "components": OPENAPI["components"]}).validate(value)


def schema(name):
    return {"$ref": f"#/components/schemas/{name}"}


# ---- /healthz, /status ----

def test_health(api):
    assert api.request("GET", "/healthz", headers={})[::2] == (200, "ok")
    api.tell("health", 0)
    for method in ("GET", "POST", "BREW"):
        assert api.request(method, "/healthz", "x", headers={})[::2] == (503, "weir not ready\n")
    api.tell("health", 1)
    assert api.status("HEAD", "/healthz", headers={}) == 200


def test_status(api):
    status = api.json("/status")
    holds(status, schema("Status"))
    assert (status["mode"], status["fullIsolation"], status["degradations"]) == ("dns+nftables", True, [])
    assert status["since"] == "2025-11-21T10:11:11.500Z"
    assert (status["storeLostRows"], status["storeLostPackets"]) == (3, 70)
    assert [status[f"postgres{what}Rows"] for what in ("Waiting", "Missed", "Refused")] == [5, 6, 7]
    api.tell("degrade", "land<lock>", 'the "kernel" \\ has none')
    status = api.json("/status")
    holds(status, schema("Status"))
    assert status["fullIsolation"] is False
    assert status["degradations"] == [{"what": "land<lock>", "reason": 'the "kernel" \\ has none',
                                       "since": "2025-11-21T10:11:11.500Z"}]


@pytest.mark.parametrize("method, path, body", [
    ("GET", "/status", None), ("GET", "/denies", None), ("GET", "/policy", None),
    ("POST", "/policy/check", '{"egress":[{"action":"allow","target":"<&>\u00e9"}]}'), ("GET", "/denies/count", None)])
def test_an_answer_can_be_shown_anywhere(api, method, path, body):
    """In a page, on a terminal, line by line."""
    api.tell("degrade", "land<lock>&", "caf\u00e9 \x1b[2J")
    api.event("<script>")
    status, headers, text = api.request(method, path, body)
    assert status == 200 and headers["Cache-Control"] == "no-store"
    assert text.endswith("}\n") and text.count("\n") == 1
    assert text.rstrip().isascii() and text.rstrip().isprintable() and not set(text) & set("<>&")


# ---- who writes last ----

@pytest.mark.parametrize("method, body", [("POST", '{"egress":[{"action":"allow","target":"c.test"}]}'), ("PUT", "{}"), ("DELETE", '["a.test"]'),
                                          ("PATCH", '[{"action":"allow","target":"b.test"}]')])
def test_a_change_of_another_policy_than_was_read_is_refused(api, method, body):
    """If-Match, with what GET tagged: of two who read the same, the second changes nothing. Without it as ever."""
    mine = {TOKEN_HEADER: api.token}
    assert api.status("POST", "/policy", '{"egress":[{"action":"allow","target":"a.test"}]}') == 200
    _, headers, text = api.request("GET", "/policy")
    assert re.fullmatch('"[0-9a-f]{32}"', tag := headers["ETag"]) and api.request("GET", "/policy")[1]["ETag"] == tag
    for other in ('"x"', f"W/{tag}", tag.strip('"'), f'"{"0" * 32}"', ",", ""):
        status, _, why = api.request(method, "/policy", body, {**mine, "If-Match": other})
        assert status == 412 and "read it again" in why and api.request("GET", "/policy")[2] == text, (other, why)
    assert api.status(method, "/policy", body, headers={**mine, "If-Match": f'"y", {tag}'}) == 200
    assert api.request("GET", "/policy")[1]["ETag"] != tag
    assert api.status(method, "/policy", body, headers={**mine, "If-Match": tag}) == 412
    assert api.status(method, "/policy", body) == 200 == api.status(method, "/policy", body, headers={**mine, "If-Match": "*"})


# ---- /metrics ----

SAMPLE = re.compile(r'^(weir_[a-z0-9_]+)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\d+)$')


def metrics(text):
    """[(name, labels, value)], after checking the format: every name has its HELP and TYPE before, once."""
    declared, found = {}, []
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in declared and len(line.split(" ", 3)[3]) > 3
            declared[name] = None
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert declared[name] is None and kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
            declared[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match and declared.get(match.group(1)), line
            found.append((match.group(1), match.group(2) or "", int(match.group(3))))
    assert len({f[:2] for f in found}) == len(found)
    return found


def test_metrics(api):
    api.event("a.test")
    status, headers, text = api.request("GET", "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = {name: value for name, _, value in metrics(text)}
    assert text.endswith("\n") and found["weir_queries_denied_total"] == 1
    assert {"weir_mode", "weir_engine_restarts_total", "weir_learned_names"} <= set(found)
    assert (found["weir_store_lost_rows_total"], found["weir_store_lost_packets_total"]) == (3, 70)
    assert (found["weir_postgres_waiting_rows"], found["weir_postgres_missed_rows_total"],
            found["weir_postgres_refused_rows_total"]) == (5, 6, 7)
    assert api.metric("mode", 'mode="dns+nftables"') == 1 and api.metric("mode", 'mode="disabled"') == 0
    before = api.metric("api_unauthorized_total")
    api.request("GET", "/policy", headers={})
    assert api.metric("api_unauthorized_total") == before + 1


@pytest.mark.parametrize("identity, label, shown", [
    ("sb-1", "team=blue", 'sandbox_id="sb-1",team="blue"'),
    ('a"b\\c\nd', "9x-y=é", 'sandbox_id="a\\"b\\\\c\\nd",_x_y="??"'),
    ("", "sandbox_id=other", 'sandbox_id="other"'),
    ("x", "sandbox_id=other", 'sandbox_id="x"'),
    ("x", "__name__=evil", 'sandbox_id="x"'),
    *[("x", f"{name}=1", 'sandbox_id="x"') for name in ("version", "mode", "what", "code", "destination")],
])
def test_labels(identity, label, shown):
    with Api(f"id={identity}", f"label={label}") as a:
        found = metrics(a.request("GET", "/metrics")[2])
        assert {labels for name, labels, _ in found if name == "weir_rules"} == {shown}


# ---- /denies ----

def test_denies(api):
    for name in ("a.test", "b.a.test", "c.test", "a.test"):
        api.event(name)
    api.event("fine.test", "allow")
    answer = api.json("/denies")
    holds(answer, schema("Denies"))
    assert [(e["name"], e["packets"]) for e in answer["denies"]] == [("c.test", 1), ("b.a.test", 1), ("a.test", 2)]
    assert answer["more"] is False
    names = lambda query: [e["name"] for e in api.json("/denies?" + query)["denies"]]
    assert names("limit=1") == ["c.test"] and api.json("/denies?limit=1")["more"] is True
    assert names("name=A.test.") == ["a.test"]
    assert names("name=*.a.test") == names("name=%2a.A.test") == ["b.a.test"]
    assert names("name=test") == [] and names("name=*.test") == ["c.test", "b.a.test", "a.test"]
    assert names("since=1h&limit=2") == ["c.test", "b.a.test"]
    now = datetime.datetime.now(datetime.timezone.utc)
    assert names("since=" + (now + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")) == []
    assert len(names("since=" + (now - datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.5Z"))) == 3


@pytest.mark.parametrize("query, what", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=", "limit"), ("limit=-1", "limit"),
    ("since=yesterday", "since"), ("since=", "since"), ("since=2026-02-30T00:00:00Z", "since"), ("since=%00", "since"),
    ("name=%zz", "name"), ("name=" + "a" * 400, "name")])
def test_denies_asked_wrongly(api, query, what):
    assert api.request("GET", "/denies?" + query)[::2] == (400, f"invalid {what}\n")


def test_denies_are_counted(api):
    for name in ("a.test", "b.test", "a.test"):
        api.event(name)
    api.event("fine.test", "allow")
    answer = api.json("/denies/count")
    holds(answer, schema("DeniesCount"))
    assert answer == {"events": 2, "packets": 3, "from": "memory", "cut": False}
    assert api.json("/denies/count?since=2100-01-01T00:00:00Z")["packets"] == 0
    assert api.request("GET", "/denies/count?since=soon")[::2] == (400, "invalid since\n")


def test_denies_of_a_flood(api):
    api.tell("flood", 6000)
    answer = api.json("/denies?limit=1000")
    assert len(answer["denies"]) == 1000 and answer["more"] and answer["forgotten"] == 6000 - 4096
    assert answer["denies"][0]["name"] == "n5999.flood.test"


def test_hostile_names(api):
    """Text of the sandbox's making is data, in JSON and in the framing of events."""
    with Events(api) as stream:
        api.event(HOSTILE)
        api.event("next.test")
        first, second = stream.next(), stream.next()
    [shown] = [e for e in api.json("/denies")["denies"] if e["name"] != "next.test"]
    assert shown["name"] == first[2]["name"] and shown["name"].startswith('a"\\\n\nid: 9\ndata: {}')
    assert (first[1], second[2]["name"]) == ("deny", "next.test")
    text = api.request("GET", "/denies")[2]
    assert text.isascii() and not re.search(r"[\x00-\x09\x0b-\x1f\x7f<>]", text)


# ---- /events ----

def test_events(api):
    with Events(api) as stream:
        assert stream.code == 200
        assert "Content-Type: text/event-stream" in stream.head and "Cache-Control: no-store" in stream.head
        assert stream.block() == ["retry: 2000"]
        api.event("a.test")
        api.event("b.test", "allow")
        (first_id, first, row), (second_id, second, _) = stream.next(), stream.next()
        assert (first, second, row["name"]) == ("deny", "allow", "a.test")
        holds(row, schema("Event"))
        assert first_id.rsplit("-", 1)[1] == "0" and second_id.rsplit("-", 1)[1] == "1"


def test_events_arrive_at_once(api):
    with Events(api) as stream:
        stream.block()
        took = []
        for i in range(50):
            begun = time.monotonic()
            api.event(f"n{i}.test")
            assert stream.next()[2]["name"] == f"n{i}.test"
            took.append(time.monotonic() - begun)
        assert sorted(took)[10] < 0.5, took  # now and then this machine is slow


def test_a_change_is_an_event(api):
    """It happens while the library answers another request."""
    with Events(api) as stream:
        assert api.status("POST", "/policy", "{}") == 200
        assert stream.next()[1:] and api.status("DELETE", "/policy", '["x"]') == 200
        assert api.status("PUT", "/policy", "") == 200
        assert stream.next()[1] == "change"


def test_events_in_chunks(api):
    """HTTP/1.1: each event is there when it happens, and the length of the answer isn't known."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
    connection.request("GET", "/events", headers={TOKEN_HEADER: TOKEN})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Transfer-Encoding"]) == (200, "chunked")
    assert answer.readline() + answer.readline() == b"retry: 2000\n\n"
    for name in ("a.test", "b.test"):
        api.event(name)
        lines = [answer.readline() for _ in range(4)]
        assert json.loads(lines[2].removeprefix(b"data: "))["name"] == name and lines[3] == b"\n"
    connection.close()


def test_events_go_on_where_they_were(api):
    with Events(api) as stream:
        for i in range(5):
            api.event(f"n{i}.test")
        last = [stream.next()[0] for _ in range(3)][-1]
    api.event("n5.test")
    with Events(api, {"Last-Event-ID": last}) as stream:
        assert stream.block() == ["retry: 2000"]
        assert [stream.next()[2]["name"] for _ in range(3)] == ["n3.test", "n4.test", "n5.test"]


@pytest.mark.parametrize("last", ["1-1", "x", "-", "0", "ffffffffffffffff-18446744073709551615", "9" * 500,
                                  "EPOCH-99999"])
def test_events_from_an_id_that_is_unknown(api, last):
    """All that is kept, and a word about it."""
    api.event("a.test")
    with Events(api, {"Last-Event-ID": "0"}) as stream:
        epoch = stream.next()[0].split("-")[0]
    with Events(api, {"Last-Event-ID": last.replace("EPOCH", epoch)}) as stream:
        assert stream.block() == ["retry: 2000", ": some events may be missing"]
        assert stream.next()[2]["name"] == "a.test"


def test_events_that_are_gone(api):
    with Events(api) as stream:
        api.event("a.test")
        first = stream.next()[0]
    api.tell("flood", 1000)
    with Events(api, {"Last-Event-ID": first}) as stream:
        assert ": some events may be missing" in stream.block()
        names = [stream.next()[2]["name"] for _ in range(256)]
        assert names == [f"n{i}.flood.test" for i in range(744, 1000)]


def test_heartbeat():
    """Longer than the time after which a silent connection is closed."""
    with Api("idle=1", "heartbeat=2") as a, Events(a) as stream:
        stream.block()
        begun = time.monotonic()
        assert stream.block() == stream.block() == [": still here"]
        assert 1 < time.monotonic() - begun
        a.event("a.test")
        assert stream.next()[2]["name"] == "a.test"


STREAMS = 256


def test_number_of_streams(api):
    """All of them, and others are answered beside them."""
    streams = [Events(api) for _ in range(STREAMS)]
    assert [s.code for s in streams] == [200] * STREAMS
    assert api.json("/policy") and api.request("GET", "/healthz")[0] == 200
    status, headers, text = api.request("GET", "/events")
    assert (status, text, headers["Retry-After"]) == (503, "too many event streams\n", "5")
    api.event("a.test")
    assert {s.next()[2]["name"] for s in streams} == {"a.test"}
    streams.pop().socket.close()
    api.event("b.test")
    assert until(lambda: api.metric("api_streams") == STREAMS - 1 or api.event("c.test"))
    with Events(api) as again:
        assert again.code == 200
    for s in streams:
        s.socket.close()


def test_readers_that_have_left_make_room(api):
    """At once, though nothing happens that would show that they have: a page may be loaded again and again."""
    for _ in range(STREAMS + 30):
        with Events(api) as stream:
            assert stream.code == 200
            stream.block()
    stay = [Events(api) for _ in range(STREAMS)]
    assert [s.code for s in stay] == [200] * STREAMS and Events(api).code == 503
    for s in stay:
        s.socket.close()


def test_streams_are_shared():
    """One network, the sandbox's own among them, doesn't keep the others out."""
    ns = NetNs()
    ns.ip("link set lo up", "addr add 198.51.100.7/32 dev lo", "addr add 198.51.100.8/32 dev lo")
    with ns.entered(), Api() as api:
        crowd = [Events(api) for _ in range(STREAMS)]
        guests = [Events(api, source=source) for source in ("198.51.100.7", "198.51.100.8", "198.51.100.7")]
        assert [s.code for s in guests] == [200] * 3
        assert Events(api).code == 503
        guests.append(Events(api, source="198.51.100.7"))
        assert api.metric("api_streams") == STREAMS
        api.event("a.test")
        for s in crowd[4:] + guests:
            assert s.next()[2]["name"] == "a.test"
        for s in crowd[:4]:
            with pytest.raises((EOFError, ConnectionError)):
                s.next()
        for s in crowd + guests:
            s.socket.close()


def test_slow_reader_is_dropped(api):
    """Nothing is buffered for it, the others get everything."""
    with Events(api, receive_buffer=4096) as slow, Events(api) as quick:
        assert slow.code == quick.code == 200
        for _ in range(100):
            api.tell("flood", 50)
            for _ in range(50):
                quick.next()
            if api.metric("api_streams_dropped_total"):
                break
        assert api.metric("api_streams_dropped_total") == 1
        assert api.metric("api_streams") == 1
        api.event("after.test")
        assert quick.next()[2]["name"] == "after.test"
        with pytest.raises((EOFError, ConnectionError)):
            while True:
                slow.next()


def test_streams_keep_their_place(api):
    """A crowd of silent connections doesn't end them."""
    with Events(api) as stream:
        crowd = [api.connect() for _ in range(150)]
        api.event("a.test")
        assert stream.next()[2]["name"] == "a.test"
        for s in crowd:
            s.close()


# ---- /openapi.yaml ----

def routes():
    """(path, methods, is open) of the table in route.c."""
    names = {"METHODS_READ": {"get", "head"}, "METHODS_CHANGE": {"post", "put", "patch", "delete"}}
    source = (ROOT / "src/api/route.c").read_text()
    source = source.replace('VAULT "', '"/credential-vault').replace("{ VAULT,", '{ "/credential-vault",')
    table = source.split("routes[] = {")[1].split("\n};")[0]
    for row in re.findall(r'\{ "([^"]+)",\s*([^"]*?),\s*(answer_.*?)\},?\s*(?=\{ "|$)', table, re.S):
        if not re.search("OF_|AT_TOP|IN_SIDECAR", row[2]):  # it is no sidecar's
            continue
        methods = set()
        for word in re.findall(r"METHODS?_\w+", row[1]):
            methods |= names.get(word, {word.split("_")[1].lower()})
        yield row[0], methods, "is_open = true" in row[2], row[0].endswith("/")


def test_openapi_is_served(api):
    status, headers, text = api.request("GET", "/openapi.yaml", headers={})
    assert (status, headers["Content-Type"]) == (200, "application/yaml")
    assert yaml.load(text, LOADER) == WHOLE and OPENAPI["openapi"] == "3.1.0"


def test_openapi_refers_to_what_is_there():
    def references(value):
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else []
        for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
            yield from references(child)

    used = set(references(WHOLE))
    assert len(used) > 15
    for reference in used:
        _, *path = reference.split("/")
        value = OPENAPI
        for part in path:
            value = value[part]
    for name in OPENAPI["components"]["schemas"]:
        jsonschema.Draft202012Validator.check_schema(OPENAPI["components"]["schemas"][name])
        assert f"#/components/schemas/{name}" in used


def test_openapi_has_every_route():
    found = list(routes())
    assert len(found) == 25
    documented = {path.replace("{name}", ""): {m for m in item if m not in ("description", "parameters")}
                  for path, item in OPENAPI["paths"].items() if not path.startswith("/review/")}
    below = {path: set(item) for path, item in OPENAPI["paths"].items() if path.startswith("/review/")}
    assert below == {"/review/{id}": {"get", "head"}, "/review/{id}/accept": {"post"}, "/review/{id}/dismiss": {"post"}}
    documented["/review/"] = {"get", "head", "post"}
    for path, methods, is_open, _ in found:
        if path == "/credential-vault/":
            continue  # whatever isn't one of the others: 404
        assert documented[path] == ({"get"} if methods == {"any"} else methods), path
        if path == "/review/":
            path = "/review/{id}"
        open_in_text = all(item.get("security") == [{}] for name, item in OPENAPI["paths"][
            path if not path.endswith("/") else path + "{name}"].items() if name not in ("description", "parameters"))
        assert open_in_text == is_open, path
    assert set(documented) == {path for path, *_ in found} - {"/credential-vault/"}


BODIES = {("post", "/policy"): ["", "{}", '{"egress":[{"action":"allow","target":"a.test","ports":[443]}]}', "[",
                                "x" * (1 << 21)],
          ("put", "/policy"): ["null"], ("patch", "/policy"): ['[{"action":"deny","target":"b.test"}]', "[]"],
          ("delete", "/policy"): ['["b.test"]', '["none.test"]', "{}"]}


def answers(api):
    for path, item in OPENAPI["paths"].items():
        for method, operation in item.items():
            if method in ("description", "parameters") or path == "/events":
                continue
            for body in BODIES.get((method, path), [None]):
                for headers in (None, {}):
                    got = api.request(method.upper(), path.replace("{name}", "x").replace("{id}", "7"), body, headers=headers)
                    yield f"{method} {path} {str(body)[:40]!r} {headers}", method, operation, got


def test_answers_are_as_documented(api):
    """Each answer has a documented status, media type and shape."""
    api.event("a.test")
    seen = set()
    for what, method, operation, (status, headers, text) in answers(api):
        assert str(status) in operation["responses"], what
        response = operation["responses"][str(status)]
        if "$ref" in response:
            response = OPENAPI["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
        for name in response.get("headers", {}):
            assert headers[name], (what, name)
        if method == "head" or status == 301:
            assert text == ""
            continue
        [(media, content)] = response["content"].items()
        assert headers["Content-Type"].split(";")[0] == media, what
        holds(json.loads(text) if media == "application/json" else text, content["schema"])
        seen.add(status)
    assert seen == {200, 400, 401, 403, 404, 412, 413}


def test_methods_that_are_not_documented(api):
    for path, methods, _, is_prefix in routes():
        if "any" in methods:
            continue
        for method in {"get", "head", "post", "put", "patch", "delete", "options", "trace", "brew"} - methods:
            status, headers, _ = api.request(method.upper(), path + ("x" if is_prefix else ""))
            if path == "/answer/":  # it is there with --review-url
                assert status == 404, method
                continue
            assert status == 405, (method, path)
            assert {m.strip().lower() for m in headers["Allow"].split(",")} == methods, path


def test_token_is_not_in_any_answer(api):
    for _, _, _, (_, headers, text) in answers(api):
        assert TOKEN not in text and TOKEN not in str(headers)
