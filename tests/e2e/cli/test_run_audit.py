# SPDX-License-Identifier: Apache-2.0
"""`weir run --audit`: nothing but special addresses is refused, and the report says what the policy would have refused."""
import json
import pathlib
import re

import pytest

SCHEMA = pathlib.Path(__file__).resolve().parents[3] / "docs" / "report-schema.json"
LOUD = "AUDIT: THIS IS NO FENCE"
PROBE = ("/usr/bin/python3", "-IS")


def advice(done):
    return set(re.findall(r"^weir:   --allow (\S+)$", done.messages, re.M))


def test_what_the_policy_would_refuse_passes_and_is_listed(world, site, denied, user):
    argv = ("sh", "-c", f"curl -sS https://{site.name}/; curl -sS https://{denied.name}/; exit 7")
    done = world.run(*argv, allow=(site.name,), user=user, options=("--audit", "--quiet"))
    assert done.code == 7 and done.text.count('"host"') == 2 and LOUD in done.messages, done
    done = world.run(*argv, allow=(site.name,), user=user, options=("--audit",))
    assert f"{denied.name} ({denied.v4}) tcp/443" in done.messages or f"{denied.name} ({denied.v6}) tcp/443" in done.messages, done
    assert advice(done) == {f"{denied.name}:tcp/443"} and "would have refused" in done.messages, done
    again = world.run(*argv, allow=(site.name, *advice(done)), user=user)
    assert again.text.count('"host"') == 2 and "refused" not in again.messages, again


def test_special_addresses_stay_refused(world, site, denied):
    """What leaves is counted outside; a public name is the control."""
    rebound = f"rebound-{world.number()}.test"
    world.dns.add(rebound, "10.1.2.3")
    with world.capture() as capture:
        answers = world.probe(["dns", rebound], ["tcp", "10.1.2.3", 80], ["tcp", "169.254.169.254", 80], ["tcp", "127.0.0.1", 9],
                              ["tcp", denied.v4, 443], options=("--audit",))
        to = {p.dst for p in capture.packets()}
    assert denied.v4 in to and not to & {"10.1.2.3", "169.254.169.254"}, (to, answers)


# what is done, under which rules, and what of it the policy refuses
CASES = [
    ("a rule's deny", "deny {name}", ["tls"]),
    ("another port", "allow {name}:8443", ["tls"]),
    ("an address", "", ["address"]),
    ("a port that shows no name", "allow {name}", ["bytes"]),
    ("bytes to an address", "allow {v4}", ["raw"]),
    ("TLS without a name", "allow {v4}", ["address"]),
    ("an allowed name at another address", "allow {name}", ["tls", "claim"]),
    ("what is allowed", "allow {name}", ["tls"]),
]
DO = {"tls": "curl -so /dev/null https://{name}/", "address": "curl -sko /dev/null https://{v4}/",
      "claim": "curl -sko /dev/null --resolve {name}:443:{other} https://{name}/", "bytes": "echo x | nc -N -w 40 {name} 7007",
      "raw": "echo x | nc -N -w 40 {v4} 443"}


@pytest.mark.parametrize("what, rules, does", CASES, ids=[c[0] for c in CASES])
def test_an_audit_says_what_the_policy_does(world, site, denied, what, rules, does):
    """The advice of an audit is that of a run that is refused."""
    argv = ("sh", "-c", "; ".join(DO[d].format(name=site.name, v4=site.v4, other=denied.v4) for d in does) + "; true")
    words = rules.format(name=site.name, v4=site.v4).split()
    named = {words[0]: (words[1],)} if words else {}
    refused = world.run(*argv, **named)
    audited = world.run(*argv, options=("--audit",), **named)
    # a refused look-up says no port
    ports = {a.partition(":")[0] if a.partition(":")[0] in advice(refused) else a for a in advice(audited)}
    assert ports == advice(refused), (refused, audited)
    assert ("would have refused it" in audited.messages) == ("refused:" in refused.messages), (refused, audited)


def test_a_look_up_for_a_type_that_no_rule_serves_is_listed(world, site):
    """Beside what the connection to the same name says. Control: the look-up for the addresses is allowed, and not listed."""
    world.dns.add(site.name, site.v4, records=[(site.name, 60, "TXT", '"data"')])
    ask = ("sh", "-c", f"dig +short TXT {site.name}; curl -so /dev/null https://{site.name}/; curl -so /dev/null http://{site.name}:8080/; true")
    refused = world.run(*ask, allow=(site.name,))
    audited = world.run(*ask, allow=(site.name,), options=("--audit",))
    assert "data" not in refused.text and "data" in audited.text and f"{site.name}:TXT" in advice(audited), (refused, audited)


def test_the_report_has_it_apart(world, site, denied, user):
    jsonschema = pytest.importorskip("jsonschema")
    cwd = world.workdir(user)
    forms = [word for form in ("json", "markdown", "github", "sarif", "junit") for word in ("--report", f"{form}:{form}")]
    done = world.run("curl", "-so/dev/null", f"https://{denied.name}/", allow=(site.name,), user=user, cwd=cwd, options=("--audit", *forms))
    report = json.loads((cwd / "json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    [would] = report["would_be_refused"]
    assert done.code == 0 and report["audit"] is True and report["refusals"] == [] and would["name"] == denied.name, report
    assert would["allow"] == f"{denied.name}:tcp/443" and would["reason"] == "no rule allows it" and would["times"] == 1
    assert "the policy would have refused" in (cwd / "markdown").read_text()
    assert (cwd / "github").read_text().startswith("::warning ") and "::error" not in (cwd / "github").read_text()
    [result] = json.loads((cwd / "sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "weir/audit" and result["level"] == "warning"
    assert 'classname="weir/audit"' in (cwd / "junit").read_text()


def test_what_an_audit_loses_is_said(world, user):
    """More different names than the report holds, of which none is allowed: each is listed or counted, in every form."""
    world.dns.add("*.many.test", "93.1.1.1")
    cwd = world.workdir(user)
    look_up = "import socket\nfor i in range(560): socket.getaddrinfo(f'n{i}.many.test', None, socket.AF_INET)"
    forms = [word for form in ("json", "markdown", "github", "sarif", "junit") for word in ("--report", f"{form}:{form}")]
    done = world.run(*PROBE, "-c", look_up, user=user, cwd=cwd, options=("--audit", *forms))
    report = json.loads((cwd / "json").read_text())
    lost = report["would_be_refused_not_recorded"]
    assert done.code == 0 and len(report["would_be_refused"]) == 512 and lost == 48 and report["passed_not_judged"] == 0, done
    for said in (done.messages, *((cwd / form).read_text() for form in ("markdown", "github", "sarif", "junit"))):
        assert f"and {lost} more would have been refused" in said, said[-2000:]


AT_ONCE = """
import socket, sys
flows = [socket.create_connection((sys.argv[1], 80)) for i in range(60)]
for f in flows: f.sendall(f"GET / HTTP/1.0\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n".encode())
for f in flows: assert f.recv(1)
"""


def test_many_connections_at_once_are_all_judged(world, user, denied):
    cwd = world.workdir(user)
    done = world.run(*PROBE, "-c", AT_ONCE, denied.name, user=user, cwd=cwd, options=("--audit", "--report", "json:json"))
    report = json.loads((cwd / "json").read_text())
    [would] = [one for one in report["would_be_refused"] if one["name"] == denied.name and one["port"] == 80]
    assert done.code == 0 and would["times"] == 60 and report["passed_not_judged"] == 0, done


@pytest.mark.parametrize("options, why", [(("--fail-on-deny",), "the command's own status"), (("--uid", "1"), "means nothing with --uid")])
def test_what_makes_no_sense_with_it(world, options, why):
    done = world.run("true", options=("--audit", *options), upstream=None)
    assert done.code == 2 and why in done.messages, done
