"""The picture of the dashboard in the documentation, over a simulated run.

`python -m tests.deploy.dashboard.picture docs/dashboard.png`
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from deploy.server.deciding import Deciders
from deploy.server.run import HttpListener
from tests.deploy.dashboard.browser import browser
from tests.deploy.dashboard.story import Shown, application, told


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
