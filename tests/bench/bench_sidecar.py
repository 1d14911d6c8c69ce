#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How soon `weir sidecar` guards, what it holds in memory, how it answers and how fast a policy changes.

    bench_sidecar.py [--build DIR] [--rounds 11] [--json FILE]

Start: from exec to the first 200 of /healthz, polled without a pause, each in a fresh namespace: where connections
are still remembered the kernel walks its whole table of them when conntrack is first wanted, 8 ms with 262,144 buckets. Memory: PSS of all processes, idle and
with NAMES learned names. DNS: one question at a time through the redirect, each name new, beside the same questions
straight to the upstream; then as many denied ones as go, each new, and the CPU of each. Policies: POST of N rules on one kept connection, quiet and while the app asks as fast as it
can; POST of another rule beside all the learned addresses, which stay. Medians; `cpu` is that of the sidecar's processes.
Needs root; everything happens in a namespace of its own.
"""
import argparse
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

API = ("127.0.0.1", 18080)
UPSTREAM = ("127.0.0.9", "5300")
NAMES = 8192
LIMITS = {"queries_per_second": "unlimited", "queries_burst": "unlimited", "new_names_per_minute": "unlimited",
          "learned_names": 20_000, "addresses": 20_000, "queries_in_flight": 4096}
ALLOWED = "allowed.example.com"
# Beside what OpenSandbox's sidecar took on such a machine.
REACH = {"start_ms": (6, 34), "pss_idle_kb": (8192, 22_500), "denied_cpu_us": (5, 11.5), "names_4096_ms": (4, 26), "cidrs_4096_ms": (10, 92)}


def own_namespace():
    """A fresh one for this process, with an address that has a way out that leads nowhere."""
    import ctypes
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:
        sys.exit("bench_sidecar: needs root")
    for line in ("link set lo up", "link add w0 type veth peer name w1", "address add 10.9.9.1/24 dev w0",
                 "link set w0 up", "link set w1 up", "route add default via 10.9.9.2"):
        subprocess.run(["ip", *line.split()], check=True)


def environment(rules):
    return {"PATH": os.environ["PATH"], "OPENSANDBOX_EGRESS_RULES": json.dumps(rules),
            "OPENSANDBOX_EGRESS_TOKEN": "bench", "OPENSANDBOX_EGRESS_LOG_LEVEL": "error",
            "OPENSANDBOX_EGRESS_DNS_UPSTREAM": ":".join(UPSTREAM), "WEIR_DNS_UPSTREAM_PROBE_INTERVAL": "3600"}


def policy(rules, **more):
    return {"defaultAction": "deny", "egress": rules, **more}


def is_healthy():
    with socket.socket() as s:
        try:
            s.connect(API)
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return s.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


class Sidecar:
    def __init__(self, weir, rules):
        begin = time.perf_counter()
        self.process = subprocess.Popen([weir, "sidecar"], env=environment(rules), stdout=subprocess.DEVNULL)
        while not is_healthy():
            if self.process.poll() is not None:
                sys.exit("bench_sidecar: the sidecar has ended")
        self.start_ms = (time.perf_counter() - begin) * 1000
        self.http = http.client.HTTPConnection(*API)

    def post(self, body):
        """Milliseconds from the request to its answer."""
        begin = time.perf_counter()
        self.http.request("POST", "/policy", body, {"OPENSANDBOX-EGRESS-AUTH": "bench"})
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"bench_sidecar: {answer.status} {text.decode()}")
        return (time.perf_counter() - begin) * 1000

    def pids(self):
        found = [self.process.pid]
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            found += [int(p) for p in (task / "children").read_text().split()]
        return found

    def pss_kb(self):
        total = 0
        for pid in self.pids():
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total

    def cpu_ms(self):
        """Of all processes and threads, since their start."""
        times = [task.joinpath("schedstat").read_text() for pid in self.pids() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        return sum(int(t.split()[0]) for t in times) / 1e6

    def end(self, weir):
        self.http.close()
        self.process.terminate()
        self.process.wait()
        subprocess.run([weir, "sidecar", "--remove"], check=True)


def load(bench, address, port, seconds, outstanding, names):
    done = subprocess.run([bench / "dnsload", address, str(port), str(seconds), str(outstanding), "0", str(names), ALLOWED,
                           "-1"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"dnsload: {done.stderr}")
    return json.loads(done.stdout)


def denied_cpu_us(side, bench, rounds):
    """CPU of all of the sidecar's processes for one denied question, all of it: reply, event, row, log. Each name is new."""
    found = []
    for i in range(rounds):
        before = side.cpu_ms()
        done = subprocess.run([bench / "dnsload", "8.8.8.8", "53", "2", "64", "0", "0", f"r{i}.denied.example.com", "-1"],
                              capture_output=True, text=True, check=True)
        time.sleep(1.2)  # what was added up is told
        found.append((side.cpu_ms() - before) * 1000 / json.loads(done.stdout)["answered"])
    return statistics.median(found)


def starts(weir, rounds):
    times, cpu = [], []
    for _ in range(rounds):
        own_namespace()
        side = Sidecar(weir, policy([]))
        times.append(side.start_ms)
        cpu.append(side.cpu_ms())
        side.end(weir)
    return {"start_ms": statistics.median(times), "start_cpu_ms": statistics.median(cpu)}


def change(side, rounds, make):
    """Two policies in turn, so that every POST changes something."""
    bodies = [json.dumps(policy(make(i), limits=LIMITS)) for i in (0, 1)]
    times, cpu = [], []
    side.post(bodies[1])
    for i in range(rounds):
        before = side.cpu_ms()
        times.append(side.post(bodies[i % 2]))
        cpu.append(side.cpu_ms() - before)
    return statistics.median(times), statistics.median(cpu)


def changes(side, rounds, kinds):
    out = {}
    for name, make in kinds.items():
        out[f"{name}_ms"], out[f"{name}_cpu_ms"] = change(side, rounds, make)
    return out


def names(count):
    return lambda i: [{"action": "allow", "target": f"n{j}.r{i}.example"} for j in range(count)]


def ranges(count):
    return lambda i: [{"action": "allow", "target": f"100.{j >> 8}.{j & 255}.{i * 64}/26"} for j in range(count)]


KINDS = {"names_10": names(10), "names_1000": names(1000), "names_4096": names(4096), "cidrs_1000": ranges(1000),
         "cidrs_4096": ranges(4096)}


def learned(i):
    """What was learned stays allowed."""
    return [{"action": "allow", "target": f"*.{ALLOWED}"}, {"action": "allow", "target": f"r{i}.example"}]


def measure(build, rounds):
    weir, bench = build / "weir", build / "tests/bench"
    allowed = policy([{"action": "allow", "target": f"*.{ALLOWED}"}], limits=LIMITS)
    result = starts(weir, rounds)
    own_namespace()
    upstream = subprocess.Popen([bench / "upstream_fake", *UPSTREAM])
    time.sleep(0.2)
    try:
        side = Sidecar(weir, allowed)
        result["pss_idle_kb"] = side.pss_kb()
        direct = load(bench, *UPSTREAM, 3, 1, 0)
        through = load(bench, "8.8.8.8", 53, 3, 1, 0)
        result["dns"] = {"direct": direct, "through": through}
        result["denied_cpu_us"] = denied_cpu_us(side, bench, max(3, rounds // 2))
        load(bench, "8.8.8.8", 53, 3, 64, NAMES)
        result["pss_learned_kb"] = side.pss_kb()
        result.update(changes(side, rounds, {"learned": learned}))
        result.update(changes(side, rounds, KINDS))
        flood = subprocess.Popen([bench / "dnsload", "8.8.8.8", "53", "60", "64", "0", "0", "denied.example.com", "-1"],
                                 stdout=subprocess.DEVNULL)
        result.update({f"flood_{k}": v for k, v in changes(side, max(3, rounds // 2), KINDS).items()})
        flood.kill()
        flood.wait()
        side.end(weir)
    finally:
        upstream.kill()
        upstream.wait()
    return result


def show(result):
    for key, value in result.items():
        if key == "dns":
            for who, row in value.items():
                print(f"dns {who:<22} {json.dumps(row)}")
            continue
        reach = REACH.get(key)
        print(f"{key:<26} {value:10.2f}" + (f"   reach {reach[0]}, OpenSandbox {reach[1]}" if reach else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    build = options.build.resolve()
    subprocess.run(["ninja", "-C", build, "weir", "weir-control", "tests/bench/dnsload", "tests/bench/upstream_fake"],
                   check=True, stdout=subprocess.DEVNULL)
    result = measure(build, options.rounds)
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
