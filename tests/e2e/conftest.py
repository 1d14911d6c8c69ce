# SPDX-License-Identifier: Apache-2.0
"""What the tests share: uplinks, servers, pods, hosts, sandboxes to attack."""
import http.server
import json
import os
import socket
import stat
import subprocess
import time

import pytest

from world.apid import Api
from world.daemon import Host
from world.member import Tree
from world.run import Result
from world.sidecar import Pod, policy, wait_for
from world.world import RESOLVER4, RESOLVER6


@pytest.fixture
def in_order(request):
    """The module's tests are steps: those behind one that failed would only wait."""
    if getattr(request.module, "broken", False):
        pytest.skip("a step before has failed")
    before = request.session.testsfailed
    yield
    request.module.broken = request.session.testsfailed > before


@pytest.fixture(params=["slirp4netns", "pasta"])
def uplink(request):
    return request.param


@pytest.fixture(scope="session")
def tun(world):
    """Shell lines that let everyone open /dev/net/tun."""
    node = world.folder / "tun"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    node.chmod(0o666)
    return (f"mount --bind '{node}' /dev/net/tun",)


@pytest.fixture
def over(world, tun, uplink, user):
    """Probes in a sandbox with this uplink."""
    def probe(*probes, options=(), **rest):
        return world.probe(*probes, user=user, mounts=tun,
                           options=("--uplink", uplink, *options), **rest)
    return probe


@pytest.fixture(scope="session")
def ssh_server(world):
    """An sshd of the internet, with a key of its own; every login gets a greeting."""
    folder = world.folder / "ssh"
    folder.mkdir(mode=0o755)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "config").write_text(
        f"Port 22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\nStrictModes no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\nUseDNS no\n"
        'ForceCommand echo "welcome: $SSH_ORIGINAL_COMMAND"\n')
    (folder / "log").touch()
    script = "mount -t tmpfs none /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -f $0 -E $1"
    server = subprocess.Popen(world.internet.command("unshare", "--mount", "sh", "-c", script,
                                                     str(folder / "config"), str(folder / "log")))
    for family, address in (socket.AF_INET, "93.1.1.1"), (socket.AF_INET6, "2a01:93::1"):
        def is_served(family=family, address=address):
            with world.internet.socket(family, socket.SOCK_STREAM) as s:
                return s.connect_ex((address, 22)) == 0
        wait_for(is_served)
    yield folder / "client"
    server.terminate()
    server.wait(60)


@pytest.fixture
def api():
    """An API of its own, without a sidecar or a daemon behind it."""
    with Api() as a:
        yield a


@pytest.fixture
def pod(world):
    with Pod(world) as p:
        yield p


@pytest.fixture
def guarded(pod):
    """Start the sidecar with these rules: guarded("allow a.test", …). Return: Sidecar."""
    def start(*rules, default="deny", args=(), **options):
        return pod.sidecar(*args, rules=policy(*rules, default=default), **options)
    return start


@pytest.fixture
def hook(world):
    """An HTTP server of the internet, over TLS too. hook.calls: what was posted; hook.delay, hook.status: how it answers;
    hook.statuses: some paths otherwise."""
    class Hook:
        calls, delay, status, statuses = [], 0.0, 200, {}
    site = world.site(f"hook{world.number()}.test")
    Hook.calls, Hook.site, Hook.statuses = [], site, {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            Hook.calls.append((self.path, self.headers["Content-Type"], json.loads(body)))
            time.sleep(Hook.delay)
            self.send_response(Hook.statuses.get(self.path, Hook.status))
            self.send_header("Content-Length", "0")
            self.end_headers()

    def serve(conn, local, peer):
        conn.settimeout(10)
        if conn.recv(1, socket.MSG_PEEK) == b"\x16":
            conn = world.ca.context(site.name).wrap_socket(conn, server_side=True)
        Handler(conn, peer, None)
    service = world.tcp(8765 + world.number() % 500, serve)
    Hook.url = f"http://{site.name}:{service.port}/deny?x=1"
    Hook.secure_url = f"https://{site.name}:{service.port}/deny?x=1"
    yield Hook
    service.close()


@pytest.fixture
def host(world):
    with Host(world) as h:
        yield h


@pytest.fixture
def tree(host):
    """A scratch part of the control groups, which goes after the host's processes."""
    made = Tree()
    yield made
    host.close()
    made.close()


@pytest.fixture
def daemon(host):
    return host.daemon()


@pytest.fixture
def other(world):
    with Pod(world) as p:
        yield p


STANDARD = ("api.ok.test:443", "*.pkg.test:443")


class Attack:
    """Runs probes in one sandbox; afterwards `packets` and `names` say what came out."""

    def __init__(self, world):
        self.world = world
        self.packets = []   # all that arrived outside, queries to the resolver apart
        self.names = []     # names that the resolver was asked for, in order

    def probe(self, *probes, allow=STANDARD, **rest):
        return self._watched(self.world.probe, *probes, allow=allow, **rest)

    def run(self, *argv, allow=STANDARD, **rest):
        return self._watched(self.world.run, *argv, allow=allow, **rest)

    def calls(self, program, *calls, **rest):
        """What world/attack.c says to each of @calls in one sandbox, and the exit status behind it."""
        loop = 'for call; do said=$("$0" $call); echo "$said" $?; done'
        done = self.run("sh", "-c", loop, program, *(" ".join(map(str, c)) for c in calls), **rest)
        lines = done.text.splitlines()
        assert len(lines) == len(calls), done
        return [tuple(line.rsplit(" ", 1)) if " " in line else ("", line) for line in lines]

    def _watched(self, function, *args, **rest):
        before = len(self.world.dns.queries())
        with self.world.capture() as capture:
            result = function(*args, **rest)
            self.packets = [p for p in capture.packets()
                            if not (p.dst in (RESOLVER4, RESOLVER6) and p.dport == 53)]
            self.names = [q.name for q in self.world.dns.queries()[before:]]
        return result

    def assert_silent(self):
        """Not one packet left, to whomever."""
        assert self.packets == []
        assert self.names == []


@pytest.fixture(scope="session")
def has_int80(attack_program):
    """Whether this machine has the 32-bit entry at all: on some virtual ones the instruction is a fault, for everybody."""
    return subprocess.run([attack_program, "int80", "20"], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def names(world):
    """The names of the standard policy, and others that look like them."""
    for name in ("api.ok.test", "pkg.test", "*.pkg.test", "ok.test", "*.ok.test", "evil.test",
                 "*.evil.test", "evilpkg.test", "dns.google", "cloudflare-dns.com",
                 "mozilla.cloudflare-dns.com", "dns.nextdns.io", "metadata.google.internal"):
        world.site(name)
    return world.dns


@pytest.fixture
def attack(world, names):
    return Attack(world)


class Inside:
    """Runs commands in each kind of sandbox that `weir run` makes: of root, of an ordinary user, of a user of the host."""

    def __init__(self, kind, world, daemon=None):
        self.kind, self.world, self.daemon = kind, world, daemon
        self.uid = world.uid() if daemon else world.user(kind).uid

    def folder(self):
        path = self.world.workdir()
        os.chown(path, self.uid, self.uid)
        return path

    def __call__(self, *argv, cwd=None, stdin=subprocess.DEVNULL):
        if not self.daemon:
            return self.world.run(*argv, cwd=cwd, user=self.kind, stdin=stdin)
        where = self.daemon.host.ns.command("env", "-C", str(cwd or "/"), str(self.daemon.program))
        done = subprocess.run([*where, "run", "--no-config", "--uid", str(self.uid), "--", *map(str, argv)],
                              env=self.daemon._env, stdin=stdin, capture_output=True, timeout=60, check=False)
        return Result(done.returncode, done.stdout, done.stderr, 0)

    def free(self, *argv, cwd=None):
        """The same user, and no sandbox."""
        return subprocess.run(["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", *map(str, argv)],
                              cwd=cwd, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(params=["root", "weir-test", "host"])
def inside(request, world):
    if request.param != "host":
        yield Inside(request.param, world)
        return
    with Host(world) as host:
        yield Inside(request.param, world, host.daemon())
