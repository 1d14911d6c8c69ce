# SPDX-License-Identifier: Apache-2.0
"""`tests/run --repeat`: what failed ever is named, with how often."""
import pathlib
import subprocess

RUN = pathlib.Path(__file__).resolve().parents[1] / "run"

NOW_AND_THEN = """
import pathlib
def test_now_and_then():
    runs = pathlib.Path({runs!r})
    runs.write_text(runs.read_text() + "x")
    assert runs.read_text() != "x"
def test_always():
    pass
"""


def run_suite(*words):
    return subprocess.run([RUN, *words], capture_output=True, text=True, check=False, timeout=900)


def test_what_failed_once_is_named(tmp_path):
    runs = tmp_path / "runs"
    runs.write_text("")
    file = tmp_path / "test_some.py"
    file.write_text(NOW_AND_THEN.format(runs=str(runs)))
    done = run_suite("--repeat", "2", "--load", "world", "--", "-n", "0", file)
    assert done.returncode == 1 and runs.read_text() == "xx", done
    last = done.stdout.splitlines()[-2:]
    assert last[0].startswith("failed 1 of 2: ") and last[0].endswith("test_some.py::test_now_and_then"), done.stdout
    assert last[1] == "1 of 2 runs without a failure"
    done = run_suite("--repeat", "1", "world", "--", "-n", "0", file)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1 of 1 runs without a failure", done


def test_what_is_no_step_is_refused():
    done = run_suite("--repeat", "2", "nothing")
    assert done.returncode == 2 and "'nothing' is no step" in done.stderr, done
