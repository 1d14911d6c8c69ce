# SPDX-License-Identifier: Apache-2.0
"""A terminal with a program on it, and somebody who types."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from .expect import PATIENCE


class Terminal:
    """Run @argv (an argv that the world made) as the session leader of a new terminal."""

    def __init__(self, world, argv, **options):
        self._master, slave = pty.openpty()
        self.text = ""
        self.raw = b""
        self._read_to = 0
        # setsid does not fork when it is no group leader, so the pid stays ours.
        self.started = world.start(["setsid", "--ctty", *argv], stdin=slave, stdout=slave, stderr=slave,
                                   start_new_session=False, **options)
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.started.kill()
        if self._master >= 0:
            self.hang_up()

    def type(self, text):
        os.write(self._master, text.encode())

    def expect(self, pattern, timeout=PATIENCE):
        """Wait until @pattern (a regular expression) appears behind what was expected before."""
        end = time.monotonic() + timeout
        while True:
            found = re.compile(pattern).search(self.text, self._read_to)
            if found:
                self._read_to = found.end()
                return found
            if not self._more(end - time.monotonic()):
                raise AssertionError(f"no {pattern!r} in:\n{self.text[-3000:]}")

    def rest(self, timeout=PATIENCE):
        """Everything until the program has gone."""
        end = time.monotonic() + timeout
        while self._more(end - time.monotonic()):
            pass
        return self.text

    def resize(self, rows, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self):
        """Close the terminal, as when its window goes."""
        os.close(self._master)
        self._master = -1

    def wait(self, timeout=PATIENCE):
        """The exit status."""
        self.rest(timeout)
        return self.started.process.wait(timeout)

    def _more(self, seconds):
        if seconds <= 0 or not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the last one on the terminal has left
            return False
        self.raw += data
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
