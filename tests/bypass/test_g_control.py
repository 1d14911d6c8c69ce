# SPDX-License-Identifier: Apache-2.0
"""G: the sandbox tries to change what guards it."""
import os
import signal
import time

import pytest

from world import expect
from world.run import finish

POLICY = "egress:\n  - {action: allow, target: api.ok.test, ports: [443]}\n"


def test_G1_only_dns_and_relay_listen_and_no_socket_of_weirs_is_seen(attack, user):
    done = attack.run("cat", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/unix", user=user)
    ports = {int(line.split()[1].rsplit(":", 1)[1], 16) for line in done.text.splitlines()
             if len(line.split()) > 4 and line.split()[3] == "0A"}
    assert ports <= {53, 1021}, done
    assert "weir" not in done.text


def test_G1_environment_and_processes_show_nothing_of_weirs(attack, user):
    env = attack.run("env", user=user)
    assert not [line for line in env.text.splitlines() if line.upper().startswith("WEIR")], env
    names = attack.run("sh", "-c", "cat /proc/[0-9]*/comm; ls -d /proc/[0-9]*", user=user)
    assert "bwrap" not in names.text.split() and names.text.count("/proc/") <= 4, names


ATTEMPTS = [
    ("write", "echo 'egress: [{action: allow, target: evil.test}]' > policy.yaml"),
    ("append", "echo '  - {action: allow, target: evil.test}' >> policy.yaml"),
    ("remove", "rm -f policy.yaml"),
    ("rename over", "echo x > other && mv -f other policy.yaml"),
    ("rename away", "mv policy.yaml gone"),
    ("truncate", "truncate -s 0 policy.yaml"),
    ("make writable", "chmod 666 policy.yaml && echo x > policy.yaml"),
    ("through a link", "ln -s policy.yaml l && echo x > l"),
    ("through a hard link", "ln policy.yaml l && echo x > l"),
    ("through /proc", "echo x > /proc/self/cwd/policy.yaml"),
    ("unmount", "umount policy.yaml; umount -l policy.yaml; echo x > policy.yaml"),
]


@pytest.mark.parametrize("what, script", ATTEMPTS, ids=[w for w, _ in ATTEMPTS])
def test_G2_the_policy_in_a_writable_directory_stays_as_it_is(attack, world, user, what, script):
    cwd = world.workdir(user)
    policy = cwd / "policy.yaml"
    policy.write_text(POLICY)
    os.chown(policy, cwd.stat().st_uid, cwd.stat().st_gid)
    done = attack.run("sh", "-c", script + "; touch worked; true", allow=(), options=("--policy", "policy.yaml"),
                      user=user, cwd=cwd)
    assert done.code == 0, done
    assert (cwd / "worked").exists()
    assert policy.read_text() == POLICY


@pytest.mark.parametrize("what, script", [
    ("its directory is replaced", "mv conf gone && mkdir conf && echo x > conf/policy.yaml"),
    ("its directory's parent is replaced", "mv deep gone && mkdir -p deep/conf && echo x > deep/conf/policy.yaml"),
])
def test_G2_the_policy_below_a_directory_stays_where_it_is(attack, world, user, what, script):
    cwd = world.workdir(user)
    folder = cwd / ("deep/conf" if "deep" in script else "conf")
    folder.mkdir(parents=True)
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    for path in (cwd / "deep", folder, policy):
        if path.exists():
            os.chown(path, cwd.stat().st_uid, cwd.stat().st_gid)
    attack.run("sh", "-c", script + "; true", allow=(), options=("--policy", policy.relative_to(cwd)),
               user=user, cwd=cwd)
    assert policy.read_text() == POLICY


def test_G2_what_a_policy_extends_stays_as_it_is(attack, world, user):
    cwd = world.workdir(user)
    (cwd / "policy.yaml").write_text("extends: [base.yaml]\n" + POLICY)
    (cwd / "base.yaml").write_text(POLICY)
    for name in ("policy.yaml", "base.yaml"):
        os.chown(cwd / name, cwd.stat().st_uid, cwd.stat().st_gid)
    done = attack.run("sh", "-c", "echo x > base.yaml; true", allow=(), options=("--policy", "policy.yaml"),
                      user=user, cwd=cwd)
    assert done.code == 0, done
    assert (cwd / "base.yaml").read_text() == POLICY


TAMPERING = ["nft flush ruleset", "nft list ruleset", "nft delete table inet weir", "iptables -t nat -F",
             "ip link set lo down", "sysctl -w net.ipv4.ip_forward=1", "sysctl -w net.ipv4.conf.all.route_localnet=1",
             "sysctl -w kernel.core_pattern=|/tmp/x", "conntrack -F", "ipset flush"]


@pytest.mark.parametrize("command", TAMPERING)
def test_G3_the_rules_cannot_be_touched(attack, user, command):
    done = attack.run("sh", "-c", f"command -v {command.split()[0]} >/dev/null || exit 9; {command}", user=user)
    assert done.code != 0 or (command == "nft list ruleset" and done.text == ""), done
    expect.tcp_refused(attack.probe(["tcp", "93.9.9.9", 443], user=user))
    attack.assert_silent()


@pytest.mark.parametrize("path", ["/proc/sys/kernel/core_pattern", "/proc/sys/net/ipv4/ip_forward",
                                  "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/kernel/modprobe",
                                  "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"])
def test_G3_kernel_settings_cannot_be_written(attack, user, path):
    before = open(path, encoding="ascii").read() if os.access(path, os.R_OK) and "sysrq" not in path else None
    answer = attack.probe(["write", path, "" if "sysrq" in path else "0 0"], user=user)
    assert answer.result in ("EACCES", "EPERM", "EROFS", "ENOENT", "EINVAL"), dict(answer)
    if before is not None:
        assert open(path, encoding="ascii").read() == before


def test_G3_no_process_of_the_host_can_be_signalled(attack, world, user):
    with world.start(["sleep", "30"], user=user) as victim:
        answer = attack.probe(["kill", victim.pid, 9], user=user)
        assert answer.result == "ESRCH", dict(answer)
        assert victim.process.poll() is None


FLOW = """
import socket, sys, time
def dial(what, port=443):
    try:
        socket.create_connection(('api.ok.test', port), 1).close()
        print(what, 'ok', flush=True)
    except OSError as e:
        print(what, e, flush=True)
dial('before')
sys.stdin.readline()
dial('after')
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP],
                         ids=lambda n: n.name)
@pytest.mark.parametrize("which", ["engine", "control"])
def test_G5_without_its_guard_the_sandbox_reaches_nothing(world, names, user, which, number):
    """Killed, it ends the sandbox; stopped, nothing more gets out."""
    if which == "control" and number in (signal.SIGTERM, signal.SIGSTOP):
        pytest.skip("control passes SIGTERM on and may be stopped: see test_run_signals.py")
    with world.run_start("/usr/bin/python3", "-c", FLOW, allow=("api.ok.test:443",), user=user) as run:
        assert run.line() == "before ok"
        control, engine = world.guards(run.pid)
        os.kill(engine if which == "engine" else control, number)
        time.sleep(0.05)
        with world.capture() as capture:
            if number == signal.SIGSTOP:
                run.say("\n")
                time.sleep(0.5)
                assert capture.count() == 0
                os.kill(engine, signal.SIGCONT)
                finish(run)
            else:
                done = finish(run, timeout=5)
                assert b"after ok" not in done.out
                assert done.code == (125 if which == "engine" else -number), done
                assert capture.count(lambda p: p.flags & 2) == 0
    assert world.leftovers() == []
