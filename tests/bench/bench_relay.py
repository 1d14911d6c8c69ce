#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The relay beside a direct connection, socat as a plain relay, slirp4netns and pasta.

One TCP stream each way, CPU per GiB (client, server and what is between), the time
from connect() to the first echoed byte, without and with the check of names, how many
short connections a second eight clients get; once, before the rounds, the memory (PSS) of
what is between for each of 1,000 idle connections, and how long 64 bytes to 1 GiB take
there and back. Everything runs in network namespaces made here:
`far` holds the servers behind a veth pair, `out` is where the relay and the other
programs dial from, and each candidate has a namespace of its own for the client.

    bench_relay.py [BUILD/tests/bench/bench_relay] [--seconds 2] [--rounds 5] [--brief] [--json FILE]

Rounds go through all candidates in turn; medians count. Needs root, iproute2, nft, iperf3.
"""
import argparse
import contextlib
import json
import os
import resource
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
        # Many short connections: their ends must not use up the ports.
        run(*inside(name, "sysctl", "-q", "net.ipv4.tcp_tw_reuse=1",
                    "net.ipv4.ip_local_port_range=2048 65000"))

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
            for pid in reversed(family(child)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
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
    world.add("pasta")
    child = world.start(*inside("out", "pasta", "-f", "--runas", "0", "--config-net",
                                "-t", "none", "-u", "none", "-T", "none", "-U", "none",
                                "--no-map-gw", "-a", "10.0.3.2", "-n", "24", "-g", "10.0.3.1",
                                "--netns-only", "--netns", f"/run/netns/{netns('pasta')}"))
    time.sleep(1)
    return "pasta", child


def setup_socat(world):
    """A veth pair to socat in `out`, which dials again: one process for each connection."""
    world.add("plain")
    run("ip", "link", "add", "plain", "netns", netns("out"), "type", "veth",
        "peer", "name", "uplink", "netns", netns("plain"))
    for name, link, addr in (("out", "plain", "10.201.0.1"), ("plain", "uplink", "10.201.0.2")):
        run(*inside(name, "ip", "addr", "add", addr + "/24", "dev", link))
        run(*inside(name, "ip", "link", "set", link, "up"))
    run(*inside("plain", "ip", "route", "add", "default", "via", "10.201.0.1"))
    run(*inside("plain", "nft", "add table ip t; add chain ip t c "
                "{ type nat hook output priority -150; }; "
                f"add rule ip t c ip daddr {FAR} dnat to 10.201.0.1"))
    # One parent for both ports, so that what its children used is found with it.
    script = " & ".join(f"socat TCP-LISTEN:{port},bind=10.201.0.1,backlog=512,reuseaddr,fork "
                        f"TCP:{FAR}:{port}" for port in (ECHO_PORT, IPERF_PORT))
    child = world.start(*inside("out", "sh", "-c", script + " & wait"))
    time.sleep(0.3)
    return "plain", child


CANDIDATES = {"direct": setup_direct, "relay": setup_relay, "relay+names": setup_checked,
              "socat": setup_socat,
              "slirp4netns": setup_slirp4netns, "pasta": setup_pasta}


def stat(pid):
    """What /proc says of a process, from its state on."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return f.read().rsplit(")", 1)[1].split()


def family(child):
    """A process and everything below it; `ip netns exec` has become the program."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents.setdefault(int(stat(pid)[1]), []).append(int(pid))
    found = [child.pid]
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_seconds(child):
    """User and system time so far, that of children that have ended too."""
    if child is None:
        return 0.0
    ticks = 0
    for pid in family(child):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def pss_kib(child):
    total = 0
    for pid in family(child):
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total


def idle(world, name, child, count=1000):
    """PSS that each idle connection adds."""
    if child is None:
        return 0.0
    before = pss_kib(child)
    argv = inside(name, world.program, "idle", FAR, ECHO_PORT, str(count))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        if client.stdout.readline() != b"idle\n":
            return float("nan")
        after = pss_kib(child)
        client.stdin.close()
    return (after - before) / count


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


def connect(world, name, count=2000):
    out = run(*inside(name, world.program, "connect", FAR, ECHO_PORT, str(count)))
    times = sorted(float(line) for line in out.split())
    return {"first_byte_us": statistics.median(times),
            "first_byte_p99_us": times[len(times) * 99 // 100]}


def short(world, name, count=10000, clients=8):
    """Connections a second: connect, ask, read the first byte, close."""
    argv = inside(name, world.program, "connect", FAR, ECHO_PORT, str(count // clients))
    began = time.monotonic()
    running = [subprocess.Popen(argv, stdout=subprocess.DEVNULL) for _ in range(clients)]
    failed = [client.wait() for client in running]
    if any(failed):
        raise subprocess.SubprocessError(f"short connections: {failed}")
    return count / (time.monotonic() - began)


# Bytes and how often: there and back on a new connection each time.
SIZES = {"64 B": (64, 500), "4 KiB": (4 << 10, 500), "64 KiB": (64 << 10, 200), "1 MiB": (1 << 20, 50),
         "64 MiB": (64 << 20, 2), "1 GiB": (1 << 30, 1)}


def sizes(world, name):
    """Milliseconds by size; what takes longer than half a minute has none."""
    found = {}
    for label, (size, count) in SIZES.items():
        argv = inside(name, world.program, "size", FAR, ECHO_PORT, str(size), str(count))
        try:
            times = map(float, run(*argv, timeout=30).split())
            found[f"{label} back, ms"] = statistics.median(times) / 1000
        except subprocess.TimeoutExpired:
            found[f"{label} back, ms"] = None
    return found


def measure(world, name, child, seconds):
    up = stream(name, child, seconds, False)
    down = stream(name, child, seconds, True)
    before = cpu_seconds(child)
    rate = short(world, name)
    spent = (cpu_seconds(child) - before) / 10000
    return ({f"up_{k}": v for k, v in up.items()} | {f"down_{k}": v for k, v in down.items()}
            | connect(world, name) | {"short_per_s": rate, "short_own_cpu_us": spent * 1e6})


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
        if label in ("socat", "slirp4netns", "pasta") and not shutil.which(label):
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
            "first_byte_p99_us", "short_per_s", "short_own_cpu_us", "idle_kib_each",
            *(f"{label} back, ms" for label in SIZES)]
    print(f"{'':<24}" + "".join(f"{label:>14}" for label in results))
    for key in filter(lambda key: key in next(iter(results.values()), {}), keys):
        print(f"{key:<24}" + "".join(f"{'-' if r[key] is None else format(r[key], '.2f'):>14}"
                                       for r in results.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default="build/tests/bench/bench_relay")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--brief", action="store_true", help="without idle connections and sizes")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    world = World(os.path.abspath(args.program))
    try:
        world.build()
        running = start_all(world, args.only)
        once = {label: {} if args.brief else {"idle_kib_each": idle(world, *where)} | sizes(world, where[0])
                for label, where in running.items()}
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
               | once[label] for label, rows in rounds.items() if rows}
    show(results)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"medians": results, "rounds": rounds}, f, indent=1)


if __name__ == "__main__":
    main()
