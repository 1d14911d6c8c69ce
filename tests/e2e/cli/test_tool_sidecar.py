# SPDX-License-Identifier: Apache-2.0
"""What `weir sidecar` can't take ends its start before anything is touched, and every fault is named."""
import pytest


def faults(done):
    assert done.code == 2 and done.out == b"", done
    return done.err.decode().splitlines()


def test_every_fault_is_named_with_its_place(world):
    done = world.weir("sidecar", "--mode", "nft", "--max-rules=-1", "--nothing",
                      env={"WEIR_LOG_LEVEL": "loud", "OPENSANDBOX_EGRESS_HTTP_ADDR": "localhost:18080",
                           "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true",
                           "OPENSANDBOX_EGRESS_DNS_UPSTREAM": "1.1.1.1,dns.google"})
    places = [line.split(": ")[1] for line in faults(done)]
    assert places == ["--mode", "--max-rules", "'--nothing' is not an option here", "WEIR_LOG_LEVEL",
                      "OPENSANDBOX_EGRESS_HTTP_ADDR", "OPENSANDBOX_EGRESS_DNS_UPSTREAM",
                      "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"]


@pytest.mark.parametrize("variable, value", [
    ("OPENSANDBOX_EGRESS_MODE", "nft"), ("OPENSANDBOX_EGRESS_MODE", "dns+mitm"),
    ("OPENSANDBOX_EGRESS_HTTP_ADDR", ":0"), ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", ","),
    ("OPENSANDBOX_LOG_OUTPUT", ","), ("WEIR_DNS_UPSTREAM_TIMEOUT", "0"), ("WEIR_NAMESERVER_EXEMPT", "10.0.0.0/8"),
])
def test_what_means_nothing_ends_the_start(world, variable, value):
    done = world.weir("sidecar", env={variable: value})
    assert len(faults(done)) == 1 and f"weir: {variable}: " in done.err.decode(), done


def test_nothing_is_touched_before_all_is_read(world):
    before = world.command("nft", "list", "ruleset").text
    faults(world.weir("sidecar", "--mode", "dns+nft", "extra"))
    assert world.command("nft", "list", "ruleset").text == before
