# SPDX-License-Identifier: Apache-2.0
"""Programs that use the package, in the world's host namespace."""
import contextlib
import json
import pathlib

import pytest

from world.world import RESOLVER4

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "sdk/python"
HEAD = "import asyncio, json, os, subprocess, sys, time\nimport weir\nfrom weir import aio\nsay = lambda *v: print(json.dumps(v), flush=True)\n" \
       f"upstream = {RESOLVER4!r}\n"


class Sdk:
    """sdk("say(1)") runs a program with the package. Return: what it said, a list for each say()."""

    def __init__(self, world):
        self.world = world
        # An ordinary user can't read the checkout.
        self.package = world.folder / "sdk"
        if not self.package.exists():
            import shutil
            shutil.copytree(PACKAGE / "weir", self.package / "weir", ignore=shutil.ignore_patterns("__pycache__"))

    def argv(self, code, python="/usr/bin/python3"):
        return [python, "-W", "error::ResourceWarning", "-c", HEAD + code]

    def environment(self, env=None):
        return {"PYTHONPATH": str(self.package), "PYTHONDONTWRITEBYTECODE": "1", "WEIR_PROGRAM": str(self.world.weir_path), **(env or {})}

    def start(self, code, env=None, **options):
        return self.world.start(self.argv(code), env=self.environment(env), **options)

    def __call__(self, code, env=None, namespace=None, **options):
        done = self.world.command(*self.argv(code), env=self.environment(env), **options)
        assert done.code == 0, done
        assert "Warning" not in done.messages, done
        return [json.loads(line) for line in done.text.splitlines()]


@pytest.fixture(scope="session")
def sdk(world):
    return Sdk(world)


@contextlib.contextmanager
def gone(before, now):
    """Nothing that was made in the block is left: @now() is @before() again."""
    first = before()
    yield
    assert now() == first
