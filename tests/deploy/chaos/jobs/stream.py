"""A stream that writes down every batch with all its rows."""

import json
import os

from pyspark.sql import DataFrame, SparkSession


def note(frame: DataFrame, batch: int) -> None:
    """One line, whole, in the ledger outside."""
    values = sorted(row["value"] for row in frame.select("value").collect())
    line = json.dumps({"batch": batch, "attempt": int(os.environ["SPOTWEAVE_ATTEMPT"]), "values": values})
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


session = SparkSession.builder.getOrCreate()
(
    session.readStream.format("rate")
    .option("rowsPerSecond", 5)
    .option("numPartitions", 1)
    .load()
    .writeStream.foreachBatch(note)
    .option("checkpointLocation", os.environ["SPOTWEAVE_CHECKPOINT_DIR"] + "/rows")
    .trigger(processingTime=f"{os.environ['SPOTWEAVE_PERIOD_S']} seconds")
    .start()
    .awaitTermination()
)
