# SPDX-License-Identifier: Apache-2.0
"""A Docker Engine of the test's own, in a network namespace of the world.

Everything it has (data, sockets, containerd, bridges) is below one temporary folder and in
one network namespace; close() stops it, takes its mounts and control groups away and leaves
nothing. Images are made here, from scratch: no registry can be reached.

    engine = Engine(world)
    engine.app                           an image with this machine's /usr, to be mounted
    engine("run", "--rm", …)             the command line client; a failure is an AssertionError
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from .remains import remove
from .run import Result, read_answers
from .sidecar import Pod, remove_groups, request, request_local, wait_for
from .world import RESOLVER4

CLIENT = "/usr/bin/docker"
READY_SECONDS = 60


def client_programs():
    """True when this machine has what an engine needs."""
    return all(shutil.which(name) for name in ("dockerd", "containerd", "runc", "iptables")) \
        and os.path.exists(CLIENT)


class Engine:
    """dockerd. close() or the end of the block takes all of it away."""

    def __init__(self, world, runtimes=()):
        """@runtimes: scripts in its folder, by name and text."""
        self.world, self._runtimes = world, dict(runtimes)
        self.host = Pod(world, link="up0")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="docker-", dir=world.folder))
        self.log = self.folder / "log"
        self.socket = self.folder / "docker.sock"
        self._env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder),
                     "DOCKER_HOST": f"unix://{self.socket}", "DOCKER_BUILDKIT": "0", "LANG": "C.UTF-8",
                     "TMPDIR": str(self.folder)}
        self.host.ns.sysctl(ipv4__ip_forward=1)
        self._process = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        options = ["--data-root", self.folder / "data", "--exec-root", self.folder / "exec",
                   "--pidfile", self.folder / "pid", "--host", f"unix://{self.socket}",
                   "--storage-driver", "overlay2", "--dns", RESOLVER4, "--bip", "172.30.0.1/24",
                   "--default-address-pool", "base=172.31.0.0/16,size=24", "--shutdown-timeout", "1",
                   "--cgroup-parent", f"/weir-test-{os.getpid()}-docker"]
        for name, text in self._runtimes.items():
            script = self.folder / f"runtime-{name}"
            script.write_text(text)
            script.chmod(0o755)
            options += ["--add-runtime", f"{name}={script}"]
        # Its mounts are its own: a sandbox of another test would have to show them all.
        argv = self.host.ns.command("unshare", "--mount", "--propagation", "slave", "dockerd", *map(str, options))
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(argv, env=self._env, stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log, start_new_session=True)
        end = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"dockerd isn't there:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def _answers(self):
        try:
            return request_local(self.socket, "GET", "/_ping").status == 200
        except OSError:
            return False

    # the client

    def call(self, *args, input=None, timeout=60):
        """The client with @args. Return: Result."""
        began = time.monotonic()
        done = subprocess.run([CLIENT, *map(str, args)], env=self._env, input=input, timeout=timeout,
                              capture_output=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def __call__(self, *args, **options):
        done = self.call(*args, **options)
        if done.code:
            raise AssertionError(f"docker {' '.join(map(str, args))}: {done}")
        return done.text.strip()

    def inspect(self, name):
        """What it knows of a container. It is asked as the client would: a client that is started each time takes much longer."""
        reply = request_local(self.socket, "GET", f"/containers/{name}/json")
        assert reply.status == 200, reply
        return reply.json()

    def build(self, tag, folder, dockerfile, *args):
        """An image by `docker build`."""
        self("build", "--quiet", "--tag", tag, "--file", dockerfile, *args, folder, timeout=300)
        return tag

    def load_root(self, tag, root, *changes):
        """An image from a folder, with what `docker import --change` says."""
        tar = subprocess.Popen(["tar", "--xattrs", "--xattrs-include=security.capability", "-C", root,
                                "-c", "."], stdout=subprocess.PIPE)
        words = [w for change in changes for w in ("--change", change)]
        done = subprocess.run([CLIENT, "import", *words, "-", tag], stdin=tar.stdout, env=self._env,
                              capture_output=True, check=False)
        if tar.wait() or done.returncode:
            raise AssertionError(f"docker import: {done.stderr}")
        return tag

    @property
    def app(self):
        """An image without a file of its own: its /usr is this machine's."""
        if not self.call("image", "inspect", "app:test").code:
            return "app:test"
        root = self.folder / "app"
        for folder in ("usr", "etc", "tmp", "proc", "sys", "dev", "tools", "ca", "run"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            if not (root / link).is_symlink():
                (root / link).symlink_to(f"usr/{link}")
        return self.load_root("app:test", root)

    @property
    def app_mounts(self):
        return ("-v", "/usr:/usr:ro", "-v", "/etc/alternatives:/etc/alternatives:ro",
                "-v", f"{self.world.tools}:/tools:ro", "-v", f"{self.world.ca.cert.parent}:/ca:ro")

    def probe(self, network, *probes, options=("--cap-drop", "ALL", "--user", "1000:1000"), timeout=60):
        """Probes (probe.py) in a new container on @network."""
        text = self("run", "--rm", "-i", "--network", network, *options, *self.app_mounts, self.app,
                    "/usr/bin/python3", "-IS", "/tools/probe.pyc", input=json.dumps(probes).encode(),
                    timeout=timeout)
        answers = read_answers(Result(0, text.encode(), b"", 0), len(probes))
        return answers[0] if len(probes) == 1 else answers

    def exec_probe(self, container, *probes):
        """Probes in a container that runs already."""
        text = self("exec", "-i", container, "/usr/bin/python3", "-IS", "/tools/probe.pyc",
                    input=json.dumps(probes).encode())
        answers = read_answers(Result(0, text.encode(), b"", 0), len(probes))
        return answers[0] if len(probes) == 1 else answers

    # containers

    def address(self, container):
        networks = self.inspect(container)["NetworkSettings"]["Networks"]
        return next(n["IPAddress"] for n in networks.values() if n["IPAddress"])

    def published(self, container, port=18080):
        """(address, port) on the engine's host."""
        bound = self.inspect(container)["NetworkSettings"]["Ports"][f"{port}/tcp"]
        return "127.0.0.1", int(bound[0]["HostPort"])

    def api(self, container, method, path, body=None, token=None, port=18080, timeout=60):
        """A request to a container's own address, from the engine's host."""
        headers = {"OPENSANDBOX-EGRESS-AUTH": token} if token else {}
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        return request(self.host.ns, (self.address(container), port), method, path, body, headers, timeout)

    def ready(self, container, seconds=60):
        """Wait until /healthz says 200."""
        def healthy():
            if not self.inspect(container)["State"]["Running"]:
                logs = self.call("logs", container)
                raise AssertionError(f"{container} ended:\n{logs.text}\n{logs.messages}")
            with contextlib.suppress(OSError):
                return self.api(container, "GET", "/healthz", timeout=5).status == 200
            return False
        return wait_for(healthy, seconds, 0.02)

    def remove(self, *containers):
        self.call("rm", "-f", "-v", *containers)

    @contextlib.contextmanager
    def container(self, *args, name=None):
        """`docker run --detach` for the length of the block. Gives its name."""
        name = name or f"c{self.world.number()}"
        self("run", "--detach", "--name", name, *args)
        try:
            yield name
        finally:
            self.remove(name)

    # its end

    def close(self):
        if self._process and self._process.poll() is None:
            left = self.call("ps", "-aq").text.split()
            if left:
                self.remove(*left)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._sweep()
        self.host.close()

    def _sweep(self):
        """What a killed engine leaves: containerd and its shims, mounts, control groups."""
        for pid in _processes_of(str(self.folder)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        remove_groups(f"weir-test-{os.getpid()}-docker")
        remove(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _processes_of(folder):
    """The pids whose command line names @folder, this one apart."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if folder.encode() in pathlib.Path("/proc", entry, "cmdline").read_bytes():
                    yield int(entry)
