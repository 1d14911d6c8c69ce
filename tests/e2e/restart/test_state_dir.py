# SPDX-License-Identifier: Apache-2.0
"""What others can put where the sidecar keeps what its successor reads says nothing."""
import contextlib
import fcntl
import json
import os
import subprocess
import threading

import pytest

from world import expect
from world.sidecar import APP_UID, Pod, policy, wait_for

WIDE = policy(default="allow")
STRANGER = "93.9.9.9"


def plant(pod, path, text):
    """As the app, which has another user's id."""
    done = pod.run("/bin/sh", "-c", 'umask 0; printf %s "$1" > "$2"', "sh", text, path)
    assert done.code == 0 and path.stat().st_uid == APP_UID, done


def guards(pod, side, site):
    assert pod.probe(["dns", site.name]).result == "NOERROR"
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))
    assert pod.packets(dst=STRANGER) == []
    assert side.healthy()


def said(side, text):
    wait_for(lambda: any(text in line for line in side.errors))
    return True


def degraded(side):
    status = side.get("/status").json()
    assert status["fullIsolation"], "what is kept lets nothing out"
    return [(d["what"], d["reason"]) for d in status["degradations"]]


@pytest.fixture(name="volume")
def fixture_volume(world):
    """A mount of its own that is root's and anybody's to write to, as in a pod."""
    path = world.workdir() / "volume"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0777,size=64m", "weir-test", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("where", ["beside", "volume"])
def test_a_policy_that_somebody_else_has_decided_is_none(pod, world, volume, site, where):
    shared = world.workdir() / "shared"
    shared.mkdir()
    shared.chmod(0o1777)  # nobody can take root's file away there
    file = (shared if where == "beside" else world.workdir()) / "policy.json"
    file.write_text(policy(f"allow {site.name}"))
    plant(pod, (shared if where == "beside" else volume) / ".policy.json.weir-commit", WIDE)
    side = pod.sidecar("--policy-file", file, "--state-dir", volume)
    guards(pod, side, site)
    assert json.loads(file.read_text())["defaultAction"] == "deny"
    # root's own is what a sidecar before this one has left
    side.kill()
    decided = volume / ".policy.json.weir-commit"
    decided.unlink(missing_ok=True)
    decided.write_text(WIDE)
    pod.sidecar("--policy-file", file, "--state-dir", volume)
    assert pod.probe(["tcp", STRANGER, 443]).result == "ok"
    assert json.loads(file.read_text())["defaultAction"] == "allow"


def others(path, _target):
    path.mkdir()
    os.chown(path, APP_UID, APP_UID)


def anybodys(path, _target):
    path.mkdir()
    path.chmod(0o777)


def a_link(path, target):
    path.symlink_to(target)
    os.lchown(path, APP_UID, APP_UID)


def below_others(path, _target):
    path.mkdir()
    os.chown(path.parent, APP_UID, APP_UID)


@pytest.mark.parametrize("make, why", [(others, "belongs to another user"), (anybodys, "others than its owner may write"),
                                       (a_link, "belongs to another user"), (below_others, "belongs to another user")])
def test_a_directory_that_others_may_write_to_keeps_nothing(pod, world, site, make, why):
    target, state = world.workdir(), world.workdir() / "state"
    make(state, target)
    args = ("--state-dir", state, "--review-command", "/bin/true")
    side = pod.sidecar(*args, rules=policy(f"allow {site.name}"))
    guards(pod, side, site)
    (what, reason), = degraded(side)
    assert what == "store" and why in reason, reason
    assert said(side, "nothing is kept there")
    assert os.listdir(target) == os.listdir(state) == []
    assert not any("weir-review" in name for name in side.children())


def test_a_volume_of_ones_own_keeps_what_is_ours(pod, volume, site):
    """Others may take it away, which is told, and can't make any."""
    boot = open("/proc/sys/kernel/random/boot_id", encoding="ascii").read().strip()
    plant(pod, volume / f"learned.{boot}", "x")
    side = pod.sidecar("--state-dir", volume, rules=policy(f"allow {site.name}"))
    guards(pod, side, site)
    assert degraded(side) == []
    assert said(side, "they can take away what is kept there") and said(side, "cannot keep")
    wait_for(lambda: (volume / "events.db").exists())
    assert not (volume / "events.db-shm").exists()  # which others could cut while it is mapped
    (volume / f"learned.{boot}").unlink()
    side.kill()
    again = pod.sidecar("--state-dir", volume, rules=policy(f"allow {site.name}"))
    guards(pod, again, site)
    assert (volume / f"learned.{boot}").stat().st_uid == 0
    os.link(volume / f"learned.{boot}", volume / "another")
    again.kill()
    third = pod.sidecar("--state-dir", volume, rules=policy(f"allow {site.name}"))
    guards(pod, third, site)
    assert said(third, "cannot keep"), "a file with another name may be anybody's file"


@pytest.mark.parametrize("how", ["no directory", "another boot", "another version"])
def test_a_budget_whose_count_is_lost_is_used_up(pod, world, site, how):
    state, other = world.workdir(), world.site(f"other{world.number()}.test")
    spend = {"action": "allow", "target": site.name, "budget": {"sent": "2K"}}
    options = {"rules": policy(spend, f"allow {other.name}"), "mode": "dns+nft"}
    args = () if how == "no directory" else ("--state-dir", state)
    first = pod.sidecar(*args, **options)
    assert all(a.addresses for a in pod.probe(["dns", site.name], ["dns", other.name]))  # a new pod has all of it
    first.kill()
    earlier = set(state.glob("learned.*"))
    for path in earlier:
        if how == "another boot":
            path.rename(state / "learned.11111111-2222-3333-4444-555555555555")
        else:
            os.truncate(path, 1000)
    with Pod(world) if earlier else contextlib.nullcontext(pod) as again:  # another namespace, without rules
        for _ in range(2):
            side = again.sidecar(*args, **options)
            spent, free = again.probe(["dns", site.name], ["dns", other.name])
            expect.name_refused(spent)
            assert free.addresses
            side.kill()
        assert {p.stat().st_size for p in state.glob("learned.*")} == ({4 << 20} if earlier else set())
        assert len(list(state.glob("learned.*"))) == len(earlier)
        # whoever takes the rule out and adds it again has all of it
        side = again.sidecar(*args, **options)
        side.post(f"allow {other.name}")
        side.post(spend, f"allow {other.name}")
        assert again.probe(["dns", site.name]).addresses


def test_what_others_have_put_beside_what_was_learned_stays(pod, world, volume, site):
    """It is no sidecar's: it says nothing of a count, and is nobody's to take away."""
    plant(pod, volume / "learned.11111111-2222-3333-4444-555555555555", "x")
    spend = {"action": "allow", "target": site.name, "budget": {"sent": "2K"}}
    pod.sidecar("--state-dir", volume, rules=policy(spend), mode="dns+nft")
    assert pod.probe(["dns", site.name]).addresses
    assert len(list(volume.glob("learned.*"))) == 2


def test_a_sidecar_that_dies_slowly_is_waited_for(pod, site, world):
    """Its processes may hold what is learned for a moment longer than its supervisor lives."""
    state = world.workdir()
    rules = policy(f"allow {site.name}")
    first = pod.sidecar("--state-dir", state, rules=rules)
    assert pod.probe(["dns", site.name]).result == "NOERROR"
    first.stop()
    [kept] = state.glob("learned.*")
    with open(kept, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        timer = threading.Timer(0.3, fcntl.flock, (held, fcntl.LOCK_UN))
        timer.start()
        second = pod.sidecar("--state-dir", state, rules=rules)
        timer.join()
    assert pod.probe(["tcp", site.v4, 7007, "hello"]).result == "ok", "without a question"
    assert not [line for line in second.errors if "cannot keep" in line], second
