# SPDX-License-Identifier: Apache-2.0
"""Replay of cases.jsonl: requests in order, and what OpenSandbox's egress sidecar answered.

Weir has to answer alike, but for the deviations below, which docs/opensandbox.md explains. The server has been
started with BASE as its policy, mode dns+nft, and a token. From a shell:

    /usr/bin/python3 tests/world/replay.py http://127.0.0.1:18080 TOKEN
"""
import http.client
import json
import pathlib
import sys
import urllib.parse

BASE = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "*.example.com"},
                                           {"action": "allow", "target": "198.51.100.54"}]}
TOKEN_HEADER = "OPENSANDBOX-EGRESS-AUTH"
CASES = pathlib.Path(__file__).with_name("cases.jsonl")


class Deviation:
    """Cases that Weir answers differently, on purpose: what is expected instead."""

    def __init__(self, name, applies, change):
        self.name, self.applies, self.change = name, applies, change


def _refused(case):
    """The same request is 400, with a text of Weir's own."""
    return {**case, "status": 400, "type": "text/plain; charset=utf-8", "answer": "invalid policy: ", "begins": True}


def _targets(case):
    if not case["call"].startswith(("POST /policy", "PUT /policy")):
        return []
    try:
        return [rule["target"] for rule in json.loads(case.get("body", ""))["egress"]]
    except (ValueError, KeyError, TypeError):
        return []


# What no rule of Weir can be.
JUNK = {"*", "*.*.com", "a b c", "http://x/y", "<>&\u00e9", "10.0.0.0/33", "010.0.0.1", "1.2.3"}

DEVIATIONS = [
    Deviation("egress is a list, never null",
              lambda c: '"egress":null' in c["answer"],
              lambda c: {**c, "answer": c["answer"].replace('"egress":null', '"egress":[]')}),
    Deviation("a defaultAction other than allow and deny is 400",
              lambda c: c["status"] == 200 and '"block"' in c.get("body", ""), _refused),
    Deviation("a target that is neither name, address nor CIDR is 400",
              lambda c: c["status"] == 200 and JUNK & set(_targets(c)), _refused),
    Deviation("keys of Weir's own are shown again",
              lambda c: c.get("shows_ports"),
              lambda c: {**c, "answer": c["answer"].replace('"target":"x.com"', '"target":"x.com","ports":[443]')}),
    Deviation("with a token the vault's next precondition is told",
              lambda c: c["answer"] == "credential vault requires egress API auth token\n",
              lambda c: {**c, "answer": "credential vault requires transparent mitmproxy\n"}),
]


def cases():
    """The cases as Weir answers them, in order; "deviations" names what was changed."""
    refused, ports = False, False
    for line in CASES.read_text().splitlines():
        case = json.loads(line)
        is_change = case["call"].split()[1] == "/policy" and not case["call"].startswith(("GET", "HEAD"))
        # After a change that Weir alone refuses the policy before it is shown.
        case["shows_older"] = refused and case["call"] == "GET /policy"
        case["shows_ports"] = ports and case["call"] == "GET /policy"
        case["deviations"] = []
        recorded = case["status"]
        for deviation in DEVIATIONS:
            if deviation.applies(case):
                case = {**deviation.change(case), "deviations": [*case["deviations"], deviation.name]}
        if is_change and recorded == 200:
            refused, ports = case["status"] != 200, '"ports"' in case.get("body", "")
        yield case


def request(url, method, path, body=None, headers=(), timeout=10):
    """One request on a connection of its own: (status, headers, text)."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        if body is not None or method in ("POST", "PUT", "PATCH"):
            body = (body or "").encode() if not isinstance(body, bytes) else body
            connection.putheader("Content-Length", str(len(body)))
        for name, value in dict(headers).items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def _differences(case, got, last):
    status, headers, text = got
    expected = last if case["shows_older"] and last is not None else case["answer"]
    seen = {"status": status, "type": headers["Content-Type"], "allow": headers["Allow"],
            "location": headers["Location"]}
    for what, value in seen.items():
        if value != case.get(what):
            yield f"{what} is {value!r}, not {case.get(what)!r}"
    begins = case.get("begins") and not case["shows_older"]
    if text[:len(expected) if begins else None] != expected:
        yield f"the answer is {text!r}, not {expected!r}"


def replay(url, token):
    """Replay all cases. Return: what differed, one text a difference."""
    faults, shown = [], None
    for number, case in enumerate(cases(), 1):
        method, path = case["call"].split(" ", 1)
        got = request(url, method, path, case.get("body"), {TOKEN_HEADER: token})
        faults += [f"case {number}, {case['call']} {case.get('body', '')!r}: {d}"
                   for d in _differences(case, got, shown)]
        if case["call"].split()[1] == "/policy" and method in ("POST", "PUT", "PATCH", "DELETE") and got[0] == 200:
            shown = request(url, "GET", "/policy", headers={TOKEN_HEADER: token})[2]
    return faults


if __name__ == "__main__":
    result = replay(*sys.argv[1:3])
    print("\n".join(result) or "all answers are as they should be")
    sys.exit(1 if result else 0)
