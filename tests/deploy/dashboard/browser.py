"""Debian's Chromium, headless, with what it asked for and what it complained of."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.run import HttpListener
from tests.deploy.dashboard.story import Shown, application, told

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")
INSTALLED = CHROMIUM.exists() and DRIVER.exists()
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--no-first-run", "--hide-scrollbars", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)
PATIENCE_S = 60.0


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the page in CSS pixels, and which colours its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1.0, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, url: str) -> None:
        self.driver.get(url)

    def until_shown(self, selector: str) -> None:
        self.until("return document.querySelector(arguments[0]) !== null", selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        wait = WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.1)
        return wait.until(lambda _: self.run(script, *arguments), f"never true: {script}")

    def until_filled(self) -> None:
        self.until_shown("#money")

    def complaints(self) -> list[str]:
        """Lines of the console since the last call."""
        return [str(entry["message"]) for entry in self._log("browser")]

    def hosts_asked(self) -> set[str]:
        """Hosts (with ports) of all requests of the page since the last call."""
        found = set()
        for entry in self._log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme in ("http", "https", "ws", "wss"):
                    found.add(url.netloc)
        return found

    def _log(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return found

    def picture(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


# The picture of the dashboard in the documentation, over a simulated run.


def main(target: Path) -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = told(folder / "world")
        app = application(world, Shown(world), Deciders.load("multicloud", "round_cost"))
        with HttpListener(app, port=0) as service, browser(folder / "profile") as page:
            page.look(1280, 1000)
            page.open(f"http://127.0.0.1:{service.port}/")
            page.until_filled()
            page.picture(target)
            print(*page.complaints(), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
