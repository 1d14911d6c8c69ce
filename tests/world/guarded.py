# SPDX-License-Identifier: Apache-2.0
"""One sandbox under one policy, of whichever product: the same calls, so that a test asks all of them the same.

    with guarded(world, "cgroup", policy("allow a.test")) as box:
        box.probe(["dns", "a.test"])        probe.py in the sandbox; one probe gives its Answer alone
        box.packets, box.names              what left meanwhile: packets, and the names that resolvers were asked for
        box.change(policy("deny a.test"))   another policy, while it runs
        box.flow("93.1.2.3").say("x")       on a connection that stays open: "got", "closed", or the error's name
        box.denies()                        what was refused, as the product's report or API says it
"""
import contextlib
import json
import os
import socket

from .daemon import Host
from .member import Member, Tree
from .run import Answer
from .sidecar import Flow, Pod, Reply, wait_for
from .world import RESOLVER4, RESOLVER6

# `weir run` of root and of an ordinary user; a sidecar; what a daemon guards.
PRODUCTS = ("run", "run-user", "sidecar", "netns", "cgroup", "uid")
UID = 61203


class Box:
    """A sandbox. @link captures what leaves it."""

    def __init__(self, product, world, capture):
        self.product, self.world, self.capture = product, world, capture
        self.packets, self.names = [], set()

    def probe(self, *probes, timeout=60):
        self._before = len(self.capture.packets()), len(self.world.dns.queries())
        answers = self._answers(probes, timeout)
        self.packets, self.names = self.left()
        return answers[0] if len(probes) == 1 else answers

    def left(self):
        """What has left since the probes that are under way began."""
        packets, asked = self._before
        # a resolver that was slow is asked for the root's name again
        seen = self.capture.packets()
        known = {(p.src, p.sport, p.dst, p.dport) for p in seen[:packets] if p.proto == "tcp"}

        def is_late(p):
            """The kernel's last word on a connection of before, an empty one."""
            return p.proto == "tcp" and (p.src, p.sport, p.dst, p.dport) in known and not p.flags & 2 and not p.payload
        return ([p for p in seen[packets:] if not (p.dst in (RESOLVER4, RESOLVER6) and p.dport == 53) and not is_late(p)],
                {q.name.lower() for q in self.world.dns.queries()[asked:]} - {""})

    def accept(self, task, **body):
        reply = self.send("POST", f"/review/{task['id']}/accept", json.dumps(body) if body else "")
        assert reply.status == 200, reply

    def dismiss(self, task):
        reply = self.send("POST", f"/review/{task['id']}/dismiss")
        assert reply.status == 200, reply

    def reviews(self):
        """Open tasks; none while the store is being made."""
        reply = self.send("GET", "/review")
        return reply.json()["tasks"] if reply.status == 200 else []

    def change(self, document):
        reply = self.send("POST", "/policy", document)
        assert reply.status == 200, reply

    def assert_silent(self):
        """Of the last probes nothing left, to whomever."""
        assert self.packets == [] and self.names == set(), (self.packets, self.names)


class RunFlow:
    """A connection of the command of a `weir run`."""

    def __init__(self, box, address, port=7007):
        self._box = box
        opened = box.probe(["flow_open", address, port])
        assert opened.result == "ok", opened
        self._number = opened.flow

    def say(self, word="x"):
        return self._box.probe(["flow_say", self._number, word]).result


class Run(Box):
    """`weir run`, with probes that it reads line after line."""

    def __init__(self, product, world, document, options=(), command=None):
        """@command: instead of the probes; what it says is the caller's to read from `started`."""
        self._exit = contextlib.ExitStack()
        super().__init__(product, world, self._exit.enter_context(world.capture()))
        user = self.user = "weir-test" if product == "run-user" else "root"
        self.id = f"guarded-{os.getpid()}-{world.number()}"
        folder = world.workdir(user)
        (folder.parent / f"{folder.name}.policy.json").write_text(document, encoding="ascii")
        self.store = world.workdir(user)
        self.started = world.run_start(
            *(command or ("/usr/bin/python3", "-IS", world.tools / "probe.pyc", "lines")), user=user, cwd=folder,
            options=("--no-config", "--id", self.id, "--policy", f"{folder}.policy.json", "--state-dir", self.store, *options))
        self._exit.callback(self.started.kill)
        # who asks it at once finds nobody there
        wait_for(lambda: self._listens() or self.started.process.poll() is not None)

    def _listens(self):
        with socket.socket(socket.AF_UNIX) as sock:
            return sock.connect_ex(self.socket) == 0

    def _answers(self, probes, timeout):
        with contextlib.suppress(BrokenPipeError):
            self.started.say(json.dumps(probes) + "\n")
        lines = [self.started.line() for _ in probes]
        if not all(lines):
            raise AssertionError(f"the probes ended: {self.started.wait()}")
        return [json.loads(line, object_hook=Answer) for line in lines]

    def flow(self, address):
        return RunFlow(self, address)

    @property
    def socket(self):
        uid = self.world.user(self.user).uid
        return f"/tmp/weir-{uid}/{self.id}.sock" if uid else f"/run/weir-0/{self.id}.sock"

    def send(self, method, path, body=None, user=None):
        """Ask the run by its socket, as the user whose it is."""
        done = self.world.command(
            "curl", "-sS", "--unix-socket", self.socket, "-X", method, "--data-binary", "@-", "-w", "\n%{http_code}",
            f"http://weir/sandboxes/{self.id}{path}", user=user or self.user, input=(body or "").encode())
        text, _, status = done.text.rpartition("\n")
        return Reply(int(status or 0), {}, text.encode() or done.err)  # curl says why there is none

    def events(self, action):
        done = self.world.weir("events", "--state-dir", self.store, "--action", action, "--json")
        assert done.code == 0, done
        return [json.loads(line) for line in done.text.splitlines()]

    def denies(self):
        return self.events("deny")

    def close(self):
        self._exit.close()


class Held(Box):
    """What a sidecar or a daemon guards: @app sends by @link, a Pod; @send(method, path, body) speaks to the sandbox's API;
    @boss is the sidecar or daemon."""

    def __init__(self, product, world, app, link, boss, send, opened):
        super().__init__(product, world, link.capture)
        self.app, self.boss, self.send, self._exit = app, boss, send, opened

    def _answers(self, probes, timeout):
        answers = self.app.probe(*probes, timeout=timeout)
        return answers if len(probes) > 1 else [answers]

    def flow(self, address):
        return Flow(self.app, address)

    def denies(self):
        return self.send("GET", "/denies").json()["denies"]

    def close(self):
        self._exit.close()


def _held(product, world, document, args):
    verify = json.loads(document).get("verify", "tls")
    with contextlib.ExitStack() as opened:
        if product == "sidecar":
            link = app = opened.enter_context(Pod(world))
            side = link.sidecar(*args, rules=document, mode="dns+nft+tls" if verify == "tls" else "dns+nft")
            return Held(product, world, app, link, side, side.call, opened.pop_all())
        if product == "cgroup":
            tree = Tree()
            opened.callback(tree.close)  # after the host's processes
        host = opened.enter_context(Host(world))
        if product == "netns":
            link = app = opened.enter_context(Pod(world))
            where = {"netns": app.ns.path}
        else:
            link = host
            cgroup = tree.cgroup("slice").below("job") if product == "cgroup" else None
            app = Member(host, cgroup) if cgroup else Member(host, uid=UID)
            where = {"cgroup": str(cgroup.path)} if cgroup else {"uid": UID}
        daemon = host.daemon(*args)
        reply = daemon.call("PUT", "/sandboxes/one", {**where, "policy": json.loads(document)})
        assert reply.status == 201, f"{reply}\n{daemon}"

        def call(method, path, body=None):
            return daemon.call(method, f"/sandboxes/one{path}", body)
        return Held(product, world, app, link, daemon, call, opened.pop_all())


@contextlib.contextmanager
def guarded(world, product, document, args=()):
    """A sandbox of @product under the policy @document, JSON; @args: further options of its command."""
    box = Run(product, world, document, args) if product.startswith("run") else _held(product, world, document, args)
    with contextlib.closing(box):
        yield box
