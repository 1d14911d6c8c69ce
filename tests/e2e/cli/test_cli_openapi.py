# SPDX-License-Identifier: Apache-2.0
"""The daemon's API and docs/openapi.yaml say the same: each route is documented, each documented one answers as it says."""
import json
import pathlib
import re

import jsonschema
import pytest

from world.openapi import OPENAPI

ROOT = pathlib.Path(__file__).resolve().parents[3]
MANY = {path: item for path, item in OPENAPI["paths"].items() if path.startswith("/sandboxes")}
KEYS = ("description", "parameters")
NAMES = {"METHODS_READ": {"get", "head"}, "METHODS_CHANGE": {"post", "put", "patch", "delete"}}
BODIES = {"put /sandboxes/{sandbox}": ["", "{}", '{"netns": "/etc/passwd"}', '{"uid": 0, "cgroup": 1}', "x" * (1 << 21)],
          "patch /sandboxes/{sandbox}/policy": ['[{"action":"deny","target":"b.test"}]', "[]"],
          "delete /sandboxes/{sandbox}/policy": ['["b.test"]', "{}"], "put /sandboxes/{sandbox}/policy": ["null", "["],
          "post /sandboxes/{sandbox}/policy": ["{}", "[", "x" * (1 << 21)]}


def rows():
    """(path, methods, what the row says) of the table in route.c."""
    source = (ROOT / "src/api/route.c").read_text().split("routes[] = {")[1].split("\n};")[0]
    source = source.replace('VAULT "', '"/credential-vault').replace("{ VAULT,", '{ "/credential-vault",')
    for path, methods, rest in re.findall(r'\{ "([^"]+)",\s*([^"]*?),\s*(answer_.*?)\},?\s*(?=\{ "|$)', source, re.S):
        found = set()
        for word in re.findall(r"METHODS?_\w+", methods):
            found |= NAMES.get(word, {word.split("_")[1].lower()})
        yield path, {"get"} if found == {"any"} else found, rest


def documented():
    return {path.removeprefix("/sandboxes/{sandbox}"): set(item) - set(KEYS)
            for path, item in MANY.items() if path.startswith("/sandboxes/{sandbox}/")}


def test_every_route_below_a_sandbox_is_documented_and_no_other():
    found = {path: methods for path, methods, rest in rows() if "OF_" in rest}
    assert len(found) == 14
    reviews = {path: methods for path, methods in documented().items() if path.startswith("/review/")}
    assert reviews == {"/review/{id}": {"get", "head"}, "/review/{id}/accept": {"post"}, "/review/{id}/dismiss": {"post"}}
    assert found.pop("/review/") == {"get", "head", "post"}
    assert found == {path: methods for path, methods in documented().items() if not path.startswith("/review/")}
    assert set(MANY) - {f"/sandboxes/{{sandbox}}{path}" for path in documented()} == {"/sandboxes", "/sandboxes/{sandbox}"}


def test_the_operations_have_names_of_their_own():
    names = [operation["operationId"] for item in OPENAPI["paths"].values() for method, operation in item.items()
             if method not in KEYS and "operationId" in operation]
    assert len(names) == len(set(names)) > 30


@pytest.fixture
def stored(host):
    return host.daemon("--state-dir", host.folder / "state")


def test_answers_are_as_documented(stored, pod, denied):
    stored.attach("one", pod)
    pod.probe(["dns", denied.name])
    seen = set()
    for path, item in MANY.items():
        for method, operation in item.items():
            if method in KEYS or path.endswith("/events") or (method, path) == ("delete", "/sandboxes/{sandbox}"):
                continue
            for body in BODIES.get(f"{method} {path}", [None]):
                for name in ("one", "none"):
                    if name == "none" and (method, path) == ("put", "/sandboxes/{sandbox}"):
                        name = "two"
                    target = path.replace("{sandbox}", name).replace("{id}", "7")
                    check(stored.call(method.upper(), target, body), method, operation, f"{method} {target} {str(body)[:40]}")
                    seen.add((method, path))
    assert len(seen) == sum(len(set(item) - set(KEYS)) for item in MANY.values()) - 2
    detach = MANY["/sandboxes/{sandbox}"]["delete"]
    for status in (200, 404):
        reply = stored.call("DELETE", "/sandboxes/one")
        assert reply.status == status
        check(reply, "delete", detach, "delete")


def check(reply, method, operation, what):
    assert str(reply.status) in operation["responses"], f"{what}: {reply}"
    response = operation["responses"][str(reply.status)]
    if "$ref" in response:
        response = OPENAPI["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    if method == "head":
        assert reply.text == ""
        return
    [(media, content)] = response["content"].items()
    assert reply.headers["content-type"].split(";")[0] == media, f"{what}: {reply}"
    value = json.loads(reply.text) if media == "application/json" else reply.text
    jsonschema.Draft202012Validator({**content["schema"], "components": OPENAPI["components"]}).validate(value)


def test_what_can_be_attached_is_what_the_schema_takes(daemon, pod):
    schema = jsonschema.Draft202012Validator({"$ref": "#/components/schemas/Attach", "components": OPENAPI["components"]})
    for body in ({"netns": pod.ns.path}, {"netns": pod.ns.path, "policy": {"egress": []}}, {"uid": 65534}, {"uid": "nobody"}):
        schema.validate(body)
        reply = daemon.call("PUT", "/sandboxes/one", body)
        assert reply.status == 201, reply
        assert daemon.call("DELETE", "/sandboxes/one").status == 200
    for body in ({}, {"uid": 0}, {"uid": 7, "netns": "/x"}, {"cgroup": 5}, {"netns": "/x", "more": 1}, {"netns": "/x", "guardParent": 1}):
        assert not schema.is_valid(body), body
        assert daemon.call("PUT", "/sandboxes/one", body).status == 400, body


def test_what_is_the_sidecars_is_not_the_daemons(daemon, pod):
    daemon.attach("one", pod)
    for path, methods, rest in rows():
        for method in methods - {"head"}:
            if "OF_ONE" in rest or "IN_SIDECAR" in rest:
                assert daemon.call(method.upper(), path.rstrip("/") + "/7" * path.endswith("/")).status == 404, path
            if "OF_" not in rest and path != "/ui":
                assert daemon.call(method.upper(), f"/sandboxes/one{path}").status == 404, path
