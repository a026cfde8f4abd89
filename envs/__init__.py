"""The environments: the simulation core, recorded traces and what Gymnasium knows of them.

The installed package tells Gymnasium itself (see `envs.registration`): `gymnasium.make` needs no call of ours.
"""
