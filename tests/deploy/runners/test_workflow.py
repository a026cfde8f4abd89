"""The runner of workflows: two clusters whose Spark starts at once, real node agents, real files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.model.jobs import JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.providers.local.records import loopback_address
from spotweave.deploy.runners.base import RunnerError, StartingError
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.spark.runner import SparkRunner
from spotweave.deploy.runners.spark.settings import SparkSettings
from spotweave.deploy.runners.workflow.files import Mover, Part, WorkflowSettings, digest_of
from spotweave.deploy.runners.workflow.runner import WorkflowRunner
from tests.deploy.node.agents import AgentProcess, agents, wait_until
from tests.deploy.runners.patience import Asked, insist, left_behind
from tests.deploy.runners.spark.cases import install
from tests.deploy.workflows import file, step, workflow

JOB = "flow-1"
# Adds up the numbers of all files but the last, which it writes; it waits while there is a file HOLD.
ADD = """
import os, pathlib, sys, time
*sources, target = map(pathlib.Path, sys.argv[1:])
while os.path.exists("hold"):
    time.sleep(0.02)
files = [one for path in sources for one in (sorted(path.iterdir()) if path.is_dir() else [path])]
target.write_text(str(sum(int(one.read_text()) for one in files)))
with open("ran", "a") as ran:
    ran.write(target.name + " ")
"""
# The numbers of a file, each in a file of its own, in a folder.
SPLIT = """
import pathlib, sys
source, target = map(pathlib.Path, sys.argv[1:])
target.mkdir()
for k, number in enumerate(source.read_text().split()):
    (target / f"part-{k}").write_text(number)
"""
FLOW = (
    step("split", "numbers", "parts", args=["{numbers}", "{parts}"]),
    step("add", "parts open", "sum", args=["{parts}", "{open}", "{sum}"]),
)
FILES = (file("numbers", "n", stays=True), file("open", "n"))


class Story(Asked[WorkflowRunner]):
    """A job's folder, the data of two clusters, and the runner of the moment."""

    def __init__(self, folder: Path, spec: JobSpec) -> None:
        self.folder, self.spec = folder, spec
        self.state = folder / "the state"
        self.workdir = folder / "jobs" / JOB
        self.workdir.mkdir(parents=True)
        for name, code in (("split", SPLIT), ("add", ADD)):
            (self.workdir / f"{name}.py").write_text(code)
        self.data = {region: folder / "data of" / region for region in ("n", "s")}
        for place in self.data.values():
            (place / "data").mkdir(parents=True)
        (self.data["n"] / "data" / "numbers").write_text("1 2 3")
        (self.data["n"] / "data" / "open").write_text("10")
        self.address = loopback_address()
        self.restart()

    def restart(self) -> None:
        spark = SparkSettings(state=self.folder, address=self.address, lost_after_s=0.0)
        self.runner = WorkflowRunner(WorkflowSettings(self.state, spark, self.data))
        self.runner.start()

    def on(self, agent: AgentProcess, task: str, region: str, attempt: int = 1) -> Assignment:
        node = replace(agent.node(), region=region)
        return Assignment(TaskKey(JOB, task), attempt, self.spec, (node,), str(self.workdir))

    def run(self, assignment: Assignment) -> TaskReport:
        return self.ended(self.ensure(assignment))

    def kept(self, region: str, name: str) -> Path:
        return self.workdir / "workspace" / f"at-{region}" / "files" / name


Nodes = tuple[AgentProcess, AgentProcess]


@contextmanager
def story_of(folder: Path, patch: pytest.MonkeyPatch, spec: JobSpec) -> Iterator[Story]:
    home = install(folder / "spark home")
    for module in ("spark", "workflow"):
        patch.setattr(f"spotweave.deploy.runners.{module}.runner.find_spark", lambda: home)
    told = Story(folder, spec)
    yield told
    insist(told.runner.shutdown)
    assert not left_behind(told.state)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    with story_of(tmp_path, monkeypatch, workflow(*FLOW, files=FILES)) as told:
        yield told


@pytest.fixture
def nodes(story: Story) -> Iterator[Nodes]:
    """Of a cluster in the north, where the first step has run, and of one in the south."""
    with agents(story.folder, 2) as (north, south):
        split = story.run(story.on(north, "split", "n"))
        assert (split.phase, split.saved_region) == (Phase.SUCCEEDED, "n")
        yield north, south


@pytest.mark.real
def test_steps_run_on_clusters_of_their_own_and_their_files_follow(story: Story, nodes: Nodes) -> None:
    story.runner.check(story.spec, str(story.workdir))
    assert sorted(os.listdir(story.kept("n", "parts"))) == ["part-0", "part-1", "part-2"]
    assert not story.kept("s", "parts").exists()
    add = story.run(story.on(nodes[1], "add", "s"))
    assert (add.phase, add.saved_region, add.details) == (Phase.SUCCEEDED, "s", {"wrote_bytes": "2"})
    # 1 + 2 + 3 of the step in the north, 10 of the north's data.
    assert story.kept("s", "sum").read_text() == "16"
    # Two masters, each with its own state; the private file is where it was, and nowhere else.
    masters = sorted((story.state / "clusters").glob("*/master/ports.json"))
    assert [one.parts[-3] for one in masters] == ["at-n", "at-s"]
    assert len({one.read_text() for one in masters}) == 2
    assert [one for one in story.workdir.rglob("*") if one.is_file() and one.read_text() == "1 2 3"] == []
    story.forget(JOB)
    assert story.kept("s", "sum").exists()
    assert list((story.state / "jobs").iterdir()) == []


@pytest.mark.real
def test_a_step_waits_for_the_master_of_its_cluster(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, late = SparkRunner.ensure, iter(range(2))

    def slow(cluster: SparkRunner, assignment: Assignment) -> None:
        if next(late, None) is not None:
            raise StartingError("the Spark master is starting")
        begin(cluster, assignment)

    monkeypatch.setattr(SparkRunner, "ensure", slow)
    with AgentProcess(story.folder) as agent:
        split = story.on(agent, "split", "n")
        with pytest.raises(StartingError, match="the Spark master is starting"):
            story.runner.ensure(split)
        # Asked how it is, it begins again, as after a restart, and is told once more to wait.
        wait_until(lambda: story.runner.reports([split])[0].phase is not Phase.STARTING)
        assert story.ended(split).phase is Phase.SUCCEEDED
    assert next(late, None) is None


@pytest.mark.real
def test_private_data_are_read_nowhere_else_whoever_asks(story: Story) -> None:
    with AgentProcess(story.folder) as agent:
        at = story.on(agent, "split", "s")
        with pytest.raises(RunnerError, match="step 'split' may run in n only, its nodes are in s"):
            story.runner.ensure(at)
        # A runner that was started anew is asked for it as if it had begun.
        story.restart()
        wait_until(lambda: story.report(at).phase.ended)
        assert not agent.client.status().processes
    assert not (story.workdir / "workspace").exists()


@pytest.mark.real
def test_what_is_not_there_as_it_was_written_is_fetched_again(story: Story, nodes: Nodes) -> None:
    _, south = nodes
    # One of three files is there, and is not what was written.
    story.kept("s", "parts").mkdir(parents=True)
    story.kept("s", "parts").joinpath("part-1").write_text("9")
    assert story.run(story.on(south, "add", "s")).phase is Phase.SUCCEEDED
    assert story.kept("s", "sum").read_text() == "16"


@pytest.mark.real
def test_what_is_not_what_was_written_is_not_computed_with(story: Story, nodes: Nodes) -> None:
    north, south = nodes
    story.kept("n", "parts").joinpath("part-1").write_text("7")
    at = story.on(south, "add", "s")
    with pytest.raises(RunnerError, match="part-1 is not what was written: its SHA-256 is not"):
        story.runner.ensure(at)
    # The same on the cluster that wrote it.
    with pytest.raises(RunnerError, match="part-1 is not what was written"):
        story.runner.ensure(story.on(north, "add", "n"))
    assert not (story.workdir / "ran").exists()


@pytest.mark.real
def test_a_step_goes_on_under_a_new_scheduler_and_is_not_run_twice(story: Story, nodes: Nodes) -> None:
    north, south = nodes
    (story.workdir / "hold").touch()
    first = story.ensure(story.on(south, "add", "s"))
    assert story.report(first).phase is not Phase.SUCCEEDED
    story.restart()
    assert not story.report(first).phase.ended
    (story.workdir / "hold").unlink()
    attempt = story.state / "clusters" / "at-s" / "jobs" / JOB / "add.1"
    wait_until((attempt / "driver" / "result.json").exists)
    # It came to its end while nobody looked; the next attempt, in the other cluster, takes that over.
    story.restart()
    told = story.run(story.on(north, "add", "n", 2))
    assert (told.phase, told.saved_region) == (Phase.SUCCEEDED, "s")
    assert (story.workdir / "ran").read_text() == "sum "
    assert not story.kept("n", "sum").exists()


@pytest.mark.real
def test_an_interrupted_step_starts_over_elsewhere(story: Story, nodes: Nodes) -> None:
    north, south = nodes
    (story.workdir / "hold").touch()
    first = story.ensure(story.on(south, "add", "s"))
    story.stop(first)
    assert story.report(first).phase is Phase.LOST
    (story.workdir / "hold").unlink()
    told = story.run(story.on(north, "add", "n", 2))
    assert (told.phase, told.saved_region) == (Phase.SUCCEEDED, "n")
    assert (story.workdir / "ran").read_text() == "sum "
    assert story.kept("n", "sum").read_text() == "16"
    assert not story.kept("s", "sum").exists()


@pytest.mark.real
def test_a_step_that_does_not_write_its_file_has_failed_and_runs_again(story: Story) -> None:
    (story.workdir / "split.py").write_text("open('ran', 'a').write('x')")
    with AgentProcess(story.folder) as agent:
        told = story.run(story.on(agent, "split", "n"))
        assert told.phase is Phase.FAILED
        assert told.message == "step 'split' ended well and did not write 'parts': use {parts} in its args"
        assert story.run(story.on(agent, "split", "n", 2)).phase is Phase.FAILED
        assert (story.workdir / "ran").read_text() == "xx"
        # A link would have the scheduler read, and move, what the job itself may not.
        (story.workdir / "split.py").write_text("import os, sys; os.symlink('/etc/hostname', sys.argv[2])")
        told = story.run(story.on(agent, "split", "n", 3))
        assert told.phase is Phase.FAILED
        assert "a link, or something else than a file" in told.message


def files(numbers: dict[str, Any]) -> dict[str, Any]:
    return {"files": (numbers, FILES[1])}


def split(**changes: object) -> dict[str, Any]:
    return {"steps": (FLOW[0] | changes, FLOW[1])}


@pytest.mark.real
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resources": {"instances": 2}}, "resources.instances is 2: leave it out, each step says its"),
        ({"profile": {"data_gb": 1.0}}, "profile.data_gb says nothing of a workflow"),
        (files(file("numbers", "west")), "kept in west, and this deployment knows the data of n, s"),
        (files(file("numbers")), "there is no data/numbers next to the job file"),
        (files(file("numbers", "n") | {"path": "../s/data/x"}), "../s/data/x leads elsewhere: give a path"),
        (split(script="no.py"), "step 'split': script 'no.py' does not exist"),
        (split(args=["{sum}"]), "step 'split' names {sum} in its arguments, and"),
        ({"env": {"SPARK_HOME": "x"}}, "step 'split': env sets SPARK_HOME"),
    ],
)
def test_what_cannot_run_is_refused(story: Story, changes: dict[str, Any], message: str) -> None:
    given = {"files": FILES, **changes}
    steps = given.pop("steps", FLOW)
    with pytest.raises(ValueError) as refused:
        story.runner.check(workflow(*steps, **given), str(story.workdir))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.real
def test_braces_that_name_no_file_are_left_alone(story: Story) -> None:
    odd = FLOW[0] | {"args": ["{numbers}", "{parts}", '{"a": 1}', "{other}"]}
    story.spec = workflow(odd, files=FILES)
    code = "import json, os, sys; os.mkdir(sys.argv[2]); json.dump(sys.argv[1:], open('seen', 'w'))"
    (story.workdir / "split.py").write_text(code)
    with AgentProcess(story.folder) as agent:
        assert story.run(story.on(agent, "split", "n")).phase is Phase.SUCCEEDED
    first, _, *others = json.loads((story.workdir / "seen").read_text())
    assert first == str(story.data["n"] / "data" / "numbers")
    assert others == ['{"a": 1}', "{other}"]


# Copies that are cut off, corrupted or not wanted any more.


MIB = 1 << 20


class Copy:
    """Of a large file into a job's folder."""

    def __init__(self, folder: Path) -> None:
        self.source, self.job = folder / "source", folder / "job"
        for place in (self.source, self.job):
            place.mkdir()
        self.big = self.source / "big"
        self.big.write_bytes(bytes(range(256)) * (5 * MIB // 256))
        self.digest = digest_of(self.source, "big")
        self.there = self.job / "there/big"

    def bring(self, wanted: Callable[[], bool] = lambda: True) -> float:
        """As by a process that finds what is on the disk. Returns the MiB that were moved."""
        mover = Mover(JobFolder(self.job), wanted)
        try:
            mover.bring(self.source, "big", "there/big", self.digest)
        finally:
            self.moved = mover.moved_bytes / MIB
        return self.moved

    def cut_off(self) -> None:
        """After 2 of 5 MiB, as by a SIGKILL."""
        left = [True, True, False]
        with pytest.raises(RunnerError, match="not wanted any more"):
            self.bring(lambda: left.pop(0))
        assert self.moved == 2
        assert not (self.job / "there").exists()


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_digest_names_every_file_and_follows_no_link(copy: Copy) -> None:
    source = copy.source
    (source / "folder" / "below").mkdir(parents=True)
    (source / "folder" / "a").write_text("abc")
    (source / "folder" / "below" / "b").write_text("")
    # FIPS 180-2, appendix B.1, and of nothing.
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of(source, "folder") == {
        "a": Part(size=3, sha256=abc),
        "below/b": Part(size=0, sha256=empty),
    }
    assert digest_of(source, "folder/a") == {"": Part(size=3, sha256=abc)}
    for link, to in (("folder/c", "a"), ("folder/d", "below"), ("e", "folder")):
        (source / link).symlink_to(to)
        with pytest.raises(PoisonError, match="is a link"):
            digest_of(source, "e" if link == "e" else "folder")
        (source / link).unlink()


def test_a_copy_that_was_cut_off_goes_on_where_it_was(copy: Copy) -> None:
    copy.cut_off()
    assert copy.bring() == 3
    assert copy.there.read_bytes() == copy.big.read_bytes()
    assert list((copy.job / "workspace" / "moving").iterdir()) == []
    # It is there: nothing is moved.
    assert copy.bring() == 0


def test_a_part_that_was_corrupted_is_copied_again_from_its_beginning(copy: Copy) -> None:
    copy.cut_off()
    (partial,) = (copy.job / "workspace" / "moving").iterdir()
    partial.write_bytes(b"x" + partial.read_bytes()[1:])
    # The other 3 MiB, the wrong checksum, and all 5 once more.
    assert copy.bring() == 8
    assert copy.there.read_bytes() == copy.big.read_bytes()
    # The same where the whole copy is corrupted later.
    copy.there.write_bytes(b"y" + copy.there.read_bytes()[1:])
    copy.bring()
    assert copy.there.read_bytes() == copy.big.read_bytes()


def test_a_source_that_changed_is_refused_and_nothing_takes_its_place(copy: Copy) -> None:
    copy.big.write_bytes(b"other")
    with pytest.raises(RunnerError, match="big is not what was written"):
        copy.bring()
    assert not (copy.job / "there").exists()


def test_a_jobs_program_cannot_have_other_files_written(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (copy.job / "there").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((PoisonError, OSError)):
        copy.bring()
    assert list((tmp_path / "elsewhere").iterdir()) == []
