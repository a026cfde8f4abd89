"""Columns of what `mtdqn` sees (see `describe`), as plain integers for compiled code (imported as `at`)."""

from __future__ import annotations

# Of the job, and of all clusters as it meets them (the same for each of its clusters).
STREAMING = 0
TIME_CRITICAL = 1
GENERAL = 2
LOG_STANDARD = 3  # log of the standard time in minutes
LOG_EXECUTIONS = 4
PERIOD_SLACK = 5  # streaming: period / standard time - 1
SENSITIVITY = 6
EXPECTED_SPEED = 7  # expected hetero factor against the mean of the clusters
MEAN_REQUEST = 8  # against the mean capacity
BUFFERED = 9  # jobs that await a decision
PEAK_SLOTS = 10
MEAN_LOAD = 11  # mean over the clusters
MEAN_FREE = 12
MOST_FREE = 13
SHARE_ROOMY = 14  # clusters on which the peak fits now and the deadline can be met
SHARE_PROPER = 15  # clusters on which the deadline can be met without waiting
N_JOB_COLUMNS = 16

# Of one cluster (the first ten, and SIZE), and of the job there.
LOAD = 0  # mean occupation over the latest 100 steps
LOAD_NOW = 1
LOAD_10 = 2
LOAD_30 = 3
HALTED = 4  # executors requested by what waits inside / capacity
FREE = 5  # (capacity - used - halted) / capacity
EXTENSIBLE = 6  # extension left / capacity
EXTENSION = 7  # extension in effect / capacity
SPEED = 8  # hetero factor against the mean of the clusters
UNREST = 9  # standard deviation of the occupation
RATIO = 10  # execution time / standard time - 1
REGRET = 11  # ... above the best cluster on which the deadline can be met
IMPROPER = 12  # the deadline is missed there even without waiting (IH)
IMPROPER_EXECUTIONS = 13
FITS = 14
ROOM = 15  # (free - request) / capacity
PEAK_FITS = 16
PEAK_ROOM = 17  # (free - peak request) / capacity
PEAK_ROOM_REQUESTS = 18  # ... / peak request
REQUEST = 19  # request / capacity
SLACK = 20  # (deadline - execution time) / standard time; 1 without deadline
LOAD_ABOVE_MEAN = 21
FREE_ABOVE_MEAN = 22
STREAMING_LOAD = 23
STREAMING_PEAK_ROOM = 24
STREAMING_RATIO = 25
GENERAL_REGRET = 26
SIZE = 27  # log of capacity / mean capacity
N_PLACE_COLUMNS = 28
# Where the guide is the rule `committed`: what the jobs deployed there will need.
FREE_AHEAD = 28  # executors that stay free / capacity
SHORTAGE = 29  # executors short / mean request, at most 1
N_COMMITTED_COLUMNS = 30
N_CLUSTER_COLUMNS = 10  # the columns of a place before RATIO, which do not depend on the job
