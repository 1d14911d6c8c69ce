# SPDX-License-Identifier: Apache-2.0
"""The program `weir`: where it is, and asking it for something that needs no sandbox."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ._errors import InputError, NotInstalled, WeirError

BAD_INPUT, FAILED = 2, 125
PLACES = ("/usr/bin/weir", "/usr/local/bin/weir")


def find_program() -> str:
    """Where WEIR_PROGRAM says, on PATH, or in /usr/bin. NotInstalled: nowhere."""
    named = os.environ.get("WEIR_PROGRAM")
    found = named or shutil.which("weir") or next((place for place in PLACES if os.access(place, os.X_OK)), None)
    if not found or not os.access(found, os.X_OK):
        raise NotInstalled(f"there is no program {named or 'weir'}: install Weir, or name it in WEIR_PROGRAM")
    return found


def surroundings(env: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The environment for weir: without the variables that stand for options, so that a call means what it says."""
    given = os.environ if env is None else env
    return {name: value for name, value in given.items() if not name.startswith("WEIR_") or name == "WEIR_SANDBOX"}


def faults_in(messages: bytes) -> List[str]:
    """Weir's own lines."""
    lines = messages.decode(errors="replace").splitlines()
    return [line[6:] if line.startswith("weir: ") else line for line in lines if line.strip()]


def ask(*words: str, document: Optional[bytes] = None) -> str:
    """Standard output of `weir WORDS`. InputError for exit 2, WeirError for another failure."""
    done = subprocess.run([find_program(), *words], input=document, capture_output=True, env=surroundings(), check=False)
    if done.returncode == BAD_INPUT:
        raise InputError(faults_in(done.stderr))
    if done.returncode != 0:
        raise WeirError("; ".join(faults_in(done.stderr)) or f"weir {words[0]} ended with {done.returncode}")
    return done.stdout.decode(errors="replace")


def ask_lines(*words: str) -> Iterator[bytes]:
    """The same, a line at a time. WeirError where it fails, behind the last line."""
    with tempfile.TemporaryFile() as errors, subprocess.Popen([find_program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                              stderr=errors, env=surroundings()) as process:
        assert process.stdout
        yield from process.stdout
        if process.wait() != 0:
            errors.seek(0)
            raise WeirError("; ".join(faults_in(errors.read())) or f"weir {words[0]} ended with {process.returncode}")


def ask_json(*words: str) -> Any:
    return json.loads(ask(*words))


def options(name: str, values: Sequence[object]) -> List[str]:
    """--NAME VALUE for each."""
    return [word for value in values for word in (f"--{name}", str(value))]
