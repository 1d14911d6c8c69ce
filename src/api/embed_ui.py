#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the page's files as a C table: embed_ui.py OUTPUT FILE…"""

import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8"}


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


output, *files = map(pathlib.Path, sys.argv[1:])
files = [f for f in files if f.suffix in TYPES]
output.write_text("/* made by embed_ui.py */\nstatic const struct ui_asset ui_assets[] = {\n" +
                  "".join(map(asset, files)) + "};\n", encoding="utf-8")
