# SPDX-License-Identifier: Apache-2.0
"""Helm's chart: what Helm itself makes of deploy/helm/weir, beside what kubectl makes of deploy/kubernetes."""
import json
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from test_deploy import DEPLOY, ROOT, kustomize, pod_of

CHART = DEPLOY / "helm/weir"
POLICY = DEPLOY / "kubernetes/base/policy.json"
pytestmark = pytest.mark.skipif(not shutil.which("helm"), reason="helm is not installed")


def call(*words):
    return subprocess.run(["helm", *map(str, words)], capture_output=True, text=True)


def rendered(*words, chart=CHART):
    """What Helm would apply as the release `app`, by kind."""
    done = call("template", "app", chart, "--namespace", "guarded", *words)
    assert done.returncode == 0 and done.stderr == "", done
    documents = list(yaml.safe_load_all(done.stdout))
    assert len({d["kind"] for d in documents}) == len(documents)
    return {d["kind"]: d for d in documents}


def named_alike(documents):
    """The documents with one name for what Helm names by the release and kustomize by its files."""
    policy = documents["ConfigMap"]["metadata"]["name"]
    text = json.dumps(documents).replace(policy, "POLICY")
    for label in ('{"app": "guarded"}', '{"weir.example/guarded": "app"}'):
        text = text.replace(label, '"LABELS"')
    documents = json.loads(text)
    documents["NetworkPolicy"]["metadata"]["name"] = "NAME"
    documents["ConfigMap"]["data"] = {k: json.loads(v) for k, v in documents["ConfigMap"]["data"].items()}
    return documents


@pytest.mark.parametrize("variant, words", [
    ("base", []), ("overlays/tls", ["--set", "mode=dns+nft+tls"]), ("overlays/token", ["--set", "token.secret=weir"]),
])
def test_helm_and_kustomize_make_the_same_objects(variant, words):
    theirs = kustomize(variant)[1]
    theirs.pop("Namespace")
    mine = named_alike(rendered("--set-json", f"policy={POLICY.read_text()}", *words))
    theirs = named_alike(theirs)
    for documents in (mine, theirs):
        pod_of(documents)["initContainers"][0]["env"].sort(key=lambda e: e["name"])
    assert mine == theirs


def test_the_labels_of_the_namespace_are_in_the_notes():
    """A chart can't make the namespace that it is installed into; Helm prints the notes only with a cluster."""
    labels = kustomize("base")[1]["Namespace"]["metadata"]["labels"]
    notes = (CHART / "templates/NOTES.txt").read_text()
    line = re.search("kubectl label --overwrite namespace {{ .Release.Namespace }} (.*)", notes)[1]
    assert dict(word.split("=") for word in line.split()) == labels


def test_another_policy_starts_new_pods(world, tmp_path):
    """And Weir takes the policy as the chart writes it."""
    first, other = rendered(), rendered("--set-json", f"policy={POLICY.read_text()}")
    assert pod_of(first) != pod_of(other) and pod_of(first) == pod_of(rendered())
    assert json.loads(first["ConfigMap"]["data"]["policy.json"]) == {"defaultAction": "deny", "egress": []}
    (tmp_path / "policy.json").write_text(other["ConfigMap"]["data"]["policy.json"])
    done = world.weir("policy", "check", "--policy", tmp_path / "policy.json")
    assert done.code == 0, done


def test_the_port_the_image_and_variables_are_the_pods():
    documents = rendered("--set", "port=18081", "--set", "image=r.test/weir:1", "--set", "env.WEIR_UPSTREAM=10.96.0.10",
                         "--set", "resources.limits.memory=64Mi", "--set", "token.secret=s", "--set", "token.key=k")
    side = pod_of(documents)["initContainers"][0]
    env = {e["name"]: e.get("value") or e["valueFrom"] for e in side["env"]}
    assert env["OPENSANDBOX_EGRESS_HTTP_ADDR"] == ":18081" and env["WEIR_UPSTREAM"] == "10.96.0.10"
    assert env["OPENSANDBOX_EGRESS_TOKEN"] == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert side["ports"] == [{"name": "egress-api", "containerPort": 18081}] and side["image"] == "r.test/weir:1"
    assert side["resources"]["limits"] == {"memory": "64Mi"}
    assert documents["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 18081}]


def test_what_is_not_wanted_is_left_out():
    assert set(rendered("--set", "app.create=false", "--set", "networkPolicy=false")) == {"ConfigMap"}


def test_the_line_of_the_readme_is_taken():
    line = re.search(r"^ +helm install app deploy/helm/weir (.*)$", (ROOT / "README.md").read_text(), re.M)[1]
    documents = rendered(*shlex.split(line))
    assert pod_of(documents)["initContainers"][0]["env"][0]["value"] == "dns+nft+tls"
    assert json.loads(documents["ConfigMap"]["data"]["policy.json"])["egress"] == [{"action": "allow", "target": "pypi.org"}]


@pytest.mark.parametrize("value, named", [
    ("mode=nft", "mode"), ("mode=null", "mode"), ("port=80", "port"), ("port=x", "port"), ("imag=x", "imag"), ("image=null", "image"),
    ("policy=deny", "policy"), ("policy=null", "policy"), ("policy.egress=null", "egress"), ("policy.defaultAction=block", "policy.defaultAction"),
    ("policy.egress[0].target=a.test", "policy.egress.0"), ("token.text=secret", "text"), ("resources.memory=1", "memory"),
    ("env.WEIR_MODE=dns", "WEIR_MODE"), ("env.OPENSANDBOX_EGRESS_POLICY_FILE=/p", "OPENSANDBOX_EGRESS_POLICY_FILE"),
    ("app.hostNetwork=true", "hostNetwork"), ("networkPolicy=null", "networkPolicy"), ("app=null", "app"),
])
def test_a_bad_value_is_refused_by_its_name(value, named):
    done = call("template", "app", CHART, "--set", value)
    assert done.returncode != 0 and "kind:" not in done.stdout, done
    assert re.search(rf"^- .*\b{re.escape(named)}\b", done.stderr, re.M), done


OWN = """\
apiVersion: v1
kind: Pod
metadata:
  name: own
  labels: {{- include "weir.labels" .Subcharts.weir | nindent 4 }}
spec:
  initContainers:
    {{- include "weir.sidecar" .Subcharts.weir | nindent 4 }}
  containers:
    - {name: own, image: own}
"""


def test_a_chart_of_ones_own_has_the_sidecar_in_its_pod(tmp_path):
    """As the head of templates/_weir.tpl says."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump({
        "apiVersion": "v2", "name": "own", "version": "1.0.0",
        "dependencies": [{"name": "weir", "version": "0.*", "repository": f"file://{CHART}"}]}))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"weir": {"mode": "dns+nft+tls", "app": {"create": False}}}))
    (tmp_path / "templates/pod.yaml").write_text(OWN)
    done = call("dependency", "build", tmp_path)
    assert done.returncode == 0, done
    documents = rendered(chart=tmp_path)
    alone = rendered("--set", "mode=dns+nft+tls")
    assert set(documents) == {"Pod", "ConfigMap", "NetworkPolicy"}
    assert documents["Pod"]["spec"]["initContainers"] == pod_of(alone)["initContainers"]
    assert documents["NetworkPolicy"] == alone["NetworkPolicy"] and documents["ConfigMap"] == alone["ConfigMap"]
    assert documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == documents["Pod"]["metadata"]["labels"]
    done = call("template", "app", tmp_path, "--set", "weir.mode=nft")
    assert done.returncode != 0 and "- mode: " in done.stderr, done


def test_the_chart_is_clean_and_has_the_version_of_weir():
    done = call("lint", "--strict", CHART)
    assert done.returncode == 0, done
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.M)[1]
    assert chart["version"] == chart["appVersion"] == version
