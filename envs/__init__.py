"""The environments: the simulation core, recorded traces and what Gymnasium knows of them.

Importing this package registers them with Gymnasium.
"""

from __future__ import annotations

from spotweave.envs.environments import register

register()
