# SPDX-License-Identifier: Apache-2.0
"""The world in which Weir is tested: two network namespaces and a small internet.

    this process                    "host" namespace              "internet" namespace
    pytest, or a shell       starts  weir run …           up0 ──── net0   every address that
    the servers' threads             5.100.0.2                            there is, v4 and v6
                                     2a01:5100::2                         DNS, HTTP(S), echo …

HOW IT WORKS
Every address that isn't the host's own is local in the internet namespace (a `local
default` route), so a server that listens on a port there answers for the whole world,
and whatever a sandbox lets out arrives on net0, where a capture counts it. Neighbours
are permanent and link-local addresses are off: the link is silent unless somebody sends.
The machine's own network is in no namespace of ours, so nothing can reach it.

By hand:  python3 tests/world/world.py shell
gives a root shell in the host namespace, with /etc/resolv.conf of the world.
"""
import contextlib
import fcntl
import importlib
import itertools
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    __package__ = "world"
    importlib.import_module("world")  # for the relative imports below

from . import enter, remains
from .capture import Capture
from .dnsd import DnsServer
from .expect import PATIENCE
from .listen import TcpService, UdpService
from .mounts import own_mounts
from .netns import NetNs
from .run import finish, read_answers, start
from .web import Authority, WebServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent

HOST4, HOST6 = "5.100.0.2", "2a01:5100::2"
PODS4, PODS6 = "5.0.0.0/8", "2a01:5110::/32"
GATEWAY4, GATEWAY6 = "5.100.0.1", "2a01:5100::1"
DOCKER4 = "172.17.0.1"      # an address of the host towards containers
LAN4 = "192.168.77.5"       # another machine of the host's local network
RESOLVER4, RESOLVER6 = "5.100.53.53", "2a01:5353::53"
METADATA4 = "169.254.169.254"
FOLDERS = "weir-world-"     # in /var/lib, with the pid of the test process behind it
ECHO_PORT = 7007            # TCP and UDP
# What programs built with sanitizers are told, where tests/run says so.
SANITIZERS = {name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ}

_HOST_MAC, _NET_MAC = "02:00:00:00:00:02", "02:00:00:00:00:01"
_IPV6 = {"conf/all/accept_dad": 0, "conf/default/accept_dad": 0,
         "conf/all/disable_ipv6": 0, "conf/default/disable_ipv6": 0,
         "conf/default/addr_gen_mode": 1, "conf/default/accept_ra": 0,
         "conf/default/router_solicitations": 0}


def make_user(name):
    """An ordinary user, where the machine doesn't have it: by one test process at a time."""
    with open(remains.LOCK, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name not in (entry.pw_name for entry in pwd.getpwall()):
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)


class User:
    """Who runs Weir: root, or an ordinary user made for it."""

    def __init__(self, name):
        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid, self.home = name, entry.pw_uid, entry.pw_gid, entry.pw_dir
        self.groups = os.getgrouplist(name, self.gid)

    def entering(self, argv):
        """What runs @argv as this user."""
        return enter.argv(enter.user(self.uid, self.gid, self.groups), argv) if self.uid else list(map(str, argv))

    def become(self):
        """The argv prefix that turns root into this user."""
        if self.uid == 0:
            return []
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups",
                "--inh-caps=-all", "--"]


class Site:
    """A name with addresses of its own: nobody else in the world has them."""

    def __init__(self, name, v4, v6):
        self.name, self.v4, self.v6 = name, v4, v6


class World:
    """All of it. close() or the end of the process takes everything away."""

    def __init__(self, program=None):
        self._exit = contextlib.ExitStack()
        try:
            self._build(program)
        except BaseException:
            self._exit.close()
            raise

    def _build(self, program):
        self._numbers, self._users = itertools.count(1), {}
        self._program = pathlib.Path(program or os.environ.get("WEIR") or ROOT / "build" / "weir")
        # Not below /tmp, /var/tmp, /run or /dev: a sandbox has its own of those.
        remains.sweep()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{FOLDERS}{os.getpid()}-", dir="/var/lib"))
        self._exit.callback(remains.remove, self.folder)
        self.folder.chmod(0o755)
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        # Compiled once, by the interpreter that runs it: it starts in half of the time.
        subprocess.run(["/usr/bin/python3", "-IS", "-c", "import py_compile, sys; py_compile.compile(*sys.argv[1:], doraise=True)",
                        HERE / "probe.py", self.tools / "probe.pyc"], check=True)
        enter.compile_in(self.tools)
        self.internet = self._own(NetNs())
        self.host = self._own(self._sparse())
        self._link()
        self.resolv_conf = self.folder / "resolv.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER4}\n")
        (self.folder / "ca").mkdir(mode=0o755)
        (self.folder / "git").mkdir()
        self.ca = Authority(self.folder / "ca")
        self.dns = self._own(DnsServer(self.internet))
        self.web = self._own(WebServer(self.internet, self.ca, self.folder / "git"))
        self.echo = self.tcp(ECHO_PORT)
        self.udp_echo = self.udp(ECHO_PORT)

    def _own(self, thing):
        self._exit.callback(thing.close)
        return thing

    @staticmethod
    def _sparse():
        """A namespace with a short table of connections, where the kernel knows of that: each capture reads the table."""
        with contextlib.closing(NetNs()) as parent, parent.entered():
            with contextlib.suppress(OSError):
                parent.sysctl(ipv4__tcp_child_ehash_entries=1024)
            return NetNs()

    def _link(self):
        for ns in (self.internet, self.host):
            for name, value in _IPV6.items():
                ns.sysctl(**{"ipv6/" + name: value})
        self.host.ip(
            "link set lo up",
            f"link add up0 address {_HOST_MAC} type veth peer name net0 address {_NET_MAC} "
            f"netns {self.internet.path}",
            "link set up0 up", f"address add {HOST4}/24 dev up0", f"address add {DOCKER4}/16 dev lo",
            f"neighbour add {GATEWAY4} lladdr {_NET_MAC} dev up0 nud permanent",
            f"route add default via {GATEWAY4}")
        self.host.ip(
            f"address add {HOST6}/64 dev up0 nodad",
            f"neighbour add {GATEWAY6} lladdr {_NET_MAC} dev up0 nud permanent",
            f"route add default via {GATEWAY6}", family=6)
        self.internet.ip("link set lo up", "link set net0 up")
        self.internet.sysctl(ipv6__ip_nonlocal_bind=1)
        for family, host, gateway, pods, everything in (
                (4, HOST4, f"{GATEWAY4}/32", PODS4, "0.0.0.0/0"),
                (6, HOST6, f"{GATEWAY6}/128", PODS6, "::/0")):
            self.internet.ip(
                f"address add {gateway} dev net0",
                f"neighbour add {host} lladdr {_HOST_MAC} dev net0 nud permanent",
                f"route add {host} dev net0",
                # The host and pods (sidecar.py) are looked for first; whatever else there is is here.
                f"rule add pref 5 to {host} lookup main", f"rule add pref 5 to {pods} lookup main", "rule del pref 0",
                "rule add pref 10 lookup local",
                f"route add local {everything} dev lo table local", family=family)

    def close(self):
        self._exit.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # the internet

    def number(self):
        """A number that nobody else in this world has."""
        return next(self._numbers)

    def uid(self):
        """A user's number that nobody else has, other test processes of the machine included: tests kill all of a user's."""
        return 1_000_000_000 + os.getpid() % 1_000_000 * 1000 + self.number() % 1000

    def address(self):
        """A global-looking IPv4 address that nobody else uses."""
        n = self.number()
        return f"93.{100 + (n >> 16)}.{n >> 8 & 255}.{n & 255}"

    def address6(self):
        return f"2a01:93::{self.number():x}"

    def site(self, name, **options):
        """Give @name fresh addresses in the DNS. Every server of the world serves it."""
        site = Site(name, self.address(), self.address6())
        self.dns.add(name, site.v4, site.v6, **options)
        return site

    def tcp(self, port, *args, where=None, **options):
        """A TCP service on the internet (or in another namespace): see listen.py."""
        return self._own(TcpService(where or self.internet, port, *args, **options))

    def udp(self, port, *args, where=None, **options):
        return self._own(UdpService(where or self.internet, port, *args, **options))

    def repository(self):
        """A bare repository with one commit, served as /git/tree.git."""
        bare = self.folder / "git" / "tree.git"
        if not bare.exists():
            work = self.workdir()
            (work / "file").write_text("content\n")
            for args in (["init", "-q"], ["add", "file"],
                         ["-c", "user.name=t", "-c", "user.email=t@t.test", "commit", "-qm", "one"],
                         ["clone", "-q", "--bare", ".", str(bare)]):
                subprocess.run(["git", *args], cwd=work, check=True)
        return bare

    def capture(self):
        """What arrives on the internet's side of the link from now on."""
        return Capture(self.internet, "net0", self._connections())

    def _connections(self):
        """Ports of the host's that connections have, those that have nearly ended among them."""
        found = set()
        with self.host.entered():
            for table in ("tcp", "tcp6"):
                with open(f"/proc/thread-self/net/{table}", encoding="ascii") as f:
                    rows = [line.split() for line in f][1:]
                found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] != "0A"}  # what listens has none
        return found

    # running programs

    @property
    def weir_path(self):
        """A copy of the program that every user can reach."""
        copy = self.folder / "bin" / "weir"
        if not copy.exists():
            if not self._program.exists():
                raise AssertionError(f"{self._program} does not exist: build it, or set WEIR")
            copy.parent.mkdir(exist_ok=True)
            for name in ("weir-events", "weir"):
                beside = self._program.resolve().parent / name
                source = self._program if name == "weir" else beside
                if source.exists():
                    shutil.copy(source, copy.parent / name)
                    (copy.parent / name).chmod(0o755 if name == "weir" else 0o111)  # as they are installed
        return copy

    def user(self, name):
        """root or an ordinary user, mostly weir-test, who is made when the machine doesn't have it."""
        if name not in self._users:
            make_user(name)
            self._users[name] = User(name)
        return self._users[name]

    def workdir(self, user="root"):
        """A fresh folder that @user can write to and a sandbox can see."""
        who = self.user(user or "root")
        path = self.folder / "work" / str(self.number())
        path.mkdir(parents=True)
        os.chown(path, who.uid, who.gid)
        return path

    def start(self, argv, user=None, cwd=None, env=None, resolv_conf=None, mounts=(), **options):
        """Start @argv in the host namespace. Return: run.Started.

        @resolv_conf: a file that this command sees as /etc/resolv.conf (True: the world's).
        @mounts: shell lines that run as root in a mount namespace of the command's own.
        """
        who = self.user(user or "root")
        if resolv_conf:
            source = self.resolv_conf if resolv_conf is True else resolv_conf
            mounts = (f"mount --bind '{source}' /etc/resolv.conf", *mounts)
        cwd = cwd or self.workdir(who.name)
        surroundings = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8",
                        "HOME": who.home, "USER": who.name, "TERM": "xterm",
                        "SSL_CERT_FILE": str(self.ca.cert), "CURL_CA_BUNDLE": str(self.ca.cert),
                        "GIT_SSL_CAINFO": str(self.ca.cert),
                        "NODE_EXTRA_CA_CERTS": str(self.ca.cert), **SANITIZERS, **(env or {})}
        whole = self.host.command(*own_mounts("; ".join(mounts), *who.entering(argv), cwd=cwd))
        return start(whole, cwd=cwd, env=surroundings, **options)

    def weir(self, *args, input=None, timeout=PATIENCE, **options):
        """Run the program to its end. Return: run.Result."""
        return finish(self.start([self.weir_path, *args], **options), input, timeout)

    def command(self, *argv, input=None, timeout=PATIENCE, **options):
        """Run something else in the host namespace to its end."""
        return finish(self.start(argv, **options), input, timeout)

    def run(self, *argv, allow=(), deny=(), options=(), upstream=RESOLVER4, **rest):
        """`weir run` of @argv with these rules, to its end."""
        return self.weir(*self.run_args(argv, allow, deny, options, upstream), **rest)

    def run_start(self, *argv, allow=(), deny=(), options=(), upstream=RESOLVER4, **rest):
        """`weir run` of @argv with these rules, started."""
        return self.start([self.weir_path, *self.run_args(argv, allow, deny, options, upstream)],
                          **rest)

    @staticmethod
    def run_args(argv, allow, deny, options, upstream):
        rules = [word for rule in allow for word in ("--allow", rule)]
        rules += [word for rule in deny for word in ("--deny", rule)]
        asked = ["--upstream", upstream] if upstream else []
        return ["run", *asked, *rules, *map(str, options), "--", *map(str, argv)]

    def probe(self, *probes, **rest):
        """Run probes (see probe.py) in one sandbox. Return: one Answer per probe.

        A single probe gives its Answer alone.
        """
        argv = ["/usr/bin/python3", "-IS", self.tools / "probe.pyc"]
        done = self.run(*argv, input=json.dumps(probes).encode(), **rest)
        answers = read_answers(done, len(probes))
        return answers[0] if len(probes) == 1 else answers

    # what is there, and what stayed behind

    def processes(self):
        """The pids that run with this world's environment, Weir's and its commands', or its copy of Weir: some of Weir's wipe theirs."""
        mark, programs = f"SSL_CERT_FILE={self.ca.cert}".encode(), f"{self.folder}/bin/"
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if _link(entry).startswith(programs) or mark in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                        found.append(int(entry))
        return found

    def leftovers(self, wait=15.0):
        """What is still running of all that was started, once it had time to go.

        It is killed then, so that one test's failure is not the next one's too.
        """
        end = time.monotonic() + wait
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.01)
        named = [(pid, _command_line(pid)) for pid in left]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                self.kill(pid)
        return named

    @staticmethod
    def describe(pid):
        return pid, _command_line(pid)

    def children(self, parent):
        """The child processes of @parent that are Weir's own program."""
        program = str(self.weir_path)
        return [pid for pid in self.processes() if _link(pid) == program and _parent(pid) == parent]

    def guards(self, control):
        """(control, engine): the two processes of one `weir run` outside its sandbox."""
        engines = self.children(control)
        if len(engines) != 1:
            raise AssertionError(f"{len(engines)} engines below {control}")
        return control, engines[0]

    @staticmethod
    def kill(pid):
        os.kill(pid, signal.SIGKILL)


def _command_line(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return "gone"


def _link(pid):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


def _parent(pid):
    with contextlib.suppress(OSError):
        return int(pathlib.Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def _shell(world):
    print(f"world in {world.folder}; weir: {world._program}; resolver {RESOLVER4}; "
          f"any name below any.test has an address", file=sys.stderr)
    world.dns.add("*.any.test", world.address(), world.address6())
    path = f"{world._program.resolve().parent}:{os.environ['PATH']}"
    env = dict(os.environ, PATH=path, PS1="world# ", SSL_CERT_FILE=str(world.ca.cert),
               CURL_CA_BUNDLE=str(world.ca.cert), GIT_SSL_CAINFO=str(world.ca.cert))
    script = f"mount --bind '{world.resolv_conf}' /etc/resolv.conf; exec bash --norc"
    return subprocess.call(world.host.command("unshare", "--mount", "sh", "-c", script), env=env)


def main(argv):
    if argv[1:] != ["shell"]:
        print("usage: python3 tests/world/world.py shell", file=sys.stderr)
        return 2
    began = time.monotonic()
    with World() as world:
        print(f"up in {time.monotonic() - began:.2f} s", file=sys.stderr)
        return _shell(world)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
