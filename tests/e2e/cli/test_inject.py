# SPDX-License-Identifier: Apache-2.0
"""`weir inject`: what it prints is what was given, with the sidecar first; or nothing at all."""
import itertools

import pytest
import yaml

CONTAINERS = "containers: [{name: app, image: app:1}]"


def workload(kind, spec=CONTAINERS, name="x", extra=""):
    """A manifest of @kind whose pod has the YAML lines @spec."""
    depth = {"Pod": ["spec"], "CronJob": ["spec", "jobTemplate", "spec", "template", "spec"],
             "PodTemplate": ["template", "spec"]}.get(kind, ["spec", "template", "spec"])
    lines = ["apiVersion: v1", f"kind: {kind}", "metadata:", f"  name: {name}"] + ([f"  {extra}"] if extra else [])
    lines += ["  " * i + f"{key}:" for i, key in enumerate(depth)]
    return "\n".join(lines + ["  " * len(depth) + line for line in spec.splitlines()]) + "\n"


def pod_of(document):
    while "containers" not in document:
        document = next(document[key] for key in ("spec", "template", "jobTemplate") if key in document)
    return document


def inject(world, text, *options):
    return world.weir("inject", "-f", "-", *options, input=text.encode())


def injected(world, text, *options):
    done = inject(world, text, *options)
    assert done.code == 0, done
    return [d for d in yaml.safe_load_all(done.text) if d]


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob",
                                  "ReplicationController", "PodTemplate", "Rollout"])
def test_every_kind_gets_it_and_loses_nothing(world, kind):
    text = workload(kind)
    [document] = injected(world, text)
    pod = pod_of(document)
    side = pod.pop("initContainers")
    assert document == yaml.safe_load(text)
    assert [c["name"] for c in side] == ["weir"] and side[0]["restartPolicy"] == "Always"
    assert side[0]["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert side[0]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert side[0]["securityContext"]["runAsNonRoot"] and side[0]["securityContext"]["readOnlyRootFilesystem"]


def test_it_is_first_so_that_other_init_containers_are_guarded_too(world):
    spec = "initContainers:\n- {name: one, image: a}\n- {name: two, image: b}\n" + CONTAINERS
    [document] = injected(world, workload("Pod", spec))
    assert [c["name"] for c in document["spec"]["initContainers"]] == ["weir", "one", "two"]
    # and again, wherever somebody moved it
    moved = "initContainers:\n- {name: one, image: a}\n- {name: weir, image: old, restartPolicy: Always}\n" + CONTAINERS
    [document] = injected(world, workload("Pod", moved), "--image", "weir:new")
    assert [(c["name"], c["image"]) for c in document["spec"]["initContainers"]] == [("weir", "weir:new"), ("one", "a")]


def test_twice_is_once(world):
    text = "".join("---\n" + workload(kind, name=f"n-{kind.lower()}") for kind in ("Pod", "Deployment", "CronJob"))
    options = ("--rules", '{"defaultAction":"deny"}', "--token-secret", "weir")
    once = inject(world, text, *options)
    twice = inject(world, once.text, *options)
    assert once.code == twice.code == 0 and once.text == twice.text and once.text.count("name: weir") == 3


def test_options_are_in_the_container(world):
    rules = '{"defaultAction":"deny","egress":[{"action":"allow","target":"a.test"}]}'
    [document] = injected(world, workload("Pod"), "--image", "r.test/weir:1", "--mode", "dns", "--rules", rules,
                          "--token-secret", "s")
    side = document["spec"]["initContainers"][0]
    env = {e["name"]: e.get("value") or e["valueFrom"] for e in side["env"]}
    assert side["image"] == "r.test/weir:1"
    assert env == {"OPENSANDBOX_EGRESS_MODE": "dns", "OPENSANDBOX_EGRESS_RULES": rules,
                   "OPENSANDBOX_EGRESS_TOKEN": {"secretKeyRef": {"name": "s", "key": "token"}}}
    [document] = injected(world, workload("Pod"))
    assert [e["name"] for e in document["spec"]["initContainers"][0]["env"]] == ["OPENSANDBOX_EGRESS_MODE"]


def test_values_keep_their_kind_and_order(world):
    text = """\
zeta: "5"
apiVersion: v1
kind: Pod
metadata: {name: x, annotations: {a: 'true', b: "0x1", c: , d: "", e: 1e3, f: "no", g: ~}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: "a:1"
    args: ['-c', "line\\nbreak", '{"a": "b"}', 007, "007", yes, on]
    command:
    - sh
    - |
      one
        two
  dnsPolicy: Default
  volumes: [{name: v, emptyDir: {}}]
alpha: [1, "1", 1.0]
"""
    [document] = injected(world, text)
    document["spec"].pop("initContainers")
    assert document == yaml.safe_load(text)
    assert list(document) == list(yaml.safe_load(text)) and list(document["spec"]) == list(yaml.safe_load(text)["spec"])


def test_other_documents_pass_and_lists_are_entered(world):
    text = ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {spec: x, a: 'b'}\n---\n---\n"
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n"
            f"- {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{CONTAINERS}}}}}\n")
    first, second = injected(world, text)
    assert first == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"spec": "x", "a": "b"}}
    assert "spec" not in second["items"][0]
    assert second["items"][1]["spec"]["initContainers"][0]["name"] == "weir"


def test_json_is_yaml_too(world):
    [document] = injected(world, '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":'
                                 '[{"name":"app","image":"a","env":[{"name":"A","value":"5"}]}]}}')
    assert document["spec"]["containers"][0]["env"][0]["value"] == "5"
    assert document["spec"]["initContainers"][0]["name"] == "weir"


def test_anchors_mean_the_same_behind_it(world):
    [document] = injected(world, workload("Pod", "containers:\n- {name: a, image: i, env: &e [{name: A, value: b}]}\n"
                                                 "- {name: b, image: i, env: *e}\n"))
    assert document["spec"]["containers"][1]["env"] == [{"name": "A", "value": "b"}]


def test_lists_in_lists_are_entered_as_kubectl_does(world):
    pod = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{CONTAINERS}}}}}"
    inner = f"{{apiVersion: v1, kind: List, items: [{pod}]}}"
    [document] = injected(world, f"apiVersion: v1\nkind: List\nitems:\n- {inner}\n")
    assert document["items"][0]["items"][0]["spec"]["initContainers"][0]["name"] == "weir"
    # what has items is a list, whatever it is called
    [document] = injected(world, f"apiVersion: v1\nkind: ConfigMap\nitems:\n- {pod}\n")
    assert document["items"][0]["spec"]["initContainers"][0]["name"] == "weir"


HARMLESS = [
    ("processes of the pod", "shareProcessNamespace: true\n"),
    ("a directory of the node", "volumes: [{name: v, hostPath: {path: /srv/data, type: Directory}}]\n"),
    ("a directory beside", "volumes: [{name: v, hostPath: {path: /running}}]\n"),
    ("another kind of volume", "volumes: [{name: v, emptyDir: {}}, {name: w, configMap: {name: c}}]\n"),
    ("no host's anything", "hostPID: false\nhostIPC: false\n"),
]


@pytest.mark.parametrize("what, text", HARMLESS, ids=[w for w, _ in HARMLESS])
def test_what_opens_nothing_passes(world, what, text):
    assert inject(world, workload("Pod", text + CONTAINERS)).code == 0


def test_a_word_about_net_raw(world):
    keeps = inject(world, workload("Pod"))
    assert keeps.code == 0 and "1 containers don't drop NET_RAW" in keeps.messages
    for dropped in ("NET_RAW", "all", "cap_net_raw"):
        done = inject(world, with_context(f"{{capabilities: {{drop: [{dropped}]}}}}"))
        assert done.code == 0 and "NET_RAW" not in done.messages, done


def with_context(text):
    return workload("Pod", f"containers:\n- name: app\n  image: a\n  securityContext: {text}\n")


def with_volume(path):
    return workload("Pod", f"volumes: [{{name: v, hostPath: {path}}}]\n{CONTAINERS}\n")


REFUSED = [
    ("the host's network", workload("Pod", "hostNetwork: true\n" + CONTAINERS), "host's network"),
    ("the same, quoted", workload("Pod", 'hostNetwork: "true"\n' + CONTAINERS), "host's network"),
    ("the same, in other words", workload("Job", "hostNetwork: yes\n" + CONTAINERS), "host's network"),
    ("the same, as a number", workload("Job", "hostNetwork: 1\n" + CONTAINERS), "host's network"),
    ("the same, by a tag", workload("Job", "hostNetwork: !!bool true\n" + CONTAINERS), "host's network"),
    ("the same, by an escape", workload("Pod", '"host\\x4eetwork": true\n' + CONTAINERS), "host's network"),
    ("the same, by an alias", workload("Pod", "x: &t true\nhostNetwork: *t\n" + CONTAINERS), "host's network"),
    ("a second value", workload("Pod", "hostNetwork: false\nhostNetwork: true\n" + CONTAINERS), "second time"),
    ("a merge key", workload("Pod", "x: &m {hostNetwork: true}\n<<: *m\n" + CONTAINERS), "merge key"),
    ("another case", workload("Pod", "HostNetwork: true\n" + CONTAINERS), "unusual case"),
    ("a binary key", workload("Pod", "!!binary aG9zdE5ldHdvcms=: true\n" + CONTAINERS), "not plain text"),
    ("a key that is a list", workload("Pod", "? [a]\n: b\n" + CONTAINERS), "not plain text"),
    ("a privileged container", with_context("{privileged: true}"), "privileged"),
    ("NET_ADMIN", with_context("{capabilities: {add: [NET_ADMIN]}}"), "NET_ADMIN"),
    ("NET_ADMIN in other words", with_context("{capabilities: {add: [chown, cap_net_admin]}}"), "cap_net_admin"),
    ("all capabilities", with_context("{capabilities: {add: [all]}}"), "all"),
    ("an init container with it", workload("Pod", "initContainers:\n- name: i\n  image: a\n  securityContext: "
                                           "{privileged: true}\n" + CONTAINERS), "privileged"),
    ("a container called weir", workload("Pod", "containers: [{name: weir, image: a}]"), "'weir'"),
    ("an init container called weir", workload("Pod", "initContainers: [{name: weir, image: a}]\n" + CONTAINERS),
     "'weir'"),
    ("the host's processes", workload("Pod", "hostPID: true\n" + CONTAINERS), "host's processes"),
    ("the host's memory", workload("CronJob", "hostIPC: true\n" + CONTAINERS), "memory segments"),
    ("the kernel's files", with_context("{procMount: Unmasked}"), "kernel's files"),
    ("NET_RAW", with_context("{capabilities: {drop: [ALL], add: [NET_RAW]}}"), "NET_RAW"),
    ("a container for debugging", workload("Pod", "ephemeralContainers:\n- name: d\n  image: a\n  securityContext: "
                                           "{privileged: true}\n" + CONTAINERS), "privileged"),
    ("an engine's socket", with_volume("{path: /var/run/docker.sock}"), "docker.sock"),
    ("its directory", with_volume("{path: /run/containerd/, type: Directory}"), "/run/containerd/"),
    ("what is above it", with_volume("{path: /var}"), "'/var'"),
    ("all of the node", with_volume("{path: /}"), "'/'"),
    ("the same, in other words", with_volume("{path: //.//run/./}"), "node"),
    ("a way back", with_volume("{path: /srv/../run}"), "/srv/../run"),
    ("the node's processes", with_volume("{path: /proc}"), "/proc"),
    ("the kubelet's", with_volume("{path: /var/lib/kubelet/pods}"), "kubelet"),
    ("a path in other words", with_volume("{path: !!binary L3J1bg==}"), "node"),
    ("no path", with_volume("{}"), "node"),
    ("a socket by its type", with_volume("{path: /srv/s, type: Socket}"), "Socket"),
    ("a device by its type", with_volume("{path: /srv/s, type: BlockDevice}"), "BlockDevice"),
    ("a PersistentVolume of the node", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\n"
     "spec: {hostPath: {path: /run}}\n", "'/run'"),
    ("a local one", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {local: {path: /}}\n", "'/'"),
    ("lists without end", "".join("{kind: List, items: [" for _ in range(20)) + "]}" * 20 + "\n", "lists in one another"),
    ("a pod whose kind its list says", f"kind: PodList\nitems: [{{metadata: {{name: x}}, spec: {{{CONTAINERS}}}}}]\n",
     "by hand"),
    ("a kind in other words", workload("Pod").replace("kind: Pod", "kind: !!binary UG9k"), "not plain text"),
    ("several pods of one object", "kind: JobSet\nmetadata: {name: x}\nspec: {replicatedJobs: [{template: {spec: {template: "
     f"{{spec: {{{CONTAINERS}}}}}}}}}}}]}}\n", "by hand"),
    ("a second pod in an object", workload("Deployment") + f"other: {{spec: {{{CONTAINERS}}}}}\n", "by hand"),
    ("a merge key elsewhere", "kind: Other\na: &a {x: y}\nb: {<<: *a}\n", "merge key"),
    ("no containers", workload("Pod", "containers: []"), "no containers"),
    ("no pod", "apiVersion: v1\nkind: Deployment\nmetadata: {name: x}\n", "no pod"),
    ("a pod that is text", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: text\n", "not a mapping"),
    ("containers that are text", workload("Pod", "containers: text"), "not a list"),
    ("init containers that are null", workload("Pod", "initContainers: null\n" + CONTAINERS), "leave it out"),
    ("nothing to guard", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", "no workload"),
    ("an empty file", "", "no workload"),
    ("no YAML", "a: [b\n", "not YAML"),
    ("a restricted namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: n, labels: "
     "{pod-security.kubernetes.io/enforce: restricted}}\n---\n" + workload("Pod", extra="namespace: n"), "namespace"),
]


@pytest.mark.parametrize("what, text, mentions", REFUSED, ids=[w for w, _, _ in REFUSED])
def test_what_cannot_be_guarded_prints_nothing_and_says_where(world, what, text, mentions):
    done = inject(world, workload("Pod", name="good") + "---\n" + text if "workload" not in mentions else text)
    assert done.code == 2 and done.out == b"", done
    assert mentions in done.messages and "-:" in done.messages, done


def test_all_faults_are_told_at_once(world):
    texts = [text for _, text, mentions in REFUSED if "host's network" in mentions]
    done = inject(world, "---\n".join(texts))
    assert done.messages.count("host's network") == len(texts), done


@pytest.mark.parametrize("value", ["false", "False", "no", "off", "null", "~", ""])
def test_no_is_no(world, value):
    assert inject(world, workload("Pod", f"hostNetwork: {value}\n" + CONTAINERS)).code == 0


def test_it_says_what_restricted_namespaces_do(world):
    told = inject(world, workload("Pod"))
    assert "baseline" in told.messages and "restricted" in told.messages
    assert "pod-security.kubernetes.io/enforce=privileged" in world.weir("help", "inject").text
    assert inject(world, workload("Pod"), "--quiet").messages == ""


@pytest.mark.parametrize("args", [(), ("-f",), ("-f", "a", "b"), ("-f", "-", "--image", ""), ("-f", "-", "--mode", "nft"),
                                  ("-f", "-", "--rules", "[]"), ("-f", "-", "--rules", "{"), ("-x",)])
def test_bad_usage_is_status_2(world, args):
    done = world.weir("inject", *args, input=b"")
    assert done.code == 2 and done.out == b"" and done.messages, done


def test_deep_and_cyclic_documents_end(world):
    deep = workload("Pod") + "x: " + "[" * 5000 + "]" * 5000 + "\n"
    cyclic = "&a\nkind: List\nitems: [*a, *a]\n"
    laughs = "a: &a [x,x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]\n"
                                       for i in range(20))
    for text in (deep, cyclic, workload("Pod") + laughs):
        done = inject(world, text)
        assert done.code in (0, 2), done


def test_hostile_names_are_printed_escaped(world):
    done = inject(world, workload("Pod", "hostNetwork: true\n" + CONTAINERS, name='"\\e[31mred\\a"'))
    assert done.code == 2 and b"\x1b" not in done.err and b"\x07" not in done.err


def test_all_mistakes_in_all_places(world):
    """Whatever line of a pod is broken off, nothing is printed that isn't guarded."""
    lines = workload("Deployment", "hostNetwork: false\ninitContainers:\n- {name: i, image: a}\n" + CONTAINERS).splitlines()
    for at, junk in itertools.product(range(len(lines)), ("- x", ":", "\t", "%", "spec:", "? x")):
        text = "\n".join(lines[:at] + [junk] + lines[at + 1:]) + "\n"
        done = inject(world, text)
        assert done.code in (0, 2), done
        if done.code == 0 and done.out:
            for document in yaml.safe_load_all(done.text):
                assert pod_of(document)["initContainers"][0]["name"] == "weir", text
