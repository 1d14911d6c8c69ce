# SPDX-License-Identifier: Apache-2.0
"""A machine of its own: this one's /usr under a systemd that is PID 1, on a host of the world.

    machine = Machine(host, build)      Weir is installed from that build; @host is a Pod
    machine("systemctl", "start", …)    a failure is an AssertionError
    machine.unit("job.service", text)

Everything else of the file system is in memory, and ends with its processes.
"""
import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time

from .member import cgroup_root
from .program import children
from .remains import directories, remove
from .run import Result
from .sidecar import wait_for

SYSTEMD = "/lib/systemd/systemd"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a machine without hardware has no use for, and what would ask this one's.
MASKED = ("systemd-udevd.service systemd-udev-trigger.service systemd-networkd.service systemd-resolved.service dbus.service "
          "dbus.socket systemd-logind.service systemd-timesyncd.service systemd-random-seed.service systemd-firstboot.service "
          "systemd-journal-flush.service systemd-update-utmp.service systemd-hwdb-update.service getty.target "
          "dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount "
          "sys-kernel-config.mount proc-sys-fs-binfmt_misc.automount").split()
BOOT = """
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir usr proc sys dev dev/pts dev/shm run tmp var var/lib var/log root home mnt old etc etc/systemd etc/systemd/system
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
for name in passwd group shadow nsswitch.conf ld.so.cache os-release alternatives ssl hosts; do
    [ ! -e /etc/$name ] || cp -aL /etc/$name etc/
done
cp "$3" etc/resolv.conf
echo 0123456789abcdef0123456789abcdef >etc/machine-id
for name in $4; do ln -s /dev/null etc/systemd/system/$name; done
mkdir upper work
mount -t overlay overlay -o lowerdir=/usr,upperdir=$PWD/upper,workdir=$PWD/work usr
cp -a "$2/." .
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
for name in null zero full random urandom tty; do : >dev/$name; mount --bind /dev/$name dev/$name; done
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd; : >dev/console
pivot_root . old
umount -l old
mount --make-rshared /
exec env -i container=weir-test PATH=$PATH /lib/systemd/systemd --unit=multi-user.target --show-status=0 --log-target=journal </dev/null >/dev/null 2>&1
"""


def can_boot():
    """True where this machine has a systemd, and control groups for it."""
    return bool(os.path.exists(SYSTEMD) and cgroup_root() and shutil.which("systemctl"))


class Machine:
    def __init__(self, host, build):
        self.host = host
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="machine-", dir=host.world.folder))
        self._group = cgroup_root() / f"weir-test-machine-{os.getpid()}"
        self._group.mkdir()
        root = self.folder / "installed"
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root], check=True,
                       stdout=subprocess.DEVNULL)
        (self.folder / "root").mkdir()
        script = f"echo $$ >{self._group}/cgroup.procs; exec \"$@\""
        argv = ["sh", "-c", script, "sh", "unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child",
                "--propagation", "private", "sh", "-c", BOOT, "sh", self.folder / "root", root, host.resolv_conf, " ".join(MASKED)]
        self.process = subprocess.Popen(host.ns.command(*map(str, argv)), stdin=subprocess.DEVNULL, start_new_session=True,
                                        env={"PATH": PATH})
        try:
            self.pid = wait_for(self._first)
            wait_for(lambda: self.call("systemctl", "is-system-running").text.strip() in ("running", "degraded"), step=0.05)
        except BaseException:
            self.close()
            raise

    def _first(self):
        """Its PID 1, from outside, once that is systemd."""
        if self.process.poll() is not None:
            raise AssertionError(f"it did not boot: {self.process.returncode}")
        for pid in children(self.process.pid):
            if "systemd" in os.readlink(f"/proc/{pid}/exe"):
                return pid
        return None

    def call(self, *args, timeout=60, input=None):
        """Run @args in there, in the control group user.slice. Return: Result."""
        began = time.monotonic()
        place = next(p for p in (self._group / "user.slice", self._group / "init.scope", self._group) if p.is_dir())
        script = f"echo $$ >{shlex.quote(str(place))}/cgroup.procs; exec \"$@\""
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-u", "-i", "-C", "env", "-i", f"PATH={PATH}", "LANG=C.UTF-8",
                  "HOME=/root", *map(str, args)]
        done = subprocess.run(["sh", "-c", script, "sh", *inside], input=input, capture_output=True, timeout=timeout, check=False)
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def __call__(self, *args, **options):
        done = self.call(*args, **options)
        assert done.code == 0, f"{' '.join(map(str, args))}: {done}\n{self.journal()}"
        return done.text

    def journal(self):
        return self.call("journalctl", "--no-pager", "-n", "40").text

    def at(self, path):
        """A path of the machine's, from outside."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def file(self, path, text):
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)

    def unit(self, name, text):
        self.file(f"/etc/systemd/system/{name}", text)
        self("systemctl", "daemon-reload")

    def shown(self, unit, what):
        return self("systemctl", "show", unit, "-p", what, "--value").strip()

    def _leave(self):
        (self._group / "cgroup.kill").write_text("1")
        end = time.monotonic() + 60
        while self._group.is_dir() and time.monotonic() < end:
            for group in directories(self._group):
                with contextlib.suppress(OSError):
                    group.rmdir()
            time.sleep(0.01)

    def close(self):
        self.process.kill()
        self.process.wait()
        self._leave()
        remove(self.folder)
