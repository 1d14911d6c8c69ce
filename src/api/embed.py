#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write files as a C table: embed.py OUTPUT NAME FILE..."""

import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".yaml": "application/yaml"}


def line_of(text):
    shown = "".join(c if " " <= c <= "~" and c not in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
                    for c in text)
    return f'\t"{shown}\\n"'


def asset(path):
    text = path.read_text(encoding="utf-8")
    name = "" if path.name == "index.html" else path.name
    tag = hashlib.sha256(text.encode()).hexdigest()[:20]
    bytes_ = "\n".join(map(line_of, text.rstrip("\n").split("\n")))
    return f'{{ "{name}", "{TYPES[path.suffix]}", "\\"{tag}\\"", {len(text.encode())},\n{bytes_} }},\n'


output, table, *files = sys.argv[1:]
pathlib.Path(output).write_text(f"/* made by embed.py */\nstatic const struct asset {table}[] = {{\n" +
                                "".join(asset(pathlib.Path(f)) for f in files) + "};\n", encoding="utf-8")
