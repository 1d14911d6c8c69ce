# SPDX-License-Identifier: Apache-2.0
"""The table that the suite of faults ends with."""
import statistics

import pytest

from world.sidecar import Pod

COLUMNS = ("fault", "kind", "rounds", "packets out", "names away p50 ms", "max ms", "learned", "flows", "events")


class Table:
    """A row for each fault and kind: what it cost in each round."""

    def __init__(self):
        self.rows = []

    def add(self, fault, kind, gaps, out, learned, flows, events):
        rounds = len(gaps)
        self.rows.append((fault, kind, str(rounds), str(out), f"{statistics.median(gaps):.0f}", f"{max(gaps):.0f}",
                          f"{learned}/{rounds}", f"{flows}/{rounds}", events))

    def __str__(self):
        widths = [max(len(row[i]) for row in [COLUMNS, *self.rows]) for i in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [COLUMNS, *self.rows]]
        return "\n".join(lines)


@pytest.fixture(scope="session")
def table():
    made = Table()
    yield made
    print(f"\n\n{made}\n")


@pytest.fixture
def pod(world):
    with Pod(world) as p:
        yield p
