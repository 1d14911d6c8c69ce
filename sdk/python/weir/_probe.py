# SPDX-License-Identifier: Apache-2.0
"""Run inside a sandbox before its command: one denied host can't be reached, one allowed host can. Then it becomes the command.

    python -IS _probe.py TOKEN ALLOWED DENIED -- COMMAND…        ALLOWED: HOST:PORT, or "" where nothing is allowed

It says "TOKEN ok MILLISECONDS" or "TOKEN failed REASON" on standard error: who doesn't know the token can't say so. It uses
nothing of the package, which the sandbox may not see.
"""
import os
import socket
import sys
import time
from typing import List, Tuple

PATIENCE_S = 5.0


def split(place: str) -> Tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host, int(port)


def reaches(place: str) -> bool:
    """A connection that the other end accepts: Weir's relay accepts by itself and resets what it may not dial."""
    try:
        with socket.create_connection(split(place), PATIENCE_S) as s:
            s.settimeout(PATIENCE_S)
            if split(place)[1] != 443:
                return True
            import ssl
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(s, server_hostname=split(place)[0]):
                return True
    except (OSError, ValueError):
        return False


def fault(allowed: str, denied: str) -> str:
    if reaches(denied):
        return f"{denied} was reached, which no rule allows"
    if allowed and not reaches(allowed):
        return f"{allowed} was not reached, which the profile allows"
    return ""


def main(argv: List[str]) -> int:
    token, allowed, denied = argv[1:4]
    began = time.monotonic()
    why = fault(allowed, denied)
    said = f"{token} failed {why}\n" if why else f"{token} ok {(time.monotonic() - began) * 1000:.1f}\n"
    os.write(2, said.encode())
    if why:
        return 125
    try:
        os.execvp(argv[5], argv[5:])
    except OSError as error:
        sys.stderr.write(f"{argv[5]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


sys.exit(main(sys.argv))
