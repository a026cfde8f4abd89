"""Columns of the arrays in `state` and `episodes`, as plain integers for compiled code.

Few arrays with many columns, because every array costs compiled functions time to compile and to call.
Times are seconds since the episode's start, charges are in units of `state.CHARGES_PER_USD` to the dollar.
"""

from __future__ import annotations

# `Lanes.lane`: of a lane.
NOW_S = 0  # the present moment
ARRIVED = 1  # jobs that have arrived
LIMIT = 2  # jobs that will arrive
CLOSED = 3  # jobs that have ended
DECISIONS = 4  # decisions taken
STATUS = 5  # see below
WINDOW_N = 6  # jobs shown
DECIDED = 7  # job of the latest decision, -1 before
SAMPLES = 8  # occupation samples taken
QUEUE_N = 9  # jobs in `queue`
OPEN_N = 10  # jobs in `open`
LOG_N = 11  # rows in `log`

# `Lanes.lane_real`.
OBJECTIVE = 0  # at the latest decision
DELAY_CLOSED = 1  # hours, of finished jobs

# `Lanes.offer`: of an offer in a lane.
USED = 0  # executors that run, boot or are reserved
HALTED = 1  # executors that queued jobs wait for
MISSED = 2  # deadlines missed here
DEPLOYMENTS = 3  # jobs put here so far
PRESENT = 4  # jobs here, hibernated ones included
UP_NOW = 5  # row of the availability series that holds now
UP_DAY = 6  # the same, 24 h ago
UP_WEEK = 7  # the same, 7 days ago
PRICE_NOW = 8  # row of the price series that holds now
OCCUPATION_SUM = 9  # over the latest 100 samples
EXTENSION = 10  # executors by which an elastic cluster is extended
FULL_S = 11  # latest sample at which it was full
OFFER_COLUMNS = 12

# `Lanes.when`: the next moments of a job in a lane, NEVER where there is none.
EVENT_S = 0  # when its phase ends
DUE_S = 1  # its next decision
LATE_S = 2  # next moment at which a deadline may pass; of a client: at which its budget ends
NET_S = 3  # when the safety net looks at it next, while it is on spot capacity

# `Lanes.job`: of a job in a lane.
PHASE = 0  # see below
OFFER = 1  # where it is, -1 in the buffer
TARGET = 2  # where a moving job goes
LATE_NEXT = 3  # execution that LATE_S belongs to
ENTERED_S = 4  # when it (re-)entered the buffer or a queue
ATTEMPT = 5  # launches so far
FAILS = 6  # 1 if the launch under way fails
EXECUTED = 7  # executions finished
WORK_S = 8  # seconds of work from BASE to the end on this offer
WORK_START_S = 9  # when work on the current execution began here
STAY_START_S = 10  # when it left the queue of an owned cluster
WAITED = 11  # 1 if it waited in that queue
BILLED_FROM_S = 12  # when its instances began to run
INTEGRAL_FROM = 13  # price integral at BILLED_FROM_S
PAUSED_S = 14  # when it hibernated
PAUSED_LEFT_S = 15  # what was left until EVENT_S
PAUSED_PHASE = 16  # phase that it hibernated in
CHECKPOINT_REGION = 17  # where its latest checkpoint lies, -1 without one
DEPLOYMENT = 18  # number of its deployment on its offer
INTERRUPTED = 19  # interruptions so far
MISSES = 20  # deadlines missed so far
CHARGE = 21  # closed bills
FINISH_S = 22  # when it ended
# Of tasks of federated applications:
WARM = 23  # 1 if an epoch has ended on its instance
IDLE_FROM = 24  # price integral when its instance began to be idle
IDLE_CHARGE = 25  # of the open bill, what idle time before that costs
LEFT = 26  # 1 if it ended without all its rounds, for want of budget
LAUNCHED_S = 27  # when its latest launch began
OWNED_S = 28  # executor-seconds on owned clusters, of stays that have ended
# Of a stream:
MOVABLE_S = 29  # from then on it is asked, at the end of a batch, whether to move
RESERVED = 30  # of a moving job: 1 if the quota of TARGET counts it
READY_S = 31  # when it arrived; of a step: when all that it waits for had ended, NEVER before
JOB_COLUMNS = 32

# `Lanes.job_real`.
SAVED = 0  # share of the current execution that a checkpoint holds
BASE = 1  # share of the current execution done when work began here
MUTUAL = 2  # misses of others, in units of one time-critical miss
DELAY = 3  # hours; streaming: of finished batches; else set at the end
TIMES = 4  # of a client: from here on its times, see `round_estimates`
LAUNCH_ERROR_S = 8  # of a server: by how much its application's launches were off what was expected
JOB_REAL_COLUMNS = 9

# `Episodes.job`: see `episodes.Jobs`.
ARRIVAL_S = 0
CATEGORY = 1  # `Category`
EXECUTORS = 2
STANDARD_S = 3
EXPECTED_HETERO = 4
SENSITIVITY = 5
EXECUTIONS = 6
PERIOD_S = 7
ALLOWANCE_S = 8
INTERVAL_S = 9
DUMP_S = 10
HOME = 11
SERVER = 12  # of a task of an application: the row of its server; else the job's own row
CLIENTS = 13  # of such a task: clients of the application, which follow the server; else 0
COLD_S = 14  # of a client: what its first epoch on an instance takes longer
BUDGET = 15  # of a client: charges, 0 without a budget
WHOLE_S = 16  # of a server: standard time of the whole application
# Of a step of a workflow: it waits for the rows from NEEDED_FROM to before NEEDED_END.
NEEDED_FROM = 17
NEEDED_END = 18
LAST_ROW = 19  # of its bag or workflow; of other jobs their own row
EPISODE_JOB_COLUMNS = 20

# `Episodes.job_real`.
DATA_GB = 0
CHECKPOINT_GB = 1

# `Episodes.up` and `Episodes.price`: row k of a series holds in [SINCE, UNTIL).
SINCE = 0
UNTIL = 1  # NEVER in the last row
UP = 2  # 1 if a launch could succeed
UP_SECONDS = 3  # seconds up before the row
UP_STARTS = 4  # up-spells begun up to and including the row
PRICE = 2  # micro-dollars per executor-hour
PRICE_INTEGRAL = 3  # (micro-dollars per hour) x seconds before the row

# `Offers.fixed`: see `config.OfferConfig`.
HETERO = 0
QUOTA = 1  # of an elastic cluster: at full extension
REGION = 2
PROVIDER = 3
SPOT = 4  # 1 if the provider may interrupt
QUEUES = 5  # 1 for an owned cluster
HIBERNATES = 6  # 1 if an interruption hibernates
LAUNCH_S = 7  # mean
NOTICE_S = 8
FREE_FIRST_S = 9
DISK_CHARGE_S = 10  # charge per second and hibernated instance
ELASTIC = 11  # part of QUOTA that is there only while the cluster is extended

# `Offers.chance`.
LAUNCH_FAILURE = 0  # probability
NOTICE_MISSED = 1  # probability

# `Lanes.counters`: totals of an episode.
INTERRUPTIONS = 0
LAUNCH_FAILURES = 1
MISSES_TC = 2
MISSES_BATCHES = 3
EGRESS_CHARGES = 4
ON_DEMAND_CHARGES = 5
SPOT_CHARGES = 6
DISK_CHARGES = 7
OWNED_EXECUTOR_S = 8
LOST_EXECUTOR_S = 9
ROUNDS = 10  # aggregated
IDLE_CHARGES = 11  # for instances of clients while these waited for others
CLIENTS_LEFT = 12
COUNTER_COLUMNS = 13

# `Lanes.log`.
LOG_KIND = 0
LOG_JOB = 1
LOG_OFFER = 2
LOG_START_S = 3
LOG_END_S = 4
LOG_LATE = 5
LOG_COLUMNS = 6

# Values of LOG_KIND.
SEGMENT = 0
MISS = 1
INTERRUPTION = 2
EXTENDED = 3  # LOG_JOB holds the executors added, LOG_START_S the moment

# Where a job is in its life: values of PHASE.
FUTURE = 0
BUFFERED = 1
HIBERNATED = 2  # in the buffer; its instances may resume
QUEUED = 3  # waits inside an owned cluster
LAUNCHING = 4
SETTING_UP = 5  # instances run and are billed from here on
WORKING = 6
IDLE = 7  # between two batches or rounds; a server that waits for its clients
MOVING = 8  # writes a last checkpoint before it leaves on-demand instances
DONE = 9

# Whether a lane's episode goes on: values of STATUS.
RUNNING = 0
ENDED = 1
TRUNCATED = 2
