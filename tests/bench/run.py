#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Weir's DNS path beside other programs: one client, one upstream, the same run.

    run.py [--build DIR] [--seconds 2] [--rounds 5] [--json FILE] [--only NAME,…]

Everything runs on the loopback of network namespaces made here: `out` holds the upstream
and the other programs, `in` is the sandbox with Weir's filter. The client has a core of
its own; upstream and program share the other. Rounds go through all programs in turn and
medians count. CPU per query is the program's own, from /proc/PID/task/*/schedstat.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PREFIX = f"weirdns{os.getpid()}"
UPSTREAM = ("127.0.0.9", "5300")
CLIENT_CPU, SERVER_CPU = "1", "0"
CACHED_NAMES = "500"
POLICY = """\
defaultAction: deny
egress:
  - {action: allow, target: "*.allowed.example.com"}
limits:
  queries_per_second: unlimited
  queries_burst: unlimited
  new_names_per_minute: unlimited
  queries_in_flight: 4096
"""
UNBOUND = """\
server:
  directory: "{dir}"
  chroot: ""
  username: ""
  pidfile: "{dir}/unbound.pid"
  use-syslog: no
  interface: 127.0.0.1@{port}
  do-not-query-localhost: no
  num-threads: 1
  module-config: "iterator"
  outgoing-range: 4096
  num-queries-per-thread: 2048
  so-rcvbuf: 0
  local-zone: "denied.example.com." always_nxdomain
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: {upstream[0]}@{upstream[1]}
"""


def run(*args):
    return subprocess.run(args, check=True, text=True, capture_output=True).stdout


class World:
    """The two namespaces, a scratch folder, and what was started."""

    def __init__(self, build):
        self.bench = pathlib.Path(build) / "tests" / "bench"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
        self.children = []

    def __enter__(self):
        for side in ("in", "out"):
            run("ip", "netns", "add", f"{PREFIX}-{side}")
            run("ip", "-n", f"{PREFIX}-{side}", "link", "set", "lo", "up")
        self.start(str(self.bench / "upstream_fake"), *UPSTREAM)
        return self

    def __exit__(self, *_):
        for child in self.children:
            self.stop(child)
        for side in ("in", "out"):
            subprocess.run(["ip", "netns", "del", f"{PREFIX}-{side}"], check=False)
        shutil.rmtree(self.dir)

    def command(self, side, cpu, *args):
        return ["ip", "netns", "exec", f"{PREFIX}-{side}", "taskset", "-c", cpu, *args]

    def start(self, *args):
        log = open(self.dir / "log", "a")
        child = subprocess.Popen(self.command("out", SERVER_CPU, *args), stdout=log,
                                 stderr=log, stdin=subprocess.DEVNULL)
        self.children.append(child)
        time.sleep(0.4)
        if child.poll() is not None:
            sys.exit(f"cannot start {args[0]}:\n" + (self.dir / "log").read_text())
        return child

    def stop(self, child):
        if child in self.children:
            self.children.remove(child)
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def load(self, side, port, seconds, outstanding, names, suffix):
        out = run(*self.command(side, CLIENT_CPU, str(self.bench / "dnsload"), "127.0.0.1",
                                port, str(seconds), str(outstanding), "0", names, suffix,
                                CLIENT_CPU))
        return json.loads(out)


def cpu_ns(pid):
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


# Each gives: the command, the side the client is on, the port.
def bare(world):
    return [str(world.bench / "relay_bare"), "127.0.0.1", "5301", *UPSTREAM], "out", "5301"


def weir(world):
    policy = world.dir / "policy.yaml"
    policy.write_text(POLICY)
    return [str(world.bench / "dns_harness"), f"/run/netns/{PREFIX}-in", ":".join(UPSTREAM),
            str(policy)], "in", "53"


def dnsmasq(cache):
    def make(_world):
        return ["dnsmasq", "-k", "-p", "5302", "-C", "/dev/null", "--listen-address=127.0.0.1",
                "--bind-interfaces", "-R", "-h", f"--server={UPSTREAM[0]}#{UPSTREAM[1]}",
                f"--cache-size={cache}", "--dns-forward-max=10000", "--user=root",
                "--local=/denied.example.com/", "--pid-file="], "out", "5302"
    return make


def unbound(world):
    config = world.dir / "unbound.conf"
    config.write_text(UNBOUND.format(dir=world.dir, port="5303", upstream=UPSTREAM))
    return ["unbound", "-d", "-c", str(config)], "out", "5303"


PROGRAMS = {
    "relay_bare": (bare, None),
    "weir": (weir, None),
    "dnsmasq": (dnsmasq(10000), "dnsmasq"),
    "unbound": (unbound, "unbound"),
}
# What is asked: (names, suffix, programs that can't do it)
CASES = {
    "new names": ("0", "allowed.example.com", ()),
    "cached": (CACHED_NAMES, "allowed.example.com", ("relay_bare",)),
    "denied": ("0", "denied.example.com", ("relay_bare",)),
}


def measure(world, name, seconds, outstanding):
    """All cases with one program that is started for it: {case: figures}."""
    command, side, port = PROGRAMS[name][0](world)
    child = world.start(*command)
    figures = {}
    for case, (names, suffix, without) in CASES.items():
        if name in without:
            continue
        if names != "0":
            world.load(side, port, 0.3, outstanding, names, suffix)
        one = world.load(side, port, seconds / 2, 1, names, suffix)
        before = cpu_ns(child.pid)
        many = world.load(side, port, seconds, outstanding, names, "x." * (names == "0") + suffix)
        spent = cpu_ns(child.pid) - before
        figures[case] = {
            "qps": many["qps"],
            "cpu_us": spent / 1000 / max(many["answered"], 1),
            "one_p50_us": one["p50_us"], "one_p99_us": one["p99_us"],
            "p50_us": many["p50_us"], "p99_us": many["p99_us"],
            "lost": many["lost"], "servfail": many["servfail"],
            "noerror": many["noerror"], "nxdomain": many["nxdomain"],
            "resident_kib": resident_kib(child.pid),
        }
    world.stop(child)
    return figures


def medians(rounds):
    cases = {}
    for case in rounds[0]:
        cases[case] = {key: statistics.median(r[case][key] for r in rounds)
                       for key in rounds[0][case]}
    return cases


def table(results):
    print(f"{'case':10} {'program':11} {'qps':>8} {'CPU µs':>7} {'one p50':>8} {'one p99':>8} "
          f"{'p99 µs':>7} {'lost':>6} {'failed':>7} {'RSS KiB':>8}")
    for case in CASES:
        for name, cases in results.items():
            f = cases.get(case)
            if f:
                print(f"{case:10} {name:11} {f['qps']:8.0f} {f['cpu_us']:7.2f} "
                      f"{f['one_p50_us']:8.0f} {f['one_p99_us']:8.0f} {f['p99_us']:7.0f} "
                      f"{f['lost']:6.0f} {f['servfail']:7.0f} {f['resident_kib']:8.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--outstanding", type=int, default=100)
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--json")
    args = parser.parse_args()
    subprocess.run(["ninja", "-C", args.build] + [f"tests/bench/{p}" for p in (
        "dnsload", "relay_bare", "upstream_fake", "dns_harness")],
        check=True, stdout=subprocess.DEVNULL)
    names = [n for n in args.only.split(",")
             if PROGRAMS[n][1] is None or shutil.which(PROGRAMS[n][1])]
    rounds = {name: [] for name in names}
    with World(args.build) as world:
        for _ in range(args.rounds):
            for name in names:
                rounds[name].append(measure(world, name, args.seconds, args.outstanding))
    results = {name: medians(r) for name, r in rounds.items()}
    table(results)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
