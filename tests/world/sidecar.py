# SPDX-License-Identifier: Apache-2.0
"""`weir sidecar` in a namespace that it shares with an app, as in a pod.

    pod = Pod(world)                    a namespace with a link of its own into the world
    side = pod.sidecar(rules=…)         the sidecar, healthy
    pod.probe(["dns", "a.test"])        probe.py as the app: an ordinary user without capabilities
    side.get("/policy")                 over 127.0.0.1; outside=True: over the pod's address
    pod.outside                         what left the pod, the sidecar's own queries apart

A pod's address is its own, so captures of two pods never mix. The link's other end is in the
world's internet namespace, where every address is local.
"""
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from . import enter
from .capture import Capture
from .expect import PATIENCE
from .mounts import own_mounts
from .netns import NetNs
from .program import Program, children
from .remains import directories
from .run import Started, doing, finish, read_answers
from .world import RESOLVER4, RESOLVER6

API_PORT = 18080
DNS_PORT = 15353
RELAY_PORT = 15354
SIDE_UID = 65532            # what the image runs as
APP_UID = 1000
IPV6_OFF = {"ipv6/conf/all/disable_ipv6": 1, "ipv6/conf/default/disable_ipv6": 1}
QUIET = {"ipv6/conf/all/accept_dad": 0, "ipv6/conf/default/accept_dad": 0,
         "ipv6/conf/default/addr_gen_mode": 1, "ipv6/conf/default/accept_ra": 0,
         "ipv6/conf/default/router_solicitations": 0}
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def wait_for(what, seconds=PATIENCE, step=0.005, pid=None):
    """What @what() gives as soon as that is true. Too late is a failure, which shows what the process @pid waits for."""
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            waits = ["it waits in", *doing(pid)] if pid else []
            raise AssertionError("\n".join([f"not within {seconds} s: {what.__doc__ or what}", *waits]))
        time.sleep(step)
    return found


def remove_groups(name):
    """Remove the control groups below @name that nobody is in."""
    for top in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}"):
        for group in directories(top):
            with contextlib.suppress(OSError):
                group.rmdir()


def end_input(started):
    """Nothing more comes on its standard input."""
    started.process.stdin.close()
    started.process.stdin = None


@dataclasses.dataclass
class Reply:
    """An answer of the HTTP API."""
    status: int
    headers: dict       # names in lower case
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


def request(netns, address, method, path, body=None, headers=(), timeout=PATIENCE):
    """One HTTP request from inside @netns. Return: Reply."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with netns.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout)
        sock.connect(address)
        return _exchange(sock, address, method, path, body, headers)


def request_local(path_of_socket, method, path, body=None, timeout=PATIENCE):
    """One HTTP request over a unix socket. Return: Reply."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout)
        sock.connect(str(path_of_socket))
        return _exchange(sock, ("weir",), method, path, body, ())


def _exchange(sock, address, method, path, body, headers):
    connection = http.client.HTTPConnection(*address)
    connection.sock = sock
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    data = answer.read()
    return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, data)


def policy(*rules, default="deny", **more):
    """A policy document: policy("allow a.test", "deny 10.0.0.0/8")."""
    egress = [dict(zip(("action", "target"), rule.split(" ", 1))) if isinstance(rule, str) else rule
              for rule in rules]
    return json.dumps({"defaultAction": default, "egress": egress, **more})


class Flow:
    """A connection of the app's, held open by a process that says on it what it is told."""

    PROGRAM = ("import socket,sys\n"
               "s=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, int(sys.argv[3]))\n"
               "s.settimeout(10)\ns.connect((sys.argv[1],int(sys.argv[2])))\n"
               "print('open',flush=True)\n"
               "for line in sys.stdin:\n"
               " try:\n  s.send(line.encode()); print('got' if s.recv(999) else 'closed',flush=True)\n"
               " except OSError as e: print(type(e).__name__,flush=True)\n")

    def __init__(self, pod, address, port=7007, kind=socket.SOCK_STREAM):
        self._started = pod.start("/usr/bin/python3", "-ISc", self.PROGRAM, address, port, int(kind))
        line = self._started.line()
        if line != "open":
            raise AssertionError(f"no connection to {address}: {self._started.wait()}")

    def say(self, word="x"):
        """Send a line to the echo at the other end: "got", "closed", or the error's name."""
        self._started.say(word + "\n")
        return self._started.line()

    def close(self):
        self._started.kill()


def to_itself_by(app, link):
    """@app says things to its own machine, and to name servers, by sockets that are bound to @link: all refused."""
    calls = [["to_self_by", link, address, port, kind]
             for address in ("127.0.0.1", "127.9.9.9", "::1", "93.9.9.9", "2a01:93::9:9")
             for port in ((53,) if "93" in address else (53, 7007, DNS_PORT)) for kind in ("SOCK_DGRAM", "SOCK_STREAM")]
    for call, answer in zip(calls, app.probe(*calls)):
        assert answer.result not in ("ok", "sent"), (call, dict(answer))


def left(pod):
    """What has left @pod of that."""
    return [p for p in pod.capture.packets() if p.dst == "::1" or p.dst.startswith("127.") or b"leaves" in p.payload]


class Pod:
    """A network namespace with a link into the world. close() takes it away."""

    def __init__(self, world, ipv6=True, caps=("net_admin",), link="eth0"):
        self.world, self.ipv6, self._link_name, self.caps = world, ipv6, link, caps
        n = world.number()
        self.number = n
        self.ip4, self._gate4 = f"5.{110 + (n >> 8)}.{n & 255}.2", f"5.{110 + (n >> 8)}.{n & 255}.1"
        self.ip6, self._gate6 = f"2a01:5110:{n:x}::2", f"2a01:5110:{n:x}::1"
        self._exit = contextlib.ExitStack()
        self.ns = NetNs()
        self._exit.callback(self.ns.close)
        self.net = f"pod{n}"
        try:
            self._join()
            self.capture = Capture(world.internet, self.net)
            self._exit.callback(self.capture.close)
        except BaseException:
            self._exit.close()
            raise
        self.sidecars = []
        self.resolv_conf = world.folder / f"resolv-{n}.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER4}\n")
        self._started = []

    def _join(self):
        inside = f"02:01:00:00:{self.number >> 8:02x}:{self.number & 255:02x}"
        outside = inside.replace("02:01", "02:02", 1)
        self.ns.sysctl(**(QUIET if self.ipv6 else IPV6_OFF))
        link = self._link_name
        here = ["link set lo up",
                f"link add {link} address {inside} type veth peer name {self.net} address {outside} netns {self.world.internet.path}",
                f"link set {link} up"]
        there = [f"link set {self.net} up"]
        for address, size, gate in ((self.ip4, 24, self._gate4), (self.ip6, 64, self._gate6))[:2 if self.ipv6 else 1]:
            here += [f"address add {address}/{size} dev {link}{' nodad' if ':' in address else ''}",
                     f"neighbour add {gate} lladdr {outside} dev {link} nud permanent", f"route add default via {gate}"]
            there += [f"neighbour add {address} lladdr {inside} dev {self.net} nud permanent", f"route add {address} dev {self.net}"]
        self.ns.ip(*here)
        self.world.internet.ip(*there)  # all of it goes with the link, which goes with the namespace

    def close(self):
        for side in self.sidecars:
            side.kill()
        for started in self._started:
            started.kill()
        self._exit.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # the app

    def argv(self, argv, uid=APP_UID, caps=(), nnp=False, bounding=None):
        """The argv that runs @argv in here as @uid with these capabilities and no others; @bounding: those that it may get."""
        step = enter.user(uid, uid, bounding=caps if bounding is None else bounding, inheritable=caps)
        mount = f"mount --bind '{self.resolv_conf}' /etc/resolv.conf"
        return self.ns.command(*own_mounts(mount, *enter.argv(["nnp", *step] if nnp else step, argv)))

    def start(self, *argv, uid=APP_UID, caps=(), nnp=False, env=None, **options):
        """Start @argv as the app. Return: run.Started."""
        surroundings = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": "/", **(env or {})}
        for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
            surroundings.setdefault(name, str(self.world.ca.cert))
        started = Started(self.argv(argv, uid, caps, nnp), env=surroundings, cwd="/", **options)
        self._started.append(started)
        return started

    def run(self, *argv, input=None, timeout=PATIENCE, **options):
        """Run @argv as the app to its end. Return: run.Result."""
        return finish(self.start(*argv, **options), input, timeout)

    def probe(self, *probes, timeout=PATIENCE, **options):
        """Probes (probe.py) as the app; one gives its Answer alone."""
        done = self.run("/usr/bin/python3", "-IS", self.world.tools / "probe.pyc",
                        input=json.dumps(probes).encode(), timeout=timeout, **options)
        answers = read_answers(done, len(probes))
        return answers[0] if len(probes) == 1 else answers

    def probe_start(self, *probes):
        """Start probes as the app. Return: run.Started, whose line() is the next answer as JSON."""
        started = self.start("/usr/bin/python3", "-IS", self.world.tools / "probe.pyc")
        started.process.stdin.write(json.dumps(probes).encode())
        end_input(started)
        return started

    def nft(self, *args):
        """nft in here, as root. Return: its stdout."""
        done = subprocess.run(self.ns.command("nft", *args), capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"nft {' '.join(args)}: {done.stderr}")
        return done.stdout

    def set_elements(self, name):
        """{element: seconds left, or None} of a set of the sidecar's table."""
        listing = json.loads(self.nft("-j", "list", "set", "inet", "opensandbox", name))
        found = {}
        for item in listing["nftables"]:
            for element in item.get("set", {}).get("elem", []):
                inner = element.get("elem", element) if isinstance(element, dict) else element
                left = inner.get("expires") if isinstance(inner, dict) else None
                value = inner.get("val", inner) if isinstance(inner, dict) else inner
                if isinstance(value, dict) and "prefix" in value:
                    value = f"{value['prefix']['addr']}/{value['prefix']['len']}"
                elif isinstance(value, dict) and "range" in value:
                    value = "-".join(value["range"])
                found[value] = left
        return found

    # what left

    @staticmethod
    def _is_for_resolver(p):
        """A query to one of the world's, or the kernel's word to it that who asked is gone."""
        nobody_listens = (p.proto, p.payload[:2]) in (("icmp", b"\x03\x03"), ("icmp6", b"\x01\x04"))
        return p.dst in (RESOLVER4, RESOLVER6) and (p.dport == 53 or nobody_listens)

    def packets(self, settle=0.03, **want):
        """What left the pod, but for what goes between the sidecar and the world's resolvers."""
        return [p for p in self.capture.packets(settle, **want)
                if p.src in (self.ip4, self.ip6) and not self._is_for_resolver(p)]

    def queries(self, name):
        """How often a resolver of the world was asked for @name from here."""
        return len([q for q in self.world.dns.queries(name) if q.client in (self.ip4, self.ip6)])

    # the sidecar

    def sidecar(self, *args, ready=True, **options):
        """Start `weir sidecar`. Options: see Sidecar."""
        side = Sidecar(self, args, **options)
        self.sidecars.append(side)
        if ready:
            side.ready()
        return side


PROGRAMS = ("weir", "weir-control", "weir-events", "weir-webhook", "weir-postgres")


def programs(world, file_caps=False):
    """Copies of the sidecar's programs that every user can reach. Return: the path of weir."""
    folder = world.folder / ("sidecar-caps" if file_caps else "sidecar-bin")
    if not folder.exists():
        made = pathlib.Path(f"{folder}.{os.getpid()}.{world.number()}")
        made.mkdir(mode=0o755)
        for name in PROGRAMS:
            source = world.weir_path.parent / name
            built = pathlib.Path(os.environ.get("WEIR") or world._program).resolve().parent / name
            source = built if built.exists() else source
            if source.exists():
                shutil.copy(source, made / name)
                (made / name).chmod(0o755 if name == "weir" else 0o111)  # as they are installed
        if file_caps:
            subprocess.run(["setcap", "cap_net_admin+ep", str(made / "weir")], check=True)
        made.rename(folder)
    return folder / "weir"


class Sidecar(Program):
    """`weir sidecar` in a pod.

    @rules: the policy as JSON, by OPENSANDBOX_EGRESS_RULES. @mode, @token, @env as they say.
    @uid: root, or an ordinary user who has the capability ambient; with @file_caps the program
    file carries it. @caps: what there is to have.
    """

    def __init__(self, pod, args=(), rules=None, mode=None, token="token", env=None, uid=0, caps=None,
                 file_caps=False, nnp=False, api_port=API_PORT):
        self.pod, self.token, self.api_port = pod, token, api_port
        caps = pod.caps if caps is None else caps
        surroundings = {"PATH": _PATH, "LANG": "C.UTF-8"}
        if rules is not None:
            surroundings["OPENSANDBOX_EGRESS_RULES"] = rules
        if mode is not None:
            surroundings["OPENSANDBOX_EGRESS_MODE"] = mode
        if token:
            surroundings["OPENSANDBOX_EGRESS_TOKEN"] = token
        surroundings.update(env or {})
        program = programs(pod.world, file_caps)
        # env in between, so that nothing is left of what there was before
        way = ["/usr/bin/env"] if file_caps else []
        # a file can raise only what the bounding set has
        argv = pod.argv([*way, program, "sidecar", *args], uid, () if file_caps else caps, nnp, bounding=caps)
        self.began = time.monotonic()
        self._begin(argv, surroundings)

    # its API

    def call(self, method, path, body=None, token=True, headers=(), outside=False, timeout=PATIENCE):
        """One request. @token: True for the right one, None for none, or another."""
        sent = dict(headers)
        token = self.token if token is True else token
        if token:
            sent["OPENSANDBOX-EGRESS-AUTH"] = token
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        netns, host = (self.pod.world.internet, self.pod.ip4) if outside else (self.pod.ns, "127.0.0.1")
        return request(netns, (host, self.api_port), method, path, body, sent, timeout)

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def post(self, *rules, default="deny", **options):
        """Another policy, which has to be taken."""
        reply = self.call("POST", "/policy", policy(*rules, default=default), **options)
        assert reply.status == 200, f"{reply}\n{self}"
        return reply

    def patch(self, *rules, **options):
        body = json.loads(policy(*rules))["egress"]
        reply = self.call("PATCH", "/policy", body, **options)
        assert reply.status == 200, f"{reply}\n{self}"
        return reply

    def delete(self, *targets, **options):
        return self.call("DELETE", "/policy", list(targets), **options)

    def ready(self, seconds=PATIENCE):
        """Wait until /healthz says 200; an end before is a failure. Return: seconds it took."""
        while not self.healthy():
            if self.process.poll() is not None:
                self._finish()
                raise AssertionError(f"it ended with {self.process.returncode}\n{self}")
            if time.monotonic() - self.began > seconds:
                raise AssertionError(f"not healthy after {seconds} s\n{self}")
            time.sleep(0.002)
        return time.monotonic() - self.began

    # its log

    def log(self, msg=None, **fields):
        """The JSON lines on stdout whose fields are these; @msg: a part of the message."""
        found = []
        for line in list(self.lines):
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if (isinstance(entry, dict) and (msg is None or msg in entry.get("msg", ""))
                        and all(entry.get(k.replace("__", ".")) == v for k, v in fields.items())):
                    found.append(entry)
        return found

    def wait_log(self, msg=None, seconds=PATIENCE, **fields):
        end = time.monotonic() + seconds
        while not (found := self.log(msg, **fields)):
            if time.monotonic() > end:
                raise AssertionError(f"no line with {msg!r} {fields}\n{self}")
            time.sleep(0.01)
        return found

    # its processes

    def children(self):
        """{"engine": pid, "control": pid, …} as they are now."""
        found = {}
        for child in children(self.pid):
            with contextlib.suppress(OSError):
                program = os.path.basename(os.readlink(f"/proc/{child}/exe"))
                if program in ("weir", "weir-events"):  # engine, socket owner, review command, once it has said so
                    program = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                if program not in ("weir", "weir-events"):
                    found[{"weir-engine": "engine", "weir-control": "control",
                           "weir-sockowner": "socket owner"}.get(program, program)] = child
        return found

    def child(self, name):
        """The pid of "engine" or "control", once there is one."""
        return wait_for(lambda: self.children().get(name))

    def kill_child(self, name, number=signal.SIGKILL):
        """Kill one of the two. Return: its pid."""
        pid = self.child(name)
        os.kill(pid, number)
        return pid

    def wait_replaced(self, name, old, seconds=PATIENCE):
        """Another process has taken @old's place. Return: its pid."""
        return wait_for(lambda: (new := self.children().get(name)) != old and new, seconds)

    # its end

    def stop(self, number=signal.SIGTERM, timeout=PATIENCE):
        """Send @number and wait. Return: the exit status."""
        self.process.send_signal(number)
        code = self.process.wait(timeout)
        self._finish()
        return code

    def ended(self, timeout=PATIENCE):
        """Wait for an end that is its own. Return: the exit status."""
        code = self.process.wait(timeout)
        self._finish()
        return code

    def _finish(self):
        for reader in self._readers:
            reader.join(10)

    def kill(self):
        if self.process.poll() is None:
            left = list(self.children().values())
            self.process.kill()
            self.process.wait()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._finish()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
