# SPDX-License-Identifier: Apache-2.0
"""Whose a denial was, seen from beside: where the container may look, and otherwise nothing is said."""
import time

from world.caller import Caller, rows, until_known
from world.sidecar import Pod, policy, wait_for


def test_who_may_not_look_says_nothing(pod, guarded, tmp_path):
    tmp_path.chmod(0o755)
    side = guarded(args=("--state-dir", str(tmp_path / "state")))
    caller = Caller(pod.start)
    for number in range(3):
        caller("dns", f"n{number}.evil.test")
        caller("udp", "93.9.9.9", 4000 + number)
    wait_for(lambda: len(rows(tmp_path / "state")) == 6, step=0.05)
    assert {process for got in rows(tmp_path / "state").values() for process in got} == {(None, None)}
    owner = side.child("socket owner")
    with open(f"/proc/{owner}/status", encoding="ascii") as f:
        status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    caller.close()


def test_who_may_look_knows_the_process(world, tmp_path):
    tmp_path.chmod(0o755)
    folder = tmp_path / "state"
    with Pod(world, caps=("net_admin", "sys_ptrace", "dac_read_search")) as pod:
        pod.sidecar("--state-dir", str(folder), rules=policy())
        first, second = Caller(pod.start), Caller(pod.start)

        def lookup(caller):
            def ask(number):
                caller("dns", f"n{number}.{caller.name}.test")
                return f"n{number}.{caller.name}.test", None
            return ask
        for caller in (first, second, first):
            command = until_known(folder, caller, lookup(caller))
            assert command.startswith(f"{caller.name} (python3")
            time.sleep(0.1)
        first.close()
        second.close()
