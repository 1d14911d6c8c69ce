#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a program takes to reach a name some of whose addresses are dead, bare and in `weir run`.

    bench_dead.py [--rounds 7] [--json FILE]

Each figure is the median, over rounds that go through all cases, of what curl says a request took (time_total), so the
start of a sandbox is not in it. Servers, names and black holes are those of tests/world. Needs root.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from world.world import World  # noqa: E402

# The kinds of address in the DNS' order, and what is wrong with each. "slow": the first SYN is lost.
CASES = {
    "nothing dead": [(4, None), (4, None)],
    "first of two a black hole": [(4, "drop"), (4, None)],
    "IPv6 a black hole": [(6, "drop"), (4, None)],
    "first refuses": [(4, "reset"), (4, None)],
    "one slow": [(4, "slow"), (4, None)],
    "all refuse": [(6, "reset"), (4, "reset")],
    "all black holes, 2 s": [(6, "drop"), (4, "drop")],
}
VERDICTS = {"drop": "drop", "reset": "reject with tcp reset",
            "slow": "tcp flags & (syn | ack) == syn tcp sport != @seen add @seen { tcp sport } drop"}


def nft(world, script):
    subprocess.run(world.internet.command("nft", script), check=True)


def curl(world, kinds, how):
    """Milliseconds; of a name that is new each time."""
    name = f"dead-{world.number()}.test"
    addresses = [world.address6() if kind == 6 else world.address() for kind, _ in kinds]
    world.dns.add(name, *addresses)
    for address, (kind, wrong) in zip(addresses, kinds):
        if wrong:
            nft(world, f"add rule inet dead in ip{'6' if kind == 6 else ''} daddr {address} {VERDICTS[wrong]}")
    argv = ("curl", "-sS", "--max-time", "2", "-o", "/dev/null", "-w", "%{time_total}", f"https://{name}/x")
    done = (world.command(*argv, resolv_conf=True) if how == "bare" else
            world.run(*argv, allow=(f"{name}:443",), options=("--quiet",)))
    nft(world, "flush chain inet dead in; flush set inet dead seen")
    return float(done.text) * 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    args = parser.parse_args()
    found = {case: {"bare": [], "weir": []} for case in CASES}
    with World() as world:
        nft(world, "add table inet dead; add set inet dead seen { type inet_service; size 65535; flags dynamic; timeout 30s; }; "
                   "add chain inet dead in { type filter hook input priority 0; }")
        for _ in range(args.rounds):
            for case, kinds in CASES.items():
                for how, times in found[case].items():
                    times.append(curl(world, kinds, how))
    medians = {case: {how: statistics.median(times) for how, times in rows.items()} for case, rows in found.items()}
    print(f"{'ms':<28}{'bare':>8}{'weir':>8}{'more':>8}")
    for case, m in medians.items():
        print(f"{case:<28}{m['bare']:>8.0f}{m['weir']:>8.0f}{m['weir'] - m['bare']:>8.0f}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"medians": medians, "rounds": found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
