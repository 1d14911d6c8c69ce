#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Weir beside what people would pick instead: which programs work, what gets out, what it costs.

    compare.py [--peers FOLDER] [--weir FILE] [--rounds 5] [--only TEXT] [--json FILE]

Prints Markdown, as it stands in docs/compatibility.md. Everything goes to an internet of its own in network namespaces (tests/world), as
an ordinary user with a made-up home; nothing reaches the machine's network. `setup` installs the peers. Measures take
turns, each round with every sandbox, and medians count. Needs root, for the namespaces and the user.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import peers  # noqa: E402
from tasks import FRONT, LEAKS, NPM, PROGRAMS  # noqa: E402
from world.program import comm  # noqa: E402
from world.world import World  # noqa: E402

USER = "weir-compare"
HOME = {".ssh/id_ed25519": "needle-ssh", ".aws/credentials": "[default]\naws_secret_access_key = needle-aws",
        ".git-credentials": "https://me:needle-token@git.test", ".npmrc": "//npm.test/:_authToken=needle-token",
        ".bash_history": "login needle-history", ".bashrc": "# mine"}
TIMEOUT_S = 60
CONNECTIONS = 2000


class Bench:
    """The world, the home, the site, and every peer told of it."""

    def __init__(self, options, stack):
        self.stack = stack
        self.world = stack.enter_context(World(options.weir))
        self.site, self.denied = self.world.site("site.compare.test"), self.world.site("denied.compare.test")
        self.world.dns.add("*.tunnel.test", self.world.address())
        self.evil = "evil.compare.test"
        self.home = pathlib.Path(self.world.user(USER).home)
        self.stack.callback(subprocess.run, ["userdel", "-r", USER], capture_output=True, check=False)
        self.tools = self.make_tools()
        self.serve()
        self.peers = [kind(self.world, self.site, self.folder(kind), pathlib.Path(options.peers).resolve() / "node_modules/.bin")
                      for kind in peers.PEERS if not options.only or options.only in kind.name]
        node = self.world.folder / "tun"
        os.mknod(node, 0o666 | 0o020000, os.makedev(10, 200))
        node.chmod(0o666)
        self.mounts = (f"mount --bind {node} /dev/net/tun",)

    def folder(self, kind):
        path = self.world.workdir(USER)
        path.chmod(0o755)
        if kind is peers.Handmade:
            shutil.copy(HERE / "handmade", path)
        return path

    def make_tools(self):
        tools = self.world.folder / "tools"
        clients = HERE.parent / "world" / "clients"
        go = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
        for name, source in (("fetch", clients / "fetch.go"), ("dial", HERE / "dial.go")):
            subprocess.run(["go", "build", "-o", tools / name, source], check=True, env=go)
        subprocess.run(["javac", "-d", tools, clients / "Fetch.java"], check=True)
        (tools / "front.py").write_text(FRONT)
        (tools / "connections").write_text(f'url = "http://{self.site.name}/"\noutput = "/dev/null"\n' * CONNECTIONS)
        return tools

    def serve(self):
        world = self.world
        world.repository()
        # firejail takes an address of its own beside the host's
        world.internet.sysctl(**{"ipv4/conf/net0/arp_ignore": 1})
        world.internet.ip(f"route add {peers.PEER4} dev net0", f"rule add pref 5 to {peers.PEER4} lookup main")
        self.serve_packages()
        self.key = self.serve_ssh()
        self.heard = []

        def hear(conn, local, peer):
            self.heard.append(peer)
        self.stack.enter_context(contextlib.closing(world.tcp(9191, hear, where=world.host)))

    def serve_packages(self):
        folder = self.world.folder / "packages"
        project = folder / "simple" / "weirtest"
        project.mkdir(parents=True)
        with zipfile.ZipFile(project / "weirtest-1.0-py3-none-any.whl", "w") as wheel:
            info = "weirtest-1.0.dist-info/"
            wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: weirtest\nVersion: 1.0\n")
            wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(info + "RECORD", "")
        (folder / "npm").mkdir()
        (folder / "package.json").write_text('{"name": "weirtest", "version": "1.0.0"}')
        with tarfile.open(folder / "npm" / "weirtest-1.0.0.tgz", "w:gz") as tar:
            tar.add(folder / "package.json", "package/package.json")
        version = {"name": "weirtest", "version": "1.0.0", "dist": {"tarball": f"https://{self.site.name}/npm/weirtest-1.0.0.tgz"}}
        (folder / "npm" / "weirtest").write_text(json.dumps(
            {"name": "weirtest", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))
        self.world.web.mount("/simple", folder / "simple")
        self.world.web.mount("/npm", folder / "npm")

    def serve_ssh(self):
        folder = self.world.folder / "ssh"
        folder.mkdir()
        for name in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "config").write_text(
            f"Port 22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n"
            'PidFile none\nUseDNS no\nForceCommand echo "welcome: $SSH_ORIGINAL_COMMAND"\n')
        script = "mount -t tmpfs none /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f $0 2>/dev/null"
        server = subprocess.Popen(self.world.internet.command("unshare", "--mount", "sh", "-c", script, str(folder / "config")))
        self.stack.callback(server.wait)
        self.stack.callback(server.terminate)
        return folder / "client"

    # one line in one sandbox

    def renew(self):
        """The home as it is before each line, with an empty project."""
        subprocess.run(["find", self.home, "-mindepth", "1", "-delete"], check=False)
        for name, text in HOME.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text + "\n")
        for name in ("project", ".agent"):
            (self.home / name).mkdir()
        shutil.copytree(self.tools, self.home / "tools")
        key = self.home / "project" / "key"
        shutil.copy(self.key, key)
        key.chmod(0o600)
        subprocess.run(["chown", "-R", f"{USER}:", self.home], check=True)
        return self.home / "project"

    def words(self, text):
        return text.replace("{npm}", NPM).format(name=self.site.name, v4=self.site.v4, denied=self.denied.name, evil=self.evil,
                           tools=self.home / "tools", key="./key", ca=self.world.ca.cert)

    def launch(self, peer, argv, **options):
        env = {"GITHUB_TOKEN": "needle-environment", "HOME": str(self.home), "LANG": "C.UTF-8", "USER": USER, "LOGNAME": USER}
        return self.world.start(peer.start(*argv), user=USER, cwd=self.home / "project", env=env, resolv_conf=True,
                                mounts=(*self.mounts, *peer.mounts), **options)

    def line(self, peer, text, timeout=TIMEOUT_S):
        """Run a shell line. Return: what it printed on both streams, or why it didn't end."""
        started = self.launch(peer, ["sh", "-c", self.words(text)], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            out, _ = started.process.communicate(timeout=timeout)
            return out.decode(errors="replace")
        except subprocess.TimeoutExpired:
            return "compare: no end"
        finally:
            started.kill()
            self.world.leftovers(wait=1.0)

    def works(self, peer, text, wanted):
        self.renew()
        out = self.line(peer, text)
        return self.words(wanted) in out, out

    def leaks(self, peer, text, where, what):
        self.renew()
        what = self.words(what)
        self.heard.clear()
        asked, reached = len(self.world.dns.queries()), len(self.world.web.requests)
        with self.agents():
            out = self.line(peer, text)
        seen = {
            "out": lambda: what in out,
            "web": lambda: any(what in (r["sni"], r["host"], r["address"]) for r in self.world.web.requests[reached:]),
            "dns": lambda: any(what in q.name for q in self.world.dns.queries()[asked:]),
            "file": lambda: "planted" in (self.home / what).read_text(),
            "socket": lambda: bool(self.heard),
        }
        return seen[where](), out

    @contextlib.contextmanager
    def agents(self):
        """Sockets of the user's, in a file and abstract, in a process that has a secret in its environment."""
        script = ("import os, socket, sys, threading\n"
                  "def serve(address):\n s = socket.socket(socket.AF_UNIX); s.bind(address); s.listen()\n"
                  " while True: s.accept()[0].sendall(b'needle-agent')\n"
                  f"for a in '{self.home}/.agent/socket', '\\0weir-compare':\n threading.Thread(target=serve, args=(a,), daemon=True).start()\n"
                  "print('up', flush=True); sys.stdin.read()")
        with self.world.start(["/usr/bin/python3", "-c", script], user=USER, cwd=self.home, env={"SECRET": "needle-process"}) as server:
            assert server.line() == "up"
            yield

    # what it costs

    def seconds(self, peer, argv):
        began = time.perf_counter()
        done = self.launch(peer, argv, stdin=subprocess.DEVNULL)
        out, err = done.process.communicate(timeout=600)
        took = time.perf_counter() - began
        done.kill()
        return took if done.process.returncode == 0 else f"{out[-200:]} {err[-300:]}"

    def idle_kb(self, peer):
        """PSS of all that runs beside the command while it sleeps."""
        started = self.launch(peer, ["sh", "-c", "echo up; exec sleep 1000"])
        try:
            if started.line() != "up":
                return "did not start"
            time.sleep(1.5)
            return sum(pss_kb(pid) for pid in family(started.pid) if comm(pid) != "sleep")
        finally:
            started.kill()
            self.world.leftovers(wait=1.0)


def pss_kb(pid):
    with contextlib.suppress(OSError):
        for text in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if text.startswith("Pss:"):
                return int(text.split()[1])
    return 0


def family(pid):
    found = [pid]
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


MEASURES = (  # what, unit, how often a round
    ("start of `true`", "ms", 5),
    ("100 MB down", "s", 1),
    ("2,000 connections", "s", 1),
    ("idle memory", "MiB", 1),
)


def measure_one(bench, peer, what):
    bench.renew()
    if what == "start of `true`":
        got = bench.seconds(peer, ["true"])
        return got * 1000 if isinstance(got, float) else got
    if what == "100 MB down":
        return bench.seconds(peer, ["curl", "-sSf", "-o", "/dev/null", f"http://{bench.site.name}/bytes/100000000"])
    if what == "2,000 connections":
        return bench.seconds(peer, ["curl", "-sSf", "-H", "Connection: close", "-K", bench.tools / "connections"])
    got = bench.idle_kb(peer)
    return got / 1024 if isinstance(got, int) else got


def measure(bench, rounds):
    found = {(what, p.name): [] for what, _, _ in MEASURES for p in bench.peers}
    for what, _, times in MEASURES:
        for _ in range(rounds * times):
            for peer in bench.peers:
                got = measure_one(bench, peer, what)
                if isinstance(got, str):
                    print(f"{what}, {peer.name}: {got}", file=sys.stderr)
                else:
                    found[what, peer.name].append(got)
    return {key: statistics.median(values) if values else None for key, values in found.items()}


def row(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(title, bench, lines):
    return [row([title, *(p.name for p in bench.peers)]), row(["---"] * (len(bench.peers) + 1)), *map(row, lines)]


def number(value):
    if value is None:
        return "fails"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def compare(bench, rounds, skip):
    result = {"programs": {}, "leaks": {}, "measures": {}, "versions": {p.name: p.version() for p in bench.peers}}
    for kind, cases in (("programs", PROGRAMS), ("leaks", LEAKS)):
        for what, *case in cases if kind not in skip else ():
            for peer in bench.peers:
                yes, out = bench.works(peer, *case) if kind == "programs" else bench.leaks(peer, *case)
                result[kind].setdefault(what, {})[peer.name] = yes
                if not yes and kind == "programs" or yes and kind == "leaks":
                    print(f"{peer.name}: {what}: {'no' if kind == 'programs' else 'LEAKS'}: {out.strip()[-300:]!r}", file=sys.stderr)
    for (what, name), value in measure(bench, rounds if "measures" not in skip else 0).items():
        result["measures"].setdefault(what, {})[name] = value
    return result


def markdown(bench, result):
    names = [p.name for p in bench.peers]
    day = datetime.datetime.now(datetime.timezone.utc).date()
    versions = ", ".join(f"{n} {v}" for n, v in result["versions"].items() if v)
    yield (f"{day}, {os.cpu_count()} cores of a virtual machine ({platform.machine()}), Linux {platform.release().split('-')[0]}, "
           f"Debian {pathlib.Path('/etc/debian_version').read_text().strip()}; {versions}.")
    yield ""
    for title, kind, words in (("program", "programs", ("**no**", "yes")), ("what gets out", "leaks", ("no", "**yes**"))):
        lines = [[what, *(words[found[n]] for n in names)] for what, found in result[kind].items()]
        yield from table(title, bench, lines)
        yield ""
    units = {what: unit for what, unit, _ in MEASURES}
    yield from table("median", bench, [[f"{what}, {units[what]}", *(number(found[n]) for n in names)]
                                       for what, found in result["measures"].items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="build/compare", help="the folder that `setup` filled")
    parser.add_argument("--weir", default="build/weir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="peers whose name has this")
    parser.add_argument("--skip", nargs="*", default=[], choices=["programs", "leaks", "measures"], help="what not to try")
    parser.add_argument("--json")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("compare.py needs root, for the namespaces and for a user of its own")
    with contextlib.ExitStack() as stack:
        bench = Bench(options, stack)
        result = compare(bench, options.rounds, options.skip)
        print("\n".join(markdown(bench, result)))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
