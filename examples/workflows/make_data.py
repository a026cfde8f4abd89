"""Writes what the clusters of configs/deploy/clusters.yaml keep: texts to be counted, positions of users.

Usage: make_data.py FOLDER

FOLDER/north, FOLDER/south and FOLDER/center each get a third of the texts. The positions, one "USER,LON,LAT"
in each line, are private in the north and public in the south, a half each; center has a copy of all.
"""

import random
import sys
from pathlib import Path

CLUSTERS = ("north", "south", "center")
TEXTS, LINES = 4, 2000
USERS, POSITIONS = 50, 6000


def main() -> None:
    """Write, the same each time."""
    folder, drawn = Path(sys.argv[1]), random.Random(2022)
    words = (Path(__file__).parents[1] / "gettysburg.txt").read_text(encoding="utf-8").split()
    for cluster in CLUSTERS:
        (folder / cluster / "texts").mkdir(parents=True, exist_ok=True)
        for k in range(TEXTS):
            lines = [" ".join(drawn.choices(words, k=12)) for _ in range(LINES)]
            _write(folder / cluster / "texts" / f"{k}.txt", lines)
    homes = [(drawn.uniform(-180, 180), drawn.uniform(-80, 80)) for _ in range(USERS)]
    positions = []
    for _ in range(POSITIONS):
        user = drawn.randrange(USERS)
        # Some are far from home: the median is moved less by them than the mean.
        spread = 5.0 if drawn.random() < 0.1 else 0.1
        lon, lat = (drawn.gauss(middle, spread) for middle in homes[user])
        positions.append(f"user-{user},{lon:.6f},{lat:.6f}")
    half = POSITIONS // 2
    parts = (positions[:half], positions[half:], positions)
    for cluster, lines in zip(CLUSTERS, parts, strict=True):
        _write(folder / cluster / "positions.csv", lines)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
