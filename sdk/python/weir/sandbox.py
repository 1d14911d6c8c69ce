# SPDX-License-Identifier: Apache-2.0
"""A guarded container of Docker or podman, by `weir container run`.

    with Sandbox.create(image="python:3.12-slim", network_policy=NetworkPolicy(egress=[…])) as sandbox:
        sandbox.run(["pip", "download", "six"])

    sandbox = await Sandbox.create(image=…)         in a coroutine; its methods are then awaited
"""
from __future__ import annotations

import asyncio
import http.client
import json
import os
import selectors
import socket as sockets
import struct
import subprocess
import tempfile
import time
from typing import Any, AsyncIterator, Dict, Generator, IO, List, Mapping, Optional, Sequence, Tuple, Union

from ._errors import ApiError, EgressSetupError, InputError, WeirError
from ._launch import PathName, setup_reason
from ._policy import AnyPolicy, AnyRule, NetworkPolicy, policy_to_wire, words
from ._program import BAD_INPUT, faults_in, find_program, options, surroundings
from ._result import Result
from ._schema import Change, Denies, Status
from .aio import in_thread
from .client import Client, EventStream, SandboxClient, StreamEvent, UnixConnection

START_S = 120.0
LOOK_S = 0.1  # between two looks at whether the start is still wanted
STOP_S = 20.0
_HOLD = ["sleep", "infinity"]


class Sandbox:
    """One guarded container, which stands until close(), the end of the block, or the end of this process.

    id: its name. info: what `weir container run --info-fd` says, the token left out. client: its API.
    """

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], info_fd: int) -> None:
        self._process, self._errors, self._info_fd = process, errors, info_fd
        self._given_up = False
        self.info: Dict[str, Any] = {}
        self.id = ""
        self.client: Union[Client, SandboxClient] = Client()

    @classmethod
    def create(cls, image: str, network_policy: Optional[AnyPolicy] = None, *, command: Optional[Sequence[str]] = None,
               profile: Union[str, Sequence[str]] = (), id: Optional[str] = None, engine: Optional[str] = None,
               network: Optional[str] = None, env: Optional[Mapping[str, str]] = None, volumes: Sequence[str] = (),
               user: Optional[str] = None, workdir: Optional[str] = None, guard: Optional[str] = None,
               weir_image: Optional[str] = None, socket: Optional[PathName] = None) -> Sandbox:
        """Start a container of @image that reaches what @network_policy lists: nothing, without one.

        command: its first process, by default `sleep infinity`. The others are options of weir-container(1). Returns when it
        runs, guarded; in a coroutine at once, and `await` gives an AsyncSandbox when it runs. InputError: the policy or an
        option is wrong; EgressSetupError: it can't be guarded, or has no image or engine. Nothing runs then.
        """
        said = [*options("profile", words(profile)), *options("set-env", [f"{k}={v}" for k, v in (env or {}).items()]),
                *options("volume", list(volumes))]
        if socket is None and guard != "sidecar":  # the variable names a daemon
            socket = os.environ.get("WEIR_SOCKET")
        for name, value in (("id", id), ("engine", engine), ("network", network), ("user", user), ("workdir", workdir),
                            ("guard", guard), ("weir-image", weir_image), ("socket", socket)):
            said += [f"--{name}", os.fspath(value)] if value is not None else []
        made = cls._start(image, said, network_policy, list(command or _HOLD))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            made._wait_or_close()
        return made

    @classmethod
    def _start(cls, image: str, said: List[str], policy: Optional[AnyPolicy], command: List[str]) -> Sandbox:
        errors = tempfile.TemporaryFile()
        ours, theirs = os.pipe()
        document = os.memfd_create("weir-policy")
        try:
            os.write(document, json.dumps(policy_to_wire(policy or {})).encode())
            os.lseek(document, 0, os.SEEK_SET)
            argv = [find_program(), "container", "run", "--image", image, "--policy", f"/dev/fd/{document}", "--info-fd", str(theirs),
                    *said, "--", *command]
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                                       env=surroundings(), pass_fds=[theirs, document])
        except BaseException:
            errors.close()
            os.close(ours)
            raise
        finally:
            os.close(theirs)
            os.close(document)
        return cls(process, errors, ours)

    def _wait_or_close(self) -> None:
        """Nothing of it is left where it doesn't come to run, whatever stopped the wait."""
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        """Until it runs."""
        if self.info:
            return
        line, end = b"", time.monotonic() + START_S
        with selectors.DefaultSelector() as ready:
            ready.register(self._info_fd, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                self._go_on(end)
                if not ready.select(LOOK_S):
                    continue
                if not (more := os.read(self._info_fd, 65536)):
                    raise self._failed()
                line += more
        info = json.loads(line)
        top = Client(info["api"].replace("unix://", "unix:"), token=info.pop("token", None))
        self.client = top.sandbox(info["id"]) if info["path"] else top
        # The line comes just before the start.
        while not self._is_started(info):
            if self._process.poll() is not None:
                raise self._failed()
            self._go_on(end)
            time.sleep(0.01)
        self.id, self.info = info["id"], info

    def _go_on(self, end: float) -> None:
        """The wait is still wanted, and not too long."""
        if self._given_up:
            raise EgressSetupError("the caller has given the container up")
        if time.monotonic() > end:
            raise EgressSetupError(f"the container did not start within {START_S:.0f} s")

    def _is_started(self, info: Mapping[str, Any]) -> bool:
        try:
            state = json.loads(self._engine_bytes(info, "GET", f"/containers/{info['container']}/json"))["State"]
            return bool(state["Running"]) or state["Status"] == "exited"
        except ApiError as error:
            if error.http_status != 404:
                raise
            return False

    def _failed(self) -> WeirError:
        """What the process said, which has ended or is ended here."""
        self._let_go()
        returncode = self._process.returncode
        self._errors.seek(0)
        said = self._errors.read()
        self.close()
        return InputError(faults_in(said)) if returncode == BAD_INPUT else EgressSetupError(setup_reason(said))

    def __await__(self) -> Generator[Any, None, AsyncSandbox]:
        return self._made().__await__()

    async def _made(self) -> AsyncSandbox:
        waiting = asyncio.ensure_future(in_thread(self._wait_or_close))
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # The thread uses the descriptors: it ends first, and closes them itself where the container doesn't run yet.
            self._given_up = True
            await _to_the_end(waiting)
            await _to_the_end(asyncio.ensure_future(in_thread(self.close)))
            raise
        return AsyncSandbox(self)

    def __enter__(self) -> Sandbox:
        self._wait_or_close()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: Sequence[str], *, timeout: Optional[float] = None, check: bool = False, user: Optional[str] = None,
            workdir: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> Result:
        """Run @command in the container, without input. Its Result has no report: denies() says what was refused.

        timeout: seconds without a byte, or from the end of its output to its own, then subprocess.TimeoutExpired; the command
        goes on until close().
        """
        self._wait()
        asked: Dict[str, Any] = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True, "User": user or "",
                                 "WorkingDir": workdir or "", "Env": [f"{k}={v}" for k, v in (env or {}).items()]}
        made = self._engine("POST", f"/containers/{self.info['container']}/exec", asked)["Id"]
        try:
            out, err = _split(self._engine_bytes(self.info, "POST", f"/exec/{made}/start", {"Detach": False, "Tty": False}, timeout))
        except sockets.timeout:
            raise subprocess.TimeoutExpired(list(command), timeout or 0) from None
        result = Result(list(command), self._exit_status(made, command, timeout), out, err, None)
        if check:
            result.check()
        return result

    def _exit_status(self, made: str, command: Sequence[str], timeout: Optional[float]) -> int:
        """Of a command whose output has ended; it may go on without."""
        end, pause = None if timeout is None else time.monotonic() + timeout, 0.01
        while (state := self._engine("GET", f"/exec/{made}/json"))["Running"] or state["ExitCode"] is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(list(command), timeout or 0)
            time.sleep(pause)
            pause = min(2 * pause, 0.5)
        return int(state["ExitCode"])

    @staticmethod
    def _engine_bytes(info: Mapping[str, Any], method: str, path: str, body: Optional[Any] = None,
                      timeout: Optional[float] = None) -> bytes:
        connection = UnixConnection(info["engineSocket"], timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except sockets.timeout:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, str(error), f"{method} {path}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, text.decode(errors="replace"), f"{method} {path}")
        return text

    def _engine(self, method: str, path: str, body: Optional[Any] = None) -> Dict[str, Any]:
        made: Dict[str, Any] = json.loads(self._engine_bytes(self.info, method, path, body))
        return made

    def _api(self) -> Union[Client, SandboxClient]:
        self._wait()
        return self.client

    def policy(self) -> NetworkPolicy:
        """The policy in force."""
        return self._api().policy()

    def set_policy(self, policy: Optional[AnyPolicy]) -> Change:
        """Put another policy in force."""
        return self._api().set_policy(policy)

    def patch_policy(self, rules: Sequence[AnyRule]) -> Change:
        """Put rules in front of those that are there."""
        return self._api().patch_policy(rules)

    def status(self) -> Status:
        """What is enforced, since when, and what isn't."""
        return self._api().status()

    def denies(self, since: Optional[str] = None, name: Optional[str] = None, limit: Optional[int] = None) -> Denies:
        """What was refused, the newest first."""
        return self._api().denies(since, name, limit)

    def events(self, last_event_id: Optional[str] = None) -> EventStream:
        """What happens, as it happens."""
        return self._api().events(last_event_id)

    def wait(self, timeout: Optional[float] = None) -> int:
        """The exit status of the first process."""
        self._wait()
        return self._process.wait(timeout)

    def close(self) -> None:
        """End it: both containers are removed when this returns."""
        self._let_go()
        self._errors.close()

    def _let_go(self) -> None:
        if self._info_fd >= 0:
            os.close(self._info_fd)
            self._info_fd = -1
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what outlives it removes both
            self._process.wait()


class AsyncSandbox:
    """The same Sandbox with methods to be awaited."""

    def __init__(self, plain: Sandbox) -> None:
        self.plain = plain
        self.id, self.info = plain.id, plain.info

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, command: Sequence[str], **words: Any) -> Result:
        done: Result = await in_thread(self.plain.run, command, **words)
        return done

    async def policy(self) -> NetworkPolicy:
        policy: NetworkPolicy = await in_thread(self.plain.policy)
        return policy

    async def set_policy(self, policy: Optional[AnyPolicy]) -> Change:
        change: Change = await in_thread(self.plain.set_policy, policy)
        return change

    async def patch_policy(self, rules: Sequence[AnyRule]) -> Change:
        change: Change = await in_thread(self.plain.patch_policy, rules)
        return change

    async def status(self) -> Status:
        status: Status = await in_thread(self.plain.status)
        return status

    async def denies(self, since: Optional[str] = None, name: Optional[str] = None, limit: Optional[int] = None) -> Denies:
        denies: Denies = await in_thread(self.plain.denies, since, name, limit)
        return denies

    async def events(self, last_event_id: Optional[str] = None) -> AsyncIterator[StreamEvent]:
        """What happens, as it happens."""
        stream = await in_thread(self.plain.events, last_event_id)
        try:
            while (event := await in_thread(next, stream, None)) is not None:
                yield event
        finally:
            stream.close()

    async def wait(self, timeout: Optional[float] = None) -> int:
        status: int = await in_thread(self.plain.wait, timeout)
        return status

    async def close(self) -> None:
        await in_thread(self.plain.close)


async def _to_the_end(task: asyncio.Future[Any]) -> None:
    """Wait for @task, whatever comes of it; another cancellation doesn't end the wait."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            pass
    if not task.cancelled():
        task.exception()


def _split(stream: bytes) -> Tuple[bytes, bytes]:
    """Standard output and error out of the engine's frames: a kind, three zeros, a length, the bytes."""
    parts: Dict[int, List[bytes]] = {1: [], 2: []}
    at = 0
    while at + 8 <= len(stream):
        kind, size = struct.unpack_from(">BxxxL", stream, at)
        parts.setdefault(kind, []).append(stream[at + 8:at + 8 + size])
        at += 8 + size
    return b"".join(parts[1]), b"".join(parts[2])
