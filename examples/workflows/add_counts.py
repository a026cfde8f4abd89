"""Adds up the counts of several clusters: the final job of the word count.

Usage: add_counts.py COUNTS... TOTALS

TOTALS becomes a folder with the lines "WORD,NUMBER" of all, the most frequent words first.
"""

import sys
from operator import add

from pyspark.sql import SparkSession


def _parsed(line: str) -> tuple[str, int]:
    word, _, number = line.rpartition(",")
    return word, int(number)


def main() -> None:
    """Add up."""
    *counts, totals = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    context = session.sparkContext
    added = context.union([context.textFile(one) for one in counts]).map(_parsed).reduceByKey(add)
    ordered = added.sortBy(lambda pair: (-pair[1], pair[0]), numPartitions=1)
    ordered.map(lambda pair: f"{pair[0]},{pair[1]}").saveAsTextFile(totals)
    session.stop()


if __name__ == "__main__":
    main()
