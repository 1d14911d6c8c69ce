# SPDX-License-Identifier: Apache-2.0
"""What is asked of a cgroup before it is guarded, with real ones."""
import os
import subprocess

import pytest

import test_filter_shared as shared
from world.sidecar import wait_for
from world.threads import LEADERLESS, has_no_leader
from test_host import ALLOWED, REFUSED, WEB, HostWorld, STEPS


@pytest.fixture(name="world")
def fixture_world():
    world = HostWorld()
    yield world
    world.close()


def test_a_cgroup_is_found_by_its_directory_and_by_its_name(world):
    cgroup = world.cgroup("a")
    _, number, level = cgroup.who.split(":")
    name = "/" + str(cgroup.path.relative_to(cgroup.root))
    for where in (str(cgroup.path), name, f"{cgroup.path}/../a/."):
        assert world.driver.ok(f"cgroup {where}") == [number, level, str(cgroup.path)]
    os.symlink(cgroup.path, f"/tmp/weir-test-{os.getpid()}")
    try:
        assert world.driver.ask(f"cgroup /tmp/weir-test-{os.getpid()}").startswith("cannot find")
    finally:
        os.unlink(f"/tmp/weir-test-{os.getpid()}")


@pytest.mark.parametrize("where", ["/none", "/", "relative", "/../../etc", "/cgroup.procs"])
def test_what_is_no_cgroup_is_refused(world, where):
    assert "cgroup" in str(world.driver.ask(f"cgroup {where}"))
    assert not isinstance(world.driver.ask(f"cgroup {where}"), list)


def test_a_cgroup_of_roots_may_be_guarded(world):
    cgroup, _ = world.member("a")
    world.driver.ok(f"cgroupcheck {cgroup.path}")


def test_a_process_in_another_network_is_found(world):
    cgroup, _ = world.member("a")
    inner = cgroup.below("inner")
    with subprocess.Popen(["unshare", "-n", "sh", "-c", 'echo $$ > "$0/cgroup.procs"; echo; exec sleep 99', inner.path],
                          stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        answer = world.driver.ask(f"cgroupcheck {cgroup.path}")
        other.kill()
    assert f"process {other.pid} " in answer and f"--netns {other.pid}" in answer


# Who lives in another network: all of it but a main thread that has ended; one thread of several.
HIDDEN = {"main thread has ended": "unshare(); goes_on(stay)",
          "one thread": "threading.Thread(target=lambda: (unshare(), stay())).start(); stay()"}


@pytest.mark.parametrize("way", HIDDEN)
def test_a_thread_in_another_network_is_found(world, way):
    cgroup, _ = world.member("a")
    world.driver.ok(f"cgroupcheck {cgroup.path}")
    program = LEADERLESS + f"""
import os, sys, time
def unshare():
    assert libc.unshare(0x40000000) == 0
    print(flush=True)
def stay():
    time.sleep(99)
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
{HIDDEN[way]}
"""
    with subprocess.Popen(["/usr/bin/python3", "-ISc", program, cgroup.path], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        if way != "one thread":
            wait_for(lambda: has_no_leader(other.pid))
        answer = str(world.driver.ask(f"cgroupcheck {cgroup.path}"))
        other.kill()
    assert f"process {other.pid} " in answer and "another network namespace" in answer


# The socket is everybody's, of one thread that has descriptors of its own, or of who goes on after the main thread.
HOLDERS = {"main thread has ended": "hold(); goes_on(stay)",
           "descriptors of its own": "threading.Thread(target=lambda: (libc.unshare(0x400), hold(), stay())).start(); stay()"}


@pytest.mark.parametrize("way", HOLDERS)
def test_sockets_of_every_thread_are_found(world, way):
    cgroup = world.cgroup("a")
    program = LEADERLESS + f"""
import socket, sys, time
kept = []
def hold():
    for family in (socket.AF_INET, socket.AF_INET6):
        kept.append(socket.socket(family, socket.SOCK_DGRAM))
        kept[-1].connect(("127.0.0.1" if family == socket.AF_INET else "::1", 9))
    kept.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300))
    print(flush=True)
def stay():
    time.sleep(99)
{HOLDERS[way]}
"""
    with subprocess.Popen([*world.enter(), "/usr/bin/python3", "-ISc", program], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        if way.startswith("main"):
            wait_for(lambda: has_no_leader(other.pid))
        (cgroup.path / "cgroup.procs").write_text(str(other.pid), encoding="ascii")
        answer = world.driver.ok(f"cgroupstrays {cgroup.path}")
        other.kill()
    assert answer[:4] == ["known", "2", "1", str(other.pid)]


@pytest.mark.parametrize("uid,gid,mode", [(1000, 0, 0o644), (0, 1000, 0o664), (0, 0, 0o666)])
def test_a_cgroup_that_can_be_left_is_refused(world, uid, gid, mode):
    """Who may write the file of a directory above may move to it, and to a sibling whose file is his."""
    cgroup = world.cgroup("parent").below("a")
    above = cgroup.path.parent / "cgroup.procs"
    own = cgroup.path / "cgroup.procs"
    os.chown(own, uid, gid)
    world.driver.ok(f"cgroupcheck {cgroup.path}")
    os.chown(above, uid, gid)
    above.chmod(mode)
    assert "could leave" in world.driver.ask(f"cgroupcheck {cgroup.path}")
    if uid:  # and so it is
        app = world.start(uid, cgroup)
        world.attach(1, cgroup, WEB)
        assert app.tcp(shared.OTHER, 443) == REFUSED
        subprocess.run(["setpriv", f"--reuid={uid}", "--clear-groups", "sh", "-c",
                        f'echo {app.process.pid} > "{above}"'], check=True)
        assert app.tcp(shared.OTHER, 443) == "0"


def test_sockets_that_were_made_before_are_found(world):
    """They go on as they were: a socket keeps the cgroup in which it was made."""
    cgroup = world.cgroup("a")
    world.attach(1, cgroup, WEB)
    app = shared.App(*world.enter(), "/usr/bin/python3", "-c", STEPS + shared.APP_PROGRAM, "0")
    world.all.append(app)
    for name, kind, addr in (("tcp", "tcp", shared.OTHER), ("udp6", "udp6", shared.OTHER6)):
        app.open(name, kind)
        assert app.dial(name, addr, 443) == "0"
    assert world.driver.ok(f"cgroupstrays {cgroup.path}")[:3] == ["known", "0", "0"]
    (cgroup.path / "cgroup.procs").write_text(str(app.process.pid), encoding="ascii")
    assert world.driver.ok(f"cgroupstrays {cgroup.path}") == ["known", "2", "1", str(app.process.pid)]
    assert app.say("tcp", "on") == "0" and app.hear("tcp") == "on"
    assert app.tcp(shared.OTHER, 443) == REFUSED
    for name in ("tcp", "udp6"):
        app.close_(name)
    app.open("new", "tcp")
    assert app.dial("new", ALLOWED, 443) == "0"
    assert world.driver.ok(f"cgroupstrays {cgroup.path}")[:3] == ["known", "0", "0"]
