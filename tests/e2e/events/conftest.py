# SPDX-License-Identifier: Apache-2.0
"""What several tests of events start from."""
import pytest

from world.member import Member, Tree, cgroup_root
from world.postgres import Postgres
from world.store import Store


def _postgres():
    s = Postgres()
    yield s
    s.end()


server = pytest.fixture(_postgres, name="server")  # for tests that kill it, or change what all its databases have
shared = pytest.fixture(_postgres, name="shared", scope="module")


@pytest.fixture
def state(tmp_path):
    """The folder of a store that is to be made."""
    tmp_path.chmod(0o755)
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def store(state):
    with Store(state) as opened:
        yield opened


@pytest.fixture
def storing(host):
    """A daemon with a store."""
    return host.daemon("--state-dir", host.folder / "state")


@pytest.fixture(params=["netns", "cgroup", "uid"])
def app(request, host, storing):
    """Whoever is guarded, in each way in which that can be."""
    if request.param != "netns" and not cgroup_root():
        pytest.skip("no cgroup v2 here")
    if request.param == "netns":
        yield request.getfixturevalue("pod")
    elif request.param == "uid":
        yield Member(host)
    else:
        tree = Tree()
        yield Member(host, tree.cgroup("a"))
        for started in host._started:
            started.kill()
        storing.kill()
        tree.close()
