"""An Airflow operator that runs a job with Spotweave: put this file where your DAGs are.

    run = SpotweaveOperator(task_id="wordcount", job_file="/jobs/wordcount.yaml", url="http://spotweave:8421")

It needs `pip install 'spotweave[deploy]'` beside Airflow 3 (for Airflow 2 import BaseOperator from
airflow.models). The access token is that of SPOTWEAVE_TOKEN in the worker's environment.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseOperator

import spotweave


class SpotweaveOperator(BaseOperator):
    """Submits a job file and waits for the job's end, whose id, state and cost in USD it returns (XCom).

    The same try of the same task is the same job, so a worker that comes back finds it. A task that is
    cancelled in Airflow cancels its job.

    Args:
        job_file: path of a job file, next to which the files lie that it names.
        url: of the service; None: SPOTWEAVE_SERVER of the worker.
    """

    template_fields = ("job_file",)

    def __init__(self, *, job_file: str, url: str | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.job_file = job_file
        self.url = url
        self._job_id: str | None = None

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Raises RuntimeError, with the job's own reason, if the job does not succeed."""
        one = context["ti"]
        names = (one.dag_id, one.run_id, one.task_id, one.map_index, one.try_number)
        request_id = hashlib.sha256(repr(names).encode()).hexdigest()
        with spotweave.Client(self.url) as client:
            self._job_id = client.submit(self.job_file, request_id=request_id)["job_id"]
            self.log.info("submitted as %s", self._job_id)
            job = client.wait(self._job_id)
        if job["state"] != "succeeded":
            raise RuntimeError(f"job {job['job_id']} is {job['state']}: {job['reason']}")
        return {"job_id": job["job_id"], "state": job["state"], "usd": job["cost"]["usd"]}

    def on_kill(self) -> None:
        """Cancel the job."""
        if self._job_id is not None:
            with spotweave.Client(self.url) as client:
                client.cancel(self._job_id)
