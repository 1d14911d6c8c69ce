# SPDX-License-Identifier: Apache-2.0
"""The report of a run as a file: JSON after docs/report-schema.json, and Markdown."""
import json
import pathlib
import re

import pytest

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


def test_a_refused_name_has_every_field_that_is_known(world, denied, user):
    done, text = run(world, "sh", "-c", f"getent ahostsv4 {denied.name}; getent ahostsv4 {denied.name}", user=user)
    refusal, = valid(text)["refusals"]
    assert refusal["name"] == denied.name and refusal["layer"] == "dns" and refusal["times"] == 2, refusal
    assert refusal["allow"] == denied.name and refusal["rule"] is None and refusal["reason"]


def test_a_refused_address_has_protocol_port_and_sender(world, denied):
    _, text = run(world, "curl", "-sS", f"http://{denied.v4}:8080/")
    refusal, = valid(text)["refusals"]
    assert (refusal["address"], refusal["protocol"], refusal["port"]) == (denied.v4, "tcp", 8080)
    assert refusal["allow"] == f"{denied.v4}:8080"


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
    done, text = run(world, "true", mounts=("mount --bind /dev/null /usr/bin/bwrap",))
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
    assert done.code == 2 and "'xml' is not one of json, markdown" in done.messages, done


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
