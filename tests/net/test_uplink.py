# SPDX-License-Identifier: Apache-2.0
"""slirp4netns and pasta beside the relay: what they carry, and all that stays closed.

Real programs in the test world. /dev/net/tun is a node of the test's own, that every user
may open, in a mount namespace of each command's own.
"""
import os
import pathlib
import stat
import time

import pytest

from world import expect
from world.world import ECHO_PORT, HOST4, RESOLVER4

UPLINKS = ["slirp4netns", "pasta"]


@pytest.fixture(params=UPLINKS)
def uplink(request):
    return request.param


@pytest.fixture(scope="session")
def tun(world):
    """Shell lines that let everyone open /dev/net/tun."""
    node = world.folder / "tun"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    node.chmod(0o666)
    return (f"mount --bind '{node}' /dev/net/tun",)


@pytest.fixture
def over(world, tun, uplink, user):
    """Probes in a sandbox with this uplink."""
    def probe(*probes, options=(), **rest):
        return world.probe(*probes, user=user, mounts=tun,
                           options=("--uplink", uplink, *options), **rest)
    return probe


def test_udp_that_the_policy_allows_works(over, site):
    answer, same = over(["lookup", site.name], ["udp", site.v4, ECHO_PORT, "hello", 2],
                        allow=[f"{site.name}:udp/{ECHO_PORT}"])
    assert answer.result == "ok"
    assert (same.result, same.data) == ("ok", "hello"), dict(same)
