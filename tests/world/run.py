# SPDX-License-Identifier: Apache-2.0
"""Starting programs and looking at how they ended."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from .expect import PATIENCE

# Set where the tests run again with builds for tests alone (tests/run): what those say about themselves first is
# no part of what is tested then.
ASIDE = re.compile(rb"^weir: (a build for tests|built with a sanitizer): [^\n]*\n", re.M)
SET_ASIDE = bool(os.environ.get("WEIR_FOR_TESTS"))


@dataclasses.dataclass
class Result:
    """How a program ended."""
    code: int           # negative: the signal that killed it
    out: bytes
    err: bytes
    seconds: float

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def messages(self):
        return self.err.decode(errors="replace")

    def __str__(self):
        return (f"exit {self.code} after {self.seconds:.2f} s\n--- stdout\n{self.text[-4000:]}"
                f"\n--- stderr\n{self.messages[-4000:]}")

    def json(self):
        return json.loads(self.out)


class Started:
    """A program under way, in a session of its own unless it was given a terminal."""

    def __init__(self, argv, **options):
        options.setdefault("stdin", subprocess.PIPE)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("start_new_session", True)
        self.began = time.monotonic()
        self.process = subprocess.Popen(argv, **options)
        self.pid = self.process.pid

    def line(self):
        """The next line that the program says on stdout, without its newline."""
        return self.process.stdout.readline().decode().rstrip("\n")

    def say(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, input=None, timeout=PATIENCE):
        return finish(self, input, timeout)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()
        self.process.wait()


def start(argv, **options):
    return Started(argv, **options)


def doing(pid):
    """What @pid and what it has started wait for, a line each thread: of a hang that is seen once."""
    lines = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            stack = [line.split()[-1] for line in (task / "stack").read_text().splitlines()]
            lines.append(f"{task.name} {(task / 'comm').read_text().strip()}: {' < '.join(stack)}")
            for child in (task / "children").read_text().split():
                lines += doing(child)
    return lines


def finish(started, input=None, timeout=PATIENCE):
    """Wait for the end. Too slow is a failure that shows what was said so far."""
    process = started.process
    try:
        out, err = process.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        waits = "\n".join(doing(started.pid))
        process.send_signal(signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            out, err = b"", b"(and something keeps its pipes open)"
        done = Result(-9, out or b"", err or b"", time.monotonic() - started.began)
        raise AssertionError(f"still running after {timeout} s: {process.args}\n{done}\n--- it waited in\n{waits}") from None
    err = ASIDE.sub(b"", err or b"") if SET_ASIDE else err
    return Result(process.returncode, out or b"", err or b"", time.monotonic() - started.began)


class Answer(dict):
    """What one probe saw; see probe.py for the keys."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name} in {dict(self)}") from None


def read_answers(done, count):
    """The answers that probe.py printed, one a line; anything else is a failure."""
    try:
        answers = [json.loads(line, object_hook=Answer) for line in done.text.splitlines()]
    except ValueError:
        raise AssertionError(f"the probe said something odd: {done}") from None
    if len(answers) != count:
        raise AssertionError(f"{len(answers)} of {count} probes answered: {done}")
    return answers
