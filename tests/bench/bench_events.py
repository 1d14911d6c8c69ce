#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A storm of denials from one sandbox of a daemon's: what it costs, what is kept of it, and whether the others notice.

    bench_events.py [--build DIR] [--rate 100000] [--seconds 30] [--json FILE]

One sandbox sends datagrams that its policy denies, to one destination (`one`) and then to 50,000 in turn (`many`); another
one asks for a cached name meanwhile, one question at a time. Its p99 stands beside that of a quiet daemon, and beside that of
the same storm from a namespace where nft alone refuses: what the two cores give away anyhow. Memory of engine and
control before, at its highest and after; the store's growth; how many packets are in rows, which have
to be all that were sent, and how many of them without a destination. Then a trickle of different denials: CPU of all of Weir's processes for each,
from the packet to the row. Sender and asking client share a core, Weir has the other one, and the
sender what it leaves of that. Needs root.
"""
import argparse
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

from bench_daemon import ALLOWED, LIMITS, UPSTREAM, Daemon, Namespaces, own_namespace

STRANGER = "93.9.9.9"
CLIENT_CPU = 1
KINDS = {"one": 1, "many": 50_000}
TRICKLE = 200          # different denials a second
# 100,000 a second for 30 s: others' p99 beside the quiet one; memory in KiB.
REACH = {"p99_ratio": 2.0, "growth_kib": 4096, "rate": 0.95}
REJECT = ("add table inet plain; add chain inet plain output { type filter hook output priority 0; policy accept; }; "
          f"add rule inet plain output ip daddr {STRANGER} reject with icmpx admin-prohibited")


def inside(place, *args):
    return ["nsenter", f"--net={place}", *map(str, args)]


class Storm:
    def __init__(self, bench, place, ports, rate, seconds):
        # one thread can't send 100,000 a second that are refused
        threads = 1 if rate < 30_000 else 2
        self.process = subprocess.Popen(inside(place, bench / "denystorm", STRANGER, ports, rate, seconds, CLIENT_CPU, threads),
                                        stdout=subprocess.PIPE, text=True)

    def end(self):
        out, _ = self.process.communicate()
        return json.loads(out)


class Sampler(threading.Thread):
    """The highest memory of each process while it runs."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.of, self.highest, self.over = daemon, daemon.pss_kib(), threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.5):
            for name, kib in self.of.pss_kib().items():
                self.highest[name] = max(self.highest[name], kib)

    def end(self):
        self.over.set()
        self.join()
        return self.highest


def ask(bench, place, seconds):
    done = subprocess.run(inside(place, bench / "dnsload", "127.0.0.1", 53, seconds, 1, 0, 8, ALLOWED, CLIENT_CPU),
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def rows(folder, sandbox):
    if not (folder / "events.db").exists():
        return 0, 0
    with sqlite3.connect(f"file:{folder}/events.db?mode=ro", uri=True) as db:
        return db.execute("SELECT count(*), coalesce(sum(packets), 0) FROM event WHERE sandbox = ? AND action = 2", (sandbox,)).fetchone()


def on_disk(folder):
    """Bytes; the writer makes the folder when it has its first row."""
    return sum(f.stat().st_blocks * 512 for f in folder.glob("*"))


def status(daemon, sandbox):
    connection = daemon.api
    connection.close()
    connection.request("GET", f"/sandboxes/{sandbox}/status")
    return json.loads(connection.getresponse().read())


def known(daemon, folder, sandbox):
    """Packets that are in rows, and all that are known of."""
    said = status(daemon, sandbox)
    counters = said["counters"]
    count, packets = rows(folder, sandbox)
    return count, packets, packets + said["storeLostPackets"], counters


def settle(daemon, folder, sandbox, sent):
    """Wait until all is accounted for. Return: known(), and how long it took."""
    begin = time.monotonic()
    while True:
        found = known(daemon, folder, sandbox)
        if found[2] >= sent:
            return found, time.monotonic() - begin
        if time.monotonic() - begin > 90:
            sys.exit(f"bench_events: {found} of {sent} packets of {sandbox}")
        time.sleep(0.25)


def cpu(daemon):
    return {name: daemon.cpu_us(name) for name in ("supervisor", "engine", "control")}


def storm(daemon, folder, fleet, kind, args):
    bench, before = daemon.build / "tests/bench", cpu(daemon)
    sandbox, disk, memory = f"noisy-{kind}", on_disk(folder), daemon.pss_kib()
    daemon.api.ask("PUT", f"/sandboxes/{sandbox}", {"netns": fleet.places[0], "policy": {"egress": [], "limits": LIMITS}})
    sampler = Sampler(daemon)
    running = Storm(bench, fleet.places[0], KINDS[kind], args.rate, args.seconds)
    time.sleep(0.5)
    asked = ask(bench, fleet.places[1], args.seconds - 1)
    sent = running.end()
    used = {name: (us - before[name]) / args.seconds / 1e4 for name, us in cpu(daemon).items()}
    (count, packets, accounted, counters), took = settle(daemon, folder, sandbox, sent["sent"])
    highest = sampler.end()
    daemon.api.ask("DELETE", f"/sandboxes/{sandbox}")
    return {"sent": sent, "others": asked, "cpu_percent": used, "pss_before_kib": memory, "pss_highest_kib": highest,
            "pss_after_kib": daemon.pss_kib(), "disk_growth": on_disk(folder) - disk, "rows": count, "packets_in_rows": packets,
            "accounted": accounted, "settled_s": took,
            **{name: counters[name] for name in ("packets_denied", "packets_lost", "events_dropped")}}


def trickle(daemon, folder, fleet, seconds=10):
    """Microseconds of CPU for each event, told, stored."""
    bench, sandbox = daemon.build / "tests/bench", "trickle"
    daemon.api.ask("PUT", f"/sandboxes/{sandbox}",
                   {"netns": fleet.places[0], "policy": {"egress": [], "limits": {**LIMITS, "events_per_second": "unlimited"}}})
    idle = cpu(daemon)
    time.sleep(seconds)
    idle = {name: us - idle[name] for name, us in cpu(daemon).items()}
    before = cpu(daemon)
    running = Storm(bench, fleet.places[0], 1000, TRICKLE, seconds)
    sent = running.end()["sent"]
    used = {name: us - before[name] - idle[name] for name, us in cpu(daemon).items()}
    settle(daemon, folder, sandbox, sent)
    count, _ = rows(folder, sandbox)
    daemon.api.ask("DELETE", f"/sandboxes/{sandbox}")
    return {"rows": count, "sent": sent, "us_per_row": {name: us / max(count, 1) for name, us in used.items()},
            "us_per_row_all": sum(used.values()) / max(count, 1)}


def measure(build, args):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-events."))
    state = folder / "state"
    own_namespace()
    bench = build / "tests/bench"
    upstream = subprocess.Popen([bench / "upstream_fake", *UPSTREAM])
    fleet = Namespaces(folder)
    fleet.grow(3)
    for place in fleet.places:
        for line in ("link set lo up", "link add w0 type veth peer name w1", "address add 10.8.8.1/24 dev w0", "link set w0 up",
                     "link set w1 up", "route add default via 10.8.8.2"):
            subprocess.run(inside(place, "ip", *line.split()), check=True)
    subprocess.run(inside(fleet.places[2], "nft", REJECT), check=True)
    result = {}
    try:
        daemon = Daemon(build, folder, state)
        daemon.api.ask("PUT", "/sandboxes/quiet", {"netns": fleet.places[1], "policy": {
            "egress": [{"action": "allow", "target": f"*.{ALLOWED}"}], "limits": LIMITS}})
        ask(bench, fleet.places[1], 2)
        result["quiet"] = ask(bench, fleet.places[1], 10)
        plain = Storm(bench, fleet.places[2], 1, args.rate, 12)
        time.sleep(0.5)
        result["beside_nft"] = ask(bench, fleet.places[1], 10)
        result["nft"] = plain.end()
        for kind in KINDS:
            result[kind] = storm(daemon, state, fleet, kind, args)
        result["trickle"] = trickle(daemon, state, fleet)
        daemon.process.terminate()
        daemon.process.wait()
    finally:
        upstream.kill()
        upstream.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return result


def p99(row):
    return row["p99_us"]


def show(result, rate):
    """Return: whether all is as it should be."""
    quiet, beside = p99(result["quiet"]), p99(result["beside_nft"])
    print(f"others' p99, µs: quiet {quiet:.0f}, beside a storm that nft alone refuses {beside:.0f} "
          f"(a packet costs its sender {result['nft']['cpu_us']:.2f} µs)")
    good = True
    for kind in KINDS:
        r = result[kind]
        growth = max(r["pss_highest_kib"][n] - r["pss_before_kib"][n] for n in ("engine", "control"))
        ratio = p99(r["others"]) / beside
        r["p99_ratio"], r["p99_ratio_quiet"], r["growth_kib"] = ratio, p99(r["others"]) / quiet, growth
        print(f"{kind}: {r['sent']['per_second']:.0f} a second, {r['sent']['cpu_us']:.2f} µs each; others' p99 {p99(r['others']):.0f} µs, "
              f"{ratio:.2f} × beside nft, {r['p99_ratio_quiet']:.2f} × quiet; CPU " +
              ", ".join(f"{n} {v:.1f} %" for n, v in r["cpu_percent"].items()))
        print("   PSS, KiB: " + "; ".join(
            f"{n} {r['pss_before_kib'][n]} → {r['pss_highest_kib'][n]} → {r['pss_after_kib'][n]}" for n in ("engine", "control")) +
            f"; disk +{r['disk_growth'] // 1024} KiB, {r['rows']} rows")
        print(f"   {r['sent']['sent']} sent: {r['packets_in_rows']} in rows, of those {r['packets_lost'] + r['events_dropped']} without a destination "
              f"({r['events_dropped']} found no place); {r['accounted']} in all after {r['settled_s']:.1f} s")
        if r["sent"]["per_second"] < REACH["rate"] * rate:
            print(f"   the sender did not reach {rate} a second")
            good = False
        good &= r["accounted"] == r["sent"]["sent"] and ratio <= REACH["p99_ratio"] and growth <= REACH["growth_kib"]
    t = result["trickle"]
    print(f"an event, from packet to row: {t['us_per_row_all']:.0f} µs of CPU (" +
          ", ".join(f"{n} {v:.0f}" for n, v in t["us_per_row"].items()) + f"), {t['rows']} rows of {t['sent']} packets")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("--rate", default=100_000, type=int)
    parser.add_argument("--seconds", default=30, type=int)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    build = args.build.resolve()
    targets = [f"tests/bench/{name}" for name in ("denystorm", "dnsload", "upstream_fake")]
    subprocess.run(["ninja", "-C", build, "programs", *targets], stdout=subprocess.DEVNULL, check=True)
    result = measure(build, args)
    good = show(result, args.rate)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
