# SPDX-License-Identifier: Apache-2.0
"""Whose a denial was stands in its row: the process, where it can be seen, and never another one."""
import json
import os
import pathlib
import time

import pytest

from world.caller import Caller, rows, until_known
from world.member import attach_member
from world.sidecar import APP_UID, wait_for
from world.threads import has_no_leader

STRANGER = "93.9.9.9"


@pytest.fixture
def folder(host, storing):
    return host.folder / "state"


def shown(command, caller):
    return command.startswith(f"{caller.name} (python3")


def test_lookups_packets_and_names_have_their_process(storing, app, folder, site, tmp_path):
    attach_member(storing, app, tmp_path, "one", f"allow {site.name}", verify="tls")
    first, second = Caller(app.start), Caller(app.start)

    def lookup(caller):
        def ask(number):
            caller("dns", f"n{number}.{caller.name}.test")
            return f"n{number}.{caller.name}.test", None
        return ask

    def lookup_tcp(number):
        first("dns_tcp", f"t{number}.tcp.test")
        return f"t{number}.tcp.test", None

    def packet(number):
        second("udp", STRANGER, 4000 + number)
        return STRANGER, 4000 + number

    def name(number):
        first("dns", site.name)
        first("tls", site.v4, 443, f"s{number}.other.test")
        return f"s{number}.other.test", 443
    assert shown(until_known(folder, first, lookup(first)), first)
    assert shown(until_known(folder, second, lookup(second)), second)
    assert shown(until_known(folder, second, packet), second)
    assert shown(until_known(folder, first, name), first)
    assert shown(until_known(folder, first, lookup_tcp), first)
    denies = {d["name"]: (d["pid"], d["command"]) for d in storing.denies("one") if d["pid"]}
    assert any(pid == first.pid for pid, _ in denies.values())
    assert {d["uid"] for d in storing.denies("one") if d["pid"]} == {APP_UID}
    by = {d["process"] for d in storing.weir("denies", "--by", "process", "--json", "--state-dir", str(folder)).json()}
    assert all(any(shown(process or "", caller) for process in by) for caller in (first, second)), by
    for caller in (first, second):
        caller.close()


def test_a_process_whose_main_thread_has_ended_is_known(storing, app, folder, tmp_path):
    attach_member(storing, app, tmp_path, "one")
    caller = Caller(app.start, leaderless=True)
    wait_for(lambda: has_no_leader(caller.pid))

    def ask(number):
        caller("dns", f"l{number}.{caller.name}.test")
        return f"l{number}.{caller.name}.test", None
    assert shown(until_known(folder, caller, ask), caller)
    caller.close()


def test_a_review_task_says_whose_its_denials_were(storing, pod, folder, tmp_path):
    attach_member(storing, pod, tmp_path, "one")
    caller = Caller(pod.start)

    def ask(number):
        for _ in range(2):
            caller("dns", f"r{number}.task.test")
        return f"r{number}.task.test", None
    command = until_known(folder, caller, ask)
    name = max(where for (where, _), got in rows(folder).items() if any(p for p, _ in got))
    (task,) = [t for t in storing.weir("review", "list", "--json", "--state-dir", str(folder)).json() if t["destination"] == name]
    shown_task = storing.weir("review", "show", task["id"], "--state-dir", str(folder)).text
    assert f"process      {command}\n" in shown_task
    caller.close()


def test_two_at_once_are_told_apart_and_who_has_ended_is_nobody(storing, app, folder, tmp_path):
    attach_member(storing, app, tmp_path, "one")
    callers = [Caller(app.start) for _ in range(3)]
    pids = {c.name: c.pid for c in callers}
    for number in range(4):
        for c in callers:
            c("dns", f"n{number}.{c.name}.test")
        time.sleep(0.3)
    # One that asks and is gone, while the others live on.
    for number in range(4):
        app.run("/usr/bin/python3", "-c",
                "import socket\nfor i in range(3):\n try: socket.gethostbyname(f'g%d-{i}.gone.test')\n except OSError: pass" % number)
    wait_for(lambda: any(where[0].endswith("g3-2.gone.test") for where in rows(folder)), step=0.1)
    known = 0
    for (where, _), got in rows(folder).items():
        for pid, command in got:
            if not pid:
                assert not command
            elif where.endswith(".gone.test"):
                assert pid not in pids.values() and command.startswith("python3"), (where, got)
            else:
                caller = next(c for c in callers if f".{c.name}.test" in where)
                assert pid == pids[caller.name] and shown(command, caller), (where, got, pids)
                known += 1
    assert known
    for c in callers:
        c.close()


def test_a_denied_connection_is_nobodys_rather_than_anybodys(storing, app, folder, tmp_path):
    """A TCP socket that was refused has no address any more."""
    attach_member(storing, app, tmp_path, "one")
    caller, other = Caller(app.start), Caller(app.start)
    pid = caller.pid
    for port in range(7000, 7005):
        caller("tcp", STRANGER, port)
    wait_for(lambda: (STRANGER, 7004) in rows(folder), step=0.1)
    for port in range(7000, 7005):
        assert {p for p, _ in rows(folder)[STRANGER, port]} <= {pid, None}
    other.close()
    caller.close()


def test_a_flood_is_looked_at_a_bounded_number_of_times(storing, pod, folder, tmp_path):
    attach_member(storing, pod, tmp_path, "one")
    caller = Caller(pod.start)
    pid = caller.pid
    began = time.monotonic()
    for number in range(400):
        caller("udp", STRANGER, 10000 + number)
    seconds = time.monotonic() - began
    caller("dns", "last.test")
    wait_for(lambda: storing.denies("one"))
    wait_for(lambda: sum(1 for where in rows(folder) if where[0] == STRANGER) >= 20, step=0.1)
    got = [p for (where, _), r in rows(folder).items() for p, _ in r if where == STRANGER]
    assert set(got) <= {pid, None}
    assert sum(1 for p in got if p) <= 20 + 20 * (seconds + 15)
    assert storing.answers()
    caller.close()


def test_the_socket_owner_is_started_again_and_is_never_needed(storing, pod, folder, tmp_path, host):
    attach_member(storing, pod, tmp_path, "one")
    caller = Caller(pod.start)

    def owners():
        return [int(p.parent.name) for p in pathlib.Path("/proc").glob("[0-9]*/comm")
                if _read(p) == "weir-sockowner" and _is_below(int(p.parent.name), storing.pid)]
    (old,) = wait_for(owners)
    wait_for(lambda: _status(old)["Seccomp"] == "2")  # it has its name before it is confined
    status = _status(old)
    assert status["NoNewPrivs"] == "1"
    # CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SYS_ADMIN
    assert int(status["CapEff"], 16) & ~(1 << 2 | 1 << 19 | 1 << 21) == 0 and status["CapBnd"].strip("0") == ""
    os.kill(old, 9)
    caller("dns", "unwatched.test")
    wait_for(lambda: ("unwatched.test", None) in rows(folder), step=0.1)
    assert rows(folder)["unwatched.test", None] == {(None, None)}
    wait_for(lambda: [w for w in owners() if w != old], step=0.1)

    def ask(number):
        caller("dns", f"again{number}.test")
        return f"again{number}.test", None
    assert shown(until_known(folder, caller, ask), caller)
    caller.close()


def _read(path):
    try:
        return path.read_text(errors="replace").strip()  # others have hostile names
    except OSError:
        return ""


def _status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return {k: v.strip() for k, _, v in (line.partition(":") for line in f)}


def _is_below(pid, above):
    while pid > 1 and pid != above:
        try:
            pid = int(_status(pid)["PPid"])
        except OSError:
            return False
    return pid == above


HOSTILE = [b"\x1b[31mred\x1b[0m", b"<b>x</b>", b"\xff\xc3(", b"a\nUid:\t7\t7", b"'; DROP TABLE", b"%s%n%x"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_do_nothing(storing, pod, folder, tmp_path, name):
    attach_member(storing, pod, tmp_path, "one")
    caller = Caller(pod.start, name)

    def ask(number):
        caller("dns", f"n{number}.hostile.test")
        return f"n{number}.hostile.test", None
    command = until_known(folder, caller, ask)
    tame = "".join(chr(c) if chr(c).isascii() and (chr(c).isalnum() or chr(c) in "._+-") else "?" for c in name[:15])
    assert command.startswith(f"{tame} (python3") and command.isascii()
    printed = storing.weir("events", "--state-dir", str(folder)).text
    assert "\x1b" not in printed and command in printed
    lines = storing.weir("events", "--json", "--state-dir", str(folder)).text.splitlines()
    assert command in {json.loads(line)["command"] for line in lines}
    caller.close()
