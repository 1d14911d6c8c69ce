# SPDX-License-Identifier: Apache-2.0
"""weir container run: a container of a real Docker Engine or podman, guarded by a sidecar."""
import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from world import expect
from world.engine_api import KINDS, ApiEngine
from world.sidecar import request, wait_for

STRANGER = "93.9.9.9"


@pytest.fixture(scope="module", params=KINDS)
def engine(world, request):
    if not KINDS[request.param].client_programs():
        pytest.skip(f"no {request.param} here")
    with ApiEngine(world, request.param) as e:
        yield e


def outside(engine, address):
    """Packets that left the engine's host for @address."""
    return [p for p in engine.host.packets() if p.dst == address]


def test_it_reaches_what_is_listed_and_nothing_else(engine, site, denied):
    good, lookup, bad, direct = engine.probe(["connect", site.name, 7007], ["dns", denied.name, {"server": "8.8.8.8"}],
                                             ["tcp", STRANGER, 443], ["tcp", denied.v4, 443], options=("--allow", f"{site.name}:7007"))
    assert good.result == "ok" and lookup.result == "NXDOMAIN"
    expect.tcp_refused(bad)
    expect.tcp_refused(direct)
    assert outside(engine, STRANGER) == outside(engine, denied.v4) == outside(engine, "8.8.8.8") == []
    engine.nothing_left()


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 7", 7)])
def test_its_streams_and_status_are_the_commands(engine, script, code):
    done = engine.run("--interactive", "--", "/bin/sh", "-c", f"cat; echo err >&2; {script}", input=b"in\n" * 20000)
    assert (done.code, done.out, done.err) == (code, b"in\n" * 20000, b"err\n"), done
    engine.nothing_left()


def test_a_program_is_told_and_changes_the_policy_while_it_runs(engine, site, denied):
    with engine.running("--id", f"told-{engine.world.number()}", "--allow", site.name, "--", "/bin/sleep", "600") as (process, info):
        assert info["engine"] == engine.kind and info["guard"] == "sidecar" and info["id"] in engine.engine("ps", "--format", "{{.Names}}")
        address = ("127.0.0.1", int(info["api"].rpartition(":")[2]))

        def call(method, body=None, token=info["token"]):
            return request(engine.host.ns, address, method, info["path"] + "/policy", body and json.dumps(body),
                           {"OPENSANDBOX-EGRESS-AUTH": token})
        assert call("GET").json()["policy"]["egress"][0]["target"] == site.name
        assert call("PATCH", [{"action": "allow", "target": denied.name}], token="wrong").status == 401
        assert engine.exec_probe(info["id"], ["dns", denied.name]).result == "NXDOMAIN"
        assert call("PATCH", [{"action": "allow", "target": denied.name}]).status == 200
        assert engine.exec_probe(info["id"], ["dns", denied.name]).addresses == [denied.v4]
        assert process.poll() is None
        # no token in sight of the app
        seen = engine.engine("exec", info["id"], "/bin/sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline; mount")
        assert "PATH=" in seen and info["token"] not in seen


REFUSED = {"--network host": "host's network", "--privileged": "take the filter away", "--cap-add NET_ADMIN": "take the filter away",
           "--cap-add cap_net_admin": "take the filter away", "--cap-add NET_ADM\u0131N": "take the filter away",
           "--cap-add ALL": "take the filter away", "--cap-add NET_RAW": "send past it",
           "--cap-add DAC_READ_SEARCH": "take the filter away", "--cap-add CAP_SYS_BOOT --cap-add perfmon": "perfmon",
           "--network container:x": "another container", "--network none": "nothing to guard", "--network slirp4netns:allow_host_loopback=true": "not a network's name",
           "--volume /tmp:/x:rshared": "FROM:TO", "--id -x": "--id '-x'",
           "--allow a..b": "a..b", "--set-env X": "NAME=VALUE", "--pids-limit 0": "0", "--info-fd 99": "not an open descriptor"}


in_docker = pytest.mark.parametrize("engine", ["docker"], indirect=True)


@in_docker
@pytest.mark.parametrize("words", REFUSED)
def test_what_leads_past_the_filter_starts_nothing(engine, words):
    done = engine.run(*words.split(), "--", "/bin/true")
    assert done.code == 2 and REFUSED[words] in done.messages, done
    assert not engine.containers()


@in_docker
def test_all_faults_are_told_at_once(engine):
    done = engine.run("--privileged", "--cap-add", "BPF", "--network", "host", "--allow", "a..b", "--", "/bin/true")
    assert done.code == 2 and all(w in done.messages for w in ("--privileged", "BPF", "--network", "a..b")), done


def test_the_engines_socket_is_no_volume(engine):
    for folder in (engine.socket, engine.socket.parent):
        done = engine.run("--volume", f"{folder}:/x", "--", "/bin/true")
        assert done.code == 2 and "--volume" in done.messages and "socket" in done.messages, done


@in_docker
def test_no_volume_shows_a_socket_that_takes_the_filter_away(engine, tmp_path):
    """Of any engine and of the daemon, also one that isn't there yet, whatever the name that leads there."""
    (tmp_path / "good").mkdir()
    (tmp_path / "good/file").write_text("shown")
    (tmp_path / "user/podman").mkdir(parents=True)
    (tmp_path / "link").symlink_to("/run")
    (tmp_path / "later").symlink_to(tmp_path / "user/docker.sock")
    (tmp_path / "loop").symlink_to("loop")
    refused = [f"{tmp_path}/weir/weir.sock", f"{tmp_path}/weir", f"{tmp_path}/user", f"{tmp_path}/user/podman", f"{tmp_path}/user/docker.sock",
               f"{tmp_path}/later", "/run", "/var/run", f"{tmp_path}/link", f"{tmp_path}/link/", "/", f"{tmp_path}/good/../user",
               f"{tmp_path}/none/../user", f"{tmp_path}/loop", f"{tmp_path}/good/file/x",
               f"{tmp_path}/user/k0s", f"{tmp_path}/user/containerd/s", f"{tmp_path}/user/libvirt/virtqemud-sock"]
    env = {"WEIR_SOCKET": f"{tmp_path}/weir/weir.sock", "XDG_RUNTIME_DIR": f"{tmp_path}/user"}
    for names in (refused, ["run/podman", "../run", "./run", ".", ".."]):
        words = [w for name in names for w in ("--volume", f"{name}:/x")]
        done = engine.run(*words, "--", "/bin/true", env=env)
        assert done.code == 2 and not engine.containers(), done
        assert [name for name in names if f"--volume '{name}:/x'" not in done.messages] == []
    done = engine.run("--volume", f"{tmp_path}/good:/x", "--volume", f"{tmp_path}/new:/y", "--volume", "named:/z", "--", "/bin/cat", "/x/file", env=env)
    assert (done.code, done.out) == (0, b"shown"), done


def test_what_is_not_there_is_said(engine):
    done = engine.run("--", "/bin/true", image="missing:test")
    assert done.code == 125 and "missing:test" in done.messages and "pull" in done.messages, done
    done = engine.run("--weir-image", "absent:test", "--", "/bin/true")
    assert done.code == 125 and "absent:test" in done.messages and "--weir-image" in done.messages, done
    done = engine.run("--", "/nowhere")
    assert done.code == 127, done
    done = engine.run("--", "/etc/passwd")
    assert done.code == 126, done
    engine.nothing_left()


@in_docker
def test_a_signal_before_the_app_starts_ends_all(engine):
    """While the sidecar isn't healthy: here it never is, for the program in its image only waits."""
    engine.waiting_image()
    process = engine.start("--weir-image", "waiting:test", "--", "/bin/true")
    wait_for(lambda: engine.engine("ps", "-q"))
    for number in (signal.SIGWINCH, signal.SIGCONT):
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, process.stderr.read()
    engine.nothing_left()


def test_without_an_engine_it_is_said(world):
    done = world.command(str(world.weir_path), "container", "run", "--image", "x", "--engine", "podman", "--guard", "sidecar",
                         env={"PATH": "/usr/bin", "CONTAINER_HOST": "unix:///nowhere/podman.sock"})
    assert done.code == 125 and "/nowhere/podman.sock" in done.messages, done
    done = world.command(str(world.weir_path), "container", "run", "--image", "x", env={"DOCKER_HOST": "tcp://1.2.3.4:2375"})
    assert done.code == 2 and "unix" in done.messages, done


# Python's bind() takes no path that fills the whole address.
LISTENER = """
import ctypes, socket, sys
s, address = socket.socket(socket.AF_UNIX), socket.AF_UNIX.to_bytes(2, sys.byteorder) + sys.argv[1].encode()
assert ctypes.CDLL(None).bind(s.fileno(), address, len(address)) == 0
s.listen()
print("up", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def listening(engine, path, become=()):
    """A program of the engine's host that listens at @path."""
    program = subprocess.Popen(engine.host.ns.command(*become, sys.executable, "-c", LISTENER, str(path)), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    try:
        assert program.stdout.readline() == b"up\n"
        yield
    finally:
        program.communicate(b"")


@in_docker
def test_no_volume_shows_a_socket_of_a_program_that_weir_does_not_know(engine, world):
    """Whoever listens may be an engine, or a terminal: the file counts, and whose it is, not its name."""
    other = world.user("weir-test")
    shown, foreign = world.workdir(), world.workdir("weir-test")
    (shown / "deep").mkdir()
    with listening(engine, shown / "deep/any"), listening(engine, foreign / "database", other.become()):
        for volume in (shown, shown / "deep", shown / "deep/any", foreign / "database"):
            done = engine.run("--volume", f"{volume}:/x", "--", "/bin/true")
            assert done.code == 2 and f"--volume '{volume}:/x'" in done.messages and "socket" in done.messages, done
        # another user's program has no right over the filter, unless it is who called sudo
        assert engine.run("--volume", f"{foreign}:/x", "--", "/bin/true").code == 0
        done = engine.run("--volume", f"{foreign}:/x", "--", "/bin/true", env={"SUDO_UID": str(other.uid)})
        assert done.code == 2 and f"--volume '{foreign}:/x'" in done.messages and "socket" in done.messages, done
    # the file is left, and nobody listens
    assert engine.run("--volume", f"{shown}:/x", "--", "/bin/true").code == 0


@in_docker
def test_a_socket_is_found_whose_path_fills_its_address(engine, world):
    shown = world.workdir()
    longest = f"{shown}/".ljust(108, "x")  # sun_path, without a NUL
    with listening(engine, longest):
        done = engine.run("--volume", f"{shown}:/x", "--", "/bin/true")
        assert done.code == 2 and f"--volume '{shown}:/x'" in done.messages and "socket" in done.messages, done


def test_the_host_by_another_name_is_no_volume(engine, tmp_path):
    """The engine's socket by a link, a mount of its directory or a second name; the kernel's files, with which root of the container
    is the host's."""
    link = tmp_path / "link"
    link.symlink_to(engine.socket.parent)
    second = engine.folder / "second"
    os.link(engine.socket, second)
    for volume in (f"{link}:/x", f"{second}:/x", f"{engine.folder}/../..:/x", "/proc:/x", "/proc/1/root:/x", "/sys/fs:/x:ro", "/dev:/x", "/run:/x"):
        done = engine.run("--volume", volume, "--", "/bin/true")
        assert done.code == 2 and "--volume" in done.messages and "is refused" in done.messages, (volume, done)
    second.unlink()
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    script = 'mkdir "$0/below" && mount --bind "$1" "$0/below" && shift && exec "$@"'
    done = subprocess.run(["unshare", "--mount", "/bin/sh", "-c", script, mounted, engine.socket.parent,
                           *engine.argv("--volume", f"{mounted}:/x", "--", "/bin/true")], env=engine.variables, capture_output=True, check=False)
    assert done.returncode == 2 and b"is refused" in done.stderr, done
    assert engine.run("--volume", f"{tmp_path}:/x:ro", "--", "/usr/bin/test", "-d", "/x/mounted/below").code == 0
    engine.nothing_left()


@in_docker
def test_the_host_by_a_volume_or_a_networks_number_is_refused(engine):
    docker = engine.engine
    docker("volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", f"device={engine.socket.parent}", "bound")
    host = docker("network", "ls", "--no-trunc", "--quiet", "--filter", "name=host")
    for words in (("--volume", "bound:/x"), ("--network", host)):
        done = engine.run(*words, "--", "/bin/true")
        assert done.code == 2 and words[0] in done.messages and "is refused" in done.messages, done
    engine.nothing_left()


@pytest.mark.parametrize("words, limit", [((), 4096), (("--pids-limit", "77"), 77)])
def test_its_processes_have_a_limit(engine, words, limit):
    """So has the guard, which needs few."""
    with engine.running(*words, "--", "/bin/sleep", "600") as (_, info):
        limits = [int(engine.engine("inspect", "--format", "{{.HostConfig.PidsLimit}}", info[key])) for key in ("container", "guardContainer")]
        assert limits == [limit, 256]


VOLUMES = {"type=none o=bind device=relative": "can't be judged", "type=none o=nosuid,rbind device={socket}": "the socket",
           "type=overlay o=lowerdir={socket}:/usr device=overlay": "the type overlay", "type=ext4 device=/dev/vda": "the type ext4",
           "type=tmpfs o=bind device=x": "can't be judged", "type=tmpfs device=tmpfs": ""}


@pytest.mark.parametrize("options", VOLUMES)
def test_a_volume_of_the_engines_is_judged_by_all_its_options(engine, options):
    name = f"judged{engine.world.number()}"
    words = options.format(socket=engine.socket.parent).split()
    engine.engine("volume", "create", *[w for word in words for w in ("--opt", word)], name)
    done = engine.run("--volume", f"{name}:/x", "--", "/usr/bin/test", "-d", "/x")
    assert done.code == (2 if VOLUMES[options] else 0) and VOLUMES[options] in done.messages, done
    engine.nothing_left()


@contextlib.contextmanager
def held_before_the_start(engine, *words):
    """A run whose --info-fd takes no line until the block ends, so that it doesn't start its container before."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, b" " * 4096):
            pass
    os.set_blocking(write, True)
    process = engine.start("--info-fd", write, *words, pass_fds=(write,))
    os.close(write)
    try:
        wait_for(lambda: len(engine.containers()) == 2, step=0.05)
        yield process
    finally:
        with os.fdopen(read, "rb") as lines:
            lines.read()


def test_a_volume_that_is_exchanged_after_the_look_shows_no_socket(engine, tmp_path):
    """A link is not followed again; a directory that gave way to one is refused, and nothing has started."""
    for name in ("first", "kept", "below/dir"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "first/mark").write_text("first")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "first")
    script = f"cat /x/mark; ls /x/{engine.socket.name}; exit 0"
    with held_before_the_start(engine, "--volume", f"{link}:/x", "--", "/bin/sh", "-c", script) as process:
        link.unlink()
        link.symlink_to(engine.socket.parent)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"first"), err
    with held_before_the_start(engine, "--volume", f"{tmp_path}/below/dir:/x", "--", "/bin/sh", "-c", "echo ran") as process:
        (tmp_path / "below").rename(tmp_path / "away")
        (tmp_path / "below").mkdir()
        (tmp_path / "below/dir").symlink_to(engine.socket.parent)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"") and b"--volume" in err, (process.returncode, out, err)
    engine.nothing_left()


@in_docker
def test_what_is_no_utf8_is_not_left_out(engine):
    for words in ((b"--", b"/bin/echo", b"a\xff"), (b"--set-env", b"A=\xff", b"--", b"/bin/true")):
        done = subprocess.run([*engine.argv(), *words], env=engine.variables, capture_output=True, check=False)
        assert done.returncode == 2 and b"UTF-8" in done.stderr, done
