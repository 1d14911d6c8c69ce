# SPDX-License-Identifier: Apache-2.0
"""Every request that was recorded of the reference, against a whole sidecar."""
import json
import pathlib
import subprocess

from world import replay

REPLAY = pathlib.Path(__file__).resolve().parents[2] / "world" / "replay.py"


def test_H13_what_was_recorded_is_answered_alike(pod):
    side = pod.sidecar(rules=json.dumps(replay.BASE))
    done = subprocess.run(pod.ns.command("/usr/bin/python3", str(REPLAY), "http://127.0.0.1:18080", side.token),
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
