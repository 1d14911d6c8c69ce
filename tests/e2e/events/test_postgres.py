# SPDX-License-Identifier: Apache-2.0
"""Events in a real PostgreSQL: all of them, each once, whoever is killed, and whatever they are called."""
import contextlib
import pathlib
import socket
import subprocess
import threading
import time

import pytest

from world.copies import Sender, count, each_once, wait_each_once
from world.postgres import Database, binaries
from world.run import SET_ASIDE
from world.sidecar import wait_for
from world.store import Store

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")


@pytest.fixture
def database(shared):
    made = Database(shared, f"d{time.monotonic_ns()}", ("writer",))
    yield made
    made.end()


def test_rows_are_there_as_dashboards_know_them(database, store):
    store.put("a.test", sandbox="sb-7", packets=3, command="curl", rule="deny-a.test")
    store.put(address="2001:db8::7", port=443, packets=2)
    store.put("b.test", action="allow", address="192.0.2.1", port=80)
    store.put(action="panic")
    store.put(action="change")
    store.put(action="limit", sandbox="sb-7")
    store.drain()
    with Sender(store, database.conninfo):
        wait_for(lambda: count(database) == 4 and count(database, "sandbox_egress_notice") == 2)
    assert database.rows("SELECT analysis_id, action, remote_ip, remote_port, fqdn_pinned, raw_pkts FROM sandbox_egress_event"
                       " ORDER BY id") == [
        ("sb-7", "deny", "", "", "a.test", "3"), ("sb-1", "deny", "2001:db8::7", "443", "", "2"),
        ("sb-1", "allow", "192.0.2.1", "80", "b.test", "1"), ("sb-1", "panic", "", "", "", "1")]
    assert database.rows("SELECT layer, protocol, rule, packets, command FROM sandbox_egress_event ORDER BY id")[:2] == [
        ("dns", "", "deny-a.test", "3", "curl"), ("address", "tcp", "", "2", "")]
    assert database.rows("SELECT analysis_id, action FROM sandbox_egress_notice ORDER BY id") == [
        ("sb-1", "change"), ("sb-7", "limit")]
    assert database.value("SELECT count(*) FROM sandbox_egress_event WHERE abs(extract(epoch FROM now() - ts)) < 60") == 4
    types = dict(database.rows("SELECT column_name, data_type FROM information_schema.columns"
                             " WHERE table_name = 'sandbox_egress_event'"))
    assert (types["id"], types["ts"], types["remote_ip"], types["raw_pkts"]) == (
        "bigint", "timestamp with time zone", "inet", "integer")
    refused = database.psql("INSERT INTO sandbox_egress_event (action) VALUES ('change')", check=False)
    assert refused.returncode != 0
    assert database.psql("INSERT INTO sandbox_egress_event (analysis_id) VALUES ('others write here, too')").returncode == 0


def test_hostile_names_are_text(database, store):
    names = [b"\x1b[2J\x1b]0;x\x07.test", b"<script>alert(1)</script>", b"'); DROP TABLE sandbox_egress_event; --",
             b"\\N", b"\\.", b"a\\tb\\", b"tab\there", b"line\nbreak\r", b"x" * 253, b"$1 %s {}", "\u202etxt".encode()]
    for name in names + [b"bad\xff\xc0.test"]:
        store.put(name)
    store.put("last.test", sandbox="'quoted'", packets=4294967295)
    store.drain()
    with Sender(store, database.conninfo):
        wait_for(lambda: count(database) == len(names) + 2)
    stored = {name for name, in database.rows("SELECT fqdn_pinned FROM sandbox_egress_event")}
    assert stored == {name.decode() for name in names} | {"bad\\xff\\xc0.test", "last.test"}
    assert database.rows("SELECT raw_pkts, packets, analysis_id FROM sandbox_egress_event WHERE fqdn_pinned = 'last.test'") == [
        ("2147483647", "4294967295", "'quoted'")]
    assert database.value("SELECT sum(refused) FROM sandbox_egress_store") == 0
    assert each_once(database, store)


def test_whoever_is_killed_nothing_is_lost_and_nothing_twice(database, store):
    with Sender(store, database.conninfo) as sender:
        for turn in range(6):
            store.say(f"add {turn * 10000} 3000")
            time.sleep(0.2 + 0.05 * turn)  # under way
            sender.kill()
            sender.start()
            store.process.stdout.readline()
        store.drain()
        wait_each_once(database, store)
    assert store.state()["rows"] == 18000 and count(database) == 18000


def test_a_killed_server_gets_the_rest_later(server, store):
    with Sender(store, server.conninfo):
        for turn in range(3):
            store.say(f"add {turn * 10000} 3000")
            time.sleep(0.3 + 0.1 * turn)
            server.kill()
            store.process.stdout.readline()
            store(f"add {50000 + turn * 10000} 500")  # while it is away
            server.start()
        store.drain()
        wait_each_once(server, store)
    assert count(server) == 10500


def test_a_killed_writer_and_a_killed_sender_at_once(database, tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    store = Store(folder)
    with Sender(store, database.conninfo) as sender:
        for turn in range(4):
            store.say(f"add {turn * 10000} 50000")
            time.sleep(0.5)
            store.kill()
            sender.kill()
            store = Store(folder)
            sender.start()
        store("add 900000 10")
        store.drain()
        wait_each_once(database, store)
    store.end()


def test_an_outage_is_told_and_outlived(server, store):
    server.stop()
    store("add 0 2000")
    with Sender(store, server.conninfo):
        wait_for(lambda: "waits in the store" in (store.folder / "sender.log").read_text())
        assert "cannot connect" in (store.folder / "postgres.state").read_text()
        store("add 5000 2000")
        server.start()
        store.drain()
        wait_each_once(server, store)
        wait_for(lambda: (store.folder / "postgres.state").read_text().split() == ["4000", "0", "0", "0"])


def test_two_senders_of_one_store_take_turns(database, store):
    with Sender(store, database.conninfo), Sender(store, database.conninfo):
        store("add 0 5000")
        store.drain()
        wait_each_once(database, store)
    assert count(database) == 5000


def test_what_the_server_will_not_have_is_passed_over_and_counted(database, store):
    store.put("first.test")
    store.drain()
    with Sender(store, database.conninfo):
        wait_for(lambda: count(database) == 1)
        database.psql("ALTER TABLE sandbox_egress_event ADD CHECK (fqdn_pinned NOT LIKE 'n7%')")
        store("add 0 100")
        store.drain()
        wait_for(lambda: count(database) == 90)
        assert database.value("SELECT refused FROM sandbox_egress_store") == 11
        store.put("after.test")
        store.drain()
        wait_for(lambda: count(database) == 91)


class CutsOff:
    """Between a sender and its server: it closes the connection at the @number-th rollback from begin() on."""

    def __init__(self, server, folder, number):
        self.target, self.number, self.rollbacks = f"{server.folder}/.s.PGSQL.5432", number, None
        self.listener = socket.create_server(str(folder / ".s.PGSQL.5432"), family=socket.AF_UNIX)
        threading.Thread(target=self.accept, daemon=True).start()

    def begin(self):
        self.rollbacks = 0

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # accept() ends
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                ends = [self.listener.accept()[0], socket.socket(socket.AF_UNIX)]
                ends[1].connect(self.target)
                for a, b in (ends, ends[::-1]):
                    threading.Thread(target=self.pass_on, args=(a, b, a is ends[0]), daemon=True).start()

    def pass_on(self, a, b, is_sender):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                if is_sender and self.rollbacks is not None and b"ROLLBACK" in data:
                    self.rollbacks += 1
                    if self.rollbacks == self.number:
                        break
                b.sendall(data)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_refused_row_is_passed_over_though_its_rollback_was_cut_off(database, store, tmp_path):
    """A batch of 500 rows is halved eight times; the ninth rollback is that of one row, and never arrives."""
    store.put("first.test")
    store.drain()
    there = database.conninfo.replace(f"host={database.server.folder}", f"host={tmp_path}")
    with contextlib.closing(CutsOff(database.server, tmp_path, 9)) as between, Sender(store, there):
        wait_for(lambda: count(database) == 1)
        database.psql("ALTER TABLE sandbox_egress_event ADD CHECK (fqdn_pinned NOT LIKE 'n7%')")
        between.begin()
        store.put("n7.test")
        store.drain()
        wait_for(lambda: database.value("SELECT refused FROM sandbox_egress_store") == 1)
        assert between.rollbacks >= 9
        store.put("after.test")
        store.drain()
        wait_for(lambda: count(database) == 2)


def test_rows_that_went_before_they_could_be_copied_are_counted(database, store):
    store.put("first.test")
    store.drain()
    with Sender(store, database.conninfo) as sender:
        wait_for(lambda: count(database) == 1)
        sender.kill()
        store("add 0 100")
        store.drain()
        store.rows("SELECT 1")
        subprocess.run(["/usr/bin/python3", "-c", "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); "
                        "d.execute('DELETE FROM event WHERE id <= 41'); d.commit()", store.folder / "events.db"], check=True)
        sender.start()
        wait_for(lambda: count(database) == 61)
    assert database.value("SELECT missed FROM sandbox_egress_store") == 40


def test_a_store_that_begins_anew_is_another_store(database, tmp_path):
    folder = tmp_path / "state"
    old = Store(folder)
    old("add 0 50")
    old.drain()
    with Sender(old, database.conninfo):
        wait_for(lambda: count(database) == 50)
        old.end()
        for path in folder.glob("events.db*"):
            path.unlink()
        with Store(folder) as new:
            new("add 0 30")
            new.drain()
            wait_for(lambda: count(database) == 80)
    assert database.value("SELECT count(*) FROM sandbox_egress_store") == 2


def test_a_store_that_was_put_back_from_a_copy_is_told(database, tmp_path):
    """Its numbers were used already: nobody can tell which of its rows are there."""
    folder = tmp_path / "state"
    with Store(folder) as store:
        store("add 0 10")
        store.drain()
    copy = (folder / "events.db").read_bytes()  # its log went with the last writer
    with Store(folder) as store:
        store("add 100 10")
        store.drain()
        with Sender(store, database.conninfo):
            wait_each_once(database, store)
    (folder / "events.db").write_bytes(copy)
    with Store(folder) as store:
        store.put("again.test")
        store.drain()
        with Sender(store, database.conninfo) as sender:
            sender.wait_trouble("is it an old copy?")
            assert count(database) == 20
            for path in folder.glob("events.db*"):
                path.unlink()
            store.put("anew.test")
            store.drain()
            wait_for(lambda: count(database) == 21 and sender.trouble() == "", step=0.05)


def test_a_table_that_is_there_gets_the_other_columns(database, store):
    database.psql("CREATE TABLE sandbox_egress_event (id BIGSERIAL PRIMARY KEY, analysis_id TEXT, ts TIMESTAMPTZ, action TEXT"
                " CHECK (action IN ('allow','deny','panic')), remote_ip INET, remote_port INT, fqdn_pinned TEXT, raw_pkts INT);"
                " INSERT INTO sandbox_egress_event (analysis_id) VALUES ('before')")
    store.put("a.test")
    store.drain()
    with Sender(store, database.conninfo):
        wait_for(lambda: count(database) == 2)
    assert database.rows("SELECT analysis_id, layer FROM sandbox_egress_event ORDER BY id") == [("before", ""), ("sb-1", "dns")]


def test_a_role_that_may_only_write_is_enough(database, store):
    store.put("a.test")
    store.drain()
    with Sender(store, database.conninfo):
        wait_for(lambda: count(database) == 1)
    database.psql("CREATE ROLE writer LOGIN; GRANT SELECT ON sandbox_egress_schema TO writer;"
                " GRANT INSERT ON sandbox_egress_event, sandbox_egress_notice TO writer;"
                " GRANT SELECT, INSERT, UPDATE ON sandbox_egress_store TO writer;"
                " GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer")
    store.put("b.test")
    store.drain()
    with Sender(store, database.conninfo.replace("user=weir", "user=writer")):
        wait_for(lambda: count(database) == 2)


def test_the_sender_gives_up_what_it_has_no_use_for(database, store):
    with Sender(store, database.conninfo) as sender:
        wait_for(lambda: count(database) is not None)
        status = pathlib.Path(f"/proc/{sender.process.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["CapEff"].strip() == fields["CapPrm"].strip() == "0" * 16
        assert fields["NoNewPrivs"] == "1"
        if not SET_ASIDE:  # a sanitizer's own calls are not ours
            assert fields["Seccomp"] == "2"


# ---- with a sidecar ----


def test_a_sidecars_denials_are_there_whoever_is_killed(pod, guarded, tmp_path, site, denied, server):
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    side = guarded(f"allow {site.name}", args=("--state-dir", str(state)),
                   env={"WEIR_POSTGRES": server.conninfo, "WEIR_SANDBOX_ID": "sb-9"})

    def there(name):
        return server.value(f"SELECT count(*) FROM sandbox_egress_event WHERE analysis_id = 'sb-9' AND fqdn_pinned = '{name}'")
    pod.probe(["dns", denied.name], ["tcp", "93.7.7.7", 443])
    wait_for(lambda: there(denied.name))
    wait_for(lambda: server.value("SELECT count(*) FROM sandbox_egress_event WHERE remote_ip = '93.7.7.7'"))
    old = side.kill_child("weir-postgres")
    pod.probe(["dns", "one." + denied.name])
    side.wait_replaced("weir-postgres", old)
    wait_for(lambda: there("one." + denied.name))
    server.kill()
    pod.probe(["dns", "two." + denied.name])
    wait_for(lambda: [d for d in side.get("/status").json()["degradations"] if d["what"] == "postgres"])
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    server.start()
    wait_for(lambda: there("two." + denied.name))
    wait_for(lambda: not [d for d in side.get("/status").json()["degradations"] if d["what"] == "postgres"])
    old = side.kill_child("control")
    side.wait_replaced("control", old)
    pod.probe(["dns", "three." + denied.name])
    wait_for(lambda: there("three." + denied.name))
    assert server.value("SELECT count(*) - count(DISTINCT (store, store_row)) FROM sandbox_egress_event") == 0


def test_without_a_store_there_is_nothing_to_copy(pod):
    side = pod.sidecar(ready=False, env={"WEIR_POSTGRES": "host=/nowhere"})
    assert side.ended() == 2
    assert any("--state-dir is needed" in str(line) for line in side.errors)
