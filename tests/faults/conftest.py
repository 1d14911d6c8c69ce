# SPDX-License-Identifier: Apache-2.0
"""The table that the suite of faults ends with."""
COLUMNS = ("fault", "kind", "rounds", "packets out", "names away p50 ms", "max ms", "learned", "flows", "events")


def pytest_terminal_summary(terminalreporter):
    """A row for each test that has told one, whichever process it ran in."""
    rows = [value for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())
            for name, value in report.user_properties if name == "fault"]
    if not rows:
        return
    rows = [COLUMNS, *sorted([[str(cell) for cell in row] for row in rows], key=lambda row: row[:2])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    terminalreporter.section("what each fault cost")
    for row in rows:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
