# SPDX-License-Identifier: Apache-2.0
"""Two names that live at the same addresses: one that is allowed, and one that isn't."""
import pytest


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
