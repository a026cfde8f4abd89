"""Columns of an observation and codes as plain integers: what compiled rules index with."""

from __future__ import annotations

from envs.simulation.snapshot import Category, ClusterField, JobField, PairField

C_CAPACITY_NOW = int(ClusterField.CAPACITY_NOW)
C_MEAN_OCCUPATION = int(ClusterField.MEAN_OCCUPATION)
C_PRICE = int(ClusterField.PRICE_USD_HOUR)
C_IS_SPOT = int(ClusterField.IS_SPOT)
C_AVAILABLE = int(ClusterField.AVAILABLE)
C_UP_RATIO = int(ClusterField.UP_RATIO)
C_SPELL = int(ClusterField.SPELL_S)
C_MEAN_UP = int(ClusterField.MEAN_UP_S)
C_LAUNCH = int(ClusterField.LAUNCH_S)
C_PROVIDER = int(ClusterField.PROVIDER)
C_QUEUES = int(ClusterField.QUEUES)

J_PRESENT = int(JobField.PRESENT)
J_CATEGORY = int(JobField.CATEGORY)
J_EXECUTIONS = int(JobField.EXECUTIONS)
J_PERIOD = int(JobField.PERIOD_S)
J_DURATION = int(JobField.DURATION_S)
J_AGE = int(JobField.AGE_S)
J_SLACK = int(JobField.SLACK_S)
J_HAS_DEADLINE = int(JobField.HAS_DEADLINE)
J_PROGRESS = int(JobField.PROGRESS)
J_CHECKPOINT_INTERVAL = int(JobField.CHECKPOINT_INTERVAL_S)
J_RUNNING = int(JobField.RUNNING)
J_BACKLOG = int(JobField.BACKLOG)

P_REQUEST = int(PairField.REQUEST)
P_PEAK_REQUEST = int(PairField.PEAK_REQUEST)
P_EXECUTION = int(PairField.EXECUTION_S)
P_EGRESS = int(PairField.EGRESS_USD)
P_TRANSFER = int(PairField.TRANSFER_S)
P_HERE = int(PairField.HERE)
P_FREE = int(PairField.FREE)
P_FITS = int(PairField.FITS)
P_RATIO = int(PairField.EXECUTION_RATIO)
P_IMPROPER = int(PairField.IMPROPER)
P_FINISH = int(PairField.FINISH_S)
P_COST = int(PairField.COST_USD)

STREAMING = int(Category.STREAMING)
GENERAL = int(Category.GENERAL)
