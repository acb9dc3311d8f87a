"""The page of a service in a browser: its numbers are shown, on a phone too, without an error."""

import contextlib
import json
import os
import shutil
import subprocess
import time

import pytest
from services import serving

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.program,
    pytest.mark.skipif(CHROMIUM is None, reason="apt-get install chromium"),
]


class Browser:
    """A page in headless Chromium, driven by its protocol for developers."""

    def __init__(self, folder):
        (read, asks), (answers, write) = os.pipe(), os.pipe()
        command = f'exec "$@" 3<&{read} 4>&{write}'
        words = "--headless --no-sandbox --disable-gpu --remote-debugging-pipe about:blank".split()
        words += [
            f"--user-data-dir={folder}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", CHROMIUM, *words],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read), os.close(write)
        self.asks, self.answers = os.fdopen(asks, "wb", 0), os.fdopen(answers, "rb")
        self.number, self.session, self.events = 0, {}, []
        target = next(
            one for one in self("Target.getTargets")["targetInfos"] if one["type"] == "page"
        )
        found = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = {"sessionId": found["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **self.session}
        self.asks.write(json.dumps(message).encode() + b"\0")
        while True:
            found, byte = b"", b""
            while (byte := self.answers.read(1)) != b"\0":
                assert byte, "the browser is gone"
                found += byte
            answer = json.loads(found)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        return self("Runtime.evaluate", expression=expression)["result"].get("value")

    def until(self, expression, seconds=20):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < end, self.value("document.body.innerText")
            time.sleep(0.1)

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self("Browser.close")
        self.process.wait(20)
        self.asks.close(), self.answers.close()


@pytest.fixture
def browser(tmp_path):
    with contextlib.closing(Browser(tmp_path / "browser")) as one:
        yield one


def test_the_page_shows_the_numbers_of_a_service_and_refreshes_itself(browser, tmp_path):
    env = os.environ | {"FORETRACE_TOKEN": "secret"}
    with serving(tmp_path / "run", "--log-every", 100, env=env) as service:
        service.client.headers["Authorization"] = "Bearer secret"
        rows = [{"a": i % 7, "c": "v", "who": f"m{i % 3}", "y": 0.5 * (i % 7)} for i in range(450)]
        rows[430]["a"] = 1e9
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        assert service.client.post("/rows", content=lines).text.count("\n") == 450
        address = str(service.client.base_url)
        for width, scheme in ((400, "dark"), (1200, "light")):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            browser("Emulation.setDeviceMetricsOverride", **size)
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser("Emulation.setEmulatedMedia", features=features)
            browser("Page.navigate", url=f"{address}/?{width}#token=secret")
            browser.until("document.querySelectorAll('path').length == 2")
            shown = browser.value("document.body.innerText")
            for words in ("run predicts y", "450\nrows and labels", "mean absolute error", "p99"):
                assert words in shown
            assert "the worst" in shown and "up to row 450" not in shown
            assert browser.value("document.documentElement.scrollWidth") <= width
            dark = browser.value("matchMedia('(prefers-color-scheme: dark)').matches")
            assert dark == (scheme == "dark")
        service.predict("w1", a=1)
        browser.until("document.body.innerText.includes('451\\nrows and labels')")
        assert "1\nrows that wait" in browser.value("document.body.innerText")
        asked = [one for one in browser.events if one.get("method") == "Network.requestWillBeSent"]
        urls = [one["params"]["request"]["url"] for one in asked]
        assert len(urls) > 4 and all(url.startswith(address) for url in urls if "data:" not in url)
        bad = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        assert [event for event in browser.events if event.get("method") in bad] == []
        browser("Page.navigate", url=f"{address}/?again")
        browser.until("document.body.innerText.includes('add #token')")
