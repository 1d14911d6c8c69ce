# SPDX-License-Identifier: Apache-2.0
"""A program of Weir that goes on: what it prints, and its children."""
import contextlib
import os
import pathlib
import subprocess
import threading


def children(pid):
    """Of the process @pid, now; none when it is gone."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pid):
    """Of the process @pid, now: each child, and behind it the descendants of that one."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def comm(pid):
    """Its name; empty when it is gone."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_alive(pid):
    """A process of which only the exit status is left isn't."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def link_of(path):
    """Where the link leads; nowhere when it is gone."""
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


class Program:
    """Whoever derives from it has get(), for the program's API."""

    def _begin(self, argv, env):
        self.lines, self.errors = [], []
        self.process = subprocess.Popen(argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True)
        self.pid = self.process.pid
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                         for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe, lines):
        with contextlib.suppress(ValueError, OSError):
            for line in pipe:
                lines.append(line.decode(errors="replace").rstrip("\n"))

    def healthy(self):
        try:
            return self.get("/healthz", timeout=8).status == 200
        except OSError:
            return False

    def __str__(self):
        return "\n".join(["--- stdout", *self.lines[-60:], "--- stderr", *self.errors[-60:]])
