# SPDX-License-Identifier: Apache-2.0
"""G: files on a file system that finds them under any case of their letters: tests/world/nocase.py."""
import os

import pytest
from world import nocase

POLICY = "defaultAction: deny\negress:\n  - {action: allow, target: a.example}\n"


@pytest.fixture(params=["numbered", "spelled"])
def project(world, request):
    """A directory of weir-test's: where the file system is mounted, for each command anew, and what lies below it."""
    class Project:
        where, backing = world.workdir("weir-test"), world.workdir()
        mounts = (nocase.mounting(backing, where, *{"numbered": [], "spelled": ["spelled"]}[request.param]),)

        def write(self, name, text):
            path = self.backing / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            for one in (path.parent, path):
                os.chown(one, self.where.stat().st_uid, self.where.stat().st_gid)

        def run(self, script, *options):
            return world.run("sh", "-c", script, cwd=self.where, options=("--rw", self.where, *options), mounts=self.mounts,
                             user="weir-test")

    made = Project()
    made.write("file", "as it was\n")
    os.chown(made.backing, made.where.stat().st_uid, made.where.stat().st_gid)
    return made


def test_G38_the_file_system_is_one(world, project):
    """So that the tests after it mean something."""
    done = project.run("cat FILE; echo new > FILE; cat File; ls")
    assert done.text == "as it was\nnew\nfile\n", done
    assert world.leftovers() == []  # its server among them


@pytest.mark.parametrize("name", ["policy.yaml", "below/policy.yaml"])
def test_G38_no_policy_is_changed_by_another_spelling(project, name):
    project.write(name, POLICY)
    done = project.run(f"echo 'defaultAction: allow' > {name.upper()}; echo 'defaultAction: allow' > {name.replace('p', 'P')}",
                       "--policy", project.where / name)
    assert (project.backing / name).read_text() == POLICY, done
    assert done.code == 125 and "upper and lower case" in done.messages and "policy.yaml' can't be read-only" in done.messages, done


def test_G38_a_policy_is_found_where_it_lies_however_its_path_is_spelled(world, project):
    project.write("below/policy.yaml", POLICY)
    below = project.where / "below"
    done = world.run("sh", "-c", f"echo 'defaultAction: allow' > {below}/policy.yaml", cwd=world.workdir("weir-test"), mounts=project.mounts,
                     options=("--rw", below, "--policy", project.where / "BELOW" / "policy.yaml"), user="weir-test")
    assert (project.backing / "below/policy.yaml").read_text() == POLICY, done
    assert done.code == 2 and "in the same upper and lower case" in done.messages, done


def test_G38_nothing_hidden_is_read_by_another_spelling(project):
    project.write(".env", "a secret\n")
    done = project.run("cat .ENV .Env", "--hide", project.where / ".env")
    assert b"a secret" not in done.out and done.code == 125 and ".env' can't be hidden" in done.messages, done


def test_G38_nor_what_is_hidden_where_nothing_is_writable(world, project):
    """Seen through the overlay."""
    project.write(".env", "a secret\n")
    done = world.run("cat", project.where / ".ENV", options=("--hide", project.where / ".env"), mounts=project.mounts, user="weir-test")
    assert b"a secret" not in done.out and done.code == 125, done


SERVICE = ("import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind('s')\nimport os\nos.chmod('s',0o777)\ns.listen()\n"
           "import subprocess\nprint(subprocess.run(sys.argv[1:],stderr=subprocess.STDOUT).returncode,flush=True)\n")
CONNECT = "import socket\nfor n in 'sS':\n s=socket.socket(socket.AF_UNIX)\n try:\n  s.connect(n)\n  print('connected')\n except OSError as e: print(e)\n"


def test_G38_no_socket_is_reached_by_another_spelling(world, project):
    """A service of the host's, which has its socket there before the command starts."""
    done = world.command("/usr/bin/python3", "-ISc", SERVICE, world.weir_path, "run", "--rw", project.where, "--", "/usr/bin/python3", "-ISc", CONNECT,
                         cwd=project.where, mounts=(*project.mounts, f"cd {project.where}"), user="weir-test")
    assert "connected" not in done.text and done.text.endswith("\n125\n") and "can't be masked" in done.text, done


def test_G38_files_that_run_outside_are_named(project):
    """A project with a repository can be worked in; who does so is told."""
    for name in ("HEAD", "config", "objects/x", "refs/x", "hooks/x"):
        project.write(f".git/{name}", "")
    done = project.run("echo ok; mkdir -p below/.VSCODE")
    assert done.text == "ok\n" and "files that run outside later, such as" in done.messages, done
    assert "/below/.VSCODE' is new" in done.messages, done


def test_G38_a_repository_is_one_however_its_files_are_spelled(project):
    """git finds them there, and obeys what is beside them."""
    done = project.run("mkdir -p below/.git/OBJECTS below/.git/Refs; echo > below/.git/head; echo > below/.git/CONFIG")
    assert "/below/.git/config' is new" in done.messages, done
    done = project.run("true")
    assert "files that run outside later, such as" in done.messages, done


def test_G38_a_policy_elsewhere_and_no_secret_is_all_right(project, world):
    policy = world.workdir("weir-test") / "policy.yaml"
    policy.write_text(POLICY)
    done = project.run("echo ok > new; cat NEW", "--policy", policy)
    assert done.text == "ok\n" and "upper" not in done.messages, done
