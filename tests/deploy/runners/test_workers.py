"""Errands in threads."""

from __future__ import annotations

import threading
import time

import pytest

from spotweave.deploy.runners.workers import Patience, WorkerPool, wait_for


def test_an_errand_is_done_once_until_it_is_collected() -> None:
    crew, done = WorkerPool("test", 4), []
    first = crew.begin("a", lambda: done.append(1))
    wait_for([first], 60)
    assert crew.begin("a", lambda: done.append(2)) is first
    crew.collect("a")
    wait_for([crew.begin("a", lambda: done.append(3))], 60)
    assert done == [1, 3]


def test_what_an_errand_raises_is_kept_for_its_caller() -> None:
    crew = WorkerPool("test", 1)
    work = crew.begin("a", lambda: 1 // 0)
    wait_for([work], 60)
    assert isinstance(work.future.exception(), ZeroDivisionError)
    after = crew.begin("b", lambda: 7)
    wait_for([after], 60)
    assert after.future.result() == 7


def test_there_are_no_more_threads_than_allowed_and_none_for_nothing() -> None:
    crew, go, most, inside = WorkerPool("counted", 3), threading.Event(), [0], threading.Semaphore(0)
    running, lock = [0], threading.Lock()

    def act() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        inside.release()
        assert go.wait(60)
        with lock:
            running[0] -= 1

    wait_for([crew.begin("alone", lambda: None)], 60)
    works = [crew.begin(str(number), act) for number in range(20)]
    for _ in range(3):
        assert inside.acquire(timeout=60)
    assert works[-1].begun_s is None
    assert works[-1].took_s == 0
    go.set()
    wait_for(works, 60)
    assert all(work.future.done() for work in works)
    assert most[0] == 3
    assert sum(thread.name.startswith("counted-") for thread in threading.enumerate()) == 3


def test_no_errand_waits_behind_one_that_hangs_while_there_may_be_another_thread() -> None:
    crew = WorkerPool("test", 2)
    wait_for([crew.begin("first", lambda: None)], 60)
    for number in range(100):
        go = threading.Event()
        hung = crew.begin(f"hung {number}", lambda: go.wait(60))  # noqa: B023
        fast = crew.begin(f"fast {number}", lambda: None)
        wait_for([fast], 30)
        assert fast.future.done()
        go.set()
        wait_for([hung], 60)


def test_callers_wait_together_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, go = WorkerPool("test", 100), threading.Event()
    patience = Patience(0.2, 0.0)
    began_s = time.monotonic()
    assert not any(patience.wait(crew.begin(str(number), lambda: go.wait(60))) for number in range(100))
    # Each of them alone would wait 0.2 s: 20 s in sum.
    assert time.monotonic() - began_s < 10
    go.set()
    done = crew.begin("done", lambda: None)
    wait_for([done], 60)
    # What is done is done, even without patience.
    assert patience.wait(done)
