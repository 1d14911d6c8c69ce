# SPDX-License-Identifier: Apache-2.0
"""docs/policy-schema.json agrees with what Weir reads: shipped profiles, examples of the manual, and a table of
documents that both have to judge alike."""
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs" / "policy-schema.json").read_text())


def is_valid(document):
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft7Validator(SCHEMA).is_valid(document)


def load(text):
    return pytest.importorskip("yaml").safe_load(text)


def examples():
    """Whole policies that the manual and the README show."""
    page = (ROOT / "man" / "weir-policy.5").read_text()
    shown = re.findall(r"^\.Bd[^\n]*\n(.*?)^\.Ed", page, re.M | re.S)
    shown += re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    return [text for text in shown if re.search(r"^egress:", text, re.M)]


def test_the_schema_is_one():
    pytest.importorskip("jsonschema").Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_profiles_follow_the_schema(path):
    assert is_valid(load(path.read_text()))


def test_the_examples_of_the_manual_follow_the_schema():
    assert examples()
    for text in examples():
        assert is_valid(load(text)), text


def test_every_limit_of_the_manual_is_in_the_schema():
    page = (ROOT / "man" / "weir-policy.5").read_text()
    section = re.search(r"^\.Sh LIMITS\n(.*?)^\.Sh", page, re.M | re.S).group(1)
    known = set(SCHEMA["definitions"]["policy"]["properties"]["limits"]["properties"])
    assert known and all(re.search(rf"\b{name}\b", section) for name in known)
    assert known == {w for w in re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", section) if w in known}


DOCUMENTS = [
    ("nothing", "", True), ("an empty mapping", "{}", True), ("a list", "[]", False), ("a text", "x", False),
    ("an unknown key", "egres: []", False), ("an action", "defaultAction: allow", True),
    ("another action", "defaultAction: block", False), ("verify", "verify: tls", True), ("verify no", "verify: no", False),
    ("denied names", "deniedNames: refuse", True), ("denied names otherwise", "deniedNames: reset", False),
    ("no rules", "egress: []", True), ("rules that are none", "egress: {}", False),
    ("a rule", "egress: [{action: allow, target: a.test}]", True),
    ("a rule without action", "egress: [{target: a.test}]", False),
    ("a rule without target", "egress: [{action: deny}]", False),
    ("a rule with more", "egress: [{action: deny, target: a.test, port: 1}]", False),
    ("ports", "egress: [{action: allow, target: a.test, ports: [443, 8000-8100, tcp/22, udp/443]}]", True),
    ("no ports", "egress: [{action: allow, target: a.test, ports: []}]", False),
    ("a port of 0", "egress: [{action: allow, target: a.test, ports: [0]}]", False),
    ("a port that is large", "egress: [{action: allow, target: a.test, ports: [65536]}]", False),
    ("a port of sctp", "egress: [{action: allow, target: a.test, ports: [sctp/1]}]", False),
    ("ports that are a text", "egress: [{action: allow, target: a.test, ports: 443}]", False),
    ("types", "egress: [{action: allow, target: a.test, types: [TXT, MX]}]", True),
    ("an unknown type", "egress: [{action: allow, target: a.test, types: [ANY]}]", False),
    ("private", "egress: [{action: allow, target: a.test, private: true, raw: false, comment: c}]", True),
    ("private by a text", "egress: [{action: allow, target: a.test, private: 'true'}]", False),
    ("limits", "limits: {queries_per_second: unlimited, flows: 10, grace: 45s}", True),
    ("a limit that can't be off", "limits: {flows: unlimited}", False),
    ("an unknown limit", "limits: {cows: 3}", False), ("a limit of 0", "limits: {flows: 0}", False),
    ("a wrapper", "network_policy: {egress: []}", True), ("a wrapper and more", "{network_policy: {}, egress: []}", False),
    ("two wrappers", "network_policy: {network_policy: {}}", False),
    ("isolation", "require_full_isolation: true", True), ("isolation by a number", "require_full_isolation: 1", False),
    ("extends", "extends: [default]", True), ("extends a text", "extends: default", False),
    ("a list file", "allow-list: ./names.txt", True), ("list files", "allow-list: [names.txt, ./names.txt]", True),
    ("a list file without dot", "allow-list: names", False), ("a list file of numbers", "allow-list: [1]", False),
]


@pytest.mark.parametrize("what, text, valid", DOCUMENTS, ids=[d[0] for d in DOCUMENTS])
def test_schema_and_check_judge_alike(world, what, text, valid):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text(text + "\n")
    (cwd / "names.txt").write_text("a.test\n")
    done = world.weir("policy", "check", "p.yaml", cwd=cwd)
    assert (done.code == 0) == valid, done
    assert is_valid(load(text)) == valid


def test_a_list_file_stands_beside_the_policy_and_its_lines_are_named(world, site):
    cwd = world.workdir()
    (cwd / "policy").mkdir()
    (cwd / "policy" / "p.yaml").write_text("allow-list: names.txt\negress:\n  - {action: deny, target: no.test}\n")
    (cwd / "policy" / "names.txt").write_text(f"# the build's\nno.test\n  {site.name}  # here\r\n\n*.x.test\n10.0.0.0/8\n")
    done = world.weir("policy", "explain", "--json", "--policy", "policy/p.yaml", site.name, "no.test", "a.x.test",
                      "10.1.1.1:80", cwd=cwd)
    assert [a["action"] for a in done.json()] == ["allow", "deny", "allow", "allow"], done
    assert (done.json()[0]["rule"]["file"], done.json()[0]["rule"]["line"]) == ("policy/names.txt", 3)
    assert world.run("curl", "-sS", f"https://{site.name}/", options=("--policy", "policy/p.yaml"), cwd=cwd).code == 0


def test_every_fault_of_a_list_file_has_its_place(world):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text("allow-list: [names.txt, none.txt]\n")
    (cwd / "names.txt").write_text("ok.test\n  a..b\n*\n")
    done = world.weir("policy", "check", "p.yaml", cwd=cwd)
    assert done.code == 2, done
    for start in ("names.txt:2:3: 'a..b'", "names.txt:3:1: '*'", "p.yaml:1:25: allow-list[1]: 'none.txt'"):
        assert start in done.messages, done


def test_the_command_cannot_change_a_list_file(world):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text("allow-list: names.txt\n")
    (cwd / "names.txt").write_text("a.test\n")
    world.run("sh", "-c", "echo evil.test >> names.txt; rm -f names.txt; exit 0", options=("--policy", "p.yaml"), cwd=cwd)
    assert (cwd / "names.txt").read_text() == "a.test\n"
