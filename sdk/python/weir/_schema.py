# SPDX-License-Identifier: Apache-2.0
"""What the API answers, key by key: the schemas of docs/openapi.yaml under the same names. Times are RFC 3339, UTC."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict


class _Rest(TypedDict, total=False):
    enforcementMode: str
    reason: str


class Change(_Rest):
    """A policy was put in force. `reason`: why nothing changed, if so."""

    status: str
    mode: str


class PolicyStatus(TypedDict):
    """`policy`: the document as it was given."""

    status: str
    mode: str
    enforcementMode: str
    policy: Dict[str, Any]


class Learned(TypedDict):
    names: int
    addresses: int


class Degradation(TypedDict):
    what: str
    reason: str
    since: Optional[str]


class Grant(TypedDict):
    """A rule that ends."""

    target: str
    until: str
    secondsLeft: int


class _StatusRest(TypedDict, total=False):
    closed: Optional[str]
    engines: int
    postgresWaitingRows: int
    postgresMissedRows: int
    postgresRefusedRows: int


class Status(_StatusRest):
    """`mode` is what is enforced. `closed`: why Weir has closed the sandbox, until a policy is set."""

    mode: str
    fullIsolation: bool
    since: Optional[str]
    enforcementMode: str
    policyMode: str
    readOnly: bool
    sandboxId: str
    degradations: List[Degradation]
    generation: int
    engineRestarts: int
    rules: int
    grants: List[Grant]
    learned: Learned
    policyUpdates: int
    policyFailures: int
    webhookSent: int
    webhookDropped: int
    logDropped: int
    storeLostRows: int
    storeLostPackets: int
    counters: Dict[str, int]
    version: str


class _EventRest(TypedDict, total=False):
    id: int
    allowable: bool


class Event(_EventRest):
    """One event; None where nothing is known. `packets`: occurrences that are folded into it."""

    ts: str
    sandbox: Optional[str]
    action: str
    layer: str
    remote_ip: Optional[str]
    remote_port: Optional[int]
    protocol: Optional[str]
    name: Optional[str]
    rule: Optional[str]
    rule_file: Optional[str]
    rule_line: Optional[int]
    packets: int
    bytes: int
    reason: Optional[str]
    query_type: Optional[int]
    limit: Optional[str]
    uid: Optional[int]
    pid: Optional[int]
    command: Optional[str]
    allow: Optional[str]


class Denies(TypedDict):
    """`more`: than were asked for. `forgotten`: events that the ring had no room for."""

    denies: List[Event]
    more: bool
    forgotten: int


# The key "from" is a word of Python's.
DeniesCount = TypedDict("DeniesCount", {"events": int, "packets": int, "from": str, "cut": bool})


class Activity(TypedDict):
    """A number for each bucket of `step` seconds, from `since` on."""

    since: str
    step: int
    allow: List[int]
    deny: List[int]
    limit: List[int]
    fail: List[int]
    bytes: List[int]


class TopRow(TypedDict):
    """What some of it was about. `key`: "" for the default action, and for a process that Weir could not identify."""

    key: str
    packets: int
    bytes: int
    events: int
    last: str


class Top(TypedDict):
    """The most first. `complete`: False when the newest alone was added up."""

    top: List[TopRow]
    complete: bool


class StoredEvents(TypedDict):
    """`next`: what to ask for with before; None: there are no more."""

    events: List[Event]
    next: Optional[str]


class Explanation(TypedDict):
    """What the policy in force says. `text`: the same in lines, for people."""

    query: str
    kind: str
    action: str
    protocols: List[str]
    rule: Optional[Dict[str, Any]]
    ports: str
    note: Optional[str]
    allow: Optional[str]
    text: str


class PolicyFault(TypedDict):
    """`level`: error, warning or hint."""

    level: str
    text: str


class PolicyCheck(TypedDict):
    """`mode`: None where it couldn't be read."""

    valid: bool
    mode: Optional[str]
    faults: List[PolicyFault]


class _ReviewTaskRest(TypedDict, total=False):
    diff: Optional[List[str]]


class ReviewTask(_ReviewTaskRest):
    """What was denied and a rule could allow. `rule`: what accepting adds."""

    id: int
    state: str
    sandbox: Optional[str]
    destination: Optional[str]
    looks_like: Optional[str]
    port: Optional[int]
    protocol: Optional[str]
    packets: int
    events: int
    first: str
    last: str
    who: Optional[str]
    decided: Optional[str]
    rule: Optional[Dict[str, Any]]


class ReviewTasks(TypedDict):
    tasks: List[ReviewTask]


class _SandboxRest(TypedDict, total=False):
    netns: str
    cgroup: str
    uid: int
    network: int
    guardParent: bool


class Sandbox(_SandboxRest):
    """`denies`: names, flows and packets that were refused."""

    id: str
    number: int
    kind: str
    engine: int
    mode: str
    policyMode: str
    rules: int
    denies: int


class _SandboxesRest(TypedDict, total=False):
    takingOver: bool


class Sandboxes(_SandboxesRest):
    sandboxes: List[Sandbox]


class Done(TypedDict):
    status: str
