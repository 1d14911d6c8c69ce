# SPDX-License-Identifier: Apache-2.0
"""Whoever has taken over the engine or control says what he likes to the other processes, on their channels."""
import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import random
import select
import signal
import socket
import struct
import time

import pytest

from world import expect
from world.program import children, descendants
from world.run import finish
from world.sidecar import wait_for

PIDFD_GETFD, HEAD = 438, 16
# proto/: of all pairs, of engine and supervisor, of engine and control, of control and supervisor. Control may have more engines
# (0x309); who is whose child is not asked here where there are several.
TYPES = [n for first in (0, 0x100, 0x200, 0x300) for n in range(first, first + 0x20) if n != 0x309]
RUNNING, FAILED, ALIVE, DENIES, EVENT, SOCKET_OWNER = 2, 3, 9, 0x204, 0x208, 0x302
PANIC = 3  # event.action
libc = ctypes.CDLL(None, use_errno=True)


def channels(pid):
    """Copies of what @pid talks to the others by."""
    process, found = os.pidfd_open(pid), []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        copy = libc.syscall(PIDFD_GETFD, process, int(fd), 0)
        if copy < 0 or not os.readlink(f"/proc/self/fd/{copy}").startswith("socket:"):
            if copy >= 0:
                os.close(copy)
            continue
        s = socket.socket(fileno=copy)
        if (s.family, s.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET):
            found.append(s)
        else:
            s.close()
    os.close(process)
    return found


def message_size(daemon, pod):
    """Of one: what the engine tells control of a denial."""
    control = daemon.children()["control"]
    os.kill(control, signal.SIGSTOP)
    try:
        pod.probe(["dns", f"size{time.monotonic_ns()}.test"])  # a name that was denied before would only be counted

        def sizes():
            for s in channels(control):
                with s, contextlib.suppress(BlockingIOError):
                    yield len(s.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return wait_for(lambda: max(sizes(), default=0))
    finally:
        os.kill(control, signal.SIGCONT)


def hostile(rng, size, about=(0, 1, 1, 65535, 65536, 2**32 - 1)):
    body = rng.choice([rng.randbytes(size), b"\xff" * size, b"A" * size, bytes(size)])
    head = struct.pack("=IIIBB", rng.choice(TYPES), rng.choice(about), rng.choice([0, 2**32 - 1]),
                       rng.randrange(256), rng.randrange(256))
    return head.ljust(HEAD, b"\1") + body[HEAD:]


def say(channel, messages):
    channel.settimeout(0.5)
    for message, fds in messages:
        try:
            socket.send_fds(channel, [message], fds)
        except OSError:  # the other end has had enough, or is busy
            return


@pytest.mark.parametrize("shape", ["whole", "of any size", "with descriptors"])
def test_an_engine_that_lies(daemon, pod, site, shape):
    daemon.attach("one", pod, "--allow", site.name)
    size, rng, null = message_size(daemon, pod), random.Random(shape), os.open("/dev/null", os.O_RDONLY)
    held = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    for channel in channels(daemon.children()["engine"]):
        with channel:
            if shape == "whole":
                messages = [(hostile(rng, size), []) for _ in range(300)]
            elif shape == "of any size":
                messages = [(hostile(rng, size)[:rng.randrange(1, size)] + rng.randbytes(rng.randrange(3)), [])]
            else:
                messages = [(hostile(rng, size), [null] * rng.choice([1, 2, 30, 250])) for _ in range(3)]
            say(channel, messages)
    os.close(null)
    wait_for(daemon.healthy)
    wait_for(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= held)
    assert daemon.names() == ["one"]
    wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4])
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))
    said = [line for line in daemon.lines + daemon.errors if not line.isascii() or not line.isprintable()]
    assert not said, said


def test_a_control_that_lies(daemon, pod, site):
    """It may attach and detach, as it is asked to; not more. Its successor finds everything in order."""
    daemon.attach("one", pod, "--allow", site.name)
    size, rng, null = message_size(daemon, pod), random.Random(5), os.open("/dev/null", os.O_RDONLY)
    for _ in range(3):
        control = wait_for(lambda: daemon.children().get("control"))
        for channel in channels(control):
            with channel:
                # not of the one that there is, which it may detach
                say(channel, [(hostile(rng, size, (0, 2, 65535, 65536, 2**32 - 1)), [null] * rng.choice([0, 0, 0, 1, 2]))
                              for _ in range(200)])
        expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))
        with contextlib.suppress(ProcessLookupError):
            os.kill(control, signal.SIGKILL)
        wait_for(lambda: daemon.children().get("control", control) != control)
        wait_for(daemon.healthy)
    os.close(null)
    assert daemon.process.poll() is None


def socket_owners(pid):
    """Below @pid: a daemon's are its spawner's."""
    found = set()
    for child in children(pid):
        with contextlib.suppress(OSError):
            os.readlink(f"/proc/{child}/exe")  # one that has ended has none
            if pathlib.Path(f"/proc/{child}/comm").read_text() == "weir-sockowner\n":
                found.add(child)
        found |= socket_owners(child)
    return found


def test_a_control_that_asks_for_socket_owners_without_end_has_one(daemon, pod, site):
    daemon.attach("one", pod, "--allow", site.name)
    size, control = message_size(daemon, pod), daemon.children()["control"]
    before = wait_for(lambda: socket_owners(daemon.pid))
    os.kill(control, signal.SIGSTOP)  # it keeps each channel that it gets
    try:
        for channel in channels(control):
            with channel:
                say(channel, [(struct.pack("=I", SOCKET_OWNER).ljust(size, b"\0"), [])] * 8)
        wait_for(lambda: len(after := socket_owners(daemon.pid)) == 1 and after != before)
    finally:
        os.kill(control, signal.SIGCONT)
    wait_for(daemon.healthy)


@pytest.mark.parametrize("who", ["engine", "control"])
def test_who_lets_go_of_the_daemon_and_lives_on_is_replaced(daemon, pod, site, who):
    """Without a channel there is nothing that it could be asked, and nothing that it would do."""
    daemon.attach("one", pod, "--allow", site.name)
    old = daemon.children()[who]
    os.kill(old, signal.SIGSTOP)
    for s in channels(old):
        with s:
            s.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: daemon.children().get(who, old) != old)
    wait_for(daemon.healthy)
    assert daemon.names() == ["one"]
    wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4])
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))


def asked_by_control(channel):
    """Does a question of control's wait there? Its kinds are 0x200 and on (proto/engine_control.h)."""
    try:
        kind, = struct.unpack("=I", channel.recv(4, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except (BlockingIOError, struct.error):
        return False
    return 0x200 <= kind < 0x300


def test_an_engine_that_lets_go_of_control_alone_is_replaced(daemon, pod, site):
    """It answers the supervisor, and yet its sandboxes could get no other policy."""
    daemon.attach("one", pod, "--allow", site.name)
    engine = daemon.children()["engine"]
    os.kill(engine, signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor() as pool:
            ours = [stack.enter_context(s) for s in channels(engine)]
            asked = pool.submit(daemon.call, "GET", "/sandboxes/one/status")
            wait_for(lambda: [s for s in ours if asked_by_control(s)])[0].shutdown(socket.SHUT_RDWR)
            asked.result()
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_for(lambda: daemon.children().get("engine", engine) != engine)
    wait_for(daemon.healthy)
    wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4])
    daemon.set_policy("one", "allow other.test")
    expect.name_refused(pod.probe(["dns", site.name]))


def answer(channel, size):
    """As an engine that serves, and that has always one more sandbox to tell of."""
    kind, sandbox = struct.unpack("=II", channel.recv(size)[:8])
    if kind == DENIES:
        time.sleep(1)
        channel.send(struct.pack("=III", DENIES, sandbox + 1, 0).ljust(size, b"\0"))
    elif kind == ALIVE:
        channel.send(struct.pack("=III", ALIVE, 0, 0).ljust(size, b"\0"))


def test_an_engine_that_is_never_at_the_end_of_its_answer_is_replaced(daemon, pod, site):
    """Nobody else waits for more than one answer's time meanwhile."""
    daemon.attach("one", pod, "--allow", site.name)
    size, engine = message_size(daemon, pod), daemon.children()["engine"]
    os.kill(engine, signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor() as pool:
            ours = [stack.enter_context(s) for s in channels(engine)]
            asked, until = pool.submit(daemon.call, "GET", "/sandboxes", timeout=60), time.monotonic() + 30
            while not asked.done() and time.monotonic() < until:
                for s in select.select(ours, [], [], 0.1)[0]:
                    try:
                        answer(s, size)
                    except (OSError, struct.error):  # its other end has let go
                        ours.remove(s)
            assert asked.done()
            assert asked.result().status == 200
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine, signal.SIGCONT)
    wait_for(lambda: daemon.children().get("engine", engine) != engine)
    wait_for(daemon.healthy)
    wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4])


def test_an_engine_does_not_speak_for_a_sandbox_that_it_names_itself(daemon, pod, site):
    """Its events have a number; names are for launches that failed, and control's to give."""
    daemon.attach("one", pod, "--allow", site.name)
    size, engine = message_size(daemon, pod), daemon.children()["engine"]
    message = bytearray(struct.pack("=III", EVENT, 0, 0).ljust(HEAD, b"\0") + b"A" * (size - HEAD))
    message[HEAD + 32:HEAD + 36] = bytes(4)  # of no sandbox
    message[HEAD + 48] = PANIC
    os.kill(engine, signal.SIGSTOP)
    try:
        for channel in channels(engine):
            with channel:
                say(channel, [(bytes(message), [])])
        wait_for(lambda: [line for line in daemon.lines + daemon.errors if "AAAA" in line])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine, signal.SIGCONT)
    said = [line for line in daemon.lines + daemon.errors if "AAAA: " in line]
    assert not said, said


def test_an_engine_that_says_without_end_that_it_has_failed_says_so_once(daemon, pod, site):
    daemon.attach("one", pod, "--allow", site.name)
    size, engine = message_size(daemon, pod), daemon.children()["engine"]
    os.kill(engine, signal.SIGSTOP)
    for channel in channels(engine):
        with channel:
            say(channel, [(struct.pack("=III", FAILED, 0, 0).ljust(HEAD, b"\0") + b"x".ljust(size - HEAD, b"\0"), [])] * 500)
    wait_for(lambda: daemon.children().get("engine", engine) != engine)
    wait_for(daemon.healthy)
    assert len([line for line in daemon.errors if "the engine cannot go on" in line]) == 1, daemon.errors
    wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4])


def test_an_engine_that_has_its_sockets_wait_leaves_its_successor_able_to_serve(daemon, pod, site):
    """The flag is the socket's, which the daemon keeps for the next engine."""
    daemon.attach("one", pod, "--allow", site.name)
    engine = daemon.children()["engine"]
    process = os.pidfd_open(engine)
    os.kill(engine, signal.SIGSTOP)
    for fd in os.listdir(f"/proc/{engine}/fd"):
        copy = libc.syscall(PIDFD_GETFD, process, int(fd), 0)
        if copy < 0:
            continue
        if os.readlink(f"/proc/self/fd/{copy}").startswith("socket:"):
            os.set_blocking(copy, True)
        os.close(copy)
    os.close(process)
    os.kill(engine, signal.SIGKILL)
    wait_for(lambda: daemon.children().get("engine", engine) != engine)
    wait_for(daemon.healthy)
    successor = daemon.children()["engine"]
    for _ in range(3):
        expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))
        assert pod.probe(["dns", site.name, {"transport": "tcp"}]).get("addresses") == [site.v4]
        wait_for(lambda: pod.probe(["dns", site.name]).get("addresses") == [site.v4])
        time.sleep(1)
    assert daemon.children()["engine"] == successor


def test_an_engine_that_lets_go_of_its_run_ends_with_the_sandbox(world):
    """It lives on, and takes no part in its own end."""
    with world.run_start("sh", "-c", "echo up; exec sleep 600") as run:
        assert run.line() == "up"
        engine = world.guards(run.pid)[1]
        os.kill(engine, signal.SIGSTOP)
        for s in channels(engine):
            with s:
                s.shutdown(socket.SHUT_RDWR)
        done = finish(run)
    assert done.code == 125 and "the engine has closed its channel; the sandbox is closed" in done.messages, done
    assert world.leftovers() == []


def test_an_engine_that_is_silent_at_the_end_is_a_failure(world):
    """Nobody knows what it has refused: --fail-on-deny must not end as if that was nothing."""
    with world.run_start("sh", "-c", "echo up; read x", options=("--fail-on-deny",)) as run:
        assert run.line() == "up"
        os.kill(world.guards(run.pid)[1], signal.SIGSTOP)
        done = finish(run, b"\n")
    assert done.code == 125 and "the engine did not say what was refused" in done.messages, done
    assert world.leftovers() == []


def slow_run(world):
    """Its self-test asks for a name that no server answers for: the test takes some seconds, and passes with a warning."""
    name = f"silent-{world.number()}.test"
    world.dns.on(name, lambda q: None)
    return world.run_start("echo", "up", allow=(f"{name}:443",), options=("--self-test", "full"))


def waiting_command(run):
    """Of a run that is being tested: the process that will be the command."""
    def find():
        for init in descendants(run.pid):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{init}/comm").read_text() == "weir-init\n" and children(init):
                    return children(init)[0]
        return None
    return wait_for(find)


def test_an_engine_that_was_not_asked_lets_no_command_run(world, daemon, pod, site):
    """The command's process hears control's go by itself, while weir-init tests the filter."""
    daemon.attach("one", pod, "--allow", site.name)
    size = message_size(daemon, pod)
    with slow_run(world) as run:
        waiting_command(run)
        engine = world.guards(run.pid)[1]
        os.kill(engine, signal.SIGSTOP)
        for s in channels(engine):
            with s, contextlib.suppress(OSError):
                s.send(struct.pack("=III", RUNNING, 0, 0).ljust(size, b"\0"))
        done = finish(run)
    assert done.code == 125 and done.out == b"" and "was not asked" in done.messages, done
    assert world.leftovers() == []


def test_a_command_that_is_killed_before_it_runs_is_a_failure_of_weirs(world):
    with slow_run(world) as run:
        os.kill(waiting_command(run), signal.SIGKILL)
        done = finish(run)
    assert done.code == 125 and done.out == b"" and "cannot start the command: its process has ended" in done.messages, done
    assert world.leftovers() == []


