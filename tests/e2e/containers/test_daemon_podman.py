# SPDX-License-Identifier: Apache-2.0
"""A container of podman's, guarded from outside."""
import json

import pytest

from world import expect
from world.daemon import Daemon
from world.podman import Podman, client_programs
from world.run import Result, read_answers
from world.sidecar import wait_for

pytestmark = pytest.mark.skipif(not client_programs(), reason="no podman here")


@pytest.fixture(scope="module")
def podman(world):
    with Podman(world) as p:
        app = p.folder / "app-root"
        for folder in ("usr", "etc/alternatives", "tmp", "proc", "sys", "dev", "tools", "run"):
            (app / folder).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (app / link).symlink_to(f"usr/{link}")
        p.load_root("localhost/app:latest", app, "ENV PATH=/usr/bin:/bin")
        yield p


@pytest.fixture
def daemon(podman):
    daemon = Daemon(podman.host, folder=podman.folder)
    daemon.ready()
    yield daemon
    daemon.kill()


def test_a_container(podman, daemon, world, site, denied):
    name = f"app-{world.number()}"
    podman("run", "-d", "--name", name, "-v", "/usr:/usr:ro", "-v", f"{world.tools}:/tools:ro", "localhost/app:latest",
           "/usr/bin/sleep", "600")
    try:
        pid = podman("inspect", "--format", "{{.State.Pid}}", name).strip()
        daemon.attach(name, None, "--allow", site.name, where=pid)
        probes = [["dns", site.name], ["dns", denied.name], ["tcp", site.v4, 443], ["tcp", "93.9.9.9", 443]]
        text = podman("exec", "-i", name, "/usr/bin/python3", "-IS", "/tools/probe.pyc", input=json.dumps(probes).encode())
        lookup, refused, tcp, stranger = read_answers(Result(0, text.encode(), b"", 0), len(probes))
        assert lookup.addresses == [site.v4] and tcp.result == "ok"
        expect.name_refused(refused)
        expect.tcp_refused(stranger)
    finally:
        podman.call("rm", "-f", "-t", "0", name)
    wait_for(lambda: daemon.names() == [])
