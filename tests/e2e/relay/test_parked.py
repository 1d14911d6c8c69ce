# SPDX-License-Identifier: Apache-2.0
"""Connections that wait for a grant, under clients that do as they like: they give up, close one side, say nothing, come in
floods, while the policy changes under them and the engine is killed. WEIR_PARKED_STEPS and WEIR_SEED choose how many steps and
which."""
import json
import os
import random

from world.sidecar import policy, wait_for

STEPS = int(os.environ.get("WEIR_PARKED_STEPS", 40))
SEED = int(os.environ.get("WEIR_SEED", 19))
PARKED = 6
GET = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
# A line of JSON in: what to do with which connection. Out: what came of it.
CLIENT = r"""
import json, socket, struct, sys
held = {}
def do(what, key, name=None, text=None):
    if what in ("ask", "mute", "half"):
        held[key] = socket.create_connection((name, 80), 30)
        if what != "mute":
            held[key].sendall(text.encode())
        if what == "half":
            held[key].shutdown(socket.SHUT_WR)
        return "open"
    s = held.pop(key)
    if what == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if what in ("reset", "close"):
        s.close()
        return "gone"
    s.settimeout(0.05 if what == "look" else 30)
    try:
        data = s.recv(4096).decode()
    except TimeoutError:
        held[key] = s
        return "waits"
    return data.split("\r\n")[0] or "end"
for line in sys.stdin:
    try:
        print(do(*json.loads(line)), flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
"""


class Client:
    def __init__(self, pod):
        self._started = pod.start("/usr/bin/python3", "-c", CLIENT)
        self.keys = []

    def do(self, what, key, *more):
        self._started.say(json.dumps([what, key, *more]) + "\n")
        said = self._started.line()
        assert said, self._started.wait()
        return said

    def open(self, what, name):
        key = f"{len(self.keys)}"
        said = self.do(what, key, name, GET.format(name))
        if said == "open":
            self.keys.append(key)
        else:  # the engine is away
            self.keys.append(None)
        return key

    def random(self, chance, names):
        held = [k for k in self.keys if k]
        what = chance.choice(["ask", "ask", "ask", "half", "mute", "close", "reset"])
        if what in ("close", "reset"):
            if held:
                key = chance.choice(held)
                self.keys[int(key)] = None
                self.do(what, key)
        else:
            self.open(what, chance.choice(names))

    def ends(self):
        return [self.do("read", k) for k in self.keys if k]


def document(state):
    return policy(*(f"{action} {name}" for name, action in state.items()), limits={"parked": PARKED})


def test_whatever_clients_do_what_waits_ends_and_nothing_leaves_before(world, pod):
    chance = random.Random(SEED)
    never, sites = [world.site(f"never{world.number()}.test") for _ in range(2)], [world.site(f"site{world.number()}.test") for _ in range(3)]
    state = {s.name: "ask" for s in (*never, *sites)}
    side = pod.sidecar(rules=document(state), mode="dns+nft+tls")
    client = Client(pod)
    for step in range(STEPS):
        if step == STEPS // 2:
            old = side.kill_child("engine")
            side.wait_replaced("engine", old)
            wait_for(side.healthy)
        if chance.random() < 0.2:
            state[chance.choice(sites).name] = chance.choice(["allow", "ask", "deny"])
            assert side.call("PUT", "/policy", document(state)).status == 200
        client.random(chance, [*state])
    # one that is granted for sure
    state[sites[0].name] = "ask"
    assert side.call("PUT", "/policy", document({sites[0].name: "deny", never[0].name: "ask"})).status == 200
    assert side.call("PUT", "/policy", document({sites[0].name: "ask", never[0].name: "ask"})).status == 200
    key = client.open("ask", sites[0].name)
    assert client.do("look", key) == "waits"
    assert side.call("PUT", "/policy", document({sites[0].name: "allow", never[0].name: "ask"})).status == 200
    assert client.do("read", key) == "HTTP/1.1 200 OK"
    client.keys[int(key)] = None
    # and then nothing: all that waits ends
    assert side.call("PUT", "/policy", document({name: "deny" for name in state})).status == 200
    ended = client.ends()
    assert "waits" not in ended, ended
    for site in never:
        assert pod.queries(site.name) == 0 and not pod.packets(dst=site.v4) and not pod.packets(dst=site.v6), site.name
    # no place is lost
    assert side.call("PUT", "/policy", document({never[0].name: "ask"})).status == 200
    keys = [client.open("ask", never[0].name) for _ in range(PARKED + 1)]
    said = [client.do("look", k) for k in keys[:-1]]
    assert said == ["waits"] * PARKED, said
    assert client.do("read", keys[-1]) == "HTTP/1.1 403 Forbidden"
    assert pod.queries(never[0].name) == 0


def test_a_client_that_gives_up_and_tries_again_keeps_one_place(world, pod):
    site, other = (world.site(f"site{world.number()}.test") for _ in range(2))
    side = pod.sidecar(rules=document({site.name: "ask", other.name: "ask"}), mode="dns+nft+tls")
    client = Client(pod)
    half = client.open("half", other.name)
    for end in ("close", "reset"):
        for _ in range(2 * PARKED):
            assert client.do(end, client.open("ask", site.name)) == "gone"
    # one side that is closed is no end: it waits on
    held = [half, *(client.open(what, site.name) for what in ("ask", "mute", "ask"))]
    assert [client.do("look", k) for k in held] == ["waits"] * 4
    assert pod.queries(site.name) == pod.queries(other.name) == 0 and not pod.packets(), pod.packets()
    assert side.call("PUT", "/policy", document({site.name: "allow", other.name: "allow"})).status == 200
    assert [client.do("read", k) for k in (half, held[1], held[3])] == ["HTTP/1.1 200 OK"] * 3


def test_the_engine_ends_and_what_waits_is_refused(world, pod):
    site = world.site(f"site{world.number()}.test")
    side = pod.sidecar(rules=document({site.name: "ask"}), mode="dns+nft+tls")
    client = Client(pod)
    keys = [client.open(what, site.name) for what in ("ask", "half", "mute")]
    assert [client.do("look", k) for k in keys] == ["waits"] * 3
    old = side.kill_child("engine")
    assert set(client.do("read", k) for k in keys) <= {"ConnectionResetError", "end"}
    side.wait_replaced("engine", old)
    assert pod.queries(site.name) == 0 and not pod.packets()
    wait_for(lambda: client.do("look", client.open("ask", site.name)) == "waits")
