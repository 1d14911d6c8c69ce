# SPDX-License-Identifier: Apache-2.0
"""The Nix expression: Nix reads it, and it names what meson asks for. `make distcheck` builds it."""
import json
import re
import shutil

import pytest

from world.nix import Nix
from world.world import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("nix-instantiate"), reason="nix is not installed")
# What nixpkgs calls otherwise than meson; threads are in the C library.
NAMES = {"libcurl": "curl", "sqlite3": "sqlite", "yaml-0.1": "libyaml", "threads": None}


def test_nix_takes_the_expression_with_what_meson_asks_for(tmp_path):
    nix = Nix(tmp_path)
    package = json.loads(nix("nix-instantiate", "--eval", "--strict", "--json", "--attr", "buildInputs"))
    asked = {name for file in (ROOT / "meson.build", ROOT / "src/meson.build")
             for name in re.findall(r"dependency\('([^']+)'", file.read_text())}
    assert len(asked) > 10
    assert {path.rsplit("/", 1)[1] for path in package} == {NAMES.get(name, name) for name in asked} - {None}
    version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.M)[1]
    assert f"-weir-{version}.drv" in nix("nix-instantiate")
