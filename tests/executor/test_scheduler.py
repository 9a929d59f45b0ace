"""The book of a job: whatever happens to workers, every block is done, and as few as can be are done again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import R2medError
from r2med.pipeline.executor.blocks import WorkBlock
from r2med.pipeline.executor.scheduler import JobState, WorkerState


def blocks(count: int) -> list[WorkBlock]:
    return [WorkBlock(f"{number:032x}", b"") for number in range(count)]


class Driver:
    """What a driver does with the state of a job, with workers that die, hang or work as a test says."""

    def __init__(self, count: int, workers: int) -> None:
        self.state = JobState(iter(blocks(count)))
        self.now = 0.0
        self.begun: Counter[str] = Counter()
        self.results: list[str] = []
        for _ in range(workers):
            self.hire()

    def hire(self) -> None:
        worker = WorkerState(object(), ready=True)
        self.state.workers.append(worker)

    def hand_out(self) -> None:
        for worker in self.state.idle():
            if not self.state.waiting and (block := self.state.next_block()) is not None:
                self.state.waiting.append(block)
            taken = self.state.take(self.now)
            if taken is not None:
                self.begun[taken.key] += 1
                self.state.begin(worker, taken, object(), self.now)

    def answer(self, call: object) -> None:
        worker, block = self.state.answered(call)
        assert block is not None
        if self.state.finished(worker, block, self.now):
            self.results.append(block.key)

    def kill(self, call: object) -> None:
        worker, block = self.state.answered(call)
        self.state.replace_dead(worker, block, "killed")
        self.hire()


@given(st.integers(0, 30), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=60))
def test_every_block_is_done_once_and_a_death_costs_one_block(
    count: int, workers: int, events: list[tuple[int, int]]
) -> None:
    driver, deaths, victims = Driver(count, workers), 0, Counter[str]()
    events = list(events)
    driver.hand_out()
    while driver.state.at_work():
        kind, which = events.pop() if events else (9, 0)
        calls = list(driver.state.calls)
        call = calls[which % len(calls)]
        held = driver.state.calls[call].block
        if kind < 3 and held is not None and victims[held.key] < 2:
            victims[held.key] += 1
            deaths += 1
            driver.kill(call)
        else:
            driver.answer(call)
        driver.hand_out()
    assert sorted(driver.results) == [block.key for block in blocks(count)]
    assert sum(driver.begun.values()) <= count + deaths


def test_all_that_hang_are_dealt_again_one_after_another() -> None:
    driver = Driver(6, 3)
    driver.hand_out()
    hanging = list(driver.state.calls)[:2]
    for _ in range(4):
        driver.now += 1
        driver.answer(next(call for call in driver.state.calls if call not in hanging))
        driver.hand_out()
    assert driver.state.at_work()
    for _ in range(2):
        driver.now += 10
        driver.hand_out()
        driver.answer(next(call for call in driver.state.calls if call not in hanging))
    assert not driver.state.at_work(), "two workers hang, and the third has done what they had"
    assert len(driver.state.left_over()) == 2
    assert len(driver.results) == len(set(driver.results)) == 6


def test_what_kills_again_and_again_is_an_error() -> None:
    driver = Driver(1, 1)
    for _ in range(2):
        driver.hand_out()
        driver.kill(next(iter(driver.state.calls)))
    driver.hand_out()
    with pytest.raises(R2medError, match=r"^3 workers died of the same block: killed$"):
        driver.kill(next(iter(driver.state.calls)))


def test_a_node_may_take_all_who_load_with_it_but_not_again_and_again() -> None:
    state = JobState(iter(blocks(1)), workers=[WorkerState(object()) for _ in range(64)])
    for worker in list(state.workers):
        state.replace_dead(worker, None, "the node is gone")
    state.workers = [WorkerState(object()) for _ in range(3)]
    for worker in state.workers[1:]:
        state.replace_dead(worker, None, "no such module")
    with pytest.raises(R2medError, match=r"^67 workers died loading: no such module$"):
        state.replace_dead(state.workers[0], None, "no such module")


def test_who_waits_for_a_place_in_vain_is_let_go_and_who_works_is_not() -> None:
    working = [WorkerState(object(), ready=True) for _ in range(2)]
    waiting = [WorkerState(object()) for _ in range(2)]
    state = JobState(iter(blocks(9)), workers=[*working, *waiting], calls=dict(enumerate(waiting)))
    assert state.dismiss_beyond(3) == [waiting[1]]
    assert state.dismiss_beyond(1) == [waiting[0]]
    assert state.workers == working
    assert not state.calls
