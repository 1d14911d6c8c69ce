# SPDX-License-Identifier: Apache-2.0
"""X: what an attacker found who had the sources.

Each test states a rule that was broken once, or that nothing else guards.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import time

import pytest

from world.program import children

PYTHON = "/usr/bin/python3"

# A service of the host: says hello to whoever connects, prints what it is sent.
SERVICE = """
import socket, sys
name = sys.argv[2].replace('@', chr(0))
s = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[1]))
s.bind(name)
if sys.argv[1] == 'SOCK_STREAM':
    s.listen()
print('up', flush=True)
while True:
    if sys.argv[1] == 'SOCK_STREAM':
        c = s.accept()[0]
        c.send(b'host service')
        c.close()
    else:
        print(s.recv(100), flush=True)
"""

CONNECT = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
    print(s.recv(100))
except OSError as e:
    print(e.strerror)
"""


@pytest.fixture
def own(world):
    """Give a path to a user."""
    def give(path, user):
        os.chown(path, world.user(user).uid, world.user(user).gid)
        return path
    return give


def test_a_socket_of_the_host_is_masked_by_whatever_mount_its_folder_is_reached(world, own, user):
    """The kernel knows the path that a socket was bound to; a bind mount gives its folder another one."""
    real, other = world.workdir(user), world.workdir(user)
    with world.start([PYTHON, "-c", SERVICE, "SOCK_STREAM", real / "s"], user=user) as service:
        assert service.line() == "up"
        (real / "s").chmod(0o777)
        done = world.run(PYTHON, "-c", CONNECT, other / "s", user=user, options=("--rw", other),
                         mounts=(f"mount --bind {real} {other}",))
    assert b"host service" not in done.out, done
    assert done.code in (0, 125), done


def test_a_file_as_standard_input_cannot_be_written(world, own, user):
    """/proc/self/fd/0 opens the file anew, with the host's mount, which is no part of the view."""
    folder = own(world.workdir(user), user)
    file = folder / "input"
    file.write_text("as it was\n")
    own(file, user)
    with open(file, encoding="ascii") as stdin:
        world.run("sh", "-c", "for f in /proc/self/fd/0 /dev/stdin /proc/thread-self/fd/0; do echo changed >> $f; done",
                  stdin=stdin, user=user)
    assert file.read_text() == "as it was\n"


def test_a_run_in_the_home_directory_cannot_configure_the_next_one(world):
    """~/.config/weir holds the defaults and profiles of every later run."""
    home = world.workdir("weir-test")
    world.run("sh", "-c", "mkdir -p ~/.config/weir/profiles; echo 'rw: [/]' > ~/.config/weir/config.yaml", cwd=home,
              env={"HOME": str(home)}, user="weir-test")
    assert os.listdir(home) == []


def test_the_configuration_stays_as_it_is_though_the_home_directory_is_writable(world, own):
    """Not even --rw of the home directory lets a command choose the next run's policy."""
    home = world.workdir("weir-test")
    (home / ".config" / "weir").mkdir(parents=True)
    for folder in (home / ".config", home / ".config" / "weir"):
        own(folder, "weir-test")
    done = world.run("sh", "-c", "echo ok > here; mkdir ~/.config/weir/profiles; echo 'rw: [/]' > ~/.config/weir/config.yaml; "
                     "mv ~/.config/weir ~/.config/gone; rmdir ~/.config/weir; ls -A ~/.config/weir ~/.config", cwd=home,
                     env={"HOME": str(home)}, options=("--rw", home), user="weir-test")
    assert (home / "here").exists(), done
    assert os.listdir(home / ".config") == ["weir"] and os.listdir(home / ".config" / "weir") == [], done


@pytest.mark.parametrize("there", ["", ".config"])
def test_no_configuration_is_made_where_none_was(world, own, there):
    """Neither in a new home, nor beside other programs' settings."""
    home = world.workdir("weir-test")
    if there:
        (home / there).mkdir()
        own(home / there, "weir-test")
    done = world.run("sh", "-c", "echo ok > here; mkdir -p ~/.config/weir; echo 'profile: none' > ~/.config/weir/config.yaml; "
                     "mv ~/.config ~/.gone; mkdir -p ~/.config/weir/profiles", cwd=home,
                     env={"HOME": str(home)}, options=("--rw", home), user="weir-test")
    assert (home / "here").exists(), done
    assert sorted(os.listdir(home)) == [".config", "here"] and os.listdir(home / ".config" / "weir") == [], done


def test_nor_is_it_in_the_working_directory_where_it_is_to_lie_there(world):
    """XDG_CONFIG_HOME of a project of its own, as CI has it."""
    work = world.workdir("weir-test")
    done = world.run("sh", "-c", "echo ok > here; mkdir -p settings/weir; echo 'profile: none' > settings/weir/config.yaml", cwd=work,
                     env={"XDG_CONFIG_HOME": str(work / "settings")}, user="weir-test")
    assert (work / "here").exists() and os.listdir(work / "settings" / "weir") == [], done


def test_a_link_on_the_way_to_a_configuration_that_is_missing_is_no_way(world, own):
    """The command could put a directory in the link's place."""
    home, elsewhere = world.workdir("weir-test"), world.workdir("weir-test")
    (home / ".config").symlink_to(elsewhere)
    own(home / ".config", "weir-test")
    done = world.run("touch", "here", cwd=home, env={"HOME": str(home)}, options=("--rw", home), user="weir-test")
    assert done.code == 2 and f"behind the link '{home}/.config'" in done.messages, done
    assert os.listdir(home) == [".config"] and os.listdir(elsewhere) == [], done


def test_files_as_standard_output_and_error_can_be_opened_by_name(world, own):
    """What was given for writing goes on to be written, also in folders that are read-only inside."""
    user = "weir-test"
    folder = own(world.workdir(user), user)
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        for name in ("out", "err"):
            own(folder / name, user)
        done = world.run("sh", "-c", "echo one > /dev/stdout; echo two > /dev/stderr; mkdir a b; mv a b; mv b/a c",
                         stdout=out, stderr=err, user=user)
    assert done.code == 0
    assert (folder / "out").read_text() == "one\n"
    assert (folder / "err").read_text() == "two\n"


def test_no_signal_leaves_by_the_process_group(world, user):
    """kill(0) reaches everybody in the group, whatever PID namespace they are in."""
    script = '"$@"; echo "$? and the script goes on"'
    done = world.command("sh", "-c", script, "sh", world.weir_path, "run", "--", PYTHON, "-c",
                         "import os, signal; signal.signal(10, signal.SIG_IGN); os.kill(0, 10)", user=user)
    assert done.text == "0 and the script goes on\n", done


@pytest.mark.parametrize("kind, script", [
    ("SOCK_DGRAM", "s.sendto(b'from the sandbox', chr(0) + sys.argv[1])"),
    ("SOCK_STREAM", "s.connect(chr(0) + sys.argv[1]); print(s.recv(100))")])
def test_a_unix_socket_as_standard_stream_is_no_way_to_abstract_names(world, user, kind, script):
    """A unix socket keeps the network namespace that it was made in, and with it the abstract names there."""
    name = f"weir-test-{world.number()}"
    with world.start([PYTHON, "-c", SERVICE, kind, "@" + name]) as service, \
            world.host.socket(socket.AF_UNIX, getattr(socket, kind)) as stdin:
        assert service.line() == "up"
        done = world.run(PYTHON, "-c", f"import socket, sys; s = socket.socket(fileno=0); {script}", name,
                         stdin=stdin, user=user)
        os.set_blocking(service.process.stdout.fileno(), False)
        time.sleep(0.1)
        arrived = service.process.stdout.read() or b""
    assert b"host service" not in done.out and arrived == b"", (done, arrived)
    assert done.code == 125


ASK = """
import socket, struct
for name in NAMES:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    s.connect(('127.0.0.1', 53))
    labels = b''.join(bytes([len(n)]) + n for n in name)
    s.send(struct.pack('!6H', 1, 0x100, 1, 0, 0, 0) + labels + b'\\0\\0\\1\\0\\1')
    s.recv(1000)
"""


def test_what_the_report_suggests_is_a_host_name_and_nothing_a_shell_would_run(world, user):
    """The sandbox chooses the names; a person copies the line."""
    names = [[b"$(id)", b"test"], [b"`id`", b"test"], [b";id", b"test"], [b"*", b"evil", b"test"],
             [b"0", b"0", b"0", b"0/0"], [b"evil", b"test:1-65535"], [b"#", b"test"], [b"'\"&|<>", b"test"],
             [b"93", b"9", b"9", b"9"], [b"--policy=x"], [b"\x1b]0;x\x07", b"test"], [b"plain", b"test"]]
    done = world.run(PYTHON, "-c", f"NAMES = {names!r}\n" + ASK, user=user)
    suggested = re.findall(r"--allow (\S.*)", done.err.decode())
    assert suggested == ["plain.test"], done
    assert not re.search(rb"[^\x20-\x7e\n]", done.err), done


@pytest.mark.parametrize("files", [16, 24, 40, 64])
def test_few_descriptors_are_an_error_or_enough_but_no_hang(world, user, files):
    """The engine that can't start has to be noticed by whoever waits for it."""
    done = world.command("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", world.weir_path, "run", "--", "true",
                         user=user)
    assert done.code == 0 or (done.code == 125 and done.err.startswith(b"weir: ")), done


@pytest.mark.parametrize("victim", [0, 1], ids=["engine", "launch child"])
def test_a_child_that_is_killed_while_the_sandbox_starts_ends_the_run(world, user, victim):
    for delay in (0, 0.002, 0.005, 0.01):
        with world.run_start("sleep", "30", user=user) as run:
            end = time.monotonic() + 60
            while len(children(run.process.pid)) <= victim and time.monotonic() < end:
                pass
            time.sleep(delay)
            world.kill(children(run.process.pid)[victim])
            assert run.process.wait(60) == 125, delay


PLACES = ["/proc/1/fd/3", "/proc/1/mem", "/proc/1/root", "/proc/1/environ", "/proc/1/cwd"]

INIT = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*args):
    return libc.syscall(*(ctypes.c_long(a) for a in args))
fd = call(434, 1, 0)
print('attach', call(101, 16, 1, 0, 0), 'seize', call(101, 0x4206, 1, 0, 0))
print('getfd', *[call(438, fd, n, 0) for n in range(6)])
for path in {PLACES!r}:
    try:
        os.close(os.open(path, os.O_RDONLY))
        print(path, 'open')
    except OSError:
        print(path, -1)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_the_channel_of_init_cannot_be_taken(world, user):
    done = world.run(PYTHON, "-c", INIT, user=user)
    values = [word for line in done.text.splitlines() for word in line.split()[1:]]
    assert done.code == 0 and set(values) <= {"-1", "seize"}, done


CHECK = """
import os, socket
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
weak = [k for k, v in {'Seccomp': '2', 'NoNewPrivs': '1', 'CapEff': '0' * 16, 'CapBnd': '0' * 16}.items()
        if status[k].strip() != v]
weak += [fd for fd in os.listdir('/proc/self/fd') if int(fd) > 3]
s = socket.socket()
try:
    s.connect(('93.9.9.9', 7007))
    weak.append('connected')
except OSError:
    pass
for path in ('/etc/weir-test', '/usr/weir-test', '/proc/sys/kernel/domainname'):
    try:
        open(path, 'w')
        weak.append(path)
    except OSError:
        pass
print('ran', weak)
"""

FAILURES = ["capset:1", "close_range:1", "execveat:1", "fsmount:1", "mount:1", "mount_setattr:2", "pivot_root:1", "sendmsg:1", "setns:1",
            "setsid:1", "setsockopt:2", "umount2:1", "unshare:1", "unshare:2"]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace makes the calls fail")
@pytest.mark.parametrize("failure", FAILURES)
def test_a_system_call_that_fails_at_the_start_leaves_nothing_open(world, failure):
    call, number = failure.split(":")
    argv = world.run_args([PYTHON, "-IS", "-c", CHECK], ("api.ok.test:443",), (), (), "5.100.53.53")
    done = world.command("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}",
                         "-e", f"inject={call}:error=EPERM:when={number}", world.weir_path, *argv)
    assert done.text == "ran []\n" or (b"ran" not in done.out and done.code == 125), done


# The builder of the view alone joins namespaces, the launch child alone changes its root.
@pytest.mark.skipif(not shutil.which("strace"), reason="strace kills at the call")
@pytest.mark.parametrize("call", ["setns", "pivot_root"])
def test_a_helper_that_is_killed_at_the_start_ends_the_run(world, call):
    argv = world.run_args([PYTHON, "-IS", "-c", CHECK], ("api.ok.test:443",), (), (), "5.100.53.53")
    assert world.command(world.weir_path, *argv).text == "ran []\n"
    done = world.command("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}",
                         "-e", f"inject={call}:signal=SIGKILL", world.weir_path, *argv)
    assert b"ran" not in done.out and done.code == 125, done


def processes_named(name, session):
    """Of the session that the process @session leads."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = status.read_text().split(" (", 1)
            comm, fields = rest.rsplit(") ", 1)
            if comm == name and int(fields.split()[3]) == session:
                found.append(int(pid))
    return found


@pytest.mark.skipif(not shutil.which("strace"), reason="strace holds the process back")
def test_the_builder_of_the_view_has_ended_when_the_command_starts(world, user):
    """It has every right over the outer namespaces, and may be stopped, or slow to end, after its last word."""
    argv = world.run_args([PYTHON, "-IS", "-c", "print('ran', flush=True); input()"], ("api.ok.test:443",), (), (), "5.100.53.53")
    hold = ["-qq", "-o", "/dev/null", "-e", "trace=exit_group", "-e", "inject=exit_group:delay_enter=2s:when=1"]
    with world.start(["strace", "-f", *hold, world.weir_path, *argv], user=user) as run:
        line = run.line()
        left = processes_named("weir-rootfs", run.pid)
        control = processes_named("weir-init", run.pid)
        for pid in children(run.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert line == "ran" and control and not left, (line, control, left)
