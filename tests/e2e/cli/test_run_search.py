# SPDX-License-Identifier: Apache-2.0
"""`--allow intranet`: a name without a dot stands for what the search domains of the host's resolv.conf make of it."""
import json

import pytest

from world.world import RESOLVER4

SEARCH = "first.example second.example"


@pytest.fixture
def host(world, site):
    """A name below the second domain, and a resolv.conf that has both."""
    word = f"intranet{world.number()}"
    world.dns.add(f"{word}.second.example", site.v4, site.v6)
    resolv_conf = world.workdir() / "resolv.conf"
    resolv_conf.write_text(f"domain other.example\nnameserver {RESOLVER4}\nsearch\tfirst.example \tsecond.example  \n")
    return word, resolv_conf


def test_a_name_without_a_dot_is_reached_as_on_the_host(world, host, user):
    word, resolv_conf = host
    with world.capture() as capture:
        done = world.run("sh", "-c", f"curl -sSf http://{word}/x; echo; getent hosts nosuch.{word}; cat /etc/resolv.conf; "
                         "curl -sS http://other/; true",
                         allow=(word,), user=user, upstream=None, resolv_conf=resolv_conf)
        assert json.loads(done.text.splitlines()[0])["host"] == word, done
        assert f"search {SEARCH}\n" in done.text and "Could not resolve host: other" in done.messages, done
        assert {p.dport for p in capture.packets()} == {53, 80}
    asked = {q.name.lower() for q in world.dns.queries()}
    assert f"{word}.first.example" in asked and not any(q.startswith(("other.", "nosuch.")) for q in asked), asked


def test_nobody_else_below_the_domain_is_reached(world, host, site):
    """A server is shown the name that was asked for; another one without a dot is none of it."""
    word, resolv_conf = host
    shown = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} ", f"http://{word}/", "-H"]
    argv = " ; ".join(" ".join(w if "%" not in w else f"'{w}'" for w in shown) + f" 'Host: {name}'"
                      for name in (word, f"{word}.second.example", f"{word}2", "second.example", "intra"))
    done = world.run("sh", "-c", argv, allow=(word,), upstream=None, resolv_conf=resolv_conf)
    assert done.text.split() == ["200", "200", "403", "403", "403"], done


def test_without_such_a_rule_there_is_no_search_list(world, host, site):
    word, resolv_conf = host
    done = world.run("cat", "/etc/resolv.conf", allow=(site.name,), upstream=None, resolv_conf=resolv_conf)
    assert "search" not in done.text, done


def test_explain_and_show_say_what_the_name_comes_to(world, host):
    word, resolv_conf = host

    def policy(verb, *args):
        done = world.weir("policy", verb, *args, resolv_conf=resolv_conf)
        assert done.code == 0, done
        return done.text
    shown = policy("show", "--allow", word, "--deny", "metrics", "--allow", f"{word}.first.example:22")
    assert f"{word}.second.example" in shown and "by the search domain second.example" in shown and "metrics.first.example" in shown, shown
    assert shown.count(f'"{word}.first.example"') == 1, shown
    assert "search domain" in policy("explain", "--allow", word, f"{word}.first.example")
    assert "search domains" in policy("explain", "--allow", word, word)
