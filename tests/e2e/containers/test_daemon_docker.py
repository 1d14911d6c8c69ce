# SPDX-License-Identifier: Apache-2.0
"""Containers of a real Docker Engine, guarded from outside."""
import json

import pytest

from world import expect
from world.daemon import Daemon
from world.docker import Engine, client_programs
from world.run import Result, read_answers
from world.sidecar import wait_for

pytestmark = pytest.mark.skipif(not client_programs(), reason="no Docker Engine here")
STRANGER = "93.9.9.9"


@pytest.fixture(scope="module")
def engine(world):
    with Engine(world) as e:
        yield e


@pytest.fixture(scope="module")
def daemon(engine):
    daemon = Daemon(engine.host, folder=engine.folder)
    daemon.ready()
    yield daemon
    daemon.kill()


@pytest.fixture
def container(engine, world):
    """Start one that sleeps, and give its name."""
    names = []

    def start(network="bridge", options=()):
        name = f"app-{world.number()}"
        engine("run", "--detach", "--name", name, "--network", network, *options, *engine.app_mounts, engine.app,
               "/usr/bin/sleep", "600")
        names.append(name)
        return name

    yield start
    for name in names:
        engine.call("rm", "--force", name)


def pid_of(engine, name):
    return engine.inspect(name)["State"]["Pid"]


def probe(engine, name, *probes):
    text = engine("exec", "-i", name, "/usr/bin/python3", "-IS", "/tools/probe.pyc", input=json.dumps(probes).encode())
    answers = read_answers(Result(0, text.encode(), b"", 0), len(probes))
    return answers[0] if len(probes) == 1 else answers


def test_a_container(engine, daemon, container, site, denied):
    name = container()
    daemon.attach(name, None, "--allow", site.name, where=pid_of(engine, name))
    lookup, refused, tcp, stranger = probe(engine, name, ["dns", site.name], ["dns", denied.name],
                                           ["tcp", site.v4, 443], ["tcp", STRANGER, 443])
    assert lookup.addresses == [site.v4] and tcp.result == "ok"
    expect.name_refused(refused)
    expect.tcp_refused(stranger)
    engine("rm", "--force", name)
    wait_for(lambda: name not in daemon.names())


def test_a_network_with_dockers_own_resolver(engine, daemon, container, site, denied, world):
    network = f"net{world.number()}"
    engine("network", "create", network)
    try:
        name, friend = container(network), container(network)
        daemon.attach(name, None, "--allow", site.name, where=pid_of(engine, name))
        lookup, refused, inner = probe(engine, name, ["dns", site.name, {"server": "127.0.0.11"}],
                                       ["dns", denied.name, {"server": "127.0.0.11"}],
                                       ["dns", friend, {"server": "127.0.0.11"}])
        assert lookup.addresses == [site.v4]
        expect.name_refused(refused)
        assert inner.result == "NXDOMAIN"
        assert not world.dns.queries(denied.name)
        # who isn't attached is as before
        assert probe(engine, friend, ["dns", denied.name, {"server": "127.0.0.11"}]).addresses == [denied.v4]
    finally:
        engine.call("rm", "--force", name, friend)
        engine("network", "rm", network)


def test_a_container_that_starts_again_is_another(engine, daemon, container, site):
    name = container()
    daemon.attach(name, None, "--allow", site.name, where=pid_of(engine, name))
    engine("restart", "--time", "0", name)
    wait_for(lambda: name not in daemon.names())
    daemon.attach(name, None, "--allow", site.name, where=pid_of(engine, name))
    expect.tcp_refused(probe(engine, name, ["tcp", STRANGER, 443]))


def test_two_containers_in_one_namespace_are_one_sandbox(engine, daemon, container, site):
    first = container()
    second = container(f"container:{first}")
    daemon.attach(first, None, "--allow", site.name, where=pid_of(engine, first))
    expect.tcp_refused(probe(engine, second, ["tcp", STRANGER, 443]))
    engine("rm", "--force", first)
    # its namespace is the other one's, too; its link went with it
    assert probe(engine, second, ["tcp", STRANGER, 443]).result in ("refused", "ENETUNREACH")
    assert first in daemon.names()
    assert probe(engine, second, ["dns", site.name]).addresses == [site.v4]
    engine("rm", "--force", second)
    wait_for(lambda: first not in daemon.names())
