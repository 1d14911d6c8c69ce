# SPDX-License-Identifier: Apache-2.0
"""A real sandbox to attack, and the proof of what left it.

Unless a test says otherwise the policy is: api.ok.test on 443, *.pkg.test on 443.
"""
import os
import subprocess

import pytest

from world.daemon import Host
from world.run import Result
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


class Inside:
    """Runs commands in each kind of sandbox that `weir run` makes: of root, of an ordinary user, of a user of the host."""

    def __init__(self, kind, world, daemon=None):
        self.kind, self.world, self.daemon = kind, world, daemon
        self.uid = 61000 + world.number() if daemon else world.user(kind).uid

    def folder(self):
        path = self.world.workdir()
        os.chown(path, self.uid, self.uid)
        return path

    def __call__(self, *argv, cwd=None, stdin=subprocess.DEVNULL):
        if not self.daemon:
            return self.world.run(*argv, cwd=cwd, user=self.kind, stdin=stdin)
        where = self.daemon.host.ns.command("env", "-C", str(cwd or "/"), str(self.daemon.program))
        done = subprocess.run([*where, "run", "--no-config", "--uid", str(self.uid), "--", *map(str, argv)],
                              env=self.daemon._env, stdin=stdin, capture_output=True, timeout=60, check=False)
        return Result(done.returncode, done.stdout, done.stderr, 0)

    def free(self, *argv, cwd=None):
        """The same user, and no sandbox."""
        return subprocess.run(["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", *map(str, argv)],
                              cwd=cwd, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(params=["root", "weir-test", "host"])
def inside(request, world):
    if request.param != "host":
        yield Inside(request.param, world)
        return
    with Host(world) as host:
        yield Inside(request.param, world, host.daemon())
