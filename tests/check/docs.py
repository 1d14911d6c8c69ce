#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every file and folder that docs/architecture.md and tests/README.md name is there, and every test that docs/compatibility.md
names; each row of its tables of programs and places names one."""

import glob
import pathlib
import re
import sys

ENDING = r"\.(?:c|h|py|md|json|scn|build)"
PATH = re.compile(rf"(?<![\w/.-])((?:[a-z_*]+/)*[\w*]+{ENDING})(?![\w/])")
FOLDER = re.compile(r"`((?:src|tests|docs)/[a-z_/]+)`")


def is_there(root, name, bases):
    return any(glob.glob(str(root / base / name)) for base in bases)


def faults_of(root, page, bases):
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        for name in PATH.findall(line) + FOLDER.findall(line):
            if "NAME" not in name and "FILE" not in name and not is_there(root, name, bases):
                yield f"{page}:{number}: {name} is not there"


def test_faults_of(root, page):
    text = (root / page).read_text()
    for number, line in enumerate(text[:text.index("## What files cost")].splitlines(), 1):
        tests = re.findall(r"`(test_\w+)::(test_\w+)`", line)
        if line.startswith("| ") and not tests and not line.startswith(("| program |", "| place |")):
            yield f"{page}:{number}: the row names no test"
        for file, name in tests:
            found = [*(root / "tests/e2e").glob(f"*/{file}.py")]
            if len(found) != 1 or f"\ndef {name}(" not in found[0].read_text():
                yield f"{page}:{number}: {file}::{name} is not there"


def main(root):
    root = pathlib.Path(root)
    faults = [*faults_of(root, "docs/architecture.md", ("", "src", "docs", "src/resolver", "src/relay", "src/dns")),
              *faults_of(root, "tests/README.md", ("", "tests", "tests/scenario")),
              *test_faults_of(root, "docs/compatibility.md")]
    print("\n".join(faults) or "what the pages name is there")
    return 1 if faults else 0


sys.exit(main(sys.argv[-1]))
