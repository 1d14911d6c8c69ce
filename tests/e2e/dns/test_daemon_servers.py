# SPDX-License-Identifier: Apache-2.0
"""Which name server is asked for one sandbox isn't for another one to decide."""
from world.world import RESOLVER4

SECOND = "5.100.53.9"


def test_a_name_that_nobody_answers_sends_no_other_name_elsewhere(host, pod, other, world):
    """The first server alone knows the operator's own names; the second one says that there are none."""
    slow, own = f"slow{world.number()}.test", f"own{world.number()}.test"
    address = world.address()
    world.dns.on(f"*.{slow}", lambda query: None)
    world.dns.on(f"*.{own}", lambda query: query.answer(address) if query.server == RESOLVER4 else query.answer(rcode="NXDOMAIN"))
    daemon = host.daemon("--upstream", RESOLVER4, "--upstream", SECOND, upstream=None)
    daemon.attach("one", pod, "--allow", f"*.{slow}")
    daemon.attach("two", other, "--allow", f"*.{own}")
    assert other.probe(["dns", f"a.{own}"]).addresses == [address]
    started = pod.probe_start(*[["dns", f"n{i}.{slow}"] for i in range(3)])
    started.line()
    assert other.probe(["dns", f"b.{own}"]).addresses == [address]
    assert {query.server for query in world.dns.queries(f"*.{own}")} == {RESOLVER4}
