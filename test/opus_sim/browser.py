"""A real browser without a window, by its debugging pipe: what a page asks for, what goes wrong in it, what it shows.

Standard library only. Nothing of the browser's profile is kept.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def program():
    """The path of a browser, or None."""
    asked = os.environ.get("OPUS_TEST_BROWSER")
    return asked or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, path: str):
        self.profile = tempfile.TemporaryDirectory()
        here_reads, browser_writes = os.pipe()
        browser_reads, here_writes = os.pipe()
        # As root a browser has no sandbox of its own.
        arguments = [path, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
                     "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{browser_reads} 4>&{browser_writes}', "browser", *arguments, "about:blank"],
            pass_fds=(browser_reads, browser_writes), env=os.environ | {"TMPDIR": self.profile.name}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(browser_reads)
        os.close(browser_writes)
        self.reads, self.writes = here_reads, here_writes
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        self.call("Browser.close")
        self.process.wait(60)
        os.close(self.reads)
        os.close(self.writes)
        for _ in range(50):  # what it leaves behind may end a little later
            try:
                return self.profile.cleanup()
            except OSError:
                time.sleep(0.1)
        self.profile.cleanup()

    def receive(self, deadline: float) -> dict:
        while b"\0" not in self.buffer:
            if not select.select([self.reads], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.reads, 1 << 20)
            if not more:
                raise EOFError(f"the browser has ended with {self.process.wait(20)}")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, **parameters) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 120
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url: str) -> None:
        """Until the page is loaded; then its events are in `events`."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 120
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive(deadline))

    def requests(self) -> list:
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list:
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [e["params"] for e in self.events if e.get("method") in wrong]

    def evaluate(self, expression: str):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def window(self, width: int, height: int, scale: float = 1) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
