# SPDX-License-Identifier: Apache-2.0
"""`isolated_run`, and its pieces for callers that start their processes themselves."""
from __future__ import annotations

import dataclasses
import os
import pathlib
import pwd
import shutil
import sys
from typing import Any, Dict, List, Optional, Tuple, Union, cast

from . import store
from ._errors import ApiError, EgressSetupError, InputError, WeirError
from ._launch import Command, Guard, PathName
from ._policy import PolicySource, policy_to_wire
from ._program import ask, ask_json
from ._result import Refusal, Result
from ._run import run
from ._verdict import Verdict
from .client import SOCKET, Client

# Nobody has this address (RFC 5737).
DENIED = "203.0.113.1:9"
# What the caller says with words of isolated_run()'s own, or Isolation decides. The self-test is refused something in each run.
TAKEN = {"profile": "egress_profile", "id": "analysis_id", "wrapper": None, "fail_on_deny": None}
# What _probe.py, a program of its own, sends to be refused.
SELF_TEST = [("203.0.113.1", 9), ("2001:db8::1", 9)]
PROBE = str(pathlib.Path(__file__).with_name("_probe.py"))


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """What was tried from inside, before the command: both hold. allowed: None where the profile allows nothing."""

    allowed: Optional[str]
    denied: str
    duration_ms: float


@dataclasses.dataclass
class IsolatedResult(Result):
    """self_test: what was tried before the command."""

    self_test: Optional[SelfTest] = None
    sandbox_id: Optional[str] = None

    @property
    def refused(self) -> List[Refusal]:
        """What was refused, without what the self-test sent to addresses that nobody has.

        A host of self_test_denied= is listed: the report doesn't tell the self-test's attempts from the command's.
        """
        return [one for one in super().refused if (one.address, one.port) not in SELF_TEST]


def build_allowlist(profile: str = "default") -> List[str]:
    """The hosts, wildcards and addresses that @profile allows, in its order, without ports. InputError: no such profile."""
    return list(dict.fromkeys(rule["target"] for rule in _rules(profile) if rule["action"] == "allow"))


def apply_nft_ruleset(profile: str = "default", sandbox_uid: Optional[int] = None, sandbox_cgroup: Optional[PathName] = None) -> str:
    """The text that guards a control group, or where there is none a user, by `nft -f` alone: names as they resolve now.

    apply_egress_ruleset() puts rules in force.
    """
    if sandbox_cgroup is None and sandbox_uid is None:
        raise InputError(["a ruleset is for a user or a control group"])
    whose = ["--cgroup", os.fspath(sandbox_cgroup)] if sandbox_cgroup is not None else ["--uid", str(sandbox_uid)]
    return ask("render", "--profile", profile, *whose)


def apply_egress_ruleset(profile: str = "default", sandbox_uid: Optional[int] = None, sandbox_cgroup: Optional[PathName] = None,
                         sandbox_id: Optional[str] = None, socket: Optional[str] = None) -> str:
    """Guard a control group or a user from now on. Return: the id that tear_down() takes.

    Under the daemon where one answers at @socket; else the rules of apply_nft_ruleset() are installed, which takes root.
    EgressSetupError: it is not guarded, and nothing may be started there.
    """
    if (sandbox_uid is None) == (sandbox_cgroup is None):
        raise InputError(["exactly one of a user and a control group is guarded"])
    name = sandbox_id or (f"uid-{sandbox_uid}" if sandbox_cgroup is None else pathlib.Path(sandbox_cgroup).name)
    daemon = Client(socket)
    try:
        if daemon.is_healthy():
            daemon.attach(name, uid=sandbox_uid, cgroup=None if sandbox_cgroup is None else os.fspath(sandbox_cgroup),
                          policy=_document(profile), again=True)
        else:
            whose = ["--uid", str(sandbox_uid)] if sandbox_cgroup is None else ["--cgroup", os.fspath(sandbox_cgroup)]
            ask("render", "--install", "--id", name, "--profile", profile, *whose)
    except InputError:
        raise
    except WeirError as error:
        raise EgressSetupError(str(error), name) from error
    return name


def tear_down(sandbox_id: str, socket: Optional[str] = None) -> None:
    """Take away what apply_egress_ruleset() put in force: it is open then. WeirError: there is nothing of that id."""
    daemon = Client(socket)
    if daemon.is_healthy():
        try:
            daemon.detach(sandbox_id)
            return
        except ApiError as error:
            if error.http_status != 404:
                raise
    ask("teardown", sandbox_id)


def egress_self_test(profile: str = "default", *, denied: str = DENIED, allowed: Optional[str] = None, **options: Any) -> SelfTest:
    """Try one allowed and one denied host (HOST:PORT) in a sandbox of their own. EgressSetupError: one of them isn't so.

    allowed: by default the first host of the profile. options: as isolated_run() takes them.
    """
    result = isolated_run(["/bin/true"], profile, self_test_denied=denied, self_test_allowed=allowed, **options)
    if result.returncode != 0 or not result.self_test:
        raise EgressSetupError(f"the self-test ended with {result.returncode}", result.sandbox_id)
    return result.self_test


def isolated_run(cmd: Command, egress_profile: str = "default", analysis_id: Optional[str] = None, uid: Union[int, str, None] = None,
                 cgroup: Optional[PathName] = None, repin_interval: Union[str, float, None] = None, *,
                 self_test_allowed: Optional[str] = None, self_test_denied: str = DENIED, socket: Optional[str] = None,
                 state_dir: Optional[PathName] = None, timeout: Optional[float] = None, check: bool = False,
                 input: Union[None, str, bytes] = None, capture: bool = True, **options: Any) -> IsolatedResult:
    """Run @cmd with the hosts of @egress_profile ("default", "notebook", "none", or another), and nothing else.

    With @uid or @cgroup it runs on the host as that user, in that control group, guarded by the daemon, where one runs. Where
    none does, and without both, it has namespaces of its own, which takes no right.
    Before the command one allowed and one denied host are tried from inside. analysis_id: what the sandbox is called, in
    events too. repin_interval: seconds, or "6h": names are resolved at the start and then so often; None: when they are asked for.
    The sandbox ends with the command, with an exception, and with the calling process.
    EgressSetupError (status failed_safety_setup): it could not be guarded, and @cmd did not run.
    """
    isolation = Isolation(egress_profile, analysis_id, uid, cgroup, repin_interval, socket, state_dir)
    with Probe(egress_profile, self_test_allowed, self_test_denied, isolation.user()) as probe:
        guard = isolation.guard(options, probe)
        result = run(probe.before(cmd), input=input, timeout=timeout, capture=capture, guard=guard)
    return isolation.finish(probe, cmd, result, check)


class Isolation:
    """Where an isolated_run() runs, and what is kept of it."""

    def __init__(self, profile: str, analysis_id: Optional[str], uid: Union[int, str, None], cgroup: Optional[PathName],
                 repin_interval: Union[str, float, None], socket: Optional[str], state_dir: Optional[PathName]) -> None:
        self.id, self._uid, self._cgroup = analysis_id, uid, cgroup
        self._socket = socket or os.environ.get("WEIR_SOCKET") or SOCKET
        self._profile, self._state_dir = profile, state_dir
        self._repin = f"{int(repin_interval)}s" if isinstance(repin_interval, (int, float)) else repin_interval
        self._on_host = (uid is not None or cgroup is not None) and Client(self._socket).is_healthy()
        self._kept_here = False

    def user(self) -> Optional[int]:
        return None if self._uid is None else _user(self._uid).pw_uid

    def guard(self, options: Dict[str, Any], probe: Probe) -> Guard:
        taken = [f"{name}= is {'not for isolated_run()' if own is None else 'called ' + own + '= here'}"
                 for name, own in TAKEN.items() if name in options]
        if taken:
            raise InputError(taken)
        asked: Dict[str, Any] = {**options, "id": self.id, "profile": self._profile}
        if self._repin:
            asked["policy"] = _pinned(options.get("policy"), self._repin)
        if self._on_host:
            return Guard(**asked, uid=self._uid, cgroup=self._cgroup, socket=self._socket)
        asked["rw"] = [*options.get("rw", ()), probe.directory]
        # Another user could not write to the caller's store: what was refused is added to it afterwards.
        wrapper, self._kept_here = self._wrapper()
        if not self._kept_here:
            asked["state_dir"] = self._state_dir or store.state_directory()
        return Guard(**asked, wrapper=wrapper)

    def _wrapper(self) -> Tuple[List[str], bool]:
        """What enters the control group and becomes the user before weir, and whether that is another user."""
        words: List[str] = []
        if self._cgroup is not None:
            group = _cgroup_directory(self._cgroup)
            words += ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@" || exit 125', str(group / "cgroup.procs")]
        if self._uid is None:
            return words, False
        user = _user(self._uid)
        if user.pw_uid == os.geteuid():
            return words, False
        if os.geteuid() != 0:
            raise EgressSetupError(f"only root can run as user {self._uid}, and no daemon answers", self.id)
        setpriv = shutil.which("setpriv")
        if not setpriv:
            raise EgressSetupError("there is no setpriv to become another user by", self.id)
        return [*words, setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"], True

    def finish(self, probe: Probe, cmd: Command, result: Result, check: bool) -> IsolatedResult:
        test = probe.read(result, self.id)
        if self._kept_here:
            for one in result.refused:
                store.record_egress_event(self.id, "deny", one.address, one.port, one.name, one.times, store=self._state_dir)
        done = IsolatedResult([os.fspath(word) for word in cmd], result.returncode, result.stdout_bytes, result.stderr_bytes,
                              result.report, test, self.id)
        if check:
            done.check()
        return done


class Probe(Verdict):
    """The self-test of one run, in `with`: it is read afterwards."""

    def __init__(self, profile: str, allowed: Optional[str], denied: str, user: Optional[int]) -> None:
        super().__init__(user)
        self.allowed, self.denied = allowed or _first_host(profile), denied

    def __enter__(self) -> Probe:
        super().__enter__()
        return self

    def before(self, cmd: Command) -> List[str]:
        if isinstance(cmd, (str, bytes)) or not cmd:
            raise InputError(["a command is a list of words: no shell reads it"])
        return [sys.executable or "/usr/bin/python3", "-IS", PROBE, self.path, self.allowed or "", self.denied, "--",
                *(os.fspath(word) for word in cmd)]

    def read(self, result: Result, sandbox_id: Optional[str]) -> SelfTest:
        """EgressSetupError: it failed, or said nothing."""
        word, _, rest = self.said.decode(errors="replace").strip().partition(" ")
        if word == "ok":
            return SelfTest(self.allowed, self.denied, float(rest))
        raise EgressSetupError(rest or result.stderr.strip() or f"the self-test said nothing: it ended with {result.returncode}",
                               sandbox_id)


def _pinned(policy: Optional[PolicySource], repin: str) -> Dict[str, Any]:
    """@policy with its names resolved at the start and every @repin. InputError: it says otherwise, or can't be added to."""
    if isinstance(policy, (str, os.PathLike)):
        raise InputError([f"{os.fspath(policy)}: repin_interval= can't be added to a file: say dns and repin there"])
    document = policy_to_wire(policy if policy is not None else {"egress": []})
    inner = dict(document["network_policy"]) if "network_policy" in document else document
    asked = {"dns": "pinned", "repin": repin}
    faults = [f"policy: {name} is {inner[name]!r}, and repin_interval= asks for {value!r}" for name, value in asked.items()
              if inner.get(name, value) != value]
    if faults:
        raise InputError(faults)
    inner.update(asked)
    return {**document, "network_policy": inner} if "network_policy" in document else inner


def _document(profile: str) -> Dict[str, Any]:
    """The policy that @profile is with all that it extends, under `verify: tls` where it says none."""
    return cast(Dict[str, Any], ask_json("policy", "show", "--json", "--profile", profile))


def _rules(profile: str) -> List[Dict[str, Any]]:
    """The rules of @profile, in the order in which they count."""
    return cast(List[Dict[str, Any]], _document(profile)["egress"])


def _first_host(profile: str) -> Optional[str]:
    """HOST:PORT, of an exact name with a port of TCP."""
    for rule in _rules(profile):
        ports = [str(port) for port in rule.get("ports", [443])]
        port = next((p.split("/")[-1].split("-")[0] for p in ports if not p.startswith("udp/")), None)
        if rule["action"] == "allow" and port and port.isdigit() and "*" not in rule["target"] and "/" not in rule["target"]:
            return f"{rule['target']}:{port}"
    return None


def _user(uid: Union[int, str]) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(uid) if isinstance(uid, str) and not uid.isdigit() else pwd.getpwuid(int(uid))
    except KeyError:
        if isinstance(uid, str) and not uid.isdigit():
            raise InputError([f"there is no user {uid!r}"]) from None
        return pwd.struct_passwd(("", "x", int(uid), int(uid), "", "/", ""))


def _cgroup_directory(cgroup: PathName) -> pathlib.Path:
    """Its directory; a path that is none counts from the root of the hierarchy."""
    path = pathlib.Path(cgroup)
    if (path / "cgroup.procs").exists():
        return path
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and (found := pathlib.Path(place) / str(path).lstrip("/")).is_dir():
            return found
    raise EgressSetupError(f"there is no control group {cgroup}")
