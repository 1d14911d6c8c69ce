# SPDX-License-Identifier: Apache-2.0
"""What Weir's programs know is not for an app that shares process ids and user id with them, at no moment of their lives."""
import os
import pathlib
import signal

import pytest

from world.sidecar import SIDE_UID, policy, wait_for

TOKEN = f"token-that-nobody-else-knows-{os.getpid()}"

# Looks into every process, again and again, until its input ends: says how often it looked, and whose /proc it could read
# what is asked for from. One look at a process that is about to confine itself is enough.
LOOK = r"""
import os, select, sys, threading
secret, seen, looks = sys.argv[1].encode(), {}, 0
def names(pid):
    try: return open(f"/proc/{pid}/comm").read().strip()
    except OSError: return "?"
while not select.select([0], [], [], 0)[0]:
    looks += 1
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        for file in ("environ", "cmdline"):
            try: found = secret in open(f"/proc/{pid}/{file}", "rb").read()
            except OSError: continue
            if found: seen[pid, file] = names(pid)
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if "memfd:weir" in os.readlink(f"/proc/{pid}/fd/{fd}"): seen[pid, "fd"] = names(pid)
        except OSError: pass
print(looks, flush=True)
for (pid, file), name in seen.items(): print(pid, file, name, flush=True)
"""


class Spy:
    """An app with the sidecar's user id, in its process namespace."""

    def __init__(self, pod, secret=TOKEN, uid=SIDE_UID, caps=()):
        self.started = pod.start("/usr/bin/python3", "-IS", "-c", LOOK, secret, uid=uid, caps=caps)

    def ends(self):
        done = self.started.wait(b"end\n")
        looks, *seen = done.text.splitlines()
        return int(looks), {tuple(line.split(maxsplit=2)) for line in seen}


def known(pod, uid, caps=()):
    """A process like Weir's that doesn't hide: what the spy has to find."""
    return pod.start("/bin/sleep", 600, env={"OPENSANDBOX_EGRESS_TOKEN": TOKEN}, uid=uid, caps=caps)


def restarts(side, names, times=5):
    """Return: the numbers of all that have lived, as text."""
    pids = {side.pid, *side.children().values()}
    for _ in range(times):
        for name in names:
            old = side.child(name)
            os.kill(old, signal.SIGKILL)
            pids.add(wait_for(lambda n=name, o=old: (new := side.children().get(n)) != o and new))
    wait_for(side.healthy)
    return set(map(str, pids))


@pytest.mark.parametrize("who", ["user", "root"])
def test_no_look_at_any_moment_finds_the_token(pod, site, who):
    uid, caps = (SIDE_UID, ()) if who == "user" else (0, ("net_admin", "dac_override"))
    options = {"file_caps": True, "uid": uid} if who == "user" else {"uid": 0, "caps": caps}
    state = pathlib.Path(pod.world.folder) / f"state-{pod.number}"
    state.mkdir()
    os.chown(state, uid, uid)
    side = pod.sidecar("--state-dir", state, "--review-command", "/bin/true", rules=policy(f"allow {site.name}"), token=TOKEN, **options)
    control = known(pod, uid, caps)
    spy = Spy(pod, uid=uid, caps=caps)
    ours = restarts(side, ["control", "weir-review"])
    looks, seen = spy.ends()
    assert looks > 2 and (str(control.process.pid), "environ", "sleep") in seen
    # of those of other tests on this machine only their descriptors look like ours
    assert not {one for one in seen if one[0] in ours or one[1] != "fd" and one[0] != str(control.process.pid)}
    # and what they are told arrives
    assert side.get("/policy").status == 200


def remembers(pid, secret):
    """Is @secret in what the process @pid may write to? As root, who may look."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(n, 16) for n in span.split("-"))
            if rights.startswith("rw") and "[vvar" not in line:
                memory.seek(start)
                try:
                    if secret.encode() in memory.read(end - start):
                        return True
                except OSError:  # a file that is shorter than its mapping
                    pass
    return False


def test_who_reads_strangers_bytes_has_no_token(pod, site, hook, tmp_path):
    """Of Weir's processes control alone is shown tokens. Somebody who takes over another one finds none."""
    side = pod.sidecar("--state-dir", tmp_path, "--review-command", "/bin/true", "--deny-webhook", hook.url,
                       rules=policy(f"allow {site.name}"), token=TOKEN)
    pod.probe(["dns", "denied.test"])
    wait_for(lambda: hook.calls)
    wait_for(lambda: not remembers(side.child("weir-review"), TOKEN))
    assert {name for name, pid in side.children().items() if remembers(pid, TOKEN)} == {"control"}
    assert side.get("/policy").status == 200


def test_the_engine_of_a_run_has_none_of_the_callers_secrets(world):
    secret = f"key-of-the-caller-{os.getpid()}"
    with world.run_start("sh", "-c", "echo up; exec sleep 600", env={"SOME_API_KEY": secret}) as run:
        assert run.line() == "up"
        control, engine = world.guards(run.pid)
        assert remembers(control, secret) and not remembers(engine, secret)


def environment(pid):  # as root, who may
    return pathlib.Path(f"/proc/{pid}/environ").read_bytes()


def test_no_program_has_settings_in_its_environment_or_arguments(pod, site, tmp_path):
    side = pod.sidecar("--state-dir", tmp_path, "--review-command", "/bin/true", rules=policy(f"allow {site.name}"), token=TOKEN)
    programs = {name: side.child(name) for name in ("control", "weir-review")}
    for name, pid in programs.items():
        assert environment(pid) in (b"", b"\0") or b"ASAN" in environment(pid), name
        assert len(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")) == 2, name
    assert TOKEN.encode() in environment(side.pid)
