# SPDX-License-Identifier: Apache-2.0
"""stdin, stdout, stderr: as if Weir weren't there."""
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time

import pytest

from world.program import comm, descendants
from world.run import finish
from world.sidecar import wait_for


def test_streams_stay_apart(world, user):
    done = world.run("sh", "-c", "echo out; echo err >&2; cat", user=user, input=b"in\n")
    assert (done.out, done.err) == (b"out\nin\n", b"err\n")


def test_binary_and_big_data_pass_unchanged(world, user):
    data = os.urandom(1 << 20) * 16
    done = world.run("cat", user=user, input=data)
    assert hashlib.sha256(done.out).digest() == hashlib.sha256(data).digest()


def test_output_comes_as_it_is_written(world):
    with world.run_start("sh", "-c", "echo one; read x; echo two $x") as run:
        assert run.line() == "one"
        run.say("more\n")
        assert run.line() == "two more"
        assert finish(run).code == 0


def test_the_end_of_stdin_reaches_the_command(world):
    with world.run_start("sh", "-c", "cat; echo end") as run:
        run.say("x\n")
        assert run.line() == "x"
        done = finish(run)
        assert done.out == b"end\n"


def test_a_reader_that_leaves_ends_the_command(world):
    with world.run_start("sh", "-c", "yes; echo \"yes: $?\" >&2") as run:
        run.line()
        run.process.stdout.close()
        run.process.stdout = None
        done = finish(run)
        assert "yes:" in done.messages, done


def test_the_callers_pipe_ends_with_the_command(world):
    """Nothing that Weir leaves running holds stdout open."""
    done = world.command("sh", "-c", f"'{world.weir_path}' run -- echo hello | cat; echo done")
    assert done.text == "hello\ndone\n", done


def test_closed_streams_are_no_problem(world):
    done = world.command("sh", "-c", f"'{world.weir_path}' run -- sh -c 'exit 5' <&- >&- 2>&-; echo $?")
    assert done.text == "5\n", done


def test_streams_may_be_files(world, user):
    cwd = world.workdir(user)
    done = world.start(["sh", "-c", f"echo content > in; '{world.weir_path}' run -- tr a-z A-Z < in > out 2> err"],
                       user=user, cwd=cwd)
    assert finish(done).code == 0
    assert (cwd / "out").read_text() == "CONTENT\n" and (cwd / "err").read_text() == ""


WAYS = {"a pipe": "cat script | bash", "a named pipe": "mkfifo pipe; cat script > pipe & bash < pipe", "a file": "bash < script",
        "a file for both": "bash <> script", "a file without a name": "exec 3< script; rm script; bash <&3"}


# It doesn't wait where its own pipe is full.
INJECT = """
import contextlib, os
for name in ("/proc/self/fd/0", "/dev/stdin"):
    with contextlib.suppress(OSError):
        os.write(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK), b"touch escaped\\n")
with contextlib.suppress(OSError):
    os.write(0, b"touch escaped\\n")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_command_does_not_write_its_callers_script(world, user, way):
    """A shell that reads its script from standard input hands that on: what came into it would run outside."""
    cwd = world.workdir(user)
    (cwd / "script").write_text(f"""'{world.weir_path}' run -- /usr/bin/python3 -ISc '{INJECT}'\necho left\n""")
    shutil.chown(cwd / "script", user, user)
    done = world.command("bash", "-c", WAYS[way], user=user, cwd=cwd)
    assert done.text == "left\n" and not (cwd / "escaped").exists(), done


@pytest.mark.parametrize("owner", ["root", "weir-test"])
def test_a_command_does_not_move_its_callers_place_in_a_script(world, user, owner):
    """A shell that reads its script from a file goes on where the descriptor is by then."""
    cwd = world.workdir(user)
    (cwd / "script").write_text(f"""'{world.weir_path}' run -- /usr/bin/python3 -ISc 'import os; os.lseek(0, 0, os.SEEK_END)'\necho left\n""")
    shutil.chown(cwd / "script", owner, owner)
    done = world.command("bash", "-c", "bash < script", user=user, cwd=cwd)
    assert done.text == "left\n", done


def test_what_the_command_leaves_in_a_pipe_the_next_program_reads(world, user):
    weir = f"'{world.weir_path}' run"
    done = world.command("sh", "-c", f"printf 'one\ntwo\nthree\n' | {{ {weir} -- sh -c 'read x; echo got $x'; {weir} -- true; cat; }}",
                         user=user, cwd=world.workdir(user))
    assert done.text == "got one\ntwo\nthree\n", done


def test_a_pipe_of_the_callers_own_arrives_whole_and_ends(world, user):
    done = world.command("sh", "-c", f"seq 300000 | '{world.weir_path}' run -- md5sum; seq 300000 | md5sum",
                         user=user, cwd=world.workdir(user))
    inside, outside = done.text.splitlines()
    assert inside == outside, done


def test_dev_null_and_full_are_there(world):
    done = world.run("sh", "-c", "echo x > /dev/null && echo x > /dev/full; head -c 8 /dev/urandom | wc -c; "
                                 "test -e /dev/tty; ls -l /dev/stdin /dev/fd >/dev/null && echo links")
    assert done.text == "8\nlinks\n", done


@pytest.mark.parametrize("count", [6])
def test_several_at_once_do_not_disturb_each_other(world, user, count):
    sites = [world.site(f"crowd-{world.number()}.test") for _ in range(count)]
    runs = [world.run_start("curl", "-sS", f"https://{s.name}/", allow=(s.name,), user=user) for s in sites]
    for s, run in zip(sites, runs):
        done = finish(run)
        assert done.code == 0 and done.json()["host"] == s.name, done


def test_a_pipeline_of_two_sandboxes(world, site):
    weir = f"'{world.weir_path}' run --upstream 5.100.53.53"
    done = world.command("sh", "-c", f"{weir} --allow {site.name} -- curl -sS http://{site.name}/ | "
                                     f"{weir} -- tr a-z A-Z")
    assert site.name.upper() in done.text, done


def test_the_environment_and_directory_are_the_callers(world, user):
    cwd = world.workdir(user)
    done = world.run("sh", "-c", "pwd; echo $MARK; umask", user=user, cwd=cwd, env={"MARK": "kept"})
    assert done.text.split()[:2] == [str(cwd), "kept"], done


def test_root_and_the_user_look_like_themselves(world, user):
    done = world.run("sh", "-c", "id -u; id -un; test -w . && echo writable", user=user)
    expected = subprocess.run(["id", "-u", user], capture_output=True, text=True, check=True).stdout.strip()
    assert done.text.split()[0] in (expected, "0") and "writable" in done.text, done


FILL = """
import fcntl, os, socket
try:
    socket.getaddrinfo("denied.test", 443)
except OSError:
    pass
fcntl.fcntl(2, fcntl.F_SETFL, os.O_WRONLY | os.O_NONBLOCK)
try:
    while True:
        os.write(2, b"." * 4096)
except BlockingIOError:
    pass
"""


def test_a_stream_that_the_command_spoils_is_as_it_was_for_the_report(world, user):
    """Its flags are the open file's: without waiting, a full pipe takes nothing, and the caller's programs fail as well."""
    read, write = os.pipe()
    try:
        with world.run_start("/usr/bin/python3", "-ISc", FILL, stderr=write, user=user) as started:
            said = bytearray(os.read(read, 1))
            time.sleep(1)   # for the end of the command; a slower machine proves less
            while b"denied.test" not in said and len(said) < 1 << 20 and select.select([read], [], [], 60)[0]:
                said += os.read(read, 65536)
            started.process.wait(60)
        assert b"refused:" in said and b"denied.test" in said, said[-300:]
        assert not fcntl.fcntl(write, fcntl.F_GETFL) & os.O_NONBLOCK
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("options", [(), ("--quiet",)], ids=["", "quiet"])
def test_a_stream_that_the_command_closes_keeps_nothing_from_being_done(world, user, options):
    """It is one open file with Weir's: what Weir says while the command runs, and at the end, raises SIGPIPE."""
    cwd, reports = world.workdir(user), world.workdir(user)
    assert world.command("git", "init", "-q", ".", user=user, cwd=cwd).code == 0
    close = "/usr/bin/python3 -ISc 'import socket; socket.socket(fileno=2).shutdown(socket.SHUT_WR)'"
    script = f"touch .git/config.worktree .git/commondir; {close}; getent hosts denied.test; sleep 2; exit 3"
    ours, theirs = socket.socketpair()
    with ours, theirs, world.run_start("sh", "-c", script, stderr=theirs, user=user, cwd=cwd,
                                       options=("--report", reports / "report.json", *options)) as started:
        assert started.process.wait(60) == 125
    assert not (cwd / ".git/config.worktree").exists() and not (cwd / ".git/commondir").exists()
    assert "denied.test" in (reports / "report.json").read_text(encoding="utf-8")


def test_the_files_of_the_report_are_written_before_the_first_word(world, user):
    """A command fills the pipe, which nobody reads: its words wait, and what else has to be done doesn't."""
    cwd, file = world.workdir(user), world.workdir(user) / "report.json"
    assert world.command("git", "init", "-q", ".", user=user, cwd=cwd).code == 0
    script = "open('.git/config.worktree', 'w')" + FILL
    read, write = os.pipe()
    with world.run_start("/usr/bin/python3", "-ISc", script, stderr=write, user=user, cwd=cwd,
                         options=("--report", file)) as started, open(read, "rb") as pipe:
        os.close(write)
        report = wait_for(lambda: file.exists() and (text := file.read_text(encoding="utf-8")).endswith("}\n") and json.loads(text))
        assert report["exit_status"] == 125 and "denied.test" in str(report)
        assert not (cwd / ".git/config.worktree").exists()
        assert started.process.poll() is None
        said = pipe.read()
        assert started.process.wait(60) == 125
    assert b"config.worktree" in said, said[-300:]


LONGEST = """
import os, socket
try:
    socket.getaddrinfo("denied.test", 443)
except OSError:
    pass
size, step = 0, 1 << 62
while step:
    try:
        os.ftruncate(2, size + step)
        size += step
    except (OSError, OverflowError):
        pass
    step //= 2
os.lseek(2, 0, os.SEEK_END)
"""


@pytest.mark.parametrize("append", [0, os.O_APPEND], ids=["", "append"])
def test_a_file_that_the_command_makes_too_long_has_the_report_behind_its_data(world, user, append):
    name = world.workdir(user) / "stderr"
    file = os.open(name, os.O_RDWR | os.O_CREAT | append, 0o666)
    with world.run_start("/usr/bin/python3", "-ISc", LONGEST, stderr=file, user=user) as started:
        assert started.process.wait(60) == 0
    os.close(file)
    assert name.stat().st_size < 1 << 20 and b"denied.test" in name.read_bytes()


def test_words_that_cannot_be_written_end_the_run_with_125(world):
    denied = ("getent", "hosts", "denied.test")
    with open("/dev/full", "wb") as full:
        for options, argv, code in ((), denied, 125), ((), ("true",), 0), (("--quiet",), denied, 2):
            with world.run_start(*argv, stderr=full, options=options) as started:
                assert started.process.wait(60) == code


FULL = FILL.replace('socket.getaddrinfo("denied.test", 443)', "pass") + """
print("full", flush=True)
fcntl.fcntl(2, fcntl.F_SETFL, os.O_WRONLY)
import time
time.sleep(600)
"""


def test_a_pipe_that_the_command_keeps_full_does_not_have_weir_wait(world, tun, user):
    """There is something to be said, for the uplink has ended: a signal is forwarded all the same."""
    read, write = os.pipe()
    try:
        with world.run_start("/usr/bin/python3", "-ISc", FULL, stderr=write, user=user, mounts=tun, options=("--uplink", "slirp4netns")) as started:
            assert started.line() == "full"
            weir = [pid for pid in [started.pid, *descendants(started.pid)] if comm(pid) == "weir"][0]
            uplink = [pid for pid in descendants(weir) if comm(pid) == "slirp4netns"]
            os.kill(uplink[0], signal.SIGKILL)
            time.sleep(1)   # a slower machine proves less
            os.kill(weir, signal.SIGTERM)
            assert started.process.wait(30) in (-signal.SIGTERM, 128 + signal.SIGTERM)
    finally:
        os.close(read)
        os.close(write)
