"""MaskablePPO of sb3-contrib learns to place jobs; pip install 'spotweave[sb3]'."""

from sb3_contrib import MaskablePPO

import spotweave

env = spotweave.make("multicloud", flat=True)
model = MaskablePPO("MlpPolicy", env, seed=1).learn(20_000)


def mine(observation):
    """The action that the model likes best; the observation ends with the mask of valid actions."""
    valid = observation[-env.action_space.n :] > 0
    return model.predict(observation, action_masks=valid, deterministic=True)[0]


spotweave.compare(env, {"mine": mine}, episodes=10)
