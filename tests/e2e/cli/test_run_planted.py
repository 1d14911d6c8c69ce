# SPDX-License-Identifier: Apache-2.0
"""G21: a program that somebody has put where $PATH leads isn't started in place of slirp4netns, pasta."""
import os
import stat
import subprocess

import pytest

PLANTED = r"""
#include <fcntl.h>
#include <unistd.h>
static const char options[] = "disable-dns no-map-gw";
int main(void) { close(open(MARK, O_WRONLY | O_CREAT, 0666)); return options[0] == 'x'; }
"""


@pytest.fixture
def tun(world):
    node = world.workdir() / "tun"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    node.chmod(0o666)
    return f"mount --bind '{node}' /dev/net/tun"


class Planted:
    """A directory in $PATH with a program that leaves a mark when it is started."""

    def __init__(self, world, name, owner):
        self.folder, marks = world.workdir(owner), world.workdir()
        marks.chmod(0o777)
        self.mark = marks / "started"
        source = marks / "planted.c"
        source.write_text(PLANTED)
        subprocess.run(["gcc", "-static", f'-DMARK="{self.mark}"', "-o", self.folder / name, source], check=True)
        os.chown(self.folder / name, self.folder.stat().st_uid, self.folder.stat().st_gid)
        self.env = {"PATH": f"{self.folder}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}


@pytest.mark.parametrize("name", ["slirp4netns", "pasta"])
def test_what_stands_in_path_before_the_systems_is_not_started(world, tun, user, name):
    planted = Planted(world, name, "weir-test")
    done = world.run("true", user=user, env=planted.env, options=("--uplink", name), mounts=(tun,))
    assert done.code == 0 and not planted.mark.exists(), done


@pytest.mark.parametrize("name", ["slirp4netns", "pasta"])
def test_where_the_system_has_none_only_roots_is_taken(world, tun, user, name):
    """The control is the same program, root's: that one is started."""
    cwd = world.workdir(user)
    mounts = (tun, f"mount --bind /dev/null {os.path.realpath('/usr/bin/' + name)}")
    for owner, taken in (("weir-test", False), ("root", True)):
        planted = Planted(world, name, owner)
        done = world.run("touch", "started", user=user, cwd=cwd, env=planted.env, options=("--uplink", name), mounts=mounts)
        assert done.code != 0 and planted.mark.exists() == taken and not (cwd / "started").exists(), done
        if not taken:
            assert done.code == 125 and str(planted.folder) in done.messages and "belongs to another user" in done.messages, done


def test_doctor_starts_nothing_planted_either(world):
    planted = [Planted(world, name, "weir-test") for name in ("slirp4netns", "pasta", "sudo")]
    for p in planted:
        world.weir("doctor", user="weir-test", env=p.env, resolv_conf=True)
        assert not p.mark.exists(), p.folder
