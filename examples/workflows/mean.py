"""The geographic mean of each user's positions (Liu 2022, Eq. 3.5), from the sums of several clusters.

Usage: mean.py SUMS... MEANS

MEANS becomes a folder of lines "USER,LON,LAT".
"""

import sys

from pyspark.sql import SparkSession

Sums = tuple[float, float, int]


def _parsed(line: str) -> tuple[str, Sums]:
    user, lon, lat, number = line.split(",")
    return user, (float(lon), float(lat), int(number))


def _added(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _line(user: str, sums: Sums) -> str:
    lon, lat, number = sums
    return f"{user},{lon / number:.6f},{lat / number:.6f}"


def main() -> None:
    """Divide."""
    *sums, means = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    context = session.sparkContext
    found = context.union([context.textFile(one) for one in sums]).map(_parsed).reduceByKey(_added)
    found.map(lambda pair: _line(*pair)).saveAsTextFile(means)
    session.stop()


if __name__ == "__main__":
    main()
