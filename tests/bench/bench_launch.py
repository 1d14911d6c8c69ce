#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long `weir run -- true` takes beside bwrap, and what its processes hold in memory.

    bench_launch.py [--build DIR] [--old DIR] [--pairs 30] [--user nobody] [--json FILE]

weir with its filter installed, read back and probed, and the same command in bwrap with
everything unshared, take turns, and with --old the weir of another build as well; the
median of the ratio within each round counts, for root and for an ordinary user. The
least, and the CPU time of all processes that were waited for, say what a busy machine
hides. Memory is the proportional share (PSS) of the control
process and of the engine while a sandbox sleeps. Needs root.
"""
import argparse
import json
import os
import pathlib
import pwd
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"]
WARM_UP = 3
REACH_RATIO, REACH_ENGINE_KB = 1.2, 3072


class Caller:
    """Root or an ordinary user, with a folder to start from and to call home."""

    def __init__(self, name, top):
        entry = pwd.getpwnam(name)
        self.name = name
        self.home = top / name
        self.home.mkdir()
        os.chown(self.home, entry.pw_uid, entry.pw_gid)
        self.options = {"cwd": self.home, "stdin": subprocess.DEVNULL,
                        "env": {"PATH": os.environ["PATH"], "HOME": str(self.home)}}
        if entry.pw_uid != 0:
            self.options.update(user=entry.pw_uid, group=entry.pw_gid, extra_groups=[])

    def time_ms(self, command):
        """Wall time and CPU time."""
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              check=False, **self.options)
        took = (time.perf_counter() - begin) * 1000
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(f"{command[0]} as {self.name}: {done.stderr.decode(errors='replace')}")
        return took, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000

    def start(self, command):
        return subprocess.Popen(command, stdout=subprocess.PIPE, **self.options)


def compare(caller, commands, rounds):
    """@commands: name to command; bwrap is what the others are held against."""
    rows = [{name: caller.time_ms(line) for name, line in commands.items()}
            for _ in range(WARM_UP + rounds)][WARM_UP:]
    found = {}
    for name in commands:
        wall = [row[name][0] for row in rows]
        found[f"{name}_ms"] = statistics.median(wall)
        found[f"{name}_min_ms"] = min(wall)
        found[f"{name}_cpu_ms"] = statistics.median(row[name][1] for row in rows)
        if name != "bwrap":
            ratio = "ratio" if name == "weir" else f"{name}_ratio"
            found[ratio] = statistics.median(row[name][0] / row["bwrap"][0] for row in rows)
    return found


def pss_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise ValueError(f"no Pss for {pid}")


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def engine_of(control):
    for pid in children(control):
        if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "weir-engine":
            return pid
    sys.exit("the engine is not among weir's children")


def memory(caller, weir):
    """The command says when it runs; its standard input keeps it until it is closed."""
    caller.options["stdin"] = subprocess.PIPE
    with caller.start([weir, "run", "--", "sh", "-c", "echo up; read line"]) as control:
        caller.options["stdin"] = subprocess.DEVNULL
        control.stdout.readline()
        time.sleep(0.3)
        found = {"control_kb": pss_kb(control.pid), "engine_kb": pss_kb(engine_of(control.pid))}
        control.stdin.close()
    return found


def measure(options):
    weir = str(pathlib.Path(options.build).resolve() / "weir")
    commands = {"weir": [weir, "run", "--", "true"], "bwrap": BWRAP}
    if options.old:
        commands["old"] = [str(pathlib.Path(options.old).resolve() / "weir"), "run", "--", "true"]
    result = {}
    top = pathlib.Path(tempfile.mkdtemp(prefix="weir-bench-launch-"))
    top.chmod(0o755)
    try:
        for name in ("root", options.user):
            caller = Caller(name, top)
            result[name] = {**compare(caller, commands, options.pairs), **memory(caller, weir)}
    finally:
        shutil.rmtree(top)
    return result


def print_table(result):
    print(f"{'weir run -- true, as':22}{'':7}{'ms':>8}{'least':>8}{'CPU ms':>8}{'ratio':>7}{'reach':>7}"
          f"{'control kB':>12}{'engine kB':>11}{'reach':>7}")
    for name, row in result.items():
        for what in ("weir", "old", "bwrap"):
            if f"{what}_ms" not in row:
                continue
            ratio = row.get("ratio" if what == "weir" else f"{what}_ratio", 1)
            line = (f"{name if what == 'weir' else '':22}{what:7}{row[f'{what}_ms']:8.2f}{row[f'{what}_min_ms']:8.2f}"
                    f"{row[f'{what}_cpu_ms']:8.2f}{ratio:7.2f}")
            if what == "weir":
                line += (f"{REACH_RATIO:7.1f}{row['control_kb']:12}{row['engine_kb']:11}"
                         f"{REACH_ENGINE_KB:7}")
            print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--old", help="another build, to be compared with")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--user", default="nobody")
    parser.add_argument("--json")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench_launch.py needs root, to be an ordinary user as well")
    result = measure(options)
    print_table(result)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
