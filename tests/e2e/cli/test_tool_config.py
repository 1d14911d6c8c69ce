# SPDX-License-Identifier: Apache-2.0
"""Defaults of weir run: /etc/weir, ~/.config/weir, and a .weir.yaml that only narrows."""
import os
import pwd
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
        """Root's home is the one of the passwd entry, whatever HOME says."""
        mounts = ["mkdir -p /etc/weir", f"mount --bind {shlex.quote(str(self.etc))} /etc/weir"]
        if self.user == "root":
            mounts.append(f"mount --bind {shlex.quote(str(self.home))} {pwd.getpwuid(0).pw_dir}")
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


def test_a_large_file_in_the_working_directory_is_refused_unread(files):
    """A stranger's repository has it, and what is read of it takes many times its size."""
    for more, code in ((0, 0), (1, 2)):
        (files.cwd / ".weir.yaml").write_text("deny: [a.test] #".ljust(64 * 1024 + more, "x"))
        done = files.run("true")
        assert done.code == code and ("larger than 64 KiB" in done.messages) == bool(more), done


def test_the_command_cannot_take_its_narrowing_back(files, site):
    (files.cwd / ".weir.yaml").write_text(f"deny: [{site.name}]\n")
    files.run("sh", "-c", "echo > .weir.yaml; rm -f .weir.yaml; mv .weir.yaml x; exit 0")
    assert files.run(*fetch(site), allow=(site.name,)).code != 0


def test_defaults_for_writable_paths_are_paths_of_the_home(files):
    (files.home / "cache").mkdir()
    files.world.command("chown", "-R", files.user, files.home)
    files.home_config("rw: ~/cache\n")
    home = pwd.getpwuid(0).pw_dir if files.user == "root" else files.home
    assert files.run("touch", f"{home}/cache/x").code == 0
    assert (files.home / "cache" / "x").exists()
    assert files.run("touch", f"{home}/y").code != 0


MINE = "policy: mine.yaml\n"


def of_other(path, uid=4242):
    os.chown(path, uid, uid)


@pytest.mark.parametrize("what, why", [
    (lambda f, c: of_other(c), "it belongs to another user"),
    (lambda f, c: c.chmod(0o666), "others than its owner may write to it"),
    (lambda f, c: (os.chown(c, -1, 4242), c.chmod(0o664)), "others than its owner may write to it"),
    (lambda f, c: of_other(f), "a directory on the way to it belongs to another user"),
    (lambda f, c: f.chmod(0o777), "others than its owner may write to a directory on the way to it"),
    (lambda f, c: (c.rename(f / "x"), c.symlink_to("x"), os.chown(c, 4242, 4242, follow_symlinks=False)),
     "a link on the way to it belongs to another user")],
    ids=["file", "everybody", "group", "folder", "open folder", "link"])
@pytest.mark.parametrize("where", ["etc", "home"])
def test_configuration_that_others_can_write_is_refused(files, site, where, what, why):
    """G20. The control is the same file before it is anybody's."""
    (files.etc_config if where == "etc" else files.home_config)(MINE)
    folder = files.etc if where == "etc" else files.home / ".config" / "weir"
    (folder / "mine.yaml").write_text(f"egress: [{{action: allow, target: {site.name}}}]\n")
    assert files.run(*fetch(site)).code == 0
    what(folder, folder / "config.yaml")
    done = files.run("touch", "started")
    assert done.code == 2 and why in done.messages and not (files.cwd / "started").exists(), done
    assert files.run("true", options=("--no-config",)).code == 0


@pytest.mark.parametrize("user", ["weir-test"], indirect=True)
def test_a_users_own_group_is_nobody_else(files, site):
    """Where each user has a group, what the user makes is often the group's to write to; root's has others in it."""
    files.home_config(MINE)
    config = files.home / ".config" / "weir" / "config.yaml"
    (config.parent / "mine.yaml").write_text(f"egress: [{{action: allow, target: {site.name}}}]\n")
    who = pwd.getpwnam(files.user)
    os.chown(config, who.pw_uid, who.pw_gid)
    config.chmod(0o664)
    assert files.run(*fetch(site)).code == 0


def test_root_takes_nothing_of_the_user_whose_home_is_in_the_environment(world, site):
    """G20: sudo, with the user's HOME kept: neither configuration nor profiles, by HOME or XDG_CONFIG_HOME."""
    home, cwd = world.workdir("weir-test"), world.workdir()
    folder = home / ".config" / "weir"
    (folder / "profiles").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"rw: {home}\npolicy: mine.yaml\n")
    (folder / "mine.yaml").write_text(f"egress: [{{action: allow, target: {site.name}}}]\n")
    (folder / "profiles" / "none.yaml").write_text(f"egress: [{{action: allow, target: {site.name}}}]\n")
    world.command("chown", "-R", "weir-test", home)
    script = (f"touch {home}/written; curl -sSm 50 https://{site.name}/ >/dev/null && echo reached; true",)
    mounts = (f"mount -t tmpfs none {pwd.getpwuid(0).pw_dir}",)
    for env in ({"HOME": str(home)}, {"XDG_CONFIG_HOME": str(home / ".config")}):
        for profile in ((), ("--profile", "none")):
            theirs = world.run("sh", "-c", *script, user="weir-test", cwd=home, env=env, options=profile)
            assert "reached" in theirs.text and (home / "written").exists(), theirs
            (home / "written").unlink()
            done = world.run("sh", "-c", *script, cwd=cwd, env=env, options=profile, mounts=mounts)
            assert done.code == 0 and "reached" not in done.text and not (home / "written").exists(), done
    listed = {p["name"]: p["path"] for p in world.weir("profile", "list", "--json", env={"HOME": str(home)}).json()}
    assert not any(str(home) in path for path in listed.values()), listed
