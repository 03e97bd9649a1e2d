"""Chromium without a window, driven by Selenium: for the tests of the MLflow pages, and for the pictures of them in the README."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from sentdist.tracking.mlflow_login import LOGIN, SETTINGS

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

Answer = TypeVar("Answer")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_GET_ONE = "no Chromium with its driver was found. Debian: apt-get install --no-install-recommends chromium chromium-driver"
PATIENCE_S = 90.0  # of a machine that is busy with other things; a page that is whole is not waited for
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


def found() -> tuple[str, str] | None:
    """Paths of a browser and its driver; None where one of them is missing."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """A browser on one MLflow server, with an empty profile."""

    def __init__(self, uri: str, chrome: Chrome) -> None:
        self.uri = uri.rstrip("/")
        self.chrome = chrome

    def visit(self, page: str) -> None:
        """Load a page again: `page` is what follows the server's address, such as `#/experiments`."""
        self.chrome.get("about:blank")  # another fragment of the same address would load nothing
        self.chrome.get(f"{self.uri}/{page}")

    @property
    def text(self) -> str:
        """What can be read on the page; spaces that do not break are spaces."""
        return str(self.chrome.execute_script("return document.body ? document.body.innerText : ''")).replace("\N{NO-BREAK SPACE}", " ")

    def wait_for_text(self, *parts: str, seconds: float = PATIENCE_S) -> str:
        """The page's text once it has all parts; `TimeoutError` says which it lacks."""

        def whole() -> str | Literal[False]:
            text = self.text
            return all(part in text for part in parts) and text

        return self.wait_for(whole, what=lambda: f"{[part for part in parts if part not in self.text]} on {self.address}", seconds=seconds)

    def wait_for(self, condition: Callable[[], Answer | Literal[False]], *, what: Callable[[], str], seconds: float = PATIENCE_S) -> Answer:
        """Ask again until the answer is true, which is returned."""
        from selenium.common.exceptions import TimeoutException, WebDriverException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.chrome, seconds, poll_frequency=0.2, ignored_exceptions=[WebDriverException])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            raise TimeoutError(f"within {seconds:.0f} s there was no {what()}\n\n{self.text[:3000]}") from None

    @property
    def address(self) -> str:
        return str(self.chrome.current_url)

    def count(self, selector: str) -> int:
        return int(self.chrome.execute_script("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, text: str, *, within: str = "a, button") -> None:
        """Click the first element of these with that text; a link that would open a tab of its own is followed in this one."""
        script = """const one = [...document.querySelectorAll(arguments[0])].find(one => one.innerText.trim() === arguments[1])
            if (one && one.target !== '_blank') one.click()
            return one ? (one.target === '_blank' ? one.href : 'clicked') : ''"""
        found = self.wait_for(lambda: self.chrome.execute_script(script, within, text), what=lambda: f"{text!r} to click on {self.address}")
        if found != "clicked":
            self.chrome.get("about:blank")
            self.chrome.get(found)

    def settle(self, *, seconds: float = PATIENCE_S) -> None:
        """Wait until the page looks the same twice, half a second apart: charts are drawn in steps."""
        deadline = time.monotonic() + seconds
        before = b""
        while (now := self.chrome.get_screenshot_as_png()) != before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.address} did not come to rest within {seconds:.0f} s")
            before = now
            time.sleep(0.5)


def log_in(chrome: Chrome, uri: str) -> None:
    """Open the link of a server that wants a password (`.sentdist/env` has it), once; the browser shows it from then on."""
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        parts = urlsplit(uri)
        chrome.get(parts._replace(netloc=f"{user}:{password}@{parts.netloc}", path=LOGIN).geturl())


@contextmanager
def open_browser(uri: str, *, width: int = 1500, height: int = 1000) -> Iterator[Browser]:
    """A browser for the server at `uri`; ended, and its profile removed, on leaving."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    paths = found()
    if paths is None:
        raise FileNotFoundError(HOW_TO_GET_ONE)
    with tempfile.TemporaryDirectory(prefix="sentdist-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = paths[0]
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        chrome = Chrome(options=options, service=ChromeService(paths[1]))
        try:
            chrome.set_page_load_timeout(PATIENCE_S)  # Selenium's own are 300 s for a page, 30 s for a script
            chrome.set_script_timeout(PATIENCE_S)
            log_in(chrome, uri)
            chrome.get(f"{uri.rstrip('/')}/health")  # a server of a test has no login
            for name, value in SETTINGS.items():
                chrome.execute_script("localStorage.setItem(arguments[0], arguments[1])", name, value)
            yield Browser(uri, chrome)
        finally:
            chrome.quit()
