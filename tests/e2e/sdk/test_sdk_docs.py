# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/python.md run as they stand there, and the page names every function; the wheel and the sdist are
the same in two builds, and can be installed."""
import ast
import hashlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

import weir

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
SAYS = ("", "['api.github.com']\n0\n", "one\n two\n\n", "42\n SelfTest(allowed='huggingface.co:443'", "[('analysis-7', '203.0.113.7')]")


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_works_as_it_stands(world, sdk, number):
    for name in ("pypi.org", "files.pythonhosted.org", "huggingface.co"):
        world.site(name)
    environment = {**sdk.environment(), "WEIR_STATE_DIR": str(world.workdir() / "state")}
    done = world.command("/usr/bin/python3", "-c", EXAMPLES[number], env=environment, resolv_conf=True)
    assert done.code == 0 and SAYS[number] in done.text, done


def test_every_example_is_python_and_every_name_is_on_the_page():
    assert len(EXAMPLES) == len(SAYS)
    others = re.findall(r"^```py\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(others) == 2
    for text in others:
        compile(text, "docs/python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    types = {"AsyncSandbox", "EgressDeny", "EgressReviewTask", "EventStream", "IsolatedResult", "NotInstalled", "Refusal", "Report",
             "SandboxClient", "SelfTest", "StreamEvent", "WeirError"}
    assert [name for name in set(weir.__all__) - types if name not in PAGE] == []


def test_the_reference_is_the_package_s():
    made = subprocess.check_output([sys.executable, ROOT / "sdk/python/reference.py"], text=True)
    assert made == (ROOT / "docs/python-reference.md").read_text(encoding="utf-8"), "python3 sdk/python/reference.py > docs/python-reference.md"


def test_wheel_and_sdist_are_reproducible_and_can_be_installed(tmp_path):
    def build(name):
        subprocess.run([sys.executable, ROOT / "sdk/python/backend.py", tmp_path / name], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / name).iterdir()}
    assert build("one") == build("other") and len(build("one")) == 2
    for number, name in enumerate(sorted(build("one"))):
        where = tmp_path / f"installed-{number}"
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--root-user-action=ignore", "--target", where,
                        tmp_path / "one" / name], check=True, capture_output=True)
        files = {str(path.relative_to(where / "weir")) for path in (where / "weir").iterdir() if path.is_file()}
        assert files == {path.name for path in (ROOT / "sdk/python/weir").iterdir() if path.is_file()}
        said = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(where)!r}); import weir; print(weir.__version__)"],
                              check=True, capture_output=True, text=True).stdout
        assert said == f"{weir.__version__}\n"
