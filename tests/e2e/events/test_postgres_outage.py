# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL over TCP, with TLS and passwords, and servers that hang, refuse, fail over and fill up: events wait in the
store, and then all of them are there, each once."""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest

from world.copies import Sender, count, wait_each_once
from world.netns import NetNs
from world.postgres import Postgres, binaries
from world.sidecar import wait_for
from world.store import Store

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")

PORT = 5432
SCRAM = "hostssl all all all scram-sha-256"
TRUST = "host all all all trust"
QUICK = "connect_timeout=2"  # a call then takes four seconds at most


@pytest.fixture
def netns():
    made = NetNs()
    made.ip("link set lo up", "addr add 192.0.2.5/32 dev lo", "addr add 192.0.2.6/32 dev lo")
    yield made
    made.close()


@contextlib.contextmanager
def serving(netns, address="192.0.2.5", **options):
    options.setdefault("hba", [TRUST])
    server = Postgres(netns, address, **options)
    try:
        yield server
    finally:
        server.end()


def at(address="192.0.2.5", more=QUICK):
    return f"host={address} port={PORT} user=weir dbname=postgres {more}"


def openssl(*argv):
    subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True)


def certificates(folder, name):
    """A CA and a server's key and certificate for @name, below @folder."""
    folder.mkdir()
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ca",
            "-keyout", folder / "ca.key", "-out", folder / "ca.crt")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=server",
            "-keyout", folder / "server.key", "-out", folder / "server.csr")
    (folder / "names").write_text(f"subjectAltName=DNS:{name},IP:192.0.2.5\n")
    openssl("x509", "-req", "-in", folder / "server.csr", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", folder / "names", "-out", folder / "server.crt")
    return folder


@pytest.fixture
def tls(netns, tmp_path):
    """A server that takes TLS and a SCRAM password alone."""
    made = certificates(tmp_path / "right", "db.test")
    server = Postgres(netns, "192.0.2.5", hba=[SCRAM], start=False)
    for name in ("server.key", "server.crt"):
        server.write(name, (made / name).read_text())
    server.settings.update(ssl="on", ssl_key_file=server.folder / "server.key", ssl_cert_file=server.folder / "server.crt",
                           password_encryption="scram-sha-256")
    server.start()
    server.psql("CREATE ROLE copier LOGIN PASSWORD 'open sesame'; GRANT CREATE ON SCHEMA public TO copier")
    yield server, made / "ca.crt"
    server.end()


def strangers_see(pid, secret):
    """Whether @secret stands in the arguments or the environment of the process @pid."""
    return any(secret in pathlib.Path(f"/proc/{pid}/{part}").read_bytes() for part in ("cmdline", "environ"))


def test_tls_is_verified_and_the_password_stands_in_a_file_alone(netns, store, tls, tmp_path):
    server, ca = tls
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:copier:open sesame\n")
    passwords.chmod(0o600)
    full = f"host=192.0.2.5 user=copier dbname=postgres sslmode=verify-full sslrootcert={ca} passfile={passwords} {QUICK}"
    store("add 0 30")
    store.drain()
    wrong = certificates(tmp_path / "wrong", "db.test") / "ca.crt"
    with Sender(store, full.replace(str(ca), str(wrong)), netns) as sender:
        sender.wait_trouble("certificate verify failed")
    with Sender(store, full.replace("host=192.0.2.5", "host=other.test hostaddr=192.0.2.5"), netns) as sender:
        sender.wait_trouble("does not match host name")
    with Sender(store, full.replace("verify-full", "disable"), netns) as sender:
        sender.wait_trouble("no pg_hba.conf entry")
    wrong_password = tmp_path / "wrong-password"
    wrong_password.write_text("*:*:*:copier:guessed\n")
    wrong_password.chmod(0o600)
    with Sender(store, full.replace(str(passwords), str(wrong_password)), netns) as sender:
        sender.wait_trouble("password authentication failed")
        assert "guessed" not in sender.said() + sender.trouble()
    assert count(server) is None, "nobody got in"
    with Sender(store, full, netns) as sender:
        wait_each_once(server, store)
        assert server.rows("SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'copier'") == [("t",)]
        assert not strangers_see(sender.process.pid, b"sesame")
        assert "sesame" not in sender.said()


def test_a_connection_string_that_cannot_be_read_is_not_repeated(store):
    store("add 0 1")
    store.drain()
    with Sender(store, "postgresql//weir:secret@db.test/events") as sender:
        sender.wait_trouble("no connection string")
        assert "secret" not in sender.said() + sender.trouble()


def test_a_server_that_accepts_and_says_nothing_is_given_up(netns, store):
    store("add 0 10")
    store.drain()
    with netns.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("192.0.2.5", PORT))
        listener.listen()
        with Sender(store, at(), netns) as sender:
            sender.wait_trouble("timeout expired")
            assert sender.told()[3] == 10, "they wait"
            listener.close()
            sender.wait_trouble("Connection refused")
            with serving(netns) as server:
                wait_each_once(server, store)


def blackhole(netns, how):
    """Packets of the server's port are dropped without a word, or no more."""
    rules = ("table inet hole {\nchain out {\ntype filter hook output priority 0\ntcp dport 5432 drop\ntcp sport 5432 drop\n}\n}\n"
             if how else "delete table inet hole\n")
    subprocess.run(netns.command("nft", "-f", "-"), input=rules, text=True, check=True)


def test_a_server_that_falls_silent_under_way_gets_each_row_once(netns, store):
    """Its packets are swallowed; one that is stopped is in test_postgres_rows.py."""
    with serving(netns) as server, Sender(store, at(), netns) as sender:
        store("add 0 2000")
        wait_for(lambda: (count(server) or 0) > 0, step=0.01)
        store.say("add 10000 4000")
        time.sleep(0.1)
        blackhole(netns, True)
        store.process.stdout.readline()
        store.drain()
        sender.wait_trouble("no answer within 4 seconds")
        assert sender.told()[3] > 0
        blackhole(netns, False)
        wait_each_once(server, store)
        wait_for(lambda: sender.trouble() == "")


def test_a_slow_server_gets_all(netns, store):
    """Half a megabit and a long way: a batch doesn't fit into the time that a call has."""
    with serving(netns) as server:
        with Sender(store, at(), netns) as sender:
            store("add 0 1")
            store.drain()
            wait_each_once(server, store)
            sender.kill()
        netns.ip("link set lo mtu 1500")
        subprocess.run(netns.command("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "256kbit", "burst", "4k",
                                     "latency", "10s"), check=True)
        store("add 10 900")
        store.drain()
        with Sender(store, at(), netns) as sender:
            wait_each_once(server, store, 60)
            assert sender.told()[1:3] == (0, 0)


def test_too_many_connections_are_waited_out(netns, store):
    with serving(netns, settings={"max_connections": "4", "superuser_reserved_connections": "0",
                                  "max_wal_senders": "0"}) as server:
        with contextlib.ExitStack() as others:
            while server.psql("SELECT 1", check=False).returncode == 0:
                other = subprocess.Popen([server.bin / "psql", "-X", server.conninfo], stdin=subprocess.PIPE)
                others.callback(other.wait)
                others.callback(other.stdin.close)
                time.sleep(0.1)
            store("add 0 300")
            store.drain()
            with Sender(store, at(), netns) as sender:
                sender.wait_trouble("too many clients")
                others.close()
                wait_each_once(server, store)


def test_the_second_host_is_used_when_the_first_takes_no_writes(netns, store):
    """A primary with a standby of its own: it dies, the standby is promoted, nothing is lost and nothing twice."""
    both = f"host=192.0.2.5,192.0.2.6 user=weir dbname=postgres {QUICK}"
    with serving(netns, settings={"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on",
                                  "synchronous_standby_names": ""}) as first:
        second = Postgres(netns, "192.0.2.6", hba=[TRUST], start=False)
        try:
            second.run("rm", "-rf", second.folder / "data")
            second.run(second.bin / "pg_basebackup", "-h", first.folder, "-U", "weir", "-D", second.folder / "data", "-R", "-c",
                       "fast", "--no-sync")
            second.settings = first.settings
            second.start()
            first.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
            first.psql("SELECT pg_reload_conf()")
            with Sender(store, both.replace("192.0.2.5,192.0.2.6", "192.0.2.6,192.0.2.5"), netns):
                store("add 0 1000")
                store.drain()
                wait_for(lambda: count(first) == 1000, step=0.05)  # past the standby, which stands first
                store.say("add 10000 2000")
                time.sleep(0.2)
                first.kill()
                second.psql("SELECT pg_promote()")
                store.process.stdout.readline()
                store.drain()
                wait_each_once(second, store)
        finally:
            second.end()


def test_a_role_that_is_read_only_by_default_writes(netns, store):
    with serving(netns) as server:
        server.psql("ALTER ROLE weir SET default_transaction_read_only = on;"
                    "ALTER ROLE weir SET default_transaction_isolation = 'serializable'")
        store("add 0 50")
        store.drain()
        with Sender(store, at(), netns):
            wait_each_once(server, store)


def test_a_table_that_others_change_is_waited_for(netns, store):
    with serving(netns) as server, Sender(store, at(), netns) as sender:
        store("add 0 20")
        store.drain()
        wait_each_once(server, store)
        server.psql("ALTER TABLE sandbox_egress_event RENAME COLUMN layer TO floor")
        store("add 100 20")
        store.drain()
        sender.wait_trouble("column \"layer\" of relation \"sandbox_egress_event\" does not exist")
        assert count(server) == 20
        server.psql("ALTER TABLE sandbox_egress_event RENAME COLUMN floor TO layer")
        wait_each_once(server, store)
        server.psql("BEGIN; ALTER TABLE sandbox_egress_event RENAME TO away; COMMIT")
        store("add 200 20")
        store.drain()
        sender.wait_trouble("does not exist")
        server.psql("ALTER TABLE away RENAME TO sandbox_egress_event; ALTER TABLE sandbox_egress_event ADD extra TEXT")
        wait_each_once(server, store)
        locker = subprocess.Popen([server.bin / "psql", "-X", server.conninfo, "-c",
                                   "BEGIN; LOCK sandbox_egress_event; SELECT pg_sleep(100)"], stdout=subprocess.DEVNULL)
        wait_for(lambda: server.value("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock'"), step=0.02)
        store("add 300 20")
        store.drain()
        sender.wait_trouble("lock timeout")
        server.psql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'")
        locker.wait()
        wait_each_once(server, store)
        assert sender.told()[1:3] == (0, 0), "nothing was passed over"


@contextlib.contextmanager
def small_disk(server):
    """Six megabytes of the server's own."""
    folder = server.folder / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=777", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_server_whose_disk_is_full_gets_the_rest_when_there_is_room(netns, store):
    with serving(netns) as server, small_disk(server) as disk, Sender(store, at(), netns) as sender:
        store("add 0 10")
        store.drain()
        wait_each_once(server, store)
        server.run("mkdir", disk / "space")
        for order in (f"CREATE TABLESPACE small LOCATION '{disk}/space'",
                      "ALTER TABLE sandbox_egress_event SET TABLESPACE small"):
            server.psql(order)
        (disk / "big").write_bytes(b"\0" * (5 << 20))
        store("add 1000 10000")
        store.drain()
        sender.wait_trouble("No space left on device")
        (disk / "big").unlink()
        wait_for(lambda: sender.trouble() == "")
        wait_each_once(server, store)


def connections(server):
    return server.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weir'")


def test_a_connection_that_nobody_needs_is_given_back(netns, store):
    with serving(netns) as server, Sender(store, at(), netns) as sender:
        store.put("a.test")
        store.drain()
        wait_for(lambda: count(server) == 1 and connections(server) == 1, step=0.05)
        wait_for(lambda: connections(server) == 0, step=0.1)
        time.sleep(0.6)  # two looks
        assert connections(server) == 0 and sender.trouble() == ""
        store.put("b.test")
        store.drain()
        wait_for(lambda: count(server) == 2 and connections(server) == 1, step=0.05)


def test_a_pooler_that_shares_connections_would_leak_no_settings(netns, store):
    """What a transaction needs is set in it alone."""
    with serving(netns, settings={"log_statement": "all"}) as server, Sender(store, at(), netns):
        store("add 0 5")
        store.drain()
        wait_each_once(server, store)
        log = (server.folder / "log").read_text()
        assert "SET LOCAL" in log and not re.search(r"SET (?!LOCAL|sent|missed|reviewed|remote_port)[a-z_]+ =", log)


def test_a_spool_that_is_full_counts_what_it_let_go(netns, tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with Store(folder) as store, serving(netns) as server:
        with Sender(store, at(), netns) as sender:
            store("add 0 100")
            store.drain()
            wait_each_once(server, store)
            server.stop()
            store("add 1000 3000")
            store.drain()
            sender.wait_trouble("Connection refused")
            wait_for(lambda: sender.told()[3] == 3000, step=0.05)
            store.write("DELETE FROM event WHERE id <= 1100")  # as retention does
            wait_for(lambda: sender.told()[1] == 1000, step=0.05)
            assert sender.told()[3] == 2000
            server.start()
            wait_for(lambda: count(server) == 2100, step=0.05)
            wait_for(lambda: sender.told() == (3100, 1000, 0, 0, ""), step=0.05)
        assert server.value("SELECT missed FROM sandbox_egress_store") == 1000


def memory_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def test_an_outage_costs_bounded_memory(netns, store):
    with serving(netns) as server:
        server.stop()
        with Sender(store, at(), netns) as sender:
            store("add 0 100")
            sender.wait_trouble("Connection refused")
            before = memory_kib(sender.process.pid)
            store("add 1000 5000")
            store.drain()
            wait_for(lambda: sender.told()[3] == 5100, step=0.05)
            server.start()
            wait_each_once(server, store)
            assert memory_kib(sender.process.pid) < before + 12 * 1024
            assert len(os.listdir(f"/proc/{sender.process.pid}/fd")) < 20
