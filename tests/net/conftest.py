# SPDX-License-Identifier: Apache-2.0
"""What the tests of the uplinks share."""
import os
import stat

import pytest


@pytest.fixture(params=["slirp4netns", "pasta"])
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
