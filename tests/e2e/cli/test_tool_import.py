# SPDX-License-Identifier: Apache-2.0
"""`weir policy import`: other tools' lists as a policy that holds no more than they did."""
import json

import pytest

WORKFLOW = """
jobs:
  build:
    steps:
      - uses: some/runner@v2
        with:
          egress-policy: block
          allowed-endpoints: {sign}
            github.com:443
            *.github.com:443 *.github.com:22
            api.github.com:80
            10.0.0.1:8080
            [2600::1]:443
      - run: |
          make
"""


def settings(**network):
    return json.dumps({"model": "m", "sandbox": {"enabled": True, "network": network}})


def domains(allow, deny=(), where="sandbox"):
    network = {"network": {"allowedDomains": allow, "deniedDomains": deny}}
    return json.dumps({"sandbox": network} if where == "sandbox" else network)


ENDPOINTS = [("github.com", "tcp/443"), ("api.github.com", "tcp/80,tcp/443,tcp/22"), ("10.0.0.1", "tcp/8080"),
             ("2600::1", "tcp/443"), ("*.github.com", "tcp/443,tcp/22")]
IMPORTS = [
    ("a list below sandbox", domains(["a.test", "*.b.test"]), [("allow", "a.test", None), ("allow", "*.b.test", None)]),
    ("a list below network", domains(["a.test"], where="top"), [("allow", "a.test", None)]),
    ("denies before all else", domains(["*.a.test"], ["x.a.test"]),
     [("deny", "x.a.test", None), ("allow", "*.a.test", None)]),
    ("a name twice", domains(["a.test", "A.test"]), [("allow", "a.test", None)]),
    ("YAML", "network:\n  allowedDomains:\n  - a.test\n", [("allow", "a.test", None)]),
    ("what says nothing beside it", settings(allowedDomains=["a.test"], allowLocalBinding=False, allowUnixSockets=[]),
     [("allow", "a.test", None)]),
    ("an empty list", domains([]), []),
    ("no list at all of two", settings(deniedDomains=["a.test"]), [("deny", "a.test", None)]),
    ("null", "network: {allowedDomains: null}", []),
    ("endpoints, folded", WORKFLOW.format(sign=">"), [("allow", *e) for e in ENDPOINTS]),
    ("endpoints, line by line", WORKFLOW.format(sign="|"), [("allow", *e) for e in ENDPOINTS]),
    ("endpoints as a list", "allowed-endpoints: [a.test:443]", [("allow", "a.test", "tcp/443")]),
    ("no endpoint", "allowed-endpoints: ''", []),
]


@pytest.fixture(name="convert")
def convert_fixture(world):
    def convert(text, name="settings"):
        cwd = world.workdir()
        (cwd / name).write_text(text)
        return world.weir("policy", "import", name, cwd=cwd), cwd
    return convert


@pytest.mark.parametrize("what, text, rules", IMPORTS, ids=[w for w, _, _ in IMPORTS])
def test_every_entry_becomes_a_rule_and_nothing_else(world, convert, what, text, rules):
    done, cwd = convert(text)
    assert done.code == 0 and done.err == b"", done
    (cwd / "policy.yaml").write_bytes(done.out)
    assert world.weir("policy", "check", "policy.yaml", cwd=cwd).code == 0
    shown = world.weir("policy", "show", "--json", "policy.yaml", cwd=cwd).json()
    assert shown["defaultAction"] == "deny"
    got = [(r["action"], r["target"], {str(p) for p in r["ports"]} if "ports" in r else None) for r in shown["egress"]]
    assert got == [(a, t, set(p.split(",")) if p else None) for a, t, p in rules]


FAULTS = [
    ("a star", domains(["a.test", "*"]), "network.allowedDomains", "'*'"),
    ("a pattern over a suffix", domains(["*.com"]), "settings:1:", "*.com"),
    ("a name that is none", domains(["a..test"]), "network.allowedDomains", "a..test"),
    ("a number", domains([3]), "network.allowedDomains", "not a name"),
    ("no list", "network: {allowedDomains: a.test}", "network.allowedDomains", "not a list"),
    ("what a policy can't say", settings(allowedDomains=[], httpProxyPort=8080), "network.httpProxyPort", "can't be said"),
    ("an endpoint without port", "allowed-endpoints: a.test", "allowed-endpoints", "host:port"),
    ("an endpoint with port 0", "allowed-endpoints: a.test:0", "allowed-endpoints", "host:port"),
    ("two places", "a: {network: {allowedDomains: []}}\nb: {network: {allowedDomains: []}}", "settings:2:", "a.network"),
    ("no place", "network: {other: 1}", "settings", "allowedDomains"),
    ("an empty file", "", "settings", "allowedDomains"),
    ("bad JSON", '{"network": ', "settings:1:", ""),
]


@pytest.mark.parametrize("what, text, place, says", FAULTS, ids=[f[0] for f in FAULTS])
def test_what_cant_be_said_is_an_error_with_its_place(convert, what, text, place, says):
    done, _ = convert(text)
    assert done.code == 2 and done.out == b"", done
    assert place in done.messages and says in done.messages, done


def test_a_missing_file_is_an_error(world):
    done = world.weir("policy", "import", "nowhere")
    assert done.code == 2 and "nowhere" in done.messages


def test_an_imported_policy_is_enforced(world, convert, user, site, denied):
    done, cwd = convert(domains([site.name]))
    policy = cwd / "policy.yaml"
    policy.write_bytes(done.out)
    yes, no = world.probe(["lookup", site.name], ["lookup", denied.name], options=("--policy", policy))
    assert yes.result == "ok" and no.result == "EAI_NONAME"
