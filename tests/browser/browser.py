"""Chromium without a window, asked by its DevTools protocol over two pipes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any


class Browser:
    """One page, opened from disk."""

    def __init__(self, page: Path, scratch: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The protocol is on descriptors 3 and 4; the shell puts ours there.
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={scratch}"]
        command = ["bash", "-c", f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}', "chromium"]
        self._browser = subprocess.Popen(
            [*command, *flags, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._last = 0
        self._session: str | None = None
        targets = self.ask("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("Page.navigate", url=page.as_uri())
        self.value("new Promise((r) => document.readyState === 'complete' ? r() : addEventListener('load', () => r()))")

    def ask(self, method: str, **parameters: Any) -> Any:
        """What the browser answers; what it tells besides is not looked at."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                read = os.read(self._in, 1 << 16)
                assert read, "Chromium has ended"
                self._rest += read
            line, self._rest = self._rest.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript; of a promise what it comes to."""
        answer = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._out)
        self._browser.terminate()
        self._browser.wait(timeout=20)
        os.close(self._in)
