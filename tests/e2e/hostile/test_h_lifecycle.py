# SPDX-License-Identifier: Apache-2.0
"""H: starts, ends and mistakes; each has to end closed."""
import json
import signal

import pytest

from world import expect
from world.mounts import MASKED_PROC
from world.run import finish
from world.sidecar import wait_for

EVERYTHING = [["tcp", "93.9.9.9", 443], ["tcp", "2a01:93::9:9", 443], ["dns", "evil.test"]]

EMPTY = [
    ("no policy at all", None),
    ("an empty file", ""),
    ("only a comment", "# nothing\n"),
    ("an empty list", "egress: []\n"),
    ("an empty document in JSON", "{}"),
    ("an explicit deny", "defaultAction: deny\n"),
    ("an empty wrapper", "network_policy: {}\n"),
    ("only denies", "egress:\n  - {action: deny, target: api.ok.test}\n"),
    ("an allow of nothing there", "egress:\n  - {action: allow, target: other.test}\n"),
]


@pytest.mark.parametrize("what, text", EMPTY, ids=[w for w, _ in EMPTY])
def test_H1_nothing_listed_means_nothing_reachable(attack, world, what, text):
    options = ()
    if text is not None:
        policy = world.workdir() / "policy.yaml"
        policy.write_text(text)
        options = ("--policy", policy)
        checked = world.run("true", options=options)
        if checked.code == 2 and what in ("an empty file", "only a comment", "an empty wrapper"):
            return  # refusing to start is as good
    four, six, name = attack.probe(*EVERYTHING, allow=(), options=options)
    expect.tcp_refused(four)
    expect.tcp_refused(six)
    expect.name_refused(name)
    attack.assert_silent()


BROKEN = [
    ("an unknown key", "egres:\n  - {action: allow, target: a.test}\n", "egres"),
    ("an unknown key of a rule", "egress:\n  - {action: allow, target: a.test, port: 443}\n", "port"),
    ("an unknown default", "defaultAction: block\n", "block"),
    ("an unknown action", "egress:\n  - {action: permit, target: a.test}\n", "permit"),
    ("no action", "egress:\n  - {target: a.test}\n", "action"),
    ("no target", "egress:\n  - {action: allow}\n", "target"),
    ("an invalid pattern", "egress:\n  - {action: allow, target: a..test}\n", "a..test"),
    ("a star", "egress:\n  - {action: allow, target: '*'}\n", "'*'"),
    ("a broad wildcard", "egress:\n  - {action: allow, target: '*.com'}\n", "*.com"),
    ("a prefix over 32", "egress:\n  - {action: allow, target: 10.0.0.0/33}\n", "10.0.0.0/33"),
    ("a port of 0", "egress:\n  - {action: allow, target: a.test, ports: [0]}\n", "0"),
    ("a port over 65535", "egress:\n  - {action: allow, target: a.test, ports: [70000]}\n", "70000"),
    ("a key twice", "defaultAction: deny\ndefaultAction: allow\n", "defaultAction"),
    ("a list where a map belongs", "- a.test\n", ""),
    ("an open bracket", "egress: [{action: allow\n", ""),
    ("a tab as indent", "egress:\n\t- {action: allow, target: a.test}\n", ""),
    ("two documents", "egress: []\n---\ndefaultAction: allow\n", ""),
    ("JSON with a byte behind it", '{"defaultAction": "deny"} x', ""),
    ("bytes that are no UTF-8", b"egress:\n  - {action: allow, target: \xff.test}\n", ""),
    ("a zero byte", b"egress: []\0\ndefaultAction: allow\n", ""),
    ("an unknown profile", "extends: [no-such-profile]\n", "no-such-profile"),
    ("itself", "extends: [policy.yaml]\n", ""),
    ("a number as target", "egress:\n  - {action: allow, target: 42}\n", "42"),
]


@pytest.mark.parametrize("what, text, mentions", BROKEN, ids=[w for w, _, _ in BROKEN])
def test_H2_a_policy_with_a_fault_starts_nothing_and_says_where(attack, world, what, text, mentions):
    cwd = world.workdir()
    (cwd / "policy.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = attack.run("touch", "started", allow=(), options=("--policy", "policy.yaml"), cwd=cwd)
    assert done.code == 2, done
    assert "policy.yaml" in done.messages and mentions in done.messages, done
    assert not (cwd / "started").exists()
    attack.assert_silent()


def test_H2_every_fault_is_reported_with_its_line(world):
    cwd = world.workdir()
    (cwd / "policy.yaml").write_text("egress:\n  - {action: allow, target: a..test}\n"
                                     "  - {action: permit, target: b.test}\n"
                                     "  - {action: allow, target: c.test, ports: [0]}\n")
    done = world.run("true", options=("--policy", "policy.yaml"), cwd=cwd)
    assert done.code == 2
    for line in (2, 3, 4):
        assert f"policy.yaml:{line}:" in done.messages, done


def test_H2_a_policy_that_is_missing_or_unreadable_starts_nothing(world, user):
    cwd = world.workdir(user)
    for name in ("missing.yaml", "."):
        done = world.run("touch", "started", options=("--policy", name), cwd=cwd, user=user)
        assert done.code in (2, 125) and name in done.messages, done
    assert not (cwd / "started").exists()


MISSING = [
    ("a part of /proc is masked", MASKED_PROC, "/proc"),
]


@pytest.mark.parametrize("what, mounts, mentions", MISSING, ids=[m[0] for m in MISSING])
def test_H3_without_what_it_needs_nothing_starts(world, user, what, mounts, mentions):
    cwd = world.workdir(user)
    done = world.run("touch", "started", user=user, cwd=cwd, mounts=mounts)
    assert done.code == 125, done
    assert mentions in done.messages, done
    assert not (cwd / "started").exists()


def test_H3_without_user_namespaces_nothing_starts(world):
    cwd = world.workdir("weir-test")
    argv = world.run_args(("touch", "started"), (), (), (), None)
    done = world.command("unshare", "-Ur", "sh", "-c",
                         'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh", world.weir_path, *argv,
                         user="weir-test", cwd=cwd)
    assert done.code == 125 and "user.max_user_namespaces is 0" in done.messages, done
    assert not (cwd / "started").exists()


def test_H3_inside_a_sandbox_of_its_own_weir_says_why_it_cannot_start(world, user):
    """No nested sandbox: an error, not a command without a filter."""
    done = world.run(world.weir_path, "run", "--", "touch", "started", user=user)
    assert done.code == 125, done


def test_H4_the_command_starts_after_the_filter_stands(world, user):
    """Its first act is refused already; there is no first moment that is open."""
    script = "import socket, sys\ntry: socket.create_connection(('93.9.9.9', 7007), 1)\nexcept OSError as e: print(e)\n"
    with world.capture() as capture:
        for _ in range(5):
            done = world.run("/usr/bin/python3", "-IS", "-c", script, user=user)
            assert "refused" in done.text, done
        assert capture.count() == 0


def test_H5_addresses_known_from_before_are_not_open(attack, world, site):
    """As with a cache that was filled earlier: the address itself proves nothing."""
    world.command("curl", "-sS", f"http://{site.v4}/")
    expect.tcp_refused(attack.probe(["tcp", site.v4, 443], allow=(f"{site.name}:443",)))
    assert attack.packets == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGHUP],
                         ids=lambda n: n.name)
def test_H12_killed_weir_leaves_nothing(world, user, number):
    with world.run_start("sh", "-c", "trap '' HUP TERM INT; echo up; sleep 60 & sleep 60", user=user) as run:
        assert run.line() == "up"
        run.signal(number)
        if number == signal.SIGHUP:  # passed on to the command, which ignores it here
            run.signal(signal.SIGKILL)
        assert finish(run).code < 0
    assert world.leftovers() == []


def settled(world, looks, count=None):
    """The processes, once so many looks 50 ms apart have shown the same ones, @count of them."""
    seen = []

    def are_the_same():
        seen.append(sorted(world.processes()))
        return len(seen) >= looks and all(pids == seen[-1] for pids in seen[-looks:]) and count in (None, len(seen[-1]))
    wait_for(are_the_same, step=0.05)
    return seen[-1]


def test_H12_whatever_process_of_it_is_killed_the_rest_goes_too(world, user):
    with world.run_start("sh", "-c", "echo up; exec sleep 60", user=user) as run:
        assert run.line() == "up"
        count = len(settled(world, looks=10))
    messages = ""
    for victim in range(count):
        with world.run_start("sh", "-c", "echo up; exec sleep 60", user=user) as run:
            assert run.line() == "up"
            pids = settled(world, looks=2, count=count)
            world.kill(pids[victim])
            done = finish(run)
            assert done.code != 0, done
            messages += done.messages
        assert world.leftovers() == [], f"after killing process {victim} of {count}"
    assert "the engine was killed by signal 9; the sandbox is closed" in messages


def test_H12_json_answers_survive_a_crowd(world):
    """Many sandboxes at once end as cleanly as one."""
    runs = [world.run_start("/usr/bin/python3", "-IS", world.tools / "probe.pyc") for _ in range(8)]
    for run in runs:
        done = finish(run, json.dumps([["tcp", "93.9.9.9", 443]]).encode())
        assert json.loads(done.out)["result"] == "refused", done
    assert world.leftovers() == []
