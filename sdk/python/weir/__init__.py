# SPDX-License-Identifier: Apache-2.0
"""Weir from Python: a guarded process, or a guarded container, in one call.

    weir.run(["pip", "download", "six"], allow=["pypi.org:443", "files.pythonhosted.org:443"])

weir.aio has the same for asyncio, weir.client the API, weir.store what was denied.
"""
from ._errors import ApiError, EgressSetupError, InputError, NotInstalled, Refused, WeirError
from ._launch import Guard
from ._policy import EgressRule, NetworkPolicy
from ._result import Refusal, Report, Result
from ._run import Popen, run
from .client import Client, EventStream, SandboxClient, StreamEvent
from .egress import (IsolatedResult, SelfTest, apply_egress_ruleset, apply_nft_ruleset, build_allowlist, egress_self_test,
                     isolated_run, tear_down)
from .sandbox import AsyncSandbox, Sandbox
from .store import (EgressDeny, EgressReviewTask, check_and_emit_egress_review_tasks, egress_denies_24h, emit_egress_review_task,
                    get_recent_egress_denies, open_store, record_egress_event)

__version__ = "0.1.0"

__all__ = [
    "ApiError", "AsyncSandbox", "Client", "EgressDeny", "EgressReviewTask", "EgressRule", "EgressSetupError", "EventStream", "Guard", "InputError",
    "IsolatedResult", "NetworkPolicy", "NotInstalled", "Popen", "Refusal", "Refused", "Report", "Result", "Sandbox", "SandboxClient", "SelfTest",
    "StreamEvent", "WeirError", "apply_egress_ruleset", "apply_nft_ruleset", "build_allowlist",
    "check_and_emit_egress_review_tasks", "egress_denies_24h", "egress_self_test", "emit_egress_review_task",
    "get_recent_egress_denies", "isolated_run", "open_store", "record_egress_event", "run", "tear_down",
]


def load_ipython_extension(shell: object) -> None:
    """`%load_ext weir`."""
    from . import jupyter
    jupyter.load_ipython_extension(shell)
