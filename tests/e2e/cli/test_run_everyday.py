# SPDX-License-Identifier: Apache-2.0
"""`weir run` with what people do all day beside the network, as docs/compatibility.md says it. The lines are those that
tests/compare tries in other sandboxes too."""
import pytest

from compare.tasks import LOCAL
from world.world import GATEWAY4, RESOLVER6


@pytest.mark.parametrize("what, line, prints", LOCAL, ids=[what for what, *_ in LOCAL])
def test_it_works(world, user, what, line, prints):
    done = world.run("sh", "-c", line.format(), user=user)
    assert prints in done.text + done.messages, done


def test_wget(world, site, user):
    done = world.run("wget", "-qO-", f"--ca-certificate={world.ca.cert}", f"https://{site.name}/", allow=(site.name,), user=user)
    assert f'"host": "{site.name}"' in done.text, done


@pytest.mark.parametrize("line", ["ping -c 1 -W 2 {name}", "echo heard | nc -u -w 1 {name} 7007"], ids=["ping", "UDP"])
def test_it_does_not_work_over_the_relay_and_leaves_nothing(world, site, line):
    """For UDP there is --uplink slirp4netns (relay/test_uplink)."""
    with world.capture() as capture:
        done = world.run("sh", "-c", line.format(name=site.name), allow=(f"{site.name}:7007",))
        assert "heard" not in done.text and "1 received" not in done.text and capture.packets(dst=site.v4) == [], done


def test_a_host_with_ipv6_alone(world, site, user):
    world.host.ip("route del default")
    try:
        done = world.run("curl", "-sS", "--max-time", "20", f"https://{site.name}/", allow=(site.name,), user=user, upstream=RESOLVER6)
        assert f'"address": "{site.v6}"' in done.text, done
    finally:
        world.host.ip(f"route add default via {GATEWAY4}")
