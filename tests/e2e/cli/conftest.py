# SPDX-License-Identifier: Apache-2.0
"""What several tests of the tools start from."""
import pytest

from world.store import Store


@pytest.fixture
def store(tmp_path):
    tmp_path.chmod(0o755)
    with Store(tmp_path / "state") as opened:
        yield opened
