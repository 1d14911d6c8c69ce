# SPDX-License-Identifier: Apache-2.0
"""What a test process that was killed has left: its programs, control groups, mounts, folders and namespaces.

sweep() takes away what is provably a test's whose process is dead: all of it carries that process's number in its
name, and programs run out of such a folder or were told of it. What belongs to a process that lives, or to no
test, stays. A number that another process has meanwhile keeps its things a while longer.
"""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

YOUNG_SECONDS = 600
LOCK = "/run/weir-tests.lock"
# Where tests make what: each name has the number of the test process in it.
FOLDERS = [(pathlib.Path(top), re.compile(rf"{name}(\d+)(-.*)?$"))
           for top, name in (("/var/lib", "weir-world-"), ("/var/lib", "weir-test-"), ("/tmp", "weir-pg-"),
                             ("/tmp", "weir-test-"), ("/tmp", "weir-cwd-"), ("/run", "weir-test-"))]
CGROUP = re.compile(r"weir-test-(\d+)(-.*)?$")
OURS = re.compile(rb"/var/lib/weir-(?:world|test)-(\d+)-")


def _is_dead(number):
    return not os.path.exists(f"/proc/{number}")


def _dead(top, pattern):
    """Paths in @top whose test process is dead."""
    with contextlib.suppress(OSError):
        for path in sorted(top.iterdir()):
            if (match := pattern.match(path.name)) and _is_dead(match[1]):
                yield path


def _is_among_us(pid):
    """Its tests' numbers are of our process namespace: those of a container say nothing here."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    return False


def _belongs_to_the_dead(pid):
    """It runs out of a test's folder, or was told of one, and that test is dead."""
    if not _is_among_us(pid):
        return False
    for what in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            numbers = OURS.findall(pathlib.Path("/proc", pid, what).read_bytes())
            if numbers:
                return all(_is_dead(int(n)) for n in numbers)
    return False


def _kill_programs():
    left = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _belongs_to_the_dead(pid)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def directories(top):
    """@top and all below, the deepest first; what somebody else removes meanwhile isn't among them."""
    return [pathlib.Path(path) for path, *_ in os.walk(top, topdown=False)]


def _remove_cgroup(top):
    """With who is in there. Return: whether it was a dead test's."""
    groups = directories(top)
    members = []
    for path in groups:
        with contextlib.suppress(OSError):
            members += (path / "cgroup.procs").read_text(encoding="ascii").split()
    if not all(_is_among_us(pid) for pid in members):
        return False
    # Nobody says whose an empty one is: it may be of a test in a container, where numbers are others.
    if not members and time.time() - top.stat().st_mtime < YOUNG_SECONDS:
        return False
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    for path in groups:
        end = time.monotonic() + 20
        while path.is_dir() and time.monotonic() < end:
            try:
                path.rmdir()
            except OSError:  # who was killed is still there
                time.sleep(0.01)
    return True


def _mounts_below(folder):
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        where = line.split()[4].encode().decode("unicode_escape")
        if where == str(folder) or where.startswith(f"{folder}/"):
            found.append(where)
    return found


def remove(path):
    """@path and all below it, but nothing of what is mounted there: that may be somebody else's, or the machine's /dev."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for where in reversed(_mounts_below(path)):
        subprocess.run(["umount", "-l", where], check=False, capture_output=True)
    if not _mounts_below(path):
        shutil.rmtree(path, ignore_errors=True)


def sweep():
    """Return: what was taken away, as text."""
    taken = []
    with open(LOCK, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes begin together
        taken += [f"process {pid}" for pid in _kill_programs()]
        for root in (pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*/")):
            for path in _dead(root, CGROUP):
                if _remove_cgroup(path):
                    taken.append(str(path))
        for path in _dead(pathlib.Path("/run/netns"), CGROUP):
            subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)
            taken.append(str(path))
        for top, pattern in FOLDERS:
            for path in _dead(top, pattern):
                with contextlib.suppress(OSError):
                    remove(path)
                    taken.append(str(path))
    return taken
