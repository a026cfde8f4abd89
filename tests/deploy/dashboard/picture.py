"""Pictures of the dashboard over a simulated run.

The one in the documentation: `python -m tests.deploy.dashboard.picture docs/dashboard.png`. With a folder
instead of a file: desktop and phone, light and dark.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from deploy.server.deciding import Deciders
from deploy.server.run import HttpListener
from tests.deploy.dashboard.browser import Browser, browser
from tests.deploy.dashboard.story import Shown, application, told

LOOKS = {
    "desktop-light": (1280, 900, "light", 1.0),
    "desktop-dark": (1280, 900, "dark", 1.0),
    "phone-light": (375, 812, "light", 2.0),
    "phone-dark": (375, 812, "dark", 2.0),
}


def take(page: Browser, url: str, path: Path, look: str) -> None:
    width, height, scheme, scale = LOOKS[look]
    page.look(width, height, scheme, scale)
    page.open(url)
    page.until_filled()
    page.picture(path, whole=True)


def main(target: Path) -> None:
    """Take them."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = told(folder / "world")
        app = application(world, Shown(world), Deciders.load("multicloud", "round_cost"))
        service = HttpListener(app, port=0)
        service.start()
        url = f"http://127.0.0.1:{service.port}/"
        with browser(folder / "profile") as page:
            if target.suffix == ".png":
                width, _, scheme, scale = LOOKS["desktop-light"]
                page.look(width, 1000, scheme, scale)
                page.open(url)
                page.until_filled()
                page.picture(target)
            else:
                target.mkdir(parents=True, exist_ok=True)
                for look in LOOKS:
                    take(page, url, target / f"{look}.png", look)
                page.look(*LOOKS["desktop-light"])
                page.open(f"{url}#job=nightly-report-3a21")
                page.until("return document.querySelector('#explain-body dl') !== null")
                page.picture(target / "explain.png")
            print(*page.complaints(), sep="\n")
        service.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
