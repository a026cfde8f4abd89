"""A running driver, as its own monitoring endpoint describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

ATTEMPT_CONF = "spark.spotweave.attempt"
"""In every application's conf: which attempt it is."""
_TIMEOUT_S = 2.0
_PORT_RETRIES = 16
"""Spark takes one of so many next ports where its own is taken (spark.port.maxRetries)."""


@dataclass(frozen=True)
class Application:
    """What a driver says of itself.

    Attributes:
        url: its web pages.
        app_id: of Spark.
        executors: addresses of those that it has now.
        tasks_done: of all jobs that it knows.
        tasks: of all jobs that it knows; a script may add jobs at any time.
        failed_tasks: that were tried again.
    """

    url: str
    app_id: str
    executors: tuple[str, ...]
    tasks_done: int
    tasks: int
    failed_tasks: int

    @property
    def progress(self) -> float:
        """Share of the known tasks that is done. Below 1: only the driver's end shows that no job follows."""
        return min(0.99, self.tasks_done / self.tasks) if self.tasks else 0.0


class Applications:
    """Finds the endpoint of an attempt's driver, and asks it."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, str]] = {}

    def ask(self, attempt_id: str, address: str, port: int) -> Application | None:
        """The application of an attempt; None if it cannot be asked (now).

        Args:
            attempt_id: as in its conf.
            address: of the driver.
            port: that its web pages were to take.
        """
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            place = self._places.get(attempt_id) or self._find(client, attempt_id, address, port)
            if place is None:
                return None
            url, app_id = place
            root = f"{url}/api/v1/applications/{app_id}"
            executors, jobs = _get(client, f"{root}/executors"), _get(client, f"{root}/jobs")
        if executors is None or jobs is None:
            # It may be another's port by now.
            self._places.pop(attempt_id, None)
            return None
        self._places[attempt_id] = place
        return parse(url, app_id, executors, jobs)

    def forget(self, attempt_id: str) -> None:
        """It has ended."""
        self._places.pop(attempt_id, None)

    def _find(self, client: httpx.Client, attempt_id: str, address: str, port: int) -> tuple[str, str] | None:
        for candidate in range(port, port + _PORT_RETRIES + 1):
            url = f"http://{address}:{candidate}"
            applications = _get(client, f"{url}/api/v1/applications")
            for application in applications or ():
                found = _get(client, f"{url}/api/v1/applications/{application['id']}/environment")
                if found is not None and [ATTEMPT_CONF, attempt_id] in found["sparkProperties"]:
                    return url, str(application["id"])
        return None


def parse(url: str, app_id: str, executors: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> Application:
    """From the answers of `/executors` and `/jobs`."""
    tasks = sum(job["numTasks"] - job["numSkippedTasks"] for job in jobs)
    done = sum(min(job["numCompletedTasks"], job["numTasks"] - job["numSkippedTasks"]) for job in jobs)
    return Application(
        url=url,
        app_id=app_id,
        executors=tuple(
            str(found["hostPort"]).rpartition(":")[0]
            for found in executors
            if found["isActive"] and found["id"] != "driver"
        ),
        tasks_done=done,
        tasks=tasks,
        failed_tasks=sum(job["numFailedTasks"] for job in jobs),
    )


def _get(client: httpx.Client, url: str) -> Any | None:
    try:
        # While it starts, a driver answers with a page instead of JSON.
        return client.get(url).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
