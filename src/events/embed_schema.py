#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the schema that migrations make, as SQLite keeps it, as C: embed_schema.py OUTPUT FILE..."""

import pathlib
import sqlite3
import sys


def statements(path):
    """Without the comments, as embed.py has them."""
    lines = (line.split("--")[0].rstrip() for line in path.read_text(encoding="ascii").split("\n"))
    return "".join(line + "\n" for line in lines if line)


def quoted(text):
    return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", '\\n"\n\t  "') + '"'


out, paths = pathlib.Path(sys.argv[1]), sorted(map(pathlib.Path, sys.argv[2:]))
made = sqlite3.connect(":memory:")
for path in paths:
    made.executescript(statements(path))
rows = ",\n".join("\t{ " + ",\n\t  ".join(map(quoted, row)) + " }"
                  for row in made.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"))
out.write_text("/* made by embed_schema.py; sql: NULL where SQLite made it */\n"
               f"static const struct {{\n\tconst char *type, *name, *table, *sql;\n}} schema[] = {{\n{rows},\n}};\n", encoding="ascii")
