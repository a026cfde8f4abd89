"""DQN of Stable-Baselines3 learns to place jobs; pip install 'spotweave[sb3]'."""

from stable_baselines3 import DQN

import spotweave

# DQN knows no masks: an action that is not valid stands for the next one that is.
env = spotweave.make("multicloud", flat=True)
model = DQN("MlpPolicy", env, seed=1).learn(20_000)
spotweave.compare(env, {"mine": lambda seen: model.predict(seen, deterministic=True)[0]}, episodes=10)
