# SPDX-License-Identifier: Apache-2.0
"""The shipped pods under podman: its own as it stands, and the one of Helm's chart."""
import json
import os
import shutil
import subprocess

import pytest
import yaml

from world import expect
from world.built import PROGRAMS, ROOT
from world.podman import Podman, client_programs
from world.run import Result, read_answers
from world.sidecar import policy, wait_for

pytestmark = pytest.mark.skipif(not client_programs(), reason="no podman here")


@pytest.fixture(scope="module")
def podman(world):
    with Podman(world) as p:
        root = p.folder / "weir-root"
        subprocess.run([ROOT / "deploy/docker/rootfs", PROGRAMS, root], check=True, capture_output=True)
        p.load_root("localhost/weir:latest", root, 'ENTRYPOINT ["/usr/bin/weir","sidecar"]', "USER 65532:65532")
        app = p.folder / "app-root"
        for folder in ("usr", "etc/alternatives", "tmp", "proc", "sys", "dev", "tools", "run"):
            (app / folder).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (app / link).symlink_to(f"usr/{link}")
        p.load_root("localhost/app:latest", app, "ENV PATH=/usr/bin:/bin")
        yield p


def shipped(rules):
    """deploy/podman/pod.yaml with @rules. Return: its documents."""
    pod = yaml.safe_load((ROOT / "deploy/podman/pod.yaml").read_text())
    next(e for e in pod["spec"]["containers"][0]["env"] if e["name"].endswith("RULES"))["value"] = rules
    return [pod]


def of_the_chart(rules):
    """What Helm makes. podman knows no native sidecars, so the sidecar is the first container here."""
    if not shutil.which("helm"):
        pytest.skip("helm is not installed")
    text = subprocess.check_output(["helm", "template", "chart", ROOT / "deploy/helm/weir", "--set-json", f"policy={rules}",
                                    "--set", "image=localhost/weir:latest"], text=True)
    documents = {d["kind"]: d for d in yaml.safe_load_all(text)}
    spec = documents["Deployment"]["spec"]["template"]["spec"]
    side, = spec.pop("initContainers")
    del side["restartPolicy"]
    spec["containers"].insert(0, side)
    return [documents["ConfigMap"], {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}]


@pytest.fixture(params=[shipped, of_the_chart])
def pod(request, podman, world, site):
    """A pod with the test's policy and app in it, and a folder for its state. Return: its name."""
    documents = request.param(policy(f"allow {site.name}"))
    document = documents[-1]
    name = document["metadata"]["name"] = f"guarded{world.number()}"
    side, app = document["spec"]["containers"]
    app["image"] = "localhost/app:latest"
    app["volumeMounts"] = [{"name": "usr", "mountPath": "/usr", "readOnly": True},
                           {"name": "tools", "mountPath": "/tools", "readOnly": True}]
    state = world.workdir()
    os.chown(state, 65532, 65532)
    side["env"].append({"name": "WEIR_STATE_DIR", "value": "/var/lib/weir"})
    side["volumeMounts"] = [{"name": "state", "mountPath": "/var/lib/weir"}]
    document["spec"]["volumes"] = [{"name": "state", "hostPath": {"path": str(state)}},
                                   {"name": "usr", "hostPath": {"path": "/usr"}},
                                   {"name": "tools", "hostPath": {"path": str(world.tools)}}]
    file = world.workdir() / "pod.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    podman("kube", "play", "--start=false", file)
    podman("start", f"{name}-weir")
    wait_for(lambda: podman.call("exec", f"{name}-weir", "/usr/bin/weir", "sidecar", "--healthy").code == 0, step=0.05)
    podman("pod", "start", name)
    yield name
    podman.call("pod", "rm", "-f", "-t", "0", name)


def probe(podman, container, *probes):
    text = podman("exec", "-i", container, "/usr/bin/python3", "-IS", "/tools/probe.pyc",
                  input=json.dumps(probes).encode())
    return read_answers(Result(0, text.encode(), b"", 0), len(probes))


def test_the_shipped_pod_is_guarded(podman, pod, site, denied):
    good, name, bad, api = probe(podman, f"{pod}-app", ["connect", site.name, 7007],
                                 ["dns", denied.name, {"server": "8.8.8.8"}], ["tcp", "93.9.9.9", 443],
                                 ["tcp", "127.0.0.1", 18080, "GET /healthz HTTP/1.0\r\n\r\n"])
    assert good.result == "ok" and name.result == "NXDOMAIN" and "200" in api.data
    expect.tcp_refused(bad)
    assert not [p for p in podman.host.packets() if p.dst in ("93.9.9.9", denied.v4, "8.8.8.8")]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_app_stays_shut_and_goes_on_within_the_pod(podman, pod, site, how):
    """The namespace is the pod's, so another sidecar takes over where the old one was."""
    side, app = f"{pod}-weir", f"{pod}-app"
    assert probe(podman, app, ["lookup", site.name], ["connect", site.name, 7007])[1].result == "ok"
    podman("stop", "-t", "5", side) if how == "stop" else podman("kill", side)
    bad, dns = probe(podman, app, ["tcp", "93.9.9.9", 443], ["udp", "8.8.8.8", 53, "leak"])
    expect.tcp_refused(bad)
    podman("start", side)
    wait_for(lambda: podman.call("exec", side, "/usr/bin/weir", "sidecar", "--healthy").code == 0, step=0.05)
    known, good, bad = probe(podman, app, ["tcp", site.v4, 7007], ["connect", site.name, 7007], ["tcp", "93.9.9.9", 443])
    assert known.result == good.result == "ok", "what was learned is in the state folder"
    expect.tcp_refused(bad)
    assert not [p for p in podman.host.packets() if p.dst in ("93.9.9.9", "8.8.8.8")]
