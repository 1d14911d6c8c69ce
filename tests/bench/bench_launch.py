#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long `weir run -- true` takes beside bwrap, and what its processes hold in memory.

    bench_launch.py [--build DIR] [--pairs 30] [--user nobody] [--json FILE]

weir with its filter installed, read back and probed, and the same command in bwrap with
everything unshared, take turns; the median of the ratio within each pair counts, for
root and for an ordinary user. Memory is the proportional share (PSS) of the control
process and of the engine while a sandbox sleeps. Needs root.
"""
import argparse
import json
import os
import pathlib
import pwd
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
        begin = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              check=False, **self.options)
        took = (time.perf_counter() - begin) * 1000
        if done.returncode != 0:
            sys.exit(f"{command[0]} as {self.name}: {done.stderr.decode(errors='replace')}")
        return took

    def start(self, command):
        return subprocess.Popen(command, stdout=subprocess.PIPE, **self.options)


def compare(caller, weir, pairs):
    rows = [(caller.time_ms([weir, "run", "--", "true"]), caller.time_ms(BWRAP))
            for _ in range(WARM_UP + pairs)][WARM_UP:]
    return {"weir_ms": statistics.median(w for w, _ in rows),
            "bwrap_ms": statistics.median(b for _, b in rows),
            "ratio": statistics.median(w / b for w, b in rows)}


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
    result = {}
    top = pathlib.Path(tempfile.mkdtemp(prefix="weir-bench-launch-"))
    top.chmod(0o755)
    try:
        for name in ("root", options.user):
            caller = Caller(name, top)
            result[name] = {**compare(caller, weir, options.pairs), **memory(caller, weir)}
    finally:
        shutil.rmtree(top)
    return result


def print_table(result):
    print(f"{'weir run -- true, as':22}{'weir ms':>9}{'bwrap ms':>10}{'ratio':>7}{'reach':>7}"
          f"{'control kB':>12}{'engine kB':>11}{'reach':>7}")
    for name, row in result.items():
        print(f"{name:22}{row['weir_ms']:9.2f}{row['bwrap_ms']:10.2f}{row['ratio']:7.2f}"
              f"{REACH_RATIO:7.1f}{row['control_kb']:12}{row['engine_kb']:11}{REACH_ENGINE_KB:7}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
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
