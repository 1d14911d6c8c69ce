# SPDX-License-Identifier: Apache-2.0
"""Run inside a sandbox before its command: the filter refuses a datagram, one denied host can't be reached, one allowed host can.
Then it becomes the command.

    python -IS _probe.py PIPE ALLOWED DENIED -- COMMAND…        ALLOWED: HOST:PORT, or "" where nothing is allowed

It says "ok MILLISECONDS" or "failed REASON" in the named pipe, and goes on when that is taken. It uses nothing of the package,
which the sandbox may not see.
"""
import errno
import fcntl
import os
import socket
import struct
import sys
import termios
import time
from typing import List, Tuple

PATIENCE_S = 5.0
TAKE_S = 60.0
# Nobody has these (RFC 5737 and 3849), so that no rule names them. A network without a filter sends to them, and says nothing.
NOBODY = ((socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1"))
NOBODY_PORT = 9


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


def refusal(family: int, address: str) -> str:
    """What becomes of a datagram: "refused" by the filter, which no other machine can do by EPERM, "sent", or "" without a route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((address, NOBODY_PORT))
            try:
                s.send(b"weir")
            except OSError as error:
                return "refused" if error.errno == errno.EPERM else "sent"
            return "sent"
    except OSError:
        return ""


def fault(allowed: str, denied: str) -> str:
    became = {address: refusal(family, address) for family, address in NOBODY}
    if "refused" not in became.values() or "sent" in became.values():
        return "no filter refuses what is sent to " + " and ".join(a for a, what in became.items() if what != "refused")
    if reaches(denied):
        return f"{denied} was reached, which no rule allows"
    if allowed and not reaches(allowed):
        return f"{allowed} was not reached, which the profile allows; another host can be named for the self-test"
    return ""


def is_taken(pipe: str, said: str) -> bool:
    """Say it. False: nobody took it."""
    fd, end = os.open(pipe, os.O_WRONLY), time.monotonic() + TAKE_S
    try:
        os.write(fd, said.encode())
        while struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0] > 0:
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        return True
    finally:
        os.close(fd)


def main(argv: List[str]) -> int:
    pipe, allowed, denied = argv[1:4]
    began = time.monotonic()
    why = fault(allowed, denied)
    if not is_taken(pipe, f"failed {why}\n" if why else f"ok {(time.monotonic() - began) * 1000:.1f}\n") or why:
        return 125
    try:
        os.execvp(argv[5], argv[5:])
    except OSError as error:
        sys.stderr.write(f"{argv[5]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


sys.exit(main(sys.argv))
