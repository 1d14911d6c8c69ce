# SPDX-License-Identifier: Apache-2.0
"""Z: files of a project that are run outside later (G13): git's hooks, an editor's tasks, a shell's start files.

Each script runs in the sandbox; what it left is looked at from outside, git itself is run there.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "init.defaultBranch=main"]


def rows(table):
    """Each name in @table of the code, and why it is there."""
    text = (ROOT / "src/launch/startup_names.c").read_text(encoding="ascii")
    body = re.search(rf"\b{table}\[\] = \{{(.*?)\n\}};", text, re.S).group(1)
    return [(name, why) for why, names in re.findall(r'\{ "([^"]+)",\s+\{ (.*?) \} \}', body, re.S)
            for name in re.findall(r'"([^"]+)"', names)]


# A row's asterisk stands for any text.
FILES = [name.replace("*", "x.y") for name, _ in rows("startup_project") if name != ".git"]
# A file, and each directory that its name says.
# That of a name in .git is there, and the working directory stays read-only in it.
ABOVE = [(name, str(above)) for name in FILES if not name.startswith(".git/") for above in pathlib.PurePath(name).parents if above.name]


class Project:
    """A directory with a git repository, and what the sandbox of @user does in it."""

    def __init__(self, world, user):
        self.world, self.user, self.path = world, user, world.workdir(user)
        self.git("init", "-q", ".")
        self.write("file", "one\n")
        self.git("add", "file")
        self.git("commit", "-qm", "one")

    def outside(self, *argv):
        return self.world.command(*argv, cwd=self.path, user=self.user)

    def git(self, *args):
        done = self.outside(*GIT, *args)
        assert done.code == 0, done
        return done.text

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
        self.own()
        return path

    def own(self):
        subprocess.run(["chown", "-R", f"{self.user}:", self.path], check=True)

    def run(self, script, *options, cwd="."):
        return self.world.run("sh", "-c", script, cwd=self.path / cwd, user=self.user, options=options)


@pytest.fixture
def project(world, user):
    return Project(world, user)


def test_G13_the_manual_has_the_table():
    text = (ROOT / "man/weir-run.1").read_text(encoding="ascii")
    known = rows("startup_project") + rows("startup_git") + rows("startup_weir")
    assert len(known) > 30
    assert [row for row in known if f".It Pa {row[0]}\n{row[1]}\n" not in text] == []


@pytest.mark.parametrize("where", ["", "deep/er/"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_G13_what_is_there_stays_as_it_is(project, where, kind):
    inside = "/in" if kind == "directory" else ""
    for name in FILES:
        project.write(f"{where}{name}{inside}", "as it was\n")
    project.write("free", "free\n")
    script = "; ".join(
        f"echo x > {p}{inside}; echo x >> {p}{inside}; rm -rf {p}; mv {p} gone; mv free {p}; ln -sfn x {p}; chmod 777 {p}; touch {p}/y"
        for p in [f"{where}{name}" for name in FILES])
    for above in {above for _, above in ABOVE}:
        script += f"; mv {where}{above} gone"
    if where:
        script += "; mv deep gone; mv deep/er gone; rm -rf deep/er/.vscode"
    done = project.run(f"{script}; echo x > free; exit 0")
    assert done.code == 0, done
    changed = [n for n in FILES if (p := project.path / f"{where}{n}{inside}") and
               (not p.is_file() or p.read_text() != "as it was\n" or os.listdir(p.parent) != ["in"] and inside)]
    assert changed == [], done
    assert (project.path / "free").read_text() == "x\n", "positive control"


ATTACKS = [
    ("a hook", "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch ../ran' > .git/hooks/post-index-change; chmod +x .git/hooks/*"),
    ("a hook for the commit", "printf '#!/bin/sh\\ntouch ran' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"),
    ("fsmonitor", "git config core.fsmonitor 'touch ran; false'"),
    ("fsmonitor by hand", "printf '[core]\\nfsmonitor = touch ran; false\\n' >> .git/config"),
    ("another directory", "mv .git old; cp -r old .git; git config core.fsmonitor 'touch ran; false'"),
    ("an exchanged config", "cp .git/config c; git config -f c core.fsmonitor 'touch ran; false'; mv c .git/config"),
    ("commondir", "cp -r .git evil; git config -f evil/config core.fsmonitor 'touch ran; false'; echo ../evil > .git/commondir"),
    ("config.worktree", "printf '[core]\\nfsmonitor = touch ran; false\\n' > .git/config.worktree"),
    ("a link", "rm -f .git/logs/HEAD; ln -s ../../ran .git/logs/HEAD"),
    ("hooks again", "rmdir .git/hooks; rm -rf .git/hooks; mkdir .git/hooks; cp /bin/true .git/hooks/pre-commit"),
]


@pytest.mark.parametrize("what, script", ATTACKS, ids=[what for what, _ in ATTACKS])
@pytest.mark.parametrize("hooks", [True, False], ids=["hooks", "no hooks"])
def test_G13_git_outside_runs_nothing_of_the_sandboxs(project, what, script, hooks):
    project.git("config", "extensions.worktreeConfig", "true")
    if not hooks:
        shutil.rmtree(project.path / ".git/hooks")
    done = project.run(f"{script}; true")
    assert (project.path / ".git/hooks").stat().st_uid == (project.path / ".git").stat().st_uid
    project.outside(*GIT, "status")
    project.outside(*GIT, "commit", "--allow-empty", "-qm", "two")
    assert not (project.path / "ran").exists() and not (project.path.parent / "ran").exists(), done
    # What the attack would have done, done by somebody who may.
    if what in ("a hook for the commit", "fsmonitor", "a link"):
        project.outside("sh", "-c", f"mkdir -p .git/hooks; {script}")
        project.outside(*GIT, "status")
        project.outside(*GIT, "commit", "--allow-empty", "-qm", "three")
        assert (project.path / "ran").exists(), "positive control"


@pytest.mark.parametrize("script", ["echo ../x > .git/commondir", "touch .git/config.worktree"])
def test_G13_what_git_would_obey_in_a_known_directory_is_moved_aside(project, script):
    done = project.run(script)
    name = script.split("/")[-1]
    assert done.code == 125 and f"it is called '{project.path}/.git/{name}.weir' now" in done.messages, done
    assert not (project.path / ".git" / name).exists() and (project.path / ".git" / f"{name}.weir").exists()


@pytest.mark.parametrize("options", [(), ("--quiet",)], ids=["", "quiet"])
def test_G13_what_git_would_obey_in_another_working_tree_is_moved_aside(project, options):
    """Its directory has no config of its own, and git takes config.worktree from it."""
    project.git("config", "extensions.worktreeConfig", "true")
    project.git("worktree", "add", "-q", "tree")
    own = ".git/worktrees/tree/config.worktree"
    attack = f"printf '[core]\nfsmonitor = touch {project.path}/ran; false\n' > {own}"
    done = project.run(attack, *options)
    assert done.code == 125 and f"it is called '{project.path}/{own}.weir' now" in done.messages, done
    project.outside(*GIT, "-C", "tree", "status")
    assert not (project.path / "ran").exists(), done
    project.outside("sh", "-c", attack)
    project.outside(*GIT, "-C", "tree", "status")
    assert (project.path / "ran").exists(), "positive control"


HINDRANCES = ["mkdir -p .git/config.worktree.weir/x", "chmod 0555 .git", "chmod 0311 .git",
              "seq 50001 | sed 's,^,.git/x,' | xargs touch"]


@pytest.mark.parametrize("script", HINDRANCES, ids=["name taken", "not writable", "not readable", "too full"])
def test_G13_nothing_keeps_weir_from_moving_it(project, script):
    project.git("config", "extensions.worktreeConfig", "true")
    done = project.run(f"printf '[core]\nfsmonitor = touch ran; false\n' > .git/config.worktree; {script}")
    assert done.code == 125 and "it is called" in done.messages, done
    assert not (project.path / ".git/config.worktree").exists()
    project.outside(*GIT, "status")
    assert not (project.path / "ran").exists(), done


def test_G13_a_git_directory_that_cannot_be_read_is_held(project):
    """A run before this one may have left it so: git goes on to obey what is in it."""
    (project.path / ".git").chmod(0o311)
    done = project.run("echo >> .git/config; touch .git/hooks/x; touch free")
    assert (project.path / "free").exists(), done
    assert not (project.path / ".git/hooks/x").exists() and b"can't all be read" in done.err or project.user == "root", done
    assert not (project.path / ".git/config").read_text(encoding="ascii").endswith("\n\n"), done


LEFT = {
    "HEAD, objects and refs elsewhere": ("mv .git/HEAD .git/objects .git/refs .git/info", "cd .git/info; mv HEAD objects refs ..; cd ../.."),
    "too full": ("seq 50001 | sed 's,^,.git/x,' | xargs touch", "rm .git/x*"),
    "more such files than are held": ("seq 300 | sed 's,.*,.git/mise.&.toml,' | xargs touch", "true"),
}


@pytest.mark.parametrize("left, then", LEFT.values(), ids=LEFT)
def test_G13_what_an_earlier_run_has_left_hides_no_git_directory(project, left, then):
    before = (project.path / ".git/config").read_bytes()
    assert project.run(left).code == 0
    done = project.run(f"{then}; echo >> .git/config; touch .git/hooks/x; touch free")
    assert (project.path / ".git/config").read_bytes() == before and not (project.path / ".git/hooks/x").exists(), done
    assert (project.path / "free").exists(), "positive control"


def test_G13_what_an_earlier_run_has_left_hides_no_submodule(project):
    other = Project(project.world, project.user)
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "sub")
    before = (project.path / ".git/modules/sub/config").read_bytes()
    assert project.run("cd .git/modules/sub; mkdir away; mv HEAD objects refs away").code == 0
    done = project.run("cd .git/modules/sub; mv away/* .; echo >> config; touch hooks/x; touch free")
    own = project.path / ".git/modules/sub"
    assert (own / "config").read_bytes() == before and not (own / "hooks/x").exists(), done
    assert (own / "free").exists(), "positive control"


def test_G13_what_one_writable_directory_is_full_of_leaves_room_for_another_ones(project):
    other = Project(project.world, project.user)
    project.write(".envrc", "as it was\n")
    for n in range(300):
        other.write(f"a/mise.{n}.toml", "")
    done = project.run("echo x > .envrc; echo >> .git/config; touch .git/hooks/x; touch free", "--rw", str(other.path))
    assert (project.path / ".envrc").read_text(encoding="ascii") == "as it was\n", done
    assert not (project.path / ".git/hooks/x").exists(), done
    assert not (project.path / ".git/config").read_text(encoding="ascii").endswith("\n\n"), done
    assert (project.path / "free").exists(), "positive control"


def test_G13_what_cannot_be_read_is_told_of(project):
    done = project.run("mkdir x; touch x/.envrc; chmod 0311 x")
    assert (b"can't all be read" in done.err) if project.user != "root" else (b"x/.envrc' is new" in done.err), done


def test_G13_roots_hooks_directory_in_a_users_checkout_is_the_users(world):
    project = Project(world, "weir-test")
    shutil.rmtree(project.path / ".git/hooks")
    done = world.run("true", cwd=project.path)
    assert done.code == 0 and (project.path / ".git/hooks").stat().st_uid == world.user("weir-test").uid, done


def test_G13_git_works(project):
    script = f"""
set -e
git() {{ command {' '.join(GIT)} "$@"; }}
echo two >> file; git status --short; git add file; git commit -qm two; git checkout -q -b branch; echo three >> file
git commit -qam three; git checkout -q main; git merge -q branch; git stash list; git tag t; git gc -q; git clone -q . ../copy 2>/dev/null || git clone -q . copy
git log --oneline | wc -l; git -C copy log --oneline | wc -l; git fsck; rm -rf copy
"""
    done = project.run(script)
    assert done.code == 0 and done.text == " M file\n3\n3\n", done
    assert project.git("status", "--short") == "" and project.git("log", "--oneline").count("\n") == 3


@pytest.mark.parametrize("kind", ["submodule", "working tree", "bare repository", "checkout below"])
def test_G13_every_git_directory_is_held(project, kind):
    if kind == "submodule":
        other = Project(project.world, project.user)
        project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "sub")
        config, work = ".git/modules/sub/config", "sub"
    elif kind == "working tree":
        project.git("worktree", "add", "-q", "tree")
        config, work = ".git/worktrees/tree/commondir", "tree"
    elif kind == "bare repository":
        project.git("clone", "-q", "--bare", ".", "bare.git")
        config, work = "bare.git/config", "bare.git"
    else:
        project.git("clone", "-q", ".", "a/b/c")
        config, work = "a/b/c/.git/config", "a/b/c"
    before = (project.path / config).read_bytes()
    attack = f"git -C {work} config core.fsmonitor 'touch ran; false'; echo x > {config}; rm -f {config}; mv {work} x; mv .git y"
    if kind != "bare repository":   # where none was
        attack += f"; rm -f {work}/.git; echo gitdir: /evil > {work}/.git"
    done = project.run(f"{attack}; true")
    assert (project.path / config).read_bytes() == before, done
    assert project.outside(*GIT, "-C", work, "rev-parse", "--git-dir").code == 0


def test_G13_what_is_made_is_told(project):
    done = project.run("mkdir -p a/b; touch .envrc a/b/.mcp.json; git init -q new; mkdir node_modules; touch node_modules/.envrc")
    told = re.findall(r"'([^']+)' is new or has changed", done.messages)
    assert sorted(told) == [f"{project.path}/{n}" for n in (".envrc", "a/b/.mcp.json", "new/.git/config", "new/.git/hooks")], done
    assert done.code == 0
    done = project.run("touch made")
    assert done.err == b"", done


@pytest.mark.parametrize("named, script", [
    (".vscode", "touch .vscode/new"), (".vscode/in", "echo x > .vscode/in"), (".git/config", "echo '#' >> .git/config"),
    (".git/hooks", "touch .git/hooks/new")])
def test_G13_what_is_named_can_be_written(project, named, script):
    project.write(".vscode/in", "x")
    assert project.run(script).code != 0
    done = project.run(script, "--rw", named)
    assert done.code == 0, done


def test_G13_a_link_can_not_be_led_elsewhere(project):
    project.write("other/in", "as it was\n")
    (project.path / ".vscode").symlink_to("other")
    project.own()
    done = project.run("rm -f .vscode; ln -sfn x .vscode; mv .vscode y; true")
    assert os.readlink(project.path / ".vscode") == "other", done
    done = project.run("echo x > other/in; echo x > .vscode/in; mv other y; true")
    assert (project.path / "other/in").read_text() == "as it was\n", done


@pytest.mark.parametrize("name, above", ABOVE, ids=[f"{name}, {above}" for name, above in ABOVE])
def test_G13_a_file_stays_where_the_command_begins_beside_it(project, name, above):
    """The writable directory is one of those that its name says."""
    project.write(name, "as it was\n")
    rest = pathlib.PurePath(name).relative_to(above)
    project.write(f"{above}/free", "free\n")
    done = project.run(f"echo x > {rest}; rm -rf {rest}; mv free {rest}; mkdir -p {rest}; echo x > free; true", cwd=above)
    assert (project.path / name).read_text() == "as it was\n", done
    assert (project.path / above / "free").read_text() == "x\n", "positive control"


@pytest.mark.parametrize("name, above", ABOVE, ids=[f"{name}, {above}" for name, above in ABOVE])
def test_G13_a_link_on_the_way_leads_where_nothing_is_changed(project, name, above):
    project.write(f"real/{pathlib.PurePath(name).relative_to(above)}", "as it was\n")
    (project.path / above).parent.mkdir(parents=True, exist_ok=True)
    (project.path / above).symlink_to(project.path / "real")
    project.own()
    done = project.run(f"echo x > {name}; echo x > real/{pathlib.PurePath(name).relative_to(above)}; mv real y; mv {above} z; true")
    assert (project.path / name).read_text() == "as it was\n", done


@pytest.mark.parametrize("name, above", ABOVE, ids=[f"{name}, {above}" for name, above in ABOVE])
def test_G13_a_new_link_on_the_way_is_told(project, name, above):
    done = project.run(f"mkdir -p {above} evil; rmdir {above}; ln -s $PWD/evil {above}; true")
    assert f"{above}' is new or has changed" in done.messages, done


def test_G13_a_file_that_leads_to_a_repository_of_jujutsu_is_held_and_told(project):
    project.write("old/.jj/repo", "../../main\n")
    done = project.run("echo ../evil > old/.jj/repo; mkdir -p new/.jj; echo ../evil > new/.jj/repo; touch mise; true")
    assert (project.path / "old/.jj/repo").read_text() == "../../main\n", done
    assert "new/.jj/repo' is new or has changed" in done.messages and "mise'" not in done.messages, done


def test_G13_what_lazygit_obeys_in_a_git_directory_is_moved_aside(project):
    done = project.run("echo 'git: {pagers: [{pager: touch ran}]}' > .git/lazygit.yml; true")
    assert "(lazygit runs the programs that it names)" in done.messages, done
    assert not (project.path / ".git/lazygit.yml").exists(), os.listdir(project.path / ".git")


FAMILIES = [".envrc.local", "mise.ci.toml", ".mise.production.local.toml", "mise/config.test.local.toml", "mise/conf.d/tools.toml",
            ".config/mise.staging.toml", "MISE.CI.TOML", "lefthook-local.jsonc", ".config/lefthook.yaml", ".lefthook/pre-commit/lint.sh",
            "work.code-workspace", ".run/all.run.xml"]


@pytest.mark.parametrize("name", FAMILIES)
def test_G13_all_files_of_a_family_are_held_and_told(project, name):
    project.write(f"old/{name}", "as it was\n")
    project.write("old/mise.toml.md", "free\n")
    done = project.run(f"echo x > old/{name}; rm -f old/{name}; echo x > old/mise.toml.md; mkdir -p new/{os.path.dirname(name)}; echo x > new/{name}")
    assert (project.path / "old" / name).read_text() == "as it was\n", done
    assert "/new/" in done.messages and "is new or has changed" in done.messages and "mise.toml.md'" not in done.messages, done
    assert (project.path / "old/mise.toml.md").read_text() == "x\n", "positive control"


def test_G13_a_token_in_gits_config_is_warned_of(project):
    """A checkout in CI leaves one there, and git needs the file."""
    assert project.run("true").err == b""
    project.git("config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic eDp5")
    done = project.run("true")
    assert f"'{project.path}/.git/config' has a token or a password" in done.messages, done
    assert project.run("true", "--hide-preset", "none").err == b""


def test_G13_what_is_replaced_outside_is_told(project):
    """The mount that held it is gone then."""
    with project.world.run_start("sh", "-c", "echo there; cat; echo x >> .git/config", cwd=project.path, user=project.user) as run:
        assert run.line() == "there"
        project.git("config", "core.bare", "false")
        done = run.wait()
    assert f"'{project.path}/.git/config' is new or has changed" in done.messages, done


@pytest.mark.parametrize("cwd", [".git/hooks", ".vscode", ".vscode/below", "bare.git/hooks"])
def test_G13_such_a_working_directory_is_read_only(project, cwd):
    project.git("clone", "-q", "--bare", ".", "bare.git")
    project.write(".vscode/below/in", "x")
    done = project.run("touch new", cwd=cwd)
    assert done.code != 0 and b"stays read-only" in done.err and not (project.path / cwd / "new").exists(), done


def test_G13_any_number_of_hard_links_is_one_warning(project):
    assert project.run("echo x > x; for i in $(seq 300); do mkdir d$i; ln x d$i/.envrc; done").code == 0
    done = project.run("true")
    assert done.code == 0 and len(re.findall(r"other names \(hard links\)", done.messages)) == 1, done


def test_G13_a_directory_that_is_too_large_is_told_of(project):
    for n in range(50100):
        (project.path / f"f{n}").touch()
    project.write(".envrc", "as it was\n")
    done = project.run("echo x > .envrc; touch .git/hooks/x; true")
    assert b"too large to be searched" in done.err, done
    assert (project.path / ".envrc").read_text() == "as it was\n", "those of the directory itself are found"
    assert not (project.path / ".git/hooks/x").exists()


def test_G13_weir_itself_is_held_where_it_lies_in_the_project(project):
    """A project may have its own copy: the next run would start what stands there."""
    for name in ("tools/weir", "libexec/weir/weir-control"):
        (project.path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project.world.weir_path, project.path / name)
    project.own()
    before = (project.path / "tools/weir").read_bytes()
    script = ("rm -f tools/weir libexec/weir/weir-control; mv tools old; mv libexec older; echo '#!/bin/sh' > tools/weir; chmod +x tools/weir;"
              " echo evil > libexec/weir/weir-control; cp /bin/true tools/weir-events; touch tools/other; true")
    done = project.outside(project.path / "tools/weir", "run", "--upstream", "127.0.0.9", "--", "sh", "-c", script)
    assert done.code == 0 and (project.path / "tools/other").exists(), done
    assert (project.path / "tools/weir").read_bytes() == before == (project.path / "libexec/weir/weir-control").read_bytes()
    assert "tools/weir-events' is new or has changed: Weir starts it" in done.messages, done
    # who names it may have it written
    done = project.outside(project.path / "tools/weir", "run", "--upstream", "127.0.0.9", "--rw", "tools/weir", "--", "test", "-w", "tools/weir")
    assert done.code == 0, done
