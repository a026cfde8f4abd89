"""Joins each user's mean and median.

Usage: join.py MEANS MEDIANS CENTERS

CENTERS becomes a folder with one file of lines "USER,MEAN LON,MEAN LAT,MEDIAN LON,MEDIAN LAT".
"""

import sys

from pyspark.sql import SparkSession


def _parsed(line: str) -> tuple[str, str]:
    user, _, place = line.partition(",")
    return user, place


def main() -> None:
    """Join."""
    means, medians, centers = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    context = session.sparkContext
    joined = context.textFile(means).map(_parsed).join(context.textFile(medians).map(_parsed), 1)
    joined.sortByKey(numPartitions=1).map(lambda one: ",".join((one[0], *one[1]))).saveAsTextFile(centers)
    session.stop()


if __name__ == "__main__":
    main()
