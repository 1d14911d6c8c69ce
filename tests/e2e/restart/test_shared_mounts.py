# SPDX-License-Identifier: Apache-2.0
"""Where mounts are shared, as systemd makes them, what a namespace of Weir's unmounts would be unmounted for everybody."""
import subprocess

import pytest

from world.daemon import Host
from world.mounts import SharedMounts
from world.sidecar import Pod, policy
from world.world import ECHO_PORT

# What a machine has mounted. A network namespace has a name there, too.
MACHINE = ("mkdir -p /run/netns; mount -t tmpfs named /run/netns; touch /run/netns/some; "
           "unshare --net mount --bind /proc/self/ns/net /run/netns/some")


@pytest.fixture
def machine():
    with SharedMounts(MACHINE) as shared:
        names = {path for path, _ in shared._first}
        assert {"/", "/proc", "/run/netns", "/run/netns/some"} <= names
        yield shared
        assert not shared.gone()


def test_a_look_at_what_is_gone(machine):
    """What slirp4netns does by itself: its root is made private, and all below the old one is detached."""
    subprocess.run(["nsenter", f"--mount=/proc/{machine.pid}/ns/mnt", "unshare", "--mount", "--propagation", "unchanged", "sh", "-ec",
                    "umount -l /run/netns"], check=True)
    assert machine.gone() == {("/run/netns", "tmpfs"), ("/run/netns/some", "nsfs")}
    machine._first = set()


@pytest.mark.parametrize("uplink", ["relay", "slirp4netns", "pasta", "none"])
@pytest.mark.parametrize("user", ["root", "weir-test"])
def test_a_run_takes_no_mount_away(world, machine, tun, site, user, uplink):
    answer = world.probe(["udp", site.v4, ECHO_PORT, "hello", 30] if uplink in ("slirp4netns", "pasta") else ["own_addresses"],
                         user=user, mounts=tun, options=("--uplink", uplink), allow=[f"{site.v4}:udp/{ECHO_PORT}"])
    assert answer.result == "ok", dict(answer)


def test_a_sidecar_and_a_daemon_take_no_mount_away(world, machine, site):
    with Host(world) as host, Pod(world) as pod, Pod(world) as beside:
        daemon = host.daemon(way=["nsenter", f"--mount=/proc/{machine.pid}/ns/mnt"])
        daemon.attach("one", pod, "--allow", site.name)
        daemon.attach("two", None, "--allow", site.name, where="/run/netns/some")
        beside.sidecar(rules=policy(f"allow {site.name}"))
        for app in (pod, beside):
            assert app.probe(["dns", site.name]).addresses == [site.v4]
        daemon.kill_child("engine")
        assert daemon.weir("detach", "one").code == daemon.weir("detach", "two").code == 0
        assert daemon.stop() == 0
