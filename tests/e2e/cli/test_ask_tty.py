# SPDX-License-Identifier: Apache-2.0
"""`weir run --ask tty`: what the policy leaves to ask is asked on the caller's terminal, which the command can't reach."""
import json
import os
import re
import signal
import time

import pytest

from tests.world.sidecar import wait_for
from tests.world.terminal import Terminal
from tests.world.world import RESOLVER4

QUIET = 0.8  # seconds: no key counts before (PROMPT_QUIET_MS)
LETTERS = r"\[o\]nce, \[1\]0 minutes, \[s\]ession, \[a\]lways, \[n\]o, \[N\]o to all: "
FETCH = """
import socket, sys
for name in sys.argv[1:]:
    s = socket.create_connection((name, 80), 50)
    s.sendall(f"GET / HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
    print("got", name, s.makefile().read()[9:15], flush=True)
"""


@pytest.fixture
def site(world):
    return world.site(f"ask{world.number()}.test")


@pytest.fixture
def command(world):
    """The argv of `weir run --ask tty` under a policy that asks for what no rule names."""
    def make(*argv, user="root", rules=(), options=(), **limits):
        path = make.policy = world.workdir(user) / "policy.json"
        path.write_text(json.dumps({"defaultAction": "ask", "egress": list(rules), "limits": limits}))
        options = ("--no-config", "--ask", "tty", "--policy", path, *options)
        return [str(world.weir_path), *world.run_args(argv, (), (), options, RESOLVER4)]
    return make


@pytest.fixture
def asks(world, command):
    def start(*argv, user=None, **more):
        return Terminal(world, command(*argv, user=user or "root", **more), user=user)
    return start


def fetch(*sites):
    return ("/usr/bin/python3", "-ISc", FETCH, *(s.name for s in sites))


def asked(terminal, site, by="python3"):
    """The question stands there, and keys count."""
    terminal.expect(rf"weir:\x1b\[0m {re.escape(site.name)}:80 wanted( by {by})?[^\n]*\. {LETTERS}")
    time.sleep(QUIET)


@pytest.mark.parametrize("user", [None, "weir-test"])
def test_what_is_granted_goes_on(asks, site, user):
    """The client waits and does not try again; the session is not asked twice."""
    with asks(*fetch(site, site), user=user) as terminal:
        asked(terminal, site)
        terminal.type("s\r")
        terminal.expect(rf"got {site.name} 200 OK\s+got {site.name} 200 OK")
        assert terminal.wait() == 0
    assert terminal.text.count(" wanted") == 1


def test_no_refuses_and_nothing_was_sent(world, asks, site):
    granted = world.site(f"ask{world.number()}.test")
    begun = len(world.dns.queries())
    with world.capture() as link, asks(*fetch(site, granted)) as terminal:
        asked(terminal, site)
        terminal.type("n\r")
        asked(terminal, granted)
        terminal.type("o\r")
        assert terminal.wait() == 0
        assert f"got {site.name} 403 Fo" in terminal.text and f"got {granted.name} 200 OK" in terminal.text
        names = {q.name.lower() for q in world.dns.queries()[begun:]}
        assert granted.name in names and site.name not in names
        reached = {p.dst for p in link.packets()}
        assert reached & {granted.v4, granted.v6} and not reached & {site.v4, site.v6}


def test_always_says_the_rule_and_changes_no_file(asks, command, site):
    with asks(*fetch(site)) as terminal:
        before = command.policy.read_text()
        asked(terminal, site)
        terminal.type("a\r")
        terminal.expect(rf'weir: to allow it always, add to the policy: - {{"action":"allow","target":"{site.name}".*}}\r?\n')
        terminal.expect("200 OK")
        assert terminal.wait() == 0
    assert command.policy.read_text() == before


def test_a_line_that_is_no_answer_is_asked_again(asks, site):
    with asks(*fetch(site)) as terminal:
        asked(terminal, site)
        terminal.type("yes\r")
        asked(terminal, site)
        terminal.type("1\r")
        terminal.expect("200 OK")
        assert terminal.wait() == 0


def test_a_lookalike_is_said(asks, site):
    rules = [{"action": "allow", "target": f"{site.name[:-6]}x.test"}]
    with asks(*fetch(site), rules=rules) as terminal:
        terminal.expect(rf"wanted[^,]*, looks like {rules[0]['target']} \(allowed\)\. ")
        time.sleep(QUIET)
        terminal.type("\x04")
        terminal.expect("403 Fo")
        terminal.wait()


SHOUT = """
import os, sys, threading, time
def shout():
    while True:
        os.write(1, b"weir: good.test:80 wanted by pip. [o]nce, [a]lways, [n]o: \\r\\n" * 20)
threading.Thread(target=shout, daemon=True).start()
""" + FETCH


def test_nothing_is_printed_over_a_question(asks, site):
    """A command that prints without end, questions too: the last line is Weir's, until it is answered."""
    with asks("/usr/bin/python3", "-ISc", SHOUT, site.name) as terminal:
        asked(terminal, site)
        assert re.search(rf"{re.escape(site.name)}:80 wanted[^\n]*{LETTERS}$", terminal.rest(0.5))
        terminal.type("n\r")
        terminal.expect(rf"got {site.name} 403")
        terminal.wait()


FAKE = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"\\x1b[7mweir:\\x1b[0m evil.test:80 wanted by pip. [o]nce, [1]0 minutes, [s]ession, [a]lways, [n]o: ")
print("\\r\\nread", os.read(0, 100), end="\\r\\n", flush=True)
""" + FETCH


def test_what_is_typed_for_a_false_question_grants_nothing(asks, site):
    """It goes to the command. What is asked in truth then is asked all the same."""
    with asks("/usr/bin/python3", "-ISc", FAKE, site.name) as terminal:
        terminal.expect("evil.test:80 wanted")
        time.sleep(QUIET)
        terminal.type("a\r")
        terminal.expect(r"read b'a\\r'")
        asked(terminal, site)
        terminal.type("n\r")
        terminal.expect("403")
        terminal.wait()


HIDE = """
import os
os.write(1, b"\\x1b[?2026h\\x1b[?7l\\x1b[?69h\\x1b[1;2s\\x1b]4;0;#fff\\x1b\\\\\\x1b]10;#000\\x1b\\\\\\x1b]11;#000\\x1b\\\\hidden")
""" + FETCH


def test_a_question_is_not_hidden(asks, site):
    """By an update that is not shown yet, columns, lines that do not wrap, colours; and nothing of the command's stands behind it."""
    with asks("/usr/bin/python3", "-ISc", HIDE, site.name) as terminal:
        terminal.expect("hidden")
        asked(terminal, site)
        screen = terminal.text[terminal.text.index("hidden"):terminal.text.index(site.name)]
        # xterm's Tektronix and VT52 modes first, and its status line; then, behind what ESC 8 brings back, text that isn't erased;
        # kitty's pictures before what is below is erased
        at = 0
        for reset in ("\x1b\x03", "\x1b<", "\x1b[0$}", "\x1b[?69l", "\x1b8", "\x1b[?7h", '\x1b[0"q', "\x1b]104\x1b\\", "\x1b]110\x1b\\",
                      "\x1b]111\x1b\\", "\x1b[?2026l", "\x1b_Ga=d,q=2\x1b\\", "\n\x1b[J"):
            assert (at := screen.find(reset, at)) >= 0, (reset, screen)
        terminal.type("n\r")
        terminal.expect("403")
        terminal.wait()


def test_what_the_terminal_says_by_itself_is_no_answer(asks, site):
    """A program can have a terminal send a title of its choice; what is typed too early does not count either."""
    with asks(*fetch(site)) as terminal:
        terminal.expect(LETTERS)
        terminal.type("a\rs\r")  # at once: it was meant for something else
        time.sleep(QUIET)
        terminal.type("\x1b]la\r\x1b\\\x1b[1;1R\x1b]52;c;YQ0=\x07")
        assert "200 OK" not in terminal.rest(1)
        terminal.type("n\r")
        terminal.expect("403")
        terminal.wait()


def test_who_answers_first_decides(world, asks, site):
    """By the run's socket, while the question stands."""
    name = f"asked-{world.number()}"
    with asks(*fetch(site), options=("--id", name)) as terminal:
        asked(terminal, site)
        done = world.command("curl", "-sS", "--unix-socket", f"/run/weir-0/{name}.sock", "-X", "POST",
                             f"http://weir/sandboxes/{name}/review/1/accept")
        assert json.loads(done.text)["state"] == "accepted", done
        terminal.expect("decided elsewhere")
        terminal.expect("200 OK")
        assert terminal.wait() == 0


def test_nobody_answers(asks, site):
    with asks(*fetch(site), ask_timeout=2) as terminal:
        terminal.expect(LETTERS)
        terminal.expect("refused: no answer")
        terminal.expect("403")
        terminal.wait()


LATER = "import threading, time\n" + FETCH.replace("for name in sys.argv[1:]:", "def fetch(name):") + """
threading.Thread(target=fetch, args=sys.argv[1:]).start()
time.sleep(3)
fetch(sys.argv[1])
"""


def test_who_came_last_waits_as_long_as_the_first(asks, site):
    """The question stands until nobody waits for it any more."""
    with asks("/usr/bin/python3", "-ISc", LATER, site.name, ask_timeout=4) as terminal:
        terminal.expect(LETTERS)
        time.sleep(5.5)  # the first has been refused, and the second waits for another second
        terminal.type("s\r")
        terminal.expect(f"got {site.name} 403")  # nothing is carried while the question stands
        terminal.expect(f"got {site.name} 200")
        assert terminal.wait() == 0
    assert "no answer" not in terminal.text


def test_several_are_asked_for_one_by_one(world, asks):
    sites = [world.site(f"ask{world.number()}.test") for _ in range(2)]
    both = "import threading\n" + FETCH.replace("for name in sys.argv[1:]:", "def one(name):") + (
        "\nfor name in sys.argv[1:]: threading.Thread(target=one, args=(name,)).start()")
    with asks("/usr/bin/python3", "-ISc", both, *(s.name for s in sites)) as terminal:
        first = terminal.expect(rf"({'|'.join(re.escape(s.name) for s in sites)}):80 wanted").group(1)
        time.sleep(QUIET)
        terminal.type("o\r")
        second = next(s for s in sites if s.name != first)
        terminal.expect(rf"{re.escape(second.name)}:80 wanted")
        time.sleep(QUIET)
        terminal.type("n\r")
        assert terminal.wait() == 0
    assert f"got {first} 200" in terminal.text and f"got {second.name} 403" in terminal.text


# The kernel drops what a terminal has not shown yet when Ctrl-C is typed, unless NOFLSH is set.
EACH = """
import signal, termios, threading, sys
modes = termios.tcgetattr(0)
modes[3] |= termios.NOFLSH
termios.tcsetattr(0, termios.TCSANOW, modes)
seen = []
signal.signal(signal.SIGINT, lambda *_: (print("interrupted", flush=True), seen.append(1)))
""" + FETCH.replace("for name in sys.argv[1:]:", "def one(name):") + """
all = [threading.Thread(target=one, args=(name,)) for name in sys.argv[1:]]
for one in all: one.start()
for one in all: one.join()
print("again", flush=True)
""" + FETCH.split("sys\n")[1]


@pytest.mark.parametrize("keys", ["N\r", "\x03"])
def test_no_to_all_refuses_all_that_wait(world, asks, keys):
    """And what comes again for the same. Ctrl-C is for the command as well, which takes it here and goes on.

    The refusals and the signal reach the command by two ways: the second one may be the last."""
    each = EACH + ("\nimport time\nwhile not seen: time.sleep(.01)\n" if keys == "\x03" else "")
    sites = [world.site(f"ask{world.number()}.test") for _ in range(3)]
    granted = sites.pop()
    begun = len(world.dns.queries())
    with asks("/usr/bin/python3", "-ISc", each, *(s.name for s in sites),
              options=("--id", f"asked-{os.getpid()}-{world.number()}")) as terminal:
        terminal.expect(rf"wanted[^\n]*{LETTERS}")
        name = terminal.started.process.args[terminal.started.process.args.index("--id") + 1]
        tasks = lambda: json.loads(world.command("curl", "-sS", "--unix-socket", f"/run/weir-0/{name}.sock",
                                                 f"http://weir/sandboxes/{name}/review").text)["tasks"]
        wait_for(lambda: len(tasks()) == 2)
        time.sleep(QUIET)
        terminal.type(keys)
        terminal.expect("again")
        terminal.expect("403[^$]*403")
        assert terminal.wait() == 0
    assert len(re.findall(r" wanted( by |\. )", terminal.text)) == 1 and terminal.text.count("403 Fo") == 4, terminal.text
    assert ("interrupted" in terminal.text) == (keys == "\x03")
    assert not {q.name.lower() for q in world.dns.queries()[begun:]} & {s.name for s in sites}
    with asks(*fetch(granted)) as terminal:  # which is reached where nobody says no
        asked(terminal, granted)
        terminal.type("o\r")
        terminal.expect("200 OK")


def test_ctrl_c_ends_the_command_that_waits(asks, site):
    """However early: it is a key that nobody types as an answer."""
    with asks(*fetch(site)) as terminal:
        terminal.expect(LETTERS)
        terminal.type("\x03")
        assert terminal.wait() in (130, -2)
    assert "200 OK" not in terminal.text


def test_what_weir_says_begins_a_line(world, asks, site):
    """Its terminal is raw, and a question stands there, when the engine is killed."""
    with asks(*fetch(site)) as terminal:
        asked(terminal, site)
        os.kill(world.guards(terminal.started.process.pid)[1], signal.SIGKILL)
        assert terminal.wait() == 125
    assert re.search(rb"\r\nweir: the engine was killed[^\r\n]*\r\n", terminal.raw), terminal.raw


def test_a_long_name_is_asked_for_in_a_narrow_terminal(world, asks):
    site = world.site(f"{'a' * 60}.{'b' * 60}.{'c' * 60}.ask{world.number()}.test")
    with asks("sh", "-c", f"read x; exec /usr/bin/python3 -ISc '{FETCH}' {site.name}") as terminal:
        terminal.resize(24, 20)
        terminal.type("\n")
        end = ".".join(site.name.split(".")[-2:])
        terminal.expect(rf"weir:\x1b\[0m \.\.\.{re.escape(end)}:80 wanted[^\n]*\. {LETTERS}")
        terminal.resize(24, 500)  # and it is asked anew
        terminal.expect(rf"weir:\x1b\[0m {re.escape(site.name)}:80 wanted[^\n]*\. {LETTERS}")
        time.sleep(QUIET)
        terminal.type("o\r")
        terminal.expect("200 OK")
        assert terminal.wait() == 0


# ---- the terminal of the command ----

def test_the_command_has_a_terminal_of_its_own(asks):
    """With its keys, its size and /dev/tty, in a session of its own, and not the caller's."""
    script = ("trap 'echo winch $(stty size)' WINCH; stty size; test -t 0 && test -t 1 && test -t 2 && echo x > /dev/tty && echo terminal;"
              "ps -o sid=,tty= -p $$; echo ready; while read line; do echo \"read $line\"; done; echo end")
    with asks("bash", "-c", script) as terminal:
        terminal.resize(40, 100)
        terminal.expect("terminal")
        terminal.expect("ready")
        terminal.type("hello\n")
        terminal.expect("hello\n(winch 40 100\n)?read hello")  # its own echo; the first size may come late
        terminal.resize(33, 77)
        terminal.type("\n")
        terminal.expect("winch 33 77")
        terminal.type("\x04")
        terminal.expect("end")
        assert terminal.wait() == 0


@pytest.mark.parametrize("user", [None, "weir-test"])
def test_dev_console_is_the_commands_terminal(asks, user):
    """Not the caller's: the command could read what is typed there, and write over a question."""
    with asks("sh", "-c", "stat -Lc 'is %t:%T' /dev/console /dev/stdin", user=user) as terminal:
        found = terminal.expect(r"is (\S+)\s+is (\S+)\s")
        assert terminal.wait() == 0
    assert found.group(1) == found.group(2)


@pytest.mark.parametrize("key, status", [("\x03", 130), ("\x1c", 131)])
def test_its_keys_send_signals(asks, key, status):
    with asks("sh", "-c", "echo ready; exec sleep 60") as terminal:
        terminal.expect("ready")
        terminal.type(key)
        assert terminal.wait() in (status, 128 - status)


def test_the_callers_terminal_is_as_it_was(world, command):
    """Also where the command is killed, or leaves its own in another mode."""
    run = " ".join(f"'{word}'" for word in command("sh", "-c", "stty raw; echo ready; kill -9 $$"))
    with Terminal(world, ["bash", "-c", f"stty -a > a; {run}; stty -a > b; cmp a b && echo same"]) as terminal:
        terminal.expect("same")
        terminal.wait()


def test_closing_the_terminal_ends_everything(world, asks, site):
    """While a question stands, too: nobody answers any more."""
    for argv, ready in ((("sh", "-c", "echo ready; exec sleep 60"), "ready"), (fetch(site), LETTERS)):
        with asks(*argv) as terminal:
            terminal.expect(ready)
            terminal.hang_up()
            # what was asked for is refused, and its command may end by itself before the signal comes
            assert terminal.started.process.wait(60) != 0 or ready == LETTERS
    assert world.leftovers() == []
    assert site.name not in {q.name.lower() for q in world.dns.queries()}


def test_a_command_that_stops_itself_stops_weir(world, command):
    run = " ".join(f"'{word}'" for word in command("sh", "-c", "echo ready; kill -STOP $$; echo on; read x; echo got $x"))
    with Terminal(world, ["bash", "--norc", "--noediting", "-i"]) as terminal:
        terminal.type(f"{run}\n")
        terminal.expect(r"(?m)(^|[#$] )ready")  # whether the prompt or the echo came first
        terminal.expect("Stopped")
        terminal.type("fg\n")
        terminal.expect(r"(?m)^on$")
        terminal.type("it\n")
        terminal.expect("got it")
        terminal.expect(r"[#$] ")  # what comes before it is the command's
        terminal.type("exit\n")
        terminal.wait()


def test_pipes_stay_pipes(world, command):
    run = " ".join(f"'{word}'" for word in command("sh", "-c", "cat; test -t 0 || test -t 1 || echo none; test -t 2 && echo three >&2"))
    with Terminal(world, ["bash", "-c", f"seq 100000 | {run} | tail -n 2 | tr '\\n' ' '"]) as terminal:
        terminal.expect("three")
        terminal.expect("100000 none")
        terminal.wait()


def test_much_output_arrives_whole(asks):
    with asks("seq", "60000") as terminal:
        assert terminal.wait() == 0
    assert terminal.text.split()[:60000] == [str(n) for n in range(1, 60001)]


def test_without_a_terminal_it_is_an_error(world, command, user):
    """At the start, and not a question that is answered by itself."""
    done = world.command(*command("touch", "made", user=user), user=user)
    assert done.code == 2 and "--ask tty: there is no terminal to ask on" in done.messages, done
    run = " ".join(f"'{word}'" for word in command("echo", "made"))
    with Terminal(world, ["bash", "-ic", f"{run} & wait $!; echo status $?"]) as terminal:
        terminal.expect("runs in the background")
        terminal.expect("status 2")
        terminal.wait()
    assert "made\n" not in terminal.text


@pytest.mark.parametrize("words", [("--audit",), ("--cgroup", "/x"), ("--uid", "nobody")])
def test_where_nothing_is_asked_it_means_nothing(world, words):
    done = world.weir("run", "--ask", "tty", *words, "--", "true")
    assert done.code == 2 and "--ask" in done.messages, done
    assert world.weir("run", "--ask", "nobody", "--", "true").code == 2
