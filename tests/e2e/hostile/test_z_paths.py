# SPDX-License-Identifier: Apache-2.0
"""Z: paths that the caller names, while somebody else may write on the way to them.

G10: the path is exchanged between the look and the mount. G11: an earlier run left a link. G12: a socket of the host is
moved between the look and the mask.
"""
import os
import pathlib
import subprocess

import pytest

PYTHON = "/usr/bin/python3"

# Exchanges two names as fast as it can, until a file "stop" is there; then says how often.
EXCHANGE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
one, other, stop = (os.fsencode(a) for a in sys.argv[1:])
print('runs', flush=True)
count = 0
while count % 256 or not os.path.exists(stop):
    count += libc.renameat2(-100, one, -100, other, 2) == 0 or sys.exit(os.strerror(ctypes.get_errno()))
print(count, flush=True)
"""


class Exchange:
    """Another process, a sandbox that shares the directory for example, which exchanges two names."""

    def __init__(self, world, user, one, other):
        self._stop = world.workdir() / "stop"
        self._started = world.start([PYTHON, "-c", EXCHANGE, one, other, self._stop], user=user, stderr=None)
        self.count = 0

    def __enter__(self):
        assert self._started.line() == "runs"
        return self

    def __exit__(self, *exc):
        self._stop.touch()
        self.count = int(self._started.line() or 0)
        self._started.kill()


@pytest.fixture
def own(world):
    def give(path, user):
        os.chown(path, world.user(user).uid, world.user(user).gid, follow_symlinks=False)
        return path
    return give


@pytest.fixture
def checkout(world, own, user):
    """A directory of an ordinary user's, who races against @user; and one of @user's that is not to be written."""
    class Checkout:
        folder = world.workdir("weir-test")
        victim = world.workdir(user)

        def folder_in(self, name):
            path = self.folder
            for part in name.split("/"):
                path = path / part
                path.mkdir(exist_ok=True)
                own(path, "weir-test").chmod(0o777)
            return path

        def link(self, name, target):
            (self.folder / name).symlink_to(target)
            return own(self.folder / name, "weir-test")
    made = Checkout()
    made.victim.chmod(0o777)
    return made


ROUNDS = 15


def test_G10_a_path_that_is_exchanged_for_a_link_makes_nothing_else_writable(world, user, checkout):
    build, link = checkout.folder_in("build"), checkout.link("link", checkout.victim)
    with Exchange(world, "weir-test", build, link) as race:
        ended = [world.run("touch", checkout.victim / "mark", "build/mark", cwd=checkout.folder, options=("--rw", "build"),
                           user=user) for _ in range(ROUNDS)]
    assert race.count > 1000
    assert os.listdir(checkout.victim) == [], [str(done) for done in ended]
    assert all(done.code in (0, 1, 2, 125) for done in ended)
    if not build.is_symlink():
        assert world.run("touch", "build/after", cwd=checkout.folder, options=("--rw", "build"), user=user).code == 0


def test_G10_a_working_directory_whose_parent_is_exchanged_makes_nothing_else_writable(world, user, checkout, own):
    below = checkout.folder_in("a/b")
    link = checkout.link("link", checkout.victim)
    (checkout.victim / "b").mkdir()
    own(checkout.victim / "b", user)
    cwd = os.open(below, os.O_PATH)
    try:
        with Exchange(world, "weir-test", checkout.folder / "a", link) as race:
            ended = [world.run("touch", checkout.victim / "b/mark", "mark", cwd=f"/proc/{os.getpid()}/fd/{cwd}", user=user)
                     for _ in range(ROUNDS)]
    finally:
        os.close(cwd)
    assert race.count > 1000
    assert os.listdir(checkout.victim / "b") == [], [str(done) for done in ended]
    assert all(done.code in (0, 1, 2, 125) for done in ended)


HIDDEN = "needle"


def test_G10_a_directory_that_nobody_named_and_that_is_exchanged_for_a_link_shows_nothing_hidden(world, user, checkout):
    """What has mounts below it is shown mount by mount to root, and entry by entry to others."""
    (checkout.victim / "in").mkdir()
    for name in ("secret", "in/secret"):
        (checkout.victim / name).write_text(HIDDEN, encoding="ascii")
    place, link = checkout.folder_in("dir/in"), checkout.link("link", checkout.victim)
    (checkout.folder / "mounted").mkdir()
    mounts = (f"mount -t tmpfs none {checkout.folder}/mounted",
              f"(until cd -P {checkout.folder}/dir/in && [ $(stat -c %i .) = {place.stat().st_ino} ]; do :; done; mount -c -t tmpfs none .)")
    script = f"cat {checkout.folder}/*/secret {checkout.folder}/*/in/secret"
    assert HIDDEN in world.run("sh", "-c", script, user=user).text, "positive control"
    with Exchange(world, "weir-test", checkout.folder / "dir", link) as race:
        ended = [world.run("sh", "-c", script, options=("--hide", checkout.victim), user=user, mounts=mounts) for _ in range(ROUNDS)]
    assert race.count > 1000
    assert [str(done) for done in ended if HIDDEN in done.text] == []
    assert all(done.code in (0, 1) for done in ended), [str(done) for done in ended]


def test_G11_a_link_that_an_earlier_run_left_is_not_followed(world, user, own):
    folder, victim = world.workdir(user), world.workdir(user)
    assert world.run("ln", "-s", victim, "cache", cwd=folder, user=user).code == 0
    options = ("--rw", "cache")
    done = world.run("touch", "cache/mark", cwd=folder, options=options, user=user)
    assert done.code == 2 and b"cache' is a link" in done.err and os.listdir(victim) == [], done
    done = world.run("touch", "cache/mark", cwd=folder, options=(*options, "--rw", victim), user=user)
    assert done.code == 0 and os.listdir(victim) == ["mark"], done


def test_G11_links_of_the_systems_own_are_followed(world, user):
    folder = world.workdir(user)
    link = pathlib.Path("/var") / f"weir-test-{os.getpid()}"
    link.symlink_to(folder)
    try:
        done = world.run("touch", f"{link}/mark", cwd=world.workdir(user), options=("--rw", link), user=user)
    finally:
        link.unlink()
    assert done.code == 0 and (folder / "mark").exists(), done


def test_G11_a_working_directory_behind_a_link_is_read_only(world, user):
    folder, real = world.workdir(user), world.workdir(user)
    assert world.run("ln", "-s", real, "link", cwd=folder, user=user).code == 0
    script = f"cd '{folder}/link' && exec \"$@\""

    def run(*options):
        argv = world.run_args(["touch", "mark"], (), (), options, "5.100.53.53")
        return world.command("sh", "-c", script, "sh", world.weir_path, *argv, user=user, env={"PWD": str(folder)})
    done = run()
    assert done.code == 1 and b"which a link leads to, stays read-only" in done.err and os.listdir(real) == [], done
    done = run("--rw", real)
    assert done.code == 0 and os.listdir(real) == ["mark"], done


def test_G11_a_report_is_not_written_through_a_link(world, user):
    folder, victim = world.workdir(user), world.workdir(user)
    assert world.run("ln", "-s", victim, "out", cwd=folder, user=user).code == 0
    done = world.run("true", cwd=folder, options=("--report", "out/report.json"), user=user)
    assert done.code == 2 and b"out' is a link" in done.err and os.listdir(victim) == [], done
    done = world.run("true", cwd=folder, options=("--report", victim / "report.json"), user=user)
    assert done.code == 0 and os.listdir(victim) == ["report.json"], done


def test_G11_a_preset_makes_and_opens_nothing_behind_a_link(world, user):
    home, victim = world.workdir(user), world.workdir(user)
    assert world.run("ln", "-s", victim, ".cache", cwd=home, user=user, env={"HOME": "/nonexistent"}).code == 0
    done = world.run("touch", f"{home}/.cache/pip/mark", options=("--rw-preset", "pip"), env={"HOME": str(home)}, user=user)
    assert done.code == 2 and b".cache" in done.err and os.listdir(victim) == [], done


SERVICE = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
s.listen(64)
print('up', flush=True)
while True:
    c = s.accept()[0]
    c.send(b'host service')
    c.close()
"""

CONNECT = """
import socket, sys
for _ in range(20):
    for path in sys.argv[1:]:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(path)
            print(s.recv(100))
        except OSError:
            pass
"""


def test_G12_a_socket_whose_directory_is_moved_during_the_start_is_masked(world, user, checkout):
    one, other = checkout.folder_in("one"), checkout.folder_in("deep/er/other")
    for n in range(200):    # so that a search takes its time
        (checkout.folder / f"n{n}").mkdir()
    paths = (one / "s", other / "s")
    with world.start([PYTHON, "-c", SERVICE, one / "s"], user="weir-test") as service:
        assert service.line() == "up"
        control = world.command(PYTHON, "-c", CONNECT, *paths)
        assert b"host service" in control.out, control
        with Exchange(world, "weir-test", one, other) as race:
            ended = [world.run(PYTHON, "-c", CONNECT, *paths, cwd=checkout.folder, user=user) for _ in range(6)]
        assert race.count > 1000
        assert [str(done) for done in ended if b"host service" in done.out] == []
        assert all(done.code in (0, 2, 125) for done in ended)
        done = world.run(PYTHON, "-c", CONNECT, *paths, cwd=checkout.folder, user=user)
        assert done.code == 0 and done.out == b"", done


def test_G12_a_socket_that_takes_a_files_place_beside_a_mount_is_not_shown(world, user, checkout):
    """What has mounts below it is shown entry by entry to an ordinary user: a file by itself, a socket not at all."""
    paths = (checkout.folder / "s", checkout.folder / "file")
    paths[1].touch()
    (checkout.folder / "mounted").mkdir()
    with world.start([PYTHON, "-c", SERVICE, paths[0]], user="weir-test") as service:
        assert service.line() == "up"
        control = world.command(PYTHON, "-c", CONNECT, *paths)
        assert b"host service" in control.out, control
        with Exchange(world, "weir-test", *paths) as race:
            ended = [world.run(PYTHON, "-c", CONNECT, *paths, user=user, mounts=(f"mount -t tmpfs none {checkout.folder}/mounted",))
                     for _ in range(ROUNDS)]
        assert race.count > 1000
        assert [str(done) for done in ended if b"host service" in done.out] == []
        assert all(done.code == 0 for done in ended), [str(done) for done in ended]


def test_G12_a_search_that_cannot_go_deep_enough_starts_nothing(world, user, checkout):
    """A command before may have moved the socket's directory to where too few descriptors lead."""
    one, deep = checkout.folder_in("one"), checkout.folder_in("/".join("a" * 100))
    with world.start([PYTHON, "-c", SERVICE, one / "s"], user="weir-test") as service:
        assert service.line() == "up"
        os.rename(one, deep / "one")
        connect = [PYTHON, "-c", CONNECT.replace("import socket, sys", f"import os, socket, sys; os.chdir({str(deep / 'one')!r})"), "s"]
        assert b"host service" in world.command(*connect).out, "positive control"
        for limit in (1024, 110, 70):
            done = world.command("sh", "-c", f"ulimit -n {limit}; exec \"$@\"", "sh", world.weir_path, "run", "--", *connect,
                                 cwd=checkout.folder, user=user)
            assert b"host service" not in done.out and done.code == (0 if limit == 1024 else 125), done


@pytest.mark.parametrize("kind", ["hugetlbfs"])
def test_G12_a_file_system_that_takes_sockets_shows_none(world, user, kind):
    """As an ordinary user's view has it, one that can't be a layer of an overlay."""
    folder = world.folder / "huge" / str(world.number())
    (folder / "in").mkdir(parents=True)
    if subprocess.run(["unshare", "-m", "mount", "-t", kind, "none", folder / "in"], check=False).returncode:
        pytest.skip(f"no {kind} here")
    script = f"""
import os, socket, subprocess, sys
s = socket.socket(socket.AF_UNIX)
s.bind('{folder}/in/s')
os.chmod('{folder}/in/s', 0o777)
s.listen(64)
c = socket.socket(socket.AF_UNIX)
c.connect('{folder}/in/s')
print('outside it connects', flush=True)
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
    inside = "import socket; socket.socket(socket.AF_UNIX).connect('%s/in/s'); print('and inside')" % folder
    argv = world.run_args([PYTHON, "-c", inside], (), (), (), "5.100.53.53")
    done = world.command(PYTHON, "-c", script, *world.user(user).become(), world.weir_path, *argv,
                         mounts=(f"mount -t {kind} -o mode=0777 none {folder}/in",))
    assert done.text == "outside it connects\n", done


KEPT = {"--policy": "policy.yaml", "--report": "report.json", "--state-dir": "events"}


@pytest.mark.parametrize("option", KEPT)
def test_G15_what_is_kept_is_kept_in_every_mount(world, user, option):
    """A bind mount, or another mount of the file system, shows it under a second name."""
    folder, name = world.workdir(user), KEPT[option]
    for directory in ("one", "two"):
        (folder / directory).mkdir()
        os.chown(folder / directory, *[world.user(user).uid] * 2)
    (folder / "one/policy.yaml").write_text("egress: []\n", encoding="ascii")
    os.chown(folder / "one/policy.yaml", *[world.user(user).uid] * 2)
    seen = []
    for named in ("one", "two"):
        script = f'cd {folder}/two; exec "$@"'
        argv = ("run", "--no-config", option, f"{folder}/{named}/{name}", "--", "sh", "-c",
                f"touch free; touch {name}/x; printf 'l%s' ie >> {name}; true")
        done = world.command("sh", "-c", script, "sh", *world.user(user).become(), world.weir_path, *argv,
                             mounts=(f"mount --bind {folder}/one {folder}/two",))
        seen.append((done.code == 2, f"mounted at '{folder}/two/{name}' as well" in done.messages, (folder / "one/free").exists()))
        path = folder / "one" / name
        assert not (path / "x").exists() and (not path.is_file() or b"lie" not in path.read_bytes()), done
    assert seen == [(True, True, False), (False, False, True)]


def test_G15_a_working_directory_is_judged_under_each_of_its_names(world, user):
    folder = world.workdir(user)
    for directory, mounted in (("home", "two"), ("bin", "two"), ("home/deep", "two")):
        done = world.command(
            "sh", "-c", f'mkdir -p {folder}/{directory} {folder}/two; chown -R {world.user(user).uid} {folder}; '
            f'mount --bind {folder}/{directory} {folder}/two; cd {folder}/two; exec "$@"', "sh",
            *world.user(user).become(), "env", f"HOME={folder}/home", f"PATH={folder}/bin:/usr/bin:/bin", world.weir_path,
            "run", "--no-config", "--", "touch", "new", mounts=("true",))
        made = (folder / directory / "new").exists()
        assert made == (directory == "home/deep") and (b"stays read-only" in done.err) != made, done


BELOW = {"a system's place": "/usr/share/doc", "what lies in one": "/usr/share/doc/in", "a home": "home", "another project": "other"}
OVER_DOC = ("mount -t tmpfs none /usr/share/doc", "mkdir /usr/share/doc/in", "chmod 777 /usr/share/doc /usr/share/doc/in")


@pytest.mark.parametrize("what", BELOW)
def test_G15_what_is_mounted_below_a_working_directory_is_judged_by_its_own_names(world, user, what):
    """A mount of what may not be written unasked is read-only there; a harmless one goes on being writable."""
    folder = world.workdir(user)
    made = world.command("mkdir", "-p", *[folder / name for name in ("home", "other", "p/a/in", "p/a/volume")], user=user)
    assert made.code == 0, made
    mounts = (*(OVER_DOC if BELOW[what].startswith("/") else ()), f"mount --bind {folder / BELOW[what]} {folder}/p/a/in",
              f"mount -t tmpfs -o mode=777 none {folder}/p/a/volume")
    script = "touch free; touch a/volume/new && echo volume; touch a/in/new && echo in; mv a y && echo moved"

    def run(*options):
        return world.run("sh", "-c", script, cwd=folder / "p", user=user, mounts=mounts, env={"HOME": str(folder / "home")}, options=options)
    done = run()
    assert (folder / "p/free").exists() and "volume" in done.text, done
    if what == "another project":
        assert done.text == "volume\nin\nmoved\n" and done.err == b"", done
        return
    assert done.text == "volume\n" and f"'{folder}/p/a/in' stays read-only in the sandbox" in done.messages, done
    done = run("--rw", folder / "p/a/in")
    assert done.text.startswith("volume\nin\n") and b"stays read-only" not in done.err, done


def test_G15_a_hard_link_in_a_mount_below_a_working_directory_is_one(world, user):
    """It lies on another file system than the working directory itself."""
    folder = world.workdir(user)
    made = world.command("mkdir", "-p", folder / "fs", folder / "p/in", user=user)
    assert made.code == 0, made
    other = folder / "fs"
    mounts = (f"mount -t tmpfs none {other}", f"mkdir {other}/shared", f"echo 'egress: []' > {other}/policy.yaml",
              f"chown -R {world.user(user).uid} {other}", f"mount --bind {other}/shared {folder}/p/in")
    for linked in (False, True):
        more = (f"ln {other}/policy.yaml {other}/shared/twin",) if linked else ()
        done = world.run("touch", "in/free", cwd=folder / "p", user=user, mounts=(*mounts, *more), options=("--policy", other / "policy.yaml"))
        assert done.code == (2 if linked else 0) and ("has other names (hard links)" in done.messages) == linked, done
