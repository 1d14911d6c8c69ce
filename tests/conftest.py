# SPDX-License-Identifier: Apache-2.0
"""Fixtures that all tests share: one world per session, tests kept apart by names."""
import os
import pathlib
import subprocess

import pytest

from world import World


@pytest.fixture(scope="session")
def world():
    if os.geteuid() != 0:
        pytest.fail("the tests make network namespaces: run them as root")
    with World() as w:
        yield w


@pytest.fixture(params=["root", "weir-test"])
def user(request):
    """Both who may start Weir."""
    return request.param


@pytest.fixture
def site(world, request):
    """A name that only this test knows, with its own addresses."""
    return world.site(f"site-{world.number()}.test")


@pytest.fixture
def denied(world):
    """A name that no rule of this test allows; the world's DNS would answer for it."""
    return world.site(f"denied-{world.number()}.test")


@pytest.fixture(scope="session")
def attack_program(world):
    """bypass/attack.c, where a sandbox can run it."""
    source = pathlib.Path(__file__).parent / "bypass" / "attack.c"
    program = world.tools / "attack"
    if not program.exists():
        subprocess.run(["cc", "-O1", "-Wall", "-D_GNU_SOURCE", "-o", program, source], check=True)
    return program
