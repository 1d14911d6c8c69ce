# SPDX-License-Identifier: Apache-2.0
"""A sandbox of any kind, with whoever guards it, an app that asks and tries all the time, and a connection that is open.

    with watched(kind, world, site, denied, folder) as box:
        box.boss                            the sidecar or the daemon
        box.app.probe(...)                  as what is guarded
        box.watch.begin(), .longest         for how long names were away
        box.packets_out()                   what has reached @denied since
"""
import contextlib
import json
import os
import signal
import sqlite3
import subprocess

from .daemon import Host
from .member import Member, Tree
from .sidecar import Flow, Pod, policy, wait_for
from .world import RESOLVER4

KINDS = ["sidecar", "netns", "cgroup", "uid"]
UID = 1903

# Asks @name every 5 ms and tries @forbidden. A line on stdin is answered with the longest time without an answer since
# the last one, in ms.
WATCH = r"""
import json, select, socket, struct, sys, time
name, server, forbidden = sys.argv[1:]
labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.setblocking(False)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
last, longest, sent = time.monotonic(), 0.0, 0
print("up", flush=True)
while True:
    for call in (lambda: asking.sendto(query, (server, 53)), lambda: udp.sendto(b"leak", (forbidden, 9999))):
        try:
            call()
        except OSError:
            pass
    tcp = socket.socket()
    tcp.setblocking(False)
    tcp.connect_ex((forbidden, 443))
    tcp.close()
    sent += 1
    time.sleep(0.005)  # far below the limit of queries
    readable = select.select([asking, sys.stdin], [], [], 0)[0]
    if asking in readable:
        try:
            reply = asking.recv(2048)
            if reply[3] & 15 == 0 and reply[7] > 0:
                now = time.monotonic()
                longest, last = max(longest, now - last), now
        except OSError:
            pass
    if sys.stdin in readable:
        if not sys.stdin.readline():
            break
        waiting = time.monotonic() - last
        print(json.dumps([round(1000 * max(longest, waiting), 1), round(1000 * waiting, 1), sent]), flush=True)
        longest = 0.0
"""


class Watch:
    """What the app that asks and tries says; the longest time without an answer since begin()."""

    def __init__(self, app, site, denied):
        self.longest = 0.0
        self.started = app.start("/usr/bin/python3", "-IS", "-c", WATCH, site.name, RESOLVER4, denied.v4)
        assert self.started.line() == "up"

    def begin(self):
        self._ask()
        self.longest = 0.0

    def _ask(self):
        self.started.say("\n")
        longest, waiting, tries = json.loads(self.started.line())
        self.longest = max(self.longest, longest)
        return waiting, tries

    def is_answered(self):
        return self._ask()[0] < 30

    def tries(self):
        return self._ask()[1]

    def close(self):
        self.started.kill()


class Sandbox:
    """Of one @kind, and what is around it. @args are the boss's."""

    def __init__(self, kind, world, pod, host, tree, site, denied, folder, args=(), env=None):
        self.kind, self.world, self.site, self.denied, self.folder = kind, world, site, denied, folder
        self.pod, self.host, self.tree, self.args, self.env = pod, host, tree, args, env
        self.state = folder / "state"
        if kind in ("sidecar", "netns"):
            self.app, self.link = pod, pod
        else:
            self.link = host
            self.app = Member(host, tree.cgroup("slice").below("job") if kind == "cgroup" else None,
                              **({"uid": UID} if kind == "uid" else {}))
        # what gets out is seen: nobody guards it yet
        self.app.probe(["udp", denied.v4, 9999])
        wait_for(lambda: self.link.packets(dst=denied.v4))
        self.before = len(self.link.packets(dst=denied.v4))
        self.start()
        self.rules = [f"allow {site.name}", f"allow *.{site.name}"]
        if kind == "sidecar":
            self.set_policy(*self.rules)
        else:
            self.attach()
        self.check_answer()
        self.flow, self.watch = Flow(self.app, site.v4), Watch(self.app, site, denied)
        assert self.flow.say() == "got"

    # whoever guards it

    def start(self, **options):
        args = ("--state-dir", str(self.state), *self.args)
        if self.kind == "sidecar":
            file = ("--policy-file", str(self.policy_file))
            self.boss = self.pod.sidecar(*args, *file, rules=policy(), env=self.env, **options)
        else:
            self.boss = self.host.daemon(*args, env=self.env, **options)

    def attach(self):
        where = {"netns": {"netns": self.pod.ns.path}, "uid": {"uid": UID}}.get(self.kind) or {"cgroup": str(self.app.cgroup.path)}
        reply = self.boss.call("PUT", "/sandboxes/one", {**where, "policy": json.loads(policy(*self.rules))})
        assert reply.status in (200, 201), f"{reply}\n{self.boss}"

    def set_policy(self, *rules):
        self.rules = list(rules)
        where = "/policy" if self.kind == "sidecar" else "/sandboxes/one/policy"
        reply = self.boss.call("POST", where, policy(*rules))
        assert reply.status == 200, f"{reply}\n{self.boss}"

    def child(self, name):
        return self.boss.pid if name == "supervisor" else wait_for(lambda: self.boss.children().get(name))

    def kill_supervisor(self):
        """Its children end by themselves."""
        os.kill(self.boss.pid, signal.SIGKILL)
        self.boss.process.wait()

    # what it keeps

    @property
    def policy_file(self):
        return self.state / "policy.json" if self.kind == "sidecar" else self.boss.run_dir / "sandboxes/one/policy.json"

    @property
    def record(self):
        """Which sandbox it is; a sidecar has none."""
        return self.boss.run_dir / "sandboxes/one/attach.json"

    @property
    def snapshot(self):
        return next(self.state.glob("learned.*")) if self.kind == "sidecar" else self.boss.run_dir / "sandboxes/one/image"

    def events(self):
        """The denied names that are stored, here or in a file that was put aside."""
        found = set()
        for path in sorted(self.state.glob("events.db*")):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                found |= {name for name, in db.execute("SELECT name FROM event WHERE name IS NOT NULL")}
        return found

    # what it lets out

    def packets_out(self):
        return len(self.link.packets(dst=self.denied.v4)) - self.before

    def check_answer(self):
        answer = self.app.probe(["dns", self.site.name])
        assert answer.addresses == [self.site.v4], dict(answer)

    def close(self):
        self.watch.close()
        self.flow.close()


@contextlib.contextmanager
def watched(kind, world, site, denied, folder, args=(), env=None):
    """A Sandbox whose store has a file system of its own."""
    world.site(f"*.{site.name}")
    folder.chmod(0o755)
    state = folder / "state"
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", state], check=True)
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "-l", state], check=True)
        pod = stack.enter_context(Pod(world))
        host = stack.enter_context(Host(world))
        tree = Tree()
        stack.callback(tree.close)
        stack.callback(host.close)
        box = Sandbox(kind, world, pod, host, tree, site, denied, folder, args, env)
        stack.callback(box.close)
        yield box
