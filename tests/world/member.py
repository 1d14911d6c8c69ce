# SPDX-License-Identifier: Apache-2.0
"""Processes of a host that are known by their cgroup or their user id.

    tree = Tree()                       a scratch part of the hierarchy; close() takes it away
    app = Member(host, tree.cgroup("a"))
    app.probe(["tcp", address, 443])    as in a Pod
    app = Member(host, uid=1203)
"""
import itertools
import os
import pathlib
import time

from . import enter
from .expect import PATIENCE
from .remains import directories
from .sidecar import APP_UID, Pod, policy, wait_for

_numbers = itertools.count(1)


def cgroup_root():
    """Of version 2; None: there is none."""
    for line in pathlib.Path("/proc/mounts").read_text(encoding="ascii").splitlines():
        _, path, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(path)
    return None


class Cgroup:
    def __init__(self, path, root):
        self.path, self.root = path, root
        path.mkdir()

    @property
    def level(self):
        return len(self.path.relative_to(self.root).parts)

    @property
    def number(self):
        return self.path.stat().st_ino

    @property
    def who(self):
        """As the drivers have it."""
        return f"cgroup:{self.number}:{self.level}"

    def below(self, name):
        return Cgroup(self.path / name, self.root)

    def make_again(self):
        """Under its name; the kernel gives it another number."""
        old = self.number
        wait_for(lambda: "populated 0" in (self.path / "cgroup.events").read_text())
        self.path.rmdir()
        self.path.mkdir()
        assert self.number != old


class Tree(Cgroup):
    def __init__(self):
        root = cgroup_root()
        super().__init__(root / f"weir-test-{os.getpid()}-{next(_numbers)}", root)

    cgroup = Cgroup.below

    def close(self):
        for path in directories(self.path):
            until = time.monotonic() + PATIENCE
            while path.is_dir():
                try:
                    path.rmdir()
                except OSError:  # a process that was killed is still there
                    assert time.monotonic() < until, path
                    time.sleep(0.01)


class Member:
    """On @host, a Pod: whoever is in @cgroup, or has @uid."""

    start, run, probe, probe_start = Pod.start, Pod.run, Pod.probe, Pod.probe_start

    def __init__(self, host, cgroup=None, uid=APP_UID):
        self.host, self.world, self.cgroup, self.uid = host, host.world, cgroup, uid
        self._started = host._started

    def argv(self, argv, uid=None, caps=(), nnp=False):
        inside = self.host.argv(argv, self.uid, caps, nnp)
        if not self.cgroup:
            return inside
        return enter.argv(["cgroup", self.cgroup.path / "cgroup.procs"], inside)


def attach_member(daemon, who, folder, name, *rules, **more):
    """Have @daemon guard @who, a Member or a Pod; the policy's file is put into @folder."""
    file = folder / f"{name}.json"
    file.write_text(policy(*rules, **more))
    if not isinstance(who, Member):
        daemon.attach(name, who, "--policy", file)
        return
    how = ("--cgroup", who.cgroup.path) if who.cgroup else ("--uid", who.uid)
    done = daemon.weir("attach", "--id", name, *how, "--policy", file)
    assert done.code == 0, f"{done}\n{daemon}"
