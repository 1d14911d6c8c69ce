# SPDX-License-Identifier: Apache-2.0
"""The report of a run as a file: JSON after docs/report-schema.json, Markdown, GitHub's commands, SARIF and JUnit's XML."""
import json
import pathlib
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree

import pytest

from world.mounts import MASKED_PROC

SCHEMA = pathlib.Path(__file__).resolve().parents[3] / "docs" / "report-schema.json"


def run(world, *argv, form=None, **options):
    """Run with --report. Return: how it ended, and the text of the report."""
    cwd = options.pop("cwd", None) or world.workdir(options.get("user", "root"))
    more = ("--report", "report", *(("--report-format", form) if form else ()), *options.pop("options", ()))
    done = world.run(*argv, cwd=cwd, options=more, **options)
    return done, (cwd / "report").read_text()


def valid(text):
    jsonschema = pytest.importorskip("jsonschema")
    report = json.loads(text)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    return report


def test_a_run_without_refusals_is_reported_with_its_command_and_times(world, site, user):
    done, text = run(world, "curl", "-sS", f"https://{site.name}/", allow=(site.name,), user=user)
    report = valid(text)
    assert done.code == 0 and done.err == b"", done
    assert report["command"] == ["curl", "-sS", f"https://{site.name}/"]
    assert report["exit_status"] == 0 and report["signal"] is None and report["refusals"] == []
    assert 0 < report["duration_ms"] < 20000 and report["counters"]["flows"] >= 1, report
    assert report["counters"]["queries_denied"] == 0, "the self-test's are not the command's"


def test_what_the_command_does_not_get_is_listed_without_a_value(world):
    cwd = world.workdir()
    (cwd / "key").write_text("needle-1")
    (cwd / "plain").write_text("needle-2")
    env = {"A_TOKEN": "needle-3", **{f"B{i}_TOKEN": "needle-3" for i in range(20)}, "PLAIN": "x"}
    _, text = run(world, "cat", "plain", cwd=cwd, env=env, options=("--hide", cwd / "key", "--hide-preset", "none"))
    report = valid(text)
    assert report["hidden"] == [str(cwd / "key")]
    assert set(report["environment_kept_back"]) == set(env) - {"PLAIN"} and "needle" not in text
    _, text = run(world, "true", cwd=cwd, env={"PLAIN": "x"}, options=("--hide-preset", "none"))
    assert (valid(text)["hidden"], valid(text)["environment_kept_back"]) == ([], [])


def test_a_refused_name_has_every_field_that_is_known(world, denied, user):
    done, text = run(world, "sh", "-c", f"getent ahostsv4 {denied.name}; getent ahostsv4 {denied.name}", user=user)
    refusal, = valid(text)["refusals"]
    assert refusal["name"] == denied.name and refusal["layer"] == "dns" and refusal["times"] == 2, refusal
    assert refusal["allow"] == denied.name and refusal["rule"] is None and refusal["reason"]


def test_a_refused_address_has_protocol_port_and_sender(world, denied):
    _, text = run(world, "curl", "-sS", f"http://{denied.v4}:8080/")
    refusal, = valid(text)["refusals"]
    assert (refusal["address"], refusal["protocol"], refusal["port"]) == (denied.v4, "tcp", 8080)
    assert refusal["allow"] == f"{denied.v4}:tcp/8080"


def test_the_deciding_rule_is_named_with_its_place(world, denied):
    cwd = world.workdir()
    (cwd / "policy.yaml").write_text(f"egress:\n  - {{action: deny, target: {denied.name}, comment: no}}\n")
    _, text = run(world, "getent", "hosts", denied.name, cwd=cwd, options=("--policy", "policy.yaml"))
    report = valid(text)
    rule = report["refusals"][0]["rule"]
    assert (rule["file"], rule["line"], rule["comment"]) == ("policy.yaml", 2, "no")
    assert report["policy"]["sources"] == ["policy.yaml"] and report["refusals"][0]["allow"] is None


@pytest.mark.parametrize("command, status, signal", [("exit 7", 7, None), ("kill -9 $$", 137, 9)])
def test_the_end_of_the_command_is_told(world, command, status, signal):
    done, text = run(world, "sh", "-c", command)
    report = valid(text)
    assert report["exit_status"] == status and report["signal"] == signal and report["weir_failed"] is False
    assert done.code in (status, -(signal or 0))


def test_a_failed_run_is_reported_too(world):
    done, text = run(world, "true", mounts=MASKED_PROC)
    report = valid(text)
    assert done.code == report["exit_status"] == 125 and report["weir_failed"] is True


def test_json_replaces_what_was_there_and_markdown_is_added(world):
    cwd = world.workdir()
    for _ in range(2):
        _, text = run(world, "true", cwd=cwd)
    valid(text)
    (cwd / "report").write_text("before\n")
    _, text = run(world, "true", cwd=cwd, form="markdown")
    assert text.startswith("before\n### Weir: <code>true</code>\n"), text


def test_markdown_shows_refusals_as_a_table(world, denied):
    _, text = run(world, "getent", "ahostsv4", denied.name, form="markdown")
    row, = [line for line in text.splitlines() if "--allow" in line]
    plain = re.sub(r"&#(\d+);", lambda m: chr(int(m.group(1))), row)
    assert plain.startswith(f"| <code>{denied.name}</code> | 1 | ") and row.count("|") == 5, row


def test_markdown_escapes_what_the_command_line_says(world):
    _, text = run(world, "true", "</code><script>|`*\x1b", form="markdown")
    assert "<script" not in text and "\x1b" not in text and "`" not in text and "*" not in text, text


def test_bytes_that_are_no_text_are_escaped_in_json(world):
    _, text = run(world, "true", "\udcff")
    assert valid(text)["command"] == ["true", "\\xff"]


def test_the_command_can_neither_change_nor_remove_the_report(world, user):
    command = "echo false > report; rm -f report; mv report other; ln -sf /etc/passwd report; exit 0"
    _, text = run(world, "sh", "-c", command, user=user)
    assert valid(text)["command"][0] == "sh"


def test_a_link_in_the_reports_place_is_refused(world):
    cwd = world.workdir()
    victim = cwd / "victim"
    victim.write_text("kept")
    (cwd / "report").symlink_to(victim)
    done = world.run("true", cwd=cwd, options=("--report", "report"))
    assert done.code == 2 and "link" in done.messages and victim.read_text() == "kept", done


@pytest.mark.parametrize("path", ["/no/such/folder/report", ".", "/dev/tty"])
def test_a_report_that_cannot_be_written_stops_the_run(world, path):
    cwd = world.workdir()
    done = world.run("touch", "started", cwd=cwd, options=("--report", path))
    assert done.code == 2 and not (cwd / "started").exists(), done


def test_an_unknown_form_is_an_error(world):
    done = world.run("true", options=("--report", "r", "--report-format", "xml"))
    assert done.code == 2 and "'xml' is not one of json, markdown, github, sarif, junit" in done.messages, done


# Labels of names that a sandbox may ask for: line ends, workflow commands, escapes of commands and of XML, markup, links.
HOSTILE = [[b"a\n::error::owned", b"test"], [b"%0A::stop-commands::x", b"\r\n::add-mask::y", b"test"], [b"]]>", b"</failure>", b"&#10;", b"test"],
           [b'"', b"'><x y='", b"test"], [b"[a](http:", b"{0}", b"\\", b"test"], [b"\xff\xfe\x00\x1b[2J", b"\xe2\x80\xae", b"test"]]
ASK = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
for labels in %r:
    s.sendto(bytes(range(2)) + b"\\1\\0\\0\\1" + bytes(6) + b"".join(bytes([len(l)]) + l for l in labels) + b"\\0\\0\\1\\0\\1", ("127.0.0.1", 53))
    s.recv(4096)
"""


@pytest.fixture(name="hostile", scope="module")
def hostile_fixture(world):
    """Reports of one run in all forms: a rule that refuses, a name that no rule has, and names that the sandbox made up."""
    cwd = world.workdir()
    (cwd / "policy.yaml").write_text("egress:\n  - {action: deny, target: denied.test}\n")
    options = [word for name in ("r.json", "r.md", "github:r.txt", "r.sarif", "r.xml") for word in ("--report", name)]
    done = world.run("/usr/bin/python3", "-IS", "-c", ASK % ([[b"denied", b"test"], [b"other", b"test"], *HOSTILE],), cwd=cwd,
                     options=("--policy", "policy.yaml", "--quiet", *options))
    assert done.code == 0 and done.err == b"", done
    refused = [r["name"] for r in valid((cwd / "r.json").read_text())["refusals"]]
    assert len(refused) == 2 + len(HOSTILE) and refused[:2] == ["denied.test", "other.test"], refused
    return refused, lambda name: (cwd / name).read_bytes()


def test_every_form_is_ascii_and_names_every_destination(hostile):
    refused, read = hostile
    for name in ("r.json", "r.md", "r.txt", "r.sarif", "r.xml"):
        assert all(byte == 0x0a or 0x20 <= byte < 0x7f for byte in read(name)), name
    assert read("r.md").count(b"\n| <code>") == len(refused)


def unescaped(text):
    return urllib.parse.unquote(text)


def test_github_gets_one_command_for_a_destination_at_the_rule_or_the_policy(hostile):
    refused, read = hostile
    lines = read("r.txt").decode().splitlines()
    assert len(lines) == len(refused)
    for name, line in zip(refused, lines):
        found = re.fullmatch(r"::error file=policy\.yaml,line=(\d+),col=(\d+),title=Weir%3A ([^,:]*)::(.*)", line)
        assert found and "%" not in re.sub("%(25|3A|2C)", "", line), line
        assert unescaped(found[3]) == name and found[4].replace("%25", "%").startswith(f"refused {name} 1 time: ")
        assert (found[1], found[2]) == (("2", "5") if name == "denied.test" else ("1", "1"))
    assert lines[1].endswith("; --allow other.test would allow it")


def sarif_results(text):
    """What SARIF 2.1.0 requires of the objects that Weir writes, and no key that it doesn't have."""
    log = json.loads(text)
    assert set(log) == {"$schema", "version", "runs"} and log["version"] == "2.1.0"
    run, = log["runs"]
    assert set(run) <= {"tool", "invocations", "results", "columnKind"} and run["columnKind"] == "utf16CodeUnits"
    driver, rules = run["tool"]["driver"], run["tool"]["driver"]["rules"]
    assert set(driver) == {"name", "version", "rules"} and len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) == {"id", "name", "shortDescription", "defaultConfiguration"} and rule["shortDescription"]["text"].endswith(".")
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    (invocation,) = run["invocations"]
    assert set(invocation) == {"arguments", "executionSuccessful", "exitCode", "startTimeUtc", "endTimeUtc", "toolExecutionNotifications"}
    assert isinstance(invocation["executionSuccessful"], bool) and invocation["startTimeUtc"].endswith("Z")
    for result in run["results"]:
        assert set(result) == {"ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints", "occurrenceCount"}
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and set(result["message"]) == {"text"}
        assert not set("[]{}") & set(result["message"]["text"]), "links and placeholders"
        assert result["occurrenceCount"] >= 1
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert set(place) == {"artifactLocation", "region"} and set(place["artifactLocation"]) == {"uri"}
        assert place["region"]["startLine"] >= 1 and place["region"]["startColumn"] >= 1
        assert re.fullmatch(r"(file:///)?[\w\-.~/%]+", place["artifactLocation"]["uri"])
    return run["results"]


def test_sarif_has_a_result_for_each_refusal_at_its_place(hostile):
    refused, read = hostile
    results = sarif_results(read("r.sarif"))
    places = [r["locations"][0]["physicalLocation"] for r in results]
    assert [r["ruleId"] for r in results] == ["weir/lookup"] * len(refused)
    assert [p["region"] for p in places[:2]] == [{"startLine": 2, "startColumn": 5}, {"startLine": 1, "startColumn": 1}]
    assert {p["artifactLocation"]["uri"] for p in places} == {"policy.yaml"}
    assert len({r["partialFingerprints"]["weirDestination/v1"] for r in results}) == len(refused)


def test_a_destination_has_the_same_fingerprint_in_every_run(world):
    prints = set()
    for _ in range(2):
        _, text = run(world, "getent", "hosts", "same.test", form="sarif")
        prints |= {r["partialFingerprints"]["weirDestination/v1"] for r in sarif_results(text)}
    assert len(prints) == 1


def test_junit_has_a_case_for_each_destination(hostile):
    refused, read = hostile
    root = ElementTree.fromstring(read("r.xml"))
    (suite,) = root.findall("testsuite")
    cases = suite.findall("testcase")
    assert root.tag == "testsuites" and [e.tag for e in suite] == ["testcase"] * len(refused)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(refused)),) * 2 + ("0",)
    assert [case.get("name") for case in cases] == refused and {case.get("classname") for case in cases} == {"weir/lookup"}
    for case in cases:
        (failure,) = case
        assert failure.tag == "failure" and len(failure) == 0 and failure.get("type") == "deny" and case.get("name") in failure.text


def test_junit_has_one_case_where_nothing_was_refused_and_errors_for_what_failed(world, site):
    _, text = run(world, "true", form="junit")
    (case,) = ElementTree.fromstring(text).iter("testcase")
    assert case.get("name") == "nothing was refused" and len(case) == 0
    _, text = run(world, "sh", "-c", f"curl -sm 20 http://{site.name}:9/; true", form="junit", allow=(f"{site.name}:9",))
    cases = list(ElementTree.fromstring(text).iter("testcase"))
    assert cases and all(case[0].tag == "error" and site.name in case.get("name") for case in cases), text


def test_without_any_document_a_result_belongs_to_the_file_that_narrows(world):
    _, text = run(world, "getent", "hosts", "x.test", form="sarif", options=("--deny", "x.test"))
    (result,) = sarif_results(text)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == ".weir.yaml"
    cwd = world.workdir()
    (cwd / ".weir.yaml").write_text("verify: tls\ndeny:\n  - x.test\n")
    _, text = run(world, "getent", "hosts", "x.test", form="github", cwd=cwd)
    assert text.startswith("::error file=.weir.yaml,line="), text


def test_a_report_on_standard_output_begins_its_line(world):
    done = world.run("sh", "-c", "getent hosts x.test; printf unfinished", options=("--report", "github:-", "--quiet"))
    assert done.text.startswith("unfinished\n::error title=Weir%3A x.test::refused x.test "), "an annotation names no file that isn't there"


@pytest.mark.parametrize("options, says", [
    (("--report", "a", "--report", "a"), "named twice"), (("--report", "json:"), "needs the name"),
    (("--report", "a", "--report", "./a"), "named twice")])
def test_reports_that_cannot_be_are_refused_before_the_start(world, options, says):
    cwd = world.workdir()
    done = world.run("touch", "started", cwd=cwd, options=options)
    assert done.code == 2 and says in done.messages and not (cwd / "started").exists(), done


def test_a_form_that_is_given_comes_before_the_name(world):
    cwd = world.workdir()
    world.run("true", cwd=cwd, options=("--report", "junit:a.json", "--report", "b.json", "--report-format", "sarif"))
    ElementTree.fromstring((cwd / "a.json").read_text())
    assert sarif_results((cwd / "b.json").read_text()) == []


def test_quiet_says_nothing_even_with_a_report(world, denied):
    done, text = run(world, "getent", "hosts", denied.name, options=("--quiet",))
    assert done.err == b"" and valid(text)["refusals"], done


@pytest.mark.parametrize("name, value, bad", [("WEIR_UPLINK", "none", False), ("WEIR_UPLINK", "tor", True),
                                              ("WEIR_QUIET", "1", False), ("WEIR_QUIET", "maybe", True),
                                              ("WEIR_SELF_TEST", "", False)])
def test_a_variable_stands_for_its_option(world, name, value, bad):
    done = world.run("true", env={name: value})
    assert done.code == (2 if bad else 0), done
    assert not bad or f"{name}: " in done.messages, done


def test_a_list_in_a_variable_is_many_options(world, site):
    other = world.site(f"other-{world.number()}.test")
    command = f"curl -sS https://{site.name}/ && curl -sS https://{other.name}/"
    done = world.run("sh", "-c", command, env={"WEIR_ALLOW": f"{site.name}:443  {other.name}"})
    assert done.code == 0, done


def test_the_command_line_comes_before_the_environment(world, site):
    other = world.site(f"other-{world.number()}.test")
    done = world.run("curl", "-sS", f"https://{other.name}/", allow=(site.name,), env={"WEIR_ALLOW": other.name})
    assert done.code != 0 and other.name in done.messages, done


def test_a_variable_of_no_option_is_named(world):
    done = world.run("true", env={"WEIR_DENYY": "a.test"})
    assert done.code == 0 and "WEIR_DENYY" in done.messages, done
    assert world.run("true", env={"WEIR_DENYY": "a.test"}, options=("--quiet",)).err == b""
