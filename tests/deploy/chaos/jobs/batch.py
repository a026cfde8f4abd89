"""A batch job that writes down when it begins and when it is done.

Usage: batch.py TASKS SECONDS [GATE]: this many tasks of this many seconds; its end waits for the file GATE.
"""

import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession


def note(what: str) -> None:
    """One line, whole, in the ledger outside."""
    line = f"{os.environ['SPOTWEAVE_JOB_ID']} {os.environ['SPOTWEAVE_ATTEMPT']} {what}\n"
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


def main() -> None:
    tasks, seconds = int(sys.argv[1]), float(sys.argv[2])
    note("begun")
    session = SparkSession.builder.getOrCreate()

    def work(number: int) -> tuple[int, int]:
        time.sleep(seconds)
        return number % 3, number

    numbers = session.sparkContext.parallelize(range(tasks), tasks)
    sums = sorted(numbers.map(work).reduceByKey(lambda left, right: left + right, 2).collect())
    while len(sys.argv) > 3 and not Path(sys.argv[3]).exists():
        time.sleep(0.2)
        session.sparkContext.parallelize(range(2), 2).sum()
    session.stop()
    # Whole or not at all: an attempt that is ended between this and its own end is repeated.
    Path("sums.new").write_text(repr(sums))
    Path("sums.new").replace("sums")
    note("done")


if __name__ == "__main__":
    main()
