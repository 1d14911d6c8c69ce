# SPDX-License-Identifier: Apache-2.0
"""Containers that are guarded at each start, before their first process: a runtime for Docker, a hook for podman."""
import json
import pathlib

import pytest

from world import docker, expect, podman
from world.daemon import Daemon
from world.run import Result, read_answers
from world.sidecar import programs, wait_for

SOURCE = pathlib.Path(__file__).resolve().parents[3]
STRANGER = "93.9.9.9"
# At once, and then to be asked.
FIRST = ("/bin/bash", "-c", f"echo x >/dev/udp/{STRANGER}/9; exec sleep 600")


@pytest.fixture(scope="module")
def engine(world):
    if not docker.client_programs():
        pytest.skip("no Docker Engine here")
    folder = programs(world).parent
    text = (f"#!/bin/sh\nPATH={folder}:$PATH exec {SOURCE}/deploy/docker/weir-runc --allow *.oci.test --socket "
            "${0%/*}/run/weir.sock -- \"$@\"\n")
    with docker.Engine(world, {"weir": text}) as e:
        yield e


@pytest.fixture
def daemon(engine):
    daemon = Daemon(engine.host, folder=engine.folder)
    daemon.ready()
    yield daemon
    daemon.kill()


@pytest.fixture
def start(engine, daemon, world):
    names = []

    def run(*options, code=0, runtime="weir"):
        name = f"app-{world.number()}"
        names.append(name)
        done = engine.call("run", "--detach", "--name", name, "--runtime", runtime, *options, *engine.app_mounts, engine.app, *FIRST)
        assert (done.code == 0) == (code == 0), f"{done}\n{daemon}"
        return name if code == 0 else done

    yield run
    for name in names:
        engine.call("rm", "--force", name)


def sandbox(engine, name):
    return engine("inspect", "--format", "{{.Id}}", name)[:12]


def is_guarded(engine, name, allowed, denied):
    lookup, refused, tcp, stranger = engine.exec_probe(name, ["dns", allowed.name], ["dns", denied.name], ["tcp", allowed.v4, 443],
                                                       ["tcp", STRANGER, 443])
    assert lookup.addresses == [allowed.v4] and tcp.result == "ok"
    expect.name_refused(refused)
    expect.tcp_refused(stranger)


@pytest.fixture
def allowed(world):
    return world.site(f"n{world.number()}.oci.test")


def sent(engine):
    return engine.host.packets(dst=STRANGER)


def test_from_its_first_packet_on_and_at_each_start(engine, daemon, start, allowed, denied):
    name = start()
    assert daemon.names() == [sandbox(engine, name)]
    is_guarded(engine, name, allowed, denied)
    for _ in range(3):
        engine("restart", "--time", "0", name)
        is_guarded(engine, name, allowed, denied)
    assert daemon.names() == [sandbox(engine, name)] and not sent(engine)
    # exec joins it
    assert engine.call("exec", name, "/bin/bash", "-c", f"echo x >/dev/tcp/{STRANGER}/7007").code != 0
    engine("rm", "--force", name)
    wait_for(lambda: daemon.names() == [])


def test_another_runtime_leaves_it_free(engine, start):
    """So the others' silence is Weir's doing."""
    before = sent(engine)
    start(runtime="runc")
    wait_for(lambda: sent(engine) > before)


def test_a_port_that_is_published_is_served(engine, start):
    name = start("--publish", "127.0.0.1:0:8099")
    engine("exec", "--detach", name, "/usr/bin/python3", "-ISm", "http.server", "8099")
    port = engine.published(name, 8099)[1]
    with engine.host.ns.entered():
        import http.client  # pylint: disable=import-outside-toplevel

        def answers():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/proc/self/comm")
                return connection.getresponse().status == 200
            except OSError:
                return False
        wait_for(answers)


def test_its_own_network_with_dockers_resolver(engine, start, allowed, denied, world):
    network = f"net{world.number()}"
    engine("network", "create", network)
    try:
        name = start("--network", network)
        is_guarded(engine, name, allowed, denied)
        inner = engine.exec_probe(name, ["dns", denied.name, {"server": "127.0.0.11"}])
        assert inner.result == "NXDOMAIN" and not world.dns.queries(denied.name)
        engine("restart", "--time", "0", name)
        is_guarded(engine, name, allowed, denied)
        engine("rm", "--force", name)
    finally:
        engine.call("network", "rm", network)


def test_who_joins_anothers_network_is_guarded_as_that_one(engine, daemon, start, allowed, denied):
    first = start()
    second = start("--network", f"container:{first}")
    is_guarded(engine, second, allowed, denied)
    assert daemon.names() == [sandbox(engine, first)]


def test_without_a_network_and_on_the_hosts(engine, daemon, start):
    name = start("--network", "none")
    assert daemon.names() == [sandbox(engine, name)]
    done = start("--network", "host", code=1)
    assert "weir-runc: weir: failed_safety_setup: " in done.messages and not engine("ps", "--quiet", "--filter", "network=host"), done


def test_without_the_daemon_nothing_is_started(engine, daemon, start):
    before = sent(engine)
    daemon.kill()
    done = start(code=1)
    assert "failed_safety_setup: cannot reach the daemon" in done.messages, done
    assert sent(engine) == before
    assert not engine("ps", "--quiet")


# podman

@pytest.fixture(scope="module", name="pods")
def fixture_pods(world):
    if not podman.client_programs():
        pytest.skip("no podman here")
    with podman.Podman(world) as p:
        app = p.folder / "app-root"
        for folder in ("usr", "etc/alternatives", "tmp", "proc", "sys", "dev", "tools", "run"):
            (app / folder).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (app / link).symlink_to(f"usr/{link}")
        p.load_root("localhost/app:latest", app, "ENV PATH=/usr/bin:/bin")
        hook = json.loads((SOURCE / "deploy/podman/weir-hook.json").read_text())
        hook["hook"]["path"] = str(programs(world))
        hook["hook"]["args"] = ["weir", "attach", "--oci-state", "--allow", "*.oci.test", "--socket", str(p.folder / "run" / "weir.sock")]
        (p.folder / "hooks").mkdir()
        (p.folder / "hooks" / "weir.json").write_text(json.dumps(hook))
        yield p


def test_podmans_hook(pods, world, allowed, denied):
    daemon = Daemon(pods.host, folder=pods.folder)
    daemon.ready()
    name = f"app-{world.number()}"
    hooks = ("--hooks-dir", str(pods.folder / "hooks"))
    run = ("run", "-d", "--name", name, "--annotation", "weir=on", "-v", "/usr:/usr:ro", "-v", f"{world.tools}:/tools:ro",
           "localhost/app:latest", *FIRST)
    try:
        pods(*hooks, *run)
        for _ in range(2):
            probes = [["dns", allowed.name], ["dns", denied.name], ["tcp", STRANGER, 443]]
            text = pods("exec", "-i", name, "/usr/bin/python3", "-IS", "/tools/probe.pyc", input=json.dumps(probes).encode())
            lookup, refused, stranger = read_answers(Result(0, text.encode(), b"", 0), len(probes))
            assert lookup.addresses == [allowed.v4], daemon
            expect.name_refused(refused)
            expect.tcp_refused(stranger)
            pods(*hooks, "restart", "-t", "0", name)
        pods("rm", "-f", "-t", "0", name)
        assert not pods.host.packets(dst=STRANGER)
        daemon.kill()
        done = pods.call(*hooks, *run)
        assert done.code != 0 and not pods.host.packets(dst=STRANGER), done
    finally:
        pods.call("rm", "-f", "-t", "0", name)
        daemon.kill()
