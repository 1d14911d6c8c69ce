# SPDX-License-Identifier: Apache-2.0
"""The same for asyncio: run(), Popen, isolated_run(), Client. What is cancelled has ended when the cancellation arrives."""
from __future__ import annotations

import asyncio
import subprocess
from typing import IO, Any, AsyncIterator, Awaitable, Callable, List, Optional, Union

from . import client as _client
from ._launch import Command, Guard, Launch, PathName
from ._policy import NetworkPolicy
from ._result import Result
from ._run import GRACE_S
from .client import StreamEvent
from .egress import DENIED, IsolatedResult, Isolation, Probe

PIPE = asyncio.subprocess.PIPE


class Popen:
    """A guarded process under way: `process = await Popen.start([...], stdout=PIPE)`, `async with process: …`."""

    def __init__(self, launch: Launch, process: asyncio.subprocess.Process) -> None:
        self._launch, self.process = launch, process
        self.args: List[str] = launch.command
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._result: Optional[Result] = None

    @classmethod
    async def start(cls, command: Command, *, stdin: Union[None, int, IO[Any]] = None, stdout: Union[None, int, IO[Any]] = None,
                    stderr: Union[None, int, IO[Any]] = None, guard: Optional[Guard] = None, **options: Any) -> Popen:
        """As weir.Popen."""
        launch = Launch(command, guard or Guard(**options), quiet=stderr is not None)
        try:
            process = await asyncio.create_subprocess_exec(*launch.argv, stdin=stdin, stdout=stdout, stderr=stderr,
                                                           env=launch.env, cwd=launch.guard.cwd, pass_fds=launch.fds)
        except BaseException:
            launch.close()
            raise
        return cls(launch, process)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> Optional[int]:
        return self.process.returncode

    async def __aenter__(self) -> Popen:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._launch.close()

    async def communicate(self, input: Optional[bytes] = None) -> Result:
        """Give it @input, read what it says to its end. Return: how it ended."""
        out, err = await self.process.communicate(input)
        return self._finish(out, err)

    async def result(self) -> Result:
        """Wait for the end, and say how that was."""
        if self._result is None:
            await self.communicate()
        assert self._result is not None
        return self._result

    def _finish(self, out: Optional[bytes], err: Optional[bytes]) -> Result:
        if self._result is None:
            assert self.process.returncode is not None
            self._result = self._launch.finish(self.process.returncode, out or b"", err or b"")
        return self._result

    def terminate(self) -> None:
        """SIGTERM to the command."""
        self.process.terminate()

    def kill(self) -> None:
        """SIGKILL to weir, and so to all that is in the sandbox."""
        self.process.kill()

    async def stop(self, grace: float = GRACE_S) -> None:
        """SIGTERM, and SIGKILL when it has not ended after @grace seconds. A cancellation meanwhile makes it SIGKILL."""
        if self.process.returncode is not None:
            return
        try:
            self.process.terminate()
            await asyncio.wait_for(_drain(self.process), grace)
        except ProcessLookupError:
            pass
        except BaseException as error:
            if self.process.returncode is None:
                self.process.kill()
            if not isinstance(error, asyncio.TimeoutError):
                raise
        await self.process.wait()

    @property
    def client(self) -> Client:
        """The API of the run while it is under way."""
        return Client.of(self._launch.client(self.process.pid))


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Wait for the end; nobody reads its pipes any more."""
    await asyncio.gather(process.wait(), *(pipe.read() for pipe in (process.stdout, process.stderr) if pipe))


async def run(command: Command, *, input: Union[None, str, bytes] = None, timeout: Optional[float] = None, check: bool = False,
              capture: bool = True, **options: Any) -> Result:
    """As weir.run()."""
    data = input.encode() if isinstance(input, str) else input
    pipe = PIPE if capture else None
    async with await Popen.start(command, stdin=None if data is None else PIPE, stdout=pipe, stderr=pipe, **options) as process:
        said = asyncio.ensure_future(process.communicate(data))
        try:
            result = await asyncio.wait_for(asyncio.shield(said), timeout)
        except asyncio.TimeoutError:
            result = await _ended(process, said)
            late = subprocess.TimeoutExpired(process.args, timeout or 0, result.stdout_bytes, result.stderr_bytes)
            setattr(late, "result", result)
            raise late from None
        except BaseException:
            said.cancel()
            raise
    if check:
        result.check()
    return result


async def _ended(process: Popen, said: Awaitable[Result]) -> Result:
    process.terminate()
    try:
        return await asyncio.wait_for(asyncio.shield(said), GRACE_S)
    except asyncio.TimeoutError:
        process.kill()
        return await said


async def isolated_run(cmd: Command, egress_profile: str = "default", analysis_id: Optional[str] = None,
                       uid: Union[int, str, None] = None, cgroup: Optional[PathName] = None,
                       repin_interval: Union[str, float, None] = None, *, self_test_allowed: Optional[str] = None,
                       self_test_denied: str = DENIED, socket: Optional[str] = None, state_dir: Optional[PathName] = None,
                       timeout: Optional[float] = None, check: bool = False, input: Union[None, str, bytes] = None,
                       capture: bool = True, **options: Any) -> IsolatedResult:
    """As weir.isolated_run()."""
    isolation = await in_thread(Isolation, egress_profile, analysis_id, uid, cgroup, repin_interval, socket, state_dir)
    with await in_thread(Probe, egress_profile, self_test_allowed, self_test_denied, isolation.user()) as probe:
        guard = isolation.guard(options, probe)
        result = await run(probe.before(cmd), input=input, timeout=timeout, capture=capture, guard=guard)
    done: IsolatedResult = isolation.finish(probe, cmd, result, check)
    return done


class Client:
    """weir.Client with awaitable methods of the same names; events() is an asynchronous iterator. Requests are sent by
    threads of the loop's."""

    def __init__(self, address: Optional[str] = None, token: Optional[str] = None, cafile: Optional[str] = None,
                 timeout: Optional[float] = _client.TIMEOUT_S) -> None:
        self.plain: Union[_client.Client, _client.SandboxClient] = _client.Client(address, token, cafile, timeout)

    @classmethod
    def of(cls, plain: Union[_client.Client, _client.SandboxClient]) -> Client:
        """The same server as @plain's."""
        made = cls.__new__(cls)
        made.plain = plain
        return made

    def sandbox(self, sandbox_id: str) -> Client:
        assert isinstance(self.plain, _client.Client)
        return Client.of(self.plain.sandbox(sandbox_id))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.plain, name)
        if name.startswith("_") or not callable(method):
            raise AttributeError(name)

        async def ask(*arguments: Any, **words: Any) -> Any:
            return await in_thread(method, *arguments, **words)
        return ask

    async def events(self, last_event_id: Optional[str] = None) -> AsyncIterator[StreamEvent]:
        """What happens, as it happens."""
        stream = await in_thread(self.plain.events, last_event_id)
        try:
            while True:
                event = await in_thread(next, stream, None)
                if event is None:
                    return
                yield event
        finally:
            stream.close()

    async def policy(self) -> NetworkPolicy:
        """The policy in force."""
        policy: NetworkPolicy = await in_thread(self.plain.policy)
        return policy


async def in_thread(function: Callable[..., Any], *arguments: Any, **words: Any) -> Any:
    """@function by a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*arguments, **words))
