"""A Spark that starts at once: programs with the names and arguments of the real ones.

The master answers /json/ with the workers that `master_knows` names; workers sleep; drivers are the job's
script, run by plain Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deploy.model.tasks import Assignment
from deploy.runners.spark.settings import SparkHome
from deploy.runners.spark.worker import resource

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
    """Make it."""
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
