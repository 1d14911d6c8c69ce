# SPDX-License-Identifier: Apache-2.0
"""F: what programs are told about proxies and addresses changes nothing."""
import pytest

CURL = ("curl", "-sS", "-o", "/dev/null", "--max-time", "50", "-w", "%{http_code}")


@pytest.mark.parametrize("what, words, environment", [
    ("NO_PROXY", (), {"NO_PROXY": "*", "no_proxy": "*"}),
    ("--noproxy", ("--noproxy", "*"), {}),
    ("no proxy at all", (), {"http_proxy": "", "https_proxy": "", "ALL_PROXY": ""}),
    ("a proxy outside", (), {"https_proxy": "http://93.9.9.9:8080"}),
    ("--connect-to an address", ("--connect-to", "evil.test:443:93.9.9.9:443"), {}),
    ("--resolve", ("--resolve", "evil.test:443:93.9.9.9"), {}),
    ("--doh-url", ("--doh-url", "https://dns.google/dns-query"), {}),
    ("--interface", ("--interface", "lo"), {}),
    ("--ipv6", ("-6",), {}),
    ("--tcp-fastopen", ("--tcp-fastopen", "--resolve", "evil.test:443:93.9.9.9"), {}),
])
def test_F1_no_setting_of_a_client_opens_a_denied_name(attack, user, what, words, environment):
    done = attack.run(*CURL, *words, "https://evil.test/", user=user, env=environment)
    assert done.code != 0 and "200" not in done.text, done
    assert done.code != 28, done
    attack.assert_silent()


def test_F1_an_allowed_name_dialled_at_another_address_goes_nowhere(attack):
    done = attack.run(*CURL, "--resolve", "api.ok.test:443:93.9.9.9", "https://api.ok.test/")
    assert done.code == 7, done
    attack.assert_silent()


def test_F1_an_allowed_name_needs_no_setting(attack, user):
    done = attack.run(*CURL, "https://api.ok.test/", user=user)
    assert done.code == 0 and done.text == "200", done
