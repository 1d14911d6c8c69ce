# SPDX-License-Identifier: Apache-2.0
"""podman of the test's own, with its storage in one folder and in a namespace of the world.

It runs containers by runc (crun wants one cgroup hierarchy) through a wrapper that takes the
resource limits out of each container's description: a test machine may not raise any. Its locks
are files in that folder: those in shared memory are one set for all podmans of a user.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from .remains import remove
from .run import Result
from .sidecar import Pod, remove_groups
from .world import RESOLVER4

WRAPPER = """#!/usr/bin/python3 -IS
import json, os, sys
for flag, path in zip(sys.argv, sys.argv[1:]):
    bundle = flag in ("--bundle", "-b")
    if not bundle and flag not in ("--process", "-p"):
        continue
    path = os.path.join(path, "config.json") if bundle else path
    with open(path) as f:
        spec = json.load(f)
    (spec.get("process", {}) if bundle else spec).pop("rlimits", None)
    with open(path, "w") as f:
        json.dump(spec, f)
os.execv("/usr/sbin/runc", ["runc", *sys.argv[1:]])
"""


def client_programs():
    return all(shutil.which(name) for name in ("podman", "runc", "conmon"))


class Podman:
    """Calls of podman. close() removes every container, mount and file of it."""

    def __init__(self, world):
        self.world = world
        self.host = Pod(world, link="up0")
        self.host.ns.sysctl(ipv4__ip_forward=1)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="podman-", dir=world.folder))
        wrapper = self.folder / "runc"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        (self.folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        (self.folder / "registries.conf").write_text("unqualified-search-registries = []\n")
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\nrunroot = "{self.folder}/run"\ngraphroot = "{self.folder}/root"\n')
        (self.folder / "containers.conf").write_text(
            f'[containers]\ndns_servers = ["{RESOLVER4}"]\ndefault_sysctls = []\n'
            f'[network]\nnetwork_config_dir = "{self.folder}/networks"\n'
            f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nlock_type = "file"\nruntime = "wrapped"\n'
            f'infra_image = "pause:test"\nhelper_binaries_dir = ["/usr/lib/podman", "/usr/libexec/podman"]\n'
            f'tmp_dir = "{self.folder}/tmp"\nstatic_dir = "{self.folder}/static"\n'
            f'volume_path = "{self.folder}/volumes"\n[engine.runtimes]\nwrapped = ["{wrapper}"]\n')
        for name in ("networks", "tmp", "static", "run", "home", "volumes"):
            (self.folder / name).mkdir()
        self._env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder / "home"),
                     "CONTAINERS_CONF": str(self.folder / "containers.conf"), "LANG": "C.UTF-8",
                     "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
                     "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
                     "TMPDIR": str(self.folder / "tmp"), "XDG_RUNTIME_DIR": str(self.folder / "run")}
        self._pause()

    def _pause(self):
        """An image whose only program waits, for the pods' own containers."""
        root = self.folder / "pause"
        (root / "bin").mkdir(parents=True)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        (root / "pause").symlink_to("bin/busybox")
        os.symlink("busybox", root / "bin/sleep")
        os.unlink(root / "pause")
        self.load_root("pause:test", root, 'ENTRYPOINT ["/bin/sleep","1000000"]')

    def call(self, *args, input=None, timeout=60):
        began = time.monotonic()
        argv = self.host.ns.command("podman", *map(str, args))
        done = subprocess.run(argv, env=self._env, input=input, timeout=timeout, capture_output=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def spawn(self, *args):
        """A call that goes on."""
        with open(self.folder / "log", "wb") as log:
            return subprocess.Popen(self.host.ns.command("podman", *map(str, args)), env=self._env, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log)

    def __call__(self, *args, **options):
        done = self.call(*args, **options)
        if done.code:
            raise AssertionError(f"podman {' '.join(map(str, args))}: {done}")
        return done.text.strip()

    def load_root(self, tag, root, *changes):
        """An image from a folder, with what `podman import --change` says."""
        archive = self.folder / "tmp" / f"{self.world.number()}.tar"
        subprocess.run(["tar", "--xattrs", "--xattrs-include=security.capability", "-C", root, "-cf", archive, "."],
                       check=True)
        words = [w for change in changes for w in ("--change", change)]
        self("import", *words, archive, tag)
        archive.unlink()
        return tag

    def close(self):
        self.call("pod", "rm", "-fa", "-t", "0")
        self.call("rm", "-fa", "-t", "0")
        self._remove_groups()
        self.host.close()
        remove(self.folder)

    def _remove_groups(self):
        """podman leaves control groups, empty. Those of another podman's containers are empty at first, and have to stay."""
        for known in set(re.findall('"ID":"([0-9a-f]{64})"', (self.folder / "tmp/events/events.log").read_text())):
            remove_groups(f"libpod_parent/{known}")
            remove_groups(f"libpod_parent/libpod-{known}")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
