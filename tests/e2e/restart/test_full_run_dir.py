# SPDX-License-Identifier: Apache-2.0
"""The daemon's run directory, where snapshots of what was learned lie, is full."""
import os
import subprocess

import pytest

from world.expect import tcp_refused
from world.sidecar import wait_for

SIZE = 1 << 20


@pytest.fixture
def tight(host):
    """The host's run directory on a file system of one MiB."""
    run = host.folder / "run"
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "none", run], check=True)
    yield run
    host.close()
    subprocess.run(["umount", "-l", run], check=True)


def fill(folder):
    """Nothing is left of it."""
    with (folder / "filling").open("wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096):
                pass
        except OSError:
            pass


def room(folder):
    at = os.statvfs(folder)
    return at.f_bavail * at.f_bsize


def learn(world, pod, first, count=40):
    """Addresses of @count names that are new here, asked for by @pod."""
    names = [f"n{i}.{first}" for i in range(count)]
    sites = [world.site(name) for name in names]
    return [a.addresses == [s.v4] for a, s in zip(pod.probe(*[["dns", name] for name in names]), sites)]


def whats(daemon, name):
    return {d["what"] for d in daemon.status(name)["degradations"]}


@pytest.fixture
def both(host, tight, pod, other, site):
    daemon = host.daemon()
    for name, ns in (("one", pod), ("two", other)):
        daemon.attach(name, ns)
        daemon.set_policy(name, f"allow **.{site.name}")
    return daemon


def test_no_sandbox_ends_the_engine(world, tight, both, pod, other, site, denied):
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert whats(both, "one") == set(), "there is room"
    fill(tight)
    assert room(tight) == 0
    engine = both.children()["engine"]
    assert all(learn(world, pod, f"a.{site.name}", 150))
    assert all(learn(world, other, f"b.{site.name}"))
    assert both.children()["engine"] == engine, both
    assert whats(both, "one") == whats(both, "two") == {"snapshot"}
    tcp_refused(pod.probe(["tcp", denied.v4, 7007]))
    # what could be kept outlives the engine, and the next one is as good
    both.kill_child("engine")
    wait_for(lambda: both.healthy() and pod.probe(["dns", site.name]).get("addresses") == [site.v4])
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"
    assert other.probe(["dns", site.name]).addresses == [site.v4]
    tcp_refused(other.probe(["tcp", denied.v4, 7007]))
    # with room again all is kept
    (tight / "filling").unlink()
    assert all(learn(world, pod, f"c.{site.name}")) and all(learn(world, other, f"d.{site.name}"))
    assert whats(both, "one") == whats(both, "two") == set()


def test_a_restart_on_a_full_disk_guards_all_again(host, tight, both, pod, other, site, denied):
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    image = tight / "sandboxes" / "two" / "image"
    fill(tight)
    both.kill_child("engine")
    wait_for(both.healthy)
    assert [p.probe(["tcp", site.v4, 7007]).result for p in (pod,)] == ["ok"], "what was learned is there again"
    both.kill()
    image.unlink()
    fill(tight)
    again = host.daemon()
    wait_for(lambda: set(again.names()) == {"one", "two"})
    for ns in (pod, other):
        assert wait_for(lambda ns=ns: ns.probe(["dns", site.name]).addresses) == [site.v4]
        tcp_refused(ns.probe(["tcp", denied.v4, 7007]))


def test_a_snapshot_takes_no_more_than_it_holds(world, host, pod, other, site):
    """A snapshot takes what is learned, and no more."""
    daemon = host.daemon()
    for name, ns in (("one", pod), ("two", other)):
        daemon.attach(name, ns)
        daemon.set_policy(name, f"allow **.{site.name}")
    assert all(learn(world, pod, f"a.{site.name}", 150)) and all(learn(world, other, f"b.{site.name}"))
    taken = [os.stat(host.folder / "run" / "sandboxes" / n / "image").st_blocks * 512 for n in ("one", "two")]
    assert 150 * 290 <= taken[0] < 150 * 290 + 64 * 1024 and 0 < taken[1] < 64 * 1024, taken
    assert whats(daemon, "one") == set()
