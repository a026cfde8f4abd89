"""Counts a stream of numbers by their last digit, and writes the totals to results/streaming.json.

It resumes where it was: all it knows is in the checkpoint folder that the scheduler names. The scheduler also
says how often a batch is due, counts those that miss their deadline, and ends the job after the last one.

Usage: streaming.py ROWS_PER_SECOND
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

RESULTS = Path("results")


def write_totals(totals: DataFrame, batch: int) -> None:
    """Write the totals after a batch, whole or not at all; a repeated batch writes the same again."""
    found = {row["digit"]: row["count"] for row in sorted(totals.collect())}
    temporary = RESULTS / ".streaming.json"
    temporary.write_text(json.dumps({"batch": batch, "totals": found}) + "\n", encoding="utf-8")
    temporary.replace(RESULTS / "streaming.json")


def main() -> None:
    """Count until the scheduler ends it."""
    RESULTS.mkdir(exist_ok=True)
    session = SparkSession.builder.getOrCreate()
    numbers = session.readStream.format("rate").option("rowsPerSecond", sys.argv[1]).load()
    (
        numbers.groupBy((col("value") % 10).alias("digit"))
        .count()
        .writeStream.outputMode("complete")
        .foreachBatch(write_totals)
        .option("checkpointLocation", os.environ["SPOTWEAVE_CHECKPOINT_DIR"] + "/digits")
        .trigger(processingTime=f"{os.environ['SPOTWEAVE_PERIOD_S']} seconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
