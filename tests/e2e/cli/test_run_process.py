# SPDX-License-Identifier: Apache-2.0
"""`weir run --state-dir`: the store knows whose a denial was, by the number outside of the sandbox."""
import pytest

from world.caller import Caller, rows, until_known
from world.sidecar import wait_for


@pytest.fixture
def run(world, user):
    """Start a caller in a sandbox. Return: it, and the store's folder."""
    folder = world.workdir(user) / "state"
    started = []

    def start(*argv, **options):
        context = world.run_start(*argv, user=user, options=("--state-dir", str(folder), "--quiet"), **options)
        started.append(context)
        return context
    yield start, folder
    for context in started:
        context.kill()


def test_a_run_knows_the_process(run):
    start, folder = run
    caller = Caller(start)

    def lookup(number):
        caller("dns", f"n{number}.evil.test")
        return f"n{number}.evil.test", None

    def lookup_tcp(number):
        caller("dns_tcp", f"t{number}.evil.test")
        return f"t{number}.evil.test", None

    def packet(number):
        caller("udp", "93.9.9.9", 4000 + number)
        return "93.9.9.9", 4000 + number
    for ask in (lookup, packet, lookup_tcp):
        assert until_known(folder, caller, ask).startswith(f"{caller.name} (python3")
    pid = caller.pid
    caller("tcp", "93.9.9.9", 443)
    wait_for(lambda: ("93.9.9.9", 443) in rows(folder), step=0.05)
    assert {p for p, _ in rows(folder)["93.9.9.9", 443]} <= {None, pid}
    caller.close()


def test_a_name_that_was_refused_has_its_process(world, run, site):
    _, folder = run
    caller = Caller(lambda *argv, **options: world.run_start(
        *argv, options=("--state-dir", str(folder), "--quiet", "--verify", "tls", "--allow", site.name), **options))

    def name(number):
        caller("dns", site.name)
        caller("tls", site.v4, 443, f"s{number}.other.test")
        return f"s{number}.other.test", 443
    assert until_known(folder, caller, name).startswith(f"{caller.name} (python3")
    caller.close()
