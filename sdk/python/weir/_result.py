# SPDX-License-Identifier: Apache-2.0
"""How a guarded process ended, and what was refused to it: the report of `weir run --report`, as values."""
from __future__ import annotations

import dataclasses
import subprocess
from typing import Any, Dict, List, Mapping, Optional, TypedDict

from ._errors import Refused


class RuleReport(TypedDict):
    action: str
    target: str
    file: str
    line: int
    column: int
    comment: str


class EventReport(TypedDict):
    """`times`: occurrences that are alike. `allow`: the value of allow= that would have let it through."""

    time: str
    action: str
    layer: str
    name: Optional[str]
    address: Optional[str]
    protocol: Optional[str]
    port: Optional[int]
    query_type: Optional[int]
    uid: Optional[int]
    times: int
    bytes: int
    reason: str
    rule: Optional[RuleReport]
    limit: Optional[str]
    allow: Optional[str]


class PolicyReport(TypedDict):
    sources: List[str]
    rules: int
    default_action: str
    verify: str


class _ReportRest(TypedDict, total=False):
    stopped: bool
    audit: bool
    would_be_refused: List[EventReport]
    would_be_refused_not_recorded: int
    passed_not_judged: int
    policy_updates: int
    hidden: List[str]
    environment_kept_back: List[str]


class Report(_ReportRest):
    """docs/report-schema.json."""

    version: int
    weir: str
    command: List[str]
    exit_status: int
    signal: Optional[int]
    weir_failed: bool
    started: str
    ended: str
    duration_ms: int
    policy: PolicyReport
    refusals: List[EventReport]
    failures: List[EventReport]
    refusals_not_recorded: int
    counters: Dict[str, int]


@dataclasses.dataclass(frozen=True)
class Refusal:
    """What was refused, or allowed and failed.

    action: deny, limit or fail. layer: dns (a lookup), address (a packet) or name (what a connection showed). times: how
    often. allow: what allow= would have needed, None where no rule could. rule: that decided, None: the default action.
    """

    action: str
    layer: str
    name: Optional[str]
    address: Optional[str]
    protocol: Optional[str]
    port: Optional[int]
    times: int
    reason: str
    allow: Optional[str]
    rule: Optional[str]
    limit: Optional[str]
    time: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Refusal:
        known = {field.name: event[field.name] for field in dataclasses.fields(cls) if field.name != "rule"}
        return cls(rule=event["rule"]["target"] if event["rule"] else None, **known)

    def __str__(self) -> str:
        port = f" {self.protocol or 'ip'}/{self.port}" if self.port else ""
        return f"{self.name or self.address or 'unknown'}{port} ({self.reason})"


@dataclasses.dataclass
class Result:
    """How a command ended.

    args: the command. returncode: its exit status, negative: the signal that killed it. stdout_bytes, stderr_bytes: what it
    wrote; empty where that was not captured. report: None where weir itself was killed.
    """

    args: List[str]
    returncode: int
    stdout_bytes: bytes
    stderr_bytes: bytes
    report: Optional[Report]

    @property
    def stdout(self) -> str:
        """As UTF-8; other bytes are replaced."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """As UTF-8; other bytes are replaced."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def refused(self) -> List[Refusal]:
        """What was refused, the first first."""
        return [Refusal.of(event) for event in self.report["refusals"]] if self.report else []

    @property
    def failures(self) -> List[Refusal]:
        """What was allowed and failed all the same: servers and name servers that refuse or don't answer."""
        return [Refusal.of(event) for event in self.report["failures"]] if self.report else []

    def check(self) -> None:
        """Refused or CalledProcessError where the command failed, Refused also where fail_on_deny= said so."""
        if self.returncode == 0:
            return
        if self.refused:
            raise Refused(self)
        raise subprocess.CalledProcessError(self.returncode, self.args, self.stdout_bytes, self.stderr_bytes)
