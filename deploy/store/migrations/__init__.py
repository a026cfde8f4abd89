"""Alembic's folder: `env.py` runs what lies in `versions`."""
