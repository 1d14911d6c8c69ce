# SPDX-License-Identifier: Apache-2.0
"""A pod of its own for each test, and a sidecar in it."""
import http.server
import json
import time

import pytest

from world.sidecar import Pod, policy


@pytest.fixture
def pod(world):
    with Pod(world) as p:
        yield p


@pytest.fixture
def guarded(pod):
    """Start the sidecar with these rules: guarded("allow a.test", …). Return: Sidecar."""
    def start(*rules, default="deny", args=(), **options):
        return pod.sidecar(*args, rules=policy(*rules, default=default), **options)
    return start


@pytest.fixture
def hook(world):
    """An HTTP server of the internet. hook.calls: what was posted; hook.delay, hook.status: how it answers;
    hook.statuses: some paths otherwise."""
    class Hook:
        calls, delay, status, statuses = [], 0.0, 200, {}
    site = world.site(f"hook{world.number()}.test")
    Hook.calls, Hook.site, Hook.statuses = [], site, {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            Hook.calls.append((self.path, self.headers["Content-Type"], json.loads(body)))
            time.sleep(Hook.delay)
            self.send_response(Hook.statuses.get(self.path, Hook.status))
            self.send_header("Content-Length", "0")
            self.end_headers()

    def serve(conn, local, peer):
        conn.settimeout(10)
        Handler(conn, peer, None)
    service = world.tcp(8765 + world.number() % 500, serve)
    Hook.url = f"http://{site.name}:{service.port}/deny?x=1"
    yield Hook
    service.close()
