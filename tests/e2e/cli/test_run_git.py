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


# --- --rw-preset git: the repository lies elsewhere ---

WHO = ["-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "protocol.file.allow=always"]
COMMIT = ["git", *WHO, "commit", "-qam", "second"]
GIT = ("--rw-preset", "git")


def git(world, user, cwd, *words):
    done = world.command("git", *WHO, *words, cwd=cwd, user=user)
    assert done.code == 0, done
    return done.text


@pytest.fixture
def places(world, user, repository):
    """What a commit is made in, and the directory where its hooks and config are."""
    work, top = world.workdir(user), world.workdir(user)
    git(world, user, repository, "worktree", "add", "-q", work / "tree")
    git(world, user, top, "init", "-q")
    git(world, user, top, "submodule", "add", "-q", repository, "inner")
    return {"subdirectory": (repository / "sub", repository / ".git"), "worktree": (work / "tree", repository / ".git"),
            "submodule": (top / "inner", top / ".git/modules/inner")}


@pytest.mark.parametrize("kind", ["subdirectory", "worktree", "submodule"])
def test_a_commit_is_made_with_the_preset_and_not_without(world, user, places, kind):
    tree, store = places[kind]
    file = next(tree.rglob("file"))
    file.write_text("two\n")
    done = world.run(*COMMIT, user=user, cwd=tree)
    assert done.code != 0 and b"Read-only" in done.err, done
    assert f"git writes to '{store}', which is read-only" in done.messages and "--rw-preset git" in done.messages, done
    done = world.run(*COMMIT, user=user, cwd=tree, options=GIT)
    assert done.code == 0 and "git writes to" not in done.messages, done
    assert git(world, user, tree, "log", "--format=%s") == "second\nfirst\n"
    assert git(world, user, tree, "status", "--short") == ""
    script = f"touch {store}/hooks/post-commit; git config x.y z; touch {store}/description"
    done = world.run("sh", "-c", script, user=user, cwd=tree, options=GIT)
    assert "Read-only" in done.messages and "could not write config file" in done.messages, done
    assert not (store / "hooks/post-commit").exists() and "[x]" not in (store / "config").read_text()
    assert (store / "description").exists(), "positive control"


def test_a_file_that_leads_to_another_repository_opens_nothing(world, user, repository):
    """An earlier command may have left it, with what git would have made beside it."""
    project = world.workdir(user)
    store, made = repository / ".git", project / "made/worktrees/x"
    script = ("mkdir -p $0/made/worktrees/x; printf 'gitdir: %s\n' \"$1\" > $0/.git; printf '%s\n' \"$2\" > $0/made/worktrees/x/commondir; "
              "printf '%s/.git\n' $0 > $0/made/worktrees/x/gitdir; : > $0/made/worktrees/x/HEAD")
    for leads, common in ((store, "../.."), (made, store), (store / "worktrees/none", store)):
        assert world.command("sh", "-c", script, project, leads, common, user=user).code == 0
        done = world.run("touch", store / "planted", user=user, cwd=project, options=GIT)
        assert done.code == 2 and "--rw-preset git" in done.messages, done
        assert not (store / "planted").exists()
    (project / ".git").unlink()
    done = world.run("touch", store / "planted", user=user, cwd=project, options=("--rw", store))
    assert done.code == 0 and (store / "planted").exists(), "positive control"


def test_a_directory_called_worktrees_is_no_repository(world, user):
    """A command made itself what git has in the worktrees of a repository."""
    above = world.workdir(user)
    script = "mkdir -p worktrees/x; cd worktrees/x; echo gitdir: . > .git; echo ../.. > commondir; echo .git > gitdir; : > HEAD"
    assert world.command("sh", "-c", script, cwd=above, user=user).code == 0
    done = world.run("touch", above / "planted", user=user, cwd=above / "worktrees/x", options=GIT)
    assert done.code == 2 and "which git did not make for it" in done.messages, done
    assert not (above / "planted").exists()
    done = world.run("touch", above / "planted", user=user, cwd=above / "worktrees/x", options=("--rw", above))
    assert (above / "planted").exists(), f"positive control: {done}"


def test_without_a_repository_the_preset_opens_nothing(world, user):
    done = world.run("touch", "x", user=user, cwd=world.workdir(user), options=GIT)
    assert done.code == 0 and done.err == b"", done
