# SPDX-License-Identifier: Apache-2.0
"""A real sandbox to attack, and the proof of what left it.

Unless a test says otherwise the policy is: api.ok.test on 443, *.pkg.test on 443.
"""
import pytest

from world.world import RESOLVER4, RESOLVER6

STANDARD = ("api.ok.test:443", "*.pkg.test:443")


class Attack:
    """Runs probes in one sandbox; afterwards `packets` and `names` say what came out."""

    def __init__(self, world):
        self.world = world
        self.packets = []   # all that arrived outside, queries to the resolver apart
        self.names = []     # names that the resolver was asked for, in order

    def probe(self, *probes, allow=STANDARD, **rest):
        return self._watched(self.world.probe, *probes, allow=allow, **rest)

    def run(self, *argv, allow=STANDARD, **rest):
        return self._watched(self.world.run, *argv, allow=allow, **rest)

    def _watched(self, function, *args, **rest):
        before = len(self.world.dns.queries())
        with self.world.capture() as capture:
            result = function(*args, **rest)
            self.packets = [p for p in capture.packets()
                            if not (p.dst in (RESOLVER4, RESOLVER6) and p.dport == 53)]
            self.names = [q.name for q in self.world.dns.queries()[before:]]
        return result

    def assert_silent(self):
        """Not one packet left, to whomever."""
        assert self.packets == []
        assert self.names == []


@pytest.fixture(scope="session")
def names(world):
    """The names of the standard policy, and others that look like them."""
    for name in ("api.ok.test", "pkg.test", "*.pkg.test", "ok.test", "*.ok.test", "evil.test",
                 "*.evil.test", "evilpkg.test", "dns.google", "cloudflare-dns.com",
                 "mozilla.cloudflare-dns.com", "dns.nextdns.io", "metadata.google.internal"):
        world.site(name)
    return world.dns


@pytest.fixture
def attack(world, names):
    return Attack(world)
