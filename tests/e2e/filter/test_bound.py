# SPDX-License-Identifier: Apache-2.0
"""Sockets that are bound to a link, which any program may do."""
import pytest

from world.sidecar import left, to_itself_by


@pytest.mark.parametrize("mode", ["dns+nft", "dns+nft+tls"])
def test_what_is_for_the_pod_never_leaves_it(pod, guarded, site, mode):
    guarded(f"allow {site.name}", mode=mode)
    to_itself_by(pod, "eth0")
    assert left(pod) == []
    lookup, page, *own = pod.probe(["dns", site.name], ["https", site.v4, 443, site.name], ["loopback"], ["loopback", "::1"])
    assert lookup.addresses == [site.v4] and page.result == "ok" and [a.result for a in own] == ["ok", "ok"]
