# SPDX-License-Identifier: Apache-2.0
"""Who comes after a sandbox that was detached inherits nothing of it: flows carry its mark for days."""
import pytest

from test_host_daemon import attach, attached
from world.member import cgroup_root
from world.sidecar import Flow


@pytest.mark.parametrize("again", ["at once", "by another daemon"])
def test_a_namespace_that_is_attached_again(host, daemon, pod, site, denied, again):
    daemon.attach("one", pod, "--allow", site.v4, "--allow", denied.v4)
    kept, cut = Flow(pod, site.v4), Flow(pod, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    assert daemon.weir("detach", "one").code == 0
    if again != "at once":
        assert daemon.stop() == 0
        daemon = host.daemon()
    daemon.attach("two", pod, "--allow", site.v4)
    assert kept.say() == "got" and cut.say() != "got"


@pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")
@pytest.mark.parametrize("kind", ["cgroup", "uid"])
@pytest.mark.parametrize("again", ["at once", "by another daemon"])
def test_a_member_that_is_attached_again(host, tree, kind, site, denied, again):
    daemon = host.daemon()
    app, _, who = attached(host, tree, kind)
    attach(daemon, "one", f"allow {site.v4}", f"allow {denied.v4}", **who)
    kept, cut = Flow(app, site.v4), Flow(app, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    assert daemon.weir("detach", "one").code == 0
    if again != "at once":
        assert daemon.stop() == 0
        daemon = host.daemon()
    attach(daemon, "two", f"allow {site.v4}", **who)
    assert kept.say() == "got" and cut.say() != "got"
