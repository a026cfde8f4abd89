"""The environments: the simulation core, recorded traces and what Gymnasium knows of them.

The installed package registers itself with Gymnasium (`envs.registration`): `gymnasium.make` needs no call
of ours.
"""
