# SPDX-License-Identifier: Apache-2.0
"""--pass-env SSH_AUTH_SOCK: that one socket of the host's is within reach, when its variable is named and not otherwise.

G36: what lies beside it, what is put in its place.
"""
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile

import pytest


NAMED = ("--pass-env", "SSH_AUTH_SOCK")
TOLD = "weir: --pass-env SSH_AUTH_SOCK: "


class Place:
    """A directory, where sockets of @user's listen."""

    def __init__(self, world, user, folder, stack):
        self.world, self.user, self.folder, self._stack = world, user, folder, stack
        self.listeners = {}

    def listen(self, name, owner=None, mode=0o600):
        path = f"{self.folder}/{name}"
        with self.world.host.entered():
            s = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        s.bind(path)
        s.listen(16)
        s.setblocking(False)
        shutil.chown(path, owner or self.user)
        os.chmod(path, mode)
        self.listeners[name] = s
        return path

    def was_reached(self, name):
        """Empties the queue."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self.listeners[name].accept()[0].close()
                count += 1
        return count > 0

    def try_all(self, *options, env, **rest):
        """What a sandbox reaches, as its listeners tell."""
        self.world.probe(*([["unix", f"{self.folder}/{name}"] for name in self.listeners] + [["unix", "/nowhere"]]), user=self.user,
                         options=options, env={"SSH_AUTH_SOCK": env}, **rest)
        return {name for name in self.listeners if self.was_reached(name)}


@pytest.fixture
def places(world, user):
    with contextlib.ExitStack() as stack:
        def make(where):
            folder = world.workdir(user) if where is None else stack.enter_context(tempfile.TemporaryDirectory(dir=where, prefix="weir-test-"))
            shutil.chown(folder, user, user)
            return Place(world, user, folder, stack)
        yield make


@pytest.fixture
def agent(places, world, user):
    """(the socket of a real agent with a key, in /tmp as ssh-agent itself has it; the key's comment)"""
    folder = places("/tmp").folder
    env = {"SSH_AUTH_SOCK": f"{folder}/agent.1"}
    with world.start(["ssh-agent", "-D", "-a", env["SSH_AUTH_SOCK"]], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        done = world.command("sh", "-c", f"ssh-keygen -q -t ed25519 -N '' -C the-key -f {folder}/key && "
                             f"until ssh-add -q {folder}/key 2>/dev/null; do sleep 0.02; done; ssh-add -l", user=user, env=env)
        assert "the-key" in done.text, done
        yield env, "the-key"


def test_a_program_signs_with_the_users_agent(world, agent, user):
    env, key = agent
    without = world.run("ssh-add", "-l", user=user, env=env)
    assert without.code != 0 and key not in without.text, without
    done = world.run("ssh-add", "-l", user=user, env=env, options=NAMED)
    if user == "root":  # a sandbox's root is another user to the agent, which says so by hanging up
        assert key not in done.text and TOLD + "to the agent the command" in done.messages, done
        return
    assert done.code == 0 and key in done.text and done.err == b"", done
    assert key in world.run("ssh-add", "-l", user=user, env={**env, "WEIR_PASS_ENV": "LANG SSH_AUTH_SOCK"}).text


@pytest.mark.parametrize("options", [(), ("--pass-env", "SSH_*"), ("--pass-env", "*"), ("--env", "all"), ("--pass-env", "SSH_AUTH_SOCK_"),
                                     (*NAMED, "--set-env", "SSH_AUTH_SOCK={path}")], ids=" ".join)
def test_only_the_whole_name_shows_it(places, options):
    place = places("/tmp")
    path = place.listen("agent")
    assert place.try_all(*(o.format(path=path) for o in options), env=path) == set()
    assert place.try_all(*NAMED, env=path) == {"agent"}, "positive control"


def test_a_configuration_names_it_and_a_policy_does_not(places, world):
    place, etc = places("/tmp"), world.workdir()
    path = place.listen("agent")
    mounts = ["mkdir -p /etc/weir", f"mount --bind '{etc}' /etc/weir"]
    (etc / "policy.yaml").write_text("run: {pass_env: [SSH_AUTH_SOCK]}\negress: []\n")
    (etc / "config.yaml").write_text("env: all\npolicy: policy.yaml\n")
    assert place.try_all(env=path, mounts=mounts) == set()
    (etc / "config.yaml").write_text("pass_env: [SSH_AUTH_SOCK]\npolicy: policy.yaml\n")
    assert place.try_all(env=path, mounts=mounts) == {"agent"}


@pytest.mark.parametrize("where", ["/tmp", "/run", None])
@pytest.mark.parametrize("shown", [(), ("--ro", "{folder}"), ("--rw", "{folder}")], ids=["", "ro", "rw"])
def test_G36_what_lies_beside_it_stays_out_of_reach(places, where, shown):
    place = places(where)
    path = place.listen("agent")
    place.listen("agent2", mode=0o777), place.listen("bus", mode=0o777)
    for name in place.listeners:  # positive control
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{place.folder}/{name}")
        assert place.was_reached(name)
    assert place.try_all(*NAMED, *(s.format(folder=place.folder) for s in shown), env=path) == {"agent"}


def test_in_a_hidden_directory_it_alone_is_shown(places, world, user):
    place = places(None)
    os.mkdir(f"{place.folder}/.ssh")
    shutil.chown(f"{place.folder}/.ssh", user, user)
    for name in ("key", "known_hosts"):
        with open(f"{place.folder}/.ssh/{name}", "w", encoding="ascii") as f:
            f.write("needle\n")
    path = place.listen(".ssh/agent")
    place.listen(".ssh/other")
    env = {"HOME": str(place.folder), "SSH_AUTH_SOCK": path}
    done = world.run("sh", "-c", "ls -A ~/.ssh; cat ~/.ssh/known_hosts", user=user, env=env, options=NAMED)
    assert done.text == "agent\nknown_hosts\nneedle\n", done
    rest = world.probe(["unix", path], ["unix", f"{place.folder}/.ssh/other"], user=user, env=env, options=NAMED)
    assert rest[0].result == "ok" and rest[1].result != "ok", rest
    assert place.was_reached(".ssh/agent") and not place.was_reached(".ssh/other")


def link(place):
    os.symlink(place.listen("real"), f"{place.folder}/agent")
    return f"is a link, and none is followed; set SSH_AUTH_SOCK to '{place.folder}/real'"


def file(place):
    with open(f"{place.folder}/agent", "w", encoding="ascii"):
        pass
    shutil.chown(f"{place.folder}/agent", place.user)
    return "is not a unix socket"


def anothers(place):
    place.listen("agent", owner="nobody", mode=0o777)
    return "it belongs to another user"


def open_to_others(place):
    place.listen("agent", mode=0o666)
    return "others than its owner may write to it"


def in_anothers_directory(place):
    place.listen("agent")
    shutil.chown(place.folder, "nobody")
    os.chmod(place.folder, 0o755)
    return "a directory on the way to it"


@pytest.mark.parametrize("make", [link, file, anothers, open_to_others, in_anothers_directory])
def test_G36_what_is_not_the_callers_own_socket_starts_nothing(places, world, user, make):
    place = places("/tmp")
    why = make(place)
    done = world.run("echo", "started", user=user, env={"SSH_AUTH_SOCK": f"{place.folder}/agent"}, options=NAMED)
    assert done.code == 2 and done.out == b"" and TOLD in done.messages and why in done.messages, done
    assert not any(place.was_reached(name) for name in place.listeners)


def test_one_that_is_gone_is_told_and_the_command_runs(places, world, user):
    path = f"{places('/tmp').folder}/gone"
    done = world.run("sh", "-c", "echo $SSH_AUTH_SOCK", user=user, env={"SSH_AUTH_SOCK": path}, options=NAMED)
    assert done.text == f"{path}\n" and done.messages == f"{TOLD}there is no '{path}'\n", done


def test_a_socket_that_ro_names_is_refused_with_what_to_do(places, world, user):
    place = places("/tmp")
    done = world.run("echo", "started", user=user, options=("--ro", place.listen("agent")))
    assert done.code == 2 and done.out == b"" and "--pass-env SSH_AUTH_SOCK" in done.messages, done
