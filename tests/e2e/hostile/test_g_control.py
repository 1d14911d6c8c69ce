# SPDX-License-Identifier: Apache-2.0
"""G: the sandbox tries to change what guards it."""
import json
import os
import pathlib
import signal
import socket
import time

import pytest

from world import expect
from world.run import finish, read_answers
from world.sidecar import wait_for

POLICY = "egress:\n  - {action: allow, target: api.ok.test, ports: [443]}\n"


def test_G1_only_dns_and_relay_listen_and_no_socket_of_weirs_is_seen(attack, user):
    done = attack.run("cat", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/unix", user=user)
    ports = {int(line.split()[1].rsplit(":", 1)[1], 16) for line in done.text.splitlines()
             if len(line.split()) > 4 and line.split()[3] == "0A"}
    assert ports <= {53, 1021}, done
    assert "weir" not in done.text


def test_G1_environment_and_processes_show_nothing_of_weirs(attack, user):
    env = attack.run("env", user=user)
    named = [line for line in env.text.splitlines() if line.upper().startswith("WEIR")]
    assert [line.split("=")[0] for line in named] == ["WEIR_SANDBOX"], env
    names = attack.run("sh", "-c", "cat /proc/[0-9]*/comm; ls -d /proc/[0-9]*", user=user)
    assert names.text.split()[0] == "weir-init" and names.text.count("/proc/") <= 4, names


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


class Named:
    """A file of a run's, the run that reads it, and where it may stand."""

    def __init__(self, world, user, what):
        self.world, self.user, self.what = world, user, what
        self.cwd, self.home, self.outside = (world.workdir(user) for _ in range(3))
        self.mounts, self.options, text = (), (), POLICY
        if what == "policy":
            self.path, self.options = self.cwd / "p.yaml", ("--policy", "p.yaml")
        elif what == "extends":
            self.path, self.options = self.cwd / "p.yaml", ("--policy", self.cwd / "top.yaml")
            (self.cwd / "top.yaml").write_text("extends: [p.yaml]\n")
        else:
            folder = self.home / ".config" / "weir"
            (folder / "profiles").mkdir(parents=True)
            self.path = folder / ("profiles/p.yaml" if what == "profile" else "config.yaml")
            self.options = ("--rw", self.home / ".config", *(("--profile", "p") if what == "profile" else ()))
            text = POLICY if what == "profile" else "verify: tls\n"
            if user == "root":
                self.mounts = (f"mount --bind {self.home} /root",)
                self.options = ("--rw", "/root/.config", *self.options[2:])
        self.path.write_text(text)
        self.own(self.cwd, self.home)

    def own(self, *paths):
        self.world.command("chown", "-hR", self.user, *paths)

    def run(self, attack, *script):
        return attack.run("sh", "-c", *script, allow=(), user=self.user, cwd=self.cwd, env={"HOME": str(self.home)},
                          options=self.options, mounts=self.mounts)


NAMED = ["policy", "extends", "profile", "config"]


@pytest.mark.parametrize("what", NAMED)
def test_G2_a_file_that_is_named_through_a_link_that_the_command_could_change_is_refused(attack, world, user, what):
    """The control: the same name is the file itself, or the link stands where the command can't write."""
    named = Named(world, user, what)
    assert named.run(attack, "touch worked").code == 0
    real = named.path.with_name("real.yaml")
    named.path.rename(real)
    named.path.symlink_to(real.name)
    named.own(named.cwd, named.home)
    (named.cwd / "worked").unlink()
    done = named.run(attack, "rm -f p.yaml; echo 'egress: [{action: allow, target: evil.test}]' > p.yaml; touch worked")
    assert done.code == 2 and "is a link in a directory that the command may write to" in done.messages, done
    assert not (named.cwd / "worked").exists() and named.path.is_symlink() and real.exists()


def test_G2_a_link_where_the_command_cannot_write_is_followed_and_its_file_protected(attack, world, user):
    named = Named(world, user, "policy")
    link = named.outside / "link.yaml"
    link.symlink_to(named.path)
    named.own(named.outside)
    named.options = ("--policy", link)
    done = named.run(attack, "echo x > p.yaml; rm -f p.yaml; mv p.yaml q.yaml; touch worked")
    assert done.code == 0 and (named.cwd / "worked").exists() and named.path.read_text() == POLICY, done


@pytest.mark.parametrize("what", NAMED)
def test_G2_a_file_with_another_name_in_a_writable_directory_is_refused(attack, world, user, what):
    named = Named(world, user, what)
    os.link(named.path, named.cwd / "other.yaml")
    done = named.run(attack, "echo x > other.yaml; touch worked")
    assert done.code == 2 and "has other names (hard links)" in done.messages, done
    assert not (named.cwd / "worked").exists()
    (named.cwd / "other.yaml").unlink()
    assert named.run(attack, "touch worked").code == 0


@pytest.mark.parametrize("option", [(), ("--no-config",)])
def test_G2_what_narrows_stays_as_it_is_whether_this_run_reads_it_or_not(attack, world, user, option):
    cwd = world.workdir(user)
    narrow = cwd / ".weir.yaml"
    narrow.write_text("deny: [evil.test]\n")
    os.chown(narrow, cwd.stat().st_uid, cwd.stat().st_gid)
    script = "echo x > .weir.yaml; rm -f .weir.yaml; mv .weir.yaml x; ln .weir.yaml y && echo x > y; touch worked; true"
    done = attack.run("sh", "-c", script, allow=(), options=option, user=user, cwd=cwd)
    assert done.code == 0 and (cwd / "worked").exists() and narrow.read_text() == "deny: [evil.test]\n", done
    assert narrow.stat().st_nlink == 1


TAMPERING = ["nft flush ruleset", "nft list ruleset", "nft delete table inet weir", "iptables -t nat -F",
             "ip link set lo down", "sysctl -w net.ipv4.ip_forward=1", "sysctl -w net.ipv4.conf.all.route_localnet=1",
             "sysctl -w kernel.core_pattern=|/tmp/x", "conntrack -F", "ipset flush"]


def test_G3_the_rules_cannot_be_touched(attack, world, user):
    """Each is tried, and then whether all is as before."""
    script = f"""
for line; do
    command -v ${{line%% *}} >/dev/null || continue
    said=$($line) && [ "$line $said" != "nft list ruleset " ] && echo "done: $line: $said"
done
exec /usr/bin/python3 -IS {world.tools}/probe.pyc
"""
    done = attack.run("sh", "-c", script, "sh", *TAMPERING, user=user, input=b'[["tcp", "93.9.9.9", 443]]')
    [answer] = read_answers(done, 1)
    expect.tcp_refused(answer)
    attack.assert_silent()


SETTINGS = ["/proc/sys/kernel/core_pattern", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ping_group_range",
            "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"]


def test_G3_kernel_settings_cannot_be_written(attack, user):
    def read():
        # crashes of other tests have a handler of their own for a moment
        return {path: pathlib.Path(path).read_text(encoding="ascii") for path in SETTINGS
                if os.access(path, os.R_OK) and "sysrq" not in path and "core_pattern" not in path}
    before = read()
    for path, answer in zip(SETTINGS, attack.probe(*[["write", path, "" if "sysrq" in path else "0 0"] for path in SETTINGS], user=user)):
        assert answer.result in ("EACCES", "EPERM", "EROFS", "ENOENT", "EINVAL"), (path, dict(answer))
    assert read() == before and pathlib.Path(SETTINGS[0]).read_text(encoding="ascii") != "0 0\n"


def test_G3_no_process_of_the_host_can_be_signalled(attack, world, user):
    with world.start(["sleep", "30"], user=user) as victim:
        answer = attack.probe(["kill", victim.pid, 9], user=user)
        assert answer.result == "ESRCH", dict(answer)
        assert victim.process.poll() is None


FLOW = """
import socket, sys, time
def dial(what, port=443):
    try:
        socket.create_connection(('api.ok.test', port), 50).close()
        print(what, 'ok', flush=True)
    except OSError as e:
        print(what, e, flush=True)
dial('before')
sys.stdin.readline()
dial('after')
"""


# What control does with the other signals is in test_run_signals.py.
ENDS = [("engine", signal.SIGKILL), ("engine", signal.SIGSEGV), ("engine", signal.SIGTERM),
        ("engine", signal.SIGSTOP), ("control", signal.SIGKILL), ("control", signal.SIGSEGV)]


@pytest.mark.parametrize("which, number", ENDS, ids=[f"{w}-{n.name}" for w, n in ENDS])
def test_G5_without_its_guard_the_sandbox_reaches_nothing(world, names, user, which, number):
    """Killed, it ends the sandbox; stopped, nothing more gets out."""
    with world.run_start("/usr/bin/python3", "-c", FLOW, allow=("api.ok.test:443",), user=user) as run:
        assert run.line() == "before ok"
        control, engine = world.guards(run.pid)
        with world.capture() as capture:
            os.kill(engine if which == "engine" else control, number)
            if number == signal.SIGSTOP:
                time.sleep(0.05)
                run.say("\n")
                time.sleep(0.5)
                # the end of the first connection is the kernel's, and may come now
                assert capture.count(lambda p: p.proto != "tcp" or p.flags & 2) == 0
                os.kill(engine, signal.SIGCONT)
                finish(run)
            else:
                wait_for(lambda: not world.processes())  # while the command waits for its input
                done = finish(run)
                assert b"after ok" not in done.out
                assert done.code == (125 if which == "engine" else -number), done
                assert capture.count(lambda p: p.flags & 2) == 0
    assert world.leftovers() == []


def test_G1_the_sandboxs_init_cannot_be_looked_into(attack, user):
    """It holds the channel to control. The calls are ptrace's, to attach and to seize."""
    probes = [["readlink", "/proc/1/fd/0"], ["read", "/proc/1/fd/3"], ["read", "/proc/1/environ"], ["read", "/proc/1/mem"],
              ["write", "/proc/1/mem"], ["steal", 1], ["call", 101, 16, 1, 0, 0], ["call", 101, 0x4206, 1, 0, 0]]
    for probe, answer in zip(probes, attack.probe(*probes, user=user)):
        assert answer.result in ("EACCES", "EPERM", "ENOSYS"), (probe, dict(answer))


def test_G5_the_sandboxs_init_cannot_be_killed_from_inside(attack, user):
    done = attack.run("sh", "-c", "kill -9 1; kill -TERM 1; kill -STOP 1; sleep 0.1; echo still here", user=user)
    assert done.code == 0 and "still here" in done.text, done


def test_G1_no_descriptor_of_weirs_reaches_the_command(attack):
    done = attack.run("sh", "-c", "ls /proc/$$/fd")
    assert done.text.split() == ["0", "1", "2"], done


# Working in such a place may be refused; if it isn't, it opens nothing.
ODD_PLACES = ["/", "/run", "/dev", "/proc", "/sys", "/etc", "/tmp", "/var/tmp", "/usr", "/proc/self", "/dev/shm",
              "/var",
              "/sys/fs/cgroup"]


WRITTEN = ["/proc/sys/kernel/core_pattern", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"]


@pytest.mark.parametrize("how", ["cwd", "--rw"])
@pytest.mark.parametrize("place", ODD_PLACES)
def test_G3_working_in_a_place_of_the_systems_opens_nothing(attack, world, user, place, how):
    options = ("--rw", place) if how == "--rw" else ()
    cwd = place if how == "cwd" else None
    hole = f"/run/weir-test-{os.getpid()}-{world.number()}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(hole)
        listener.listen()
        os.chmod(hole, 0o777)
        try:
            probes = [["unix", hole], ["tcp", "93.9.9.9", 443], ["dns", "evil.test"], ["new_socket", "AF_PACKET", "SOCK_RAW", 3],
                      ["setns", "/proc/1/ns/net", 0], *[["write", path, "", "a"] for path in WRITTEN]]
            done = attack.run("/usr/bin/python3", "-IS", world.tools / "probe.pyc", input=json.dumps(probes).encode(),
                              user=user, cwd=cwd, options=options)
            if done.code in (2, 125):
                assert done.out == b"", done
                return
            answers = read_answers(done, len(probes))
            assert answers[0].result != "ok", dict(answers[0])
            expect.tcp_refused(answers[1])
            expect.name_refused(answers[2])
            expect.call_refused(answers[3])
            assert answers[4].result != "ok"
            for path, answer in zip(WRITTEN, answers[5:]):
                assert answer.result in ("EACCES", "EPERM", "EROFS", "ENOENT"), (path, dict(answer))
        finally:
            os.unlink(hole)
    attack.assert_silent()


def test_G3_terminals_of_the_host_cannot_be_opened(attack, user):
    main, host = os.openpty()
    try:
        os.chmod(os.ttyname(host), 0o666)
        answer = attack.probe(["write", os.ttyname(host), "typed"], user=user)
        assert answer.result != "ok", dict(answer)
    finally:
        os.close(main)
        os.close(host)
