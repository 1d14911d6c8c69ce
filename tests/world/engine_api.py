# SPDX-License-Identifier: Apache-2.0
"""An engine whose API `weir container run` asks: Docker's or podman's, each with an image of Weir and one of an app.

    with api_engine(world, "docker") as engine:
        engine.run("--allow", site.name, "--", "probe…")        weir container run, to its end
        engine.start(…)                                         the same, as a Popen
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

from . import docker, podman
from .built import PROGRAMS, ROOT
from .run import Result, read_answers
from .sidecar import request_local, wait_for

KINDS = {"docker": docker, "podman": podman}
FOLDERS = ("usr", "etc", "tmp", "proc", "sys", "dev", "tools", "ca", "run", "work", "root")
PROBE = ("/usr/bin/python3", "-IS", "/tools/probe.pyc")


def staged_root(folder, *options):
    """The root of Weir's image, from the programs under test, as an archive."""
    subprocess.run([ROOT / "deploy/docker/rootfs", *options, "--tar", folder / "root.tar", PROGRAMS, folder / "root"],
                   check=True, capture_output=True)
    shutil.rmtree(folder / "root")
    return folder / "root.tar"


class ApiEngine:
    """@engine: docker.Engine or podman.Podman."""

    def __init__(self, world, kind):
        self.world, self.kind = world, kind
        self.engine = docker.Engine(world) if kind == "docker" else podman.Podman(world)
        self.host, self.folder = self.engine.host, self.engine.folder
        self._service = None
        try:
            self.socket = self.engine.socket if kind == "docker" else self._serve()
            self._images()
        except BaseException:
            self.close()
            raise

    def _serve(self):
        """podman answers at a socket only while its service runs."""
        socket = self.folder / "podman.sock"
        self._service = self.engine.spawn("system", "service", "--time", "0", f"unix://{socket}")
        wait_for(socket.exists)
        return socket

    def _images(self):
        context = self.folder / "weir-image"
        context.mkdir()
        tar = staged_root(context)
        if self.kind == "docker":
            self.engine.build("weir:latest", context, ROOT / "deploy/docker/Dockerfile.staged")
        else:
            self.engine("import", "--change", "USER 65532:65532", "--change", 'ENTRYPOINT ["/usr/bin/weir","sidecar"]',
                        tar, "weir:latest")
        root = self.folder / "app"
        for name in FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (root / link).symlink_to(f"usr/{link}")
        (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/tmp:/bin/sh\n")
        self.engine.load_root("app:test", root)

    def waiting_image(self, name="waiting", program="wait", becomes=None):
        """An image whose only program, called @program, waits; after a second it calls itself @becomes. Return: its tag."""
        root = self.folder / name
        root.mkdir()
        rename = f'sleep(1); prctl(PR_SET_NAME, "{becomes}");' if becomes else ""
        subprocess.run(["cc", "-static", "-x", "c", "-o", root / program, "-"], check=True,
                       input=b"#include <sys/prctl.h>\n#include <unistd.h>\nint main(void){%s for(;;)pause();}" % rename.encode())
        return self.engine.load_root(f"{name}:test", root, f'ENTRYPOINT ["/{program}"]')

    @property
    def variables(self):
        name = "DOCKER_HOST" if self.kind == "docker" else "CONTAINER_HOST"
        return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder), "LANG": "C.UTF-8",
                name: f"unix://{self.socket}"}

    def argv(self, *words, image="app:test", guard="sidecar"):
        mounts = [w for pair in ("/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro", f"{self.world.tools}:/tools:ro",
                                 f"{self.world.ca.cert.parent}:/ca:ro") for w in ("--volume", pair)]
        return self.host.ns.command(self.world.weir_path, "container", "run", "--engine", self.kind, "--image", image,
                                    "--guard", guard, *mounts, *map(str, words))

    def run(self, *words, input=b"", timeout=200, env=None, **options):
        """`weir container run` to its end. Return: Result. Weir itself gives an engine two minutes."""
        began = time.monotonic()
        try:
            done = subprocess.run(self.argv(*words, **options), env={**self.variables, **(env or {})}, input=input,
                                  capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            self._show_hang()
            raise
        if done.returncode == 125:
            self._show_log()
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def _show_hang(self):
        """What the containers are, by another process of the engine's, and what the service waits for."""
        if self._service:
            with contextlib.suppress(subprocess.TimeoutExpired):
                print(self.engine.call("ps", "--all", timeout=20))
            self._service.send_signal(signal.SIGQUIT)  # it writes the stacks of all its threads
            self._service.wait(60)
            self._show_log()

    def _show_log(self):
        """What the engine says of a start that failed, and how each container ended; pytest shows it where the test fails."""
        if self._service:
            print((self.folder / "log").read_text(errors="replace")[-20000:])
            print((self.folder / "tmp/events/events.log").read_text(errors="replace")[-5000:])

    def start(self, *words, pass_fds=(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options):
        return subprocess.Popen(self.argv(*words, **options), env=self.variables, stdin=stdin, stdout=stdout, stderr=stderr,
                                pass_fds=pass_fds)

    @contextlib.contextmanager
    def running(self, *words, **options):
        """One that runs: (Popen, what --info-fd said). It is killed at the end of the block, and everything has to go."""
        read, write = os.pipe()
        process = self.start("--info-fd", write, *words, pass_fds=(write,), **options)
        os.close(write)
        try:
            with os.fdopen(read) as process.info:
                line = process.info.readline()
                if not line:
                    self._show_log()
                    raise AssertionError(process.communicate(timeout=60))
                info = json.loads(line)

                def is_running():  # it is told of before it starts
                    if process.poll() is not None:
                        self._show_log()
                        raise AssertionError(process.communicate())
                    return self.engine.call("inspect", "--format", "{{.State.Running}}", info["id"]).text.strip() == "true"
                wait_for(is_running, step=0.02)
                yield process, info
        finally:
            process.kill()
            process.communicate(timeout=60)
        self.nothing_left()

    def probe(self, *probes, options=(), **more):
        """Probes (probe.py) in a new container."""
        done = self.run("--interactive", *options, "--", *PROBE, input=json.dumps(probes).encode(), **more)
        assert done.code == 0, done
        answers = read_answers(done, len(probes))
        return answers[0] if len(probes) == 1 else answers

    def exec_probe(self, container, *probes):
        """Probes in a container that runs already."""
        text = self.engine("exec", "-i", container, *PROBE, input=json.dumps(probes).encode())
        answers = read_answers(Result(0, text.encode(), b"", 0), len(probes))
        return answers[0] if len(probes) == 1 else answers

    def containers(self):
        reply = request_local(self.socket, "GET", "/containers/json?all=true")
        assert reply.status == 200, reply
        return [container["Id"] for container in reply.json()]

    def nothing_left(self):
        wait_for(lambda: not self.containers(), step=0.05)

    def close(self):
        if self._service:
            self._service.kill()
            self._service.wait()
        self.engine.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
