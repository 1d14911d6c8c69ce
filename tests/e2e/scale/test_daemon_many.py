# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes in one daemon: what doesn't grow with them, and where it ends."""
import concurrent.futures
import contextlib
import os
import signal
import socket
import threading
import time

from world.netns import NetNs
from world.program import children, link_of
from world.sidecar import wait_for


def test_children_are_made_by_a_small_process(daemon, pod, other, site):
    daemon.attach("one", pod, "--allow", site.name)
    spawner = daemon.children()["spawner"]
    # its own channel, and what every process has; not what the sandbox has
    wait_for(lambda: len(os.listdir(f"/proc/{spawner}/fd")) == 4)
    os.kill(spawner, signal.SIGKILL)
    wait_for(lambda: "spawner" not in daemon.children())
    daemon.attach("two", other, "--allow", site.name)
    assert daemon.children()["spawner"] != spawner
    assert site.v4 in other.probe(["dns", site.name]).addresses
    assert site.v4 in pod.probe(["dns", site.name]).addresses


def inside(daemon):
    """The processes that go into namespaces, and the namespace that each is in."""
    spawner, found = daemon.children()["spawner"], {}
    for pid in children(spawner):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii") as comm:
            if comm.read() == "weir-inside\n":
                found[pid] = os.readlink(f"/proc/{pid}/ns/net")
    return found


def test_one_process_goes_into_namespaces_and_keeps_none(daemon, pod, other, site):
    """It opens the sockets of one sandbox after the other, and tests each from inside. In between it is at home, with nothing of theirs."""
    home = os.readlink(f"/proc/{daemon.pid}/ns/net")
    who = []
    for name, place in (("one", pod), ("two", other)):
        daemon.attach(name, place, "--allow", site.name)
        wait_for(lambda: [*inside(daemon).values()] == [home])
        who += inside(daemon)
        wait_for(lambda: not [fd for fd in os.listdir(f"/proc/{who[0]}/fd") if int(fd) > 3 and link_of(f"/proc/{who[0]}/fd/{fd}").startswith("socket:")])
    assert who[0] == who[1]
    assert site.v4 in other.probe(["dns", site.name]).addresses
    daemon.weir("detach", "one")
    os.kill(who[0], signal.SIGKILL)
    wait_for(lambda: not inside(daemon))
    daemon.attach("one", pod, "--allow", site.name)  # by another one
    assert site.v4 in pod.probe(["dns", site.name]).addresses
    assert site.v4 in other.probe(["dns", site.name]).addresses


def rights(pid):
    """Its user and its capabilities; its channels, beside what every process has."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in status)
    return lines["Uid"].split()[0], int(lines["CapPrm"], 16) | int(lines["CapEff"], 16), [fd for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2]


def test_who_hears_what_comes_from_inside_goes_nowhere_else(daemon, pod, other, site):
    """The self-test reads answers out of the sandbox. So it has no right to enter another one, and who has it is at home before an answer can come."""
    home = os.readlink(f"/proc/{daemon.pid}/ns/net")
    daemon.attach("one", pod, "--allow", site.name)
    spawner, engine = daemon.children()["spawner"], daemon.children()["engine"]

    def in_other():
        found = []
        for pid in [pid for child in children(spawner) for pid in (child, *children(child))]:
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{pid}/ns/net").st_ino == os.fstat(other.ns.fd).st_ino:
                    found.append(pid)
        return found
    os.kill(engine, signal.SIGSTOP)  # it answers no self-test
    try:
        attach = threading.Thread(target=daemon.attach, args=("two", other, "--allow", site.name))
        attach.start()
        wait_for(lambda: [*inside(daemon).values()] == [home] and in_other())
        wait_for(lambda: [rights(pid)[:2] for pid in in_other()] == [("65534", 0)])
        wait_for(lambda: [len(rights(pid)[2]) for pid in in_other()] == [1])
        assert rights(*inside(daemon))[1] != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine, signal.SIGCONT)
    attach.join()
    wait_for(lambda: in_other() == [])
    assert site.v4 in other.probe(["dns", site.name]).addresses
    assert site.v4 in pod.probe(["dns", site.name]).addresses


def start_without_an_engine(host):
    """A daemon whose second engine is stopped before it has taken anything over."""
    for _ in range(20):
        daemon = host.daemon("--engines", 2, ready=False)
        end = time.monotonic() + 60
        while "engine" not in daemon.children(1):
            assert time.monotonic() < end, str(daemon)
        for pid in (daemon.children(1)["engine"], daemon.children()["daemon-1"]):  # who would replace it
            os.kill(pid, signal.SIGSTOP)
        wait_for(daemon.answers)
        # nor by what it sent before
        if all((daemon.get("/healthz").text == "weir is restoring\n", time.sleep(0.1))[0] for _ in range(5)):
            return daemon
        daemon.kill()
    raise AssertionError("the engine is always faster")


def test_it_answers_while_it_takes_over_what_was_there(host, pod, other, site):
    """As soon as the first engine has."""
    daemon = host.daemon("--engines", 2)
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", site.name)
    daemon.kill()
    daemon = start_without_an_engine(host)
    assert daemon.get("/healthz").text == "weir is restoring\n"
    assert daemon.get("/healthz").status == 503
    reply = daemon.call("PUT", "/sandboxes/three", {"uid": 71234, "policy": {}})
    assert reply.status == 503 and "takes over" in reply.text
    assert daemon.get("/sandboxes/nobody").status == 503
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(daemon.weir, "run", "--no-config", "--uid", 71235, "--", "/bin/echo", "ran")
        with contextlib.suppress(concurrent.futures.TimeoutError):
            run.result(1)  # one that doesn't wait has failed by then
        for pid in (daemon.children(1)["engine"], daemon.children()["daemon-1"]):
            os.kill(pid, signal.SIGCONT)
        daemon.ready()
        assert (run.result().code, run.result().out) == (0, b"ran\n"), run.result()
    assert sorted(daemon.names()) == ["one", "two"] and daemon.get("/sandboxes/nobody").status == 404
    for who in (pod, other):
        assert site.v4 in who.probe(["dns", site.name]).addresses


def test_it_says_so_when_its_descriptors_run_out(host, pod, site):
    daemon = host.daemon("--engines", 1, way=["prlimit", "--nofile=200:200"])
    engine = daemon.children()["engine"]
    daemon.attach("app", pod, "--allow", site.name)
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(contextlib.closing(NetNs())) for _ in range(30)]

        def put(i):
            return daemon.call("PUT", f"/sandboxes/s{i}", {"netns": spaces[i].path, "policy": {}})

        taken = 0
        while (reply := put(taken)).status == 201:
            taken += 1
        assert reply.status == 500 and "too few descriptors" in reply.json()["reason"]
        assert taken >= 5
        # nothing of it is left, everybody else is as before, and one that goes makes room
        assert len(daemon.names()) == taken + 1 and daemon.healthy()
        assert site.v4 in pod.probe(["dns", site.name]).addresses
        assert put(taken).status == 500
        assert daemon.call("DELETE", "/sandboxes/s0").status == 200
        assert put(taken).status == 201
        daemon.kill_child("engine")
        assert len(daemon.names()) == taken + 1 and daemon.children()["engine"] != engine
        assert site.v4 in pod.probe(["dns", site.name]).addresses


def test_what_many_have_alike_is_there_once(host):
    """Descriptors of the daemon, for users of the host with one policy."""
    daemon = host.daemon()

    def held():
        return len(os.listdir(f"/proc/{daemon.pid}/fd"))

    def put(uid):
        assert daemon.call("PUT", f"/sandboxes/u{uid}", {"uid": uid, "policy": {}}).status == 201

    put(70001)
    before = held()
    for uid in range(70002, 70022):
        put(uid)
    assert held() <= before + 1
    daemon.kill_child("engine")
    assert len(daemon.names()) == 21
    daemon.kill()
    daemon = host.daemon()
    assert len(daemon.names()) == 21 and held() <= before + 1


def test_those_that_go_at_once_while_nobody_listens(daemon):
    """More than a channel holds by itself: neither control nor the engine keeps one, and neither is replaced for it."""
    def held():
        return len(os.listdir(f"/proc/{daemon.children()['engine']}/fd"))
    before, control = held(), daemon.children()["control"]
    with contextlib.ExitStack() as spaces, contextlib.ExitStack() as stack:
        for i in range(150):
            space = spaces.enter_context(contextlib.closing(NetNs()))
            assert daemon.call("PUT", f"/sandboxes/s{i}", {"netns": space.path, "policy": {}}).status == 201
        assert held() > before
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(str(daemon.socket))
        client.send(b"DELETE /sandboxes/s149 HTTP/1.1\r\nHost: weir\r\n\r")
        assert daemon.answers(), "so the most of it was read"
        os.kill(control, signal.SIGSTOP)
        spaces.close()
        wait_for(lambda: held() <= before)
        # control is asked for the last one before it has heard of it
        client.send(b"\n")
        os.kill(control, signal.SIGCONT)
        client.settimeout(60)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: daemon.names() == [])
    assert daemon.children()["control"] == control
