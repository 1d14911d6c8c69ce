# SPDX-License-Identifier: Apache-2.0
"""Mount namespaces of a command's own, and machines whose mounts are shared, as systemd makes them.

    own_mounts("mount --bind a b", *argv)   the argv that runs @argv with that done
    with SharedMounts() as machine:         what is started meanwhile runs on a machine of its own, in which
        machine.gone(), machine.new()       every mount is shared: what has been unmounted there, and mounted

With WEIR_SHARED_MOUNTS set (`tests/run shared`) each command has such mounts; nothing that it does to them reaches
the machine.
"""
import os
import pathlib
import subprocess

from . import enter

SHARED = bool(os.environ.get("WEIR_SHARED_MOUNTS"))
_machines = []

# As in a container by default: a part of each /proc is hidden, and the kernel lets nobody in a user namespace mount another.
MASKED_PROC = ("grep ' - proc ' /proc/self/mountinfo | cut -d' ' -f5 | while read -r p; do mount --bind /dev/null \"$p/version\"; done",)


def own_mounts(script, *argv, cwd="/"):
    steps = enter.binds(script) if script and not _machines and not SHARED else None
    if steps:
        return enter.argv(steps, argv)
    script = f'set -e; {script}; exec "$@"' if script else 'exec "$@"'
    if _machines:
        return ["nsenter", f"--mount=/proc/{_machines[-1].pid}/ns/mnt", "sh", "-c", f"cd '{cwd}'; {script}", "sh", *argv]
    if SHARED:
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", f"mount --make-rshared /; {script}", "sh", *argv]
    return ["unshare", "--mount", "sh", "-c", script, "sh", *argv] if script != 'exec "$@"' else list(argv)


# What other tests have mounted, and their containers: the kernel takes the copies away when the directory is removed.
OTHERS = r"""for m in $(cut -d' ' -f5 /proc/self/mountinfo | grep -E '^/(var/lib|tmp|run)/'); do umount -l "$m" 2>/dev/null || :; done"""


class SharedMounts:
    """A mount namespace with a copy of all mounts. They are shared with each other's copies, and not with the
    machine's own. @script: shell lines that run in it first."""

    def __init__(self, script="true"):
        self._keeper = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-ec",
                                         f"{OTHERS}; mount --make-rshared /; {script}; echo; exec sleep 3600"], stdout=subprocess.PIPE)
        assert self._keeper.stdout.readline() == b"\n", script
        self.pid = self._keeper.pid
        self._first, self._lines_at_first = self._mounts(), self._lines()
        assert all("shared:" in line for line in self._lines_at_first)

    def _lines(self):
        return pathlib.Path(f"/proc/{self.pid}/mountinfo").read_text(encoding="utf-8").splitlines()

    def _mounts(self):
        return {(line.split()[4], line.rsplit(" - ")[1].split()[0]) for line in self._lines()}

    def gone(self):
        """Where something was mounted at the start, and its type, that is not there any more."""
        return self._first - self._mounts()

    def new(self):
        """The lines about what is mounted, or mounted otherwise, since the start."""
        return set(self._lines()) - set(self._lines_at_first)

    def __enter__(self):
        _machines.append(self)
        return self

    def __exit__(self, *exc):
        _machines.remove(self)
        self._keeper.kill()
        self._keeper.wait()
        self._keeper.stdout.close()
