# SPDX-License-Identifier: Apache-2.0
"""What a killed test process leaves is taken away by the next, and nothing else."""
import fcntl
import os
import pathlib
import subprocess
import sys

import pytest

from world import remains
from world.member import cgroup_root
from world.sidecar import wait_for


def dead_number():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def alive(process):
    return process.poll() is None


class Left:
    """As by the test process @number: a folder with a mount in it, a program that was told of it, a namespace, and a
    control group with a program inside."""

    def __init__(self, number):
        with open(remains.LOCK, "w", encoding="ascii") as lock:  # nobody sweeps half of it
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._make(number)

    def _make(self, number):
        name = f"weir-test-{number}-remains"
        self.folder = pathlib.Path(f"/var/lib/weir-world-{number}-remains")
        (self.folder / "disk").mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", self.folder / "disk"], check=True)
        (self.folder / "disk" / "file").touch()
        self.told = subprocess.Popen(["sleep", "60"], env={"WHERE": f"{self.folder}/tools"})
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.netns = pathlib.Path("/run/netns", name)
        self.member = subprocess.Popen(["sleep", "60"])
        root = cgroup_root()
        self.cgroup = root / name if root else None
        if root:
            (self.cgroup / "below").mkdir(parents=True)
            (self.cgroup / "below" / "cgroup.procs").write_text(str(self.member.pid))

    @property
    def paths(self):
        return [p for p in (self.folder, self.netns, self.cgroup) if p]

    def close(self):
        for process in (self.told, self.member):
            process.kill()
            process.wait()
        subprocess.run(["umount", self.folder / "disk"], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--one-file-system", self.folder], check=True)
        subprocess.run(["ip", "netns", "del", self.netns.name], check=False, capture_output=True)
        for path in (self.cgroup / "below", self.cgroup) if self.cgroup else ():
            if path.exists():
                wait_for(lambda path=path: not (path / "cgroup.procs").read_text())
                path.rmdir()


@pytest.fixture
def left():
    made = []

    def make(number):
        made.append(Left(number))
        return made[-1]
    yield make
    for one in made:
        one.close()


def test_what_the_dead_have_left_goes(left):
    one = left(dead_number())
    remains.sweep()
    wait_for(lambda: not alive(one.told))
    assert not [p for p in one.paths if p.exists()]
    assert str(one.folder) not in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8")
    if one.cgroup:
        wait_for(lambda: not alive(one.member))


def test_what_the_living_have_stays(left, tmp_path):
    one = left(os.getpid())
    bystander = tmp_path / f"weir-world-{dead_number()}-x"
    bystander.mkdir()
    remains.sweep()
    assert all(p.exists() for p in one.paths) and (one.folder / "disk" / "file").exists()
    assert alive(one.told) and alive(one.member) and bystander.exists()


def test_what_is_empty_stays_when_a_container_sweeps():
    """There the numbers of processes are others, and all of ours look dead."""
    root = cgroup_root()
    if not root:
        pytest.skip("no cgroup v2 here")
    group = root / f"weir-test-{os.getpid()}-empty"
    (group / "below").mkdir(parents=True)
    try:
        done = subprocess.run(["unshare", "--pid", "--mount-proc", "--fork", sys.executable, "-c",
                               "import pathlib, sys, world.remains as r\n"
                               "print(r._is_dead(sys.argv[1]), r._remove_cgroup(pathlib.Path(sys.argv[2])))",
                               str(os.getpid()), group], cwd=pathlib.Path(__file__).parents[1],
                              capture_output=True, text=True, check=True)
        assert done.stdout == "True False\n" and (group / "below").is_dir(), done
    finally:
        (group / "below").rmdir()
        group.rmdir()


def test_what_is_mounted_in_a_folder_outlives_it(tmp_path):
    """The folder goes, and what somebody has mounted there, the machine's /dev for example, stays as it was."""
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "null").touch()
    (tmp_path / "folder" / "dev").mkdir(parents=True)
    script = "mount --bind machine folder/dev && exec python3 -c 'import pathlib, world.remains as r; r.remove(pathlib.Path(\"folder\").resolve())'"
    subprocess.run(["unshare", "--mount", "sh", "-c", script.replace("python3", sys.executable)], cwd=tmp_path, check=True,
                   env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[1])})
    assert (tmp_path / "machine" / "null").exists() and not (tmp_path / "folder" / "dev" / "null").exists()


def test_directories_that_somebody_else_removes_meanwhile_are_left_out(tmp_path):
    """Two tests with an engine clean up below one control group."""
    (tmp_path / "stays").mkdir()
    script = "while :; do mkdir -p $0/a/b $0/c/d; rmdir $0/a/b $0/a $0/c/d $0/c; done"
    with subprocess.Popen(["sh", "-c", script, tmp_path]) as churn:
        try:
            found = [remains.directories(tmp_path) for _ in range(2000)]
        finally:
            churn.kill()
    assert all(f[-1] == tmp_path and tmp_path / "stays" in f for f in found)
    assert any(len(f) > 2 for f in found)
    assert remains.directories(tmp_path / "none") == []
