"""Columns of the arrays in `state`, as plain integers for compiled code (imported as `at`).

Times are in slices.
"""

from __future__ import annotations

# `Tables.job`: what is fixed about a job before the episode starts.
ARRIVAL = 0
CATEGORY = 1
STANDARD = 2
EXECUTIONS = 3
PERIOD = 4
PEAK_SLOTS = 5
SENSITIVITY = 6
EXPECTED_HETERO = 7
JOB_DATA_COLUMNS = 8

# `Tables.pair`: what is fixed about a job on a cluster (DEADLINE 0: none).
REQUEST = 0
PEAK_REQUEST = 1
EXECUTION = 2
DEADLINE = 3
PAIR_DATA_COLUMNS = 4

# `Lanes.lane`.
TIME = 0  # slice whose decision is awaited; at the end: the slice in which the last job ended
ARRIVED = 1  # jobs that entered the global buffer so far
BUFFERED = 2  # jobs in the global buffer now
ACTIVE = 3  # jobs deployed and not ended
ENDED = 4
MISSED_ANYWHERE = 5  # deadlines missed anywhere
EPISODE_DONE = 6
DECIDED = 7  # job that the latest decision was about
LIMIT = 8  # jobs that arrive in this episode; fewer than all in copies that look ahead
LANE_COLUMNS = 9

# `Lanes.cluster`.
USED = 0  # executors that run
HALTED = 1  # executors requested by executions in the local queue
EXTENSION = 2  # elastic executors in effect
HIGH_AT = 3  # latest slice with occupation at or above the threshold
DEPLOYED = 4  # jobs deployed here so far (counts D_t of section 5.3)
MISSED = 5
LATE_NOW = 6  # misses of this slice whose execution had waited
HEAD = 7  # first job of the local queue
TAIL = 8
DIRTY = 9  # 1 if something may have changed what fits
CLUSTER_COLUMNS = 10

# `Lanes.job`.
PHASE = 0
CLUSTER = 1
DEPLOYED_AT = 2
REQUESTED_AT = 3  # when the current (or the next) execution is requested
WAITED = 4  # 1 if the current execution did not start when requested
INITIAL_WAIT = 5  # 1 if the first execution waited (IC, section 5.3)
DONE = 6  # executions ended
ACTUAL = 7  # sum of AR over the executions ended
MISSED_UNQUEUED = 8  # M_j
MISSED_QUEUED = 9  # W_j
DEPLOYED_BEFORE = 10  # DEPLOYED just after this deployment
MISSED_BEFORE = 11  # MISSED_ANYWHERE at the deployment
POSITION = 12  # place in `Lanes.active`
LINK = 13  # next job in the same local queue or wheel slot (a job is in one of them at most)
ENDED_AT = 14
STARTED_AT = 15  # when the current (or the latest) execution began
JOB_COLUMNS = 16

# What a job is doing: values of PHASE.
UNSEEN = 0
IN_BUFFER = 1
BETWEEN = 2  # deployed, the next batch is not yet due
QUEUED = 3
RUNNING = 4
OVER = 5
