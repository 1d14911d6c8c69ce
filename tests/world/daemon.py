# SPDX-License-Identifier: Apache-2.0
"""`weir daemon` on a host of its own, a namespace with a link into the world, and its command line.

    host = Host(world)
    daemon = host.daemon()              it answers
    daemon.attach("name", pod, …)       `weir attach`, which has to succeed
    daemon.get("/sandboxes")            its API, over the unix socket
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from .expect import PATIENCE
from .mounts import own_mounts
from .program import Program, children, is_alive
from .run import Result
from .sidecar import Pod, policy, programs, request_local, wait_for
from .world import RESOLVER4

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def pid_in(pod, started):
    """The number of a process of @pod's, once it is in there: before, it is in the machine's own namespace."""
    def entered():
        return os.stat(f"/proc/{started.process.pid}/ns/net").st_ino == os.fstat(pod.ns.fd).st_ino
    wait_for(entered)
    return started.process.pid


class Host(Pod):
    """A namespace for the daemon; close() ends what runs there."""

    def __init__(self, world):
        super().__init__(world, link="up0")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="daemon-", dir=world.folder))
        self.daemons = []

    def daemon(self, *args, ready=True, **options):
        daemon = Daemon(self, args, **options)
        self.daemons.append(daemon)
        if ready:
            daemon.ready()
        return daemon

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
        super().close()
        for daemon in self.daemons:
            found = [line for line in daemon.errors if "AddressSanitizer" in line or "runtime error:" in line]
            assert not found, str(daemon)


class Daemon(Program):
    """On @host, a Pod; @folder is for what it keeps, @group a file in the place of /etc/group,
    @way what it is started by, @upstream whom it asks (None: resolv.conf says)."""

    def __init__(self, host, args=(), env=None, folder=None, group=None, way=(), upstream=RESOLVER4):
        self.host = host
        self.run_dir = (folder or host.folder) / "run"
        self.socket = self.run_dir / "weir.sock"
        self.program = programs(host.world)
        # the leak checker needs what this program forbids others
        self._env = {"PATH": _PATH, "ASAN_OPTIONS": "detect_leaks=0", "LANG": "C.UTF-8", "WEIR_SOCKET": str(self.socket), **(env or {})}
        way = [*own_mounts(f"mount --bind '{group}' /etc/group" if group else ""), *way]
        argv = host.ns.command(*way, str(self.program), "daemon", "--run-dir", str(self.run_dir),
                               *(["--dns-upstream", upstream] if upstream else []), *map(str, args))
        self._begin(argv, {"WEIR_STATE_DIR": "none", **self._env})

    # its API

    def call(self, method, path, body=None, timeout=PATIENCE):
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        return request_local(self.socket, method, path, body, timeout)

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def answers(self):
        """Whatever it says."""
        try:
            return self.get("/healthz", timeout=8).status > 0
        except OSError:
            return False

    def ready(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the daemon isn't ready ({self.process.poll()})\n{self}")
            time.sleep(0.005)

    # its command line

    def weir(self, *args, input=None, timeout=PATIENCE):
        """`weir` with @args, on the host. Return: run.Result."""
        began = time.monotonic()
        done = subprocess.run(self.host.ns.command(str(self.program), *map(str, args)), env=self._env, input=input,
                              cwd="/", capture_output=True, timeout=timeout, check=False)
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def attach(self, name, pod, *args, where=None):
        done = self.weir("attach", "--id", name, "--netns", where or pod.ns.path, *args)
        assert done.code == 0, f"{done}\n{self}"
        return done

    def set_policy(self, name, *rules, **options):
        reply = self.call("POST", f"/sandboxes/{name}/policy", policy(*rules, **options))
        assert reply.status == 200, f"{reply}\n{self}"

    def names(self):
        return [s["id"] for s in self.get("/sandboxes").json()["sandboxes"]]

    def status(self, name):
        return self.get(f"/sandboxes/{name}/status").json()

    def denies(self, name):
        return self.get(f"/sandboxes/{name}/denies").json()["denies"]

    # its processes

    def children(self, engine=0):
        """{name: pid} of its children; of those of the supervisor of another @engine."""
        found, pid = {}, self.pid if engine == 0 else self.children().get(f"daemon-{engine}")
        for child in children(pid):
            with contextlib.suppress(OSError):
                found[pathlib.Path(f"/proc/{child}/comm").read_text().strip().removeprefix("weir-")] = child
        return found

    def kill_child(self, name, engine=0):
        """SIGKILL, and wait until another one has taken its place and the daemon answers."""
        old = wait_for(lambda: self.children(engine).get(name))
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: self.children(engine).get(name, old) != old)
        wait_for(self.healthy)

    def kill(self):
        """All of it, at once."""
        children = self.children()
        for pid in (self.pid, *children.values()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: not any(is_alive(pid) for name, pid in children.items() if name != "engine"))

    def stop(self):
        """SIGTERM. Return: the exit status."""
        self.process.terminate()
        return self.ended()

    def ended(self):
        """Wait for its end, and for the last of what it says. Return: the exit status."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(10)
        return code
