"""How many threads compute while other programs want the cores."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf._native import core


class Machine:
    """Decodes of `wall` seconds on `cores` of which others leave `free`."""

    def __init__(self, threads: int) -> None:
        self.governor = core().ThreadGovernor(threads)
        self.now = 0.0

    def run(self, seconds: float, wall: float, free: float, preempted: int) -> list[int]:
        """Return the numbers of threads that it computed with, one for each decode."""
        used = []
        end = self.now + seconds
        while self.now < end:
            threads = self.governor.threads
            cpu = wall * min(threads, free)
            self.now += wall
            facts: dict[str, Any] = {"wall": wall, "cpu": cpu, "preempted": preempted}
            self.governor.saw(threads=threads, now=self.now, **facts)
            used.append(threads)
        return used


def test_idle_cores_are_all_used() -> None:
    assert set(Machine(4).run(10, 0.001, free=4, preempted=0)) == {4}
    # now and then something else runs for a moment
    assert set(Machine(4).run(10, 0.001, free=3.9, preempted=1)) == {4}


def test_threads_that_sleep_are_not_threads_that_are_hindered() -> None:
    assert set(Machine(4).run(10, 0.001, free=2, preempted=0)) == {4}


def test_as_many_threads_as_get_a_core() -> None:
    machine = Machine(8)
    used = machine.run(0.2, 0.1, free=5.2, preempted=20)
    assert used == [8, 5]
    two = Machine(2)
    assert two.run(0.2, 0.1, free=1, preempted=20) == [2, 1]


def test_all_are_tried_again_ever_more_seldom_and_stay_when_the_cores_are_free() -> None:
    machine = Machine(2)
    used = machine.run(300, 0.1, free=1, preempted=20)
    tries = [i for i, threads in enumerate(used) if threads == 2]
    gaps = [b - a for a, b in pairwise(tries)]
    assert all(later >= sooner - 2 for sooner, later in pairwise(gaps))  # rounding
    assert gaps[0] <= 15
    assert 250 <= gaps[-1] <= 310
    assert set(machine.run(60, 0.001, free=2, preempted=0)[-10_000:]) == {2}


def test_a_moment_of_company_is_soon_forgotten() -> None:
    machine = Machine(2)
    for _ in range(3):
        machine.run(0.06, 0.003, free=1, preempted=5)
        fewer = machine.run(2, 0.003, free=2, preempted=0).count(1)
        assert fewer * 0.003 < 0.2


@given(
    st.integers(1, 16),
    st.lists(
        st.tuples(st.floats(0, 5), st.floats(0, 80), st.integers(0, 1000)), min_size=1, max_size=40
    ),
)
def test_there_is_always_a_thread_and_never_one_too_many(
    most: int, decodes: list[tuple[float, float, int]]
) -> None:
    governor = core().ThreadGovernor(most)
    now = 0.0
    for wall, cpu, preempted in decodes:
        now += wall
        governor.saw(threads=governor.threads, wall=wall, cpu=cpu, preempted=preempted, now=now)
        assert 1 <= governor.threads <= most
