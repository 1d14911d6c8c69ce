# SPDX-License-Identifier: Apache-2.0
"""Environment variables and files."""
import json
import os
import stat

import pytest

from world import expect
from world.sidecar import policy, wait_for

EGRESS = "OPENSANDBOX_EGRESS_"


@pytest.mark.parametrize("mode, shown", [(None, "dns+nft"), ("", "dns+nft"), ("dns", "dns"), ("dns+nft", "dns+nft"),
                                         ("nft+dns", "dns+nft"), ("  DNS+nft  ", "dns+nft"), ("NFT + dns", "dns+nft"),
                                         ("dns+nft+tls", "dns+nft+tls")])
def test_F6_modes(pod, mode, shown):
    side = pod.sidecar(mode=mode)
    assert side.get("/policy").json()["enforcementMode"] == shown


@pytest.mark.parametrize("mode", ["nft", "dns+unknown", "dns+mitm", "off", "dns+"])
def test_F6_an_invalid_mode_ends_the_start(pod, mode):
    side = pod.sidecar(mode=mode, ready=False)
    assert side.ended() != 0
    assert "mode" in str(side).lower() and "opensandbox" not in pod.nft("list", "tables")


BROKEN_RULES = ["{", "[]", '"deny"', '{"egress":[{"action":"foo","target":"a.test"}]}',
                '{"egress":[{"action":"allow"}]}', '{"defaultAction":"block"}', '{"defaultAction":5}']


@pytest.mark.parametrize("rules", BROKEN_RULES)
def test_rules_that_cannot_be_read_end_the_start(pod, rules):
    side = pod.sidecar(rules=rules, ready=False)
    assert side.ended() != 0
    assert "failed to load initial egress policy" in str(side)


@pytest.mark.parametrize("name, value", [("DNS_UPSTREAM", "dns.google"), ("DNS_UPSTREAM", "dns.google:53"),
                                         ("DNS_UPSTREAM", ","), ("DNS_UPSTREAM", "8.8.8.8,dns.google"),
                                         ("MITMPROXY_TRANSPARENT", "true")])
def test_settings_that_cannot_be_met_end_the_start(pod, name, value):
    side = pod.sidecar(env={EGRESS + name: value}, ready=False)
    assert side.ended() != 0 and str(side).strip()


@pytest.mark.parametrize("said, status", [({}, 200), ({"WEIR_UI": "on"}, 200), ({"WEIR_UI": "off"}, 404)])
def test_the_page_is_there_unless_it_is_switched_off(pod, said, status):
    side = pod.sidecar(env=said)
    assert side.get("/ui/", token=None).status == status
    assert side.get("/status", token=None).status == 401


def test_a_busy_port_ends_the_start(pod, guarded):
    first = guarded()
    second = pod.sidecar(ready=False)
    assert second.ended() != 0
    assert first.get("/healthz").status == 200


@pytest.mark.parametrize("address, port", [(":19090", 19090), ("127.0.0.1:19091", 19091), ("[::1]:19092", None)])
def test_the_api_listens_where_it_is_told(pod, address, port):
    side = pod.sidecar(env={EGRESS + "HTTP_ADDR": address}, api_port=port or 19092, ready=bool(port))
    if port is None:
        import socket

        from world.sidecar import request
        def up():
            try:
                return request(pod.ns, ("::1", 19092), "GET", "/healthz").status == 200
            except OSError:
                return False
        assert wait_for(up) and socket
    else:
        assert side.get("/healthz").text == "ok"
    if address.startswith("127"):
        with pytest.raises(OSError):
            side.get("/healthz", outside=True, timeout=1)


# the policy file

def with_file(pod, world, text=None, mode=0o640, rules=None, **options):
    path = world.workdir() / "policy.json"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    return pod.sidecar(rules=rules, env={EGRESS + "POLICY_FILE": str(path)}, **options), path


def targets(side):
    return [r["target"] for r in side.get("/policy").json()["policy"]["egress"]]


@pytest.mark.parametrize("text, wanted", [(None, ["env.test"]), ("", ["env.test"]), ("{broken", []),
                                          (policy("allow file.test"), ["file.test"])])
def test_F5_a_good_file_wins(pod, world, text, wanted):
    side, _ = with_file(pod, world, text, rules=policy("allow env.test"))
    assert targets(side) == wanted


def test_F5_what_is_posted_is_kept_in_place_and_read_again(pod, world):
    side, path = with_file(pod, world, policy("allow file.test"))
    before = os.stat(path)
    side.post("allow posted.test", "deny 10.0.0.0/8")
    assert path.read_text() == json.dumps({"egress": [{"action": "allow", "target": "posted.test"},
                                                      {"action": "deny", "target": "10.0.0.0/8"}],
                                           "defaultAction": "deny"}, indent=2) + "\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640 and os.stat(path).st_uid == before.st_uid
    side.patch("allow patched.test")
    side.delete("10.0.0.0/8")
    assert side.stop() == 0
    side, _ = None, None
    again = pod.sidecar(rules=policy("allow env.test"), env={EGRESS + "POLICY_FILE": str(path)})
    assert targets(again) == ["patched.test", "posted.test"]
    assert [p for p in path.parent.iterdir() if p.name != "policy.json"] == []


def test_F5_a_new_file_is_private(pod, world):
    side, path = with_file(pod, world)
    side.post("allow a.test")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_F5_a_file_that_is_a_mount_is_written_in_place(pod, world):
    """A single file that Docker mounted: rename() says EBUSY."""
    path = world.workdir() / "policy.json"
    path.write_text(policy("allow file.test"))
    place = world.workdir() / "mounted.json"
    place.touch()
    import subprocess
    subprocess.run(["mount", "--bind", path, place], check=True)
    try:
        side = pod.sidecar(env={EGRESS + "POLICY_FILE": str(place)})
        assert targets(side) == ["file.test"]
        side.post("allow posted.test")
        assert json.loads(path.read_text())["egress"][0]["target"] == "posted.test"
        side.stop()
    finally:
        subprocess.run(["umount", "-l", place], check=True)  # programs beside this may look at it


def test_F5_a_file_that_cannot_be_written_changes_nothing(pod, world, site):
    """H2's kin: the old policy stays in memory, in the kernel and in the file."""
    side, path = with_file(pod, world, policy("allow file.test"))
    folder = path.parent
    text = path.read_text()
    import subprocess
    subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    try:
        side.stop()
        side = pod.sidecar(env={EGRESS + "POLICY_FILE": str(path)})
        reply = side.call("POST", "/policy", policy(f"allow {site.name}"))
        assert reply.status == 500 and "failed to persist policy" in reply.text
        assert targets(side) == ["file.test"] and path.read_text() == text
        expect.name_refused(pod.probe(["dns", site.name]))
        side.stop()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


# always-rules

@pytest.fixture
def always(world):
    folder = world.workdir()

    def write(**files):
        for name, text in files.items():
            (folder / f"{name}.always").write_text(text)
        return folder
    return write


def test_F1_always_files_are_read_before_the_policy(pod, world, always, site, denied):
    folder = always(deny=f"# c\n\n{denied.name}\n93.250.1.1\n2a01:93:250::/48\n", allow=f"  {site.name}  \n93.251.1.1\n")
    side = pod.sidecar("--always-dir", folder, rules=policy(f"allow {denied.name}", f"deny {site.name}", "allow 93.250.1.1"))
    good, bad, shut, open_ = pod.probe(["dns", site.name], ["dns", denied.name], ["tcp", "93.250.1.1", 7007],
                                       ["tcp", "93.251.1.1", 7007])
    assert good.addresses == [site.v4] and bad.result == "NXDOMAIN" and open_.result == "ok"
    expect.tcp_refused(shut)
    assert targets(side) == [denied.name, site.name, "93.250.1.1"]  # P5, P6: theirs are not shown


def test_F1_an_always_file_that_cannot_be_read_ends_the_start(pod, always):
    side = pod.sidecar("--always-dir", always(log_skip="# c\n10.0.0.1\n"), ready=False)
    assert side.ended() != 0
    assert "line 2" in str(side) and "not a domain pattern" in str(side)


def test_H12_always_denies_survive_a_post(pod, always):
    side = pod.sidecar("--always-dir", always(deny="9.9.9.9\n"))
    side.post("allow 9.9.9.9")
    assert "9.9.9.9" in pod.set_elements("deny_v4") and targets(side) == ["9.9.9.9"]
    expect.tcp_refused(pod.probe(["tcp", "9.9.9.9", 7007]))


def test_F2_always_files_are_followed(pod, always, site, denied):
    folder = always(allow=f"{site.name}\n")
    pod.sidecar("--always-dir", folder, rules=policy(f"allow {denied.name}"))
    assert pod.probe(["dns", site.name]).addresses == [site.v4]

    def verdict(name, wanted):
        return wait_for(lambda: pod.probe(["dns", name]).result == wanted, step=0.05)
    always(deny=f"{denied.name}\n")
    verdict(denied.name, "NXDOMAIN")
    (folder / "allow.always").unlink()
    verdict(site.name, "NXDOMAIN")
    always(deny="a..b not a name\n")   # broken: what was read stays
    assert pod.probe(["dns", denied.name]).result == "NXDOMAIN"
    # and as editors and Kubernetes do it: another file in its place
    (folder / "new").write_text("# nothing\n")
    (folder / "new").rename(folder / "deny.always")
    verdict(denied.name, "NOERROR")


def test_F4_log_skip_hides_what_was_reached_and_nothing_else(pod, always, site, world):
    other = world.site(f"loud-{world.number()}.test")
    side = pod.sidecar("--always-dir", always(log_skip=f"# c\n  {site.name.upper()}\n\n*.quiet.test\n"),
                       rules=policy(f"allow {site.name}", f"allow {other.name}"))
    pod.probe(["dns", site.name], ["dns", other.name])
    [line, *_] = side.wait_log(opensandbox__event="egress.outbound", target__host=other.name)
    assert other.v4 in line["target.ips"]
    assert not side.log(opensandbox__event="egress.outbound", target__host=site.name)


# the log

def test_log_lines_have_their_fields(pod, site):
    env = {EGRESS + "SANDBOX_ID": "sb-1", EGRESS + "METRICS_EXTRA_ATTRS": "a=b, k=v=x ,novalue,=bad,nokv="}
    side = pod.sidecar(rules=policy(f"allow {site.name}"), env=env)
    [loaded, *_] = side.wait_log(opensandbox__event="egress.loaded")
    assert loaded["level"] == "info" and loaded["logger"] == "opensandbox.egress"
    assert loaded["egress.default"] == "deny" and loaded["sandbox_id"] == "sb-1"
    assert loaded["a"] == "b" and loaded["k"] == "v=x" and not {"novalue", "", "nokv"} & set(loaded)
    assert loaded["ts"].endswith("Z") and "T" in loaded["ts"]
    side.post("allow other.test")
    [updated, *_] = side.wait_log(opensandbox__event="egress.updated")
    assert "other.test" in json.dumps(updated["rules"])
    side.call("POST", "/policy", "{broken")
    [failed, *_] = side.wait_log(opensandbox__event="egress.update_failed")
    assert failed["level"] == "warn" and failed["error"]


def test_log_lines_stay_whole_whatever_a_name_says(pod, guarded):
    side = guarded()
    for labels in (["a\nb", "test"], ['a"b', "test"], ["a\\", "test"], ["\x1b[31m", "test"], ["\xff\xfe", "test"]):
        pod.probe(["dns", labels])
    pod.probe(["dns", "last.test"])
    wait_for(lambda: [e for e in side.log() if "last.test" in json.dumps(e)])
    for line in side.lines:
        if line.startswith("{"):
            json.loads(line)
        assert "\x1b" not in line


@pytest.mark.parametrize("level, seen", [("debug", True), ("info", True), ("warn", False), ("error", False), ("junk", True)])
def test_log_levels(pod, level, seen):
    side = pod.sidecar(env={EGRESS + "LOG_LEVEL": level})
    side.post("allow a.test")
    assert bool(side.log(opensandbox__event="egress.updated")) == seen or seen and side.wait_log(
        opensandbox__event="egress.updated")


def test_log_to_a_file(pod, world):
    path = world.workdir() / "log"
    pod.sidecar(env={"OPENSANDBOX_LOG_OUTPUT": f"stdout,{path}"})
    assert "egress.loaded" in wait_for(lambda: path.exists() and path.read_text())


@pytest.mark.parametrize("value, accepted", [(None, 4096), ("0", 5000), ("3", 3), ("-1", 4096), ("not-a-number", 4096)])
def test_H7_the_limit_of_rules(pod, value, accepted):
    side = pod.sidecar(env={EGRESS + "MAX_RULES": value} if value else {})
    rules = [{"action": "allow", "target": f"n{i}.test"} for i in range(accepted)]
    assert side.call("POST", "/policy", {"egress": rules}).status == 200
    if accepted != 5000:
        over = side.call("POST", "/policy", {"egress": [*rules, {"action": "allow", "target": "over.test"}]})
        assert over.status == 413
        assert over.text == f"egress rule total count {accepted + 1} exceeds limit {accepted}\n"
        assert len(side.get("/policy").json()["policy"]["egress"]) == accepted


def test_otel_variables_are_a_warning(pod):
    side = pod.sidecar(env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    assert side.wait_log("/metrics", level="warn")


@pytest.mark.parametrize("flag, value", [("--mode", "dns"), ("--mode", "dns+nft")])
def test_a_flag_wins_over_the_environment(pod, flag, value):
    side = pod.sidecar(flag, value, mode="nft")
    assert side.get("/policy").json()["enforcementMode"] == value
