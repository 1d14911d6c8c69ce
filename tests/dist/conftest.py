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
