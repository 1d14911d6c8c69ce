# SPDX-License-Identifier: Apache-2.0
"""Callers of a whole sidecar's API, and text that the app or they bring into its outputs."""
import contextlib
import json
import pathlib
import socket
import struct

import pytest

from world.sidecar import policy, wait_for

EVIL = 'a"\n\ndata: evil\r\nid: 9\r\nevent: change\x1b[31m\u2028'


def resident(pid):
    """KiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


@pytest.mark.parametrize("token", ["token", "wrong"])
def test_large_bodies_leave_no_memory_behind(pod, guarded, token):
    side = guarded()
    control = side.child("control")
    before = resident(control)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            s = stack.enter_context(pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM))
            s.settimeout(2)
            with contextlib.suppress(OSError):
                s.connect(("127.0.0.1", 18080))
                s.sendall(b"POST /policy HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: " + token.encode() +
                          b"\r\nContent-Length: 1048576\r\n\r\n" + b"[" * 1000000)
    assert side.get("/healthz").status == 200
    # A connection that ends in the middle of its body is gone when it has been idle long enough (API_IDLE_SEC).
    wait_for(lambda: resident(control) < before + 4096, step=0.05)


def test_text_from_outside_stays_inside_its_field(pod, guarded):
    """Names on the wire, policies of callers: streams, lists and log lines stay one record each, and printable."""
    side = guarded()
    with pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.connect(("127.0.0.1", 18080))
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: token\r\n\r\n")
        for body in ({"egress": [{"action": "allow", "target": EVIL}]}, {"egress": [{"action": EVIL, "target": "a.test"}]},
                     {"defaultAction": EVIL}, {EVIL: 1, "egress": [{"action": EVIL}]}):
            reply = side.call("POST", "/policy", json.dumps(body))
            assert reply.status == 400 and reply.text.endswith("\n") and reply.text[:-1].isprintable(), reply
        with pod.ns.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("8.8.8.8", 53))
            s.settimeout(20)
            for label in (b'x"\n\ndata: evil', b"\x1b[2J", b"\xe2\x80\xa8", b"a\\b", b"\x00"):
                s.send(struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label + b"\4test\0\0\1\0\1")
                s.recv(999)
        side.call("POST", "/policy", policy("deny b.test"))
        wait_for(lambda: len(side.log("egress denied")) >= 5)
        stream.settimeout(60)
        text = ""
        while "data:" not in text:
            text += stream.recv(1 << 16).decode()
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.startswith(("data:", "event:", "id:"))]
    assert any("data:" in line for line in lines) and "data: evil" not in lines
    for line in lines:
        assert line.isprintable()
        if line.startswith("data:"):
            json.loads(line[5:])
    for line in side.lines:
        assert line.isprintable() and isinstance(json.loads(line), dict)
    assert all(line.isprintable() for line in side.errors)
    for line in side.get("/metrics").text.splitlines():
        assert line.startswith(("#", "weir_"))
