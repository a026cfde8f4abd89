"""The local provider, with real processes: the contract, and what only this provider can do."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.node import procfs
from spotweave.deploy.node.api import ProcessSpec
from spotweave.deploy.node.client import NodeClient, NodeUnreachable
from spotweave.deploy.providers.base import Provider, RefusedError
from spotweave.deploy.providers.local.config import LocalConfig
from spotweave.deploy.providers.local.provider import LocalProvider
from spotweave.deploy.providers.local.records import Record, StateFolder, instance_id
from spotweave.deploy.yamlfile import ConfigError
from tests.deploy.node.agents import ROOT, alive, command, wait_until
from tests.deploy.providers.contract import DEPLOYMENT, ProviderContract, by_id, request
from tests.envs.traces_cases import write_trace

pytestmark = pytest.mark.real

Running = tuple[str, NodeClient]
OPEN, CLOSED, FIRM = "local/za/small/spot", "local/zb/small/spot", "local/za/small/on_demand"


class LocalWorld:
    """A provider in a folder of its own. Recorded: za is up for 1000 s, then down for 1000 s; zb is down."""

    open_offer, closed_offer, price_usd_hour = OPEN, CLOSED, 0.3

    def __init__(self, folder: Path) -> None:
        write_trace(folder / "za", "time_s,available\n0,1\n1000,0\n2000,1\n", tick_s=None)
        write_trace(folder / "zb", "time_s,available\n0,0\n1000,0\n", tick_s=None)
        spot = {"instance_type": "small", "market": "spot", "price_usd_hour": 0.3, "quota": 2}
        self.folder = folder
        self.content: dict[str, object] = {
            "state": "state",
            "imds_poll_s": 0.1,
            "offers": [
                {**spot, "zone": "za", "trace": "za", "notice_s": 3.0, "free_first_s": 3600.0},
                {**spot, "zone": "zb", "trace": "zb"},
                {**spot, "zone": "za", "market": "on_demand", "price_usd_hour": 1.0, "trace": "za"},
            ],
        }

    @property
    def state(self) -> StateFolder:
        return StateFolder((self.folder / "state").resolve())

    def config(self, **changes: object) -> LocalConfig:
        return LocalConfig.model_validate({**self.content, **changes, "folder": self.folder})

    def provider(self) -> Provider:
        return self.local()

    def local(self, **changes: object) -> LocalProvider:
        return LocalProvider(self.config(**changes))

    def settle(self) -> None:
        def launching() -> bool:
            return any(
                report.state is InstanceState.LAUNCHING
                for deployment in (DEPLOYMENT, "other")
                for report in self.local().describe(deployment)
            )

        wait_until(lambda: not launching())

    def interrupt(self, instance_id: str) -> None:
        self.local().interrupt(instance_id, None)

    def running(self, asked: LaunchRequest, provider: LocalProvider | None = None) -> tuple[str, NodeClient]:
        """Launch and wait for the node agent."""
        name = (provider or self.local()).launch(asked).instance_id
        self.settle()
        report = self.report(name)
        return name, NodeClient(report.address, report.node_port, asked.node_token, report.certificate)

    def known(self, name: str) -> Record:
        record = self.state.find(name)
        assert record is not None
        return record

    def change(self, name: str, **changes: object) -> None:
        """As if whoever writes its record had been interrupted."""
        with self.state.locked():
            self.state.save(self.known(name).changed(**changes))

    def init(self, name: str) -> int:
        """The PID."""
        init = self.state.init(name)
        assert init is not None
        return init.pid

    def report(self, name: str) -> InstanceReport:
        return by_id(self.local().describe(DEPLOYMENT))[name]

    def processes(self) -> list[procfs.Process]:
        return [one for found in self.state.processes(list(procfs.scan())).values() for one in found]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path)
    try:
        yield world
    finally:
        # Whatever a test did: nothing of it stays.
        assert procfs.kill_all(lambda _: world.processes())


@pytest.fixture
def running(world: LocalWorld) -> Running:
    return world.running(request(OPEN))


def sleeper(name: str = "work", *script: str) -> ProcessSpec:
    return ProcessSpec(process_id=name, argv=("sh", "-c", *(script or ("sleep 1000",))), stop_grace_s=30)


class TestContract(ProviderContract):
    """All that every provider keeps."""


def test_an_instance_is_a_node_with_its_own_address(world: LocalWorld) -> None:
    asked = [request(OPEN), request(OPEN)]
    statuses = [world.running(one)[1].status() for one in asked]
    assert [status.instance_id for status in statuses] == [instance_id(one.client_token) for one in asked]
    addresses = {status.address for status in statuses}
    assert len(addresses) == 2
    assert all(address.startswith("127.") for address in addresses)


def test_a_user_killed_between_launch_and_answer_gets_the_same_instance(world: LocalWorld) -> None:
    """A scheduler is killed at some moment of a launch, from before its intent to after the birth."""
    (world.folder / "config.json").write_text(json.dumps(world.content))
    script = (
        "import sys; from pathlib import Path\n"
        "from spotweave.deploy.providers.local.config import LocalConfig\n"
        "from spotweave.deploy.providers.local.provider import LocalProvider\n"
        "from tests.deploy.providers.contract import request\n"
        "provider = LocalProvider(LocalConfig.load(Path(sys.argv[1])))\n"
        "print('now', flush=True)\n"
        "provider.launch(request(sys.argv[2], sys.argv[3]))\n"
    )
    command = [sys.executable, "-c", script, str(world.folder / "config.json"), OPEN]
    for delay_s in (0.0, 0.005, 0.02, 0.05, 0.1, 0.3):
        token = secrets.token_hex(8)
        with subprocess.Popen([*command, token], cwd=ROOT, stdout=subprocess.PIPE) as scheduler:
            assert scheduler.stdout is not None
            assert scheduler.stdout.readline() == b"now\n"
            time.sleep(delay_s)
            scheduler.kill()
        # It comes back and asks again with the same token: there is exactly one instance, and one init.
        report = world.local().launch(request(OPEN, token))
        assert report.instance_id == instance_id(token)
        assert list(by_id(world.local().describe(DEPLOYMENT)))[-1] == report.instance_id
        assert len([one for one in world.processes() if one.session == one.pid]) == 1
        world.local().terminate([report.instance_id])
        assert not world.processes()


def test_two_threads_with_one_token_get_one_instance(world: LocalWorld) -> None:
    asked, found = request(OPEN), []

    def launch() -> None:
        found.append(world.local().launch(asked).instance_id)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [instance_id(asked.client_token)] * 4
    assert len({one.session for one in world.processes()}) == 1


def test_notice_drain_and_kill_while_no_scheduler_runs(world: LocalWorld) -> None:
    # The market is down after 1000 recorded seconds, in 4 s of ours, with a notice of 3 s.
    name, client = world.running(request(OPEN), world.local(time_factor=250.0))
    # This saves its work when it is told to stop, and then goes on as if nothing were.
    client.start_process(sleeper("saver", "trap 'echo saved' TERM; echo ready; while :; do sleep 0.05; done"))
    client.start_process(sleeper("child", "setsid sleep 1000 & sleep 1000"))
    wait_until(lambda: client.log("saver") == b"ready\n")
    wait_until(lambda: client.status().notice_s is not None)
    status = client.status()
    assert status.draining
    wait_until(lambda: b"saved" in client.log("saver"))
    noticed = world.report(name)
    assert noticed.state is InstanceState.RUNNING
    assert noticed.notice_s is not None
    assert noticed.notice_s == pytest.approx(status.notice_s, abs=1.0)
    # At its time all of it ends, although nobody asks.
    wait_until(lambda: not world.processes())
    ended = world.report(name)
    assert (ended.state, ended.by_provider) == (InstanceState.TERMINATED, True)
    assert ended.ended_s is not None
    assert ended.ended_s >= noticed.notice_s
    with pytest.raises(NodeUnreachable):
        client.status()


def test_a_missed_notice_is_only_an_end(world: LocalWorld) -> None:
    offers = [{**offer, "notice_missed": 1.0} for offer in world.config().model_dump()["offers"]]
    name, client = world.running(request(OPEN), world.local(offers=offers, time_factor=300.0))
    with suppress(NodeUnreachable):
        while True:
            assert client.status().notice_s is None
            time.sleep(0.05)
    report = world.report(name)
    assert (report.state, report.by_provider, report.notice_s) == (InstanceState.TERMINATED, True, None)


def test_spot_ends_with_its_capacity_and_on_demand_never(world: LocalWorld) -> None:
    provider = world.local()
    spot, firm = (world.known(provider.launch(request(one)).instance_id).fate for one in (OPEN, FIRM))
    assert firm.kill_s is None
    assert spot.notice_s == pytest.approx(world.state.origin_s() + 1000.0)
    assert spot.kill_s == pytest.approx(world.state.origin_s() + 1003.0)
    write_trace(world.folder / "za", "time_s,price_usd_hour\n0,0.3\n1000,0.5\n2000,0.5\n", tick_s=None)
    at_any_price = world.known(world.local().launch(request(OPEN)).instance_id).fate
    assert at_any_price.kill_s is None


def test_a_rehearsed_interruption_with_notice(world: LocalWorld, running: Running) -> None:
    name, client = running
    world.local().interrupt(name, 2.0)
    assert world.report(name).rebalance
    wait_until(lambda: client.status().rebalance and client.status().draining)
    wait_until(lambda: not world.processes())
    assert world.report(name).by_provider
    with pytest.raises(RefusedError):
        world.local().interrupt(name, 2.0)


def test_terminate_is_certain(world: LocalWorld, running: Running) -> None:
    """Of processes that leave their session, ignore every signal, and hide their variables."""
    name, client = running
    seconds = f"4242.{secrets.randbelow(10**9)}"

    def hidden() -> list[procfs.Process]:
        return [one for one in alive(seconds) if "SPOTWEAVE_NODE_ID" not in procfs.environment(one.pid)]

    try:
        client.start_process(sleeper("stubborn", "trap '' TERM INT HUP; while :; do sleep 1; done"))
        client.start_process(sleeper("runaway", "setsid sh -c 'sleep 1000 & sleep 1000' & sleep 1000"))
        client.start_process(sleeper("hidden", f"env -i sleep {seconds} & sleep 1000"))
        wait_until(lambda: len(world.processes()) >= 6 and hidden())
        world.local().terminate([name])
        assert not world.processes()
        assert not hidden()
    finally:
        assert procfs.kill_all(lambda _: hidden())


def test_what_a_job_makes_of_its_agents_status_is_its_trouble(world: LocalWorld, running: Running) -> None:
    name, _ = running
    other = world.local().launch(request(OPEN)).instance_id
    status = world.state.workdir(name) / ".agent" / "status.json"
    swollen = json.dumps({"port": 10**9, "pid": world.init(name)})
    for poison in ("{", "[]", swollen, "x" * 100_000, None):
        status.unlink()
        if poison is None:
            os.mkfifo(status)
        else:
            status.write_text(poison)
        reports = by_id(world.local().describe(DEPLOYMENT))
        assert reports[name].node_port == 0
        assert reports[other].state.live


def test_an_init_that_is_killed_takes_its_instance_with_it(world: LocalWorld, running: Running) -> None:
    name, client = running
    client.start_process(sleeper())
    killed_s = time.time()
    os.kill(world.init(name), signal.SIGKILL)
    time.sleep(1.5)
    report = world.report(name)
    assert not world.processes()
    assert (report.state, report.by_provider) == (InstanceState.TERMINATED, True)
    assert report.ended_s is not None
    # Its last sign of life, not the moment in which somebody looked.
    assert report.launched_s <= report.ended_s <= killed_s + 0.1


def test_an_init_that_hangs_is_switched_off_by_whoever_looks(world: LocalWorld, running: Running) -> None:
    name, _ = running
    os.kill(world.init(name), signal.SIGSTOP)
    world.change(name, fate=world.known(name).fate.model_copy(update={"kill_s": time.time() - 60.0}))
    report = world.report(name)
    assert (report.state, report.by_provider) == (InstanceState.TERMINATED, True)
    assert not world.processes()


def test_half_done_terminations_are_finished_with_their_cause(world: LocalWorld) -> None:
    """Callers were killed after they had written their intent."""
    names = [world.local().launch(request(OPEN)).instance_id for _ in range(2)]
    for name, by_provider in zip(names, (False, True), strict=True):
        world.change(name, ending_s=time.time(), by_provider=by_provider)
    reports = by_id(world.local().describe(DEPLOYMENT))
    assert [reports[name].by_provider for name in names] == [False, True]
    assert {report.state for report in reports.values()} == {InstanceState.TERMINATED}
    assert not world.processes()


def test_leaked_processes_are_found_by_their_tag(world: LocalWorld, running: Running) -> None:
    name, _ = running
    world.local().terminate([name])
    tags = {"SPOTWEAVE_NODE_ID": name, "SPOTWEAVE_NODE_STATE": str(world.state.path)}
    leaked = subprocess.Popen(["sleep", "1000"], env=tags)
    other = subprocess.Popen(["sleep", "1000"], env={**tags, "SPOTWEAVE_NODE_STATE": "/elsewhere"})
    try:
        world.local().describe(DEPLOYMENT)
        assert [one.pid for one in world.processes()] == []
        assert leaked.wait() == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (leaked, other):
            process.kill()
            process.wait()


def test_an_instance_is_born_once(world: LocalWorld, running: Running) -> None:
    name, _ = running
    init_file = world.state.folder(name) / "init.json"

    def second_birth() -> int:
        command = [sys.executable, "-m", "spotweave.deploy.providers.local.init", str(world.state.path), name]
        return subprocess.run(command, cwd=ROOT, check=False).returncode

    before = init_file.read_bytes()
    # While it lives, even if the note of its birth were lost,
    init_file.unlink()
    assert second_birth() != 0
    assert not init_file.exists()
    init_file.write_bytes(before)
    # And after its end.
    world.local().terminate([name])
    assert second_birth() != 0
    assert init_file.read_bytes() == before
    assert not world.processes()


def test_an_intent_without_a_birth_is_no_instance(world: LocalWorld) -> None:
    asked = request(OPEN)
    name = world.local().launch(asked).instance_id
    world.local().terminate([name])
    # Only the intent is there, as it is before the birth.
    (world.state.folder(name) / "init.json").unlink()
    world.change(name, ending_s=None, ended_s=None)
    # Nobody sees it, it takes no quota, and the token makes it real.
    assert not world.local().describe(DEPLOYMENT)
    assert world.local().launch(asked).state is InstanceState.LAUNCHING
    assert len(world.local().describe(DEPLOYMENT)) == 1


def test_ended_instances_are_kept_an_hour_and_their_tokens_for_ever(world: LocalWorld) -> None:
    asked = request(OPEN)
    name = world.local().launch(asked).instance_id
    world.local().terminate([name])
    world.change(name, ended_s=time.time() - 3700.0)
    assert list(by_id(world.local().describe(DEPLOYMENT))) == [name]
    assert not world.local().describe(DEPLOYMENT)
    assert not world.state.folder(name).exists()
    assert world.local().launch(asked).state is InstanceState.TERMINATED
    assert not world.processes()


def test_an_instance_whose_folder_is_lost_switches_itself_off(world: LocalWorld, running: Running) -> None:
    name, client = running
    client.start_process(sleeper())
    (world.state.folder(name) / "instance.json").unlink()
    wait_until(lambda: not world.processes())


def test_secrets_are_private_and_in_no_argument_or_environment(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(OPEN)
    monkeypatch.setenv("CLOUD_SECRET", "do-not-inherit")
    _, client = world.running(asked)
    monkeypatch.delenv("CLOUD_SECRET")
    client.start_process(sleeper())
    files = [path for path in world.state.path.rglob("*") if path.is_file()]
    holding = [path for path in files if asked.node_token.encode() in path.read_bytes()]
    assert sorted(path.name for path in holding) == ["config.json", "instance.json"]
    for path in files:
        assert path.stat().st_mode & 0o077 == 0, path
    for process in world.processes():
        assert asked.node_token not in command(process.pid)
        assert asked.node_token not in repr(procfs.environment(process.pid))
        assert "CLOUD_SECRET" not in procfs.environment(process.pid)


def test_an_instance_has_its_cores(world: LocalWorld, running: Running) -> None:
    name, client = running
    started = client.start_process(sleeper())
    cores = world.known(name).cpus
    assert os.sched_getaffinity(started.pid) == set(cores)
    assert len(cores) == 1


def test_the_market_goes_on_after_a_restart(world: LocalWorld) -> None:
    provider = world.local()
    world.state.path.joinpath("origin").write_text(repr(time.time() - 1500.0))
    offers = {offer.offer_id: offer for offer in world.local().offers()}
    assert {offer.offer_id: offer.available for offer in provider.offers()}[OPEN]
    assert not offers[OPEN].available
    assert offers[OPEN].spell_s == pytest.approx(500.0, abs=5.0)
    assert offers[OPEN].up_ratio == pytest.approx(2 / 3, abs=0.01)
    assert offers[OPEN].mean_up_s == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[", "is not YAML"),
        ("- 1", "expected a mapping with state, offers"),
        ("state: s\noffers: []", "offers"),
        ("state: s\noffres: []", "offres"),
        ("state: s\noffers: [{instance_type: a, market: spot}]", "give it a trace or a price_usd_hour"),
        ("state: s\noffers: [{instance_type: a, market: spot, trace: nowhere}]", "nowhere"),
    ],
)
def test_a_bad_configuration_is_named_in_one_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "local.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        LocalProvider(LocalConfig.load(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()
