# SPDX-License-Identifier: Apache-2.0
"""Programs that the tests ask line by line: the driver of the filter is one."""
import contextlib
import subprocess


class Lines:
    """A program that is asked and answers line by line."""

    def __init__(self, *command):
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(command, text=True, bufsize=1, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def line(self):
        return self.process.stdout.readline().strip()

    def put(self, line):
        self.process.stdin.write(line + "\n")

    def close(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


class FilterDriver(Lines):
    """filter_driver, which answers "ok …" or "error …"."""

    def ask(self, line):
        """The words behind "ok", or the text of the error."""
        self.put(line)
        word, _, rest = self.line().partition(" ")
        assert word in ("ok", "error"), f"the driver died of: {line}"
        return rest.split() if word == "ok" else rest

    def ok(self, line):
        answer = self.ask(line)
        assert isinstance(answer, list), f"{line}: {answer}"
        return answer
