# SPDX-License-Identifier: Apache-2.0
"""What is said to be guarded: exactly one kind, all faults at once, and nothing when it fails."""
import os
import pathlib
import re
import shlex

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]

KINDS = "exactly one of netns, cgroup and uid is given"


@pytest.mark.parametrize("body, faults", [
    ({}, [KINDS]),
    ({"policy": {}}, [KINDS]),
    ({"cgroup": "/a", "uid": 1000}, [KINDS]),
    ({"cgroup": "a/b"}, ["cgroup: 'a/b' is no absolute path"]),
    ({"cgroup": 7}, ["cgroup: this is not a string"]),
    ({"cgroup": "/" + "x" * 300}, ["cgroup: the path is longer than 255 bytes"]),
    ({"netns": "run/x"}, ["netns: 'run/x' is no absolute path and no process id"]),
    ({"netns": "0"}, ["netns: '0' is no absolute path and no process id"]),
    ({"uid": 0}, ["uid: this is not a user name or a number from 1 to 4294967294"]),
    ({"uid": "0"}, ["uid: this is not a user name"]),
    ({"uid": -1}, ["uid: this is not a user name"]),
    ({"uid": 4294967295}, ["uid: this is not a user name"]),
    ({"uid": 1.5}, ["uid: this is not a user name"]),
    ({"uid": "4294967295"}, ["uid: '4294967295' is not a user name"]),
    ({"uid": "a b\n"}, ["uid: 'a b\\x0a' is not a user name"]),
    ({"uid": 7, "guardParent": True}, ["guardParent: this goes with a cgroup alone"]),
    ({"netns": "/a", "again": True}, ["again: this goes with a cgroup or a user alone"]),
    ({"uid": 7, "again": 1}, ["again: this is neither true nor false"]),
    ({"cgroup": "/a", "guardParent": 1}, ["guardParent: this is neither true nor false"]),
    # a key that is ignored would leave the rule wider than it reads
    ({"uid": 7, "policy": {"egress": [{"action": "allow", "target": "a.test", "port": [443]}]}}, ["policy: unknown key 'egress[].port'"]),
    ({"uid": 7, "policy": {"network_policy": {"egress": []}}}, ["policy: unknown key 'network_policy'"]),
    # each of them, not the first
    ({"cgroup": "a", "uid": 0, "more": 1, "guardParent": "yes", "policy": {"egress": [{"action": "open", "target": "a.test"}]}},
     ["cgroup: 'a' is no", "uid: this is not", "'more' is not a key of this", "guardParent: this is neither", KINDS, "policy: "]),
])
def test_every_fault_is_told_at_once(daemon, body, faults):
    reply = daemon.call("PUT", "/sandboxes/one", body)
    assert reply.status == 400 and daemon.names() == [], reply
    assert reply.json()["error"] == "refused"
    for fault in faults:
        assert fault in reply.json()["reason"], reply
    assert reply.json()["reason"].count("; ") >= len(faults) - 1


def test_a_policy_has_no_more_rules_than_the_api_takes(host):
    daemon = host.daemon("--max-rules", "1")
    rules = [{"action": "allow", "target": f"{name}.test"} for name in "ab"]
    reply = daemon.call("PUT", "/sandboxes/one", {"uid": 12345, "policy": {"egress": rules}})
    assert reply.status == 413 and "egress rule total count 2 exceeds limit 1" in reply.json()["reason"], reply
    assert daemon.names() == []
    assert daemon.call("PUT", "/sandboxes/one", {"uid": 12345, "policy": {"egress": rules[:1]}}).status == 201


def test_an_id_is_a_word(daemon):
    for name in ("a%20b", ".hidden", "a:b"):
        reply = daemon.call("PUT", f"/sandboxes/{name}", {"cgroup": "/a"})
        assert reply.status == 400 and "a sandbox's id is" in reply.json()["reason"], name


@pytest.mark.parametrize("args, said", [
    (["--id", "one"], "exactly one of --netns, --cgroup and --uid"),
    (["--id", "one", "--cgroup", "/a", "--uid", "1000"], "exactly one of --netns, --cgroup and --uid"),
    (["--cgroup", "/a"], "--id and exactly one"),
    (["--id", "one", "--uid", "1000", "--guard-parent"], "--guard-parent goes with --cgroup"),
    (["--id", "one", "--netns", "/a", "--again"], "--again goes with --cgroup and --uid"),
    (["--id", "one", "--uid", "nobody-of-that-name"], "'nobody-of-that-name' is not a user of this host"),
    (["--id", "one", "--uid", "root"], "'root' is root"),
    (["--id", "one", "--uid", "0"], "--uid: '0' is root"),
    (["--id", ".one", "--uid", "1000"], "'.one' is not an id"),
    (["--id", "one", "--cgroup", "/a", "--cgroup", "/b"], "--cgroup: given twice"),
    (["--id", "one", "--cgroup", "/a", "/b"], "'/b' is one argument too many"),
])
def test_the_command_line_is_held_to_the_same(daemon, args, said):
    done = daemon.weir("attach", *args)
    assert done.code == 2 and said in done.messages, done
    assert daemon.names() == []


@pytest.mark.parametrize("kind", ["--cgroup", "--netns"])
def test_a_path_that_json_cannot_say_is_refused(daemon, kind):
    done = daemon.weir("attach", "--id", "one", kind, os.fsdecode(b"/a\xff"))
    assert done.code == 2 and "the path '/a\\xff' is not UTF-8" in done.messages, done
    assert daemon.names() == []


def test_the_command_line_is_told_all_at_once(daemon, tmp_path):
    done = daemon.weir("attach", "--id", "a b", "--uid", "nobody-of-that-name", "--guard-parent", "--allow", "a..b",
                       "--policy", tmp_path / "none.yaml")
    for said in ("'a b' is not an id", "--uid: 'nobody-of-that-name'", "--guard-parent goes with", "--allow: 'a..b'",
                 f"policy: cannot open {tmp_path}/none.yaml"):
        assert said in done.messages, done
    assert done.code == 2 and daemon.names() == []


def test_a_user_has_to_be_there(daemon):
    reply = daemon.call("PUT", "/sandboxes/one", {"uid": "nobody-of-that-name"})
    assert reply.status == 500 and reply.json()["error"] == "failed_safety_setup", reply
    assert "there is no user 'nobody-of-that-name'" in reply.json()["reason"]
    reply = daemon.call("PUT", "/sandboxes/one", {"uid": "root"})
    assert reply.status == 500 and "root is not a user" in reply.json()["reason"], reply
    assert daemon.names() == []


@pytest.fixture
def group():
    root = next(line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if " cgroup2 " in line)
    path = pathlib.Path(root) / f"weir-attach-{os.getpid()}" / "job"
    path.mkdir(parents=True)
    yield path
    path.rmdir()
    path.parent.rmdir()


def test_a_cgroup_is_shown_as_what_it_is(daemon, group):
    name = f"{group.parent.name}/{group.name}"
    for where in (f"/{name}", name, str(group)):
        done = daemon.weir("attach", "--id", "one", "--cgroup", where, "--guard-parent" if where == name else "--allow=a.test")
        assert done.code == 0, f"{done}\n{daemon}"
        one = daemon.get("/sandboxes/one").json()
        assert (one["kind"], one["cgroup"]) == ("cgroup", f"/{name}") and "uid" not in one
        assert one.get("guardParent", False) is (where == name)
        row, = daemon.weir("ps").text.splitlines()[1:]
        assert row.split()[1] == "cgroup" and row.split()[-1] == f"/{name}"
        assert daemon.weir("detach", "one").code == 0


def test_a_user_is_shown_by_number(daemon):
    for who in ("nobody", 65534, "65534"):
        reply = daemon.call("PUT", "/sandboxes/one", {"uid": who})
        assert reply.status == 201 and reply.json()["uid"] == 65534, f"{reply}\n{daemon}"
        one, = daemon.get("/sandboxes").json()["sandboxes"]
        assert (one["kind"], one["uid"]) == ("uid", 65534) and "cgroup" not in one
        assert daemon.weir("ps").text.splitlines()[1].split()[-1] == "65534"
        assert "uid         65534\n" in daemon.weir("status", "one").text
        assert daemon.weir("detach", "one").code == 0
    assert daemon.weir("attach", "--id", "one", "--uid", "nobody").code == 0
    assert daemon.get("/sandboxes/one").json()["uid"] == 65534


@pytest.mark.parametrize("document, option, verify", [
    ("", [], "dns"), ("", ["--verify", "tls"], "tls"), ("verify: tls", [], "tls"), ("verify: tls", ["--verify", "dns"], "dns"),
])
def test_what_connections_have_to_show_is_said_with_the_way_to_the_other(daemon, tmp_path, document, option, verify):
    (tmp_path / "policy.yaml").write_text(f"{document}\negress: []\n")
    done = daemon.weir("attach", "--id", "one", "--uid", "nobody", "--policy", tmp_path / "policy.yaml", *option)
    assert done.code == 0 and done.out == b"", f"{done}\n{daemon}"
    line, = done.messages.splitlines()
    assert line.startswith(f"weir: 'one' is guarded with verify: {verify}, ") and f"--verify {'dns' if verify == 'tls' else 'tls'} " in line
    assert daemon.status("one")["mode"] == "dns+nftables" + ("+tls" if verify == "tls" else "")


PAGES = [(ROOT / name).read_text(encoding="utf-8").replace("\\e\n", "") for name in ("README.md", "docs/host-firewall.md", "man/weir-attach.1")]
EXAMPLES = [line for page in PAGES for line in re.findall(r"^ *weir (attach --id .*)$", page, re.M)]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_pages_attaches(daemon, pod, tmp_path, group, line):
    (tmp_path / "jobs.yaml").write_text("egress: []\n")
    line = re.sub(r"\$\(docker [^)]*\)", str(pod.ns.path), line).replace("/sys/fs/cgroup/build", str(group)).replace("--uid jobs", "--uid nobody")
    words = shlex.split(line.replace("jobs.yaml", str(tmp_path / "jobs.yaml")).replace("--profile team", "--profile default"))
    done = daemon.weir(*words)
    assert done.code == 0 and daemon.names() == [words[2]], f"{done}\n{daemon}"
    assert daemon.weir("detach", words[2]).code == 0


def test_status_says_that_there_is_nothing(world):
    for verb in ("ps", "status"):
        done = world.command("setpriv", "--reuid=54321", "--clear-groups", str(world.weir_path), verb)
        assert done.code == 0 and "no run under way" in done.messages and "no daemon" in done.messages, done
        done = world.command("setpriv", "--reuid=54321", "--clear-groups", str(world.weir_path), verb, "--json")
        assert done.code == 0 and not done.messages and done.json()["sandboxes"] == [], done


@pytest.mark.parametrize("state, said", [
    (b"", "not the state of a container"),
    (b"{", "not the state of a container"),
    (b"[1]", "not the state of a container"),
    (b'{"id": "a", "status": "stopped"}', "it has no id, or no pid"),
    (b'{"id": "", "pid": 7}', "it has no id, or no pid"),
    (b'{"id": "a", "pid": 0}', "it has no id, or no pid"),
    (b'{"id": "a", "pid": 99999999999}', "it has no id, or no pid"),
    (b'{"id": "a", "pid": "7"}', "it has no id, or no pid"),
    (b'{"id": "%s", "pid": 7}' % (b"x" * 64), "the container's id is longer than 63"),
    (b'{"id": "a/../b", "pid": 7}', "'a/../b' is not an id"),
    (b'{"id": "a", "pid": 7, "x": "%s"}' % (b"x" * (1 << 20)), "cannot read a container's state"),
], ids=range(11))
def test_a_containers_state_is_held_to_its_form(daemon, state, said):
    done = daemon.weir("attach", "--oci-state", input=state)
    assert done.code == 2 and said in done.messages, done
    assert daemon.names() == []


def test_a_containers_state_says_who_it_is(daemon):
    for more in (["--id", "a"], ["--netns", "1"], ["--cgroup", "/a"], ["--uid", "1000"], ["--again"]):
        done = daemon.weir("attach", "--oci-state", *more, input=b'{"id": "a", "pid": 1}')
        assert done.code == 2, done
    assert daemon.names() == []
