"""Attempts at small jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spotweave.deploy.model.jobs import JobSpec, SparkBatch, SparkStreaming, TaskKey
from spotweave.deploy.model.tasks import Assignment, Node
from spotweave.deploy.runners.spark.cluster import resource
from spotweave.deploy.runners.spark.settings import SparkHome

JOB = "job-1"
SCRIPT = "app.py"


def batch(code: str, workdir: Path, nodes: Sequence[Node], attempt: int = 1, **work: Any) -> Assignment:
    return _assignment(SparkBatch(script=SCRIPT, **work), code, workdir, nodes, attempt)


def streaming(code: str, workdir: Path, nodes: Sequence[Node], attempt: int = 1, **work: Any) -> Assignment:
    """An attempt of a streaming job with this script, a batch each second."""
    stream = SparkStreaming(script=SCRIPT, period_s=1.0, batch_deadline_s=1.0, **work)
    return _assignment(stream, code, workdir, nodes, attempt)


def _assignment(
    work: SparkBatch | SparkStreaming, code: str, workdir: Path, nodes: Sequence[Node], attempt: int
) -> Assignment:
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / SCRIPT).write_text(code)
    spec = JobSpec(name="a-job", work=work)
    return Assignment(TaskKey(workdir.name, "main"), attempt, spec, tuple(nodes), str(workdir))


# A Spark that starts at once: programs with the names and arguments of the real ones.


_SPARK_CLASS = """\
import json, os, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
kind, arguments = sys.argv[1].rpartition(".")[2], sys.argv[2:]
if kind == "Worker":
    if os.path.exists(os.environ["SPARK_HOME"] + "/broken"):
        sys.exit("Error: this worker is broken")
    signal.signal(signal.SIGPWR, lambda number, frame: print("decommissioned", flush=True))
    print("up", flush=True)
    while True:
        time.sleep(600)
option = dict(zip(arguments[::2], arguments[1::2]))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        while os.path.exists(os.environ["SPARK_HOME"] + "/silent"):
            time.sleep(0.05)
        try:
            with open(os.environ["SPARK_HOME"] + "/workers.json") as file:
                workers = json.load(file)
        except FileNotFoundError:
            workers = []
        url = f"spark://{option['--host']}:{option['--port']}"
        body = json.dumps({"url": url, "status": "ALIVE", "workers": workers}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
HTTPServer((option["--host"], int(option["--webui-port"])), Handler).serve_forever()
"""
_SPARK_SUBMIT = """\
import os, sys
assert sys.argv[1] == "--properties-file"
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def install(folder: Path) -> SparkHome:
    (folder / "bin").mkdir(parents=True)
    for name, code in (("spark-class", _SPARK_CLASS), ("spark-submit", _SPARK_SUBMIT)):
        place = folder / "bin" / name
        place.write_text(f"#!{sys.executable}\n{code}")
        place.chmod(0o755)
    return SparkHome(folder)


def master_knows(home: SparkHome, assignment: Assignment, states: dict[str, str]) -> None:
    """What the master shall say of an attempt's workers, by the addresses of their nodes."""
    workers = [
        {"host": host, "state": state, "resources": {resource(assignment.attempt_id): {}}}
        for host, state in states.items()
    ]
    (home.path / "workers.json").write_text(json.dumps(workers))
