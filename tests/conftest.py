"""What holds for all tests."""

from __future__ import annotations

import sys
from typing import cast

from hypothesis import HealthCheck, settings

# In a checkout `import envs` would find the folder, and hide that it should be `spotweave.envs`.
for name in ("envs", "agents", "training", "deploy"):
    cast("dict[str, None]", sys.modules)[name] = None

# A busy machine is no reason to fail.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
