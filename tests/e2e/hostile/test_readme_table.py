# SPDX-License-Identifier: Apache-2.0
"""The table of README.md: every file that it names is there, and tries what it is named for."""
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROWS = [[cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-J]\d", line)]


def test_each_way_stands_there_once():
    ways = [row[0].split()[0] for row in ROWS]
    assert len(ways) == len(set(ways)) > 90 and all(len(row) == 4 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0].split()[0] for row in ROWS])
def test_it_is_tried_where_the_table_says(row):
    way = row[0].split()[0]
    for cell in row[1:]:
        assert cell
        for name in [] if cell.startswith("(") else cell.split():
            found = sorted(HERE.parent.glob(f"*/test_{name}.py"))
            assert len(found) == 1, (way, name)
            text = found[0].read_text(encoding="utf-8")
            if re.match(r"[a-i]_", name) or name in ("ways_out", "host_attacks", "host_lifecycle"):
                assert re.search(rf"(?<![A-Z0-9]){way}(?![0-9])", text) or name == "ways_out" and in_bypass(way), (way, name)


def in_bypass(way):
    """Its cases are a table there, which ways_out goes through."""
    return any(f'("{way}", ' in p.read_text(encoding="utf-8") for p in HERE.glob("test_[a-h]_*.py"))
