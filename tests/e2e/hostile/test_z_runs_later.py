# SPDX-License-Identifier: Apache-2.0
"""What runs outside later by a link, a setting of git's, a rebase or another tool's file; and locks on the store of events."""
import contextlib
import json
import pathlib
import sqlite3
import subprocess
import time

import pytest

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "init.defaultBranch=main"]


class Project:
    """A directory with a git repository of three commits."""

    def __init__(self, world, user):
        self.world, self.user, self.path = world, user, world.workdir(user)
        self.git("init", "-q", ".")
        for n in "123":
            self.write("file", n)
            self.git("add", "file")
            self.git("commit", "-qm", n)

    def git(self, *args, check=True):
        done = self.world.command(*GIT, *args, cwd=self.path, user=self.user)
        assert not check or done.code == 0, done
        return done

    def write(self, name, text, mode=0o755):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="ascii")
        path.chmod(mode)
        self.own()

    def link(self, name, target):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        self.own()

    def own(self):
        subprocess.run(["chown", "-Rh", f"{self.user}:", self.path], check=True)

    def run(self, script, *options):
        return self.world.run("sh", "-c", script, cwd=self.path, user=self.user, options=options)


@pytest.fixture
def project(world, user):
    return Project(world, user)


def test_what_a_link_in_a_held_directory_leads_to_is_held(project):
    project.write("scripts/pre-commit", "#!/bin/sh")
    project.link(".git/hooks/pre-commit", "../../scripts/pre-commit")
    project.write("conf/tasks.json", "{}")
    project.link(".vscode/tasks.json", "../conf/tasks.json")
    project.link(".vscode/all", "..")
    done = project.run("echo 'touch ran' > scripts/pre-commit; rm -f scripts/pre-commit; mv scripts gone; echo x > conf/tasks.json; "
                       "echo free > free")
    assert (project.path / "free").exists(), done
    assert (project.path / "scripts/pre-commit").read_text() == "#!/bin/sh\n", done
    assert (project.path / "conf/tasks.json").read_text() == "{}\n", done
    project.git("commit", "--allow-empty", "-qm", "four")
    assert not (project.path / "ran").exists()


def test_a_hook_of_the_repository_around_that_leads_here_is_held(project):
    project.write("scripts/pre-commit", "#!/bin/sh")
    project.write("scripts/free", "free")
    project.link(".git/hooks/pre-commit", "../../scripts/pre-commit")
    done = project.world.run("sh", "-c", "echo 'touch ran' > pre-commit; mv pre-commit gone; echo x > free", cwd=project.path / "scripts",
                             user=project.user)
    assert (project.path / "scripts/free").read_text() == "x\n", done
    assert (project.path / "scripts/pre-commit").read_text() == "#!/bin/sh\n", done
    done = project.world.run("sh", "-c", "echo x > scripts/pre-commit", cwd=project.world.workdir(project.user), user=project.user,
                             options=("--rw", str(project.path / "scripts")))
    assert (project.path / "scripts/pre-commit").read_text() == "#!/bin/sh\n", done


def test_what_a_named_directorys_links_lead_to_is_not_held(project):
    project.write("scripts/pre-commit", "#!/bin/sh")
    project.link(".git/hooks/pre-commit", "../../scripts/pre-commit")
    done = project.run("echo x > scripts/pre-commit", "--rw", str(project.path / ".git/hooks"))
    assert (project.path / "scripts/pre-commit").read_text() == "x\n", done


@pytest.mark.parametrize("link, target", [(".git/hooks/pre-commit", "../../made"), (".envrc", "made")])
def test_what_a_dangling_link_leads_to_is_told(project, link, target):
    project.link(link, target)
    done = project.run("echo 'touch ran' > made; chmod +x made")
    assert link in done.messages, done
    assert link not in project.run("true").messages


@pytest.mark.parametrize("what", ["a link", "itself"])
def test_a_socket_in_such_a_place_keeps_nothing_from_starting(project, what):
    """An earlier command has left the link; the socket is another program's, which lives."""
    name = ".envrc" if what == "itself" else "live.sock"
    script = f"import os, socket; s = socket.socket(socket.AF_UNIX); s.bind({name!r}); s.listen(); os.system('read x')"
    with project.world.start(["/usr/bin/python3", "-IS", "-c", script], cwd=project.path, user=project.user) as listener:
        end = time.monotonic() + 60
        while not (project.path / name).exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        if what == "a link":
            project.link(".envrc", name)
        done = project.run("python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('.envrc')\" || echo not connected")
        assert done.code == 0 and done.text == "not connected\n", done
        listener.process.kill()


def test_a_link_that_makes_the_whole_project_read_only_is_told(project):
    project.link("sub/.vscode", "..")
    done = project.run("echo x > new")
    assert not (project.path / "new").exists() and f"'{project.path}' is read-only in the sandbox, for" in done.messages, done


DEEP = r"""
import os, sys
here = os.open(".", os.O_RDONLY)
for name in sys.argv[1:]:
    os.mkdir(name, dir_fd=here)
    here = os.open(name, os.O_RDONLY, dir_fd=here)
os.close(os.open(".envrc", os.O_CREAT, dir_fd=here))
"""


@pytest.mark.parametrize("what", ["long", "deep"])
def test_a_deep_directory_keeps_nothing_from_starting(project, what):
    """As an earlier command has left it: a name that no call takes, and one that would be hundreds of mounts."""
    top = len(str(project.path))
    names = ["a" * 200] * 20 + ["a" * (4095 - top // 2 - 20 * 201 - 7)] if what == "long" else ["a"] * 300
    project.write("deep.py", DEEP)
    try:
        done = project.run(f"python3 deep.py {' '.join(names)}")
        assert done.code == 0, done
        done = project.run("true")
        assert done.code == 0 and "too large to be searched" in done.messages, done
    finally:
        subprocess.run(["rm", "-rf", names[0]], cwd=project.path, check=True)


def test_commands_in_a_rebase_that_is_under_way_are_told(project):
    project.write("edit.sh", "#!/bin/sh\nsed -i '1s/^pick/edit/' $1")
    project.git("-c", f"sequence.editor={project.path}/edit.sh", "rebase", "-i", "HEAD~2")
    todo = ".git/rebase-merge/git-rebase-todo"
    done = project.run(f"sed -i 's/^pick/p/' {todo}")
    assert todo not in done.messages, done
    done = project.run(f"sed -i '1i exec touch ran' {todo}")
    assert todo in done.messages, done
    time.sleep(0.1)
    assert todo not in project.run("true").messages


@pytest.mark.parametrize("name", [".git/sl/config", ".pijul/config"])
def test_other_tools_files_are_held(project, name):
    project.write(name, "as it was")
    done = project.run(f"echo x > {name}; rm -f {name}; mv {pathlib.PurePath(name).parent} gone")
    assert (project.path / name).read_text() == "as it was\n", done


HOLD = r"""
import fcntl, os, subprocess, sys, time
held = []
for i in range(50):
    if "events.db-shm" in os.listdir("state"):
        break
    subprocess.run(["getent", "hosts", f"first{i}.test"])
    time.sleep(.1)
for name in sorted(os.listdir("state")):
    fd = os.open("state/" + name, os.O_RDONLY)
    held.append(fd)
    for _ in range(500):
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 16, 120)
            break
        except OSError:
            time.sleep(.01)
print("held", len(held), flush=True)
sys.stdin.read()
"""


def test_no_command_locks_the_store_of_events(world, user):
    """The store lies in the working directory: another run's events are kept while one holds what locks it can get."""
    work = world.workdir(user)
    (work / "hold.py").write_text(HOLD)
    options = ("--state-dir", str(work / "state"), "--quiet")
    world.run("true", options=options, cwd=work, user=user)
    with world.run_start("python3", "hold.py", options=options, cwd=work, user=user) as run:
        assert run.line().startswith("held")
        done = world.run("getent", "hosts", "other.test", options=options, cwd=work, user=user)
        run.process.kill()
        run.process.wait()
        text = world.weir("events", "--json", "--state-dir", str(work / "state"), user=user).text
        assert "other.test" in {json.loads(line)["name"] for line in text.splitlines()}, done


def test_events_that_a_locked_store_did_not_take_are_told(world):
    state = world.workdir() / "state"
    options = ("--state-dir", str(state))
    assert world.run("true", options=options).code == 0
    with world.run_start("sh", "-c", "echo up; read line; getent hosts late.test", options=options) as run:
        assert run.line() == "up"
        with contextlib.closing(sqlite3.connect(state / "events.db")) as db:
            db.execute("BEGIN IMMEDIATE")  # as a backup would, that takes its time
            run.say("go\n")
            run.process.wait()
            assert "events could not be kept in the store" in run.process.stderr.read().decode()


def test_what_git_s_config_names_is_held(project):
    """Hooks in a directory of the project, and files that the config includes, which may name others."""
    project.write("tools/hooks/pre-commit", "#!/bin/sh")
    project.write("conf/git.inc", "[Include]\n\tpath = more.inc ; and that one names the hooks")
    project.write("conf/more.inc", '[core] hooksPath = "tools/ho\\\noks"')
    project.git("config", "include.path", "../conf/git.inc")
    assert project.git("rev-parse", "--git-path", "hooks").text.strip() == "tools/hooks"
    attack = ("echo 'touch ran' >> tools/hooks/pre-commit; rm -rf tools/hooks; mv tools gone; printf '#!/bin/sh\\ntouch ran\\n' > post-commit;"
              "chmod +x post-commit; mv post-commit tools/hooks; mv conf gone; for f in conf/*; do printf '[core]\\nfsmonitor = touch ran; false\\n' > $f; done; echo > free")
    done = project.run(attack)
    assert (project.path / "free").exists(), done
    project.git("status")
    project.git("commit", "--allow-empty", "-qm", "four")
    assert not (project.path / "ran").exists(), done
    project.write("tools/hooks/pre-commit", "#!/bin/sh\ntouch ran")
    project.git("commit", "--allow-empty", "-qm", "five")
    assert (project.path / "ran").exists(), "positive control: the hook"
    (project.path / "ran").unlink()
    project.write("conf/more.inc", "[core]\nfsmonitor = touch ran; false")
    project.git("status")
    assert (project.path / "ran").exists(), "positive control: the config"


@pytest.mark.parametrize("names", ["hooksPath", "worktree", "submodule"])
def test_hooks_that_a_config_names_and_the_command_makes_are_told(project, names):
    where = "hooks-of-ours"
    if names == "hooksPath":
        project.git("config", "core.hooksPath", where)
    elif names == "worktree":  # a git directory that lies elsewhere
        project.git("init", "-q", "--separate-git-dir", "repo", "tree")
        project.git("-C", "tree", "config", "core.worktree", "../tree")
        project.git("-C", "tree", "config", "core.hooksPath", where)
        where = f"tree/{where}"
    else:
        project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "./.git", "sub")
        project.git("-C", "sub", "config", "core.hooksPath", where)
        where = f"sub/{where}"
    done = project.run(f"mkdir {where}; touch {where}/pre-commit")
    assert done.code == 0 and f"{where}' is new or has changed: git runs what is in it, for its config says so" in done.messages, done
    done = project.run(f"touch {where}/new")
    assert done.code != 0 and not (project.path / where / "new").exists(), done
    assert project.run(f"touch {where}/new", "--rw", where).code == 0


def test_a_config_that_names_itself_or_all_keeps_nothing_away(project):
    with (project.path / ".git/config").open("a", encoding="ascii") as config:
        config.write("[include]\n" + 9 * "path = config\n" + "path = ../no/such\n[core]\nhooksPath = ..\nhooksPath = .\n")
    done = project.run("echo > free")
    assert done.code == 0 and (project.path / "free").exists() and done.seconds < 20, done


@pytest.mark.parametrize("where", ["a directory of it", "another working tree", "another working tree below"])
def test_what_the_config_of_a_repository_around_names_is_held(project, where):
    tree = project.path
    if where != "a directory of it":
        tree = (project.path if "below" in where else project.world.workdir(project.user)) / "tree"
        project.git("worktree", "add", "-q", str(tree))
    hooks = tree / "tools/hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\n", encoding="ascii")
    subprocess.run(["chown", "-R", f"{project.user}:", tree / "tools"], check=True)
    project.git("config", "core.hooksPath", "tools/hooks")
    inside = {"a directory of it": tree / "tools", "another working tree": tree, "another working tree below": project.path}[where]
    done = project.world.run("sh", "-c", f"echo 'touch ran' >> {hooks}/pre-commit; mv {hooks} {inside}/gone; echo > {inside}/free", cwd=inside, user=project.user)
    assert (inside / "free").exists(), done
    assert (hooks / "pre-commit").read_text(encoding="ascii") == "#!/bin/sh\n", done


ON_THE_WAY = {"an included config": "include.path ../way", "hooks": "core.hooksPath way", "a hook": ""}


@pytest.mark.parametrize("what", ON_THE_WAY)
def test_a_link_on_the_way_to_what_is_held_is_held(project, what):
    """Exchanged, it would lead to what the command has made."""
    project.write("conf/pre-commit", "#!/bin/sh")
    project.write("conf/inc", "")
    project.link("way", "conf/inc" if what == "an included config" else "conf")
    if what == "a hook":
        project.link(".git/hooks/pre-commit", "../../way/pre-commit")
    else:
        project.git("config", *ON_THE_WAY[what].split())
    evil = ("printf '[core]\\nfsmonitor = touch ran; false\\n' > way" if what == "an included config" else
            "mkdir way; printf '#!/bin/sh\\ntouch ran\\n' > way/pre-commit; chmod +x way/pre-commit")
    attack = f"rm way; mv way x; {evil}; echo > free"
    done = project.run(attack)
    assert (project.path / "free").exists(), done

    def work():
        project.git("status")
        project.git("commit", "--allow-empty", "-qm", "more", check=False)
        return (project.path / "ran").exists()
    assert not work(), done
    project.world.command("sh", "-c", attack, cwd=project.path, user=project.user)
    assert work(), "positive control"


def test_what_a_link_deep_in_a_held_directory_leads_to_is_held(project):
    project.write("tools/x", "as it was")
    project.link(".claude/hooks/x", "../../tools/x")
    done = project.run("echo x > tools/x; mv tools gone; echo > free")
    assert (project.path / "free").exists() and (project.path / "tools/x").read_text(encoding="ascii") == "as it was\n", done
