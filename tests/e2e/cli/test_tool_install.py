# SPDX-License-Identifier: Apache-2.0
"""What `make install` puts where, and that the programs find each other there."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from world.world import RESOLVER4

SOURCE = Path(__file__).resolve().parents[3]
PROGRAMS = {"weir-control", "weir-events", "weir-postgres", "weir-webhook"}
ZSH = """
fpath=("$1" $fpath)
autoload -U compinit && compinit -D -u
compdef() { print "defined late"; }
_describe() { print -r -- "offers ${(P)@[-1]}"; }
words=(weir "") CURRENT=2
_weir
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The root of an installation of the build that is tested."""
    build = Path(os.environ.get("WEIR", SOURCE / "build/weir")).resolve().parent
    if not (build / "meson-private").is_dir():
        pytest.skip("the program that is tested was not built here")
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root], check=True,
                   stdout=subprocess.DEVNULL)
    [program] = root.rglob("bin/weir")
    return root, program.parent.parent


def test_programs_are_where_weir_looks_for_them(installed):
    _, prefix = installed
    there = list((prefix / "libexec/weir").iterdir())
    assert {path.name for path in there} == PROGRAMS
    # nobody may read them, so that nobody else may look into a process that has just become one of them
    assert {path.stat().st_mode & 0o7777 for path in there} == {0o111}


def test_an_installed_program_finds_its_others(installed, tmp_path):
    _, prefix = installed
    done = subprocess.run([prefix / "bin/weir", "events", "--state-dir", tmp_path], capture_output=True, text=True)
    assert done.returncode == 125 and "cannot find" not in done.stderr and str(tmp_path) in done.stderr, done


@pytest.mark.parametrize("program, package, words", [
    ("weir-control", "weir-daemon", ("daemon", "--upstream", RESOLVER4)),
    ("weir-control", "weir-daemon", ("sidecar", "--host-network-check=off")),
    ("weir-postgres", "weir-postgres", ("daemon", "--upstream", RESOLVER4, "--postgres", "host=127.0.0.1", "--state-dir", "{folder}")),
    ("weir-events", "weir", ("denies", "--state-dir", "{folder}")),
    ("weir-events", "weir", ("run", "--state-dir", "{folder}", "--", "/bin/true")),
], ids=lambda value: value[0] if isinstance(value, tuple) else value)
def test_a_program_that_is_missing_is_weir_s_failure(world, installed, tmp_path, program, package, words):
    shutil.copytree(installed[1] / "bin", tmp_path / "bin")
    shutil.copytree(installed[1] / "libexec", tmp_path / "libexec")
    (tmp_path / "libexec/weir" / program).unlink()
    before = world.command("nft", "list", "ruleset").text
    done = world.command(tmp_path / "bin/weir", *(word.format(folder=tmp_path) for word in words), timeout=60)
    assert done.code == 125 and f"cannot find {program}; install it (package {package})" in done.messages, done
    assert world.command("nft", "list", "ruleset").text == before


def test_every_manual_page_is_installed(installed):
    _, prefix = installed
    there = {path.name.removesuffix(".gz") for path in (prefix / "share/man").rglob("weir*")}
    assert there == {path.name for path in (SOURCE / "man").iterdir()}


def test_the_unit_starts_the_program_that_was_installed(installed):
    root, prefix = installed
    text = (prefix / "lib/systemd/system/weir.service").read_text()
    assert re.search(r"^ExecStart=(\S+)", text, re.M)[1] == "/" + str((prefix / "bin/weir").relative_to(root))


def test_completions_are_where_shells_look_for_them(installed):
    _, prefix = installed
    for name in ("bash-completion/completions/weir", "zsh/site-functions/_weir", "fish/vendor_completions.d/weir.fish"):
        assert "fail-on-deny" in (prefix / "share" / name).read_text()


def test_zsh_completes_from_its_first_call(installed):
    _, prefix = installed
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", prefix / "share/zsh/site-functions"], capture_output=True,
                          text=True)
    assert "offers run:" in done.stdout and "defined late" not in done.stdout, done
