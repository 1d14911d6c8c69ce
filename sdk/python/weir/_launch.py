# SPDX-License-Identifier: Apache-2.0
"""From what a caller asks for to a command line of `weir run`, and from its end to a Result: what the plain and the
asynchronous functions share."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Dict, List, Mapping, Optional, Sequence, Union, cast

from ._errors import EgressSetupError, InputError
from ._policy import PolicySource, policy_to_wire, words
from ._program import BAD_INPUT, FAILED, faults_in, find_program, options, surroundings
from ._result import Report, Result
from .client import Client, RunServer, SandboxClient

PathName = Union[str, "os.PathLike[str]"]
Command = Sequence[PathName]


@dataclasses.dataclass
class Guard:
    """What a command may reach, see and write: the options of `weir run`, which weir-run(1) describes.

    allow, deny: targets, "pypi.org:443". profile: a name, or several. policy: a NetworkPolicy, a document, or a file. rw, ro,
    hide: paths. env: the environment, instead of the caller's; what looks like a secret is kept back unless pass_env names
    it. config: read the user's configuration and .weir.yaml as well, which the command line does and a call doesn't. wrapper:
    words that stand before weir on the command line. outlive: the command goes on when the calling process ends.
    """

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    profile: Union[str, Sequence[str]] = ()
    policy: Optional[PolicySource] = None
    verify: Optional[str] = None
    denied_names: Optional[str] = None
    id: Optional[str] = None
    uid: Union[int, str, None] = None
    cgroup: Optional[PathName] = None
    socket: Optional[PathName] = None
    uplink: Optional[str] = None
    upstream: Union[str, Sequence[str]] = ()
    repin_interval: Optional[str] = None
    rw: Sequence[PathName] = ()
    rw_preset: Union[str, Sequence[str]] = ()
    ro: Sequence[PathName] = ()
    hide: Sequence[PathName] = ()
    hide_preset: Optional[str] = None
    home: Optional[str] = None
    cwd: Optional[PathName] = None
    env: Optional[Mapping[str, str]] = None
    env_preset: Optional[str] = None
    pass_env: Sequence[str] = ()
    set_env: Optional[Mapping[str, str]] = None
    self_test: Optional[str] = None
    fail_on_deny: bool = False
    state_dir: Optional[PathName] = None
    config: bool = False
    outlive: bool = False
    wrapper: Sequence[str] = ()

    def words(self) -> List[str]:
        """The options but for the policy's file."""
        said = [*options("allow", words(self.allow)), *options("deny", words(self.deny)), *options("profile", words(self.profile)),
                *options("upstream", words(self.upstream)), *options("rw-preset", words(self.rw_preset))]
        for name in ("rw", "ro", "hide"):
            said += options(name, [os.fspath(path) for path in getattr(self, name)])
        for name in ("verify", "denied_names", "id", "uid", "cgroup", "socket", "uplink", "repin_interval", "hide_preset", "home",
                     "self_test", "state_dir"):
            value = getattr(self, name)
            if value is not None:
                said += [f"--{name.replace('_', '-')}", os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
        said += options("pass-env", words(self.pass_env))
        said += options("set-env", [f"{name}={value}" for name, value in (self.set_env or {}).items()])
        if self.env_preset is not None:
            said += ["--env", self.env_preset]
        return said + ["--fail-on-deny"] * self.fail_on_deny + ["--no-config"] * (not self.config)


class Launch:
    """One command line, and the files that weir reads the policy from and writes the report to. They have no name, so that
    nothing is left of them, however the caller ends; close() lets go of them."""

    def __init__(self, command: Command, guard: Guard, quiet: bool) -> None:
        if isinstance(command, (str, bytes)) or not command:
            raise InputError(["a command is a list of words: no shell reads it"])
        self.command = [os.fspath(word) for word in command]
        self.guard = guard
        self.fds: List[int] = []
        self._policy_name = "policy"
        try:
            self._report_fd = self._file("weir-report", b"")
            self.argv = self._words(quiet)
        except BaseException:
            self.close()
            raise
        self.env: Dict[str, str] = surroundings(guard.env)
        if guard.config:
            self.env.update((name, value) for name, value in os.environ.items() if name.startswith("WEIR_") and name != "WEIR_PROGRAM")

    def _words(self, quiet: bool) -> List[str]:
        guard = self.guard
        said = [*guard.wrapper, find_program(), "run", *guard.words(), "--report", f"json:/dev/fd/{self._report_fd}"]
        if guard.policy is not None:
            said += ["--policy", self._policy_file(guard.policy)]
        if quiet:
            said.append("--quiet")
        if not guard.outlive:
            said += ["--end-with", str(os.getpid())]
        return [*said, "--", *self.command]

    def _file(self, name: str, content: bytes) -> int:
        fd = os.memfd_create(name)
        self.fds.append(fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _policy_file(self, policy: PolicySource) -> str:
        if isinstance(policy, (str, os.PathLike)):
            return os.fspath(policy)
        self._policy_name = f"/dev/fd/{self._file('weir-policy', json.dumps(policy_to_wire(policy)).encode())}"
        return self._policy_name

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    def _report(self) -> Optional[Report]:
        text = os.pread(self._report_fd, os.fstat(self._report_fd).st_size, 0)
        try:
            return cast(Report, json.loads(text)) if text else None
        except ValueError:
            return None

    def finish(self, returncode: int, stdout: bytes, stderr: bytes) -> Result:
        """Return: the Result. InputError, EgressSetupError: the command did not run, or Weir failed under way."""
        report = self._report()
        self.close()
        failed = report is None or report["weir_failed"]
        if failed and returncode == BAD_INPUT:
            raise InputError(faults_in(stderr.replace(self._policy_name.encode() + b":", b"policy:")) or ["weir said why on standard error"])
        if failed and (returncode == FAILED or report is None and returncode >= 0):
            raise EgressSetupError(setup_reason(stderr), self.guard.id)
        return Result(self.command, returncode, stdout, stderr, report)

    def client(self, pid: int) -> SandboxClient:
        """Where the run of process @pid is asked, and given another policy."""
        if self.guard.uid is not None or self.guard.cgroup is not None:
            if self.guard.id is None:
                raise InputError(["a run on the host is asked by its id: give one"])
            return Client(os.fspath(self.guard.socket) if self.guard.socket else None).sandbox(self.guard.id)
        name = self.guard.id or f"run-{pid}"
        return SandboxClient(RunServer(name), name)


def setup_reason(stderr: bytes) -> str:
    """What weir said, without the mark that EgressSetupError has itself."""
    lines = faults_in(stderr)
    mark = f"{EgressSetupError.status}: "
    marked = [line.split(mark)[-1] for line in lines if mark in line]
    return "; ".join(marked or lines) or "weir said why on standard error"
