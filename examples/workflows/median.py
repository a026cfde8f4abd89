"""The geographic median of each user's positions (Liu 2022, Eq. 3.6): the point nearest to all together.

Usage: median.py POSITIONS MEDIANS

It needs all positions of a user at once. Found by Weiszfeld's iteration (Weiszfeld 1937). MEDIANS becomes a
folder of lines "USER,LON,LAT".
"""

import math
import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession

ITERATIONS = 1000
NEAR = 1e-9
"""Degrees: a step that is shorter is the last; nearer to a position than that, its weight is bounded."""
Point = tuple[float, float]


def geometric_median(points: Iterable[Point]) -> Point:
    """The point with the least sum of distances."""
    points = list(points)
    here = (sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points))
    for _ in range(ITERATIONS):
        weights = [1.0 / max(NEAR, math.dist(here, point)) for point in points]
        x = sum(weight * point[0] for weight, point in zip(weights, points, strict=True)) / sum(weights)
        y = sum(weight * point[1] for weight, point in zip(weights, points, strict=True)) / sum(weights)
        moved, here = math.dist(here, (x, y)), (x, y)
        if moved < NEAR:
            break
    return here


def _parsed(line: str) -> tuple[str, Point]:
    user, lon, lat = line.split(",")
    return user, (float(lon), float(lat))


def main() -> None:
    """Find them."""
    positions, medians = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    found = session.sparkContext.textFile(positions).map(_parsed).groupByKey().mapValues(geometric_median)
    found.map(lambda pair: f"{pair[0]},{pair[1][0]:.6f},{pair[1][1]:.6f}").saveAsTextFile(medians)
    session.stop()


if __name__ == "__main__":
    main()
