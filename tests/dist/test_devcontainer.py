# SPDX-License-Identifier: Apache-2.0
"""The devcontainer's feature, installed into a Debian image as the editors' tools do it."""
import json
import subprocess

from world import docker
from world.world import ECHO_PORT, RESOLVER4


def test_a_container_with_the_feature_guards_commands(world, built, bookworm, site, denied):
    folder = world.workdir()
    (folder / "weir").mkdir()
    subprocess.run(["tar", "-C", folder / "weir", "-xf", built[0] / "devcontainer-feature-weir.tgz"], check=True)
    feature = json.loads((folder / "weir/devcontainer-feature.json").read_text())
    (folder / "Dockerfile").write_text("FROM debian:test\nCOPY weir /tmp/weir\nRUN cd /tmp/weir && chmod +x install.sh && ./install.sh\n")
    security = [word for option in feature["securityOpt"] for word in ("--security-opt", option)]
    script = f"for n in {site.name} {denied.name} {denied.v4}; do (exec 3<>/dev/tcp/$n/{ECHO_PORT} && echo said-$n >&3 && head -n 1 <&3); done"
    with docker.Engine(world) as engine:
        engine.load_root("debian:test", bookworm)
        engine.build("feature:test", folder, folder / "Dockerfile")
        for user in ("root", "1000:1000"):
            done = engine.call("run", "--rm", "--user", user, *security, "feature:test", "weir", "run", "--upstream", RESOLVER4,
                               "--allow", f"{site.name}:{ECHO_PORT}", "--", "bash", "-c", script)
            assert done.text == f"said-{site.name}\n" and f"--allow {denied.name}" in done.messages, done
        without = engine.call("run", "--rm", "feature:test", "weir", "run", "--", "echo", "ran")
        assert without.code == 125 and "ran" not in without.text, without


def test_the_feature_says_which_program_it_lacks(built, tmp_path):
    subprocess.run(["tar", "-C", tmp_path, "-xf", built[0] / "devcontainer-feature-weir.tgz"], check=True)
    for path in tmp_path.glob("*.tar.gz"):
        path.unlink()
    done = subprocess.run([tmp_path / "install.sh"], capture_output=True, text=True)
    assert done.returncode == 1 and "no program for amd64" in done.stderr, done
