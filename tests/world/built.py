# SPDX-License-Identifier: Apache-2.0
"""Where the programs are that the tests start."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD") or ROOT / "build")
DRIVERS = BUILD / "tests" / "drivers"  # one module each, which a test tells what to do
PROGRAMS = pathlib.Path(os.environ.get("WEIR") or ROOT / "build" / "weir").resolve().parent  # those under test
