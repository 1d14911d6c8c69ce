# SPDX-License-Identifier: Apache-2.0
"""`weir attach --again`: what is attached at each start of a service is the sandbox that it was."""
import pytest

from world import expect
from world.member import Member, cgroup_root
from world.sidecar import policy, wait_for

STRANGER = "93.9.9.9"
UID = 1207
STOP = {"count": 2, "window": "10m", "action": "stop"}
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


@pytest.fixture(name="cgroup")
def fixture_cgroup(tree):
    return tree.cgroup("slice").below("job")


def again(daemon, *args):
    return daemon.weir("attach", "--id", "job", *args, "--again")


def sees(app, site):
    lookup, stranger = app.probe(["dns", site.name], ["tcp", STRANGER, 443])
    expect.tcp_refused(stranger)
    return lookup.addresses


def test_a_cgroup_gets_the_new_policy_and_keeps_its_number(host, cgroup, site, denied):
    daemon, where = host.daemon(), str(cgroup.path)
    assert again(daemon, "--cgroup", where, "--allow", site.name).code == 0
    app = Member(host, cgroup)
    [before] = daemon.get("/sandboxes").json()["sandboxes"]
    assert sees(app, site) == [site.v4]
    assert again(daemon, "--cgroup", where, "--allow", denied.name).code == 0
    [after] = daemon.get("/sandboxes").json()["sandboxes"]
    assert before["number"] == after["number"]
    assert sees(app, site) == [] and sees(app, denied) == [denied.v4]


def test_one_that_was_made_again_is_guarded_at_the_answer(host, cgroup, site):
    """Each time the rules are those of the group that is there now."""
    daemon = host.daemon()
    assert again(daemon, "--cgroup", str(cgroup.path), "--allow", site.name).code == 0
    for _ in range(10):
        cgroup.path.rmdir()
        cgroup.path.mkdir()
        assert again(daemon, "--cgroup", str(cgroup.path), "--allow", site.name).code == 0
        assert f"{cgroup.number}" in (daemon.run_dir / "sandboxes/job/attach.json").read_text()
    assert sees(Member(host, cgroup), site) == [site.v4]
    assert daemon.names() == ["job"] and not host.packets(dst=STRANGER)


def test_a_user(host, site, denied):
    daemon = host.daemon()
    app = Member(host, uid=UID)
    for name in (site, denied):
        assert again(daemon, "--uid", UID, "--allow", name.name).code == 0
        assert sees(app, name) == [name.v4]
    assert daemon.names() == ["job"]


def test_another_thing_under_that_name_is_refused(host, cgroup, tree, site):
    daemon, where = host.daemon(), str(cgroup.path)
    assert again(daemon, "--cgroup", where, "--allow", site.name).code == 0
    for args in (["--uid", UID], ["--cgroup", str(tree.cgroup("other").path)]):
        done = again(daemon, *args)
        assert done.code == 125 and "sandbox 'job' is something else" in done.messages, done
    assert "without its parent's guard" in again(daemon, "--cgroup", where, "--guard-parent").messages
    assert again(daemon, "--cgroup", str(cgroup.path / "no")).code == 125
    cgroup.path.rmdir()
    assert again(daemon, "--cgroup", where).code == 125
    [one] = daemon.get("/sandboxes").json()["sandboxes"]
    assert one["rules"] == 1 and one["id"] == "job"


def test_without_the_word_one_of_that_name_is_in_the_way(host, cgroup):
    daemon, where = host.daemon(), str(cgroup.path)
    assert again(daemon, "--cgroup", where).code == 0
    assert "there is a sandbox 'job' already" in daemon.weir("attach", "--id", "job", "--cgroup", where).messages


def test_a_policy_with_a_fault_changes_nothing(host, cgroup, site):
    daemon, where = host.daemon(), str(cgroup.path)
    assert again(daemon, "--cgroup", where, "--allow", site.name).code == 0
    body = {"cgroup": where, "again": True, "policy": {"egress": [{"action": "allow", "target": "a..b"}]}}
    assert daemon.call("PUT", "/sandboxes/job", body).status == 400
    assert sees(Member(host, cgroup), site) == [site.v4]


def test_what_was_closed_for_its_denials_stays_closed(host, site, denied):
    daemon, app = host.daemon(), Member(host, uid=UID)
    assert again(daemon, "--uid", UID, "--allow", site.name).code == 0
    assert daemon.call("POST", "/sandboxes/job/policy", policy(f"allow {site.name}", on_denies=STOP)).status == 200
    app.probe(*[["dns", f"{n}.{denied.name}"] for n in range(6)])
    why = wait_for(lambda: daemon.status("job")["closed"])
    done = again(daemon, "--uid", UID, "--allow", site.name)
    assert done.code == 125 and f"it is closed: {why}" in done.messages, done
    assert sees(app, site) == []
    daemon.set_policy("job", f"allow {site.name}")
    assert again(daemon, "--uid", UID, "--allow", site.name).code == 0
    assert sees(app, site) == [site.v4]


def test_the_log_says_who_comes_and_goes(host, site):
    daemon = host.daemon()
    assert again(daemon, "--uid", UID, "--allow", site.name).code == 0
    assert daemon.weir("detach", "job").code == 0
    for what in ("attached", "detached"):
        wait_for(lambda: any(f'"job: the sandbox was {what}"' in line for line in daemon.lines))
