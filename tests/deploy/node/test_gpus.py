"""What a node says of its GPUs, with a driver that a test plays, and what each sandbox lets through."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.clouds import missing
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.model.gpus import broken_promise, is_model, model_of
from spotweave.deploy.node import gpus as module
from spotweave.deploy.node.api import ProcessSpec
from spotweave.deploy.node.client import NodeClient
from spotweave.deploy.node.gpus import GpuWatch, Nvml, device_files
from spotweave.deploy.providers.base import CapacityError
from spotweave.deploy.providers.local.config import LocalConfig
from spotweave.deploy.providers.local.provider import LocalProvider
from spotweave.deploy.providers.local.records import StateFolder
from spotweave.deploy.security.sandbox import Box, Mode, Sandbox
from spotweave.deploy.security.trial import choose
from tests.deploy.fake_nvml import FakeGpu, FakeNvml, NoPermissionError, NotSupportedError, NVMLError, install
from tests.deploy.node.agents import ROOT, wait_until
from tests.deploy.providers.contract import DEPLOYMENT, request

OFFER = "local/local/box/owned"


def test_the_driver_tells_model_memory_driver_and_use() -> None:
    (gpu,) = Nvml(FakeNvml).look().gpus
    assert (gpu.name, gpu.memory_gib, gpu.driver, gpu.busy) == ("Tesla T4", 15.0, "570.86", 0.25)
    assert (gpu.uuid, gpu.minor, gpu.used_gib) == ("GPU-0", 0, 1.0)


def without_the_package() -> Any:
    raise ImportError("No module named 'pynvml'")


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (FakeNvml, "1 Tesla T4"),
        (without_the_package, "no GPU (nvidia-ml-py is not installed: pip install 'spotweave[gpu]')"),
        (lambda: FakeNvml(missing=True), "no GPU (no working NVIDIA driver: NVML Shared Library Not Found)"),
        (lambda: FakeNvml([]), "no GPU"),
        (lambda: FakeNvml([FakeGpu(fault=NVMLError("lost")), FakeGpu()]), "1 Tesla T4 (GPU 0: lost)"),
        (lambda: FakeNvml([FakeGpu(fault=NoPermissionError("not yours")), FakeGpu()]), "1 Tesla T4"),
        (lambda: FakeNvml([FakeGpu(busy=NotSupportedError("not told"))]), "1 Tesla T4"),
    ],
)
def test_what_does_not_work_is_no_gpu_and_is_said(load: Callable[[], Any], told: str) -> None:
    assert str(Nvml(load).look()) == told


def test_a_driver_that_comes_back_is_found_and_loaded_once() -> None:
    fake = FakeNvml()
    nvml = Nvml(lambda: fake)
    assert len(nvml.look().gpus) == len(nvml.look().gpus) == fake.loaded == 1
    fake.missing = True
    assert nvml.look().gpus == ()
    fake.missing = False
    assert len(nvml.look().gpus) == fake.loaded == 1


def test_a_driver_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STALE_S", -1.0)
    watch = GpuWatch(Nvml(FakeNvml))
    found = watch.seen(within_s=60.0)
    watch.close()
    assert found is not None
    assert "has not answered for 0 s" in found.problem


@pytest.mark.parametrize(
    ("wanted", "name", "same"),
    [
        ("L4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40S", False),
        ("A10", "NVIDIA A10G", False),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100-80GB", "NVIDIA A100-SXM4-40GB", False),
        ("v100", "Tesla V100-SXM2-16GB", True),
        ("RTX-4090", "NVIDIA GeForce RTX 4090", True),
        ("H100", "NVIDIA H200", False),
    ],
)
def test_models_are_known_by_the_words_of_their_names(wanted: str, name: str, same: bool) -> None:
    assert is_model(wanted, name) is same
    assert is_model(model_of(name), name)


@pytest.mark.parametrize(
    ("found", "problem", "told"),
    [
        ([("NVIDIA L4", 22.5), ("NVIDIA L4", 22.5)], "", ""),
        ([], "no driver", "its offer promises 2 L4 of 24 GiB, it has no GPU (no driver)"),
        ([("NVIDIA L4", 22.5), ("Tesla T4", 15.0)], "", "it has 1 L4 of 22 GiB, 1 T4 of 15 GiB"),
        ([("NVIDIA L4", 22.5), ("NVIDIA L4", 11.2)], "", "it has 1 L4 of 22 GiB, 1 L4 of 11 GiB"),
    ],
)
def test_what_a_node_lacks_is_said_in_one_line(
    found: list[tuple[str, float]], problem: str, told: str
) -> None:
    lacks = broken_promise(2, "L4", 24.0, found, problem)
    assert lacks.endswith(told)
    assert bool(lacks) is bool(told)


# The local provider.


def config(folder: Path, **offer: object) -> LocalConfig:
    offers = [{"instance_type": "box", "market": "owned", "price_usd_hour": 0.0, "gpus": 1, **offer}]
    return LocalConfig.model_validate({"folder": folder, "state": "state", "offers": offers})


@pytest.fixture
def two_t4(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml([FakeGpu(), FakeGpu(uuid="GPU-1", minor=3), FakeGpu("NVIDIA L4", 22.5, "GPU-2", 5)])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_local_provider_finds_the_gpus_of_its_machine(
    tmp_path: Path, two_t4: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = LocalProvider(config(tmp_path))
    (offer,) = provider.offers()
    assert (offer.available, offer.gpus, offer.gpu, offer.gpu_memory_gib) == (True, 1, "T4", 15.0)
    # Each instance has the GPU that the fewest others have.
    monkeypatch.setattr(LocalProvider, "_switch_on", lambda provider, record: None)
    monkeypatch.setattr(LocalProvider, "_running", lambda provider: provider._state.records())
    monkeypatch.setattr(LocalProvider, "_born", lambda provider, record: False)
    for _ in range(3):
        provider.launch(request(OFFER))
    given = [list(record.gpus.items()) for record in provider._state.records()]
    assert given == [[("GPU-0", 0)], [("GPU-1", 3)], [("GPU-0", 0)]]
    provider.close()


@pytest.mark.parametrize(
    ("offer", "told"),
    [
        ({"gpus": 3}, "an instance has 3 GPU, this machine 2 Tesla T4, 1 NVIDIA L4"),
        ({"gpus": 1, "gpu": "H100"}, "an instance has 1 H100, this machine 2 Tesla T4, 1 NVIDIA L4"),
    ],
)
def test_an_offer_with_more_gpus_than_the_machine_is_not_available(
    tmp_path: Path, two_t4: FakeNvml, offer: dict[str, object], told: str
) -> None:
    provider = LocalProvider(config(tmp_path, **offer))
    (found,) = provider.offers()
    assert (found.available, found.gpus, found.gpu, found.reason) == (False, 0, None, told)
    with pytest.raises(CapacityError, match=told):
        provider.launch(request(OFFER))
    provider.close()


@pytest.mark.parametrize(
    ("driver", "uvm", "told"),
    [
        (False, True, "an instance has 1 GPU, this machine no GPU (no working NVIDIA driver: "),
        (True, False, "no job could use CUDA: there is no /dev/nvidia-uvm; run `nvidia-modprobe -c0 -u`"),
        (True, True, ""),
    ],
)
def test_a_machine_without_its_gpus_is_not_served(
    two_t4: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, uvm: bool, told: str
) -> None:
    two_t4.missing = not driver
    monkeypatch.setattr(module, "_DEV", tmp_path)
    if uvm:
        (tmp_path / "nvidia-uvm").touch()
    found = missing(DeploymentConfig.load(ROOT / "configs" / "deploy" / "demo_gpu.yaml"))
    assert found.startswith(f"local GPUs: {told}" if told else "")
    assert bool(found) is bool(told)
    assert "\n" not in found


def test_a_model_without_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gpu is 'T4' and gpus is 0"):
        config(tmp_path, gpus=0, gpu="T4")


# Sandboxes, with files in the place of devices.


def test_systemd_is_told_of_the_granted_devices_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(module, "_DEV", tmp_path)
    monkeypatch.setattr("spotweave.deploy.security.sandbox.program", lambda name: name)
    (tmp_path / "sandbox").mkdir()
    granted = device_files([1, 7])
    assert [path.name for path in granted] == ["nvidia1", "nvidiactl", "nvidia-uvm"]
    assert device_files([]) == ()
    box = Box("b", "b", (tmp_path / "own",), tmp_path / "tmp", devices=granted)
    words = Sandbox(Mode.SYSTEMD, tmp_path, numbers=(61184, 61200))._systemd(tmp_path, box, 61184, 61185)
    assert "--property=PrivateDevices=yes" in words
    allowed = [word for word in words if "DeviceAllow" in word]
    assert allowed == [f"--property=DeviceAllow={path} rw" for path in granted]
    assert not any("nvidia0" in word for word in words)


@pytest.mark.real
def test_bubblewrap_shows_the_granted_devices_alone() -> None:
    """With a device that everybody may open and no box has: FUSE's."""
    device = Path("/dev/fuse")
    if not device.exists():
        pytest.skip("this machine has no /dev/fuse")
    code = "import os; print(*os.listdir('/dev')); os.open('/dev/fuse', os.O_RDWR)"
    shown = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name).resolve()
        folder.chmod(0o711)
        sandbox = choose(Mode.BUBBLEWRAP, trust=False, state=folder, numbers=(61184, 65519))
        for devices in ((), (device,)):
            box = Box("b", "b", (folder / "own",), folder / "tmp", devices=devices)
            made = sandbox.wrap([sys.executable, "-c", code], {"PATH": "/usr/bin"}, folder / "own", box)
            stdin = made.stdin()
            done = subprocess.run(
                made.argv, env=made.env, stdin=stdin, capture_output=True, text=True, cwd="/"
            )
            os.close(stdin)
            assert (done.returncode == 0) is bool(devices), done.stderr
            shown.append(set(done.stdout.split()))
    assert shown[1] - shown[0] == {"fuse"}


@pytest.mark.real
def test_an_instance_reports_its_own_gpu_and_its_processes_see_no_other(
    tmp_path: Path, two_t4: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, 2)
    environment = StateFolder.environment

    def with_fake(state: StateFolder, name: str, home: Path) -> dict[str, str]:
        return environment(state, name, home) | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}

    monkeypatch.setattr(StateFolder, "environment", with_fake)
    provider = LocalProvider(config(tmp_path))
    try:
        asked = request(OFFER)
        name = provider.launch(asked).instance_id
        wait_until(lambda: provider.describe(DEPLOYMENT)[0].node_port)
        (report,) = provider.describe(DEPLOYMENT)
        client = NodeClient(report.address, report.node_port, asked.node_token, report.certificate)
        wait_until(lambda: client.status().gpus is not None)
        assert [one.uuid for one in client.status().gpus or ()] == ["GPU-0"]
        client.start_process(ProcessSpec(process_id="p", argv=("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")))
        wait_until(lambda: client.process("p").state == "exited")
        assert client.log("p") == b"GPU-0\n"
        provider.terminate([name])
    finally:
        for one in provider.describe(DEPLOYMENT):
            provider.terminate([one.instance_id])
        provider.close()
