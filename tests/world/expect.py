# SPDX-License-Identifier: Apache-2.0
"""What a refusal looks like: at once, and in a way that a program can tell."""

import contextlib

PATIENCE = 60   # seconds: a bound for what hangs, and never a measure
STRANGER = "93.9.9.9"  # an address in the internet that no rule allows
FAST_MS = 8000  # less than a probe waits for what doesn't come
# What connect(), sendto() and friends say when the kernel refused: a reset for TCP,
# EPERM for the rest, or the ICMP error that it sends instead.
TCP_REFUSALS = {"refused"}
UDP_REFUSALS = {"EPERM", "EACCES", "refused", "EHOSTUNREACH", "ENETUNREACH"}
# What a system call says that the sandbox doesn't have.
CALL_REFUSALS = {"EPERM", "EACCES", "EAFNOSUPPORT", "ENOSYS", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}


def in_time(attempt, tries=3):
    """What @attempt(n) returns. It fails where something was late, and is tried again then: a machine that stands still
    for a second spoils one try, and what waits for a timeout spoils each. Never for what must not get out."""
    for n in range(tries - 1):
        with contextlib.suppress(AssertionError):
            return attempt(n)
    return attempt(tries - 1)


def _fast(answer):
    assert answer.ms < FAST_MS, f"not fast: {dict(answer)}"


def tcp_refused(answer):
    _fast(answer)
    assert answer.result in TCP_REFUSALS, dict(answer)


def tcp_gave_nothing(answer):
    """Refused at the connect(), or ended by the relay before any byte of the server's came."""
    _fast(answer)
    assert answer.result in {"refused", "reset", "closed", "EPIPE", "tls", "alert"}, dict(answer)


def udp_refused(answer):
    _fast(answer)
    assert answer.result in UDP_REFUSALS, dict(answer)


def call_refused(answer):
    _fast(answer)
    assert answer.result in CALL_REFUSALS, dict(answer)


def name_refused(answer):
    """A DNS reply: NXDOMAIN with the SOA that caches need and the reason for people."""
    _fast(answer)
    assert answer.result == "NXDOMAIN", dict(answer)
    assert answer.soa and answer.addresses == [], dict(answer)
    assert answer.ede, f"no extended error: {dict(answer)}"


def no_data(answer):
    _fast(answer)
    assert answer.result == "NOERROR" and answer.answers == [] and answer.soa, dict(answer)


def address_refused(answer):
    """A DNS reply about a name that is allowed, at an address that it may not have: no data, and the reason for people."""
    no_data(answer)
    assert answer.ede, f"no extended error: {dict(answer)}"


def lookup_refused(answer):
    """getaddrinfo(): the name does not exist."""
    _fast(answer)
    assert answer.result in {"EAI_NONAME", "EAI_NODATA"}, dict(answer)


def is_guarded(app, site):
    """The name of @site is answered, the address open, and a stranger's closed."""
    lookup, tcp, stranger = app.probe(["dns", site.name], ["tcp", site.v4, 443], ["tcp", STRANGER, 443])
    tcp_refused(stranger)
    return lookup.addresses == [site.v4] and tcp.result == "ok"
