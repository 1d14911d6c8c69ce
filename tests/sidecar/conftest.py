# SPDX-License-Identifier: Apache-2.0
"""A pod of its own for each test, and a sidecar in it."""
import pytest

from world.sidecar import Pod, policy


@pytest.fixture
def pod(world):
    with Pod(world) as p:
        yield p


@pytest.fixture
def guarded(pod):
    """Start the sidecar with these rules: guarded("allow a.test", …). Return: Sidecar."""
    def start(*rules, default="deny", args=(), **options):
        return pod.sidecar(*args, rules=policy(*rules, default=default), **options)
    return start
