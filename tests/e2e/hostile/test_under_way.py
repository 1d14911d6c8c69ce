# SPDX-License-Identifier: Apache-2.0
"""Descriptors that are under way in unix sockets. The kernel counts them for a user, against the limit of whoever sends more."""
import os

from world.run import finish
from world.sidecar import policy

HOARD = """
import array, errno, os, resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
nothing, held, count = os.open("/dev/null", os.O_RDONLY), [], 0
try:
    while True:
        held += socket.socketpair()
        held[-2].setblocking(False)
        try:
            while True:
                held[-2].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [nothing] * 253))])
                count += 253
        except BlockingIOError:
            pass
except OSError as e:
    print(errno.errorcode[e.errno], count > most, flush=True)
sys.stdin.read()
"""
PYTHON = ("/usr/bin/python3", "-IS", "-c")


def test_a_command_has_fewer_than_weir(world, site):
    """The engine gets another policy all the same, and the user's next sandbox starts. The user is the test's own."""
    uid, folder, name = world.uid(), world.workdir(), f"hoard-{os.getpid()}"
    os.chown(folder, uid, uid)
    (folder / "narrow.yaml").write_text("egress: []\n")

    def started(*argv):
        return world.start(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", world.weir_path, *argv],
                           cwd=folder, env={"HOME": str(folder)})
    with started(*world.run_args([*PYTHON, HOARD], [site.name], [], ["--id", name], None)) as run:
        assert run.line() == "ETOOMANYREFS True"
        done = finish(started("policy", "set", name, folder / "narrow.yaml"))
        assert (done.code, done.messages) == (0, ""), done
        assert finish(started("policy", "show", "--id", name)).json()["egress"] == []
        done = finish(started(*world.run_args(["echo", "second"], [], [], [], None)))
        assert done.text == "second\n", done


def test_an_app_of_the_sidecars_user_ends_no_engine(world, pod, site):
    """A policy can't be passed then, and that is said. What is in force stays, and who serves it."""
    uid = world.uid()
    side = pod.sidecar(uid=uid, rules=policy(f"allow {site.name}"))

    def who_serves():
        """Control asks for its socket owner later, perhaps meanwhile."""
        return {name: pid for name, pid in side.children().items() if name in ("control", "engine")}
    before = who_serves()
    assert len(before) == 2
    hoard = pod.start(*PYTHON, HOARD, uid=uid)
    assert hoard.line() == "ETOOMANYREFS True"
    reply = side.call("POST", "/policy", policy())
    assert reply.status == 500 and "Too many references" in reply.text, reply
    assert pod.probe(["dns", site.name]).addresses
    assert who_serves() == before
    hoard.kill()
    side.post()
    assert not pod.probe(["dns", site.name]).addresses
    assert who_serves() == before
