# SPDX-License-Identifier: Apache-2.0
"""The package, docs/openapi.yaml and the report's schema say the same, and fail here when one of them changes alone."""
import inspect
import json
import pathlib
import subprocess
import sys
import typing

import pytest

import weir
from weir import _policy, _result, _schema, client
from world.openapi import OPENAPI

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEMAS = OPENAPI["components"]["schemas"]
METHODS = ("get", "post", "put", "patch", "delete")
# A person's page, which no program asks for.
NOT_ASKED = {"page"}


def documented():
    """{operationId: (METHOD, path, its parameters of query and header, the schema of its answer)}"""
    found = {}
    for path, item in OPENAPI["paths"].items():
        for method in METHODS:
            operation = item.get(method, {})
            if "operationId" not in operation:
                continue
            given = [p if "$ref" not in p else OPENAPI["components"]["parameters"][p["$ref"].rsplit("/", 1)[1]]
                     for p in operation.get("parameters", [])]
            ok = operation["responses"]["200"]
            ok = OPENAPI["components"]["responses"][ok["$ref"].rsplit("/", 1)[1]] if "$ref" in ok else ok
            schema = ok["content"].get("application/json", {}).get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
            found[operation["operationId"]] = (method.upper(), path, {p["name"].lower().replace("-", "_") for p in given if p["in"] != "path"}, schema)
    return found


def methods(cls):
    return {f.operation.name: f for _, f in inspect.getmembers(cls, inspect.isfunction) if hasattr(f, "operation")}


def asked(function):
    operation = function.operation
    mine = {"self", "task", "sandbox_id", "policy", "rules", "targets", "timeout", "lasts", "rule", "netns", "cgroup", "uid", "guard_parent", "again"}
    return operation.method, operation.path, set(inspect.signature(function).parameters) - mine, operation.schema


def below(name):
    """getPolicy: getSandboxPolicy …"""
    verb = next(v for v in ("get", "set", "replace", "patch", "delete", "count", "accept", "dismiss", "") if name.startswith(v))
    rest = name[len(verb):]
    return f"{verb}Sandbox{rest}" if verb else f"sandbox{name[0].upper()}{name[1:]}"


def test_each_operation_has_its_method_and_each_method_its_operation():
    wanted = documented()
    top = methods(client.Client)
    assert {name: asked(f) for name, f in top.items()} == \
        {name: rest for name, rest in wanted.items() if (not rest[1].startswith("/sandboxes/{sandbox}/")) and name not in NOT_ASKED}
    for name, function in methods(client.SandboxClient).items():
        method, path, parameters, schema = asked(function)
        assert wanted.pop(below(name)) == (method, "/sandboxes/{sandbox}" + path, parameters, schema), name
    assert {name for name, rest in wanted.items() if rest[1].startswith("/sandboxes/{sandbox}/")} == set()


def test_what_can_be_attached_is_what_the_schema_says():
    words = set(inspect.signature(client.Client.attach).parameters) - {"self", "sandbox_id"}
    assert words == {"guard_parent" if name == "guardParent" else name for name in SCHEMAS["Attach"]["properties"]}


ANSWERS = [name for name, value in vars(_schema).items() if isinstance(value, type(_schema.Done)) and not name.startswith("_")
           and name in SCHEMAS]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_the_keys_of_its_schema(name):
    keys = getattr(_schema, name)
    assert set(typing.get_type_hints(keys)) == set(SCHEMAS[name]["properties"])
    assert set(keys.__required_keys__) == set(SCHEMAS[name]["required"])


def test_every_schema_that_is_answered_is_there():
    assert {rest[3] for rest in documented().values()} - {""} <= set(ANSWERS)
    assert set(typing.get_type_hints(_schema.Learned)) == set(SCHEMAS["Status"]["properties"]["learned"]["properties"])
    assert set(typing.get_type_hints(_schema.Grant)) == set(SCHEMAS["Status"]["properties"]["grants"]["items"]["properties"])
    body = OPENAPI["paths"]["/review/{id}/accept"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    accept = set(inspect.signature(client.Client.accept_review).parameters) - {"self", "task", "who"}
    assert {"for" if name == "lasts" else name for name in accept} == set(body["properties"])
    assert set(typing.get_type_hints(_schema.Degradation)) == set(SCHEMAS["Status"]["properties"]["degradations"]["items"]["properties"])


def test_the_report_has_the_keys_of_its_schema():
    schema = json.loads((ROOT / "docs/report-schema.json").read_text())
    event, rule = schema["definitions"]["event"], schema["definitions"]["event"]["properties"]["rule"]
    for keys, wanted in ((_result.Report, schema), (_result.EventReport, event), (_result.RuleReport, rule),
                         (_result.PolicyReport, schema["properties"]["policy"])):
        assert set(typing.get_type_hints(keys)) == set(wanted["properties"]), keys
        assert set(keys.__required_keys__) == set(wanted["required"]), keys


def test_policies_have_the_keys_of_their_schema():
    rule = {name.rstrip("_") for name in _policy.EgressRule.__dataclass_fields__}
    assert rule == set(SCHEMAS["Rule"]["properties"])
    known = json.loads((ROOT / "docs/policy-schema.json").read_text())["definitions"]["policy"]["properties"]
    assert set(_policy.NetworkPolicy.__dataclass_fields__) <= set(known)


def test_the_version_is_that_of_weir():
    assert f"version: '{weir.__version__}'" in (ROOT / "meson.build").read_text()


def test_types_hold_for_mypy():
    """The oldest Python that the package is for."""
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--python-version", "3.9", "--cache-dir", ROOT / "build/mypy",
                           ROOT / "sdk/python/weir"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
