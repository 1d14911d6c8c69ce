# SPDX-License-Identifier: Apache-2.0
"""`action: ask`: what asks waits, with nothing sent for it, until somebody grants it, and then goes on without a retry; or is
refused. Where TCP goes through the relay connections wait, elsewhere lookups do (`waits`)."""
import concurrent.futures
import contextlib
import tempfile

import pytest

from world import expect
from world.guarded import guarded
from world.sidecar import policy, wait_for

GET = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


def waits(product, verify):
    return "connection" if verify == "tls" or product.startswith("run") else "lookup"


class Asking:
    """The probes, while the block runs: their answers at its end are in `answers`."""

    def __init__(self, box, *probes):
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future = self._pool.submit(box.probe, *probes)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.answer = self._future.result(60)
        self._pool.shutdown(wait=kind is None)


@contextlib.contextmanager
def asked(world, product, *rules, **more):
    """A sandbox under a policy that asks, with a store where the product needs one for its tasks."""
    with tempfile.TemporaryDirectory() as state:
        args = () if product.startswith("run") else ("--state-dir", state)
        with guarded(world, product, policy(*rules, **more), args) as box:
            yield box


def task(box, name):
    """The open task about @name, as soon as there is one."""
    return wait_for(lambda: next((t for t in box.reviews() if t["destination"] == name and t["state"] == "open"), None))


@pytest.mark.parametrize("product, verify", [("run", "tls"), ("run-user", "dns"), ("sidecar", "tls"), ("netns", "tls"), ("cgroup", "dns")])
def test_what_waits_goes_on_when_it_is_granted(world, product, verify):
    site, denied = (world.site(f"ask{world.number()}.test") for _ in range(2))
    rules = [f"deny {denied.name}", f"ask {site.name}"]
    with asked(world, product, *rules, verify=verify) as box:
        expect.name_refused(box.probe(["dns", denied.name]))
        with Asking(box, ["connect", site.name, 80, GET.format(site.name)]) as client:
            waiting = task(box, site.name)
            assert (waiting["port"] or 0) == (80 if waits(product, verify) == "connection" else 0), waiting
            assert box.left() == ([], set())
            box.accept(waiting)
        assert "200 OK" in client.answer.data, client.answer
        assert site.name in box.names
        # and so does what comes later
        assert "200 OK" in box.probe(["connect", site.name, 80, GET.format(site.name)]).data
        assert not [e for e in box.denies() if e["name"] == site.name], box.denies()


@pytest.mark.parametrize("product, verify", [("run", "tls"), ("sidecar", "dns")])
def test_nobody_answers_or_says_no(world, product, verify):
    site = world.site(f"ask{world.number()}.test")
    parked = waits(product, verify) == "connection"
    with asked(world, product, f"ask {site.name}", verify=verify, limits={"ask_timeout": 2}) as box:
        answer = box.probe(["connect", site.name, 80, GET.format(site.name)])
        if parked:
            assert "403 Forbidden" in answer.data and "nobody has answered" in answer.data, answer
        else:
            expect.lookup_refused(answer)
        box.assert_silent()
        assert task(box, site.name)
        wait_for(lambda: [e for e in box.denies() if e["name"] == site.name and "nobody has answered" in e["reason"]])


@pytest.mark.parametrize("product, verify", [("run", "dns"), ("sidecar", "dns"), ("uid", "tls")])
def test_a_dismissal_and_another_policy_refuse_what_waits(world, product, verify):
    site, other = (world.site(f"ask{world.number()}.test") for _ in range(2))
    with asked(world, product, f"ask {site.name}", f"ask {other.name}", verify=verify) as box:
        for name, decide, why in ((site.name, lambda: box.dismiss(task(box, site.name)), "refused by who was asked"),
                                  (other.name, lambda: task(box, other.name) and box.change(policy(f"deny {other.name}", verify=verify)),
                                   "deny" if waits(product, verify) == "lookup" else "not allowed")):
            with Asking(box, ["connect", name, 80, GET.format(name)]) as client:
                decide()
            if waits(product, verify) == "connection":
                assert "403 Forbidden" in client.answer.data and why in client.answer.data, client.answer
            else:
                expect.lookup_refused(client.answer)
            box.assert_silent()
            wait_for(lambda: [e for e in box.denies() if e["name"] == name and why in e["reason"]])
