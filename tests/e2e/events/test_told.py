# SPDX-License-Identifier: Apache-2.0
"""What the sidecar tells others of what it refused: webhook, stream, counters, the database, as one whole."""
import os
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

from world import expect
from world.sidecar import policy, programs, wait_for


def webhook(pod, hook, **options):
    return pod.sidecar(env={"OPENSANDBOX_EGRESS_DENY_WEBHOOK": hook.url, "OPENSANDBOX_EGRESS_SANDBOX_ID": "sb-1"},
                       **options)


@pytest.mark.parametrize("mode", ["dns", "dns+nft"])
def test_W1_denied_names_are_posted_and_the_app_cannot_reach_the_hook(pod, hook, denied, mode):
    webhook(pod, hook, rules=policy(), mode=mode)
    pod.probe(["dns", denied.name.upper()], ["dns", denied.name, "AAAA"])
    wait_for(lambda: len(hook.calls) >= 2)
    path, kind, body = hook.calls[0]
    assert path == "/deny?x=1" and kind == "application/json"
    assert body["hostname"] == denied.name and body["source"] == "opensandbox-egress" and body["sandboxId"] == "sb-1"
    assert body["timestamp"].endswith("Z")
    # the hook's own name and address are as shut to the app as any
    lookup = pod.probe(["dns", hook.site.name])
    expect.name_refused(lookup)
    if mode == "dns+nft":
        expect.tcp_refused(pod.probe(["tcp", hook.site.v4, int(hook.url.rsplit(":", 1)[1].split("/")[0])]))


def test_it_does_not_feed_itself(pod, hook, denied):
    """The hook's host is denied: that it is looked up and reached is no event."""
    webhook(pod, hook, rules=policy(f"deny {hook.site.name}"))
    pod.probe(["dns", denied.name])
    wait_for(lambda: hook.calls)
    time.sleep(0.5)
    assert [c[2]["hostname"] for c in hook.calls] == [denied.name]


def test_W2_a_slow_hook_delays_no_name(pod, hook, denied, site):
    hook.delay = 10
    side = webhook(pod, hook, rules=policy(f"allow {site.name}"))
    flood = pod.probe(["dns_flood", 1500, ".slow.test"])
    assert flood.answered == 1500
    assert pod.probe(["dns", site.name]).ms < expect.FAST_MS
    assert side.get("/healthz").status == 200


def test_a_denied_name_is_in_the_stream_the_list_the_counters_and_the_log(pod, guarded, denied):
    side = guarded()
    stream = pod.ns.socket(socket.AF_INET, socket.SOCK_STREAM)
    stream.settimeout(60)
    stream.connect(("127.0.0.1", 18080))
    stream.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\nOPENSANDBOX-EGRESS-AUTH: token\r\n\r\n")
    seen = [stream.recv(4096)]
    pod.probe(["dns", denied.name], ["tcp", "93.9.9.9", 443])
    while denied.name.encode() not in b"".join(seen) or b"93.9.9.9" not in b"".join(seen):
        seen.append(stream.recv(4096))
    stream.close()
    denies = side.get("/denies").text
    assert denied.name in denies and "93.9.9.9" in denies
    metrics = side.get("/metrics").text
    counted = {line.split()[0]: line.split()[-1] for line in metrics.splitlines() if line and line[0] != "#"}
    assert any("denied" in name and float(value) > 0 for name, value in counted.items()), metrics
    assert side.wait_log(opensandbox__event="egress.denied")
    assert denied.name not in metrics, "what an app can make up is no label"


def test_events_outlive_it_in_the_database(pod, world, denied):
    state = world.workdir()
    options = {"rules": policy(), "env": {"WEIR_STATE_DIR": str(state)}}
    side = pod.sidecar(**options)
    pod.probe(["dns", denied.name], ["tcp", "93.9.9.9", 443])
    wait_for(lambda: denied.name in side.get("/denies").text)
    assert side.stop() == 0
    files = [p for p in state.rglob("*") if p.is_file() and p.read_bytes()[:6] == b"SQLite"]
    assert len(files) == 1, list(state.rglob("*"))
    with sqlite3.connect(files[0]) as db:
        tables = [row[0] for row in db.execute("select name from sqlite_master where type='table'")]
        text = "\n".join(str(row) for table in tables for row in db.execute(f"select * from \"{table}\""))
    assert denied.name in text and "93.9.9.9" in text
    # and a full disk, or a folder that is gone, stops nothing
    again = pod.sidecar(**options)
    assert again.get("/healthz").status == 200


def test_a_state_folder_that_cannot_be_written_is_a_degradation(pod, site):
    side = pod.sidecar(rules=policy(f"allow {site.name}"), env={"WEIR_STATE_DIR": "/proc/nowhere"})
    assert pod.probe(["connect", site.name, 7007]).result == "ok"
    wait_for(lambda: [d["what"] for d in side.get("/status").json()["degradations"]] == ["store"])
    assert side.get("/status").json()["fullIsolation"]


def test_the_logs_reader_that_stops_reading_stops_nothing(world, pod, site, denied):
    """stdout is a pipe that nobody empties."""

    reader, writer = os.pipe()
    argv = pod.argv([programs(world), "sidecar"], 0, ("net_admin",))
    env = {"PATH": "/usr/bin", "OPENSANDBOX_EGRESS_RULES": policy(f"allow {site.name}"), "OPENSANDBOX_EGRESS_TOKEN": "t"}
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
    os.close(writer)
    try:
        wait_for(lambda: pod.probe(["dns", site.name]).result == "NOERROR")
        threads = [threading.Thread(target=pod.probe, args=(["dns_flood", 3000, f".log{n}.test"],)) for n in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        lookup, refused = pod.probe(["dns", site.name], ["tcp", "93.9.9.9", 443])
        assert lookup.addresses == [site.v4] and lookup.ms < expect.FAST_MS
        expect.tcp_refused(refused)
    finally:
        process.kill()
        process.wait()
        os.close(reader)
