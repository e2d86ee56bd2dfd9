"""Devices on other machines (B8): told by their backend, refused by name before anything is loaded."""

from __future__ import annotations

import re
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import ResourceError, hardware
from dflash_gguf._native import core
from dflash_gguf.hardware import Device, check_devices

from .support.random_pairs import Pair

CPU = Device("CPU", "a processor", "CPU", "cpu", False, 1, 1)
GPU = Device("CUDA0", "a card", "CUDA", "gpu", False, 1, 1)
# as llama.cpp tells of a server at this address
REMOTE = Device("RPC0", "10.0.0.7:50052", "RPC", "gpu", True, 0, 0)
TARGET, DRAFT = "devices (-dev)", "draft_devices (-devd)"


@pytest.mark.parametrize("backend", ["RPC", "RPC[10.0.0.7:50052]"])
def test_a_server_is_remote(backend: str) -> None:
    assert core().is_remote(backend)


@pytest.mark.parametrize("backend", ["CPU", "CUDA", "MTL", "Vulkan", "BLAS", "RPCX", "xRPC", ""])
def test_other_backends_are_not(backend: str) -> None:
    assert not core().is_remote(backend)


def test_what_this_machine_has_is_not_remote() -> None:
    found = hardware.devices()
    assert found
    assert not any(device.remote for device in found)
    assert all(0 <= device.memory_free <= device.memory_total for device in found)
    assert all(device.memory_total > 0 for device in found if device.kind == "cpu")


def test_of_the_processors_memory_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp says that all of it is."""
    monkeypatch.setattr(hardware, "available", lambda: 12345)
    (cpu,) = (device for device in hardware.devices() if device.kind == "cpu")
    assert cpu.memory_free == 12345 < cpu.memory_total


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Devices that llama.cpp tells of; to be changed."""
    made = [CPU, GPU, REMOTE]
    monkeypatch.setattr(hardware, "devices", lambda: made)
    return made


@pytest.mark.parametrize("asked", [("RPC0",), ("CUDA0", "RPC0"), ()])
@pytest.mark.parametrize("option", [TARGET, DRAFT])
def test_a_remote_device_is_refused_by_name(
    machine: list[Device], option: str, asked: tuple[str, ...]
) -> None:
    """None named: llama.cpp takes all there are, remote ones first."""
    assert REMOTE in machine
    with pytest.raises(ResourceError) as caught:
        check_devices({TARGET: ("CUDA0",), DRAFT: ("CPU",)} | {option: asked})
    assert str(caught.value) == (
        "device 'RPC0' (10.0.0.7:50052) is remote; drafting needs both models on this machine: name others as "
        f"{option}; there are CPU, CUDA0"
    )


def test_local_devices_are_taken(machine: list[Device]) -> None:
    check_devices({TARGET: ("CUDA0",), DRAFT: ("CUDA0", "CPU")})
    machine.remove(REMOTE)
    check_devices({TARGET: (), DRAFT: ()})
    machine.append(Device("RPC7", "a card of that name", "CUDA", "gpu", False, 1, 1))
    check_devices({TARGET: ("RPC7",), DRAFT: ()})


@pytest.mark.parametrize(
    ("options", "draft", "refused"),
    [
        ({"devices": ("RPC0",), "draft_devices": ("CPU",)}, True, TARGET),
        ({"devices": ("CPU",), "draft_devices": ("RPC0",)}, True, DRAFT),
        ({"devices": ("CPU",)}, True, DRAFT),
        ({}, True, TARGET),
        ({}, False, TARGET),
        ({"devices": ("CPU",)}, False, None),
    ],
)
def test_nothing_is_loaded_before(
    dense: Pair,
    machine: list[Device],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    draft: bool,
    refused: str | None,
) -> None:
    assert REMOTE in machine

    class Reached(Exception):
        """The files are opened."""

    def opened(*_: object) -> None:
        raise Reached

    monkeypatch.setattr("dflash_gguf.loading.open_trial", opened)
    words = None if refused is None else f"device 'RPC0' .* is remote; .* as {re.escape(refused)}"
    with pytest.raises(Reached if refused is None else ResourceError, match=words):
        dflash_gguf.load(dense.target, dense.draft if draft else None, **options)
