"""Estimates pi by drawing points in a square, and writes it to results/pi.json; always the same points.

Usage: pi.py POINTS PARTITIONS
"""

import json
import random
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    """Draw, and count the points inside the circle."""
    points, partitions = int(sys.argv[1]), int(sys.argv[2])
    session = SparkSession.builder.getOrCreate()
    each = points // partitions

    def inside(number: int) -> int:
        # Every partition draws its own: one that is computed again after an interruption is the same.
        draw = random.Random(number).random
        return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(each))

    hits = session.sparkContext.parallelize(range(partitions), partitions).map(inside).sum()
    found = {"points": each * partitions, "pi": 4 * hits / (each * partitions)}
    results = Path("results")
    results.mkdir(exist_ok=True)
    (results / "pi.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main()
