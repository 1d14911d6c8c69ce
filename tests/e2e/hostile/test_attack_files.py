# SPDX-License-Identifier: Apache-2.0
"""What whoever writes to the directories that the sidecar reads can do to it."""
import ctypes
import os
import signal
import subprocess
import time

import pytest

from world import expect
from world.sidecar import wait_for


@pytest.fixture
def rules(world):
    return world.workdir()


def test_a_busy_directory_puts_no_reload_off(pod, guarded, rules, site):
    """Other files there change all the time; a deny counts all the same, and soon."""
    guarded(f"allow {site.name}", args=("--always-dir", str(rules)))
    assert pod.probe(["dns", site.name]).result == "NOERROR"
    noise = subprocess.Popen(["/bin/sh", "-c", 'while :; do : > "$1"; done', "sh", rules / "noise"])
    try:
        time.sleep(0.1)
        (rules / "deny.always").write_text(site.name + "\n")
        wait_for(lambda: pod.probe(["dns", site.name]).result == "NXDOMAIN", step=0.05)
    finally:
        noise.kill()
        noise.wait()


def plant_fifo(path):
    os.mkfifo(path)


def plant_zero(path):
    path.symlink_to("/dev/zero")


def plant_folder(path):
    path.mkdir()


def plant_large(path):
    with open(path, "wb") as f:
        f.truncate(1 << 40)


def plant_text(path):
    path.write_bytes(b"\x00\x1b[2J\xff\xfe\n" + b"a" * 70000 + b"\n10.0.0.0/33\n")


def exchange(one, other):
    here, exchanged = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchanged) == 0, os.strerror(ctypes.get_errno())


@pytest.mark.parametrize("plant", [plant_fifo, plant_zero, plant_folder, plant_large, plant_text])
def test_what_is_no_list_leaves_the_old_one(pod, guarded, rules, site, denied, plant):
    path = rules / "deny.always"
    path.write_text(denied.name + "\n")
    side = guarded(f"allow {site.name}", f"allow {denied.name}", args=("--always-dir", str(rules)))
    expect.name_refused(pod.probe(["dns", denied.name]))
    plant(rules / "next")
    exchange(rules / "next", path)  # a moment without a file would be a file that was removed
    wait_for(lambda: side.log("always rules not reloaded"))
    assert side.get("/healthz").status == 200
    side.post(f"allow {site.name}", f"allow {denied.name}")
    expect.name_refused(pod.probe(["dns", denied.name]))
    assert pod.probe(["dns", site.name]).result == "NOERROR"
    assert all(line.isprintable() for line in side.lines + side.errors)


def test_an_image_that_was_cut_short_costs_one_engine(pod, guarded, rules, site):
    """Whoever may write to the state folder can end the engine, once; the rules stay, and the next one serves."""
    side = guarded(f"allow {site.name}", args=("--state-dir", str(rules)))
    assert pod.probe(["connect", site.name, 7007]).result == "ok"
    image, = rules.glob("learned.*")
    os.truncate(image, 0)
    wait_for(lambda: pod.probe(["dns", site.name]).result == "NOERROR" and side.healthy(), step=0.05)
    side.post(f"allow {site.name}", "allow other.test")
    wait_for(lambda: pod.probe(["connect", site.name, 7007]).result == "ok", step=0.05)
    expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))
    engine = side.child("engine")
    time.sleep(0.5)
    assert side.child("engine") == engine, "it dies again and again"


def plant_link(path):
    path.symlink_to("/proc/self/mem")


def plant_link_to_file(path):
    """As to a policy, or the store of events, where control may write."""
    (path.parent / "policy").write_text("{}")
    path.symlink_to("policy")


def plant_read_fifo(path):
    """Its reader stays, and reads nothing."""
    os.mkfifo(path)
    os.open(path, os.O_RDONLY | os.O_NONBLOCK)


@pytest.mark.parametrize("plant", [plant_fifo, plant_read_fifo, plant_folder, plant_link, plant_link_to_file])
def test_what_is_no_log_keeps_nobody_from_the_api(pod, guarded, rules, site, plant):
    """Whoever may write where the log is can lose its lines, and nothing else; a control that starts there serves."""
    log = rules / "egress.log"
    side = guarded(f"allow {site.name}", args=("--log-output", str(log), "--log-output", "stdout"))
    wait_for(lambda: log.exists() and "policy" in log.read_text())
    log.unlink()
    plant(log)

    def is_noticed():
        side.post(f"allow {site.name}")
        return side.get("/status").json()["degradations"]
    wait_for(is_noticed, step=0.2)
    os.kill(side.child("control"), signal.SIGKILL)
    wait_for(side.healthy)
    status = side.get("/status").json()
    assert [d["what"] for d in status["degradations"]] == ["log"] and status["fullIsolation"]
    assert pod.probe(["connect", site.name, 7007]).result == "ok"
    # and a start is no different
    side.kill()
    again = guarded(f"allow {site.name}", args=("--log-output", str(log), "--log-output", "stdout"))
    assert [d["what"] for d in again.get("/status").json()["degradations"]] == ["log"]
    log.rmdir() if log.is_dir() else log.unlink()
    def is_written():
        again.post(f"allow {site.name}", "allow other.test")
        return log.exists() and "other.test" in log.read_text()
    wait_for(is_written, step=0.2)
    assert again.get("/status").json()["degradations"] == []
    assert not (rules / "policy").exists() or (rules / "policy").read_text() == "{}"
