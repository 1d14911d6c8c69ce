# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions. All of them are WeirError, but those of `check=True` that subprocess defines."""
from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, List, Optional, Sequence

if TYPE_CHECKING:
    from ._result import Refusal, Result


class WeirError(Exception):
    """Weir could not do what was asked; nothing ran without its filter."""


class NotInstalled(WeirError):
    """There is no program `weir`: neither where WEIR_PROGRAM says, nor on PATH."""


class InputError(WeirError, ValueError):
    """A policy or an option is wrong. Nothing was started.

    `faults`: each fault as Weir says it, with its place.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults) or "bad input")
        self.faults: List[str] = list(faults)


class Refused(WeirError, subprocess.CalledProcessError):
    """`check=True`, the command failed, and something was refused to it.

    `result`: how it ended. `refused`: what was refused.
    """

    def __init__(self, result: Result) -> None:
        subprocess.CalledProcessError.__init__(self, result.returncode, result.args, result.stdout_bytes, result.stderr_bytes)
        self.result = result
        self.refused: List[Refusal] = result.refused

    def __str__(self) -> str:
        said = "; ".join(str(one) for one in self.refused[:8])
        return f"{self.result.args[0]!r} ended with {self.returncode}; refused: {said}"


class EgressSetupError(WeirError):
    """The sandbox could not be guarded, and so nothing ran in it.

    `status` is always "failed_safety_setup".
    """

    status = "failed_safety_setup"

    def __init__(self, reason: str, sandbox_id: Optional[str] = None) -> None:
        super().__init__(f"{self.status}: {reason}")
        self.reason = reason
        self.sandbox_id = sandbox_id


class ApiError(WeirError):
    """The API has refused a request, or can't be reached.

    `http_status`: 0 where there was no answer. `text`: what it said.
    """

    def __init__(self, http_status: int, text: str, request: str) -> None:
        super().__init__(f"{request}: {http_status or 'no answer'}: {text.strip()}")
        self.http_status = http_status
        self.text = text
