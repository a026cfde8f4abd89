"""Counts the words of a text, many copies of it, and writes the most frequent ones to results/wordcount.json.

Usage: wordcount.py TEXT COPIES PARTITIONS
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

MOST_FREQUENT = 20


def words(text: str) -> list[str]:
    """Split into words in lower case; a word with a hyphen is one."""
    return re.findall(r"[a-z]+(?:-[a-z]+)*", text.lower())


def main() -> None:
    """Count."""
    place, copies, partitions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    session = SparkSession.builder.getOrCreate()
    # The driver reads the text: nodes may be other machines, without this folder.
    text = session.sparkContext.broadcast(Path(place).read_text(encoding="utf-8"))

    def count(numbers: Iterable[int]) -> Iterator[tuple[str, int]]:
        counted: Counter[str] = Counter()
        for _ in numbers:
            counted.update(words(text.value))
        yield from counted.items()

    totals = dict(
        session.sparkContext.parallelize(range(copies), partitions)
        .mapPartitions(count)
        .reduceByKey(lambda left, right: left + right)
        .collect()
    )
    top = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_FREQUENT]
    found = {"words": sum(totals.values()), "different": len(totals), "top": dict(top)}
    results = Path("results")
    results.mkdir(exist_ok=True)
    (results / "wordcount.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main()
