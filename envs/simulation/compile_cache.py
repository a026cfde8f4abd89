"""Where compiled code is kept between runs: one folder per version of all compiled sources.

Numba's cache notices when the file of a function changes, but not when a function that it calls, in another
file, does: after an edit or an upgrade it would run the old callee. A folder named after a hash of every
source that may be compiled rules that out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import numba

COMPILED_FOLDERS = (
    "envs/simulation",
    "envs/simulation/guards",
    "envs/simulation/workflows",
    "envs/simulation/slices",
    "envs/simulation/market",
    "agents/bags",
    "agents/workflows",
    "envs/simulation/spot",
    "agents/rules",
    "agents/scorer",
    "agents/spot",
)

KEPT_S = 7 * 86_400
"""Folders of other versions are removed when unused for this long."""


def sources_hash() -> str:
    """A hash of numba's version and all sources with compiled code."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in COMPILED_FOLDERS:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def use_versioned_cache() -> None:
    """Point numba's cache at this version's folder; NUMBA_CACHE_DIR, if set, is left in charge."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spotweave" / "numba"
    folder = base / sources_hash()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return  # no place of our own: numba finds one, or compiles again each time
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    for other in base.iterdir():
        if other != folder and time.time() - other.stat().st_mtime > KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
