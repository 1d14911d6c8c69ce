# SPDX-License-Identifier: Apache-2.0
"""git in a subdirectory of a repository, which lies on another mount than the directory itself."""
import shutil

import pytest


@pytest.fixture
def repository(world, user):
    folder = world.workdir(user)
    (folder / "sub").mkdir()
    (folder / "sub/file").write_text("one\n")
    for path in (folder / "sub", folder / "sub/file"):
        shutil.chown(path, user, user)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t.test", "commit", "-qm", "first"]):
        assert world.command("git", *words, cwd=folder, user=user).code == 0
    return folder


@pytest.mark.parametrize("mode", ["default", "all"])
def test_it_finds_the_repository_and_reads_it(world, user, repository, mode):
    script = "echo two > file; git log --format=%s; git diff --stat; git status --short"
    done = world.run("sh", "-c", script, user=user, cwd=repository / "sub", options=("--env", mode))
    assert done.code == 0 and done.err == b"", done
    lines = done.text.splitlines()
    assert lines[0] == "first" and "1 file changed" in done.text and lines[-1] == " M file", done


def test_it_writes_where_the_repository_is_named(world, user, repository):
    commit = ["git", "-c", "user.name=t", "-c", "user.email=t@t.test", "commit", "-qam", "second"]
    (repository / "sub/file").write_text("two\n")
    done = world.run(*commit, user=user, cwd=repository / "sub")
    assert done.code != 0 and b"Read-only" in done.err, done
    done = world.run(*commit, user=user, cwd=repository / "sub", options=("--rw", repository))
    assert done.code == 0, done
    assert world.command("git", "log", "--format=%s", cwd=repository, user=user).text == "second\nfirst\n"


def test_what_the_caller_says_counts(world, user, repository):
    env = {"GIT_DISCOVERY_ACROSS_FILESYSTEM": "0"}
    done = world.run("git", "status", user=user, cwd=repository / "sub", env=env)
    assert done.code == 128 and b"not a git repository" in done.err, done
