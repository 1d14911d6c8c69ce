#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The relay beside a direct connection, slirp4netns and pasta.

One TCP stream each way, CPU per GiB (client, server and what is between), and the time
from connect() to the first echoed byte, without and with the check of names. Everything runs in network namespaces made here:
`far` holds the servers behind a veth pair, `out` is where the relay and the other
programs dial from, and each candidate has a namespace of its own for the client.

    bench_relay.py BUILD/tests/bench/bench_relay [--seconds 2] [--rounds 5] [--json FILE]

Rounds go through all candidates in turn; medians count. Needs root, iproute2, nft, iperf3.
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

FAR = "93.184.216.10"
NEAR = "93.184.216.1"
ECHO_PORT, IPERF_PORT = "7", "5201"
PREFIX = f"weirbench{os.getpid()}"


def run(*args, **kw):
    return subprocess.run(args, check=True, text=True, capture_output=True, **kw).stdout


def netns(name):
    return f"{PREFIX}-{name}"


def inside(name, *args):
    return ("ip", "netns", "exec", netns(name)) + args


class World:
    """The namespaces, and every process that was started in them."""

    def __init__(self, program):
        self.program = program
        self.names = []
        self.children = []

    def add(self, name):
        run("ip", "netns", "add", netns(name))
        self.names.append(name)
        run(*inside(name, "ip", "link", "set", "lo", "up"))

    def start(self, *args, **kw):
        child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, **kw)
        self.children.append(child)
        return child

    def build(self):
        self.add("out")
        self.add("far")
        run("ip", "link", "add", "near", "netns", netns("out"), "type", "veth",
            "peer", "name", "far", "netns", netns("far"))
        for name, link, addr in (("out", "near", NEAR), ("far", "far", FAR)):
            run(*inside(name, "ip", "addr", "add", addr + "/24", "dev", link))
            run(*inside(name, "ip", "link", "set", link, "up"))
        # pasta looks for the interface of the default route.
        run(*inside("out", "ip", "route", "add", "default", "via", FAR))
        self.start(*inside("far", "iperf3", "-s", "-p", IPERF_PORT))
        self.start(*inside("far", self.program, "echo", FAR, ECHO_PORT))
        time.sleep(0.3)

    def stub(self, name):
        """An address and a default route that lead nowhere; TCP goes to the relay."""
        self.add(name)
        for command in ("link add stub type veth peer name peer", "link set stub up",
                        "link set peer up", "addr add 10.200.0.1/24 dev stub",
                        "neigh add 10.200.0.2 lladdr 02:00:00:00:00:02 dev stub",
                        "route add default via 10.200.0.2"):
            run(*inside(name, "ip", *command.split()))
        run(*inside(name, "nft", "add table inet t; add chain inet t c "
                    "{ type nat hook output priority -150; }; "
                    "add rule inet t c fib daddr type local return; "
                    "add rule inet t c meta l4proto tcp redirect to :1021"))

    def close(self):
        for child in reversed(self.children):
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGKILL)
            child.wait()
        for name in reversed(self.names):
            subprocess.run(["ip", "netns", "del", netns(name)], check=False)


def setup_direct(world):
    return "out", None


def setup_relay(world, name="in", *checked):
    world.stub(name)
    child = world.start(*inside("out", world.program, "relay",
                                f"/run/netns/{netns(name)}", FAR, *checked))
    time.sleep(0.3)
    return name, child


def setup_checked(world):
    """The relay with `verify: tls`: names on the echo port, the stream by its address."""
    return setup_relay(world, "named", IPERF_PORT)


def holder(world, name):
    """A process that stays in a fresh namespace, for programs that want a PID."""
    world.add(name)
    child = world.start(*inside(name, "sleep", "3600"))
    time.sleep(0.2)
    return child


def setup_slirp4netns(world):
    pid = holder(world, "slirp").pid
    child = world.start(*inside("out", "slirp4netns", "--configure", "--mtu=65520",
                                "--disable-host-loopback", "--disable-dns", str(pid), "tap0"))
    time.sleep(1)
    return "slirp", child


def setup_pasta(world):
    pid = holder(world, "pasta").pid
    child = world.start(*inside("out", "pasta", "-f", "--runas", "0", "--config-net",
                                "-t", "none", "-u", "none", "-T", "none", "-U", "none",
                                "--no-map-gw", "-a", "10.0.3.2", "-n", "24", "-g", "10.0.3.1",
                                "--netns", f"/proc/{pid}/ns/net"))
    time.sleep(1)
    return "pasta", child


CANDIDATES = {"direct": setup_direct, "relay": setup_relay, "relay+names": setup_checked,
              "slirp4netns": setup_slirp4netns, "pasta": setup_pasta}


def cpu_seconds(child):
    """User and system time of a process so far; `ip netns exec` has become the program."""
    if child is None:
        return 0.0
    with open(f"/proc/{child.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stream(name, child, seconds, reverse):
    before = cpu_seconds(child)
    out = run(*inside(name, "iperf3", "-J", "-c", FAR, "-p", IPERF_PORT, "-t", str(seconds),
                      *(["-R"] if reverse else [])), timeout=seconds + 30)
    end = json.loads(out)["end"]
    taken = end["sum_received"]["bytes"]
    between = cpu_seconds(child) - before
    cpu = end["cpu_utilization_percent"]
    spent = (cpu["host_total"] + cpu["remote_total"]) / 100 * end["sum_sent"]["seconds"]
    gib = taken / 2**30
    return {"gbit_s": end["sum_received"]["bits_per_second"] / 1e9,
            "cpu_s_per_gib": (spent + between) / gib, "own_cpu_s_per_gib": between / gib}


def connect(world, name, count=400):
    out = run(*inside(name, world.program, "connect", FAR, ECHO_PORT, str(count)))
    times = sorted(float(line) for line in out.split())
    return {"first_byte_us": statistics.median(times),
            "first_byte_p99_us": times[len(times) * 99 // 100]}


def measure(world, name, child, seconds):
    up = stream(name, child, seconds, False)
    down = stream(name, child, seconds, True)
    return ({f"up_{k}": v for k, v in up.items()} | {f"down_{k}": v for k, v in down.items()}
            | connect(world, name))


def works(world, name):
    try:
        subprocess.run(inside(name, world.program, "connect", FAR, ECHO_PORT, "1"), check=True,
                       capture_output=True, timeout=5)
        return True
    except (subprocess.SubprocessError, OSError):
        return False


def start_all(world, labels):
    running = {}
    for label in labels:
        setup = CANDIDATES[label]
        if label in ("slirp4netns", "pasta") and not shutil.which(label):
            print(f"{label}: not installed", file=sys.stderr)
            continue
        name, child = setup(world)
        if works(world, name):
            running[label] = (name, child)
        else:
            print(f"{label}: does not run here", file=sys.stderr)
    return running


def show(results):
    keys = ["up_gbit_s", "down_gbit_s", "up_cpu_s_per_gib", "down_cpu_s_per_gib",
            "up_own_cpu_s_per_gib", "down_own_cpu_s_per_gib", "first_byte_us",
            "first_byte_p99_us"]
    print(f"{'':<24}" + "".join(f"{label:>14}" for label in results))
    for key in keys:
        print(f"{key:<24}" + "".join(f"{r[key]:>14.2f}" for r in results.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    args = parser.parse_args()
    world = World(os.path.abspath(args.program))
    try:
        world.build()
        running = start_all(world, args.only)
        rounds = {label: [] for label in running}
        for _ in range(args.rounds):
            for label, (name, child) in list(running.items()):
                try:
                    rounds[label].append(measure(world, name, child, args.seconds))
                except (KeyError, subprocess.SubprocessError) as e:
                    print(f"{label}: failed and left out from here: {e!r}", file=sys.stderr)
                    del running[label]
    finally:
        world.close()
    results = {label: {key: statistics.median(r[key] for r in rows) for key in rows[0]}
               for label, rows in rounds.items() if rows}
    show(results)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"medians": results, "rounds": rounds}, f, indent=1)


if __name__ == "__main__":
    main()
