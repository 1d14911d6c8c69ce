# SPDX-License-Identifier: Apache-2.0
"""Defaults of weir run: /etc/weir, ~/.config/weir, and a .weir.yaml that only narrows."""
import shlex

import pytest


class Files:
    """A home, an /etc/weir and a working directory of one test's own."""

    def __init__(self, world, user):
        self.world, self.user = world, user
        self.cwd, self.home, self.etc = (world.workdir(user) for _ in range(3))

    def etc_config(self, text):
        (self.etc / "config.yaml").write_text(text)

    def home_config(self, text):
        folder = self.home / ".config" / "weir"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(text)

    def run(self, *argv, **options):
        mounts = ("mkdir -p /etc/weir", f"mount --bind {shlex.quote(str(self.etc))} /etc/weir")
        env = {"HOME": str(self.home), **options.pop("env", {})}
        return self.world.run(*argv, user=self.user, cwd=self.cwd, env=env, mounts=mounts, **options)


@pytest.fixture
def files(world, user):
    return Files(world, user)


def fetch(site):
    return "curl", "-sS", f"https://{site.name}/"


def test_the_machines_defaults_are_used(files, site):
    files.etc_config("policy: allowed.yaml\n")
    (files.etc / "allowed.yaml").write_text(f"egress: [{{action: allow, target: {site.name}}}]\n")
    assert files.run(*fetch(site)).code == 0


def test_the_users_defaults_come_before_the_machines(files, site):
    files.etc_config(f"policy: /no/such/policy.yaml\n")
    files.home_config("policy: mine.yaml\n")
    (files.home / ".config" / "weir" / "mine.yaml").write_text(f"egress: [{{action: allow, target: {site.name}}}]\n")
    assert files.run(*fetch(site)).code == 0


def test_environment_and_command_line_come_before_the_files(files, site):
    files.home_config("uplink: none\n")
    assert files.run(*fetch(site), allow=(site.name,)).code != 0
    assert files.run(*fetch(site), allow=(site.name,), env={"WEIR_UPLINK": "relay"}).code == 0
    assert files.run(*fetch(site), allow=(site.name,), options=("--uplink", "relay")).code == 0


def test_no_config_reads_none_of_them(files):
    files.etc_config("nonsense: 1\n")
    files.home_config("nonsense: 1\n")
    (files.cwd / ".weir.yaml").write_text("nonsense: 1\n")
    assert files.run("true").code == 2
    assert files.run("true", options=("--no-config",)).code == 0
    assert files.run("true", env={"WEIR_NO_CONFIG": "1"}).code == 0


def test_each_fault_is_named_with_its_place(files):
    files.etc_config("uplink: tor\n")
    (files.cwd / ".weir.yaml").write_text("deny:\n  - a..test\n")
    done = files.run("touch", "started")
    assert done.code == 2 and not (files.cwd / "started").exists(), done
    assert "/etc/weir/config.yaml:1:9: " in done.messages and ".weir.yaml:2:5: " in done.messages, done


def test_a_file_in_the_working_directory_denies(files, site):
    (files.cwd / ".weir.yaml").write_text(f"deny: [{site.name}]\n")
    done = files.run(*fetch(site), allow=(site.name,))
    assert done.code != 0 and ".weir.yaml" in done.messages, done


@pytest.mark.parametrize("text", ["allow: [evil.test]\n", "profile: default\n", "rw: /\n", "uplink: relay\n",
                                  "verify: dns\n", "defaultAction: allow\n", "extends: [x]\n"])
def test_a_file_in_the_working_directory_never_widens(files, text):
    (files.cwd / ".weir.yaml").write_text(text)
    done = files.run("true")
    assert done.code == 2 and "can't widen" in done.messages, done


def test_the_command_cannot_take_its_narrowing_back(files, site):
    (files.cwd / ".weir.yaml").write_text(f"deny: [{site.name}]\n")
    files.run("sh", "-c", "echo > .weir.yaml; rm -f .weir.yaml; mv .weir.yaml x; exit 0")
    assert files.run(*fetch(site), allow=(site.name,)).code != 0


def test_defaults_for_writable_paths_are_paths_of_the_home(files):
    (files.home / "cache").mkdir()
    files.world.command("chown", "-R", files.user, files.home)
    files.home_config("rw: ~/cache\n")
    assert files.run("touch", f"{files.home}/cache/x").code == 0
    assert (files.home / "cache" / "x").exists()
    assert files.run("touch", f"{files.home}/y").code != 0
