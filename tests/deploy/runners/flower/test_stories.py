"""Real SuperLinks, SuperNodes and apps over real node agents."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.epoch import SAVED
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.node import procfs
from spotweave.deploy.runners.detached import Limits
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.security.sandbox import Mode, SandboxError
from spotweave.deploy.security.trial import choose
from tests.deploy.node.agents import command, tagged
from tests.deploy.objects.buckets import S3, Gcs
from tests.deploy.runners.flower.world import MEAN, World, job_spec, placed, world
from tests.deploy.runners.patience import left_behind

pytestmark = pytest.mark.real


TWO = {"a": {"target": "1", "examples": "1"}, "b": {"target": "4", "examples": "2"}}
AFTER_ROUNDS = {1: 1.5, 2: 2.25, 3: 2.625, 4: 2.8125}
"""Halfway from where it is to the weighted mean 3, again and again; from 0."""


def weights(here: World) -> dict[int, float]:
    """By rounds."""
    return {number: found["weight"] for number, found in here.status().history.items()}


def after_rounds(*rounds: int) -> object:
    return pytest.approx({number: AFTER_ROUNDS[number] for number in rounds})


def test_a_drained_client_and_a_killed_one_come_back_elsewhere_as_the_same_nodes(tmp_path: Path) -> None:
    spec = job_spec("mean", 2, TWO, epoch_s="4.0")
    with world(tmp_path, spec, MEAN) as here:
        here.place_all()
        here.wait_for_phase(Phase.RUNNING)
        before = here.node_ids()
        # One gets a notice in the middle of its epoch, and another instance, where it goes on.
        drained = here.assignments["client-a"]
        saved = here.agents["client-a"].workdir / "flower/story.a/state" / SAVED
        here.wait_for(lambda _: saved.exists())
        here.runner.drain(drained, [drained.nodes[0].instance_id], 30.0)
        here.wait_for(lambda reports: reports["client-a"].phase is Phase.LOST)
        here.stop("client-a")
        here.place("client-a")
        here.wait_for(lambda reports: reports["client-a"].executions_done >= 1)
        printed = here.runner.log(here.assignments["client-a"], 0, 1 << 20).content.decode()
        assert re.search(r"trained a node \d+, steps after [1-9]", printed), printed
        # The other's instance ends without a notice; it would count as online for a minute.
        here.agents["client-b"].destroy()
        here.place("client-b")
        # And the scheduler dies.
        here.restart_scheduler()
        here.wait_for_phase(Phase.SUCCEEDED)
        assert here.node_ids() == before
        assert here.job().record.runs == 1
        assert weights(here) == after_rounds(1, 2)


@pytest.mark.nightly
def test_a_killed_superlink_comes_back_and_the_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    spec = job_spec("mean", 2, TWO, epoch_s="2.0")
    with world(tmp_path, spec, MEAN) as here:
        # One before it was killed while it made its tables: with these, none would start.
        data = JobFiles(tmp_path / "state" / "story").shown / "data"
        data.mkdir(parents=True)
        with closing(sqlite3.connect(data / "superlink.db")) as half_made:
            half_made.execute("CREATE TABLE task (task_id INTEGER)")
        here.place_all()
        here.wait_for(lambda reports: reports["client-a"].executions_done == 1)
        (first,) = superlinks(tmp_path)
        os.kill(first, signal.SIGKILL)
        reports = here.wait_for_phase(Phase.SUCCEEDED)
        record = here.job().record
        assert first not in superlinks(tmp_path)
        assert record.runs == 2
        assert reports["client-a"].attempt == 1
        status = here.status()
        assert (status.run, status.resumed_from) == (2, "server")
        assert weights(here) == after_rounds(1, 2)
        lines = [command(process.pid) for process in tagged(here.agents["client-a"].instance_id)]
        assert sum("flower-supernode" in line for line in lines) <= 1


@pytest.mark.nightly
def test_a_server_killed_ten_times_repeats_a_round_each_time_at_most(tmp_path: Path) -> None:
    """Its whole instance, at any moment of a round; each time another one takes its place."""
    rounds, kills = 12, 10
    spec = placed(job_spec("mean", rounds, TWO, epoch_s="1.0"))
    with world(tmp_path, spec, MEAN) as here:
        here.runner.check(spec, str(here.workdir))
        here.place_all()

        def while_clients_are_replaced(rounds: int, reports: Mapping[str, TaskReport]) -> bool:
            # As the scheduler does: Flower can lose the second answer of a client that it has asked twice.
            for task in ("client-a", "client-b"):
                if reports[task].phase is Phase.LOST:
                    assert "it hangs" in reports[task].message
                    here.stop(task)
                    here.place(task)
            return reports["server"].executions_done >= rounds

        for killed in range(1, kills + 1):
            here.wait_for(partial(while_clients_are_replaced, killed))
            time.sleep(0.7 * killed % 4)
            here.agents["server"].destroy()
            if killed == 5:
                here.restart_scheduler()
            here.stop("server")
            here.place("server")
        here.wait_for(partial(while_clients_are_replaced, rounds), after_the_end=True)
        reports = here.wait_for_phase(Phase.SUCCEEDED)
        assert {report.executions_done for report in reports.values()} == {rounds}
        status, record = here.status(), here.job().record
        assert (record.runs, record.starts) == (kills + 1, 0)
        assert sorted(status.history) == list(range(1, rounds + 1))
        # Halfway to the mean in each round: one that was lost, or taken in twice, would show.
        assert weights(here) == pytest.approx({n: 3 * (1 - 0.5**n) for n in range(1, rounds + 1)})
        for task in ("client-a", "client-b"):
            attempt = reports[task].attempt
            log = here.agents[task].client.last_log(f"flower.story.{task}.{attempt}", 1 << 20)
            assert attempt > 1 or rounds <= log.count(b"trained") <= rounds + kills
        last = checkpoints.load(here.workdir / "flower/checkpoints")
        assert last is not None
        assert last.round == rounds


@pytest.mark.nightly
def test_what_is_stopped_in_the_middle_of_a_round_is_given_up(tmp_path: Path) -> None:
    """A SuperNode whose agent goes on, a whole instance, and the SuperLink: all of them with SIGSTOP."""
    spec = job_spec("mean", 3, TWO, epoch_s="2.0")
    with world(tmp_path, spec, MEAN, node_silent_s=10.0, superlink_silent_s=15.0) as here:
        here.place_all()
        here.wait_for(lambda reports: reports["client-a"].executions_done == 1)
        for process in tagged(here.agents["client-a"].instance_id):
            if "spotweave.deploy.node" not in command(process.pid):
                os.kill(process.pid, signal.SIGSTOP)
        for process in tagged(here.agents["client-b"].instance_id):
            os.kill(process.pid, signal.SIGSTOP)
        lost: dict[str, str] = {}

        def both_lost(reports: Mapping[str, TaskReport]) -> bool:
            found = [one for one in reports.items() if one[1].phase is Phase.LOST and one[0] not in lost]
            for task, report in found:
                lost[task] = report.message
                here.stop(task)
            return len(lost) == 2

        here.wait_for(both_lost, after_the_end=True)
        assert "its SuperNode has been offline for" in lost["client-a"]
        assert "its node has not answered for" in lost["client-b"]
        (first,) = superlinks(tmp_path)
        os.kill(first, signal.SIGSTOP)
        for task in spec.tasks:
            here.place(task)
        here.wait_for_phase(Phase.SUCCEEDED)
        assert first not in superlinks(tmp_path)
        assert weights(here) == after_rounds(1, 2, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("cloud", [S3, Gcs])
def test_another_machine_goes_on_after_the_round_that_is_kept(tmp_path: Path, cloud: type[S3]) -> None:
    spec = job_spec("mean", 4, TWO, epoch_s="1.0")
    objects = cloud().objects()
    with world(tmp_path, spec, MEAN, checkpoints=objects) as here:
        here.place_all()
        here.wait_for(lambda reports: reports["client-a"].details["kept_round"] == "2")
        here.lose_everything()
        here.place_all()
        here.wait_for_phase(Phase.SUCCEEDED)
        status = here.status()
        assert (status.run, status.resumed_from) == (2, "server")
        assert {name: client.delivered for name, client in status.clients.items()} == {"a": 2, "b": 2}
        # What it began with was evaluated again; the first round was not made again.
        assert weights(here) == after_rounds(2, 3, 4)
        for task in here.assignments:
            here.stop(task)
        here.forget()
        assert objects.names("story/") == ["story/run-000002/round-000004.npz"]


def superlinks(folder: Path) -> list[int]:
    """PIDs of the SuperLinks that run."""
    return [pid for pid in left_behind(folder / "state") if "flower.guarded" in command(pid)]


def test_users_errors_fail_with_their_messages(tmp_path: Path) -> None:
    """First one client's data are missing, then the server cannot evaluate what they made."""
    with world(tmp_path, job_spec("mean", 2, TWO, fault="both"), MEAN) as here:
        here.place_all()
        seen: set[str] = set()

        def failed(reports: Mapping[str, TaskReport]) -> bool:
            seen.update(command(process.pid) for process in procfs.scan())
            return reports["client-b"].phase is Phase.FAILED

        reports = here.wait_for(failed)
        for program in ("flwr-serverapp", "flwr-clientapp"):
            (line, *_) = [one for one in seen if program in one]
            assert "--token-file\0/proc/self/fd/" in line
        assert not any("--token\0" in line for line in seen)
        assert reports["client-b"].message == "ValueError: no data here"
        assert reports["client-a"].phase in (Phase.RUNNING, Phase.WAITING)
        here.place("client-b", here.agents["client-b"])
        reports = here.wait_for(lambda reports: all(one.phase is Phase.FAILED for one in reports.values()))
        assert {report.message for report in reports.values()} == {"KeyError: 'no such column'"}
        assert here.job().record.runs == 1


# Real trainings whose SuperLink and ServerApp are in a sandbox, or use more than they may.


def app_with(folder: Path, code: str) -> Path:
    """The app, with a ServerApp that does something else first."""
    app = folder / "apps" / "mean"
    shutil.copytree(MEAN, app)
    place = app / "mean" / "server_app.py"
    text = place.read_text()
    place.write_text(text.replace("    def evaluate(", f"{code}\n    def evaluate(", 1))
    return app


def test_a_server_app_gets_at_nothing_but_its_jobs_own_and_trains(tmp_path: Path) -> None:
    # Given a deployment's secrets next to the runner's state, and what another job has there,
    try:
        sandbox = choose(Mode.AUTO, trust=False, state=tmp_path, numbers=(61184, 65519))
    except SandboxError as error:
        pytest.skip(str(error))
    secrets = [tmp_path / "store.db.key", tmp_path / "state" / "other" / "keys" / "control.token"]
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
        path.chmod(0o600)
    wanted = [
        *map(str, secrets),
        str(tmp_path / "state" / "story" / "job.json"),
        str(tmp_path / "state" / "story" / "process" / "command.json"),
        f"/proc/{os.getpid()}/environ",
    ]
    code = f"""
    import json
    got = []
    for path in {wanted!r}:
        try:
            open(path, "rb").read(1)
            got.append(path)
        except OSError:
            pass
    json.dump(got, open("got.json", "w"))
"""
    # when it trains,
    with world(tmp_path, job_spec("mean", 2, TWO), app_with(tmp_path, code), sandbox=sandbox) as here:
        here.place_all()
        here.wait_for_phase(Phase.SUCCEEDED)
        # then it was stopped by nothing, and has got nothing.
        assert json.loads((here.workdir / "got.json").read_text()) == []
        here.forget()
        assert not (tmp_path / "state" / "story").exists()


def test_a_server_app_over_a_limit_has_failed_with_its_reason(tmp_path: Path) -> None:
    code = """
    import subprocess, time
    many = [subprocess.Popen(["sleep", "600"]) for _ in range(40)]
    time.sleep(600)
"""
    limits = Limits(processes=30)
    with world(tmp_path, job_spec("mean", 2, TWO), app_with(tmp_path, code), limits=limits) as here:
        here.place_all()
        messages = {report.message for report in here.wait_for_phase(Phase.FAILED).values()}
        assert messages == {"it had more than 30 processes (runners.driver_processes_most)"}
