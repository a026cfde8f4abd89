"""A command of a bag: `steps.py NAME STEPS LEDGER GATE` writes a line for each step, two without GATE.

What it has done is in the file `steps` of its folder, which the bag's checkpoint command copies.
"""

import os
import sys
import time
from pathlib import Path

name, steps, ledger, gate = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
kept = Path(os.environ["SPOTWEAVE_CHECKPOINT_DIR"]) / "steps"
done = int(kept.read_text()) if kept.exists() else 0
print(f"{name} begins with {done}", flush=True)
while done < steps:
    while done >= 2 and not gate.exists():
        time.sleep(0.05)
    with ledger.open("a") as file:
        file.write(f"{name} {done}\n")
    done += 1
    Path("steps").write_text(str(done))
print(f"{name} has done {done}")
