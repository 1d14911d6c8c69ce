# SPDX-License-Identifier: Apache-2.0
"""weir attach of a process whose packets another kernel sends (gVisor, virtual machines) is refused. The processes here are called
like these programs and do nothing: the name is what is looked at."""
import pathlib
import shutil

import pytest

from world.daemon import pid_in
from world.run import Started
from world.sidecar import wait_for

NAMES = ("runsc-sandbox", "qemu-system-x86_64", "firecracker", "cloud-hypervisor", "kata-runtime")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["{}", "/proc/{}/ns/net"])
def test_its_program_is_one(daemon, pod, world, name, where):
    program = world.workdir() / ("a-folder-with-a-long-name" * 4) / name  # which the message has no room for
    program.parent.mkdir()
    shutil.copy("/usr/bin/sleep", program)
    judge(daemon, pod, where, program, "600", name=name)


def test_its_first_argument_says_so(daemon, pod):
    judge(daemon, pod, "{}", "bash", "-c", "exec -a /proc/self/runsc-sandbox sleep 600", name="runsc-sandbox")


def judge(daemon, pod, where, *argv, name):
    with Started(pod.ns.command(*argv)) as guest, Started(pod.ns.command("sleep", "600")) as other:
        pid = pid_in(pod, guest)
        wait_for(lambda: name in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0])
        done = daemon.weir("attach", "--id", "one", "--netns", where.format(pid))
        assert done.code == 125 and "failed_safety_setup" in done.messages and name in done.messages and "runc" in done.messages, done
        assert daemon.names() == []
        # nothing was installed, and the same namespace by another process of it can be guarded
        assert "table" not in pod.nft("list", "tables")
        daemon.attach("two", pod, where=pid_in(pod, other))
        assert daemon.names() == ["two"]
