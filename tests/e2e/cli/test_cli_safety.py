# SPDX-License-Identifier: Apache-2.0
"""A launch that can't be guarded as asked for ends: failed_safety_setup, status 125, an event of the action panic
that is stored, and nothing that says the sandbox is guarded."""
import contextlib
import sqlite3
import subprocess

import pytest

from world.sidecar import wait_for


@pytest.fixture
def stored(host):
    """A daemon that stores events, and what panics it has stored."""
    folder = host.folder / "state"
    daemon = host.daemon("--state-dir", folder)

    def panics():
        """What is stored of launches that failed"""
        with (contextlib.suppress(sqlite3.OperationalError),  # it is just being made
              contextlib.closing(sqlite3.connect(f"file:{folder}/events.db?mode=ro", uri=True)) as db):
            return db.execute("SELECT sandbox, name, layer, reason FROM event WHERE action = 3").fetchall()
        return []

    return daemon, panics


def refused(stored, why, *where):
    daemon, panics = stored
    done = daemon.weir("attach", "--id", "bad", *where)
    assert done.code == 125 and "failed_safety_setup" in done.messages and why in done.messages, done
    assert daemon.names() == []
    one, = wait_for(panics)
    assert one[:3] == ("bad", "bad", 4) and one[3].startswith("failed_safety_setup: ")
    wait_for(lambda: any('"msg":"bad: failed_safety_setup: ' in line for line in daemon.lines))


def test_a_self_test_that_fails(stored, pod):
    # what others have put there swallows what the test asks
    pod.nft("add table inet other; add chain inet other o { type filter hook output priority -200; }; "
            "add rule inet other o udp dport 53 drop")
    refused(stored, "self-test", "--netns", pod.ns.path)


def test_a_commit_that_fails(stored, pod):
    # somebody holds a table of the name of ours, and is alive
    held = pod.start("nft", "-i", uid=0, caps=("net_admin",))
    held.say("add table inet opensandbox { flags owner; }\n")
    wait_for(lambda: "inet opensandbox" in pod.nft("list", "tables"))
    refused(stored, "", "--netns", pod.ns.path)
    held.kill()


def test_a_namespace_that_is_none(stored):
    refused(stored, "no network namespace", "--netns", "/etc/passwd")


def test_without_the_right_to_enter_it(host, pod):
    daemon = host.daemon("--state-dir", host.folder / "state",
                         way=["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--"])
    done = daemon.weir("attach", "--id", "bad", "--netns", pod.ns.path)
    assert done.code == 125 and "failed_safety_setup" in done.messages, done
    assert daemon.names() == [] and pod.nft("list", "tables") == ""


def test_a_daemon_without_the_right_to_filter_says_so(host):
    daemon = host.daemon(ready=False, way=["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--"])
    assert daemon.ended() == 125
    wait_for(lambda: "weir: CAP_NET_ADMIN is missing: this has to be root" in daemon.errors)
    assert not daemon.socket.exists()


def test_who_may_not_ask_is_told_who_may(daemon):
    daemon.host.folder.chmod(0o755)
    done = subprocess.run(["setpriv", "--reuid=1000", "--regid=0", "--clear-groups", "--", daemon.host.world.weir_path, "ps",
                           "--socket", daemon.socket], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 125 and "its API is for root and members of the group weir" in done.stderr, done


def test_a_fault_of_the_caller_is_no_panic(stored, pod):
    daemon, panics = stored
    daemon.attach("one", pod)
    assert daemon.weir("attach", "--id", "one", "--netns", pod.ns.path).code == 125
    assert daemon.call("PUT", "/sandboxes/one", {"netns": pod.ns.path}).status == 409
    assert daemon.call("PUT", "/sandboxes/two", {"uid": 0}).status == 400
    assert panics() == [] and daemon.names() == ["one"]
