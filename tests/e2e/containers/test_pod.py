# SPDX-License-Identifier: Apache-2.0
"""The pod itself: without a sidecar everything is reached, or no refusal would prove anything."""


def test_an_unguarded_pod_reaches_everything_and_it_is_seen(pod, world, site):
    world.dns.add(site.name, site.v4, site.v6)
    name, four, six, web = pod.probe(["dns", site.name, {"server": "5.100.53.53"}], ["tcp", site.v4, 7007],
                                     ["tcp", site.v6, 7007], ["https", site.v4, 443, site.name])
    assert name.addresses == [site.v4] and four.result == six.result == web.result == "ok"
    assert pod.queries(site.name) == 1
    assert {p.dst for p in pod.packets()} >= {site.v4, site.v6}


def test_two_pods_see_their_own_packets(pod, world, site):
    from world.sidecar import Pod
    with Pod(world, ipv6=False) as other:
        assert other.probe(["tcp", site.v4, 443]).result == "ok"
        assert other.probe(["tcp", site.v6, 443]).result != "ok"
        assert other.packets() and not pod.packets()


def test_the_app_has_the_capabilities_that_were_asked_for(pod):
    status = pod.run("/bin/cat", "/proc/self/status").text
    assert "CapEff:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status
    assert "Uid:\t1000" in status
    assert "CapEff:\t0000000000002000" in pod.run("/bin/cat", "/proc/self/status", caps=("net_raw",)).text
    root = pod.run("/bin/cat", "/proc/self/status", uid=0, caps=("net_raw", "setuid")).text
    assert "CapEff:\t0000000000002080" in root and "Uid:\t0" in root
