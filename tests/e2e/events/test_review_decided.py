# SPDX-License-Identifier: Apache-2.0
"""Who decides on a review task, and what they are shown before."""
import pytest

from world.sidecar import wait_for


@pytest.fixture
def state(tmp_path):
    tmp_path.chmod(0o755)
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def tasks(side):
    return {t["destination"]: t for t in side.get("/review").json()["tasks"]}


def told(hook):
    return {body["destination"]: body for _, _, body in list(hook.calls)}


def test_what_looks_like_an_allowed_name_is_said_wherever_it_is_decided(pod, guarded, hook, state):
    side = guarded("allow **.github.com", "deny denied.com",
                   args=("--state-dir", str(state), "--review-webhook", hook.url))
    pod.probe(["dns", "api.githud.com"], ["dns", "xn--gthub-n4a.com"], ["dns", "deniet.com"], ["dns", "example.net"])
    wait_for(lambda: len(told(hook)) == 4)
    like = {name: body["looks_like"] for name, body in told(hook).items()}
    assert like == {"api.githud.com": "github.com", "xn--gthub-n4a.com": "github.com", "deniet.com": None, "example.net": None}
    found = tasks(side)
    assert {name: t["looks_like"] for name, t in found.items()} == like
    done = side.call("POST", f"/review/{found['api.githud.com']['id']}/accept")
    assert done.status == 200 and done.json()["looks_like"] == "github.com"
