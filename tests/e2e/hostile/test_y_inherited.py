# SPDX-License-Identifier: Apache-2.0
"""Y: what the caller hands in: descriptors 0 to 2, and paths."""
import ctypes
import errno
import os
import re
import signal
import socket
import stat
import subprocess
import threading

import pytest

PYTHON = ("/usr/bin/python3", "-ISc")
LIBC = ctypes.CDLL(None, use_errno=True)
CREATE = {"epoll": (291, 0), "eventfd": (290, 0, 0), "pidfd": (434, 1, 0), "userfaultfd": (323, 1),
          "io_uring": (425, 1, (ctypes.c_char * 200)()), "timerfd": (283, 1, 0), "inotify": (294, 0)}


def _open_special(kind):
    if kind == "signalfd":
        mask = (ctypes.c_ulong * 16)(1 << (signal.SIGUSR1 - 1))
        return LIBC.syscall(289, -1, mask, 8, 0)
    return LIBC.syscall(*CREATE[kind])


def _refused(done):
    return done.code == 125 and done.out == b"" and b"descriptor 0" in done.err


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("kind", [*CREATE, "signalfd"])
def test_a_handle_on_the_kernel_is_no_standard_stream(world, user, kind):
    fd = _open_special(kind)
    if fd < 0:
        pytest.skip(f"no {kind} here")
    try:
        done = world.run("echo", "ran", stdin=fd, user=user)
    finally:
        os.close(fd)
    assert _refused(done), done


def _opens(path, flags):
    """Machines differ in the devices that they have."""
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("path, flags", [row for row in (
    ("/usr", os.O_RDONLY), ("/usr", os.O_PATH), ("/etc/passwd", os.O_PATH), ("/dev/null", os.O_PATH),
    ("/proc/1/ns/net", os.O_RDONLY), ("/proc/self/ns/user", os.O_RDONLY),
    ("/dev/mem", os.O_RDONLY), ("/dev/port", os.O_RDONLY), ("/dev/kmsg", os.O_RDONLY),
    ("/dev/ptmx", os.O_RDWR | os.O_NOCTTY), ("/dev/net/tun", os.O_RDWR), ("/dev/vsock", os.O_RDONLY)) if _opens(*row)])
def test_what_leads_out_is_no_standard_stream(world, user, path, flags):
    fd = os.open(path, flags)
    try:
        done = world.run("echo", "ran", stdin=fd, user=user)
    finally:
        os.close(fd)
    assert _refused(done), done


@pytest.mark.parametrize("kind, connected, works", [
    (socket.SOCK_STREAM, True, True), (socket.SOCK_SEQPACKET, True, True), (socket.SOCK_DGRAM, True, False),
    (socket.SOCK_STREAM, False, False), (socket.SOCK_SEQPACKET, False, False)])
def test_only_a_connected_unix_socket_is_a_standard_stream(world, user, kind, connected, works):
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind) if connected else (None, socket.socket(socket.AF_UNIX, kind))
    with theirs:
        done = world.run("echo", "ran", stdin=theirs, user=user)
    if ours:
        ours.close()
    assert done.text == "ran\n" if works else _refused(done), done

RECEIVE = """
import os, socket
s = socket.socket(fileno=0)
s.send(b"ready")
data, fds, *_ = socket.recv_fds(s, 100, 4)
os.write(2, b"%d descriptors, %s" % (len(fds), data))
"""


def _pass_in(ours, passed, said):
    """What a colluding process does: a descriptor if that can be, else plain bytes."""
    if ours.recv(5) != b"ready":
        return
    try:
        socket.send_fds(ours, [b"with"], [passed.fileno()])
        said.append("passed")
    except OSError as e:
        said.append(errno.errorcode[e.errno])
        ours.send(b"plain")


def _with_standard_input(run, kind):
    """Return: what @run gave, and what who passes in was told."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    said = []
    with ours, theirs, socket.socket() as passed:
        thread = threading.Thread(target=_pass_in, args=(ours, passed, said))
        thread.start()
        done = run(*PYTHON, RECEIVE, stdin=theirs)
        theirs.close()
        thread.join()
    return done, said


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_nobody_passes_a_descriptor_in(inside, kind):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.getsockopt(socket.SOL_SOCKET, 83)
        except OSError:
            pytest.skip("this kernel can't keep descriptors out: docs/threat-model.md")
    done, said = _with_standard_input(lambda *argv, stdin: subprocess.run(argv, stdin=stdin, capture_output=True, check=True), kind)
    assert done.stderr == b"1 descriptors, with" and said == ["passed"]
    done, said = _with_standard_input(inside, kind)
    assert done.err == b"0 descriptors, plain" and said == ["EPERM"], done


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_descriptor_that_waits_starts_nothing(inside, kind):
    """Behind other bytes, too, which alone are no reason."""
    for waits in (False, True):
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.send(b"first")
        if not waits:
            assert inside("head", "-c5", stdin=theirs).out == b"first"
            ours.close(), theirs.close()
    with ours, theirs:
        socket.send_fds(ours, [b"with"], [0])
        done = inside("echo", "ran", stdin=theirs)
        assert done.code == 125 and done.out == b"" and b"descriptor 0" in done.err, done


LET_IN = """
import socket
s = socket.socket(fileno=0)
try:
    s.setsockopt(socket.SOL_SOCKET, 83, 1)
    print("ok")
except OSError as e:
    print(e.errno)
"""


def test_the_command_lets_no_descriptor_in(inside):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert inside(*PYTHON, LET_IN, stdin=theirs).text == f"{errno.ENOPROTOOPT}\n"


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"])
def test_a_harmless_device_is_a_standard_stream(world, user, path):
    with open(path, "rb") as stdin:
        assert world.run("echo", "ran", stdin=stdin, user=user).text == "ran\n"


@pytest.fixture
def file(world, user):
    """One of the caller's own files, outside of the working directory."""
    path = world.workdir(user) / "file"
    path.write_text("one\ntwo\n")
    os.chown(path, world.user(user).uid, world.user(user).gid)
    return path


SPOIL = """
chmod 4777 /proc/self/fd/0; touch -d @1 /proc/self/fd/0
for f in /proc/self/fd/0 /proc/$$/fd/0 /dev/stdin; do echo spoilt >> $f; true > $f; done
python3 -c 'import os; os.fchmod(0, 0o4777)'
python3 -c 'import os; os.setxattr(0, "user.x", b"spoilt")'
""" + "python3 -c 'import os; os.truncate(0, 0)'; cat"


def test_a_file_that_is_read_cannot_be_changed_in_any_way(world, user, file):
    before = file.stat()
    with open(file, encoding="ascii") as stdin:
        done = world.run("sh", "-c", SPOIL, stdin=stdin, user=user)
    after = file.stat()
    assert done.text == "one\ntwo\n" and file.read_text() == "one\ntwo\n", done
    assert (before.st_mode, before.st_mtime) == (after.st_mode, after.st_mtime)
    assert os.listxattr(file) == []


def test_a_file_that_is_read_goes_on_where_the_caller_was(world, user, file):
    with open(file, "rb", buffering=0) as stdin:
        stdin.seek(4)
        assert world.run("cat", stdin=stdin, user=user).text == "two\n"


def test_a_file_without_a_name_may_be_read(world, user, file):
    with open(file, "rb", buffering=0) as stdin:
        file.unlink()
        assert world.run("cat", stdin=stdin, user=user).text == "one\ntwo\n"


def test_a_file_that_nobody_else_can_open_again_may_be_read(world, user):
    """The command can't change it either."""
    path = world.workdir() / "file"
    path.write_text("one\n", encoding="ascii")
    path.parent.chmod(0o700), path.chmod(0o600)
    with open(path, "rb", buffering=0) as stdin:
        assert world.run("cat", stdin=stdin, user=user).text == "one\n"


def test_a_file_that_cannot_be_kept_from_changes_is_refused(world, file):
    """Its path leads to something else by now."""
    other = file.parent / "other"
    other.write_text("another\n")
    done = world.command("sh", "-c", 'exec < "$1"; mount --bind "$2" "$1"; shift 2; exec "$@"', "sh", file, other,
                         world.weir_path, "run", "--", "echo", "ran",
                         mounts=(f"chmod 666 {file}",))
    assert _refused(done), done


@pytest.fixture
def apart(world):
    """Folders to mount in: an ordinary user's view needs one mount per neighbour of those."""
    def make(user):
        path = world.folder / "apart" / str(world.number())
        path.mkdir(parents=True)
        os.chown(path, world.user(user).uid, world.user(user).gid)
        return path
    return make


def test_a_socket_of_the_host_that_is_mounted_by_itself_is_masked(world, user, apart):
    real, other = apart(user), apart(user)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(real / "s"))
        s.listen()
        (real / "s").chmod(0o777)
        done = world.run("python3", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('s')", cwd=other,
                         user=user, mounts=(f"touch {other / 's'}", f"mount --bind {real / 's'} {other / 's'}"))
    assert b"ConnectionRefusedError" in done.err, done


@pytest.fixture
def home(world, user):
    """A home directory with a project."""
    path = world.workdir(user)
    for folder in ("project", ".ssh", ".config/systemd/user", ".local/share", ".cargo/bin", ".docker", "go/bin", "go/src"):
        (path / folder).mkdir(parents=True)
        os.chown(path / folder, world.user(user).uid, world.user(user).gid)
    return path


def _write(world, user, home, cwd, *options):
    return world.run("touch", "new", user=user, cwd=cwd, env={"HOME": str(home)}, options=options)


@pytest.mark.parametrize("below", [".", "..", ".ssh", ".config", ".config/systemd/user", ".local", ".local/share",
                                   ".cargo/bin", ".docker", "go", "go/bin"])
def test_what_a_home_starts_by_itself_is_not_writable_unasked(world, user, home, below):
    cwd = (home / below).resolve()
    done = _write(world, user, home, cwd, "--hide-preset", "none")
    assert done.code == 1 and not (cwd / "new").exists(), done
    assert b"stays read-only in the sandbox; name what is to be written with --rw" in done.err, done


@pytest.mark.parametrize("below", ["project", "go/src"])
def test_a_directory_below_the_home_is_writable(world, user, home, below):
    done = _write(world, user, home, home / below)
    assert done.code == 0 and done.err == b"" and (home / below / "new").exists(), done


def test_a_home_that_is_named_is_writable(world, user, home):
    done = _write(world, user, home, home, "--rw", home)
    assert done.code == 0 and done.err == b"" and (home / "new").exists(), done


def test_the_home_of_the_directorys_owner_counts_for_root(world):
    who = world.user("weir-test")
    made = not os.path.isdir(who.home)
    if made:
        os.mkdir(who.home, 0o755)
        os.chown(who.home, who.uid, who.gid)
    try:
        done = world.run("touch", "new", cwd=who.home)
        assert done.code == 1 and b"stays read-only" in done.err, done
    finally:
        if made:
            os.rmdir(who.home)


@pytest.mark.parametrize("below, writable", [("tools/bin", False), ("tools/bin/sub", False), ("tools", False),
                                             ("tools/lib", True)])
def test_what_is_holds_or_lies_in_a_directory_of_programs_is_not_writable_unasked(world, user, below, writable):
    top = world.workdir(user)
    for folder in ("tools/bin/sub", "tools/lib"):
        (top / folder).mkdir(parents=True)
    world.command("chown", "-R", f"{user}:", top)
    done = world.run("touch", "new", cwd=top / below, user=user, env={"PATH": f"/usr/bin:/bin:{top}/tools/bin"})
    assert (done.code == 0) == writable == (top / below / "new").exists(), done
    assert writable or b"stays read-only" in done.err, done


@pytest.mark.parametrize("path", ["/etc/cron.d", "/usr/lib", "/usr", "/var", "/boot", "/usr/bin", "/usr/share", "/var/lib",
                                  "/var/lib/dpkg"])
def test_what_the_system_starts_by_itself_is_not_writable_unasked(world, path):
    if not os.path.isdir(path):
        pytest.skip("there is none here")
    done = world.run("touch", "weir-test-new", cwd=path)
    assert done.code == 1 and b"stays read-only" in done.err and not os.path.exists(path + "/weir-test-new"), done


@pytest.mark.parametrize("path", ["/tmp", "/var/tmp", "/dev/shm"])
def test_what_all_users_share_is_not_writable_unasked(world, user, path):
    """The sandbox has its own."""
    done = world.run("touch", f"weir-test-{os.getpid()}", cwd=path, user=user)
    assert b"stays read-only" in done.err and not os.path.exists(f"{path}/weir-test-{os.getpid()}"), done


@pytest.mark.parametrize("kind", ["proc", "sysfs", "cgroup2", "mqueue"])
def test_the_kernels_file_systems_below_a_writable_directory_are_empty(world, apart, kind):
    """A chroot's /proc shows the host's processes, and /proc/PID/root all that they see."""
    folder = apart("weir-test")
    done = world.run("sh", "-c", "ls -A in; echo ran; touch in/x", cwd=folder, user="weir-test",
                     mounts=(f"mkdir {folder}/in", f"mount -t {kind} none {folder}/in"))
    assert done.text == "ran\n" and b"Read-only" in done.err, done


@pytest.mark.parametrize("option", [False, True], ids=["working directory", "--rw"])
def test_the_kernels_file_systems_are_not_writable_wherever_they_are(world, apart, user, option):
    folder = apart(user)
    proc = folder / "proc"
    inside = ("sh", "-c", f"cd '{proc}'; exec \"$@\"", "sh")
    options = ("--rw", proc) if option else ()
    argv = world.run_args(["sh", "-c", "ls -A . | head -1; echo ran"], (), (), options, "5.100.53.53")
    done = world.command(*inside, world.weir_path, *argv, user=user,
                         mounts=(f"mkdir {proc}", f"mount -t proc none {proc}"))
    assert done.code == 2 or done.text == "ran\n", done


def test_a_path_cannot_speak_to_the_terminal(world, user):
    done = world.run("true", options=("--rw", "/x\x1b]0;y\x07\x7f\u009b2J\n\u00fc"), user=user)
    assert done.code == 2 and "\u00fc".encode() in done.err, done
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", done.err) and done.err.count(b"\n") == 1, done


@pytest.mark.parametrize("kind", ["a socket", "a pipe", "a device"])
def test_what_is_no_file_cannot_be_shared(world, user, kind):
    path = world.workdir(user) / "it"
    if kind == "a socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    done = world.run("echo", "ran", options=("--rw", path), user=user)
    assert done.code == 2 and done.out == b"" and b"neither a directory nor a file" in done.err, done
