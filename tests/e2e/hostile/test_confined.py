# SPDX-License-Identifier: Apache-2.0
"""What each confinement of the engine holds when it stands alone, and that all of them hold everything.

confined_driver confines itself as the engine does and then tries what somebody would who took it over.
`tests/run confined` runs a part of the other tests with a Weir whose engine has one confinement alone.
"""
import os
import shutil

import pytest

from world.built import DRIVERS
from world.netns import NetNs

BUILT = (DRIVERS / "confined_all").exists()
pytestmark = pytest.mark.skipif(not BUILT, reason="a sanitizer's build has no seccomp")

FILES = {"read", "write", "list", "exec", "remove"}             # of the host's file system
NEIGHBOURS = {"abstract", "signal", "trace"}                    # other processes
SOCKETS = {"netlink", "raw", "packet"}                          # which the engine has no use for
REST = {"fork", "mount", "code", "io_uring", "namespace"}
NETWORK = {"network"}                                           # changed by the descriptor that the engine has
EVERYTHING = FILES | NEIGHBOURS | SOCKETS | REST | NETWORK

# Held from root, who could do all of it; and from an ordinary user, who can't do RIGHTS in the first place.
RIGHTS = {"raw", "packet", "mount", "network"}
HELD = {
    "all": (EVERYTHING, EVERYTHING),
    "seccomp": (EVERYTHING - NETWORK, EVERYTHING),
    "landlock": (FILES | NEIGHBOURS | {"mount"}, FILES | NEIGHBOURS | RIGHTS),
    "capabilities": (RIGHTS | {"trace"}, RIGHTS),
}


@pytest.fixture
def attempts(world):
    def run(confinement, user, *words):
        folder = world.workdir(user)
        program = shutil.copy(DRIVERS / f"confined_{confinement}", folder / "driver")
        (folder / "file").write_text("content\n")
        who = world.user(user)
        os.chown(folder / "file", who.uid, who.gid)
        namespace = NetNs()
        namespace.ip("link set lo up")
        try:
            done = world.command(*namespace.command(*who.become(), program, folder / "file", *words), cwd=folder)
        finally:
            namespace.close()
        assert done.code == 0 and done.err == b"", done
        missing, *lines = done.text.splitlines()
        return missing.partition(" ")[2], dict(line.split() for line in lines)
    return run


@pytest.mark.parametrize("confinement", HELD)
def test_what_a_confinement_holds_and_what_it_leaves(attempts, confinement, user):
    missing, results = attempts(confinement, user)
    held = HELD[confinement][user != "root"]
    assert set(results) == EVERYTHING | {"connect"}
    assert {name for name, result in results.items() if result != "done"} == held, results
    assert {results[name] for name in held} <= {"EPERM", "EACCES"}, results
    assert ("only partly confined" in missing) == (confinement != "all"), missing


def test_the_right_to_change_networks_is_all_that_is_kept_where_it_is_needed(attempts):
    missing, results = attempts("all", "root", "keep")
    assert missing == "" and {name for name, result in results.items() if result == "done"} == {"connect", "network"}, results


def test_a_kept_right_opens_no_other(attempts):
    results = attempts("capabilities", "root", "keep")[1]
    assert results["network"] == "done" and results["mount"] == results["raw"] == results["trace"] == "EPERM", results


@pytest.mark.parametrize("confinement", sorted(HELD)[1:])
def test_a_weir_that_is_only_partly_confined_says_so(world, confinement, user):
    program = world.folder / "bin" / f"weir_{confinement}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        shutil.copy(DRIVERS / program.name, program)
        program.chmod(0o755)
    done = world.command(program, "run", "--", "true", user=user)
    assert done.code == 0 and "only partly confined" in done.messages, done


def test_the_program_that_is_installed_knows_no_such_choice(world):
    data = world.weir_path.read_bytes()
    if b"weir_" not in os.fsencode(os.environ.get("WEIR", "")):
        assert b"only partly confined" not in data
        assert world.run("true").err == b""
