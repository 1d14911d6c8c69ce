# SPDX-License-Identifier: Apache-2.0
"""The two back ends of a ruleset: nft takes the text, and what the kernel holds then is what netlink puts there."""
import contextlib
import os
import pathlib
import re
import subprocess

import pytest

from world.built import DRIVERS, ROOT
from world.lines import FilterDriver

CASES = sorted((ROOT / "tests" / "golden" / "filter").glob("*.policy"))
CGROUPS = pathlib.Path("/sys/fs/cgroup")
RULES = ["policy deny", "rule allow 93.1.0.0/24 443", "rule allow 93.1.1.1 -", "rule deny 93.1.0.7 -",
         "rule allow 2a01:93::/64 tcp/80-90", "rule deny 2a01:93::7 -", "rule allow 127.0.0.53 53"]


class Space(FilterDriver):
    """A network namespace with a driver in it."""

    def __init__(self, text):
        super().__init__("unshare", "-n", DRIVERS / "filter_driver")
        self.ok("link")
        self.ok(f"text {text}")

    def nft(self, *args):
        done = subprocess.run(["nsenter", "-t", str(self.process.pid), "-n", "nft", *args], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def listing(self):
        # Who owns the table is said by netlink alone, and how often a rule was met is no rule.
        text = re.sub(r" # progname .*|\tflags owner\n\n?", "", self.nft("-y", "list", "ruleset"))
        return re.sub(r"counter packets \d+ bytes \d+", "counter", text)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


@pytest.fixture(name="pair")
def pair_fixture(tmp_path):
    """Two namespaces; the first gets its ruleset by netlink, the second the text of it."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with contextlib.ExitStack() as stack:
        spaces = [Space(tmp_path / f"{i}.nft") for i in range(2)]
        for space in spaces:
            stack.callback(space.close)
        yield spaces[0], spaces[1], tmp_path / "0.nft"


@pytest.fixture(name="cgroup")
def cgroup_fixture():
    """A cgroup of two levels, and its path as nft has it."""
    base = CGROUPS / "unified" if (CGROUPS / "unified").is_dir() else CGROUPS
    outer = base / f"weir-text-{os.getpid()}"
    inner = outer / "job"
    inner.mkdir(parents=True)
    yield inner.relative_to(CGROUPS)
    inner.rmdir()
    outer.rmdir()


def load(pair, lines):
    by_netlink, by_text, text = pair
    for line in lines:
        by_netlink.ok(line)
    by_text.nft("-c", "-f", str(text))
    by_text.nft("-f", str(text))
    return by_netlink, by_text, text


# A redirect that stands for two protocols at once can't be said in nft's words.
NO_TEXT = {"closed", "direct", "shared-allow", "shared-closed", "shared-ports", "shared-redirect"}


@pytest.mark.parametrize("case", CASES, ids=[c.stem for c in CASES])
def test_the_text_installs_what_netlink_installs(pair, case):
    lines = [line for line in case.read_text().splitlines() if line and not line.startswith("#")]
    if case.stem in NO_TEXT:
        assert "not supported" in [pair[0].ask(line) for line in lines][-1]
        return
    by_netlink, by_text, _ = load(pair, lines)
    assert by_text.listing() == by_netlink.listing() != ""


@pytest.mark.parametrize("who", ["uid", "cgroup"])
def test_the_text_of_a_member_installs_what_netlink_installs(pair, cgroup, who):
    member = cgroup if who == "cgroup" else 1234
    by_netlink, by_text, text = load(pair, [*RULES, f"member {member} weir"])
    assert by_text.listing() == by_netlink.listing() != ""
    # Once more in its own place, in one transaction, and nothing is left twice.
    by_text.nft("-f", str(text))
    assert by_text.listing() == by_netlink.listing()


def test_four_thousand_ranges_fit_a_text(pair):
    rules = [f"rule allow 93.{i >> 8}.{i & 255}.0/25 -" for i in range(4000)]
    by_netlink, by_text, _ = load(pair, ["policy deny", *rules, "member 1234 weir"])
    assert by_text.listing() == by_netlink.listing()


PROBES = [("tcp", "93.1.0.1", 443), ("tcp", "93.1.0.1", 80), ("tcp", "93.1.0.7", 443), ("tcp", "93.1.1.1", 8080),
          ("tcp", "93.1.1.1", 53), ("tcp", "2a01:93::1", 85), ("tcp", "2a01:93::1", 91), ("tcp", "2a01:93::7", 85),
          ("udp", "93.1.0.1", 443), ("udp", "93.1.1.1", 9), ("udp", "2a01:93::1", 85), ("udp", "127.0.0.53", 53),
          ("udp", "127.0.0.1", 53), ("tcp", "127.0.0.1", 7), ("udp", "8.8.8.8", 53), ("tcp", "2001:4860::1", 443)]
REFUSED = {"tcp": "ECONNREFUSED", "udp": "EPERM"}


def test_the_same_packets_fare_alike(pair):
    by_netlink, by_text, _ = load(pair, [*RULES, "member 4711 weir"])
    results = {}
    for space in (by_netlink, by_text):
        space.ok("listen 127.0.0.1 7")
        space.ok("uid 4711")
        results[space] = [space.ok(f"{kind} {address} {port}")[0] for kind, address, port in PROBES]
        results[space].append(sorted(set(space.ok("events"))))
    assert results[by_netlink] == results[by_text]
    passed = [probe for probe, result in zip(PROBES, results[by_text]) if result != REFUSED[probe[0]]]
    assert passed == [PROBES[i] for i in (0, 3, 5, 8, 9, 11)], results[by_text]
    assert len(results[by_text][-1]) == len(PROBES) - len(passed)
