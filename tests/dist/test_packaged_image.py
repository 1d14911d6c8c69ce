# SPDX-License-Identifier: Apache-2.0
"""The sidecar's image from the packages alone, as the head of Dockerfile.staged says."""
import subprocess

from test_dist import package
from world import docker, expect
from world.sidecar import policy


def test_the_image_needs_no_checkout(world, built, site, denied):
    packages, context = world.workdir(), world.workdir()
    for name in ("weir", "weir-daemon"):
        subprocess.run(["dpkg-deb", "-x", package(built[0], name), packages], check=True)
    tools = packages / "usr/share/weir"
    subprocess.run([tools / "rootfs", "--tar", context / "root.tar", packages / "usr", world.workdir() / "root"], check=True,
                   stdout=subprocess.DEVNULL)
    with docker.Engine(world) as engine:
        engine.build("weir:packages", context, tools / "Dockerfile.staged")
        engine("run", "--detach", "--name", "side", "--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--read-only",
               "-e", f"WEIR_RULES={policy(f'allow {site.name}')}", "weir:packages")
        engine.ready("side")
        good, name, bad = engine.probe("container:side", ["connect", site.name, 7007], ["lookup", denied.name], ["tcp", denied.v4, 7007])
        assert good.result == "ok" and name.result != "ok", (good, name)
        expect.tcp_refused(bad)
