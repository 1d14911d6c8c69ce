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


def test_a_deny_that_is_written_holds_against_a_search_domain(world, host):
    """Whoever writes the host's search list opens nothing that the policy closes."""
    word, resolv_conf = host
    files = world.workdir()
    (files / "policy.yaml").write_text(f"egress: [{{action: allow, target: {word}}}, {{action: deny, target: '*.second.example'}}]\n")
    done = world.run("getent", "hosts", f"{word}.second.example", options=("--policy", files / "policy.yaml"), upstream=None,
                     resolv_conf=resolv_conf)
    assert done.code != 0 and done.out == b"", done
    assert world.run("getent", "hosts", word, allow=(word,), upstream=None, resolv_conf=resolv_conf).code == 0
    shown = world.weir("policy", "show", "--policy", str(files / "policy.yaml"), resolv_conf=resolv_conf).text
    assert f'"{word}.first.example"' in shown and f'"{word}.second.example"' not in shown, shown


@pytest.mark.parametrize("other", ["*.second.example", "{word}.second.example"])
def test_a_name_that_another_rule_has_is_reached_without_its_dot_too(world, host, other):
    word, resolv_conf = host
    resolv_conf.write_text(f"nameserver {RESOLVER4}\nsearch second.example\n")
    done = world.run("curl", "-sSf", f"http://{word}/x", allow=(other.format(word=word), word), upstream=None, resolv_conf=resolv_conf)
    assert done.code == 0 and json.loads(done.text)["host"] == word and "never reached" not in done.messages, done


def test_the_dot_at_the_end_and_other_letters_are_completed(world, host):
    _, resolv_conf = host
    shown = world.weir("policy", "show", "--allow", "bü", "--allow", "intranet.", resolv_conf=resolv_conf).text
    assert "intranet.first.example" in shown and "xn--b-eha.first.example" in shown, shown
