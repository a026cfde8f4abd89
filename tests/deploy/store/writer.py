"""A process that writes to a store and kills itself at a chosen moment: `python -m ... URL KEY WHEN`.

Each transaction writes a job with its task, an intent, an event and an instance that belong together. After
each commit its number is printed. WHEN is the number of the SQL statement before which it kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import event

from spotweave.deploy.store.intents import IntentKind
from spotweave.deploy.store.store import Store
from tests.deploy.store.cases import a_job, request
from tests.deploy.store.conftest import NOW


def write(store: Store, number: int) -> None:
    with store.transaction():
        store.jobs.add(a_job(f"j{number}"))
        request(store, f"i{number}", job_id=f"j{number}")
        store.intents.add(IntentKind.LAUNCH, f"i{number}", {"number": number}, NOW)
        store.events.add("instance.requested", NOW, instance_id=f"i{number}")


def main() -> None:
    url, key_file, when = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    statements = 0

    def count(*_: Any) -> None:
        nonlocal statements
        statements += 1
        if statements == when:
            os.kill(os.getpid(), signal.SIGKILL)

    store = Store.open(url, NOW, key_file=key_file)
    lead = store.lead()
    engine = store._database.engine
    event.listen(engine, "before_cursor_execute", count)
    event.listen(engine, "commit", count)
    number = len(store.jobs.live())
    while lead.held():
        write(store, number)
        print(number, flush=True)
        number += 1


if __name__ == "__main__":
    main()
