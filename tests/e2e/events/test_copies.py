# SPDX-License-Identifier: Apache-2.0
"""Events of a daemon's sandboxes in a real PostgreSQL."""
import pytest

from world.postgres import binaries
from world.sidecar import wait_for

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")


def test_each_sandboxs_denials_are_copied_and_named(host, pod, other, denied, server):
    daemon = host.daemon("--state-dir", host.folder / "state", env={"WEIR_POSTGRES": server.conninfo})
    daemon.attach("one", pod)
    daemon.attach("two", other)
    pod.probe(["dns", "a." + denied.name])
    other.probe(["dns", "b." + denied.name])

    def rows():
        done = server.psql("SELECT DISTINCT analysis_id, fqdn_pinned FROM sandbox_egress_event WHERE action = 'deny'", check=False)
        return {tuple(row.split("\x1f")) for row in done.stdout.decode().strip().split("\x1e")}
    wait_for(lambda: rows() == {("one", "a." + denied.name), ("two", "b." + denied.name)})
    old = daemon.children()["postgres"]
    daemon.kill_child("postgres")
    wait_for(lambda: daemon.children().get("postgres", old) != old)
    pod.probe(["dns", "c." + denied.name])
    wait_for(lambda: ("one", "c." + denied.name) in rows())
    assert server.value("SELECT count(*) - count(DISTINCT (store, store_row)) FROM sandbox_egress_event") == 0


def test_a_daemon_says_that_its_copies_wait(host, pod, denied, server):
    daemon = host.daemon("--state-dir", host.folder / "state", env={"WEIR_POSTGRES": server.conninfo})
    daemon.attach("one", pod)
    pod.probe(["dns", "a." + denied.name])
    wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_event"))
    server.stop()
    pod.probe(["dns", "b." + denied.name])

    def told():
        status = daemon.get("/status").json()
        return status["postgresWaitingRows"] and "postgres" in [d["what"] for d in status["degradations"]]
    wait_for(told)
    assert daemon.get("/sandboxes/one/status").json()["fullIsolation"]
    server.start()
    wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_event WHERE fqdn_pinned LIKE 'b.%'") == 1)
    wait_for(lambda: not told())


def test_without_a_store_there_is_nothing_to_copy(host):
    daemon = host.daemon(ready=False, env={"WEIR_POSTGRES": "host=/nowhere"})
    assert daemon.ended() == 2
