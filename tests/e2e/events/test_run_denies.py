# SPDX-License-Identifier: Apache-2.0
"""`on_denies` of a run: an event, or the end of the command."""
import json

import pytest

ASK = "for i in 1 2 3 4 5 6 7 8; do getent hosts n$i.{name}; done; "


def policy(cwd, count, action, extra=""):
    path = cwd / "policy.yaml"
    path.write_text(f"on_denies: {{count: {count}, window: 1m, action: {action}}}\n{extra}")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["by SIGTERM", "by SIGKILL"])
def test_stop_ends_the_command_with_a_status_of_its_own(world, user, denied, trap):
    cwd = world.workdir(user)
    policy(cwd, 3, "stop")
    done = world.run("sh", "-c", trap + ASK.format(name=denied.name) + "while :; do sleep 0.1; done", user=user, cwd=cwd,
                     options=["--policy", "policy.yaml", "--report", "report.json", "--fail-on-deny"])
    assert done.code == 122, done
    assert "the command was ended: the policy's on_denies says stop" in done.messages
    assert "more than 3 denies in 1m" in done.messages
    report = json.loads((cwd / "report.json").read_text())
    assert report["stopped"] and report["exit_status"] == 122
    assert [r["times"] for r in report["refusals"] if r["limit"] == "on_denies"] == [1]


def test_an_event_ends_nothing(world, user, denied):
    cwd = world.workdir(user)
    policy(cwd, 3, "event")
    done = world.run("sh", "-c", ASK.format(name=denied.name) + "exit 7", user=user, cwd=cwd,
                     options=["--policy", "policy.yaml", "--report", "report.json"])
    report = json.loads((cwd / "report.json").read_text())
    assert done.code == 7 and not report["stopped"], done
    assert [r["times"] for r in report["refusals"] if r["limit"] == "on_denies"] == [1]


def test_as_many_as_the_count_are_no_reason(world, denied):
    cwd = world.workdir()
    policy(cwd, 1000, "stop")
    done = world.run("sh", "-c", ASK.format(name=denied.name) + "exit 7", cwd=cwd, options=["--policy", "policy.yaml"])
    assert done.code == 7 and "on_denies" not in done.messages, done


def test_a_flood_cannot_hide_behind_the_limit_of_events(world, denied):
    """One event a second is said, and all packets count."""
    cwd = world.workdir()
    policy(cwd, 100, "stop", "limits: {events_per_second: 1}\n")
    done = world.run("sh", "-c", f"i=0; while [ $i -lt 400 ]; do i=$((i+1)); getent hosts n$i.{denied.name}; done; sleep 9",
                     cwd=cwd, options=["--policy", "policy.yaml"])
    assert done.code == 122, done


def test_the_tools_say_what_it_means(world):
    cwd = world.workdir()
    policy(cwd, 50, "stop")
    (cwd / "other.yaml").write_text("egress: []\n")
    shown = world.weir("policy", "show", "--policy", "policy.yaml", "--json", cwd=cwd)
    assert json.loads(shown.out)["on_denies"] == {"count": 50, "window": "1m", "action": "stop"}, shown
    told = world.weir("policy", "explain", "--policy", "policy.yaml", "x.test", cwd=cwd)
    assert "on_denies: it counts: more than 50 packets in 1m: stop" in told.text, told
    changed = world.weir("policy", "diff", "other.yaml", "policy.yaml", cwd=cwd)
    assert "on_denies: more than 50 packets in 1m: stop, was nothing" in changed.text, changed
    rendered = world.weir("render", "--policy", "policy.yaml", "--uid", "1234", cwd=cwd)
    assert rendered.code == 0 and "policy.yaml:1:12: warning: on_denies: rules alone count nothing" in rendered.messages, rendered


SCAN = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
refused = 0
for i in range(2000):
    try:
        s.sendto(b"x", (f"198.{18 + i // 1000}.{i // 250 % 4}.{i % 250 + 1}", 9999))
    except OSError:
        refused += 1
print(refused)
"""


def test_a_scan_is_counted_right(world):
    """What is in the rows, and what isn't: together it is what was refused, once."""
    cwd = world.workdir()
    done = world.run("/usr/bin/python3", "-IS", "-c", SCAN, cwd=cwd, options=["--report", "report.json"])
    assert done.code == 0 and done.text == "2000\n", done
    report = json.loads((cwd / "report.json").read_text())
    rows = sum(r["times"] for r in report["refusals"])
    assert rows + report["refusals_not_recorded"] == report["counters"]["packets_denied"] == 2000, report["counters"]
    if more := report["refusals_not_recorded"]:
        assert f"weir: {more} more were counted only" in done.messages
