#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write lists of profiles/ as C: embed_lists.py OUTPUT FILE...

A line of a list is three columns, two spaces or more between them; the last one is the reason, for people who read the
list."""

import pathlib
import re
import sys


def rows(path):
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = re.split(r" {2,}", line.strip())
        if len(columns) != 3 or re.search(r'["\\?]', line.replace("?sig=", "")):
            sys.exit(f"{path}:{number}: is not three columns of plain text")
        yield columns[:2]


def main():
    body = ["/* made by embed_lists.py */"]
    for path in map(pathlib.Path, sys.argv[2:]):
        body.append(f"static const char *const {path.stem}_list[][2] = {{")
        body += [f'\t{{ "{one}", "{other}" }},' for one, other in rows(path)]
        body.append("};")
    pathlib.Path(sys.argv[1]).write_text("\n".join(body) + "\n", encoding="ascii")


main()
