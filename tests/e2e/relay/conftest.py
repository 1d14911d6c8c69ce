# SPDX-License-Identifier: Apache-2.0
"""Two names that live at the same addresses: one that is allowed, and one that isn't."""
import socket

import pytest

from world.sidecar import wait_for


class Pair:
    def __init__(self, world):
        n = world.number()
        self.site = world.site(f"good-{n}.pair.test")
        self.good, self.evil = self.site.name, f"evil-{n}.pair.test"
        world.dns.add(self.evil, self.site.v4, self.site.v6)
        hosts = world.workdir() / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{self.site.v4} {self.evil}\n{self.site.v6} {self.evil}\n")
        self.mounts = (f"mount --bind {hosts} /etc/hosts",)

    def arrived(self, capture):
        """What came to the addresses of the pair."""
        return [p for p in capture.packets() if p.dst in (self.site.v4, self.site.v6)]


@pytest.fixture
def pair(world):
    return Pair(world)


@pytest.fixture(scope="session")
def wait_served(world):
    """A call returns once @process, which runs in the internet, takes connections at @port."""
    def wait(port, process):
        def is_served():
            assert process.poll() is None, f"no server on port {port}: {process.args}"
            with world.internet.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
                return s.connect_ex(("93.1.1.1", port)) == 0
        wait_for(is_served, step=0.05)
    return wait
