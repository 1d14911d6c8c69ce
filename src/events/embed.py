#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write migrations as C, in the order of their numbers: embed.py OUTPUT FILE..."""

import pathlib
import sys


def literal(text):
    """One C string per line, without the comments. (In brackets below: clang suspects two lines of being two strings.)"""
    lines = [line.split("--")[0].rstrip() for line in text.split("\n")]
    return "\n".join('\t"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"' for line in lines if line)


out, paths = pathlib.Path(sys.argv[1]), sorted(map(pathlib.Path, sys.argv[2:]))
first = int(paths[0].name[:3])
for number, path in enumerate(paths, first):
    assert path.name.startswith(f"{number:03}_"), f"{path}: its number should be {number}"
rows = ",\n".join("(" + literal(path.read_text(encoding="ascii")) + ")" for path in paths)
out.write_text(f"/* made by embed.py */\nenum {{ FIRST_VERSION = {first} }};\n"
               f"static const char *const migrations[] = {{\n{rows},\n}};\n", encoding="ascii")
