"""Why drivers fail. The texts are what Spark 4.3 printed, shortened."""

from __future__ import annotations

import pytest

from deploy.runners.spark.reason import LONGEST, by_cluster, last_error

IN_SCRIPT = """\
26/11/21 15:38:11 INFO StandaloneAppClient$ClientEndpoint: Executor added: app-1/0
Traceback (most recent call last):
  File "/job/app.py", line 4, in <module>
    main()
  File "/job/app.py", line 2, in main
    raise ValueError("no such column: price")
ValueError: no such column: price
26/11/21 15:38:12 INFO SparkContext: Invoking stop() from shutdown hook
"""
IN_TASK = """\
Traceback (most recent call last):
  File "/job/app.py", line 3, in <module>
    .collect()
  File "/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed \
4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.2 executor 0): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/job/app.py", line 2, in <lambda>
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
NODE_LOST = """\
26/11/21 15:38:20 ERROR TaskSchedulerImpl: Lost executor 0 on 127.0.0.2: worker lost
Traceback (most recent call last):
  File "/job/app.py", line 3, in <module>
    .collect()
py4j.protocol.Py4JJavaError: An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed \
4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.2 executor 0): \
ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: \
Remote RPC client disassociated.
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
"""
NO_MASTER = """\
26/11/21 15:38:40 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are \
unresponsive! Giving up.
"""
NO_SCRIPT = "python3: can't open file '/job/app.py': [Errno 2] No such file or directory\n"
NO_CLASS = "Error: Failed to load class org.example.Main.\n26/11/21 15:38:40 INFO ShutdownHookManager: bye\n"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (IN_SCRIPT, "ValueError: no such column: price"),
        (IN_TASK, "ZeroDivisionError: division by zero"),
        (NO_SCRIPT, "python3: can't open file '/job/app.py': [Errno 2] No such file or directory"),
        (NO_CLASS, "Error: Failed to load class org.example.Main."),
        ("26/11/21 15:38:40 INFO ShutdownHookManager: bye\n", ""),
        ("", ""),
    ],
)
def test_the_innermost_cause_is_told_in_one_line(log: str, line: str) -> None:
    assert last_error(log) == line


def test_long_reasons_are_cut() -> None:
    text = last_error("Traceback (most recent call last):\n  File x\nValueError: " + "x" * 1000)
    assert text.startswith("ValueError: xxx")
    assert len(text) == LONGEST


@pytest.mark.parametrize(
    ("log", "if_nodes_stay", "if_nodes_are_lost"),
    [
        *((log, False, False) for log in (IN_SCRIPT, IN_TASK, NO_SCRIPT, NODE_LOST + IN_SCRIPT)),
        (NODE_LOST, False, True),
        ("", False, True),
        (NO_MASTER, True, True),
    ],
)
def test_when_it_is_the_clusters_fault(log: str, if_nodes_stay: bool, if_nodes_are_lost: bool) -> None:
    assert by_cluster(log, nodes_lost=False) is if_nodes_stay
    assert by_cluster(log, nodes_lost=True) is if_nodes_are_lost
