# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes in one daemon: what doesn't grow with them, and where it ends."""
import os
import signal

from world.sidecar import wait_for


def test_children_are_made_by_a_small_process(daemon, pod, other, site):
    daemon.attach("one", pod, "--allow", site.name)
    porter = daemon.children()["porter"]
    # its own channel, and what every process has; not what the sandbox has
    assert len(os.listdir(f"/proc/{porter}/fd")) == 4
    os.kill(porter, signal.SIGKILL)
    wait_for(lambda: "porter" not in daemon.children())
    daemon.attach("two", other, "--allow", site.name)
    assert daemon.children()["porter"] != porter
    assert site.v4 in other.probe(["dns", site.name]).addresses
    assert site.v4 in pod.probe(["dns", site.name]).addresses
