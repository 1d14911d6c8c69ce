# SPDX-License-Identifier: Apache-2.0
"""Fixtures that all tests share: one world per session, tests kept apart by names."""
import os
import pathlib
import subprocess

import pytest

from world import World

# The files that take longest, the longest first: workers that take whole files end together then.
LONGEST = ("test_order", "test_host", "test_postgres_outage", "test_container_ends", "test_image", "test_dns_clients",
           "test_deploy", "test_sdk_sandbox", "test_verify_programs", "test_host_daemon", "test_daemon_life",
           "test_life", "test_container_run", "test_shards", "test_z_secrets", "test_postgres", "test_host_engine",
           "test_host_attacks", "test_netns", "test_g_control", "test_page_browser", "test_dns_service",
           "test_tool_presets", "test_sdk_typescript", "test_uplink", "test_filter_shared", "test_b_dns",
           "test_run_container", "test_c_addresses", "test_d_sockets", "test_store_old", "test_adversary",
           "test_filter", "test_z_startup_files", "test_sdk_run", "test_run_signals", "test_host_cgroup",
           "test_run_files", "test_events_rows", "test_learn", "test_dns", "test_verify_hello", "test_change",
           "test_cli_tls", "test_i_calls", "test_process_known", "test_sdk_isolated", "test_postgres_rows",
           "test_copies", "test_run_hide", "test_page_watch", "test_systemd", "test_daemon_docker", "test_kills",
           "test_z_paths", "test_run_programs", "test_oci", "test_cli_run", "test_half", "test_verify",
           "test_host_lifecycle", "test_host_random", "test_sdk_docs", "test_budgets", "test_review_told", "test_api",
           "test_podman", "test_policies_agree", "test_attack_packets", "test_launch", "test_c_races",
           "test_page_daemon")


def pytest_collection_modifyitems(items):
    order = {f"{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_report_teststatus(report):
    """Name a failure at once: the end of a run may be far."""
    if report.failed:
        category = "failed" if report.when == "call" else "error"
        return category, f"\n{category}: {report.nodeid}\n", category.upper()
    return None


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
