# SPDX-License-Identifier: Apache-2.0
"""Who decides on a review task, and what they are shown before."""
import concurrent.futures
import json

import pytest

from world.sidecar import wait_for


def tasks(side):
    reply = side.get("/review")  # 503 before the first row is stored
    return {t["destination"]: t for t in reply.json()["tasks"]} if reply.status == 200 else {}


def told(hook):
    return {body["destination"]: body for _, _, body in list(hook.calls)}


def test_what_looks_like_an_allowed_name_is_said_wherever_it_is_decided(pod, guarded, hook, state):
    side = guarded("allow **.github.com", "deny denied.com",
                   args=("--state-dir", str(state), "--review-webhook", hook.url))
    pod.probe(["dns", "api.githud.com"], ["dns", "xn--gthub-n4a.com"], ["dns", "deniet.com"], ["dns", "example.net"])
    wait_for(lambda: len(told(hook)) == 4)
    like = {name: body["looks_like"] for name, body in told(hook).items()}
    assert like == {"api.githud.com": "github.com", "xn--gthub-n4a.com": "github.com", "deniet.com": None, "example.net": None}
    found = tasks(side)
    assert {name: t["looks_like"] for name, t in found.items()} == like
    done = side.call("POST", f"/review/{found['api.githud.com']['id']}/accept")
    assert done.status == 200 and done.json()["looks_like"] == "github.com"


def test_another_rule_than_was_shown_is_not_accepted(pod, guarded, site, state):
    """A sandbox can make another rule of its task while somebody reads it."""
    side = guarded("allow other.test", args=("--state-dir", str(state)))
    pod.probe(["dns", site.name])
    task, before = wait_for(lambda: tasks(side).get(site.name)), side.get("/policy").json()
    path, other = f"/review/{task['id']}/accept", {**task["rule"], "ports": ["tcp/22"]}
    done = side.call("POST", path, json.dumps({"rule": other, "for": "10m"}))
    assert done.status == 409 and "another rule by now" in done.text, done
    assert side.call("POST", path, json.dumps({"rule": task["rule"], "more": 1})).status == 400
    assert side.get("/policy").json() == before and tasks(side)[site.name]["state"] == "open"
    assert side.call("POST", path, json.dumps({"rule": task["rule"], "for": "10m"})).status == 200
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


# ---- links that decide ----

BASE = "https://weir.example/api"


@pytest.fixture
def linked(world, pod, guarded, hook, state):
    """linked(NAME…): a sidecar that sends links, and what was sent of each name that was denied."""
    args = ("--state-dir", str(state), "--review-webhook", hook.secure_url, "--review-url", BASE)

    def again():
        return guarded("allow other.test", args=args, env={"SSL_CERT_FILE": str(world.ca.cert)})

    def start(*names):
        side = again()
        pod.probe(*[["dns", name] for name in names])
        wait_for(lambda: set(names) <= set(told(hook)))
        return side, told(hook)
    start.args, start.again = args, again
    return start


def path(url):
    assert url.startswith(BASE + "/answer/")
    return url[len(BASE):]


def policy_of(side):
    return side.get("/policy").json()["policy"]


def test_a_link_decides_its_task_once_and_a_look_at_it_nothing(pod, linked, denied):
    other = f"other.{denied.name}"
    side, sent = linked(denied.name, other)
    accept, deny = (path(sent[denied.name][key]) for key in ("accept_url", "deny_url"))
    before = policy_of(side)
    # mail scanners and previews look, with and without a browser's head, and change nothing
    for link in (accept, deny):
        for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"User-Agent": "Mozilla/5.0", "Referer": "https://mail.example/"})):
            shown = side.call(method, link, token=None, headers=headers)
            assert shown.status == 200 and "script" not in shown.text, shown
        assert denied.name in shown.text and '<form method="post">' in shown.text
        assert shown.headers["content-security-policy"].startswith("default-src 'none'; form-action 'self'")
        assert (shown.headers["referrer-policy"], shown.headers["cache-control"]) == ("no-referrer", "no-store")
    for method in ("PUT", "DELETE", "PATCH"):
        assert side.call(method, accept, token=None).status == 405
    assert policy_of(side) == before and set(tasks(side)) == {denied.name, other}
    assert not pod.probe(["dns", denied.name]).addresses
    # what the page's form sends
    done = side.call("POST", accept, "for=10m", token=None, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert done.status == 200 and "Allowed" in done.text and "For 10m" in done.text, done
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    (rule,) = [r for r in policy_of(side)["egress"] if r["target"] == denied.name]
    assert rule["action"] == "allow" and "until" in rule
    task = side.get(f"/review/{sent[denied.name]['id']}").json()
    assert (task["state"], task["who"]) == ("accepted", "signed link")
    # it is over, the other verb too, and no token is no token
    after = policy_of(side)
    for link in (accept, deny):
        assert side.call("GET", link, token=None).status == 403 and side.call("POST", link, token=None).status == 403
    assert side.get("/policy", token=None).status == 401 and side.call("POST", f"/review/{sent[other]['id']}/accept", token=None).status == 401
    assert policy_of(side) == after
    # the other one is denied, by a program that sends nothing
    assert side.call("POST", path(sent[other]["deny_url"]), token=None).status == 200
    assert side.get(f"/review/{sent[other]['id']}").json()["state"] == "dismissed"
    assert side.call("POST", path(sent[other]["accept_url"]), token=None).status == 403 and policy_of(side) == after


def test_a_link_that_is_altered_or_over_decides_nothing(pod, linked, denied):
    other = f"other.{denied.name}"
    side, sent = linked(denied.name, other)
    accept = path(sent[denied.name]["accept_url"])
    number, verb, until, mac = accept[len("/answer/"):].split(".")
    before = policy_of(side)
    wrong = [f"{sent[other]['id']}.{verb}.{until}.{mac}", f"{number}.deny.{until}.{mac}", f"{number}.{verb}.{int(until) + 1}.{mac}",
             f"{number}.{verb}.1.{mac}", f"{number}.{verb}.{until}.{mac[::-1]}", f"{number}.{verb}.{until}.{'0' * 96}",
             f"{number}.{verb}.{until}.{mac[:-1]}", f"{number}.{verb}.{until}.{mac}0", f"{number}.{verb}.{until}", "", "7", "..." , "x" * 2000,
             f"999.{verb}.{until}.{mac}", f"{number}.Accept.{until}.{mac}"]
    for link in wrong:
        assert side.call("POST", f"/answer/{link}", token=None).status == 403, link
    assert side.call("POST", accept, '{"for": "soon"}', token=None).status == 400
    assert side.call("POST", accept, "for=1x", token=None).status == 400
    assert policy_of(side) == before and len(tasks(side)) == 2
    assert side.call("POST", accept, '{"for": "1h"}', token=None).status == 200


def test_guessing_links_keeps_nobody_from_deciding(pod, linked, denied):
    """However many are tried, from where the one comes who has a link: behind a proxy that is everybody's address."""
    side, sent = linked(denied.name)
    accept = path(sent[denied.name]["accept_url"])
    assert side.call("POST", accept, "for=" + "1" * 61, token=None).status == 413
    for link in (accept[:-64] + "0" * 64, accept[:-96] + "0" * 96, f"/answer/7.accept.1.{'0' * 96}", f"/answer/7.accept.4000000000.{'0' * 96}"):
        assert {side.call("GET", link, token=None).status for _ in range(12)} == {403}
    assert denied.name in tasks(side)
    assert side.call("POST", accept, token=None).status == 200


def test_a_used_link_is_no_guess(pod, linked, denied):
    """Who was sent it looks at it when another has decided, from one network with many others, who decide further tasks."""
    other = f"other.{denied.name}"
    side, sent = linked(denied.name, other)
    used = [path(sent[denied.name][key]) for key in ("accept_url", "deny_url")]
    assert side.call("POST", used[0], token=None).status == 200
    assert {side.call(method, link, token=None).status for method in ("GET", "POST") for link in used * 3} == {403}
    assert side.call("POST", path(sent[other]["accept_url"]), token=None).status == 200


def test_a_link_holds_over_a_restart_and_not_with_another_key(pod, linked, state, denied):
    other = f"other.{denied.name}"
    side, sent = linked(denied.name, other)
    assert (state / "review.key").stat().st_mode & 0o777 == 0o600
    assert side.stop() == 0
    side = linked.again()
    assert side.call("POST", path(sent[denied.name]["accept_url"]), token=None).status == 200
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    assert side.stop() == 0
    (state / "review.key").unlink()
    side = linked.again()
    assert side.call("POST", path(sent[other]["accept_url"]), token=None).status == 403 and other in tasks(side)


def test_two_who_decide_at_once(linked, denied):
    """One accepts, one denies, by links and by the token: one of them decides, and the record says what is in force."""
    names = [f"n{i}.{denied.name}" for i in range(6)]
    side, sent = linked(*names)
    for n, name in enumerate(names):
        ways = [lambda: side.call("POST", path(sent[name]["accept_url"]), token=None).status,
                lambda: side.call("POST", path(sent[name]["deny_url"]), token=None).status,
                lambda: side.call("POST", f"/review/{sent[name]['id']}/dismiss").status]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            accepted, denied_by_link, dismissed = pool.map(lambda way: way(), ways if n % 2 else ways[::-1])
        if n % 2 == 0:
            accepted, dismissed = dismissed, accepted
        state_now = side.get(f"/review/{sent[name]['id']}").json()["state"]
        is_open = any(r["target"] == name and r["action"] == "allow" for r in policy_of(side)["egress"])
        assert is_open == (state_now == "accepted") == (accepted == 200), (accepted, denied_by_link, dismissed, state_now)
        assert {accepted, denied_by_link} <= {200, 403} and dismissed in (200, 409)


@pytest.mark.parametrize("args, said", [
    (("--review-url", BASE), "--review-webhook is needed"),
    (("--review-url", BASE, "--review-webhook", "http://hook.test/"), "it has to be https://"),
    (("--review-url", "http://weir.example", "--review-webhook", "https://hook.test/"), "is not a URL: write https://"),
    (("--review-url", 'https://a"b', "--review-webhook", "https://hook.test/"), "is not a URL"),
    (("--review-url", BASE + "/", "--review-webhook", "https://hook.test/"), "no slash at the end")])
def test_a_link_is_sent_over_tls_or_not_at_all(pod, state, args, said):
    side = pod.sidecar("--state-dir", str(state), *args, ready=False)
    assert side.ended() == 2 and any(said in line for line in side.errors), side.errors


@pytest.mark.parametrize("harm", ["short", "read", "link"])
def test_a_key_that_others_know_or_that_is_none_ends_the_start(pod, hook, linked, state, harm):
    key = state / "review.key"
    key.write_bytes(b"x" * (31 if harm == "short" else 32))
    key.chmod(0o644 if harm == "read" else 0o600)
    if harm == "link":
        (state / "other.key").hardlink_to(key)
    side = pod.sidecar(*linked.args, ready=False)
    wait_for(lambda: any("review.key" in line for line in side.errors))
    assert not side.healthy()


def test_without_the_option_there_are_no_links(pod, guarded, hook, state, denied):
    side = guarded("allow other.test", args=("--state-dir", str(state), "--review-webhook", hook.url))
    pod.probe(["dns", denied.name])
    wait_for(lambda: told(hook))
    assert "accept_url" not in told(hook)[denied.name]
    assert side.call("GET", "/answer/1.accept.1." + "0" * 64, token=None).status == 404
    # and nothing that comes with it is kept or judged
    assert side.call("POST", "/answer/x", "x" * 4096, token=None).status == 404
