# SPDX-License-Identifier: Apache-2.0
"""Where `weir run` is started: in a sandbox, with another user's HOME, with a file that the command won't see."""
import os
import pathlib

import pytest


def test_a_sandbox_is_named_inside_and_makes_no_other(world, user):
    done = world.run("printenv", "WEIR_SANDBOX", user=user, options=("--id", f"outer-{os.getpid()}"))
    assert (done.code, done.text) == (0, f"outer-{os.getpid()}\n"), done
    done = world.run(world.weir_path, "run", "--", "/bin/echo", "reached", user=user, options=("--id", f"outer-{os.getpid()}"))
    assert (done.code, done.text) == (125, ""), done
    assert done.messages.splitlines() == [
        f"weir: this is the sandbox 'outer-{os.getpid()}' of weir run already, and no sandbox can be made in it: start the command "
        "without weir, under the same policy"]
    # Outside the variable alone means nothing.
    done = world.run("/bin/echo", "reached", user=user, env={"WEIR_SANDBOX": "x"})
    assert (done.code, done.text, done.messages) == (0, "reached\n", "")


def test_an_argument_that_the_command_will_not_see_is_said(world, user):
    script = pathlib.Path(f"/tmp/weir-place-{os.getpid()}.sh")
    script.write_text("echo reached\n", encoding="ascii")
    try:
        said = f"weir: '{script}' is not there for the command: /tmp is the sandbox's own; --ro {script} shows it"
        done = world.run("sh", script, user=user)
        assert done.code == 2 and done.messages.splitlines()[0] == said, done
        assert said not in world.run("sh", script, user=user, options=("--quiet",)).messages
        done = world.run("sh", script, user=user, options=("--ro", script))
        assert (done.code, done.text, done.messages) == (0, "reached\n", "")
        for harmless in ("/tmp", "/tmp/is-not-there", "x"):
            assert world.run("true", harmless, user=user).messages == ""
    finally:
        script.unlink()


@pytest.mark.parametrize("variable", ("HOME", "XDG_CONFIG_HOME"))
def test_a_home_that_is_anothers_ends_nothing(world, variable):
    folder = world.workdir()
    os.chmod(folder, 0o700)
    done = world.run("/bin/echo", "reached", user="weir-test", env={variable: str(folder)})
    assert (done.code, done.text, done.messages) == (0, "reached\n", "")


@pytest.mark.parametrize("owner, who, below, code, why, advice", [
    ("weir-test", "root", "", 125, "cannot enter '{}' in the sandbox: it or a directory above is closed to others", "start weir as its owner"),
    ("weir-test", "root", "/below", 125, "cannot enter '{}' in the sandbox: it or a directory above is closed to others", "start weir as its owner"),
    ("root", "weir-test", "", 2, "the working directory is closed to this user", "start weir in another directory"),
    ("root", "weir-test", "/below", 2, "the working directory '{}' or one above is closed to this user", "start weir in another directory")])
def test_a_directory_that_is_closed_to_the_command_says_what_to_do(world, owner, who, below, code, why, advice):
    """Root has no right over others' files in a sandbox; and sudo leaves a user in root's directory."""
    folder = world.workdir(owner)
    (folder / "below").mkdir()
    folder.chmod(0o700)
    start = ("sh", "-c", f'cd {folder}{below} && exec "$@"', "sh", *world.user(who).become(), world.weir_path)
    done = world.command(*start, "run", "--", "touch", "started")
    assert done.code == code and why.format(f"{folder}{below}") in done.messages and advice in done.messages, done
    assert not list(folder.rglob("started"))
    if code == 2:
        done = world.command(*start, "run", "--no-config", "--", "touch", "started")
        assert done.code == 2 and f"'{folder}{below}' or one above is closed to this user" in done.messages, done
    done = world.command(*start, "doctor")
    said = " ".join(done.text.split())
    assert done.code == 1 and advice in said and ("FAIL directory it or one above is closed to this user" in said) == (code == 2), done
