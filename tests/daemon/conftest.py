# SPDX-License-Identifier: Apache-2.0
"""A host for each test, and namespaces beside it."""
import pytest

from world.daemon import Host
from world.sidecar import Pod


@pytest.fixture
def host(world):
    with Host(world) as h:
        yield h


@pytest.fixture
def daemon(host):
    return host.daemon()


@pytest.fixture
def pod(world):
    with Pod(world) as p:
        yield p


@pytest.fixture
def other(world):
    with Pod(world) as p:
        yield p
