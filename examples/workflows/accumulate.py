"""Sums up positions by user: what of private positions may leave their cluster.

Usage: accumulate.py POSITIONS SUMS

SUMS becomes a folder of lines "USER,LON,LAT,NUMBER" with the sums of the longitudes and of the latitudes.
"""

import sys

from pyspark.sql import SparkSession

Sums = tuple[float, float, int]


def _parsed(line: str) -> tuple[str, Sums]:
    user, lon, lat = line.split(",")
    return user, (float(lon), float(lat), 1)


def _added(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def main() -> None:
    """Sum up."""
    positions, sums = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    found = session.sparkContext.textFile(positions).map(_parsed).reduceByKey(_added)
    found.map(lambda pair: f"{pair[0]},{pair[1][0]!r},{pair[1][1]!r},{pair[1][2]}").saveAsTextFile(sums)
    session.stop()


if __name__ == "__main__":
    main()
