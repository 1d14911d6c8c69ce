# SPDX-License-Identifier: Apache-2.0
"""The files under deploy/: they say the same as each other, and what they promise."""
import json
import re
import shutil
import subprocess

import pytest
import yaml

from world.built import PROGRAMS, ROOT

DEPLOY = ROOT / "deploy"
VARIANTS = ["base", "overlays/token", "overlays/tls"]


def kustomize(name):
    """The documents of a kustomization, by kind."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", DEPLOY / "kubernetes" / name], capture_output=True, text=True)
    if "must be a file" in done.stderr:
        pytest.skip("this kubectl knows kustomizations of 2019 only")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout, {d["kind"]: d for d in yaml.safe_load_all(done.stdout)}


def pod_of(documents):
    return documents["Deployment"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_starts_before_the_sidecar_is_healthy(name):
    _, documents = kustomize(name)
    side = pod_of(documents)["initContainers"][0]
    assert side["name"] == "weir" and side["restartPolicy"] == "Always"
    assert side["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "egress-api"}
    assert side["ports"] == [{"containerPort": 18080, "name": "egress-api"}]
    assert side["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert side["securityContext"]["runAsNonRoot"] and side["securityContext"]["readOnlyRootFilesystem"]
    assert not pod_of(documents).get("hostNetwork")


@pytest.mark.parametrize("name", VARIANTS)
def test_the_app_keeps_to_restricted(name):
    """What Pod Security asks of a container at that level."""
    _, documents = kustomize(name)
    pod = pod_of(documents)
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(pod)
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["runAsNonRoot"] is True
        assert context["capabilities"] == {"drop": ["ALL"]} and not context.get("privileged")
        assert context["seccompProfile"]["type"] == "RuntimeDefault"
    assert {next(iter(set(v) - {"name"})) for v in pod.get("volumes", [])} <= {"configMap", "emptyDir", "secret"}
    labels = documents["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["pod-security.kubernetes.io/warn"] == "restricted"


def test_the_overlays_change_what_they_say():
    def env(name):
        side = pod_of(kustomize(name)[1])["initContainers"][0]
        return {e["name"]: e.get("value") or e["valueFrom"] for e in side["env"]}
    base, token, tls = env("base"), env("overlays/token"), env("overlays/tls")
    name = token.pop("OPENSANDBOX_EGRESS_TOKEN")["secretKeyRef"]
    assert name == {"key": "token", "name": "weir"} and token == base
    assert tls.pop("OPENSANDBOX_EGRESS_MODE") == "dns+nft+tls"
    assert base.pop("OPENSANDBOX_EGRESS_MODE") == "dns+nft" and tls == base
    assert "weir-policy-" in base["OPENSANDBOX_EGRESS_RULES"]["configMapKeyRef"]["name"]


def test_the_network_policy_is_about_the_same_pods():
    _, documents = kustomize("base")
    policy = documents["NetworkPolicy"]["spec"]
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"][0]["ports"] == [{"port": 18080, "protocol": "TCP"}] and policy["ingress"][0]["from"]
    blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule["to"] if "ipBlock" in to]
    assert "169.254.0.0/16" in blocks[0]["except"]


def test_inject_makes_the_same_container(world):
    """The one that `weir inject` has, and the one in the base: options apart they are equal."""
    text, documents = kustomize("base")
    mine = dict(pod_of(documents)["initContainers"][0])
    done = world.weir("inject", "-f", "-", input=text.encode())
    assert done.code == 0, done
    theirs = next(d for d in yaml.safe_load_all(done.text) if d["kind"] == "Deployment")
    theirs = pod_of({"Deployment": theirs})["initContainers"]
    assert len(theirs) == 1
    for one in (mine, theirs[0]):
        one.pop("image")
        one["env"] = [e for e in one["env"] if e["name"] == "OPENSANDBOX_EGRESS_MODE"]
    assert mine == theirs[0]


def test_the_podman_pod_is_as_strict():
    pod = yaml.safe_load((DEPLOY / "podman/pod.yaml").read_text())["spec"]
    side, app = pod["containers"]
    assert side["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert app["securityContext"]["capabilities"] == {"drop": ["ALL"]} and not pod.get("hostNetwork")


def test_the_compose_app_waits_and_shares_the_network():
    services = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())["services"]
    assert services["app"]["network_mode"] == "service:weir"
    assert services["app"]["depends_on"]["weir"]["condition"] == "service_healthy"
    assert services["weir"]["cap_drop"] == services["app"]["cap_drop"] == ["ALL"]
    assert services["weir"]["cap_add"] == ["NET_ADMIN"] and services["weir"]["read_only"]
    assert "ports" not in services["app"]


def instructions(name):
    """What each image of a Dockerfile ends with, behind its files."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "docker" / name).read_text(), flags=re.M)
    stages = re.split(r"^FROM scratch.*\n", text, flags=re.M)[1:]
    return [[line for line in s.splitlines() if line and not line.startswith(("COPY", "ADD"))] for s in stages]


def test_all_images_end_alike():
    ends = instructions("Dockerfile") + instructions("Dockerfile.staged")
    assert len(ends) == 5 and all(end == ends[0] for end in ends)
    assert 'ENTRYPOINT ["/usr/bin/weir", "sidecar"]' in ends[0] and "USER 65532:65532" in ends[0]


def test_the_image_is_built_from_what_the_tests_are_built_from():
    """Every library that meson asks for is installed by the Dockerfile."""
    setup = (ROOT / "tools/setup").read_text()
    build = re.search(r"build='(.*?)'", setup, re.S).group(1).split()
    docker = (DEPLOY / "docker/Dockerfile").read_text()
    assert [name for name in build if name not in docker] == []


@pytest.fixture(scope="module")
def staged(world):
    """A root with everything, from the programs that are there."""
    root = world.folder / "rootfs-test"
    done = subprocess.run([DEPLOY / "docker/rootfs", "--variant", "opensandbox", "--debug", PROGRAMS,
                           root], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root, done.stdout


def test_the_root_is_complete(staged):
    root, _ = staged
    for program in ("weir", "dig", "curl", "nft", "busybox"):
        done = subprocess.run(["chroot", root, f"/usr/bin/{program}", "--help"], capture_output=True)
        assert b"loading shared libraries" not in done.stderr and done.returncode != 127, done.stderr
    assert subprocess.run(["chroot", root, "/usr/bin/weir", "version"], capture_output=True).returncode == 0
    assert "BEGIN CERTIFICATE" in (root / "etc/ssl/certs/ca-certificates.crt").read_text()
    capability = subprocess.run(["getcap", root / "usr/bin/weir"], capture_output=True, text=True).stdout
    assert capability.split() == [str(root / "usr/bin/weir"), "cap_net_admin=p"]


def test_the_root_has_opensandboxs_paths(staged):
    root, _ = staged
    for name in ("opt/opensandbox-egress/egress", "opt/opensandbox-egress/supervisor",
                 "opt/opensandbox-egress/cleanup.sh", "egress"):
        assert (root / name).is_symlink()
    assert "mitmproxy:x:10042:" in (root / "etc/passwd").read_text()
    assert (root / "var/egress/rules").is_dir() and (root / "var/lib/mitmproxy").stat().st_uid == 10042


@pytest.mark.parametrize("installed", [False, True], ids=["built", "installed"])
def test_the_plain_root_is_small_and_has_no_shell(world, installed):
    root = world.workdir() / "root"
    if installed:
        prefix = world.workdir()
        for name, folder in {"weir": "bin", "weir-control": "libexec/weir", "weir-events": "libexec/weir"}.items():
            (prefix / folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(PROGRAMS / name, prefix / folder)
        programs = prefix
    done = subprocess.run([DEPLOY / "docker/rootfs", "--compressed", PROGRAMS, root], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[2]) <= 10, done.stdout
    assert sorted(p.name for p in (root / "usr/bin").iterdir() if not p.name.startswith("weir")) == []
    assert {"weir", "weir-control", "weir-events"} <= {p.name for p in (root / "usr/bin").iterdir()}
    writable = [p for p in root.rglob("*") if not p.is_symlink() and p.stat().st_mode & 0o002 and p.name != "tmp"]
    assert writable == [] and not [p for p in root.rglob("*") if not p.is_symlink() and p.stat().st_mode & 0o6000]


def test_a_root_without_weir_is_none(tmp_path):
    done = subprocess.run([DEPLOY / "docker/rootfs", tmp_path, tmp_path / "root"], capture_output=True, text=True)
    assert done.returncode != 0 and "build it first" in done.stderr


@pytest.mark.parametrize("name", ["weir.rules.yaml", "grafana.json"])
def test_every_metric_that_alerts_and_dashboard_ask_for_is_there(guarded, name):
    asked = set(re.findall(r"\bweir_[a-z_]+", (ROOT / "deploy/prometheus" / name).read_text(encoding="utf-8")))
    there = set(re.findall(r"^# TYPE (\w+)", guarded().get("/metrics").text, re.M))
    assert len(asked) > 5 and asked <= there, asked - there


def promtool(*words):
    done = subprocess.run(["promtool", *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True)
    assert done.returncode == 0, done


def test_prometheus_takes_the_alerts():
    promtool("check", "rules", "weir.rules.yaml")
    promtool("test", "rules", "weir.test.yaml")


def test_prometheus_takes_what_the_dashboard_asks(tmp_path):
    """Each query as a rule, with Grafana's own variables filled in as Grafana does."""
    text = (DEPLOY / "prometheus/grafana.json").read_text(encoding="utf-8")
    queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", [])]
    queries = [re.sub(r"\$__\w+", "5m", query) for query in queries]
    assert len(queries) > 5 and not [query for query in queries if "$__" in query]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")
