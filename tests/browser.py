"""Headless Chromium for tests, driven by the DevTools protocol over a pipe: no package, no port.

`Browser(path)` is one page; `open`, `evaluate`, `screenshot` and `pdf` are all that tests ask of
it. What the page's console says, and what its policy refuses, is in `complaints`.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
TIMEOUT_S = 60.0


class Browser:
    """One page of a Chromium that ends with the block it is used in. Raises TimeoutError if it does
    not answer.
    """

    def __init__(self, home: Path) -> None:
        """`home` is a folder for its profile."""
        assert CHROMIUM
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()
        # The protocol's file descriptors are 3 and 4; bash puts ours there, whatever numbers they
        # have.
        flags = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
            " --remote-debugging-pipe --no-first-run"
        )
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" {flags} --user-data-dir="$1" about:blank 3<&{to_browser} 4>&{from_browser}',
             CHROMIUM, str(home)],
            pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._out, self._in, self._said, self._number = ours, theirs, b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._said:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("chromium does not answer")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise TimeoutError(f"chromium has ended with {self._process.wait(5)}")
            self._said += read
        message, self._said = self._said.split(b"\0", 1)
        return dict(json.loads(message))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            said["sessionId"] = self._session
        rest = json.dumps(said).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._out, rest) :]
        until = time.monotonic() + TIMEOUT_S
        while True:
            message = self._next(until)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])
            self.events.append(message)

    def open(
        self,
        page: Path,
        width: int = 1400,
        height: int = 900,
        dark: bool = False,
        media: str = "screen",
    ) -> None:
        """Load a file in a window of this size, and wait until it is there."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=scheme, media=media)
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.events.clear()
        self._ask("Page.navigate", url=page.resolve().as_uri())
        until = time.monotonic() + TIMEOUT_S
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(until))
        # That may have been the load of the blank page before.
        while not self.evaluate(
            "location.protocol === 'file:' && document.readyState === 'complete'"
        ):
            if time.monotonic() > until:
                raise TimeoutError(f"{page} is not loaded")
            time.sleep(0.05)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise. Raises RuntimeError if
        it throws.
        """
        result = self._ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """What the console and the browser's log have said since the page was opened."""
        self.evaluate("0")  # all before this has come
        wanted = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [
            json.dumps(event["params"])[:500]
            for event in self.events
            if event.get("method") in wanted
        ]

    def press(self, key: str, code: int) -> None:
        """Press and let go of a key, such as ("Enter", 13)."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._ask(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    def screenshot(self, to: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        shot = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, to: Path) -> None:
        """The page as it prints on A4."""
        self._ask(
            "Emulation.setEmulatedMedia", media="print"
        )  # else that of the screen, which `open` asked for, stays
        made = self._ask(
            "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False
        )
        to.write_bytes(base64.b64decode(made["data"]))
