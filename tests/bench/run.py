#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Weir's DNS path beside other programs: one client, one upstream, the same run.

    run.py [--build DIR] [--seconds 1] [--rounds 5] [--json FILE] [--only NAME,…] [--long]

Everything runs on the loopback of network namespaces made here: `out` holds the upstream,
the bare relay and Weir, `in` is the sandbox with Weir's filter, `nft` holds the other
programs, behind a filter of the same shape, and an upstream of theirs. The client has a core of its own; upstream and program share the other.
Rounds go through all programs in turn and medians count. CPU per query is the program's
own, from /proc/PID/task/*/schedstat.

Each case is asked one question at a time; then with many under way (closed loop), which
gives what the program can carry; then at 10, 50 and 90 % of that (open loop: questions
leave on time, whatever comes back). --long asks Weir ten million questions instead and
shows its memory on the way.
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

from programs import ALLOWED, DENIED, NFT, PROGRAMS, UPSTREAM

PREFIX = f"weirdns{os.getpid()}"
SIDES = ("in", "out", "nft")
CLIENT_CPU, SERVER_CPU = "1", "0"
CACHED_NAMES = "500"
LOADS = (10, 50, 90)
# What is asked: names (0: each is new), and below what.
CASES = {"new names": ("0", ALLOWED), "cached": (CACHED_NAMES, ALLOWED), "denied": ("0", DENIED)}


def run(*args):
    done = subprocess.run([str(a) for a in args], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class World:
    """The namespaces, a scratch folder, and what was started."""

    def __init__(self, build):
        self.build = pathlib.Path(build)
        self.bench = self.build / "tests" / "bench"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
        self.children = []

    def __enter__(self):
        for side in SIDES:
            run("ip", "netns", "add", f"{PREFIX}-{side}")
            run("ip", "-n", f"{PREFIX}-{side}", "link", "set", "lo", "up")
        rules = self.dir / "bench.nft"
        rules.write_text(NFT)
        run(*self.command("nft", SERVER_CPU, "nft", "-f", rules))
        for side in ("out", "nft"):
            self.start(side, self.bench / "upstream_fake", *UPSTREAM)
        return self

    def __exit__(self, *_):
        for child in list(self.children):
            self.stop(child)
        for side in SIDES:
            subprocess.run(["ip", "netns", "del", f"{PREFIX}-{side}"], check=False)
        shutil.rmtree(self.dir)

    @staticmethod
    def netns(side):
        return f"/run/netns/{PREFIX}-{side}"

    def command(self, side, cpu, *args):
        return ["ip", "netns", "exec", f"{PREFIX}-{side}", "taskset", "-c", cpu, *map(str, args)]

    def start(self, side, *args):
        with open(self.dir / "log", "a") as log:
            child = subprocess.Popen(self.command(side, SERVER_CPU, *args), stdout=log,
                                     stderr=log, stdin=subprocess.DEVNULL)
        self.children.append(child)
        time.sleep(0.5)
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

    def load(self, server, seconds, outstanding, rate, names, suffix):
        """One run of the client: its figures."""
        return json.loads(run(*self.command(
            server.client, CLIENT_CPU, self.bench / "dnsload", "127.0.0.1", server.port, seconds,
            outstanding, rate, names, suffix, CLIENT_CPU)))


def cpu_ns(pid):
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def memory_kib(pid):
    """(RSS, PSS)"""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        key, *rest = line.split()
        if key in ("Rss:", "Pss:"):
            found[key] = int(rest[0])
    return found["Rss:"], found["Pss:"]


class Asker:
    """Asks one server the questions of one case; new names stay new from run to run."""

    def __init__(self, world, server, case):
        self.world, self.server = world, server
        self.names, self.suffix = CASES[case]
        self.runs = 0

    def __call__(self, seconds, outstanding, rate=0):
        self.runs += 1
        below = f"r{self.runs}." if self.names == "0" else ""
        return self.world.load(self.server, seconds, outstanding, rate, self.names, below + self.suffix)


def measure_case(world, server, pid, case, seconds, outstanding):
    ask = Asker(world, server, case)
    ask(0.2, outstanding)
    one = ask(seconds / 2, 1)
    before = cpu_ns(pid)
    many = ask(seconds, outstanding)
    spent = cpu_ns(pid) - before
    rss, pss = memory_kib(pid)
    figures = {"qps": many["qps"], "cpu_us": spent / 1000 / max(many["answered"], 1),
               "lost": many["lost"], "servfail": many["servfail"],
               "noerror": many["noerror"], "nxdomain": many["nxdomain"],
               "rss_kib": rss, "pss_kib": pss}
    for name, load in (("one", one), ("full", many)):
        figures.update({f"{name}_{p}_us": load[f"{p}_us"] for p in ("p50", "p99", "p999")})
    for share in LOADS:
        load = ask(seconds / 2, outstanding, many["qps"] * share / 100)
        figures.update({f"at{share}_{p}_us": load[f"{p}_us"] for p in ("p50", "p99", "p999")})
        figures[f"at{share}_lost"] = load["lost"]
    return figures


def measure(world, name, seconds, outstanding):
    """All cases with one program that is started for it: {case: figures}."""
    server = PROGRAMS[name].make(world)
    child = world.start(server.side, *server.command)
    figures = {case: measure_case(world, server, child.pid, case, seconds, outstanding)
               for case in PROGRAMS[name].cases}
    world.stop(child)
    return figures


def engine_memory(world):
    """(RSS, PSS) of the engine of a real, idle `weir run`; None where it can't run."""
    weir = world.build / "weir"
    if not weir.exists():
        return None
    child = subprocess.Popen(world.command(
        "out", SERVER_CPU, weir, "run", "--upstream", ":".join(UPSTREAM), "--allow", f"*.{ALLOWED}",
        "--", "sleep", "3"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    program, found = str(weir.resolve()), None
    for pid in run("pgrep", "-P", child.pid).split() if child.poll() is None else ():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/exe") == program:
                found = memory_kib(pid)
    child.wait()
    return found


def medians(rounds):
    return {case: {key: statistics.median(r[case][key] for r in rounds) for key in rounds[0][case]}
            for case in rounds[0]}


def print_table(results):
    columns = [("qps", "qps", 8), ("CPU µs", "cpu_us", 7), ("one p50", "one_p50_us", 8),
               ("p99", "one_p99_us", 6), ("p99.9", "one_p999_us", 6)]
    for share in LOADS:
        columns += [(f"{share}% p50", f"at{share}_p50_us", 8), ("p99", f"at{share}_p99_us", 6),
                    ("p99.9", f"at{share}_p999_us", 6)]
    columns += [("lost", "lost", 5), ("RSS", "rss_kib", 6), ("PSS KiB", "pss_kib", 8)]
    print(f"{'case':10} {'program':15}" + "".join(f"{title:>{width}}" for title, _, width in columns))
    for case in CASES:
        for name, cases in results.items():
            if case in cases:
                print(f"{case:10} {name:15}" + "".join(
                    f"{cases[case][key]:{width}.{2 if key == 'cpu_us' else 0}f}"
                    for _, key, width in columns))


def ratios(results, engine):
    """(what, to reach, found or None) of DNS."""
    def of(case, key, program):
        return results.get(program, {}).get(case, {}).get(key)

    def ratio(case, key, beside):
        a, b = of(case, key, "weir"), of(case, key, beside)
        return a / b if a and b else None

    new, cpu = "new names", "cpu_us"
    return [
        ("new names: CPU, beside the bare relay", "<= 1.45", ratio(new, cpu, "relay_bare")),
        ("new names: p99 one at a time, beside the bare relay", "<= 2", ratio(new, "one_p99_us", "relay_bare")),
        ("new names: p99 at half load, beside the bare relay", "<= 2", ratio(new, "at50_p99_us", "relay_bare")),
        ("new names: qps, beside dnsmasq --nftset", ">= 3", ratio(new, "qps", "dnsmasq nftset")),
        ("cached: CPU µs", "<= 6.5", of("cached", cpu, "weir")),
        ("cached: CPU, beside dnsdist", "<= 0.89", ratio("cached", cpu, "dnsdist")),
        ("cached: CPU, beside unbound", "<= 0.88", ratio("cached", cpu, "unbound")),
        ("denied: CPU µs", "<= 5", of("denied", cpu, "weir")),
        ("denied: CPU, beside unbound's local data", "<= 1", ratio("denied", cpu, "unbound")),
        ("engine of an idle `weir run`: PSS, MiB", "<= 3", engine and engine[1] / 1024),
    ]


def is_reached(wanted, found):
    sign, bound = wanted.split()
    return found <= float(bound) if sign == "<=" else found >= float(bound)


def print_ratios(rows):
    print()
    for what, wanted, found in rows:
        said = "not measured" if found is None else f"{found:6.2f}  " + (
            "reached" if is_reached(wanted, found) else "MISSED")
        print(f"{what:55} {wanted:>8} {said:>20}")


def run_long(world, millions):
    """Questions by the million, half of them new: the memory must not grow."""
    server = PROGRAMS["weir"].make(world)
    child = world.start(server.side, *server.command)
    askers = [Asker(world, server, case) for case in ("new names", "cached", "denied")]
    samples, asked = [], 0
    while asked < millions * 1000000:
        asked += sum(ask(4, 100)["answered"] for ask in askers)
        rss, pss = memory_kib(child.pid)
        samples.append({"asked": asked, "rss_kib": rss, "pss_kib": pss})
        print(f"{asked / 1e6:6.2f} million: RSS {rss} KiB, PSS {pss} KiB", flush=True)
    world.stop(child)
    growth = samples[-1]["rss_kib"] - samples[0]["rss_kib"]
    print(f"from the first sample to the last: {growth:+} KiB")
    return samples


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--outstanding", type=int, default=100)
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--json")
    parser.add_argument("--long", type=float, nargs="?", const=10, metavar="MILLIONS")
    return parser.parse_args()


def compare(world, args):
    names = [n for n in args.only.split(",")
             if not PROGRAMS[n].needs or shutil.which(PROGRAMS[n].needs)]
    for missing in set(args.only.split(",")) - set(names):
        print(f"left out, not installed: {missing}", file=sys.stderr)
    rounds = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            rounds[name].append(measure(world, name, args.seconds, args.outstanding))
    results = {name: medians(r) for name, r in rounds.items()}
    rows = ratios(results, engine_memory(world))
    print_table(results)
    print_ratios(rows)
    return {"programs": results,
            "ratios": [{"what": w, "reach": r, "found": f} for w, r, f in rows]}


def main():
    args = parse()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    programs = ("dnsload", "relay_bare", "upstream_fake", "dns_harness")
    subprocess.run(["ninja", "-C", args.build] + [f"tests/bench/{p}" for p in programs],
                   check=True, stdout=subprocess.DEVNULL)
    with World(args.build) as world:
        found = run_long(world, args.long) if args.long else compare(world, args)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
