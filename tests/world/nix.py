# SPDX-License-Identifier: Apache-2.0
"""Nix with a store of the test's own, and nixpkgs.nix in the place of nixpkgs, which a test can't fetch."""
import os
import pathlib
import subprocess

from .world import ROOT

SETTINGS = "build-users-group =\nsandbox = false\nsubstitute = false\n"


class Nix:
    def __init__(self, folder):
        self.folder = folder
        (folder / "etc").mkdir()
        (folder / "etc/nix.conf").write_text(SETTINGS)
        self._env = {**os.environ, "HOME": str(folder), "NIX_CONF_DIR": str(folder / "etc"), "NIX_STORE_DIR": str(folder / "store"),
                     "NIX_STATE_DIR": str(folder / "var"), "NIX_LOG_DIR": str(folder / "log")}

    def __call__(self, program, *words, source='"/source"'):
        """deploy/nix by nix-instantiate or nix-build, from @source. Return: what was printed."""
        nixpkgs = pathlib.Path(__file__).parent / "nixpkgs.nix"
        done = subprocess.run([program, ROOT / "deploy/nix", "--arg", "pkgs", f"import {nixpkgs} {{ source = {source}; }}", *words],
                              env=self._env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
