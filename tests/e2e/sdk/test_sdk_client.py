# SPDX-License-Identifier: Apache-2.0
"""weir.Client asks a real sidecar, a real daemon over its socket and over TLS, and a run; answers hold to the schemas."""
import asyncio
import socket

import jsonschema
import pytest
import yaml

import weir
from test_cli_tls import TOKEN as TLS_TOKEN, files, secure  # noqa: F401: fixtures
from weir import aio
from world.apid import TOKEN
from world.openapi import LOADER, OPENAPI
from world.sidecar import wait_for

RULE = weir.EgressRule(action="allow", target="a.test", ports=[443])


def holds(value, name):
    jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": OPENAPI["components"]}).validate(value)
    return value


def test_policies_of_a_sidecar_are_read_patched_and_replaced(api):
    client = weir.Client(api.url, token=TOKEN)
    assert client.health() == "ok" and client.is_healthy()
    holds(client.set_policy(weir.NetworkPolicy(egress=[RULE])), "Change")
    assert client.policy().egress == [RULE] and client.policy().defaultAction == "deny"
    holds(client.patch_policy([weir.EgressRule("deny", "b.test"), {"action": "allow", "target": "c.test"}]), "Change")
    assert [rule.target for rule in client.policy().egress] == ["b.test", "c.test", "a.test"]
    client.delete_rules(["b.test", "a.test"])
    assert [rule.target for rule in client.policy().egress] == ["c.test"]
    client.replace_policy(None)
    assert holds(client.get_policy(), "PolicyStatus")["mode"] == "deny_all"
    with pytest.raises(weir.ApiError, match="unsupported action") as caught:
        client.set_policy({"egress": [{"action": "perhaps", "target": "a.test"}]})
    assert caught.value.http_status == 400 and client.get_policy()["mode"] == "deny_all"


def test_what_a_sidecar_says_is_what_the_schemas_say(api):
    client = weir.Client(api.url, token=TOKEN)
    with client.events() as stream:
        api.event("evil.test")
        event = next(stream)
    assert (event.action, event.data["name"]) == ("deny", "evil.test")
    holds(event.data, "Event")
    assert holds(client.denies(name="evil.test", limit=1, since="1h"), "Denies")["denies"][0]["name"] == "evil.test"
    assert client.denies(name="*.evil.test")["denies"] == []
    assert holds(client.count_denies("10m"), "DeniesCount")["packets"] == 1
    assert holds(client.status(), "Status")["version"] == weir.__version__
    assert "weir_" in client.metrics() and yaml.load(client.openapi(), LOADER) == OPENAPI
    api.event("more.test")
    with client.events(last_event_id=event.id) as stream:
        assert next(stream).data["name"] == "more.test"


def test_who_may_not_or_cannot_ask_is_told(api):
    for token in (None, "wrong"):
        with pytest.raises(weir.ApiError) as caught:
            weir.Client(api.url, token=token).status()
        assert caught.value.http_status == 401
    with pytest.raises(weir.ApiError) as caught:
        weir.Client("/nowhere/weir.sock").status()
    assert caught.value.http_status == 0 and not weir.Client("/nowhere/weir.sock").is_healthy()


def test_a_socket_that_is_away_says_what_to_start(tmp_path):
    with pytest.raises(weir.ApiError, match=r"/none: .*; is `weir daemon` running\?$"):
        weir.Client(f"{tmp_path}/none").status()
    with socket.socket() as refuses:
        refuses.bind(("127.0.0.1", 0))
        with pytest.raises(weir.ApiError) as caught:
            weir.Client(f"http://127.0.0.1:{refuses.getsockname()[1]}").status()
    assert "weir daemon" not in str(caught.value)


def test_the_same_with_await(api):
    async def main():
        client = aio.Client(api.url, token=TOKEN)
        await client.set_policy(weir.NetworkPolicy(egress=[RULE]))
        assert (await client.policy()).egress == [RULE] and await client.health() == "ok"
        stream = client.events()
        waiting = asyncio.ensure_future(stream.__anext__())
        while not waiting.done():  # whenever it has connected
            api.event("evil.test")
            await asyncio.sleep(0.05)
        assert (await waiting).data["name"] == "evil.test"
        await stream.aclose()
        with pytest.raises(AttributeError):
            client.nothing  # pylint: disable=pointless-statement
    asyncio.run(main())


def life(client, pod, site, denied):
    """A sandbox from its attach to its end."""
    made = client.attach("one", netns=pod.ns.path, policy=weir.NetworkPolicy(egress=[weir.EgressRule("allow", site.name)]))
    assert holds(made, "Sandbox")["id"] == "one" and client.sandboxes() == [made] == [client.get_sandbox("one")]
    box = client.sandbox("one")
    assert box.health() == "ok" and [rule.target for rule in box.policy().egress] == [site.name]
    with box.events() as stream:
        assert [answer.result for answer in pod.probe(["dns", denied.name], ["dns", site.name])] != []
        assert next(event for event in stream if event.action == "deny").data["name"] == denied.name
    assert holds(box.denies(), "Denies")["denies"][0]["name"] == denied.name
    assert holds(box.status(), "Status")["sandboxId"] == "one"
    wait_for(lambda: box.count_denies()["events"] == 1)  # the store is a second behind
    box.patch_policy([weir.EgressRule("allow", denied.name)])
    wait_for(lambda: box.reviews()["tasks"])
    assert [task["destination"] for task in holds(box.reviews(), "ReviewTasks")["tasks"]] == [denied.name]
    task = box.reviews()["tasks"][0]["id"]
    assert holds(box.review(task), "ReviewTask")["diff"] is not None
    with pytest.raises(weir.ApiError) as caught:  # it was about another one when it was shown
        box.accept_review(task, lasts="10m", rule={"action": "allow", "target": "shown.test"})
    assert caught.value.http_status == 409 and [t["id"] for t in box.reviews()["tasks"]] == [task]
    assert holds(box.dismiss_review(task, who="me"), "ReviewTask")["who"] == "me"
    assert client.reviews(state="open")["tasks"] == []
    assert client.detach("one") == {"status": "ok"} and client.sandboxes() == []
    with pytest.raises(weir.ApiError) as caught:
        box.policy()
    assert caught.value.http_status == 404


def test_a_sandbox_of_a_daemon_over_its_socket(host, pod, site, denied):
    daemon = host.daemon("--state-dir", host.folder / "state")
    life(weir.Client(str(daemon.socket)), pod, site, denied)


def test_a_daemon_over_tls_is_believed_by_its_certificate_alone(sdk, host, secure, pod):  # noqa: F811
    """On the daemon's host, by a program there."""
    code = f"""
client = weir.Client("https://weir.test:9443", token={TLS_TOKEN!r}, cafile={str(host.folder / 'one.crt')!r})
say(client.attach("one", netns={pod.ns.path!r})["id"], client.sandbox("one").get_policy()["mode"])
for token, cafile in ((None, {str(host.folder / 'one.crt')!r}), ({TLS_TOKEN!r}, None)):
    try:
        say(weir.Client("https://weir.test:9443", token=token, cafile=cafile).sandboxes())
    except weir.ApiError as error:
        say(error.http_status)
"""
    hosts = host.folder / "hosts"
    hosts.write_text("127.0.0.1 weir.test\n")
    argv = host.ns.command("unshare", "--mount", "sh", "-c", f"mount --bind {hosts} /etc/hosts; exec \"$@\"", "sh", *sdk.argv(code))
    done = sdk.world.command("env", *[f"{k}={v}" for k, v in sdk.environment().items()], *argv)
    assert done.text.splitlines() == ['["one", "deny_all"]', "[401]", "[0]"], done
