#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a text file as a C string: embed.py INPUT OUTPUT NAME"""

import pathlib
import sys


def line_of(text):
    shown = "".join(c if " " <= c <= "~" and c not in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
                    for c in text)
    return f'\t"{shown}\\n"'


source, output, name = sys.argv[1:]
lines = pathlib.Path(source).read_text(encoding="utf-8").rstrip("\n").split("\n")
pathlib.Path(output).write_text(
    f"/* made by embed.py */\nstatic const char {name}[] =\n" + "\n".join(map(line_of, lines)) + ";\n",
    encoding="utf-8")
