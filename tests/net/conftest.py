# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: uplinks, an ssh server."""
import os
import socket
import stat
import subprocess

import pytest

from world.sidecar import wait_for


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


@pytest.fixture(scope="session")
def ssh_server(world):
    """An sshd of the internet, with a key of its own; every login gets a greeting."""
    folder = world.folder / "ssh"
    folder.mkdir(mode=0o755)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "config").write_text(
        f"Port 22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\nStrictModes no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\nUseDNS no\n"
        'ForceCommand echo "welcome: $SSH_ORIGINAL_COMMAND"\n')
    (folder / "log").touch()
    script = "mount -t tmpfs none /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -f $0 -E $1"
    server = subprocess.Popen(world.internet.command("unshare", "--mount", "sh", "-c", script,
                                                     str(folder / "config"), str(folder / "log")))
    for family, address in (socket.AF_INET, "93.1.1.1"), (socket.AF_INET6, "2a01:93::1"):
        def is_served(family=family, address=address):
            with world.internet.socket(family, socket.SOCK_STREAM) as s:
                return s.connect_ex((address, 22)) == 0
        wait_for(is_served)
    yield folder / "client"
    server.terminate()
    server.wait(60)
