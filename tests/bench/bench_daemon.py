#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`weir daemon` with many sandboxes: what each costs to attach and to hold, and what all of them cost each other.

    bench_daemon.py [--build DIR] [--kind netns|cgroup] [--steps 100,300,…] [--distinct names|addresses] [--engines N] [--recycle N] [--rate 20000] [--seconds 3] [--json FILE]

Sandboxes are attached one after the other on one kept connection, up to each step in turn, with the daemon on both
processors, the client idle while it waits; later it has one of them. At each step: the time of an
attach (p50, p99, of those since the step before; of the last one's command line); memory of each process and of the kernel (slab, percpu and
vmalloc of the whole machine: others count in) for each sandbox, and how many engines there are; DNS across all of them, --rate questions a second in all
for names that are cached and a quarter of that for names that are new, with p50, p99 and the engine's CPU for a question; a
policy changed; one detached; all of them listed; with --recycle the namespace or cgroup of some is taken from them and given to another
sandbox. Then one of them, with the default limits, floods questions, UDP packets and
connections that are denied, while the others ask. The table of cgroups is taken away through the socket that owns it: until when
something passes that is denied, and when names are answered again. In the end everything is killed and started again.
With --distinct each has a policy of its own: another name, or other addresses; otherwise one plan serves all. Medians. Needs root.
"""
import argparse
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

UPSTREAM = ("127.0.0.9", "5300")
ALLOWED, DENIED = "allowed.example.com", "denied.example.com"
LIMITS = {"queries_per_second": "unlimited", "queries_burst": "unlimited", "new_names_per_minute": "unlimited",
          "queries_in_flight": 4096}
STEPS = {"netns": "1,100,1000,3000,10000", "cgroup": "1,100,1000,3000,10000"}
CLIENT_CPU, SERVER_CPU = 1, 0
CACHED_NAMES = 8       # of each sandbox
CHANGES = 21
CALM_RATE = 4000       # questions a second, while one floods
REPAIRS, REPAIR_S = 3, 3
NETLINK_NETFILTER, SYS_PIDFD_GETFD = 12, 438
IDLE_S = 2             # older connections may be closed by the other end
PROCESSES = ("supervisor", "engine", "control")
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x20000
LIBC = ctypes.CDLL(None, use_errno=True)


def own_namespace():
    """A fresh one for this process and the daemon: the host. /run is a tmpfs there, as it is on hosts."""
    if LIBC.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        sys.exit("bench_daemon: needs root")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,nr_inodes=200k", "bench", "/run"], check=True)
    for line in ("link set lo up", "link add w0 type veth peer name w1", "address add 10.9.9.1/24 dev w0",
                 "link set w0 up", "link set w1 up", "route add default via 10.9.9.2"):
        subprocess.run(["ip", *line.split()], check=True)


class Namespaces:
    """Network namespaces that live as long as this process: a pool, made once."""
    kind = "netns"
    server = ("127.0.0.1", "53")

    def __init__(self, _folder):
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.places = []

    def grow(self, count):
        while len(self.places) < count:
            if LIBC.unshare(CLONE_NEWNET) != 0:
                sys.exit("bench_daemon: no more namespaces can be had")
            fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self.places.append(f"/proc/{os.getpid()}/fd/{fd}")
        LIBC.setns(self.home, CLONE_NEWNET)

    def attach_body(self, i):
        return {"netns": self.places[i]}

    def line(self, i):
        return f"netns {self.places[i]}\n"

    def close(self):
        pass


# In the cgroup: when a packet that is denied could leave, and when a name was answered. All of them read one clock.
PROBER = """
import json, socket, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
denied, names = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
names.setblocking(False)
query = bytes.fromhex("123401000001000000000000") + bytes([6]) + b"denied" + bytes([7]) + b"example" + bytes([3]) + b"com" + bytes([0, 0, 1, 0, 1])
passed, answered, asked, end = [], [], 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    now = time.monotonic()
    try:
        denied.sendto(b"x", ("10.9.9.2", 9999))
        passed.append(now)
    except OSError:
        pass
    try:
        if now - asked > 0.004:
            asked = now
            names.sendto(query, ("8.8.8.8", 53))
        names.recv(999)
        answered.append(time.monotonic())
    except OSError:
        pass
    time.sleep(0.0005)
print(json.dumps([passed, answered]))
"""


def message(kind, flags, seq, body):
    return struct.pack("IHHII", 16 + len(body), kind, flags, seq, 0) + body


def delete_table(engine):
    """inet weir_host, through the engine's own sockets: nobody else may. Return: when that began."""
    name = b"weir_host\0\0\0"
    batch = (message(0x10, 1, 1, struct.pack(">BBH", 0, 0, 10)) +
             message(10 << 8 | 2, 1, 2, struct.pack(">BBH", 1, 0, 0) + struct.pack("HH", 14, 1) + name) +
             message(0x11, 1, 3, struct.pack(">BBH", 0, 0, 10)))
    pidfd, begin = os.pidfd_open(engine), time.monotonic()
    for fd in os.listdir(f"/proc/{engine}/fd"):
        copy = LIBC.syscall(SYS_PIDFD_GETFD, pidfd, int(fd), 0)
        if copy < 0:
            continue
        try:
            if os.readlink(f"/proc/self/fd/{copy}").startswith("socket:"):
                with socket.socket(fileno=os.dup(copy)) as s:
                    if s.family == socket.AF_NETLINK and s.proto == NETLINK_NETFILTER:
                        s.sendto(batch, (0, 0))
        finally:
            os.close(copy)
    os.close(pidfd)
    return begin


class Cgroups:
    kind = "cgroup"
    server = ("8.8.8.8", "53")

    def __init__(self, _folder):
        mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        self.top = pathlib.Path(next(m[1] for m in mounts if m[2] == "cgroup2")) / f"weirbench{os.getpid()}"
        self.top.mkdir()
        self.count = 0

    def grow(self, count):
        for i in range(self.count, count):
            (self.top / f"s{i}").mkdir()
        self.count = count

    def attach_body(self, i):
        return {"cgroup": f"{self.top}/s{i}"}

    def line(self, i):
        return f"cgroup {self.top}/s{i}\n"

    def place(self, i):
        return f"{self.top}/s{i}"

    def close(self):
        for i in range(self.count):
            (self.top / f"s{i}").rmdir()
        self.top.rmdir()


FLEETS = {"netns": Namespaces, "cgroup": Cgroups}


def policy(i, distinct):
    rules = [{"action": "allow", "target": f"*.{ALLOWED}"}]
    if distinct == "names":
        rules.append({"action": "allow", "target": f"own{i}.example.com"})
    elif distinct == "addresses":
        rules.append({"action": "allow", "target": f"10.{i >> 8}.{i & 255}.0/24", "ports": [443]})
    return {"defaultAction": "deny", "egress": rules, "limits": LIMITS}


class Api(http.client.HTTPConnection):
    """Over the unix socket, kept open."""

    def __init__(self, path):
        super().__init__("weir")
        self.path, self.used = str(path), 0

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        """Milliseconds from the request to its answer, which has to be good."""
        text = None if body is None else json.dumps(body)
        if time.monotonic() - self.used > IDLE_S:
            self.close()
        begin = time.perf_counter()
        self.request(method, path, text)
        answer = self.getresponse()
        self.used = time.monotonic()
        said = answer.read()
        if answer.status >= 300:
            raise OSError(f"{method} {path}: {answer.status} {said.decode()}")
        return (time.perf_counter() - begin) * 1000


class Daemon:
    def __init__(self, build, folder, state="none", engines="auto"):
        self.build, self.folder, self.state, self.engines = build, folder, state, engines
        self.socket = folder / "run" / "weir.sock"
        self.log = folder / "log"
        self.api = Api(self.socket)
        self.process = None
        self.start()

    def start(self):
        """Return: seconds until it answers, and until it is healthy."""
        begin = time.perf_counter()
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(SERVER_CPU), self.build / "weir", "daemon", "--run-dir", self.folder / "run", "--state-dir", self.state, "--socket", self.socket,
                 "--dns-upstream", ":".join(UPSTREAM), "--log-level", "error", "--engines", self.engines], stdout=log, stderr=log)
        answers = None
        while True:
            try:
                Api(self.socket).ask("GET", "/healthz")
                break
            except OSError as e:
                if answers is None and "/healthz" in str(e):
                    answers = time.perf_counter() - begin
            if self.process.poll() is not None:
                sys.exit(f"bench_daemon: the daemon has ended\n{self.log.read_text()}")
            time.sleep(0.002)
        self.api.close()
        ready = time.perf_counter() - begin
        return answers or ready, ready

    @staticmethod
    def children(pid):
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(OSError):
                    yield int(child), pathlib.Path(f"/proc/{child}/comm").read_text().strip().removeprefix("weir-")

    def pids(self):
        """{name: pids}: a supervisor for each engine."""
        found = {"supervisor": [self.process.pid]}
        for pid, name in [*self.children(self.process.pid)]:
            found.setdefault(name.split("-")[0].replace("daemon", "supervisor"), []).append(pid)
        for supervisor in found["supervisor"][1:]:
            for pid, name in self.children(supervisor):
                found.setdefault(name, []).append(pid)
        return found

    def pss_kib(self):
        pids = self.pids()
        return {name: sum(int(line.split()[1]) for pid in pids[name]
                          for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
                for name in PROCESSES}

    def cpu_us(self, name):
        tasks = [t for pid in self.pids()[name] for t in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1000

    def run_on(self, *cpus):
        for pid in [pid for some in self.pids().values() for pid in some]:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), cpus)

    def all_cpu_ms(self):
        """Of all of them, and of the supervisors' children that have ended."""
        ended = [int(n) for pid in self.pids()["supervisor"]
                 for n in pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]]
        return sum(ended) * 1000 / os.sysconf("SC_CLK_TCK") + sum(self.cpu_us(n) for n in PROCESSES) / 1000

    def kill(self):
        pids = [pid for some in self.pids().values() for pid in some]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def kernel_kib():
    wanted = ("Slab", "Percpu", "VmallocUsed", "KernelStack", "PageTables")
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split(":")[0] in wanted)


def dnsfleet(bench, lines, *args):
    """One run of the clients; `ask` or `flood` comes first."""
    return subprocess.Popen([bench / "dnsfleet", *map(str, args), str(CLIENT_CPU)], stdin=lines, stdout=subprocess.PIPE)


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.bench = args.build / "tests/bench"
        self.fleet = FLEETS[args.kind](folder)
        self.daemon = Daemon(args.build, folder, engines=args.engines)
        self.count = self.asked = 0
        self.ids = []           # of the sandboxes: the place of each has its number

    def clients(self, members, *args):
        path = self.folder / "members"
        path.write_text("".join(self.fleet.line(i) for i in members))
        with open(path, encoding="utf-8") as lines:
            return dnsfleet(self.bench, lines, *args)

    def questions(self, members, names, suffix=ALLOWED, rate=None):
        """What the clients say, and the engine's CPU for a question. New names are asked for at a quarter of the rate."""
        rate = rate or (self.args.rate if names else self.args.rate / 4)
        child = self.clients(members, "ask", *self.fleet.server, self.args.seconds, rate, names, suffix)
        before = self.daemon.cpu_us("engine")
        said = json.loads(child.communicate()[0])
        said["cpu_us"] = (self.daemon.cpu_us("engine") - before) / max(said["answered"], 1)
        return said

    def attach(self, upto):
        times = []
        for i in range(self.count, upto):
            self.ids.append(f"s{i}")
            times.append(self.attach_one(i))
        return times

    def attach_one(self, i):
        body = {**self.fleet.attach_body(i), "policy": policy(i, self.args.distinct)}
        return self.daemon.api.ask("PUT", f"/sandboxes/{self.ids[i]}", body)

    def changes(self):
        times = []
        for i in range(CHANGES):
            body = policy(0, False)
            body["egress"].append({"action": "allow", "target": f"change{i}.example"})
            times.append(self.daemon.api.ask("POST", f"/sandboxes/{self.ids[0]}/policy", body))
        return statistics.median(times)

    def detaches(self, count):
        """The last ones, and back again."""
        members = range(self.count - count, self.count)
        times = [self.daemon.api.ask("DELETE", f"/sandboxes/{self.ids[i]}") for i in members]
        for i in members:
            self.attach_one(i)
        return statistics.median(times)

    def recycle(self, count):
        """Places out of the pool change hands: their sandboxes end, and others are attached there."""
        times = []
        for i in range(0, self.count, max(self.count // count, 1)):
            spent = self.daemon.api.ask("DELETE", f"/sandboxes/{self.ids[i]}")
            self.ids[i] = f"r{len(times)}-{self.ids[i]}"
            times.append(spent + self.attach_one(i))
        return times

    def by_shell(self, i):
        """`weir attach`, with its exec and all."""
        times, weir, where = [], self.args.build / "weir", self.fleet.attach_body(i)[self.fleet.kind]
        text = self.folder / "policy.json"
        text.write_text(json.dumps(policy(i, self.args.distinct)))
        for _ in range(CHANGES):
            self.daemon.api.ask("DELETE", f"/sandboxes/{self.ids[i]}")
            begin = time.perf_counter()
            subprocess.run([weir, "attach", "--socket", self.daemon.socket, "--id", self.ids[i], f"--{self.fleet.kind}", where, "--policy", text],
                           check=True, stdout=subprocess.DEVNULL)
            times.append((time.perf_counter() - begin) * 1000)
        return statistics.median(times)

    def attach_all(self, count):
        """Those that are missing, and what each of them takes."""
        added = count - self.count
        before, kernel, cpu_ms = self.daemon.pss_kib(), kernel_kib(), self.daemon.all_cpu_ms()
        self.daemon.run_on(CLIENT_CPU, SERVER_CPU)
        times = sorted(self.attach(count))
        self.daemon.run_on(SERVER_CPU)
        self.count = count
        row = {f"{name}_kib_each": (kib - before[name]) / added for name, kib in self.daemon.pss_kib().items()}
        return {**row, "kernel_kib_each": (kernel_kib() - kernel) / added, "attach_p50_ms": statistics.median(times),
                "attach_p99_ms": times[int(added * 0.99)], "attach_cpu_ms": (self.daemon.all_cpu_ms() - cpu_ms) / added}

    def step(self, count):
        self.fleet.grow(count)
        row = {"sandboxes": count, **self.attach_all(count)}
        members = range(count)
        self.asked += 1
        self.questions(members, CACHED_NAMES)
        for name, figures in (("cached", self.questions(members, CACHED_NAMES)),
                              ("new", self.questions(members, 0, f"r{self.asked}.{ALLOWED}"))):
            for key in ("p50_us", "p99_us", "cpu_us", "lost", "servfail"):
                row[f"{name}_{key}"] = figures[key]
        row["change_ms"] = self.changes()
        row["detach_ms"] = self.detaches(min(20, count))
        if self.args.recycle:
            times = sorted(self.recycle(self.args.recycle))
            row.update(recycle_p50_ms=statistics.median(times), recycle_p99_ms=times[int(len(times) * 0.99)])
        row["engines"] = len(self.daemon.pids()["engine"])
        row["shell_ms"] = self.by_shell(count - 1)
        row["list_ms"] = self.daemon.api.ask("GET", "/sandboxes")
        row.update({f"{name}_kib": kib for name, kib in self.daemon.pss_kib().items()})
        return row

    def restart(self):
        self.daemon.kill()
        answers, ready = self.daemon.start()
        return {"restart_answers_s": answers, "restart_ready_s": ready, "restart_ms_each": ready * 1000 / self.count}

    def neighbour(self):
        """The others' p99 while the first one floods, beside the same without. Flood and clients share a processor: the clients
        come first, and leave time in between."""
        members = range(1, self.count)
        self.daemon.api.ask("POST", f"/sandboxes/{self.ids[0]}/policy", {**policy(0, False), "limits": {}})
        self.questions(members, CACHED_NAMES)
        quiet = self.questions(members, CACHED_NAMES, rate=CALM_RATE)
        flood = self.clients(range(1), "flood", *self.fleet.server, self.args.seconds + 2, DENIED)
        time.sleep(1)
        loud = self.questions(members, CACHED_NAMES, rate=CALM_RATE)
        said = json.loads(flood.communicate()[0])
        return {"quiet_p99_us": quiet["p99_us"], "loud_p99_us": loud["p99_us"], "quiet_p50_us": quiet["p50_us"],
                "loud_p50_us": loud["p50_us"], "loud_lost": loud["lost"], "flood": said}

    def repair(self):
        """Milliseconds after the table has gone."""
        prober = subprocess.Popen([sys.executable, "-c", PROBER, self.fleet.place(1), str(REPAIR_S)], stdout=subprocess.PIPE, text=True)
        time.sleep(REPAIR_S / 4)
        gone = delete_table(self.daemon.pids()["engine"][0])
        passed, answered = json.loads(prober.communicate()[0])
        before = [t for t in answered if t < gone]
        back = [t for t in answered if t > gone + 0.01]
        if not before or not back:
            sys.exit("bench_daemon: the prober got no answers")
        return {"closed_ms": (max([t for t in passed if t >= gone] or [gone]) - gone) * 1000, "back_ms": (back[0] - gone) * 1000}

    def run(self):
        rows = []
        for count in map(int, self.args.steps.split(",")):
            rows.append(self.step(count))
            show_row(rows[-1], len(rows) == 1)
        result = {"kind": self.args.kind, "distinct": self.args.distinct, "steps": rows}
        if self.count > 1:
            result["neighbour"] = self.neighbour()
        if self.count > 1 and self.fleet.kind == "cgroup":
            rounds = [self.repair() for _ in range(REPAIRS)]
            result["repair"] = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        result["restart"] = self.restart()
        return result

    def close(self):
        self.daemon.kill()
        self.fleet.close()


COLUMNS = [("sandboxes", "sandboxes", 9, 0), ("engines", "engines", 7, 0), ("attach p50", "attach_p50_ms", 10, 2), ("p99 ms", "attach_p99_ms", 7, 2), ("CPU ms", "attach_cpu_ms", 7, 2),
           ("engine", "engine_kib_each", 7, 1), ("supervisor", "supervisor_kib_each", 10, 1),
           ("control", "control_kib_each", 8, 1), ("kernel KiB", "kernel_kib_each", 10, 1),
           ("cached µs", "cached_cpu_us", 10, 2), ("p50", "cached_p50_us", 6, 0), ("p99", "cached_p99_us", 7, 0),
           ("new µs", "new_cpu_us", 7, 2), ("p50", "new_p50_us", 6, 0), ("p99", "new_p99_us", 7, 0),
           ("change ms", "change_ms", 9, 2), ("detach ms", "detach_ms", 9, 2), ("recycled", "recycle_p50_ms", 8, 2), ("shell ms", "shell_ms", 8, 2),
           ("list ms", "list_ms", 7, 1)]


def show_row(row, first):
    if first:
        print("".join(f"{title:>{width + 1}}" for title, _, width, _ in COLUMNS))
    print("".join(f"{row[key]:{width + 1}.{digits}f}" if key in row else " " * (width + 1)
                  for _, key, width, digits in COLUMNS), flush=True)


def ratios(result):
    """(what, to reach, found)."""
    first, last = result["steps"][0], result["steps"][-1]
    rows = [("CPU for a cached question, beside the first step", "<= 1.8", last["cached_cpu_us"] / first["cached_cpu_us"]),
            ("CPU for a new one, beside the first step", "<= 1.8", last["new_cpu_us"] / first["new_cpu_us"])]
    if "attach_p50_ms" in last:
        rows += [("attach, ms", "<= 1.5", last["attach_p50_ms"])]
    if "engine_kib_each" in last:
        rows += [("engine for an idle sandbox, KiB", "<= 16", last["engine_kib_each"])]
    if "neighbour" in result:
        n = result["neighbour"]
        rows += [("p99 beside one that floods, beside quiet", "<= 2", n["loud_p99_us"] / n["quiet_p99_us"])]
    if "repair" in result:
        rows += [("closed again after the table has gone, ms", "<= 100", result["repair"]["closed_ms"])]
    return rows


def show(result):
    print()
    for what, wanted, found in ratios(result):
        print(f"{what:50} {wanted:>7} {found:8.2f}  {'reached' if found <= float(wanted.split()[1]) else 'MISSED'}")
    print(json.dumps({k: result[k] for k in ("neighbour", "repair", "restart") if k in result}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--kind", choices=FLEETS, default="netns")
    parser.add_argument("--steps")
    parser.add_argument("--distinct", choices=["names", "addresses"])
    parser.add_argument("--engines", default="auto")
    parser.add_argument("--recycle", type=int, default=200, help="so many places at each step; 0: none")
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.build, args.steps = args.build.resolve(), args.steps or STEPS[args.kind]
    subprocess.run(["ninja", "-C", args.build, "weir", "weir-control", "tests/bench/dnsfleet", "tests/bench/upstream_fake"],
                   check=True, stdout=subprocess.DEVNULL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    own_namespace()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weirdaemon", dir="/run"))
    upstream = subprocess.Popen(["taskset", "-c", str(SERVER_CPU), args.build / "tests/bench/upstream_fake", *UPSTREAM])
    bench = None
    try:
        bench = Bench(args, folder)
        result = bench.run()
        show(result)
    finally:
        if bench:
            bench.close()
        upstream.kill()
        upstream.wait()
        shutil.rmtree(folder)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
