# SPDX-License-Identifier: Apache-2.0
"""Chromium in a network namespace, told what to do by its DevTools protocol, over a pipe.

    with Browser(pod.ns, folder) as page:
        page.open("http://127.0.0.1:18080/ui/")
        page.wait("document.title === 'x'")         until the expression is true
        page.key("Tab"); page.type("text"); page.click("#id")
        page.picture("dark-360.png")

It looks no name up, so that nothing it does by itself is anybody's event. page.faults has each error of a script and
each breach of the page's content policy.
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

from .sidecar import wait_for

CHROMIUM = shutil.which("chromium")
_OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
            "--disable-default-apps", "--no-default-browser-check", "--mute-audio", "--hide-scrollbars",
            "--force-color-profile=srgb", "--remote-debugging-pipe",
            # the daemon, and a name that was pointed at this machine, as in DNS rebinding
            "--host-resolver-rules=MAP pointed.test 127.0.0.1, MAP weir.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
_WATCH = ("self.breaches = []; document.addEventListener('securitypolicyviolation', "
          "e => self.breaches.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));")


def _pipe():
    """Ends that are neither of the two numbers by which Chromium knows them."""
    ends = os.pipe()
    far = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends]
    for fd in ends:
        os.close(fd)
    return far


class Browser:
    def __init__(self, ns, folder, *options):
        self.faults, self._number, self._buffer, self._events = [], 0, b"", []
        (to_read, self._to), (self._from, to_write) = _pipe(), _pipe()
        script = f'exec "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
        argv = [CHROMIUM, *_OPTIONS, *options, f"--user-data-dir={folder}/profile", "about:blank"]
        self.log = open(pathlib.Path(folder) / "chromium.log", "wb")
        self.process = subprocess.Popen(ns.command("bash", "-c", script, "bash", *argv), pass_fds=(to_read, to_write),
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8"})
        os.close(to_read)
        os.close(to_write)
        self._session = None
        target = wait_for(lambda: next((t for t in self.call("Target.getTargets")["targetInfos"]
                                        if t["type"] == "page"), None), 30)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        for fd in (self._to, self._from):
            os.close(fd)
        self.log.close()

    # the protocol

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(60)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _read(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            if left < 0 or not select.select([self._from], [], [], left)[0]:
                raise AssertionError(f"chromium says nothing: {pathlib.Path(self.log.name).read_text()[-2000:]}")
            part = os.read(self._from, 1 << 20)
            assert part, f"chromium has ended: {pathlib.Path(self.log.name).read_text()[-2000:]}"
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(params["exceptionDetails"])[:1000])
        elif method == "Log.entryAdded" and params["entry"]["source"] in ("security", "javascript", "violation"):
            self.faults.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.faults.append(f"dialog: {params['message']}")

    # the page

    def js(self, expression):
        """Its value, as JSON; a promise's when it is kept."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, (expression, got["exceptionDetails"])
        return got["result"].get("value")

    def _js_unless_it_goes(self, expression):
        """None: the page went, and another one came, before it answered."""
        try:
            return self.js(expression)
        except AssertionError as e:
            if "navigated or closed" not in str(e):
                raise
            return None

    def wait(self, expression, seconds=60):
        """What the expression gives as soon as that is true."""
        end = time.monotonic() + seconds
        while not (found := self._js_unless_it_goes(expression)):
            assert time.monotonic() < end, f"not within {seconds} s: {expression}\n{self.text()}"
            time.sleep(0.05)
        return found

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url.split('#')[0])}) && document.readyState === 'complete'")

    def text(self):
        return self.js("document.body.innerText")

    def key(self, key):
        code = _KEYS[key]
        more = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def tab_to(self, expression, most=80):
        """Tab until the expression is true of `e`, the element that has the focus."""
        for _ in range(most):
            self.key("Tab")
            if self.js(f"(e => {expression})(document.activeElement)"):
                return
        raise AssertionError(f"no Tab leads to {expression}\n{self.text()}")

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def look(self, width, height, scheme):
        """The window's size, and "light" or "dark"."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        kind = {"format": "webp", "quality": 70} if str(path).endswith(".webp") else {}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=False, **kind)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def names(self, *roles):
        """(role, accessible name) of what is shown and has one of these roles."""
        for node in self.call("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value")
            if role in roles and not node.get("ignored"):
                yield role, node.get("name", {}).get("value", "")

    def all_faults(self):
        return self.faults + self.js("self.breaches")
