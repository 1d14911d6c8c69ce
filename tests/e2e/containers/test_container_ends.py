# SPDX-License-Identifier: Apache-2.0
"""weir container run: both containers go together, whoever dies first; nothing is left behind."""
import contextlib
import functools
import os
import pathlib
import pty
import signal
import subprocess
import time

import pytest

from world import expect
from world.daemon import Daemon
from world.engine_api import KINDS, ApiEngine
from world.netns import NetNs
from world.sidecar import wait_for

STRANGER = "93.9.9.9"
SLEEP = ("--", "/bin/sleep", "600")


@pytest.fixture(scope="module")
def engines(world):
    """The engine of a kind, started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        @functools.cache
        def started(kind):
            if not KINDS[kind].client_programs():
                pytest.skip(f"no {kind} here")
            return stack.enter_context(ApiEngine(world, kind))
        yield started


@pytest.fixture(params=KINDS)
def engine(engines, request):
    return engines(request.param)


@pytest.fixture(scope="module")
def docker_engine(engines):
    return engines("docker")


def watchers_of(pid):
    """The children of a run: the one that removes its containers."""
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def pid_of(engine, name):
    return int(engine.engine("inspect", "--format", "{{.State.Pid}}", name))


@pytest.mark.parametrize("part", ["the app", "the guard", "weir", "the watcher", "the program that reads --info-fd"])
def test_whoever_is_killed_nothing_is_left(engine, part):
    with engine.running(*SLEEP) as (process, info):
        name = info["id"]
        app = wait_for(lambda: pid_of(engine, name))  # 0: it is told of before it starts
        wait_for(lambda: pathlib.Path(f"/proc/{app}/comm").read_text() == "sleep\n")
        pids = {"the app": app, "the guard": pid_of(engine, f"{name}-weir"), "weir": process.pid,
                "the watcher": watchers_of(process.pid)[0]}
        if part == "the program that reads --info-fd":
            process.info.close()
        else:
            os.kill(pids[part], signal.SIGKILL)
        if part == "the watcher":
            wait_for(lambda: watchers_of(process.pid) not in ([], [pids[part]]))
            assert process.poll() is None and len(engine.containers()) == 2
            process.kill()
        code = {"the app": 137, "the guard": 125, "the program that reads --info-fd": 129}.get(part, -9)
        assert process.wait(60) == code
        if part == "the guard":
            assert "has ended" in process.stderr.read().decode()
        engine.nothing_left()
        for pid in pids.values():
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def test_the_run_and_its_watcher_killed_at_once(engine, site):
    """The guard ends by itself, the app reaches nothing any more, and the next run removes what is left."""
    with engine.running("--allow", f"{site.name}:7007", *SLEEP) as (process, info):
        app = info["id"]
        assert engine.exec_probe(app, ["connect", site.name, 7007]).result == "ok"
        watcher = watchers_of(process.pid)[0]
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(watcher, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        wait_for(lambda: engine.engine("inspect", "--format", "{{.State.Running}}", f"{app}-weir") == "false", step=0.1)
        assert engine.exec_probe(app, ["connect", site.name, 7007], ["tcp", site.v4, 7007])[1].result != "ok"
        done = engine.run("--", "/bin/true")
        assert done.code == 0 and all(f"'{name}'" in done.messages for name in (app, f"{app}-weir")), done
    assert not engine.containers()


def watches(weir, process):
    """Has weir, or a child of its, a pidfd of the process?"""
    for pid in (weir, *watchers_of(weir)):
        with contextlib.suppress(OSError):  # descriptors come and go
            if any(f"\nPid:\t{process}\n" in info.read_text() for info in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir()):
                return True
    return False


def test_an_end_that_podman_hears_nothing_of_is_no_success(engines):
    """The monitor is killed, and what it watches: podman says after 20 seconds that all went well."""
    engine = engines("podman")
    with engine.running(*SLEEP) as (process, info):
        init = wait_for(lambda: pid_of(engine, info["id"]))
        wait_for(lambda: pathlib.Path(f"/proc/{init}/comm").read_text() == "sleep\n")
        wait_for(lambda: watches(process.pid, init))
        for pid in (int(pathlib.Path(f"/proc/{init}/stat").read_text().rsplit(")", 1)[1].split()[1]), init):
            os.kill(pid, signal.SIGKILL)
        assert process.wait(60) == 125 and "does not know how" in process.stderr.read().decode()


def test_an_engine_whose_socket_is_away_has_not_removed_them(docker_engine):
    """The socket goes and comes again, as when the engine is started again."""
    engine = docker_engine
    away = engine.socket.with_suffix(".away")
    with engine.running(*SLEEP) as (process, info):
        watcher = watchers_of(process.pid)[0]
        engine.socket.rename(away)
        process.kill()
        process.wait(60)
        try:
            # A watcher that gives up does so at once; one that doesn't has to be seen trying.
            end = time.monotonic() + 1
            while os.path.exists(f"/proc/{watcher}") and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            away.rename(engine.socket)


def test_a_container_that_the_run_did_not_make_stays(engine):
    """One that has the name, or the guard's, or an id that begins with the name; another run's, too."""
    with engine.running("--id", "first", *SLEEP):
        strangers = [engine.engine("create", "--name", name, "app:test", "/bin/true") for name in ("taken", "guarded-weir", "other")]
        made = set(engine.containers())
        assert len(made) == 5
        for name in ("first", "taken", "guarded"):
            done = engine.run("--id", name, "--", "/bin/true")
            assert done.code == 125 and "already in use" in done.messages, done
        done = engine.run("--id", strangers[2][:12], "--", "/bin/true", image="missing:test")
        assert done.code == 125 and "missing:test" in done.messages, done
        assert set(engine.containers()) == made
        engine.engine("rm", *strangers)


def test_a_container_of_an_image_that_was_made_of_a_sandbox_stays(engine):
    """Such an image has the sandbox's labels: neither this run's watcher nor the next run removes the container."""
    process = engine.start("--id", "first", *SLEEP)

    def is_there():
        assert process.poll() is None, process.communicate()
        return "first" in engine.engine("ps", "--format", "{{.Names}}").split()
    try:
        wait_for(is_there, step=0.1)
        engine.engine("commit", "first", "kept:test")
        engine.engine("run", "--detach", "--name", "kept", "--volume", "/usr:/usr:ro", "kept:test", "/bin/sleep", "600")
    finally:
        process.kill()
        process.communicate(timeout=60)
    names = lambda: engine.engine("ps", "-a", "--format", "{{.Names}}").split()
    wait_for(lambda: not {"first", "first-weir"} & set(names()), step=0.1)
    assert engine.run("--", "/bin/true").code == 0
    assert names() == ["kept"]
    engine.engine("rm", "-f", "kept")


@pytest.mark.parametrize("ended", ["the run", "the run and its watcher"])
def test_renamed_containers_are_removed(engine, ended):
    with engine.running(*SLEEP) as (process, info):
        for name in (info["id"], f"{info['id']}-weir"):
            engine.engine("rename", name, f"new-{name}")
        if ended == "the run and its watcher":
            os.kill(process.pid, signal.SIGSTOP)
            os.kill(watchers_of(process.pid)[0], signal.SIGKILL)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(60)
            wait_for(lambda: engine.engine("inspect", "--format", "{{.State.Running}}", info["guardContainer"]) == "false", step=0.1)
            assert engine.run("--", "/bin/true").code == 0
    engine.nothing_left()


def test_a_guard_that_is_paused_is_no_reason_to_remove_its_app(docker_engine):
    engine = docker_engine
    with engine.running(*SLEEP) as (process, info):
        engine.engine("pause", info["guardContainer"])
        assert engine.run("--", "/bin/true").code == 0
        engine.engine("unpause", info["guardContainer"])
        assert process.poll() is None and len(engine.containers()) == 2


@pytest.mark.parametrize("sig, code", [(signal.SIGTERM, 3), (signal.SIGINT, 4)])
def test_a_signal_is_the_commands(docker_engine, sig, code):
    script = "trap 'exit 3' TERM; trap 'exit 4' INT; echo ready; while :; do sleep 0.1; done"
    process = docker_engine.start("--", "/bin/sh", "-c", script)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(sig)
    assert process.wait(60) == code, process.stderr.read()
    docker_engine.nothing_left()


def test_output_that_nobody_reads_ends_the_command(docker_engine):
    process = docker_engine.start("--", "/bin/sh", "-c", "while :; do echo line; done")
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(60) == 141
    docker_engine.nothing_left()


def test_a_terminal(engine):
    """Its size, its keys, Ctrl-C, and the exit status; this side's terminal is as it was."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "rows", "41", "cols", "97"], stdin=theirs, check=True)
    before = subprocess.run(["stty", "-a"], stdin=theirs, capture_output=True, check=True).stdout
    script = "trap 'exit 9' INT; stty size; read x; echo got-$x; while :; do sleep 0.1; done"
    process = engine.start("--interactive", "--tty", "--", "/bin/sh", "-c", script, stdin=theirs, stdout=theirs, stderr=theirs)
    seen = b""

    def until(text):
        nonlocal seen
        while text not in seen:
            seen += os.read(ours, 1000)
    until(b"\n")
    os.write(ours, b"key\r")
    until(b"got-key")
    os.write(ours, b"\x03")
    assert process.wait(60) == 9, seen
    assert b"41 97" in seen or b"0 0" in seen, seen
    assert subprocess.run(["stty", "-a"], stdin=theirs, capture_output=True, check=True).stdout == before
    os.close(ours)
    os.close(theirs)
    engine.nothing_left()


def test_several_at_once(docker_engine, site, denied):
    engine = docker_engine
    probe = f"getent ahosts {site.name} >/dev/null && ! getent ahosts {denied.name} && echo held"
    runs = [engine.start("--allow", site.name, "--", "/bin/sh", "-c", probe) for _ in range(5)]
    for process in runs:
        out, err = process.communicate(timeout=200)
        assert (process.returncode, out) == (0, b"held\n"), err
    engine.nothing_left()


@pytest.fixture(scope="module")
def daemon(docker_engine):
    daemon = Daemon(docker_engine.host, folder=docker_engine.folder)
    daemon.ready()
    yield daemon
    daemon.kill()


def test_the_daemon_guards_from_outside(docker_engine, daemon, site, denied):
    engine = docker_engine
    with engine.running("--socket", daemon.socket, "--allow", f"{site.name}:7007", *SLEEP, guard="daemon") as (_, info):
        assert info["guard"] == "daemon" and info["api"] == f"unix://{daemon.socket}" and "token" not in info
        assert info["id"] in daemon.names()
        good, lookup, bad = engine.exec_probe(info["id"], ["connect", site.name, 7007], ["dns", denied.name], ["tcp", STRANGER, 443])
        assert good.result == "ok" and lookup.result == "NXDOMAIN"
        expect.tcp_refused(bad)
        found = engine.engine.inspect(info["guardContainer"])
        assert not found["HostConfig"]["CapAdd"] and found["HostConfig"]["CapDrop"] == ["ALL"]
    wait_for(lambda: info["id"] not in daemon.names())


def test_a_sandbox_of_the_daemons_is_not_taken_over(docker_engine, daemon, site):
    """The name is another sandbox's: the run fails, and that one keeps its policy. When that one has ended, the name can be had at once."""
    engine = docker_engine
    options = ("--socket", daemon.socket, "--id", "same")
    other = NetNs()
    done = daemon.weir("attach", "--id", "same", "--netns", other.path, "--allow", site.name)
    assert done.code == 0, done
    before = daemon.get("/sandboxes/same/policy").json()
    done = engine.run(*options, "--", "/bin/echo", "ran", guard="daemon")
    assert (done.code, done.out) == (125, b"") and "'same' already" in done.messages, done
    assert daemon.get("/sandboxes/same/policy").json() == before and before["policy"]["egress"][0]["target"] == site.name
    daemon.weir("detach", "same")
    for _ in range(3):
        done = engine.run(*options, "--", "/bin/echo", "ran", guard="daemon")
        assert (done.code, done.out) == (0, b"ran\n"), done


def test_a_name_is_waited_for_whose_sandbox_is_about_to_end(docker_engine, daemon):
    """The process by which it was attached has ended; another one is still there for two seconds."""
    other = NetNs()
    first = subprocess.Popen(other.command("sleep", "600"))
    assert daemon.weir("attach", "--id", "same", "--netns", first.pid).code == 0
    with subprocess.Popen(other.command("sleep", "2")):
        first.kill()
        first.wait()
        done = docker_engine.run("--socket", daemon.socket, "--id", "same", "--", "/bin/echo", "ran", guard="daemon")
    assert (done.code, done.out) == (0, b"ran\n"), done
    other.close()


@pytest.mark.parametrize("name, program, becomes", [("guest", "runsc-sandbox", None), ("late", "wait", "runsc-sandbox")])
def test_a_runtime_that_is_another_kernels_is_refused(docker_engine, name, program, becomes):
    """The guard's first process is called as gVisor's, at once or later; what is looked at is the name."""
    engine = docker_engine
    engine.waiting_image(name, program, becomes)
    done = engine.run("--weir-image", f"{name}:test", "--", "/bin/true")
    assert done.code == 125 and "runsc-sandbox" in done.messages and "runc" in done.messages, done
    engine.nothing_left()
