"""Columns of a snapshot and of an observation (see `snapshot`), as plain integers for compiled code.

Imported as `col`: `jobs[j, col.SLACK_S]`, `clusters[c, col.PRICE_USD_HOUR]`, `pairs[j, c, col.FITS]`. No two
columns have the same name, whichever array they belong to.

A column means the same to every writer: the market world (`market.observation`, `market.members`), the
slice world (`slices.observe`), federated episodes (`federations.observation`) and the live scheduler.
What a world does not have is 0. `tests/test_snapshot_writers.py` plays the same situations through them.
"""

from __future__ import annotations

# `clusters`: C rows, one per cluster or offer.
SEQUENCE = 0  # 1-based number of the cluster
CAPACITY_NORMAL = 1  # executors without elastic extension (0 for an offer that starts empty)
CAPACITY_MAX = 2  # executors at full extension, or the quota of an offer
CAPACITY_NOW = 3  # executors in effect now: of an offer its quota while it is available, else 0
HETERO_FACTOR = 4  # speed, larger is faster; outside Liu 2022 `REFERENCE_HETERO` is speed 1, or unknown
USED = 5  # executors that run or boot now
HALTED = 6  # executors requested by executions that wait inside the cluster
MISSED = 7  # deadlines missed on this cluster in this episode
MEAN_OCCUPATION = 8  # mean occupation ratio over the latest 100 steps that exist
PRICE_USD_HOUR = 9  # per executor, now (0 on owned clusters)
ON_DEMAND_USD_HOUR = 10  # the same instance type on demand there, or the cheapest there is (0 if owned)
IS_SPOT = 11  # 1 if the provider may interrupt
AVAILABLE = 12  # 1 if a launch is believed possible now
UP_RATIO = 13  # share of the latest 24 h in which it was available; 1 where nothing takes it away
SPELL_S = 14  # seconds since availability last changed
MEAN_UP_S = 15  # mean length of the up-spells seen in the latest 7 days (0 if none or not spot)
LAUNCH_S = 16  # expected seconds from request to running; for a federated task asked about, its own
NOTICE_S = 17  # seconds of interruption notice
PROVIDER = 18  # 0 owned, 1 aws (and whatever else is rented: `RENTED`), 2 gcp, 3 azure
REGION = 19  # number within the world of the region, or of the zone where regions are not told apart
QUEUES = 20  # 1 if a job put here may wait inside (local FIFO), 0 if it must fit at once
FREE_AHEAD = 21  # executors that stay free on average, by `slices.forecast`; 0 in other worlds

# `jobs`: J rows, the jobs that await a decision, by arrival.
PRESENT = 0
CATEGORY = 1  # Category
EXPECTED_HETERO = 2  # HETERO_FACTOR the standard time refers to
SENSITIVITY = 3  # Liu 2022, section 5.3; `FULLY_SENSITIVE` where time is proportional to speed
STANDARD_S = 4  # standard time of one execution (batch, warm epoch), or of all the work
EXECUTIONS = 5  # executions (batches, rounds) left; of a step: itself and all that wait for it; else 1
PERIOD_S = 6  # batch period, or ROUND_S; 0 for other jobs
DURATION_S = 7  # executions left * period, or the standard time left
PEAK_SLOTS = 8  # of 10 request slots, how many hold the peak request
WAITED_S = 9  # seconds since it entered (or re-entered) the buffer, or became idle; 0 while it runs
AGE_S = 10  # seconds since the job arrived
SLACK_S = 11  # seconds until its next deadline, of a federated task the application's; negative when late
HAS_DEADLINE = 12  # 0 also where nothing can meet it any more (see `guards`)
PROGRESS = 13  # share of the work done (not running: saved), of a federated task of its epoch; 0..1
RESTART_S = 14  # fixed seconds to set up on fresh instances; part of TRANSFER_S, not of COLD_S
CHECKPOINT_INTERVAL_S = 15  # 0 if the job takes none
DATA_GB = 16  # input data to be read where the job starts
CHECKPOINT_GB = 17
INTERRUPTIONS = 18  # interruptions so far
RUNNING = 19  # 1 if the job runs now and may be moved ("none" = leave it)
MISSES = 20  # deadlines missed by the job so far
BACKLOG = 21  # streaming batches due and not finished
# Tasks of category FEDERATED only, 0 for all others. Expected times are estimates from what was measured.
IDLE = 22  # 1 if it holds an instance and waits for others: its own offer keeps it, "none" releases it
IS_SERVER = 23  # 1 for the server of an application, 0 for a client
OWES = 24  # 1 if its result of the current round, which has begun, is still to come
ROUND_LEFT_S = 25  # expected seconds until all others of its round have delivered (0: it is the last)
ROUND_S = 26  # expected seconds of a whole round of its application, aggregation included
COLD_S = 27  # seconds that its first epoch on a new instance takes longer; 0 while unknown
HAS_BUDGET = 28  # 1 if it has a budget of its own
BUDGET_LEFT_USD = 29  # what that pays once what it holds has ended; >= 0
OTHERS_USD_HOUR = 30  # price of all instances that its application holds besides its own, now
TIME_ERROR_S = 31  # by how much expected ends of rounds and launches were off lately; 0 while unknown

# `pairs`: J x C rows, this job on that cluster. From FREE to COST_USD they are derived.
REQUEST = 0  # executors asked for (the mode of their distribution); `request_beyond` where it may not go
PEAK_REQUEST = 1
EXECUTION_S = 2  # one execution there without waiting; one-shot: the work left; an epoch: with COLD_S
DEADLINE_S = 3  # time allowed for it: SLACK_S less what rounds after it need; slices: from deployment
EGRESS_USD = 4  # data transfer to put the job there now, of a federated task a round's messages too
TRANSFER_S = 5  # seconds to save (if it runs), move data, restore and set up before work begins
HERE = 6  # 1 if the job runs, or hibernates, there
FREE = 7  # capacity now - used - halted (may be negative)
FITS = 8  # 1 if the request fits in the free executors and a launch is believed possible
EXECUTION_RATIO = 9  # EXECUTION_S / STANDARD_S left
IMPROPER = 10  # 1 if the deadline is missed there even without waiting (IH, Liu 2022 eq. 5.1)
FINISH_S = 11  # launch + transfer + work, if nothing waits or breaks (streaming: one batch)
COST_USD = 12  # egress + price * request * time until the job's end, at the price of now
SHORTAGE = 13  # executors short on average while it runs there, by `slices.forecast`; 0 in other worlds
