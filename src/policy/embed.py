#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the files of profiles/ as C: embed.py OUTPUT FILE..."""

import pathlib
import sys


def literal(text):
    """One C string per line, so that the result can be read."""
    lines = []
    for line in text.split("\n"):
        escaped = "".join(
            c if " " <= c <= "~" and c not in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
            for c in line
        )
        lines.append(f'\t"{escaped}\\n"')
    return "\n".join(lines)


def main():
    out = pathlib.Path(sys.argv[1])
    rows, body = [], ["/* made by embed.py */"]
    for path in sorted(map(pathlib.Path, sys.argv[2:])):
        symbol = path.stem.replace("-", "_") + ("_list" if path.suffix == ".txt" else "_profile")
        text = path.read_text(encoding="utf-8").rstrip("\n")
        body.append(f"static const char {symbol}[] =\n{literal(text)};\n")
        if path.suffix == ".yaml":
            rows.append(f'\t{{ "{path.stem}", {{ {symbol}, sizeof({symbol}) - 1 }} }},')
    body.append("static const struct policy_embedded profiles[] = {")
    body += rows + ["};"]
    out.write_text("\n".join(body) + "\n", encoding="utf-8")


main()
