# SPDX-License-Identifier: Apache-2.0
"""Threads that go first, and processes that /proc/PID shows as dead though they run: their main thread has ended."""
import contextlib
import os
import pathlib
import threading

# In front of a Python program: goes_on(f) calls f in a thread, and the main thread ends.
LEADERLESS = f"""
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
def goes_on(call):
    threading.Thread(target=call).start()
    libc.syscall({({"x86_64": 60, "aarch64": 93}[os.uname().machine])}, 0)  # exit, of this thread alone
"""


def go_first():
    """This thread alone runs before all else of the machine: what a server of the world says late, because the machine is
    busy, is asked for again by whoever waits, and is two questions then."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)


def has_no_leader(pid):
    """Its main thread is dead, and another one isn't."""
    states = {p.name: (p / "stat").read_text().rsplit(")", 1)[1].split()[0] for p in pathlib.Path(f"/proc/{pid}/task").iterdir()}
    return states.pop(str(pid)) == "Z" and any(state not in "ZX" for state in states.values())
