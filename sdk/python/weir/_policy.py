# SPDX-License-Identifier: Apache-2.0
"""Policies as values. Their names on the wire are those of OpenSandbox's `network_policy`."""
from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

Port = Union[int, str]


@dataclasses.dataclass
class EgressRule:
    """One rule.

    action: "allow", "deny" or "ask". target: `api.example.com`, `*.example.com` (below it), `**.example.com` (both), an address
    or a CIDR. ports: numbers, ranges or `tcp/22`; None: all but 53 and 853. until: when the rule ends, RFC 3339; for_: after how
    long, "10m". The others as weir-policy(5) has them.
    """

    action: str
    target: str
    ports: Optional[Sequence[Port]] = None
    types: Optional[Sequence[str]] = None
    private: Optional[bool] = None
    raw: Optional[bool] = None
    required: Optional[bool] = None
    unmetered: Optional[bool] = None
    until: Optional[str] = None
    for_: Optional[str] = None
    comment: Optional[str] = None
    budget: Optional[Mapping[str, Any]] = None

    def to_wire(self) -> Dict[str, Any]:
        """The rule as JSON has it: only what is set."""
        return _without_none(self)

    @classmethod
    def from_wire(cls, rule: Mapping[str, Any]) -> EgressRule:
        """A rule of an answer. Keys that this version doesn't know are left out. A rule without an action denies."""
        known = _known(cls, rule)
        known.setdefault("action", "deny")
        return cls(**known)


@dataclasses.dataclass
class NetworkPolicy:
    """What a sandbox may reach. Nothing said is deny all.

    defaultAction: "deny", "allow" or "ask", for what no rule matches. verify: "tls" (a connection shows an allowed name) or "dns".
    dns: "live" or "pinned", with repin ("6h"). require_full_isolation: weaker enforcement is an error.
    """

    egress: Sequence[EgressRule] = dataclasses.field(default_factory=list)
    defaultAction: str = "deny"
    require_full_isolation: bool = False
    verify: Optional[str] = None
    dns: Optional[str] = None
    repin: Optional[str] = None
    extends: Optional[Sequence[str]] = None
    limits: Optional[Mapping[str, Any]] = None
    on_denies: Optional[Mapping[str, Any]] = None

    def to_wire(self) -> Dict[str, Any]:
        """The document as JSON has it: only what is set."""
        document = _without_none(self)
        document["egress"] = [rule_to_wire(rule) for rule in self.egress]
        if not self.require_full_isolation:
            del document["require_full_isolation"]
        return document

    @classmethod
    def from_wire(cls, document: Mapping[str, Any]) -> NetworkPolicy:
        """A document of an answer, or one that stands in `network_policy`."""
        document = document.get("network_policy", document)
        known = _known(cls, document)
        known["egress"] = [EgressRule.from_wire(rule) for rule in document.get("egress") or []]
        known["defaultAction"] = (document.get("defaultAction") or "deny").lower()
        return cls(**known)


AnyRule = Union[EgressRule, Mapping[str, Any]]
AnyPolicy = Union[NetworkPolicy, Mapping[str, Any]]
# A policy, or the name of a file that has one.
PolicySource = Union[AnyPolicy, str, "os.PathLike[str]"]


def rule_to_wire(rule: AnyRule) -> Dict[str, Any]:
    return rule.to_wire() if isinstance(rule, EgressRule) else dict(rule)


def policy_to_wire(policy: AnyPolicy) -> Dict[str, Any]:
    return policy.to_wire() if isinstance(policy, NetworkPolicy) else dict(policy)


def words(values: Union[str, Sequence[str]]) -> List[str]:
    """One word, or several."""
    return [values] if isinstance(values, str) else list(values)


def _without_none(value: Any) -> Dict[str, Any]:
    pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    # `for` is a word of Python's.
    return {name.rstrip("_"): list(item) if isinstance(item, tuple) else item for name, item in pairs if item is not None}


def _known(cls: Any, document: Mapping[str, Any]) -> Dict[str, Any]:
    names = {field.name.rstrip("_"): field.name for field in dataclasses.fields(cls)}
    return {names[name]: item for name, item in document.items() if name in names}
