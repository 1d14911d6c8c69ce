# SPDX-License-Identifier: Apache-2.0
"""Several engines: who is in which, and that one knows nothing of another's end."""
import concurrent.futures
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from world import expect
from world.daemon import pid_in
from world.netns import NetNs
from world.program import children, comm, is_alive
from world.sidecar import Flow, Pod, policy, wait_for

STRANGER = "93.9.9.9"
NAMES = ("one", "two", "three")


@pytest.fixture
def pods(world):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Pod(world)) for _ in NAMES]


@pytest.fixture
def sites(world):
    return [world.site(f"shard-{world.number()}.test") for _ in NAMES]


def engines(daemon):
    """{name: the number of its engine}"""
    return {s["id"]: s["engine"] for s in daemon.get("/sandboxes").json()["sandboxes"]}


@contextlib.contextmanager
def delayed(pid, call):
    """The process @pid goes on a fifth of a second after each such system call."""
    strace = subprocess.Popen(["strace", "-p", str(pid), "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:delay_exit=200000"],
                              stderr=subprocess.PIPE)
    assert b"attached" in strace.stderr.readline()
    try:
        yield
    finally:
        strace.terminate()
        strace.wait()


def attach_all(daemon, pods, sites):
    for name, pod, site in zip(NAMES, pods, sites):
        daemon.attach(name, pod, "--allow", site.name)


def all_guarded(pods, sites):
    """Each reaches what is its own, and nobody a stranger or what is another's; as what has left says, too."""
    for i, (pod, site) in enumerate(zip(pods, sites)):
        others = sites[(i + 1) % len(sites)]
        mine, theirs, tcp, stranger, udp = pod.probe(["dns", site.name], ["dns", others.name], ["tcp", site.v4, 443],
                                                     ["tcp", STRANGER, 443], ["udp", others.v4, 9, "x"])
        assert mine.addresses == [site.v4] and tcp.result == "ok", (i, dict(mine), dict(tcp))
        expect.name_refused(theirs)
        expect.tcp_refused(stranger)
        expect.udp_refused(udp)
        assert not [p for p in pod.packets() if p.dst not in (site.v4, site.v6)], i


def test_sandboxes_are_shared_out(host, pods, sites, site):
    daemon = host.daemon("--engines", 3)
    attach_all(daemon, pods, sites)
    assert engines(daemon) == {"one": 0, "two": 1, "three": 2}
    assert daemon.get("/status").json()["engines"] == 3
    numbers = [s["number"] for s in daemon.get("/sandboxes").json()["sandboxes"]]
    assert len(set(numbers)) == 3
    all_guarded(pods, sites)
    # what each was denied is its own, and all of it the daemon's
    for name in NAMES:
        counters = daemon.status(name)["counters"]
        assert counters["queries_denied"] == 1, name
        rows = wait_for(lambda name=name: daemon.denies(name))
        assert {r["sandbox"] for r in rows} == {name}
    assert daemon.get("/status").json()["counters"]["queries_denied"] == 3
    # a policy that changes, and one that goes: its place is the next one's
    daemon.set_policy("three", f"allow {site.name}")
    assert pods[2].probe(["dns", site.name]).addresses == [site.v4]
    expect.name_refused(pods[2].probe(["dns", sites[2].name]))
    assert daemon.weir("detach", "two").code == 0
    assert pods[1].probe(["tcp", STRANGER, 443]).result == "ok"
    daemon.attach("four", pods[1], "--allow", sites[1].name)
    assert engines(daemon) == {"one": 0, "four": 1, "three": 2}
    # what is of the host's own is the first one's
    assert daemon.call("PUT", "/sandboxes/u", {"uid": 71234, "policy": {}}).status == 201
    assert daemon.call("PUT", "/sandboxes/v", {"uid": 71235, "policy": {}}).status == 201
    assert engines(daemon)["u"] == engines(daemon)["v"] == 0


@pytest.mark.parametrize("child", ["engine", "supervisor"])
def test_one_that_dies_is_replaced_and_the_others_go_on(host, pods, sites, child):
    daemon = host.daemon("--engines", 3)
    attach_all(daemon, pods, sites)
    all_guarded(pods, sites)
    flows = [Flow(pod, site.v4) for pod, site in zip(pods, sites)]
    for engine in (1, 2):
        others = [daemon.children(e)["engine"] for e in range(3) if e != engine]
        control, before = daemon.children()["control"], daemon.children(engine)["engine"]
        if child == "engine":
            daemon.kill_child("engine", engine)
        else:
            daemon.kill_child(f"daemon-{engine}")
        assert wait_for(lambda engine=engine: daemon.children(engine).get("engine")) != before
        assert [daemon.children(e)["engine"] for e in range(3) if e != engine] == others
        assert daemon.children()["control"] == control and not is_alive(before)
        assert [flow.say() for flow in flows] == ["got"] * 3
        # what was learned is open without a question
        assert pods[engine].probe(["tcp", sites[engine].v4, 443]).result == "ok"
        all_guarded(pods, sites)
        assert engines(daemon) == {"one": 0, "two": 1, "three": 2}
    assert daemon.get("/status").json()["engineRestarts"] == 2
    daemon.set_policy("two")
    assert flows[1].say() != "got" and flows[2].say() == "got"
    expect.name_refused(pods[1].probe(["dns", sites[1].name]))


def test_while_one_is_away_its_own_stay_closed(host, pods, sites):
    """Its supervisor can't come back: as if it was just not there yet."""
    daemon = host.daemon("--engines", 2)
    attach_all(daemon, pods, sites)
    all_guarded(pods, sites)
    of_two = [i for i, name in enumerate(NAMES) if engines(daemon)[name] == 1]
    os.kill(daemon.children(1)["engine"], signal.SIGSTOP)
    os.kill(daemon.children()["daemon-1"], signal.SIGSTOP)
    for i, (pod, site) in enumerate(zip(pods, sites)):
        tcp, stranger = pod.probe(["tcp", site.v4, 443], ["tcp", STRANGER, 443])
        assert tcp.result == "ok"
        expect.tcp_refused(stranger)
        assert (i in of_two) or pod.probe(["dns", site.name]).addresses == [site.v4]
        assert not [p for p in pod.packets() if p.dst not in (site.v4, site.v6)]
    os.kill(daemon.children()["daemon-1"], signal.SIGKILL)
    wait_for(daemon.healthy)
    all_guarded(pods, sites)


def test_all_of_it_dies_and_comes_again_with_other_numbers(host, pods, sites):
    daemon = host.daemon("--engines", 3)
    attach_all(daemon, pods, sites)
    all_guarded(pods, sites)
    flows = [Flow(pod, site.v4) for pod, site in zip(pods, sites)]
    for args, expected in ((("--engines", 3), {0, 1, 2}), (("--engines", 2), {0, 1}), ((), {0, 1}), (("--engines", 1), {0}),
                           (("--engines", 3), {0})):
        daemon.kill()
        for pod, site in zip(pods, sites):
            tcp, stranger = pod.probe(["tcp", site.v4, 443], ["tcp", STRANGER, 443])
            assert tcp.result == "ok"
            expect.tcp_refused(stranger)
        daemon = host.daemon(*args)
        assert set(engines(daemon).values()) == expected and sorted(engines(daemon)) == sorted(NAMES), args
        assert all(daemon.status(name)["counters"]["adopted"] > 0 for name in NAMES), args
        assert [flow.say() for flow in flows] == ["got"] * 3
        all_guarded(pods, sites)
        numbers = [s["number"] for s in daemon.get("/sandboxes").json()["sandboxes"]]
        assert len(set(numbers)) == 3
    # and all of it goes
    for name in NAMES:
        assert daemon.weir("detach", name).code == 0
    assert not list((daemon.run_dir / "sandboxes").glob("[!.]*"))
    assert all(pod.probe(["tcp", STRANGER, 443]).result == "ok" for pod in pods)


def everyone(daemon, count):
    """The pids of all its processes."""
    return [daemon.pid, *(pid for engine in range(count) for pid in daemon.children(engine).values())]


def test_all_end_with_the_first_warden(host, pods, sites):
    daemon = host.daemon("--engines", 3)
    attach_all(daemon, pods, sites)
    pids = everyone(daemon, 3)
    assert len(pids) == 1 + 5 + 2 + 2       # control, and the supervisors, engines and spawners of all three
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.process.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in pids))
    host.daemon("--engines", 3)
    all_guarded(pods, sites)


def test_random_ends(host, pods, sites):
    """Attach, change, detach, kill: after each step nothing passes that no policy of that moment allows."""
    rng = random.Random(11)
    daemon = host.daemon("--engines", 2)
    allowed = [None] * 3        # the site of each; None: it is not attached
    for step in range(20):
        i, site = rng.randrange(3), rng.choice(sites)
        what = rng.choice(["attach", "change", "change", "detach", "engine", "supervisor", "control", "all"])
        if what in ("attach", "change") and allowed[i] is None:
            daemon.attach(NAMES[i], pods[i], "--allow", site.name)
            allowed[i] = site
        elif what in ("attach", "change"):
            daemon.set_policy(NAMES[i], f"allow {site.name}")
            allowed[i] = site
        elif what == "detach" and allowed[i]:
            assert daemon.weir("detach", NAMES[i]).code == 0
            allowed[i] = None
        elif what == "engine":
            daemon.kill_child("engine", rng.randrange(2))
        elif what == "supervisor":
            daemon.kill_child("daemon-1")
        elif what == "control":
            daemon.kill_child("control")
        elif what == "all":
            daemon.kill()
            daemon = host.daemon("--engines", rng.choice([1, 3]))
            daemon.kill()
            daemon = host.daemon("--engines", 2)
        assert sorted(daemon.names()) == sorted(n for n, a in zip(NAMES, allowed) if a), (step, what)
        for pod, mine in zip(pods, allowed):
            if mine is None:
                continue
            other = next(s for s in sites if s is not mine)
            good, bad, stranger = pod.probe(["dns", mine.name], ["dns", other.name], ["tcp", STRANGER, 443])
            assert good.addresses == [mine.v4], (step, what)
            expect.name_refused(bad)
            expect.tcp_refused(stranger)


def test_names_and_namespaces_are_unique(host, pods, sites):
    daemon = host.daemon("--engines", 3)
    attach_all(daemon, pods, sites)
    with contextlib.closing(NetNs()) as fresh:
        for name in NAMES:
            assert daemon.call("PUT", f"/sandboxes/{name}", {"netns": fresh.path, "policy": {}}).status == 409
    app = pods[2].start("/bin/sleep", 600)
    for where in (pods[2].ns.path, str(pid_in(pods[2], app))):
        reply = daemon.call("PUT", "/sandboxes/again", {"netns": where, "policy": {}})
        assert reply.status == 500 and "'three' is that network namespace already" in reply.json()["reason"], reply
    assert sorted(daemon.names()) == sorted(NAMES)
    all_guarded(pods, sites)
    # nor after the end of all that, in whatever engine
    daemon.kill()
    daemon = host.daemon("--engines", 2)
    reply = daemon.call("PUT", "/sandboxes/again", {"netns": pods[2].ns.path, "policy": {}})
    assert reply.status == 500 and "'three' is that" in reply.json()["reason"]
    all_guarded(pods, sites)


def test_a_namespace_goes_from_one_to_another(host, pod, site):
    """At once: who has let go of it holds nothing of it."""
    daemon = host.daemon("--engines", 2)
    for i in range(15):
        daemon.attach("app", pod, "--allow", site.name)
        assert engines(daemon) == {"app": 0}
        for uid in (71001, 71002):
            assert daemon.call("PUT", f"/sandboxes/u{uid}", {"uid": uid, "policy": {}}).status == 201
        assert daemon.call("DELETE", "/sandboxes/app").status == 200
        reply = daemon.call("PUT", f"/sandboxes/app{i}", {"netns": pod.ns.path, "policy": {}})
        assert reply.status == 201, reply
        assert engines(daemon)[f"app{i}"] == 1
        expect.name_refused(pod.probe(["dns", site.name]))
        for name in daemon.names():
            assert daemon.call("DELETE", f"/sandboxes/{name}").status == 200


def test_a_full_one_is_passed_over(host, pod, site):
    daemon = host.daemon("--engines", 2, way=["prlimit", "--nofile=150:150"])
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(contextlib.closing(NetNs())) for _ in range(40)]

        def put(i):
            return daemon.call("PUT", f"/sandboxes/s{i}", {"netns": spaces[i].path, "policy": {}})

        taken = 0
        while (reply := put(taken)).status == 201:
            taken += 1
        assert reply.status == 500 and "too few descriptors" in reply.json()["reason"]
        where = list(engines(daemon).values())
        assert taken >= 10 and abs(where.count(0) - where.count(1)) <= 1
        assert put(taken).status == 500 and len(daemon.names()) == taken and daemon.healthy()
        gone = next(name for name, engine in engines(daemon).items() if engine == 1)
        assert daemon.call("DELETE", f"/sandboxes/{gone}").status == 200
        daemon.attach("app", pod, "--allow", site.name)
        assert engines(daemon)["app"] == 1
        assert pod.probe(["dns", site.name]).addresses == [site.v4]
        assert put(taken).status == 500
        # what one could hold its successor can
        daemon.kill_child("daemon-1")
        assert len(daemon.names()) == taken
        assert pod.probe(["dns", site.name]).addresses == [site.v4]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace holds a process back")
def test_a_full_one_has_let_go_of_a_namespace_before_another_is_asked(host):
    """The process that opens the sockets there for an engine closes its own copies of them late."""
    daemon = host.daemon("--engines", 2, way=["prlimit", "--nofile=150:150"])
    with contextlib.ExitStack() as stack:
        for i in range(40):
            space = stack.enter_context(contextlib.closing(NetNs()))
            reply = daemon.call("PUT", f"/sandboxes/s{i}", {"netns": space.path, "policy": {}})
            if reply.status != 201:
                break
            if i >= 2:
                continue
            (pid,) = (p for p in children(daemon.children(i)["spawner"]) if comm(p) == "weir-inside")
            stack.enter_context(delayed(pid, "sendmsg"))
    assert reply.status == 500 and "too few descriptors" in reply.json()["reason"], reply


def test_more_are_started_as_they_are_needed(host, pod, site):
    daemon = host.daemon(way=["prlimit", "--nofile=150:150"])
    assert daemon.get("/status").json()["engines"] == 1 and "daemon-1" not in daemon.children()
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(contextlib.closing(NetNs())) for _ in range(25)]
        for i, space in enumerate(spaces):
            reply = daemon.call("PUT", f"/sandboxes/s{i}", {"netns": space.path, "policy": {}})
            assert reply.status == 201 and daemon.healthy(), f"{i}: {reply}\n{daemon}"
        daemon.attach("app", pod, "--allow", site.name)
        count = daemon.get("/status").json()["engines"]
        assert count >= 3 and set(engines(daemon).values()) == set(range(count))
        assert pod.probe(["dns", site.name]).addresses == [site.v4]
        before = engines(daemon)
        daemon.kill()
        daemon = host.daemon(way=["prlimit", "--nofile=150:150"])
        assert engines(daemon) == before
        assert pod.probe(["dns", site.name]).addresses == [site.v4]
        expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="has one processor")
def test_where_it_is_crowded_another_is_started(host, pod, other, site):
    """500 in one engine, users of the host here, and a processor that has none."""
    daemon = host.daemon()
    for uid in range(71000, 71500):
        assert daemon.call("PUT", f"/sandboxes/u{uid}", {"uid": uid, "policy": {}}).status == 201
    assert daemon.get("/status").json()["engines"] == 1
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        attach = pool.submit(daemon.weir, "attach", "--id", "app", "--netns", pod.ns.path, "--allow", site.name)
        late = wait_for(lambda: daemon.children().get("daemon-1"), step=0)
        os.kill(late, signal.SIGSTOP)
        # it has nothing to take over: nobody is sent away for it
        reply = daemon.call("PUT", "/sandboxes/meanwhile", {"uid": 71998, "policy": {}})
        assert reply.status == 201, reply
        with contextlib.suppress(ProcessLookupError):
            os.kill(late, signal.SIGCONT)
        done = attach.result()
    daemon.ready()
    if done.code:  # the new one was stopped after its engine had come, and had the sandbox, or has it after all
        again = daemon.weir("attach", "--id", "app", "--netns", pod.ns.path, "--allow", site.name)
        assert again.code == 0 or "there is a sandbox 'app' already" in again.messages, f"{again}\n{daemon}"
    assert daemon.get("/status").json()["engines"] == 2
    daemon.attach("two", other, "--allow", site.name)
    assert engines(daemon)["two"] == 1 and daemon.get("/status").json()["engines"] == 2
    assert site.v4 in pod.probe(["dns", site.name]).addresses
    expect.tcp_refused(other.probe(["tcp", STRANGER, 443]))


def test_what_is_too_much_for_one_waits_closed_for_others(host, pod, site):
    """Restarted with fewer engines than there have to be, and then with enough."""
    way = ["prlimit", "--nofile=150:150"]
    daemon = host.daemon(way=way)
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(contextlib.closing(NetNs())) for _ in range(25)]
        for i, space in enumerate(spaces):
            assert daemon.call("PUT", f"/sandboxes/s{i}", {"netns": space.path, "policy": {}}).status == 201
        daemon.attach("app", pod, "--allow", site.name)
        daemon.kill()
        daemon = host.daemon("--engines", 1, way=way, ready=False)
        wait_for(daemon.answers)
        wait_for(lambda: "too few descriptors" in str(daemon.get("/status").json()["degradations"]))
        assert 5 < len(daemon.names()) < 20 and daemon.get("/healthz").status == 503
        os.kill(daemon.children()["engine"], signal.SIGKILL)
        expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))
        for args in ((), ("--engines", 4)):
            daemon.kill()
            daemon = host.daemon(*args, way=way)
            assert len(daemon.names()) == 26, daemon
            assert site.v4 in pod.probe(["dns", site.name]).addresses
            expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))


def test_one_that_keeps_dying_delays_nobody(host, pods, sites):
    """Its sandbox's policy is changed all the time; the others' callers wait for no supervisor that isn't there."""
    daemon = host.daemon("--engines", 2)
    attach_all(daemon, pods, sites)
    theirs = next(name for name in NAMES if engines(daemon)[name] == 1)
    other = next(i for i, name in enumerate(NAMES) if engines(daemon)[name] == 0)
    over, tried, control = threading.Event(), [], daemon.children()["control"]

    def kill():
        while not over.is_set():
            if pid := daemon.children().get("daemon-1"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def change():
        while not over.is_set():
            tried.append(daemon.call("POST", f"/sandboxes/{theirs}/policy", policy(f"allow {sites[other].name}")).status)

    threads = [threading.Thread(target=target, daemon=True) for target in (kill, change)]
    for thread in threads:
        thread.start()
    try:
        for n in range(12):
            rules = policy(f"allow {sites[other].name}", f"allow more-{n}.test")
            assert daemon.call("POST", f"/sandboxes/{NAMES[other]}/policy", rules).status == 200
            assert daemon.get(f"/sandboxes/{NAMES[other]}/policy").status == 200
            time.sleep(0.3)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert len(tried) > 3 and set(tried) - {200}, tried
    assert daemon.children()["control"] == control
    wait_for(daemon.healthy)
    daemon.set_policy(theirs, f"allow {sites[other].name}")
    assert pods[NAMES.index(theirs)].probe(["dns", sites[other].name]).addresses == [sites[other].v4]


def test_a_change_that_its_warden_dies_of(host, pod, site, denied):
    """Whatever the caller is told is so, then and after a restart."""
    daemon = host.daemon("--engines", 2)
    with contextlib.closing(NetNs()) as first:
        assert daemon.call("PUT", "/sandboxes/first", {"netns": first.path, "policy": {}}).status == 201
        daemon.attach("app", pod, "--allow", site.name)
        assert engines(daemon)["app"] == 1
        wanted, other = site, denied
        for i in range(6):
            os.kill(wait_for(lambda: daemon.children().get("daemon-1")), signal.SIGKILL)
            if i % 2:
                wait_for(lambda: daemon.children(1).get("engine"))
            reply = daemon.call("POST", "/sandboxes/app/policy", policy(f"allow {other.name}"))
            if reply.status == 200:
                wanted, other = other, wanted
            wait_for(daemon.healthy)
            rules = daemon.get("/sandboxes/app/policy").json()["policy"]["egress"]
            assert [r["target"] for r in rules] == [wanted.name], reply
            assert pod.probe(["dns", wanted.name]).addresses == [wanted.v4]
            expect.name_refused(pod.probe(["dns", other.name]))
        daemon.kill()
        host.daemon()
        assert pod.probe(["dns", wanted.name]).addresses == [wanted.v4]
        expect.name_refused(pod.probe(["dns", other.name]))


def drain(sock):
    sock.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(100)


def test_it_is_ready_and_alive_when_all_are(host):
    path = host.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(60)
        daemon = host.daemon("--engines", 2, env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"})
        assert sock.recv(100) == b"READY=1" and sock.recv(100) == b"WATCHDOG=1"
        supervisor = daemon.children()["daemon-1"]
        os.kill(supervisor, signal.SIGSTOP)

        def is_quiet():
            drain(sock)         # what it had answered before
            sock.settimeout(0.5)
            try:
                return not sock.recv(100)
            except TimeoutError:
                return True
        wait_for(is_quiet)
        with contextlib.suppress(ProcessLookupError):  # who does not answer for long is replaced
            os.kill(supervisor, signal.SIGCONT)
        sock.settimeout(60)
        assert sock.recv(100) == b"WATCHDOG=1"
        daemon.kill_child("daemon-1")
        assert sock.recv(100) == b"WATCHDOG=1"
        assert daemon.stop() == 0
        wait_for(lambda: not is_alive(supervisor))


def test_it_is_not_ready_before_all_are(host):
    path = host.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        for _ in range(20):
            daemon = host.daemon("--engines", 2, ready=False, env={"NOTIFY_SOCKET": str(path)})
            supervisor = wait_for(lambda daemon=daemon: daemon.children().get("daemon-1"), step=0)
            os.kill(supervisor, signal.SIGSTOP)
            sock.settimeout(0.3)
            try:
                assert sock.recv(100) == b"READY=1"
            except TimeoutError:
                break
            daemon.kill()
        else:
            raise AssertionError("it is always faster")
        wait_for(daemon.answers)
        assert not daemon.healthy()
        with contextlib.suppress(ProcessLookupError):  # who does not answer for long is replaced
            os.kill(supervisor, signal.SIGCONT)
        sock.settimeout(60)
        assert sock.recv(100) == b"READY=1"
        wait_for(daemon.healthy)


def test_numbers_of_engines_that_make_no_sense(host):
    for value in ("0", "65", "-1", "many", ""):
        done = host.daemon("--engines", value, ready=False).ended()
        assert done == 2, value
    daemon = host.daemon(env={"WEIR_ENGINES": "2"})
    assert daemon.get("/status").json()["engines"] == 2
