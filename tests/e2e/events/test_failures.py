# SPDX-License-Identifier: Apache-2.0
"""What is allowed and fails is told, with what was tried; what is refused is told while the command runs."""
import json
import os
import pty
import select
import subprocess

import pytest

PYTHON = ("/usr/bin/python3", "-IS", "-c")
DEAD_RESOLVER = "5.100.99.99"


def run(world, script, *argv, **rest):
    file = world.workdir(rest.get("user")) / "report.json"
    options = (*rest.pop("options", ()), "--report", file)
    done = world.run(*PYTHON, script, *argv, options=options, timeout=60, **rest)
    return done, json.loads(file.read_text())


@pytest.fixture
def faults(world):
    """Adds rules of the internet's own."""
    table = f"failures{world.number()}"

    def nft(script):
        subprocess.run(world.internet.command("nft", script), check=True, capture_output=True)
    nft(f"add table inet {table}; add chain inet {table} in {{ type filter hook input priority 0; }}")
    yield lambda rule: nft(f"add rule inet {table} in {rule}")
    nft(f"delete table inet {table}")


CONNECT = """
import socket, sys
try:
    s = socket.create_connection((sys.argv[1], 7007), 10)
    s.settimeout(float(sys.argv[2]))
    s.send(b'x')
    print(s.recv(1))
except OSError as e: print('failed', e)
"""


def test_a_server_that_refuses_is_told(world, user, faults):
    name, address = f"refuses{world.number()}.test", world.address()
    world.dns.add(name, address)
    faults(f"ip daddr {address} tcp dport 7007 reject with tcp reset")
    done, said = run(world, CONNECT, name, "5", allow=(f"{name}:7007",), user=user)
    assert said["refusals"] == []
    (found,) = said["failures"]
    assert (found["action"], found["name"], found["address"], found["port"]) == ("fail", name, address, 7007)
    assert found["reason"] == "the server refuses the connection" and found["allow"] is None
    assert "allowed, but failed" in done.messages and "refuses the connection" in done.messages, done
    assert "--allow" not in done.messages


FAIL_AFTER_A_REFUSAL = """
import socket, sys
try: socket.getaddrinfo(sys.argv[2], 443)
except OSError: pass
address = socket.getaddrinfo(sys.argv[1], 443, socket.AF_INET)[0][4][0]
for port in range(7000, 7600):
    s = socket.socket()
    try:
        s.connect((address, port))
        s.send(b'x')
        s.recv(1)
    except OSError: pass
    s.close()
"""


def test_failures_push_no_refusal_out(world, denied, faults):
    """A command that has more fail than the report has room for hides nothing that was refused before."""
    name, address = f"many{world.number()}.test", world.address()
    world.dns.add(name, address)
    faults(f"ip daddr {address} tcp dport 7000-7599 reject with tcp reset")
    policy = world.workdir() / "many.yaml"
    policy.write_text(f"egress: [{{action: allow, target: {name}, ports: [7000-7599]}}]\nlimits: {{events_per_second: 100000}}\n")
    done, said = run(world, FAIL_AFTER_A_REFUSAL, name, denied.name, options=("--fail-on-deny", "--policy", policy))
    assert len(said["failures"]) == 512, len(said["failures"])
    assert denied.name in {r["name"] for r in said["refusals"]} and denied.name in done.messages
    assert said["refusals_not_recorded"] == 0 and said["exit_status"] == done.code == 123, done


def test_servers_that_do_not_answer_are_told_each(world, faults):
    name, addresses = f"silent{world.number()}.test", [world.address(), world.address6()]
    world.dns.add(name, *addresses)
    for family, address in zip(("ip", "ip6"), addresses):
        faults(f"{family} daddr {address} tcp dport 7007 drop")
    done, said = run(world, CONNECT, name, "3", allow=(f"{name}:7007",))
    assert {f["address"] for f in said["failures"]} == set(addresses)
    assert {f["reason"] for f in said["failures"]} == {"the server does not answer"}, done


def test_a_race_that_is_won_is_no_failure(world, faults):
    name, addresses = f"won{world.number()}.test", [world.address(), world.address()]
    world.dns.add(name, *addresses)
    faults(f"ip daddr {addresses[0]} tcp dport 7007 reject with tcp reset")
    done, said = run(world, CONNECT, name, "5", allow=(f"{name}:7007",))
    assert "b'x'" in done.text and said["failures"] == [] and "failed" not in done.messages, done


LOOKUP = """
import socket, sys
try: socket.getaddrinfo(sys.argv[1], 443)
except OSError as e: print('failed', e)
"""


def test_dead_name_servers_are_told(world, user, faults):
    name = f"unresolved{world.number()}.test"
    faults(f"ip daddr {DEAD_RESOLVER} drop")
    done, said = run(world, LOOKUP, name, allow=(name,), upstream=DEAD_RESOLVER, user=user)
    (found,) = said["failures"]
    assert (found["layer"], found["name"]) == ("dns", name)
    assert "no upstream server" in found["reason"] and DEAD_RESOLVER in found["reason"], found
    assert DEAD_RESOLVER in done.messages and said["refusals"] == [], done


def test_name_servers_that_refuse_are_told(world):
    name = f"broken{world.number()}.test"
    world.dns.on(name, lambda q: q.answer(rcode="SERVFAIL"))
    done, said = run(world, LOOKUP, name, allow=(name,))
    assert "the upstream server failed" in said["failures"][0]["reason"], done


SLOWLY = """
import socket, sys, time
for i in range(int(sys.argv[1])):
    try: socket.getaddrinfo('denied%d.test' % i, 443)
    except OSError: pass
print('looked', flush=True)
sys.stdin.read()
"""


def test_the_first_refusals_are_told_while_the_command_runs(world):
    with world.run_start(*PYTHON, SLOWLY, "12", allow=("api.ok.test",)) as started:
        assert started.line() == "looked"
        lines = [started.process.stderr.readline().decode() for _ in range(9)]
        assert [line.split()[:3] for line in lines[:8]] == [["weir:", "refused", f"denied{i}.test:"] for i in range(8)]
        assert "no rule allows it" in lines[0] and "more" in lines[8]
        done = started.wait(b"")
    assert done.code == 0 and "refused:" in done.messages and "denied11.test" in done.messages, done


def test_quiet_tells_nothing(world):
    with world.run_start(*PYTHON, SLOWLY + "time.sleep(1.5)", "2", allow=("api.ok.test",), options=("--quiet",)) as started:
        done = started.wait(b"")
    assert done.code == 0 and done.err == b"", done


def test_a_command_that_ends_at_once_has_the_report_alone(world):
    done = world.run(*PYTHON, LOOKUP, "denied.test", allow=("api.ok.test",))
    assert done.messages.count("denied.test") == 2, done  # the line, and the option


def test_a_full_pipe_makes_nobody_wait(world):
    """The reader of standard error has stopped: what Weir does otherwise goes on."""
    policy = world.workdir() / "policy.yaml"
    policy.write_text("egress: [{action: allow, target: api.ok.test}]\non_denies: {action: stop, count: 20, window: 1m}\n")
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while os.write(write, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(write, True)
    script = ("import socket, time\nfor i in range(400):\n    try: socket.getaddrinfo('denied%d.test' % i, 443)\n"
              "    except OSError: print(i, flush=True)\n    time.sleep(0.05)\n")
    with world.run_start(*PYTHON, script, options=("--policy", policy), stderr=write) as started:
        os.close(write)
        said = b""
        # The report waits for its reader, and holds standard output meanwhile; the command has ended by then.
        while select.select([started.process.stdout], [], [], 5 if said else 60)[0] and (piece := os.read(started.process.stdout.fileno(), 4096)):
            said += piece
        assert 0 < len(said.split()) < 300, said
        while os.read(read, 65536):
            pass
        started.process.wait(60)
    os.close(read)


def test_a_program_that_draws_on_its_terminal_is_left_alone(world):
    script = SLOWLY.replace("import socket, sys, time\n", "import socket, sys, time, tty\ntty.setraw(2)\n") \
                   .replace("sys.stdin.read()", "time.sleep(1.5)")
    master, slave = pty.openpty()
    with world.run_start(*PYTHON, script, "2", allow=("api.ok.test",), stderr=slave) as started:
        assert started.line() == "looked"
        assert started.process.wait(60) == 0
        os.close(slave)
        said = b""
        try:
            while piece := os.read(master, 4096):
                said += piece
        except OSError:
            pass
    os.close(master)
    assert b"refused denied" not in said and b"refused:" in said, said
