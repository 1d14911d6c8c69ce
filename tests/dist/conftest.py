# SPDX-License-Identifier: Apache-2.0
"""What is handed out, built twice."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Two builds of the last commit, from two folders."""
    both = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for folder in both:
        subprocess.run([ROOT / "tools/dist", folder], check=True, stdout=subprocess.DEVNULL)
    return both


def debian(world, release):
    """A root file system as Debian's installer makes the smallest, from this machine's mirror."""
    uris = subprocess.check_output(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian",
                                    "Label: Debian", "Component: main"], text=True).split()
    root = world.folder / release
    subprocess.run(["debootstrap", "--variant=minbase", release, root, uris[0]], check=True, stdout=subprocess.DEVNULL)
    (root / "etc/resolv.conf").write_text(pathlib.Path("/etc/resolv.conf").read_text())
    return root


@pytest.fixture(scope="session")
def bookworm(world):
    return debian(world, "bookworm")


@pytest.fixture(scope="session")
def trixie(world):
    return debian(world, "trixie")
