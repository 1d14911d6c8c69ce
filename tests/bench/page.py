#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One page: what was measured, Weir's figure, another program's from the same run, their ratio, what is to be reached.

    page.py [--build build] [--passes 3] [--only dns,relay,…] [--json build/bench.json]

The benches run one after the other, and all of that --passes times; each row has its median over the passes. How far its
passes lie apart is the row's noise, which tests/bench/compare holds a difference against. What can't be measured here, for
want of a program or of root, is said to be missing. Exit 1: some target was missed. Needs root.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("dnsload", "dnsfleet", "relay_bare", "upstream_fake", "denystorm", "dns_harness", "bench_relay", "bench_policy")


def command(name, build, out):
    """Of one pass: short, because there are several."""
    options = {
        "dns": ("run.py", "--seconds", "0.6", "--rounds", "1"),
        "launch": ("bench_launch.py", "--pairs", "10"),
        "relay": ("bench_relay.py", build / "tests/bench/bench_relay", "--seconds", "1", "--rounds", "1", "--brief",
                  "--only", "direct", "relay", "relay+names", "slirp4netns"),
        "sidecar": ("bench_sidecar.py", "--rounds", "3"),
        "daemon": ("bench_daemon.py", "--kind", "netns", "--steps", "1,100", "--recycle", "0", "--seconds", "1"),
        "cgroup": ("bench_daemon.py", "--kind", "cgroup", "--steps", "1,100", "--recycle", "0", "--seconds", "1"),
        "events": ("bench_events.py", "--seconds", "5"),
    }
    if name == "policy":
        return [build / "tests/bench/bench_policy", "100000", "5"]
    program, *rest = options[name]
    return ["/usr/bin/python3", HERE / program, *rest, *(() if name == "relay" else ("--build", build)), "--json", out]


@dataclasses.dataclass(frozen=True)
class Row:
    bench: str
    what: str
    weir: str            # where it is in the bench's JSON, steps with "/"
    beside: object = ""  # likewise; or a figure that was measured once, on such a machine
    name: str = ""       # of what stands beside
    target: str = ""     # "<= 1.2"
    of: str = "ratio"    # what the target is about: "ratio"; "weir": Weir's figure; "more": Weir's less the other


SIDE = "OpenSandbox, once"
DNS = "programs/{}/{}/{}"


def dns(what, case, key, beside, target, of="ratio"):
    return Row("dns", what, DNS.format("weir", case, key), DNS.format(beside, case, key), beside, target, of)


ROWS = [
    dns("new name: CPU, µs", "new names", "cpu_us", "relay_bare", "<= 1.45"),
    dns("new name: p99 one at a time, µs", "new names", "one_p99_us", "relay_bare", "<= 2"),
    dns("new names a second", "new names", "qps", "dnsmasq nftset", ">= 3"),
    dns("cached name: CPU, µs", "cached", "cpu_us", "dnsdist", "<= 6.5", "weir"),
    dns("denied name: CPU, µs", "denied", "cpu_us", "unbound", "<= 5", "weir"),
    Row("launch", "weir run -- true, root, ms", "root/weir_ms", "root/bwrap_ms", "bwrap", "<= 1.2"),
    Row("launch", "weir run -- true, user, ms", "nobody/weir_ms", "nobody/bwrap_ms", "bwrap", "<= 1.2"),
    Row("launch", "engine of a run, PSS KiB", "root/engine_kb", target="<= 3072", of="weir"),
    Row("relay", "one stream up, Gbit/s", "medians/relay/up_gbit_s", "medians/direct/up_gbit_s", "direct", ">= 0.7"),
    Row("relay", "one stream down, Gbit/s", "medians/relay/down_gbit_s", "medians/direct/down_gbit_s", "direct", ">= 0.7"),
    Row("relay", "one stream up, Gbit/s", "medians/relay/up_gbit_s", "medians/slirp4netns/up_gbit_s", "slirp4netns", ">= 2"),
    Row("relay", "one stream down, Gbit/s", "medians/relay/down_gbit_s", "medians/slirp4netns/down_gbit_s", "slirp4netns", ">= 2"),
    Row("relay", "first byte, µs", "medians/relay/first_byte_us", "medians/direct/first_byte_us", "direct", "<= 80", "more"),
    Row("relay", "first byte, name checked, µs", "medians/relay+names/first_byte_us", "medians/direct/first_byte_us", "direct", "<= 120", "more"),
    Row("relay", "short connections a second", "medians/relay/short_per_s", "medians/direct/short_per_s", "direct", ">= 0.6"),
    Row("sidecar", "sidecar: exec to healthy, ms", "start_ms", 34, SIDE, "<= 6", "weir"),
    Row("sidecar", "sidecar: memory idle, PSS KiB", "pss_idle_kb", 22_500, SIDE, "<= 8192", "weir"),
    Row("sidecar", "sidecar: denied name, CPU, µs", "denied_cpu_us", 11.5, SIDE, "<= 5", "weir"),
    Row("sidecar", "policy of 4,096 names, ms", "names_4096_ms", 26, SIDE, "<= 4", "weir"),
    Row("sidecar", "policy of 4,096 CIDRs, ms", "cidrs_4096_ms", 92, SIDE, "<= 10", "weir"),
    Row("daemon", "attach a namespace, at 100, ms", "steps/1/attach_p50_ms", target="<= 1.5", of="weir"),
    Row("cgroup", "attach a cgroup, at 100, ms", "steps/1/attach_p50_ms", target="<= 1.5", of="weir"),
    Row("daemon", "cached name, 100 sandboxes: CPU, µs", "steps/1/cached_cpu_us", "steps/0/cached_cpu_us", "one sandbox", "<= 1.8"),
    Row("events", "deny storm: others' p99, µs", "one/others/p99_us", "quiet/p99_us", "quiet", "<= 1.5"),
    Row("events", "deny storm, 50,000 ports: p99, µs", "many/others/p99_us", "quiet/p99_us", "quiet", "<= 1.5"),
    Row("events", "deny storm by nft alone: p99, µs", "beside_nft/p99_us", "quiet/p99_us", "quiet"),
    Row("events", "refused packet: sender's CPU, µs", "one/sent/cpu_us", "nft/cpu_us", "nft alone"),
    Row("events", "denial, packet to row: CPU, µs", "trickle/us_per_row_all", of="weir"),
    Row("policy", "100,000 names: check, compile, ms", "check_and_compile_ms", target="<= 150", of="weir"),
    Row("policy", "100,000 names: match, ns", "match_ns", target="<= 150", of="weir"),
]


def at(document, path):
    """None: it isn't there."""
    if not isinstance(path, str):
        return path
    for step in path.split("/") if path else ("",):
        try:
            document = document[int(step) if isinstance(document, list) else step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return document


def once(name, build):
    """The JSON of one bench; None: it has none."""
    said = "said nothing"
    try:
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            done = subprocess.run([str(a) for a in command(name, build, out.name)], capture_output=True, text=True, check=False)
            said = (done.stderr.strip() or done.stdout.strip() or said).splitlines()[-1]
            return json.loads(done.stdout if name == "policy" else pathlib.Path(out.name).read_text(encoding="utf-8"))
    except OSError as e:
        said = str(e)
    except ValueError:
        pass
    print(f"page.py: {name} was not measured: {said}", file=sys.stderr)
    return None


def judged(row, weir, beside):
    if row.of == "weir":
        return weir
    return weir - beside if row.of == "more" else weir / beside


def gather(row, documents):
    """The row with the figures of all passes that have them."""
    found = [(at(d, row.weir), at(d, row.beside)) for d in documents if d is not None]
    found = [(w, b) for w, b in found if w is not None and (b or row.of == "weir")]
    return {"what": row.what, "beside_name": row.name, "of": row.of, "target": row.target, "weir": [w for w, _ in found],
            "beside": [b for _, b in found if b], "judged": [judged(row, w, b) for w, b in found]}


def is_met(row):
    """None: there is no target, or no figure."""
    if not row["target"] or not row["judged"]:
        return None
    sign, bound = row["target"].split()
    found = statistics.median(row["judged"])
    return found <= float(bound) if sign == "<=" else found >= float(bound)


def figure(values):
    if not values:
        return "-"
    value = statistics.median(values)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def line(row):
    ratio = [w / b for w, b in zip(row["weir"], row["beside"]) if b]
    said = {None: "" if row["judged"] else "missing", True: "met", False: "MISSED"}[is_met(row)]
    noise = f"{(max(row['judged']) - min(row['judged'])) / abs(statistics.median(row['judged'])) * 100:.0f} %" if len(row["judged"]) > 1 else ""
    target = row["target"] + {"weir": "", "more": " more", "ratio": " ×"}[row["of"]] if row["target"] else ""
    return (f"{row['what']:36}{figure(row['weir']):>8}{figure(row['beside']):>8} {row['beside_name']:18}"
            f"{figure(ratio):>6} {noise:>6}  {target:11} {said}")


def show(rows):
    print(f"{'what':36}{'Weir':>8}{'beside':>8} {'':18}{'ratio':>6} {'noise':>6}  {'target':11} met?")
    for row in rows:
        print(line(row))


def main():
    names = list(dict.fromkeys(row.bench for row in ROWS))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", default=",".join(names))
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    build, names = args.build.resolve(), args.only.split(",")
    if os.geteuid() != 0:
        sys.exit("page.py: needs root")
    subprocess.run(["ninja", "-C", build, "programs", *(f"tests/bench/{p}" for p in PROGRAMS)], check=True, stdout=subprocess.DEVNULL)
    documents = {name: [] for name in names}
    for i in range(args.passes):
        for name in names:
            print(f"pass {i + 1} of {args.passes}: {name}", file=sys.stderr, flush=True)
            documents[name].append(once(name, build))
    rows = [gather(row, documents[row.bench]) for row in ROWS if row.bench in names]
    show(rows)
    (args.json or build / "bench.json").write_text(json.dumps(
        {"passes": args.passes, "kernel": os.uname().release, "cpus": os.cpu_count(), "load": os.getloadavg(), "rows": rows},
        indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if any(is_met(row) is False for row in rows) else 0)


if __name__ == "__main__":
    main()
