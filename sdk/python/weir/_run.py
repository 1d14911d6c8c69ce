# SPDX-License-Identifier: Apache-2.0
"""A guarded process: `weir run` in the form of subprocess."""
from __future__ import annotations

import signal as signals
import subprocess
from typing import IO, Any, List, Optional, Tuple, Union

from ._launch import Command, Guard, Launch
from ._policy import NetworkPolicy
from ._result import Refusal, Result
from .client import SandboxClient

GRACE_S = 2.0  # between SIGTERM and SIGKILL
_File = Union[None, int, IO[Any]]


class Popen:
    """A guarded process under way.

    The words after the command are those of Guard. stdin, stdout and stderr are subprocess's: None inherits, PIPE, DEVNULL, a
    file; the pipes are binary. With stderr=PIPE Weir says nothing there but its failures. Leaving the block ends the process.
    """

    def __init__(self, command: Command, *, stdin: _File = None, stdout: _File = None, stderr: _File = None,
                 guard: Optional[Guard] = None, **options: Any) -> None:
        self._launch = Launch(command, guard or Guard(**options), quiet=stderr is not None)
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                self._launch.argv, stdin=stdin, stdout=stdout, stderr=stderr, env=self._launch.env, cwd=self._launch.guard.cwd,
                pass_fds=self._launch.fds)
        except BaseException:
            self._launch.close()
            raise
        self.args: List[str] = self._launch.command
        self._result: Optional[Result] = None

    stdin = property(lambda self: self.process.stdin, doc="The pipe, or None.")
    stdout = property(lambda self: self.process.stdout, doc="The pipe, or None.")
    stderr = property(lambda self: self.process.stderr, doc="The pipe, or None.")

    @property
    def pid(self) -> int:
        """Of weir, which takes signals for the command."""
        return self.process.pid

    @property
    def returncode(self) -> Optional[int]:
        return self.process.returncode

    def __enter__(self) -> Popen:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._launch.close()

    def poll(self) -> Optional[int]:
        return self.process.poll()

    def wait(self, timeout: Optional[float] = None) -> int:
        """The exit status. subprocess.TimeoutExpired after @timeout seconds; the process goes on."""
        return self.process.wait(timeout)

    def communicate(self, input: Optional[bytes] = None, timeout: Optional[float] = None) -> Tuple[bytes, bytes]:
        """As subprocess.Popen's; what is no pipe is empty. Afterwards result() says how it ended."""
        out, err = self.process.communicate(input, timeout)
        if self._result is None:
            self._result = self._launch.finish(self.process.returncode, out or b"", err or b"")
        return out or b"", err or b""

    def result(self) -> Result:
        """Wait for the end, and say how that was. EgressSetupError, InputError: nothing ran, or not guarded to the end."""
        if self._result is None:
            self.communicate()
        assert self._result is not None
        return self._result

    def refused(self) -> List[Refusal]:
        """What was refused, once it has ended."""
        return self.result().refused

    def send_signal(self, signal: int) -> None:
        self.process.send_signal(signal)

    def terminate(self) -> None:
        """SIGTERM to the command."""
        self.send_signal(signals.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to weir, and so to all that is in the sandbox. No report is written then."""
        self.process.kill()

    def stop(self, grace: float = GRACE_S) -> None:
        """SIGTERM, and SIGKILL when it has not ended after @grace seconds. Returns when it has ended."""
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()
        self.process.wait()

    @property
    def client(self) -> SandboxClient:
        """The API of the run while it is under way: policy(), patch_policy(), status()."""
        return self._launch.client(self.process.pid)

    def policy(self) -> NetworkPolicy:
        """The policy in force."""
        return self.client.policy()


def run(command: Command, *, input: Union[None, str, bytes] = None, timeout: Optional[float] = None, check: bool = False,
        capture: bool = True, stdin: _File = None, **options: Any) -> Result:
    """Run @command guarded, to its end. @options are those of Guard: allow, deny, profile, policy, rw, cwd …

    input: for its standard input. timeout: seconds; then SIGTERM, two seconds later SIGKILL, and subprocess.TimeoutExpired,
    whose `result` says what was refused. check: Refused or subprocess.CalledProcessError where it fails. capture: False leaves
    standard output and error the caller's. InputError: bad policy or options; EgressSetupError: it can't be guarded; nothing
    ran then.
    """
    data = input.encode() if isinstance(input, str) else input
    pipe = subprocess.PIPE if capture else None
    with Popen(command, stdin=stdin if data is None else subprocess.PIPE, stdout=pipe, stderr=pipe, **options) as process:
        try:
            process.communicate(data, timeout)
        except subprocess.TimeoutExpired as expired:
            raise _late(process, expired) from None
        result = process.result()
    if check:
        result.check()
    return result


def _late(process: Popen, expired: subprocess.TimeoutExpired) -> subprocess.TimeoutExpired:
    """End it, and read what it said."""
    process.terminate()
    try:
        out, err = process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    late = subprocess.TimeoutExpired(process.args, expired.timeout, out, err)
    setattr(late, "result", process.result())
    return late
