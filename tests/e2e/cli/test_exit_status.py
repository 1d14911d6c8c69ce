# SPDX-License-Identifier: Apache-2.0
"""What verbs end with: 125 where Weir could not do it, 2 where what it was given is wrong, 1 where the answer is no."""
import json
import os
import signal
import socket
import subprocess

import pytest

from tests.world.copies import PROGRAM
from tests.world.store import Store

POLICY = {"egress": [{"action": "allow", "target": "a.test"}]}
PRINT = {
    "events": 0, "denies": 0, "review list": 0, "review show 1": 0, "learn --from .": 0, "policy check policy.json": 0,
    "policy check --json policy.json": 0, "policy explain --policy policy.json a.test": 0, "policy show policy.json": 0,
    "policy diff policy.json default": 1, "policy import --from codex codex.toml": 0, "profile list": 0, "profile show default": 0,
    "profile show --json default": 0, "inject -f pod.yaml --quiet": 0, "help": 0, "completion bash": 0, "render --uid 65534 --policy policy.json": 0,
}


@pytest.fixture
def folder(world):
    path = world.workdir()
    (path / "policy.json").write_text(json.dumps(POLICY))
    (path / "codex.toml").write_text('[sandbox_workspace_write]\nnetwork_access = false\n')
    (path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
    with Store(path) as store:
        store.put("b.test")
    return path


@pytest.mark.parametrize("words", PRINT)
def test_output_that_goes_nowhere_is_a_failure(world, folder, words):
    env = {"WEIR_STATE_DIR": str(folder)}
    done = world.weir(*words.split(), cwd=folder, env=env)
    assert done.code == PRINT[words] and done.text, done
    full = world.command("sh", "-c", f"exec '{world.weir_path}' {words} > /dev/full", cwd=folder, env=env)
    assert full.code == 125 and full.messages, full


@pytest.mark.parametrize("words", [*PRINT, "denies --help", "run --help", "version", "doctor"])
def test_a_reader_that_is_gone_ends_it_silently(world, folder, words):
    """Whatever the parent does with SIGPIPE: services of systemd ignore it, and hand that on."""
    reader, gone = os.pipe()
    os.close(reader)
    with os.fdopen(gone) as output:
        for how in (signal.SIG_IGN, signal.SIG_DFL):
            done = subprocess.run([world.weir_path, *words.split()], cwd=folder, env={**os.environ, "WEIR_STATE_DIR": str(folder)}, stdout=output,
                                  stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGPIPE, how), restore_signals=False)
            assert done.returncode == -signal.SIGPIPE and b"cannot write" not in done.stderr, (how, done)


GIVEN = {
    "policy explain --file none a.test": 2, "policy explain --file none": 2, "policy diff none.yaml default": 2, "policy import --from codex none.toml": 2,
    "learn --from . --diff none.yaml": 2, "learn --from none": 125, "events --state-dir none": 125,
    "denies --state-dir none": 125, "review list --state-dir none": 125, "review show 99": 2, "review accept 99": 2,
    "review accept 1 --yes --policy none.json": 2, "review accept 1 --live --yes --socket none.sock": 125, "review accept 1 --policy policy.json": 1,
    "inject -f none.yaml": 2, "profile show nothing": 2,
}


def test_what_nobody_answers_says_what_to_start(world, folder):
    done = world.weir("ps", "--socket", "none.sock", cwd=folder)
    assert done.code == 125 and "none.sock': No such file or directory; is `weir daemon` running?" in done.messages, done
    done = world.weir("ps", cwd=folder, env={"WEIR_SOCKET": ""})
    assert done.code != 0 or (done.text.count("\n") == 1) == ("no run under way" in done.messages), done
    for verb in ("events", "denies", "review"):
        done = world.weir(verb, "--state-dir", "none", cwd=folder)
        assert done.code == 125 and "weir run --state-dir" in done.messages, done


def test_who_may_not_ask_is_named(world):
    path = world.workdir("weir-test") / "root.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        done = world.weir("ps", "--socket", path, user="weir-test")
    assert done.code == 125 and "Permission denied; its API is for root and members of the group weir" in done.messages, done


@pytest.mark.parametrize("words", GIVEN)
def test_what_is_given_is_wrong_or_weir_can_not(world, folder, words):
    done = world.weir(*words.split(), cwd=folder, env={"WEIR_STATE_DIR": str(folder)})
    assert done.code == GIVEN[words] and done.messages and not done.text, done


PATHS = {
    "--rw /proc": "--rw: '/proc' can't be writable", "--rw /sys/kernel": "can't be writable", "--rw /dev/null": "--rw: '/dev/null' is neither",
    "--rw none": "--rw: cannot find 'none'", "--rw link": "is a link, which an earlier command", "--policy link.json": "is a link in a directory",
}


@pytest.mark.parametrize("user", ["root", "weir-test"])
@pytest.mark.parametrize("words", PATHS)
def test_a_path_that_can_not_be_had_is_bad_input(world, words, user):
    """Also where only the launch, which knows the mounts, can tell. Nothing is started."""
    folder, aside = world.workdir(user), world.workdir(user)
    (aside / "policy.json").write_text(json.dumps(POLICY))
    (folder / "link").symlink_to(aside)
    (folder / "link.json").symlink_to(aside / "policy.json")
    done = world.weir("run", *words.split(), "--", "touch", "started", cwd=folder, user=user)
    assert done.code == 2 and PATHS[words] in done.messages and not (folder / "started").exists(), done


SERVICES = {  # what a supervisor or a run starts
    "events store {folder}/policy.json": 125, "events store": 2,
    "events review-command daemon --upstream 192.0.2.1 --review-command /bin/true --state-dir {folder}/others": 125,
    "events review-command daemon --upstream 192.0.2.1": 2,
    "postgres daemon --upstream 192.0.2.1 --postgres dbname=x --state-dir {folder}/others": 125, "postgres daemon --upstream none": 2,
    "postgres read [broken 0": 2, "postgres read postgres://127.0.0.1:9/x?connect_timeout=2 0": 125,
    "webhook": 125, "control daemon --upstream none": 2,
}


@pytest.mark.parametrize("words", SERVICES)
def test_a_service_says_which(world, folder, words):
    """Its channel says what no other process of Weir's says."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name, *args = words.format(folder=folder).split()
    (folder / "others").mkdir()
    os.chown(folder / "others", 65534, 65534)
    ours.send(b"?")
    ours.close()
    start = ["sh", "-c", 'exec 3<&0 </dev/null; exec "$@"', "sh", PROGRAM.parent / f"weir-{name}", *args]
    done = subprocess.run(start, stdin=theirs, capture_output=True, text=True, timeout=60)
    assert done.returncode == SERVICES[words] and (done.stdout + done.stderr or words.startswith("events store")), done
