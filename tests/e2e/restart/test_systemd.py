# SPDX-License-Identifier: Apache-2.0
"""The unit and the drop-ins of deploy/systemd, under a systemd that is PID 1."""

import pytest

from world.built import PROGRAMS
from world.daemon import Host
from world.machine import Machine, can_boot
from world.sidecar import wait_for

STRANGER = "93.9.9.9"
WATCHDOG = "/etc/systemd/system/weir.service.d/watchdog.conf"
pytestmark = [pytest.mark.skipif(not can_boot(), reason="no systemd here"),
              pytest.mark.skipif(not (PROGRAMS / "meson-private").is_dir(), reason="the program that is tested was not built here")]
# Its first instruction sends, before anybody can have looked.
JOB = """
[Unit]
StartLimitIntervalSec=0
[Service]
Type=oneshot
StandardOutput=truncate:/run/%%N.out
{more}
ExecStart=-/bin/bash -c 'echo x >/dev/udp/%s/9; for name in {names}; do getent ahostsv4 $$name; done'
""" % STRANGER


@pytest.fixture(scope="module", name="machine")
def fixture_machine(world):
    host = Host(world)
    machine = None
    try:
        machine = Machine(host, PROGRAMS)
        machine("systemctl", "enable", "--now", "weir")
        yield machine
    finally:
        if machine:
            machine.close()
        host.close()


@pytest.fixture(name="job")
def fixture_job(machine, site, denied, world):
    """A service with the drop-in, not started."""
    name = f"job{world.number()}"
    machine.file(f"/etc/weir/policies/{name}.yaml", f"egress: [{{action: allow, target: {site.name}}}]\n")
    conf = machine.at("/usr/local/share/weir/guarded.conf").read_text()
    machine.file(f"/etc/systemd/system/{name}.service.d/weir.conf", conf)
    machine.unit(f"{name}.service", JOB.format(more="", names=f"{site.name} {denied.name}"))
    yield name
    machine.call("weir", "detach", name)


def said(machine, name):
    """What it has printed, since the last time."""
    file = machine.at(f"/run/{name}.out")
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return text


def left(machine):
    return machine.host.packets(dst=STRANGER)


def daemon_pid(machine):
    return machine.shown("weir", "MainPID")


def names(machine):
    return [line.split()[0] for line in machine("weir", "ps").splitlines()[1:]]


def settled(machine):
    """The daemon serves, and knows all."""
    wait_for(lambda: machine.call("weir", "ps").code == 0 and "may be more" not in machine.call("weir", "ps").messages, step=0.05)


def test_the_unit_tells_when_it_serves(machine):
    assert machine.shown("weir", "Type") == "notify" and machine.shown("weir", "ActiveState") == "active"
    machine("systemctl", "restart", "weir")
    machine("weir", "ps")


def test_a_service_is_guarded_before_its_first_instruction(machine, job, site, denied):
    for _ in range(5):
        machine("systemctl", "start", job)
        text = said(machine, job)
        assert site.v4 in text and denied.v4 not in text
    assert names(machine).count(job) == 1 and not left(machine)


def test_without_the_drop_in_it_is_free(machine, site, denied):
    """So the others' silence is Weir's doing."""
    machine.unit("free.service", JOB.replace(STRANGER, "93.9.9.8").format(more="", names=denied.name))
    machine("systemctl", "start", "free")
    assert denied.v4 in said(machine, "free")
    wait_for(lambda: machine.host.packets(dst="93.9.9.8"))


def test_without_its_policy_a_service_is_not_started(machine, job, site):
    machine.at(f"/etc/weir/policies/{job}.yaml").unlink()
    assert machine.call("systemctl", "start", job).code != 0
    assert site.v4 not in said(machine, job) and job not in names(machine)


def with_watchdog(machine, lasts):
    """Start the daemon again, with that for a watchdog; None: the unit's own."""
    if lasts:
        machine.file(WATCHDOG, f"[Service]\nWatchdogSec={lasts}\n")
    else:
        machine.at(WATCHDOG).unlink()
    machine("systemctl", "daemon-reload")
    machine("systemctl", "restart", "weir")


def test_below_the_slice_a_service_that_nobody_attached_is_closed(machine, job, site):
    """While the daemon is stopped by a signal. Once it runs again, it sees the group and lets it through."""
    with_watchdog(machine, "10min")  # however long the service takes, no other daemon comes meanwhile
    machine("systemctl", "start", job)
    machine.unit("stray.service", JOB.format(more="Slice=guarded.slice", names=site.name))
    pid = daemon_pid(machine)
    machine("kill", "-STOP", pid)
    machine("systemctl", "start", "stray")
    assert site.v4 not in said(machine, "stray") and not left(machine)
    machine("kill", "-CONT", pid)
    settled(machine)
    machine("systemctl", "start", job)
    assert site.v4 in said(machine, job) and daemon_pid(machine) == pid
    with_watchdog(machine, None)


def test_a_daemon_that_hangs_is_replaced_by_the_watchdog(machine, job, site):
    with_watchdog(machine, "4s")
    machine("systemctl", "start", job)
    pid = daemon_pid(machine)
    machine("kill", "-STOP", pid)
    wait_for(lambda: daemon_pid(machine) not in ("0", pid), step=0.1)
    settled(machine)
    assert job in names(machine) and int(machine.shown("weir", "NRestarts")) >= 1
    machine("systemctl", "start", job)
    assert site.v4 in said(machine, job)
    # A busy machine is no reason to end the daemon while the others look at it.
    with_watchdog(machine, None)


def test_killed_all_at_once_it_comes_back_with_what_it_guarded(machine, job, site):
    machine("systemctl", "start", job)
    for _ in range(7):  # systemd doesn't lose patience
        pid = daemon_pid(machine)
        machine("systemctl", "kill", "--signal=KILL", "weir")
        wait_for(lambda: daemon_pid(machine) not in ("0", pid), step=0.05)
        wait_for(lambda: machine.shown("weir", "ActiveState") == "active", step=0.05)
    settled(machine)
    assert job in names(machine)
    machine("systemctl", "start", job)
    assert site.v4 in said(machine, job)
    assert not left(machine)


def test_a_service_that_starts_while_the_daemon_is_restarted(machine, job, site):
    """It is closed to names for as long as nobody answers, or isn't started: never open."""
    for _ in range(5):
        machine.call("systemctl", "restart", job, "weir")
    settled(machine)
    said(machine, job)
    machine("systemctl", "start", job)
    assert not left(machine)
    assert site.v4 in said(machine, job), machine.journal()


def test_a_user_from_boot_on(machine, site, denied):
    machine("useradd", "--uid", "4711", "agent")
    machine.file("/etc/weir/policies/agent.yaml", f"egress: [{{action: allow, target: {site.name}}}]\n")
    asked = f"for name in {site.name} {denied.name}; do getent ahostsv4 $name | head -n1; done; echo x >/dev/udp/{STRANGER}/9"
    for _ in range(2):
        machine("systemctl", "restart", "weir-user@agent")
        done = machine.call("setpriv", "--reuid=4711", "--regid=4711", "--clear-groups", "bash", "-c", asked)
        assert site.v4 in done.text and denied.v4 not in done.text and not left(machine)
    machine("systemctl", "stop", "weir-user@agent")
    assert "agent" in names(machine)


def test_a_scope_in_which_weir_runs_a_command(machine, site, denied):
    command = f"cat /proc/self/cgroup; for name in {site.name} {denied.name}; do getent ahostsv4 $name; done; true"
    done = machine.call("systemd-run", "--scope", "-q", "--", "weir", "run", "--cgroup", "/guarded.slice/one", "--uid", "nobody",
                        "--allow", site.name, "--", "sh", "-c", command)
    assert done.code == 0 and "/guarded.slice/one" in done.text, done
    assert site.v4 in done.text and denied.v4 not in done.text


def test_a_namespace_that_is_made_while_the_daemon_runs(machine):
    """The unit has a view of its own of the file system."""
    machine("ip", "netns", "add", "box")
    machine("weir", "attach", "--id", "box", "--netns", "/run/netns/box")
    machine("ip", "netns", "del", "box")
    wait_for(lambda: "box" not in names(machine))


def test_to_stop_it_opens_nothing(machine, job, site):
    machine("systemctl", "start", job)
    machine("systemctl", "stop", "weir")
    machine.unit("stray.service", JOB.format(more="Slice=guarded.slice", names=site.name))
    machine("systemctl", "start", "stray")
    assert site.v4 not in said(machine, "stray") and not left(machine)
    machine("systemctl", "start", job)  # which starts the daemon, too
    assert site.v4 in said(machine, job) and job in names(machine)
