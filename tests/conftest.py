"""In a checkout `import envs` would find the folder, and hide that it should be `spotweave.envs`."""

from __future__ import annotations

import sys
from typing import cast

for name in ("envs", "agents", "training", "deploy"):
    cast("dict[str, None]", sys.modules)[name] = None
