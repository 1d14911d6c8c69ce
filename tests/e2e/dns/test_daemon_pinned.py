# SPDX-License-Identifier: Apache-2.0
"""dns: pinned of a sandbox that a daemon guards: its names are resolved when it is attached, and when its policy changes."""
import concurrent.futures
import sqlite3

from world import expect
from world.sidecar import wait_for


def write(folder, *names):
    file = folder / "policy.yaml"
    rules = "".join(f"  - {{action: allow, target: {name}}}\n" for name in names)
    file.write_text(f"dns: pinned\nverify: dns\negress:\n{rules}")
    return file


def required(folder, *names):
    file = folder / "policy.yaml"
    rules = "".join(f"  - {{action: allow, target: {name}, required: true}}\n" for name in names)
    file.write_text(f"dns: pinned\nverify: dns\negress:\n{rules}")
    return file


def asked(daemon, name):
    return sorted(q.type for q in daemon.host.world.dns.queries(name))


def test_names_are_asked_for_at_the_start_and_never_by_the_sandbox(daemon, pod, site, denied, tmp_path):
    daemon.attach("one", pod, "--policy", write(tmp_path, site.name, "gone.pinned.test"))
    wait_for(lambda: pod.probe(["tcp", site.v4, 7007]).result == "ok")  # without a query
    before = asked(daemon, site.name)
    assert before in (["A"], ["A", "AAAA"])
    for _ in range(3):
        answer, refused = pod.probe(["dns", site.name], ["dns", denied.name])
        assert [a[1:] for a in answer.answers] == [[site.v4, 60]]
        expect.name_refused(refused)
    assert asked(daemon, site.name) == before and asked(daemon, denied.name) == []
    assert pod.probe(["dns", "gone.pinned.test"]).result == "NXDOMAIN"


def test_a_change_asks_for_the_new_names(daemon, pod, site, denied, tmp_path):
    daemon.attach("one", pod, "--policy", write(tmp_path, site.name))
    wait_for(lambda: pod.probe(["tcp", site.v4, 7007]).result == "ok")
    daemon.set_policy("one", f"allow {denied.name}", dns="pinned", verify="dns")
    wait_for(lambda: pod.probe(["tcp", denied.v4, 7007]).result == "ok")
    expect.tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    expect.name_refused(pod.probe(["dns", site.name]))


def test_an_engine_that_comes_anew_pins_again(daemon, pod, site, tmp_path):
    daemon.attach("one", pod, "--policy", write(tmp_path, site.name))
    wait_for(lambda: pod.probe(["tcp", site.v4, 7007]).result == "ok")
    daemon.kill_child("engine")
    wait_for(lambda: pod.probe(["dns", site.name]).result == "NOERROR")
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"


def test_an_attach_waits_for_the_names_and_tells_those_without_an_address(daemon, pod, site, tmp_path):
    daemon.attach("one", pod, "--policy", write(tmp_path, site.name, "gone.pinned.test"))
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"  # at once
    told = wait_for(lambda: [d for d in daemon.denies("one") if d["name"] == "gone.pinned.test"])
    assert [d["reason"] for d in told] == ["not pinned: the name does not exist"]


def test_a_required_name_without_an_address_fails_the_attach(daemon, pod, site, denied, tmp_path):
    done = daemon.weir("attach", "--id", "one", "--netns", pod.ns.path, "--policy", required(tmp_path, site.name, "gone.pinned.test"))
    assert done.code == 125, done
    assert "failed_safety_setup" in done.messages and "gone.pinned.test" in done.messages, done
    assert daemon.names() == []
    expect.tcp_refused(pod.probe(["tcp", denied.v4, 7007]))  # the rules stay
    daemon.attach("one", pod, "--policy", required(tmp_path, site.name))
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"


def test_an_attach_whose_engine_dies_meanwhile_is_told_so(daemon, pod, site, denied, tmp_path):
    dns = daemon.host.world.dns
    dns.on("silent.pinned.test", lambda query: None)
    command = ["attach", "--id", "one", "--netns", pod.ns.path, "--policy"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        attach = pool.submit(daemon.weir, *command, write(tmp_path, "silent.pinned.test"))
        wait_for(lambda: dns.queries("silent.pinned.test"))
        daemon.kill_child("engine")
    done = attach.result()
    assert done.code == 125 and "the engine has ended before the sandbox was active; attach it again" in done.messages, done
    assert daemon.names() == []
    expect.tcp_refused(pod.probe(["tcp", denied.v4, 7007]))  # the rules stay
    daemon.attach("one", pod, "--policy", write(tmp_path, site.name))
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"


def test_an_attach_that_fails_leaves_events_of_its_own_name(host, pod, site, tmp_path):
    daemon = host.daemon("--state-dir", host.folder / "state")
    done = daemon.weir("attach", "--id", "one", "--netns", pod.ns.path, "--policy",
                       required(tmp_path, site.name, "gone.pinned.test", "other.pinned.test"))
    assert done.code == 125, done

    def rows():
        try:
            with sqlite3.connect(f"file:{host.folder}/state/events.db?mode=ro", uri=True) as db:
                return {(sandbox, name) for sandbox, name in db.execute("SELECT sandbox, name FROM event")}
        except sqlite3.OperationalError:  # it is being made
            return set()
    names = {"gone.pinned.test", "other.pinned.test"}
    wait_for(lambda: names <= {name for _, name in rows()})
    assert {sandbox for sandbox, _ in rows()} == {"one"}


def test_one_that_is_guarded_already_outlives_its_required_name(daemon, pod, site, tmp_path):
    daemon.attach("one", pod, "--policy", required(tmp_path, site.name))
    daemon.host.world.dns.on(site.name, lambda query: query.answer(rcode="NXDOMAIN"))
    daemon.kill_child("engine")
    assert daemon.names() == ["one"]
