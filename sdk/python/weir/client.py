# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of `weir sidecar`, `weir daemon` and a `weir run` under way, as docs/openapi.yaml has it.

    Client()                                            the daemon's socket, /run/weir/weir.sock
    Client("unix:/run/user/1000/weir/build.sock")       a run's
    Client("http://127.0.0.1:18080", token="…")         a sidecar
    Client("https://weir.example:18443", token="…", cafile="ca.pem")

Each request has a connection of its own, so that a client may be used by any number of threads. What is answered with an
error is an ApiError.
"""
from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import ssl
import stat
import urllib.parse
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union, cast

from ._errors import ApiError
from ._policy import AnyPolicy, AnyRule, NetworkPolicy, policy_to_wire, rule_to_wire
from ._schema import (Activity, Change, Denies, DeniesCount, Done, Event, Explanation, PolicyCheck, PolicyStatus, ReviewTask,
                      ReviewTasks, Sandbox as SandboxStatus, Sandboxes, Status, StoredEvents, Top)

SOCKET = "/run/weir/weir.sock"
TOKEN_HEADER = "OPENSANDBOX-EGRESS-AUTH"
TIMEOUT_S = 60.0

Function = TypeVar("Function", bound=Callable[..., Any])


class Operation(NamedTuple):
    """What a method asks for. `path`: below the sandbox's own where it has one."""

    name: str
    method: str
    path: str
    schema: str  # of the answer; "" for text


def _operation(name: str, method: str, path: str, schema: str = "") -> Callable[[Function], Function]:
    """Mark a method as the operation @name of docs/openapi.yaml: a test compares both."""
    def mark(function: Function) -> Function:
        setattr(function, "operation", Operation(name, method, path, schema))
        return function
    return mark


class StreamEvent(NamedTuple):
    """One event of a stream. `id`: what `last_event_id` takes."""

    id: str
    action: str
    data: Event


class EventStream(Iterator[StreamEvent]):
    """An iterator over events, with a connection of its own: close() it, or use it in `with`."""

    def __init__(self, answer: http.client.HTTPResponse, path: str) -> None:
        self._answer, self._path = answer, path

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._answer.close()

    def __next__(self) -> StreamEvent:
        fields: Dict[str, str] = {}
        while True:
            try:
                line = b"" if self._answer.closed else self._answer.readline()
            except (OSError, http.client.HTTPException) as error:
                raise ApiError(0, str(error), f"GET {self._path}") from error
            if not line:
                self.close()
                raise StopIteration
            text = line.decode(errors="replace").rstrip("\r\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value[1:] if value.startswith(" ") else value
                continue
            if "data" in fields:
                return StreamEvent(fields.get("id", ""), fields.get("event", ""), cast(Event, json.loads(fields["data"])))
            fields = {}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            raise


def run_socket(run: str) -> str:
    """Where the caller's run of that id is asked. FileNotFoundError: no such run, or none in a directory of the caller's own.

    The places are those of weir-run(1), in its order: where another user may write, or has made the directory, that user's
    program would answer, and say that a policy is in force.
    """
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [(given, "weir")] if given.startswith("/run/") else []
    places += [(f"/run/user/{uid}", "weir"), ("/tmp" if uid else "/run", f"weir-{uid}")]
    for above, name in places:
        path = f"{above}/{name}/{run}.sock"
        if _is_fit(above) and _is_own(f"{above}/{name}") and os.path.exists(path):
            return path
    raise FileNotFoundError(errno.ENOENT, "no run of that id can be asked", run)


def _is_fit(above: str) -> bool:
    """Nobody else can take away from @above what is the caller's."""
    try:
        there = os.stat(above)
    except OSError:
        return False
    return there.st_uid == os.geteuid() or (there.st_uid == 0 and bool(there.st_mode & 0o022) and bool(there.st_mode & stat.S_ISVTX))


def _is_own(folder: str) -> bool:
    """Nobody else may enter @folder."""
    try:
        there = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid() and not there.st_mode & 0o077


class RunConnection(UnixConnection):
    """To a run of the caller's, whose socket is there a moment after its start."""

    def __init__(self, run: str, timeout: Optional[float]) -> None:
        super().__init__("", timeout)
        self._run = run

    def connect(self) -> None:
        self._path = run_socket(self._run)
        super().connect()


class _Server:
    """Where the API is, and how it is asked."""

    def __init__(self, address: Optional[str], token: Optional[str], cafile: Optional[str], timeout: Optional[float]) -> None:
        self.address = address or os.environ.get("WEIR_SOCKET") or SOCKET
        self.token, self.timeout = token, timeout
        url = urllib.parse.urlsplit(self.address)
        self._url = url if url.scheme in ("http", "https") else None
        if self._url and not url.hostname:
            raise ValueError(f"{self.address!r} names no host")
        self._path = self.address[5:] if self.address.startswith("unix:") else self.address
        self._tls = ssl.create_default_context(cafile=cafile) if url.scheme == "https" else None

    def connect(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        if self._url is None:
            return UnixConnection(self._path, timeout)
        host = cast(str, self._url.hostname)
        if self._tls:
            return http.client.HTTPSConnection(host, self._url.port or 443, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(host, self._url.port or 18080, timeout=timeout)

    def _advice(self, error: Exception) -> str:
        is_away = self._url is None and isinstance(error, (FileNotFoundError, ConnectionRefusedError))
        return "; is `weir daemon` running?" if is_away else ""

    def ask(self, method: str, path: str, body: Optional[Any] = None, headers: Optional[Mapping[str, str]] = None,
            timeout: Optional[float] = None) -> http.client.HTTPResponse:
        """Return: the answer, unread, with a status below 400. Else ApiError."""
        asked = {"Connection": "close", **({TOKEN_HEADER: self.token} if self.token else {}), **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            asked["Content-Type"] = "application/json"
        connection = self.connect(timeout)
        try:
            connection.request(method, path, data, asked)
            answer = connection.getresponse()
            if answer.status < 400:
                return answer
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ApiError(0, f"{self.address}: {error}{self._advice(error)}", f"{method} {path}") from error
        connection.close()
        raise ApiError(answer.status, text, f"{method} {path}")

    def text(self, operation: Operation, path: str, body: Optional[Any] = None, query: Optional[Mapping[str, Any]] = None) -> str:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        if asked:
            path += "?" + urllib.parse.urlencode(asked)
        with self.ask(operation.method, path, body, timeout=self.timeout) as answer:
            try:
                return answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                raise ApiError(0, f"{self.address}: {error}", f"{operation.method} {path}") from error


class RunServer(_Server):
    """A run of the caller's."""

    def __init__(self, run: str) -> None:
        super().__init__(f"unix:{run}", None, None, TIMEOUT_S)
        self._run = run

    def connect(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        return RunConnection(self._run, timeout)

    def _advice(self, error: Exception) -> str:
        return ""


def _operation_of(function: Any) -> Operation:
    return cast(Operation, getattr(function, "operation"))


class _Guarded:
    """What is asked of a sidecar at the top, and of each sandbox of a daemon or of a run below /sandboxes/ID."""

    def __init__(self, server: _Server, prefix: str) -> None:
        self._server, self._prefix = server, prefix

    def _text(self, function: Any, body: Optional[Any] = None, query: Optional[Mapping[str, Any]] = None, tail: str = "") -> str:
        operation = _operation_of(function)
        return self._server.text(operation, self._prefix + operation.path.replace("{id}", tail), body, query)

    def _json(self, function: Any, body: Optional[Any] = None, query: Optional[Mapping[str, Any]] = None, tail: str = "") -> Any:
        text = self._text(function, body, query, tail)
        try:
            return json.loads(text)
        except ValueError as error:
            raise ApiError(0, f"not JSON: {text[:200]!r}", _operation_of(function).path) from error

    @_operation("health", "GET", "/healthz")
    def health(self) -> str:
        """"ok". ApiError 503: not yet, or not any more; the rules stand."""
        return self._text(self.health)

    def is_healthy(self) -> bool:
        """health() as a question. False: also where no daemon answers."""
        try:
            return self.health() == "ok"
        except ApiError:
            return False

    @_operation("getPolicy", "GET", "/policy", "PolicyStatus")
    def get_policy(self) -> PolicyStatus:
        """The policy in force, and its modes."""
        return cast(PolicyStatus, self._json(self.get_policy))

    def policy(self) -> NetworkPolicy:
        """The policy in force."""
        return NetworkPolicy.from_wire(self.get_policy()["policy"])

    @_operation("setPolicy", "POST", "/policy", "Change")
    def set_policy(self, policy: Optional[AnyPolicy]) -> Change:
        """Put another policy in force; None denies all. When it returns the kernel has it. ApiError: the old one stands."""
        return cast(Change, self._json(self.set_policy, policy_to_wire(policy or {})))

    @_operation("replacePolicy", "PUT", "/policy", "Change")
    def replace_policy(self, policy: Optional[AnyPolicy]) -> Change:
        """As set_policy()."""
        return cast(Change, self._json(self.replace_policy, policy_to_wire(policy or {})))

    @_operation("patchPolicy", "PATCH", "/policy", "Change")
    def patch_policy(self, rules: Sequence[AnyRule]) -> Change:
        """Put rules in front of those that are there; they replace the rules for the same targets."""
        return cast(Change, self._json(self.patch_policy, [rule_to_wire(rule) for rule in rules]))

    @_operation("deleteRules", "DELETE", "/policy", "Change")
    def delete_rules(self, targets: Sequence[str]) -> Change:
        """Take away the rules for these targets."""
        return cast(Change, self._json(self.delete_rules, list(targets)))

    @_operation("checkPolicy", "POST", "/policy/check", "PolicyCheck")
    def check_policy(self, policy: Optional[AnyPolicy]) -> PolicyCheck:
        """What is wrong with a policy, before it is put in force; nothing changes."""
        return cast(PolicyCheck, self._json(self.check_policy, policy_to_wire(policy or {})))

    @_operation("explainPolicy", "GET", "/policy/explain", "Explanation")
    def explain_policy(self, target: str) -> Explanation:
        """What the policy in force says of a name or an address ("api.example.com:443"), and by which rule."""
        return cast(Explanation, self._json(self.explain_policy, query={"target": target}))

    @_operation("status", "GET", "/status", "Status")
    def status(self) -> Status:
        """What is enforced, since when, and what isn't."""
        return cast(Status, self._json(self.status))

    @_operation("metrics", "GET", "/metrics")
    def metrics(self) -> str:
        """Counters and gauges in Prometheus' text format."""
        return self._text(self.metrics)

    @_operation("denies", "GET", "/denies", "Denies")
    def denies(self, since: Optional[str] = None, name: Optional[str] = None, limit: Optional[int] = None) -> Denies:
        """What was refused, the newest first.

        since: a time (RFC 3339) or how long ago ("10m"). name: that one, or `*.NAME` for all below it. limit: 1 to 1000.
        """
        return cast(Denies, self._json(self.denies, query={"since": since, "name": name, "limit": limit}))

    @_operation("countDenies", "GET", "/denies/count", "DeniesCount")
    def count_denies(self, since: Optional[str] = None) -> DeniesCount:
        """How much was refused since then, or ever."""
        return cast(DeniesCount, self._json(self.count_denies, query={"since": since}))

    @_operation("activity", "GET", "/activity", "Activity")
    def activity(self, since: Optional[str] = None, until: Optional[str] = None, buckets: Optional[int] = None) -> Activity:
        """How much was allowed, denied and limited, and when; of the last day unless since and until say otherwise."""
        return cast(Activity, self._json(self.activity, query={"since": since, "until": until, "buckets": buckets}))

    @_operation("top", "GET", "/top", "Top")
    def top(self, of: Optional[str] = None, by: Optional[str] = None, since: Optional[str] = None,
            until: Optional[str] = None, limit: Optional[int] = None) -> Top:
        """What most of what was denied (of="allow": of what was allowed, by bytes) was about.

        by: destination, address, name, sandbox, rule or process.
        """
        return cast(Top, self._json(self.top, query={"of": of, "by": by, "since": since, "until": until, "limit": limit}))

    @_operation("storedEvents", "GET", "/events/stored", "StoredEvents")
    def stored_events(self, since: Optional[str] = None, until: Optional[str] = None, action: Optional[str] = None,
                      find: Optional[str] = None, limit: Optional[int] = None, before: Optional[str] = None) -> StoredEvents:
        """A page of the store's events, the newest first; before: what `next` of the page before says."""
        return cast(StoredEvents, self._json(self.stored_events, query={
            "since": since, "until": until, "action": action, "find": find, "limit": limit, "before": before}))

    @_operation("events", "GET", "/events")
    def events(self, last_event_id: Optional[str] = None, timeout: Optional[float] = None) -> EventStream:
        """What happens, as it happens, until the other end closes or close() is called.

        last_event_id: go on behind that one. timeout: seconds of silence until ApiError; None: 60, while a line of comment
        comes every 15. The connection stands when this returns: what happens from then on is in the stream.
        """
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_event_id} if last_event_id else {})}
        path = self._prefix + "/events"
        answer = self._server.ask("GET", path, headers=headers, timeout=timeout or TIMEOUT_S)
        return EventStream(answer, path)

    @_operation("reviews", "GET", "/review", "ReviewTasks")
    def reviews(self, state: Optional[str] = None) -> ReviewTasks:
        """Review tasks; state: open (the default), accepted, dismissed or all. ApiError 404: events are not stored there."""
        return cast(ReviewTasks, self._json(self.reviews, query={"state": state}))

    @_operation("review", "GET", "/review/{id}", "ReviewTask")
    def review(self, task: int) -> ReviewTask:
        """One task, with the difference that accepting it would make."""
        return cast(ReviewTask, self._json(self.review, tail=str(int(task))))

    @_operation("acceptReview", "POST", "/review/{id}/accept", "ReviewTask")
    def accept_review(self, task: int, who: Optional[str] = None, *, lasts: Optional[str] = None,
                      rule: Optional[Mapping[str, Any]] = None) -> ReviewTask:
        """Add the task's rule to the policy in force; lasts: how long, "10m"; None: for good.

        rule: the task's `rule` as it was shown. Where the task is about another one by now, ApiError 409, and nothing changes;
        without it the one of now is added.
        """
        body = {name: value for name, value in (("for", lasts), ("rule", rule)) if value is not None} or None
        return cast(ReviewTask, self._json(self.accept_review, body, {"who": who}, str(int(task))))

    @_operation("dismissReview", "POST", "/review/{id}/dismiss", "ReviewTask")
    def dismiss_review(self, task: int, who: Optional[str] = None) -> ReviewTask:
        """Leave the policy as it is."""
        return cast(ReviewTask, self._json(self.dismiss_review, query={"who": who}, tail=str(int(task))))


class SandboxClient(_Guarded):
    """One sandbox of a daemon, or a run: the same questions, below /sandboxes/ID."""

    def __init__(self, server: _Server, sandbox_id: str) -> None:
        super().__init__(server, "/sandboxes/" + urllib.parse.quote(sandbox_id, safe=""))
        self.id = sandbox_id


class Client(_Guarded):
    """A sidecar, a daemon, or a run under way.

    address: a path or unix:PATH, http://HOST:PORT or https://HOST:PORT; None: WEIR_SOCKET, or the daemon's socket. token: of
    the API, where it has one. cafile: PEM, whom to trust instead of the system's authorities. timeout: seconds for each
    step of a request.
    """

    def __init__(self, address: Optional[str] = None, token: Optional[str] = None, cafile: Optional[str] = None,
                 timeout: Optional[float] = TIMEOUT_S) -> None:
        super().__init__(_Server(address, token, cafile, timeout), "")

    def sandbox(self, sandbox_id: str) -> SandboxClient:
        """That sandbox, whether it is there or not."""
        return SandboxClient(self._server, sandbox_id)

    @_operation("sandboxes", "GET", "/sandboxes", "Sandboxes")
    def sandboxes(self) -> List[SandboxStatus]:
        """What the daemon guards."""
        return cast(Sandboxes, self._json(self.sandboxes))["sandboxes"]

    @_operation("sandbox", "GET", "/sandboxes/{sandbox}", "Sandbox")
    def get_sandbox(self, sandbox_id: str) -> SandboxStatus:
        """What is guarded under that id. ApiError 404: nothing."""
        return cast(SandboxStatus, self._of_one(self.get_sandbox, sandbox_id))

    @_operation("attach", "PUT", "/sandboxes/{sandbox}", "Sandbox")
    def attach(self, sandbox_id: str, *, netns: Optional[str] = None, cgroup: Optional[str] = None,
               uid: Union[int, str, None] = None, policy: Optional[AnyPolicy] = None, guard_parent: bool = False,
               again: bool = False) -> SandboxStatus:
        """Guard exactly one of a network namespace (a path, or the number of a process), a cgroup and a user.

        Without a policy everything is denied. When it returns the filter stands, was read back and tested. ApiError: the program that
        starts the sandbox must not go on.
        """
        asked: Dict[str, Any] = {"netns": netns, "cgroup": cgroup, "uid": uid, "guardParent": guard_parent or None,
                                 "again": again or None, "policy": None if policy is None else policy_to_wire(policy)}
        return cast(SandboxStatus, self._of_one(self.attach, sandbox_id, {k: v for k, v in asked.items() if v is not None}))

    @_operation("detach", "DELETE", "/sandboxes/{sandbox}", "Done")
    def detach(self, sandbox_id: str) -> Done:
        """Guard it no more: it is open then."""
        return cast(Done, self._of_one(self.detach, sandbox_id))

    @_operation("openapi", "GET", "/openapi.yaml")
    def openapi(self) -> str:
        """The description of this API, YAML."""
        return self._text(self.openapi)

    def _of_one(self, function: Any, sandbox_id: str, body: Optional[Any] = None) -> Any:
        operation = _operation_of(function)
        return json.loads(self._server.text(operation, "/sandboxes/" + urllib.parse.quote(sandbox_id, safe=""), body))
