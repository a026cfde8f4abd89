"""Counts the words of texts: one component job of a word count over several clusters.

Usage: count_words.py TEXTS COUNTS

COUNTS becomes a folder of lines "WORD,NUMBER" (Liu 2022, chapter 3: line.split, map, reduceByKey).
"""

import re
import sys
from operator import add

from pyspark.sql import SparkSession


def main() -> None:
    """Count."""
    texts, counts = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    words = session.sparkContext.textFile(texts).flatMap(lambda line: re.findall(r"[a-z]+", line.lower()))
    totals = words.map(lambda word: (word, 1)).reduceByKey(add)
    totals.map(lambda pair: f"{pair[0]},{pair[1]}").saveAsTextFile(counts)
    session.stop()


if __name__ == "__main__":
    main()
