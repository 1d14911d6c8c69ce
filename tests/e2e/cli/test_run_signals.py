# SPDX-License-Identifier: Apache-2.0
"""Signals, terminals and jobs."""
import contextlib
import pathlib
import signal
import time

import pytest

from world.expect import PATIENCE
from world.run import finish
from world.sidecar import wait_for
from world.terminal import Terminal

# Counts INT and TERM, says each, and ends when told or after a while.
COUNTER = r"""
import os, signal, sys, time
seen = []
def say(text):
    os.write(1, text.encode() + b'\n')
def on(number, frame):
    seen.append(number)
    say('signal %d' % number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT,
               signal.SIGWINCH):
    signal.signal(number, on)
say('ready')
end = time.monotonic() + 50
while not seen and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.3)
say('total %d' % len(seen))
sys.exit(40 + len(seen))
"""
# What a run might leave files in, empty and out of everybody's way; mount(8) itself leaves one.
PLACES = "/tmp /dev/shm /run"
OWN_PLACES = [*(f"mount -t tmpfs none {p}" for p in PLACES.split()), "rm -rf /run/mount", "chmod 1777 /tmp /dev/shm"]

COUNT = ["/usr/bin/python3", "-IS", "-c", COUNTER]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
                                    signal.SIGQUIT], ids=lambda n: n.name)
def test_a_signal_to_weir_reaches_the_command_once(world, user, number):
    with world.run_start(*COUNT, user=user) as run:
        assert run.line() == "ready"
        run.signal(number)
        done = finish(run)
        assert done.text == f"signal {int(number)}\ntotal 1\n" and done.code == 41, done
    assert world.leftovers() == []


def test_sigterm_ends_a_command_that_does_not_handle_it(world, user):
    with world.run_start("sh", "-c", "echo ready; exec sleep 30", user=user) as run:
        assert run.line() == "ready"
        run.signal(signal.SIGTERM)
        assert finish(run).code in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert world.leftovers() == []


def weir(world, *argv, allow=()):
    return [str(world.weir_path), *world.run_args(argv, allow, (), (), None)]


def test_ctrl_c_reaches_the_command_once(world, user):
    with Terminal(world, weir(world, *COUNT), user=user) as terminal:
        terminal.expect("ready")
        terminal.type("\x03")
        terminal.expect("total 1")
        assert terminal.wait() == 41


def test_ctrl_c_ends_a_command_that_does_not_handle_it(world, user):
    with Terminal(world, weir(world, "sh", "-c", "echo ready; exec sleep 30"), user=user) as terminal:
        terminal.expect("ready")
        terminal.type("\x03")
        assert terminal.wait() in (-signal.SIGINT, 130)
    assert world.leftovers() == []


def test_ctrl_backslash_ends_it_too(world):
    with Terminal(world, weir(world, "sh", "-c", "echo ready; exec sleep 30")) as terminal:
        terminal.expect("ready")
        terminal.type("\x1c")
        assert terminal.wait() in (-signal.SIGQUIT, 131)


def test_the_command_has_the_terminal(world, user):
    script = "tty; test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; echo x > /dev/tty; echo end"
    with Terminal(world, weir(world, "sh", "-c", script), user=user) as terminal:
        terminal.expect("terminal")
        terminal.expect(r"\d+ \d+")
        terminal.expect("x\nend")
        assert terminal.wait() == 0


def test_closing_the_terminal_ends_everything(world, user):
    with Terminal(world, weir(world, "sh", "-c", "echo ready; exec sleep 30"), user=user) as terminal:
        terminal.expect("ready")
        terminal.hang_up()
        assert terminal.started.process.wait(60) != 0
    assert world.leftovers() == []


def test_closing_the_terminal_ends_a_stopped_job_too(world, user):
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run -- sh -c 'echo ready; exec sleep 30'\n")
        terminal.expect("\nready")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.hang_up()
        terminal.started.process.wait(60)
    assert world.leftovers() == []


@pytest.mark.parametrize("request_code", ["0x5412", "0x541C", "0x1000000005412"],
                         ids=["TIOCSTI", "TIOCLINUX", "high-bits"])
def test_nothing_can_be_typed_into_the_callers_terminal(world, attack_program, user, request_code):
    with Terminal(world, weir(world, str(attack_program), "tty", request_code), user=user) as terminal:
        terminal.expect("EPERM|EACCES|ENOTTY")
        terminal.wait()


SPOIL = """
import fcntl, termios
for request, argument in ((termios.TCXONC, termios.TCOON), (termios.TIOCEXCL, 0), (termios.TCXONC, termios.TCOOFF)):
    try:
        fcntl.ioctl(0, request, argument)
        print("done", flush=True)
    except PermissionError:
        print("refused", flush=True)
"""


def test_the_callers_terminal_stays_open_to_others(world, user):
    """No key undoes either: Weir's own report would wait for ever."""
    with Terminal(world, weir(world, "/usr/bin/python3", "-ISc", SPOIL), user=user) as terminal:
        terminal.expect("done\\s+refused\\s+refused")
        terminal.wait()
    with Terminal(world, ["/usr/bin/python3", "-ISc", SPOIL], user=user) as terminal:
        terminal.expect("done\\s+done")   # and then nothing is to be seen any more


LAYERS = """
import ctypes, os, struct, sys
call = ctypes.CDLL(None).syscall
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
for _ in range(int(sys.argv[1])):
    attr = struct.pack("QQQ", 0, 0, 2)
    if call(446, call(444, attr, len(attr), 0), 0) != 0:
        sys.exit("no Landlock here")
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_command_whose_signals_cannot_be_kept_inside_does_not_start(world, user):
    """Sixteen layers of Landlock are the kernel's limit."""
    for layers, code in ((15, 0), (16, 125)):
        done = world.command("/usr/bin/python3", "-ISc", LAYERS, str(layers), str(world.weir_path), "run", "--", "echo", "ran", user=user)
        if b"no Landlock" in done.err:
            pytest.skip("this kernel can't scope signals")
        assert done.code == code and (b"ran" in done.out) == (code == 0), done


@contextlib.contextmanager
def bash(world, user):
    """A shell on a terminal, which is left at the end, unless it has ended before."""
    with Terminal(world, ["bash", "--norc", "--noprofile", "-i"], user=user, env={"PS1": "prompt> ", "TERM": "dumb"}) as terminal:
        terminal.expect("prompt> ")
        yield terminal
        if terminal.started.process.poll() is None:
            terminal.type("exit\n")
            terminal.wait()


def states(world, name):
    """The states of the processes that are called so."""
    found = set()
    for pid in world.processes():
        with contextlib.suppress(OSError):
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            if f"({name})" in stat:
                found.add(stat.rsplit(")", 1)[1].split()[0])
    return found


SLOW = "sh -c 'echo rea\\\\dy; until test -e finish; do sleep 0.05; done; echo fin\\\\ished'"


def test_ctrl_z_stops_the_job_and_fg_goes_on(world, user):
    folder = world.workdir(user)
    with bash(world, user) as terminal:
        terminal.type(f"cd {folder}; '{world.weir_path}' run -- bash -c \"{SLOW}\"\n")
        terminal.expect("\nready")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect("prompt> ")
        # D: in the middle of vfork(), which waits for a child that has stopped.
        wait_for(lambda: states(world, "sh") - {"D"} == {"T"})
        (folder / "finish").touch()
        terminal.type("fg\n")
        terminal.expect("\nfinished")
        terminal.expect("prompt> ")
        terminal.type("echo status $?\n")
        terminal.expect("status 0")
    assert world.leftovers() == []


def test_a_job_may_go_on_in_the_background_and_be_killed(world, user):
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run -- sh -c 'echo ready; exec sleep 30'\n")
        terminal.expect("\nready")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.type("bg\n")
        terminal.expect("prompt> ")
        terminal.type("jobs\n")
        terminal.expect("Running")
        terminal.type("kill %1; wait %1; echo status $?\n")
        terminal.expect("status 143")
    assert world.leftovers() == []


def test_a_command_that_stops_itself_shows_as_stopped(world, user):
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run -- sh -c 'kill -STOP $$; echo went on'\n")
        terminal.expect("Stopped")
        terminal.type("fg\n")
        terminal.expect("went on\n")


def test_while_a_run_is_stopped_nothing_in_it_goes_on(world, user):
    """Nobody can give it another policy then. The command stops itself; another process, in a session of its own, would run on."""
    cwd = world.workdir(user)
    beat, script = cwd / "beat", cwd / "script"
    script.write_text("setsid sh -c 'while :; do date +%s%N >> beat; sleep 0.02; done' & sleep 0.5; kill -STOP $$; echo went on; sleep 0.5\n",
                      encoding="ascii")
    script.chmod(0o644)
    with bash(world, user) as terminal:
        terminal.type(f"cd {cwd}; '{world.weir_path}' run -- sh script\n")
        terminal.expect("Stopped")
        time.sleep(1)
        size = beat.stat().st_size
        time.sleep(1)
        assert beat.stat().st_size == size > 0
        terminal.type("fg\n")
        terminal.expect("went on\n")
        wait_for(lambda: beat.stat().st_size > size)
    assert world.leftovers() == []


# A process that a timer of its own continues whenever it is stopped; it asks for a name after the other.
DEFIER = r"""
import ctypes, os, signal, socket, struct, sys, time
signal.signal(signal.SIGCONT, lambda *_: None)
libc = ctypes.CDLL(None)
for i in range(3):  # a signal that waits to be seen while the process is stopped is dropped, and its timer with it
    timer, each = ctypes.c_void_p(), 150000000 + i * 37000000
    libc.timer_create(1, struct.pack("qii48x", 0, signal.SIGCONT, 0), ctypes.byref(timer))
    libc.timer_settime(timer, 0, struct.pack("4q", 0, each, 0, each), None)
udp = socket.socket(type=socket.SOCK_DGRAM)
name = b"".join(bytes([len(label)]) + label for label in sys.argv[1].encode().split(b"."))
with open("beat", "wb", buffering=0) as beat:
    for i in range(1000):
        asked = b"%04d" % i
        udp.sendto(struct.pack(">6H", i, 256, 1, 0, 0, 0) + b"\4" + asked + name + b"\0\0\1\0\1", ("127.0.0.1", 53))
        beat.write(b".")
        time.sleep(0.02)
"""


def test_nothing_is_asked_while_a_run_is_stopped_whoever_goes_on(world, user):
    """What a timer of its own continues is not held for long; its questions wait."""
    cwd, site = world.workdir(user), world.site("held.example")
    beat, script = cwd / "beat", cwd / "script"
    (cwd / "defier.py").write_text(DEFIER, encoding="ascii")
    script.write_text(f"setsid python3 -IS defier.py {site.name} & until test -s beat; do sleep 0.1; done; kill -STOP $$; echo went on; sleep 0.5\n", encoding="ascii")
    for file in (script, cwd / "defier.py"):
        file.chmod(0o644)

    def asked():
        return len([q for q in world.dns.queries() if q.name.lower().endswith(f".{site.name}")])

    with bash(world, user) as terminal:
        terminal.type(f"cd {cwd}; '{world.weir_path}' run --allow '*.{site.name}' -- sh script\n")
        terminal.expect("Stopped")
        time.sleep(1)
        before, size = asked(), beat.stat().st_size
        time.sleep(2)
        assert beat.stat().st_size > size, "it was held all the same"
        assert asked() == before > 0
        terminal.type("fg\n")
        terminal.expect("went on\n")
        wait_for(lambda: asked() > before)
    assert world.leftovers() == []


def test_a_command_that_stops_itself_where_no_shell_could_continue_it_is_as_anywhere(world, user):
    """Weir doesn't stop, nothing is held, and only the command's own process continues it."""
    script = "(sleep 1; echo alone; kill -CONT $$) & kill -STOP $$; echo went on"
    done = world.run("sh", "-c", script, user=user)
    assert done.code == 0 and done.text == "alone\nwent on\n", done


def test_a_command_that_stops_itself_stops_no_limit(world, user):
    """Its other processes go on asking, and Weir with them."""
    policy = world.workdir(user) / "policy.yaml"
    policy.write_text("on_denies: {count: 3, window: 1m, action: stop}\n", encoding="ascii")
    policy.chmod(0o644)
    ask = "(sleep 0.5; for i in 1 2 3 4 5 6 7 8; do getent hosts n$i.denied.test; done; sleep 30) & kill -STOP $$; wait"
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run --policy {policy} -- sh -c '{ask}'; echo status $?\n")
        terminal.expect("on_denies says stop")
        terminal.expect("status 122")


def test_ctrl_c_at_a_shell_leaves_the_shell(world, user):
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run -- sh -c 'echo ready; exec sleep 30'\n")
        terminal.expect("\nready")
        terminal.type("\x03")
        terminal.expect("prompt> ")
        terminal.type("echo status $?\n")
        terminal.expect("status 130")


def test_children_that_outlive_the_command_go_with_it(world, user):
    """As in a container: when the command ends, so does what it left running."""
    script = "(sleep 300; echo late) >/dev/null 2>&1 & setsid sleep 301 >/dev/null 2>&1 & exit 3"
    done = world.run("sh", "-c", script, user=user)
    assert done.code == 3, done
    assert world.leftovers() == []


def test_orphans_inside_are_reaped(world):
    script = ("for i in 1 2 3 4 5; do (sh -c 'sleep 0.05' &) ; done; sleep 0.4; for i in $(seq 200); do "
              "left=$(cat /proc/[0-9]*/stat | grep -c -e ') Z ' -e '(sleep)'); test $left = 0 && break; sleep 0.1; done; echo $left")
    assert world.run("sh", "-c", script).text == "0\n"


def test_a_normal_end_leaves_nothing_behind(world, user):
    """No process, and no file in /tmp, /run or /dev/shm."""
    script = f"'{world.weir_path}' run -- sh -c 'touch /tmp/x /run/x /dev/shm/x; exit 0'; find {PLACES} -mindepth 1"
    done = world.command("sh", "-c", script, mounts=OWN_PLACES, user=user)
    assert done.code == 0 and done.out == b"", done
    assert world.leftovers() == []


@pytest.mark.parametrize("which", ["control", "engine"])
def test_a_killed_weir_leaves_no_file_and_no_mount(world, user, which):
    """Whoever lists the runs takes away the socket of one whose control was killed."""
    mounts = "cut -d' ' -f1,5 /proc/self/mountinfo"  # what another test unmounts is missing later
    script = (f"before=$({mounts}); '{world.weir_path}' run -- sh -c 'echo ready; exec sleep 30'; echo ended; read x; "
              f"'{world.weir_path}' ps >&2; find {PLACES} -mindepth 1; {mounts} | grep -vxF \"$before\"; echo $?")
    with world.start(["sh", "-c", script], mounts=OWN_PLACES, user=user) as run:
        assert run.line() == "ready"
        control, = world.children(run.pid)
        world.kill(dict(zip(("control", "engine"), world.guards(control)))[which])
        assert run.line() == "ended"
        run.say("\n")
        assert finish(run).text == "1\n", "grep has found nothing that is new"
    assert world.leftovers() == []


def test_a_new_size_of_the_terminal_reaches_the_command_once(world, user):
    with Terminal(world, weir(world, *COUNT), user=user) as terminal:
        terminal.expect("ready")
        terminal.resize(50, 120)
        terminal.expect(f"signal {int(signal.SIGWINCH)}")
        terminal.expect("total 1")
        assert terminal.wait() == 41


def test_an_interactive_shell_inside_has_its_own_jobs(world, user):
    """Prompt, ctrl-C, ctrl-Z and fg belong to the shell inside; its end ends the run."""
    argv = weir(world, "bash", "--norc", "--noprofile", "-i")
    with Terminal(world, argv, user=user, env={"PS1": "inside> ", "TERM": "dumb"}) as terminal:
        terminal.expect("inside> ")
        assert "no job control" not in terminal.text
        terminal.type("sh -c 'echo fir''st; exec sleep 30'\n")
        terminal.expect("\nfirst")
        terminal.type("\x03")
        terminal.expect("inside> ")
        terminal.type("sh -c 'echo sec''ond; exec sleep 3'\n")
        terminal.expect("\nsecond")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.type("fg; echo went on\n")
        terminal.expect("\nwent on")
        terminal.type("exit 7\n")
        assert terminal.wait() == 7
    assert world.leftovers() == []


def test_the_shell_outside_has_its_terminal_back_after_one_inside(world, user):
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run -- bash --norc --noprofile -i\n")
        terminal.expect("prompt> ")
        terminal.type("exit 3\n")
        terminal.expect("prompt> ")
        terminal.type("echo status $?; read line; echo got $line\n")
        terminal.expect("status 3")
        terminal.type("typed\n")
        terminal.expect("got typed")


def test_a_background_job_that_reads_the_terminal_is_stopped(world, user):
    with bash(world, user) as terminal:
        terminal.type(f"'{world.weir_path}' run -- cat &\n")
        terminal.expect("prompt> ")

        def is_said():
            """The shell says what became of a job before each prompt."""
            terminal.type("\n")
            with contextlib.suppress(AssertionError):
                return terminal.expect("Stopped", 0.5)
        wait_for(is_said, PATIENCE)
        terminal.type("fg\n")
        terminal.expect("fg\n.*cat\n")
        terminal.type("hello\n")
        terminal.expect("hello\nhello")
        terminal.type("\x04")
        terminal.expect("prompt> ")


IGNORED = [("", 0), ("trap '' HUP QUIT;", 1 << (signal.SIGHUP - 1) | 1 << (signal.SIGQUIT - 1))]


@pytest.mark.parametrize("before, ignored", IGNORED)
def test_the_command_has_the_callers_signal_settings(world, user, before, ignored):
    """Nothing blocked, and ignored what the caller ignores of the signals that end programs."""
    done = world.command("sh", "-c", f"{before} exec '{world.weir_path}' run -- cat /proc/self/status", user=user)
    status = dict(line.split(":\t", 1) for line in done.text.splitlines() if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0
    assert int(status["SigIgn"], 16) == ignored, status["SigIgn"]


def test_nohup_survives_a_hang_up(world, user):
    script = f"trap '' HUP; exec '{world.weir_path}' run -- sh -c 'echo ready; sleep 1; echo end'"
    with world.start(["sh", "-c", script], user=user) as run:
        assert run.line() == "ready"
        run.signal(signal.SIGHUP)
        done = finish(run)
        assert done.code == 0 and done.text == "end\n", done
