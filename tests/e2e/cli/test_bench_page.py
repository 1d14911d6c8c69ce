# SPDX-License-Identifier: Apache-2.0
"""What `make bench` prints of what was measured, and what tests/bench/compare says of two pages. Nothing is measured here."""
import json
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import page  # noqa: E402  pylint: disable=wrong-import-position


def measured(cpu, beside):
    return {"programs": {"weir": {"new names": {"cpu_us": cpu}}, "relay_bare": {"new names": {"cpu_us": beside}}}}


ROW = page.Row("dns", "new name", "programs/weir/new names/cpu_us", "programs/relay_bare/new names/cpu_us", "relay_bare", "<= 1.45")


def test_a_row_has_the_median_of_its_passes_and_what_is_missing_is_said(capsys):
    row = page.gather(ROW, [measured(14, 10), None, measured(12, 10), {"programs": {}}, measured(15, 10)])
    assert row["judged"] == [1.4, 1.2, 1.5] and page.is_met(row) is True
    assert page.is_met(page.gather(ROW, [measured(20, 10)])) is False
    nothing = page.gather(ROW, [None])
    assert page.is_met(nothing) is None
    page.show([row, nothing])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["what", "Weir", "beside", "ratio", "noise", "target", "met?"]
    assert first.split() == ["new", "name", "14", "10", "relay_bare", "1.4", "21", "%", "<=", "1.45", "×", "met"]
    assert second.split()[-1] == "missing"


def test_a_target_may_be_about_a_difference_or_the_figure_itself():
    more = page.Row("relay", "first byte", "a", "b", "direct", "<= 80", "more")
    itself = page.Row("policy", "match", "a", target=">= 3", of="weir")
    assert page.gather(more, [{"a": 150, "b": 60}])["judged"] == [90]
    assert page.is_met(page.gather(more, [{"a": 150, "b": 60}])) is False
    assert page.is_met(page.gather(itself, [{"a": 3}])) is True


def written(path, rows, passes=3):
    path.write_text(json.dumps({"passes": passes, "rows": [page.gather(row, documents) for row, documents in rows]}))
    return str(path)


def compare(*paths):
    done = subprocess.run([BENCH / "compare", *paths], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("after, says, code", [
    ([1.0, 1.2, 1.4], "", 0),          # as before
    ([1.3, 1.5, 1.6], "", 0),          # within what the passes of the first lie apart
    ([2.0, 2.1, 2.2], "worse", 1),
    ([0.5, 0.6, 0.5], "better", 0),
    ([0.5, 0.6, 1.9], "", 0),          # its own passes lie further apart
])
def test_only_what_is_beyond_the_noise_of_both_has_changed(tmp_path, after, says, code):
    pages = [written(tmp_path / str(i), [(ROW, [measured(r * 10, 10) for r in ratios])]) for i, ratios in enumerate(([1.0, 1.2, 1.4], after))]
    status, out, _ = compare(*pages)
    assert status == code
    assert [line.split()[0] for line in out.splitlines()[:-1]] == ([says] if says else [])


def test_more_is_better_where_a_target_is_a_least_one(tmp_path):
    row = page.Row("x", "streams", "a", target=">= 1", of="weir")
    pages = [written(tmp_path / str(i), [(row, [{"a": a} for a in values])]) for i, values in enumerate(([1, 1.1], [2, 2.1]))]
    assert compare(*pages)[1].startswith("better streams")
    assert compare(*reversed(pages))[0] == 1


def test_what_is_no_page_is_refused(tmp_path):
    good = written(tmp_path / "good", [(ROW, [measured(1, 1)] * 3)])
    single = written(tmp_path / "single", [(ROW, [measured(1, 1)])], passes=1)
    (tmp_path / "bad").write_text("{}")
    for other in (str(tmp_path / "bad"), str(tmp_path / "none"), single):
        status, _, said = compare(good, other)
        assert status == 2 and other in said
    assert compare(good)[0] == 2
