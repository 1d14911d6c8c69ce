# SPDX-License-Identifier: Apache-2.0
"""`weir learn --from` with events that a real PostgreSQL has: the same policy as from the store that they were copied from."""
import subprocess
import time

import pytest

from world.built import BUILD
from world.copies import Sender, count
from world.postgres import Database, binaries
from world.sidecar import wait_for
from world.store import Store

pytestmark = pytest.mark.skipif(not binaries(), reason="PostgreSQL is not installed")

WEIR = BUILD / "weir"


@pytest.fixture
def database(shared):
    made = Database(shared, f"d{time.monotonic_ns()}", ("reader",))
    yield made
    made.end()


@pytest.fixture
def store(tmp_path):
    (tmp_path / "state").mkdir(mode=0o700)
    with Store(tmp_path / "state") as opened:
        yield opened


def learn(*options, conninfo=None):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/", **({"WEIR_POSTGRES": conninfo} if conninfo else {})}
    return subprocess.run([WEIR, "learn", *map(str, options)], env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)


def test_the_policy_is_that_of_the_store(database, store, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("egress:\n  - {action: allow, target: api.test, ports: [443]}\n  - {action: allow, target: unused.test, ports: [443]}\n")
    store.put("api.test", action="allow", address="93.1.0.1", port=443, packets=3, command="curl")
    store.put("api.test", action="allow", address="93.1.0.2", port=443, packets=2, command="curl", sandbox="sb-2")
    store.put("web.test", action="allow", address="93.1.0.3", port=8080, command="pip", sandbox="sb-2")
    store.put(action="allow", address="2a02:1::7", port=22, command="ssh")
    store.put("old.test", action="allow", address="93.1.0.4", port=443, ago=3 * 86400)
    store.put("denied.test", packets=4)
    store.put(b'x"}, {action: allow, target: evil.test\n#', action="allow", address="93.1.0.5", port=443, command="a:#{")
    store.put(action="change")
    store.drain()
    with Sender(store, database.conninfo):
        wait_for(lambda: count(database) == 7)
    # who may only read
    database.psql("CREATE ROLE reader LOGIN; GRANT SELECT ON sandbox_egress_event TO reader")
    reader = f"{database.conninfo} user=reader"
    for options in (("--sandbox", "sb-2"), (), ("--since", "7d"), ("--diff", policy)):
        here, there = learn("--from", store.folder, *options), learn("--from", "postgres", *options, conninfo=reader)
        assert here.returncode == there.returncode == 0 and there.stdout == here.stdout and "api.test" in here.stdout + policy.read_text(), (
            options, here, there)
    assert 'target: "denied.test"' in there.stdout and "unused.test" in there.stdout and "evil.test\n" not in there.stdout, there
    assert 'target: "old.test"' in learn("--from", "postgres", "--since", "7d", conninfo=reader).stdout
    host, name = database.server.folder, database.name
    assert learn("--from", f"postgresql:///{name}?host={host}&user=reader").stdout == learn("--from", store.folder).stdout


@pytest.mark.parametrize("from_, conninfo, why, code", [
    ("postgres", None, "WEIR_POSTGRES, which is not set", 2),
    ("postgres://127.0.0.1:9/x?connect_timeout=2", None, "cannot connect", 125),
    ("postgres://[broken", None, "is no connection string", 2)])
def test_what_cannot_be_read_is_an_error_and_no_policy(from_, conninfo, why, code):
    done = learn("--from", from_, conninfo=conninfo)
    assert done.returncode == code and why in done.stderr and done.stdout == "", done


def test_a_database_without_the_tables_and_one_that_goes_away(database):
    done = learn("--from", "postgres", conninfo=database.conninfo)
    assert done.returncode == 125 and "sandbox_egress_event" in done.stderr and done.stdout == "", done
