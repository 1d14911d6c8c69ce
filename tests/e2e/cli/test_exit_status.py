# SPDX-License-Identifier: Apache-2.0
"""What verbs end with: 125 where Weir could not do it, 2 where what it was given is wrong, 1 where the answer is no."""
import json

import pytest

from tests.world.store import Store

POLICY = {"egress": [{"action": "allow", "target": "a.test"}]}
PRINT = {
    "events": 0, "denies": 0, "review list": 0, "review show 1": 0, "learn --from .": 0, "policy check policy.json": 0,
    "policy check --json policy.json": 0, "policy explain --policy policy.json a.test": 0, "policy show policy.json": 0,
    "policy diff policy.json default": 1, "policy import --from codex codex.toml": 0, "profile list": 0, "profile show default": 0,
    "profile show --json default": 0, "inject -f pod.yaml --quiet": 0, "help": 0, "completion bash": 0, "render --uid 65534 --policy policy.json": 0,
}


@pytest.fixture
def folder(world):
    path = world.workdir()
    (path / "policy.json").write_text(json.dumps(POLICY))
    (path / "codex.toml").write_text('[sandbox_workspace_write]\nnetwork_access = false\n')
    (path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
    with Store(path) as store:
        store.put("b.test")
    return path


@pytest.mark.parametrize("words", PRINT)
def test_output_that_goes_nowhere_is_a_failure(world, folder, words):
    env = {"WEIR_STATE_DIR": str(folder)}
    done = world.weir(*words.split(), cwd=folder, env=env)
    assert done.code == PRINT[words] and done.text, done
    full = world.command("sh", "-c", f"exec '{world.weir_path}' {words} > /dev/full", cwd=folder, env=env)
    assert full.code == 125 and full.messages, full


GIVEN = {
    "policy explain --file none a.test": 2, "policy explain --file none": 2, "policy diff none.yaml default": 2, "policy import --from codex none.toml": 2,
    "learn --from . --diff none.yaml": 2, "learn --from none": 125, "events --state-dir none": 125,
    "denies --state-dir none": 125, "review list --state-dir none": 125, "review show 99": 2, "review accept 99": 2,
    "review accept 1 --yes --policy none.json": 2, "review accept 1 --live --yes --socket none.sock": 125, "review accept 1 --policy policy.json": 1,
    "inject -f none.yaml": 2, "profile show nothing": 2,
}


@pytest.mark.parametrize("words", GIVEN)
def test_what_is_given_is_wrong_or_weir_can_not(world, folder, words):
    done = world.weir(*words.split(), cwd=folder, env={"WEIR_STATE_DIR": str(folder)})
    assert done.code == GIVEN[words] and done.messages and not done.text, done
