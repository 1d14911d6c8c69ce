# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's npm SDK, unchanged, against `weir sidecar`; what it sends, against specs/sandbox-lifecycle.yml.

The SDK comes from the npm registry, once a machine; where it can't be had the tests are skipped. The lifecycle server,
which isn't Weir's, is a stand-in: it makes the sidecar with what the request's networkPolicy says.
"""
import contextlib
import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import threading

import jsonschema
import pytest
import yaml

from world import expect
from world.run import Started
from world.sidecar import Pod

ROOT = pathlib.Path(__file__).resolve().parents[3]
SPEC = yaml.safe_load((ROOT / "specs/sandbox-lifecycle.yml").read_text())
PACKAGE = "@alibaba-group/opensandbox@0.1.11"
CACHE = pathlib.Path("/var/cache/weir-tests/opensandbox-0.1.11")
STRANGER = "93.9.9.9"


def validator(name):
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": SPEC["components"]})


@pytest.fixture(scope="module")
def sdk(world):
    """A folder in which node finds the SDK."""
    if not shutil.which("npm"):
        pytest.skip("no npm here")
    if not (CACHE / "node_modules").exists():
        fresh = CACHE.with_name(f"{CACHE.name}.{world.folder.name}")
        fresh.mkdir(parents=True)
        done = subprocess.run(["npm", "install", "--prefix", fresh, "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts",
                               "--fetch-retries=0", "--fetch-timeout=20000", PACKAGE], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            shutil.rmtree(fresh)
            pytest.skip(f"{PACKAGE} can't be installed here: {done.stderr.strip().splitlines()[-1:]}")
        with contextlib.suppress(OSError):  # another worker was first
            fresh.rename(CACHE)
        shutil.rmtree(fresh, ignore_errors=True)
    script = CACHE / "steps.mjs"
    shutil.copy(pathlib.Path(__file__).with_name("opensandbox_sdk.mjs"), script)
    return script


class Lifecycle:
    """The server that the SDK asks for sandboxes: one of them, in @pod."""

    def __init__(self, pod):
        self.pod, self.requests, self.side = pod, [], None
        lifecycle = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body=None):
                data = json.dumps(body).encode() if body is not None else b""
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.path.endswith("/sandboxes"):
                    self.answer(204)
                    return
                lifecycle.requests.append(body)
                lifecycle.side = lifecycle.pod.sidecar(rules=json.dumps(body["networkPolicy"]), mode="dns+nft", token="sdk-token")
                self.answer(202, {"id": "one", "status": {"state": "Running"}, "entrypoint": body["entrypoint"],
                                  "createdAt": "2026-01-01T00:00:00Z", "expiresAt": "2027-01-01T00:00:00Z"})

            def do_GET(self):
                if "/endpoints/18080" in self.path:
                    self.answer(200, {"endpoint": "127.0.0.1:18080", "headers": {"OPENSANDBOX-EGRESS-AUTH": "sdk-token"}})
                elif "/endpoints/" in self.path:
                    self.answer(200, {"endpoint": lifecycle.domain})
                else:
                    self.answer(200, {})

            def do_DELETE(self):
                self.answer(204)

            def log_message(self, *args):
                pass

        listener = pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.domain = f"127.0.0.1:{listener.getsockname()[1]}"
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def lifecycle(world):
    with Pod(world) as pod:
        server = Lifecycle(pod)
        yield server
        server.close()


def test_it_creates_reads_patches_and_deletes(sdk, lifecycle, site, denied):
    pod = lifecycle.pod
    steps = Started(pod.ns.command("node", sdk, lifecycle.domain, site.name, denied.name), env={"PATH": "/usr/local/bin:/usr/bin:/bin"})

    def step():
        line = steps.line()
        assert line, steps.wait()
        return json.loads(line)
    try:
        assert step() == {"defaultAction": "deny", "egress": [{"action": "allow", "target": site.name}]}
        validator("CreateSandboxRequest").validate(lifecycle.requests[0])
        good, bad, stranger = pod.probe(["connect", site.name, 7007], ["lookup", denied.name], ["tcp", STRANGER, 443])
        assert good.result == "ok"
        expect.lookup_refused(bad)
        expect.tcp_refused(stranger)
        steps.say("\n")
        assert step() == {"defaultAction": "deny", "egress": [{"action": "allow", "target": denied.name}, {"action": "deny", "target": site.name}]}
        bad, good = pod.probe(["lookup", site.name], ["connect", denied.name, 7007])
        assert good.result == "ok"
        expect.lookup_refused(bad)
        steps.say("\n")
        assert step() == {"defaultAction": "deny", "egress": [{"action": "deny", "target": site.name}]}
        expect.lookup_refused(pod.probe(["lookup", denied.name]))
        steps.say("\n")
        refused = step()
        assert refused["status"] == 400, refused
        steps.say("\n")
        done = steps.wait()
        assert done.code == 0, done
        assert pod.packets(dst=STRANGER) == []
    finally:
        steps.kill()


BODIES = [({}, False), ({"image": {"uri": "x"}, "entrypoint": ["x"]}, True), ({"snapshotId": "s"}, True),
          ({"snapshotId": "s", "networkPolicy": {}}, True),
          ({"snapshotId": "s", "networkPolicy": {"defaultAction": "block"}}, False),
          ({"snapshotId": "s", "networkPolicy": {"egress": None}}, False),
          ({"snapshotId": "s", "networkPolicy": {"egress": [{"action": "allow", "target": "*.a.test"}]}}, True),
          ({"snapshotId": "s", "networkPolicy": {"egress": [{"action": "allow", "target": ""}]}}, False),
          ({"snapshotId": "s", "networkPolicy": {"egress": [{"action": "block", "target": "a.test"}]}}, False),
          ({"snapshotId": "s", "network_policy": {}}, False), ({"snapshotId": "s", "image": {"uri": "x"}, "entrypoint": ["x"]}, False)]


@pytest.mark.parametrize("body, valid", BODIES)
def test_the_schema_takes_what_can_be_created_alone(body, valid):
    assert validator("CreateSandboxRequest").is_valid(body) == valid


@pytest.mark.parametrize("policy", [body["networkPolicy"] for body, valid in BODIES if valid and "networkPolicy" in body])
def test_what_the_schema_takes_is_a_policy(world, policy):
    path = world.workdir() / "policy.json"
    path.write_text(json.dumps(policy))
    assert world.weir("policy", "check", "--policy", path).code == 0
