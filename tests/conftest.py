# SPDX-License-Identifier: Apache-2.0
"""Fixtures that all tests share: one world per session, tests kept apart by names."""
import os
import pathlib
import subprocess

import pytest

from world import World

# The files that take longest, the longest first: workers that take whole files end together then.
LONGEST = ("test_ways_out", "test_policies_agree", "test_dns_service", "test_host_daemon", "test_image", "test_container_ends",
           "test_container_run", "test_filter_shared", "test_events_rows", "test_g_control",
           "test_daemon_life", "test_change", "test_host_engine", "test_webhook", "test_c_addresses", "test_b_dns", "test_host",
           "test_half", "test_life", "test_uplink", "test_postgres_outage", "test_netns", "test_d_sockets", "test_daemon_docker",
           "test_verify_programs", "test_deploy", "test_dns_clients", "test_pinned", "test_page_browser", "test_copies",
           "test_page_daemon", "test_cli_tls", "test_postgres", "test_postgres_rows", "test_api", "test_host_meeting",
           "test_run_signals", "test_adversary", "test_verify", "test_filter_text", "test_filter", "test_api_hostile",
           "test_host_random", "test_host_attacks", "test_cli_run", "test_daemon_host", "test_dns", "test_run_programs")


def pytest_collection_modifyitems(items):
    order = {f"{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def world():
    if os.geteuid() != 0:
        pytest.fail("the tests make network namespaces: run them as root")
    with World() as w:
        yield w


@pytest.fixture(params=["root", "weir-test"])
def user(request):
    """Both who may start Weir."""
    return request.param


@pytest.fixture
def site(world, request):
    """A name that only this test knows, with its own addresses."""
    return world.site(f"site-{world.number()}.test")


@pytest.fixture
def denied(world):
    """A name that no rule of this test allows; the world's DNS would answer for it."""
    return world.site(f"denied-{world.number()}.test")


@pytest.fixture(scope="session")
def attack_program(world):
    """world/attack.c, where a sandbox can run it."""
    source = pathlib.Path(__file__).parent / "world" / "attack.c"
    program = world.tools / "attack"
    if not program.exists():
        subprocess.run(["cc", "-O1", "-Wall", "-D_GNU_SOURCE", "-o", program, source], check=True)
    return program
