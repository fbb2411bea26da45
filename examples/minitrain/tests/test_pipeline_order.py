"""The order of passes: complete, possible, and short of memory."""

from __future__ import annotations

from collections import defaultdict

import pytest

from minitrain.pipeline import Pass, one_forward_one_backward

SHAPES = [
    (pp, vpp, n_microbatches)
    for pp in (1, 2, 3, 4)
    for vpp in (1, 2, 3)
    for n_microbatches in (1, 2, 3, 4, 8, 12)
    if vpp == 1 or (pp > 1 and n_microbatches % pp == 0)
]


@pytest.mark.parametrize(("pp", "vpp", "n_microbatches"), SHAPES)
def test_every_pass_is_made_once_and_forward_comes_first(pp: int, vpp: int, n_microbatches: int) -> None:
    for rank in range(pp):
        passes = one_forward_one_backward(pp, vpp, rank, n_microbatches)
        expected = {
            Pass(kind, chunk, microbatch)  # type: ignore[arg-type]
            for kind in ("forward", "backward")
            for chunk in range(vpp)
            for microbatch in range(n_microbatches)
        }
        assert len(passes) == len(expected)
        assert set(passes) == expected
        place = {found: index for index, found in enumerate(passes)}
        for found in passes:
            if found.kind == "forward":
                assert place[found] < place[Pass("backward", found.chunk, found.microbatch)]


@pytest.mark.parametrize(("pp", "vpp", "n_microbatches"), SHAPES)
def test_ranks_never_wait_for_each_other_in_a_circle(pp: int, vpp: int, n_microbatches: int) -> None:
    """Sending does not block, receiving does: play all ranks until the end."""
    left = [one_forward_one_backward(pp, vpp, rank, n_microbatches) for rank in range(pp)]
    done: set[tuple[str, int, int]] = set()  # kind, stage, micro-batch
    last = pp * vpp - 1
    while any(left):
        has_moved = False
        for rank, passes in enumerate(left):
            while passes:
                stage, microbatch = passes[0].chunk * pp + rank, passes[0].microbatch
                if passes[0].kind == "forward":
                    needed = ("forward", stage - 1, microbatch) if stage else None
                else:
                    needed = ("backward", stage + 1, microbatch) if stage < last else None
                if needed is not None and needed not in done:
                    break
                done.add((passes.pop(0).kind, stage, microbatch))
                has_moved = True
        assert has_moved, "all ranks wait"


@pytest.mark.parametrize(("pp", "vpp", "n_microbatches"), SHAPES)
def test_messages_between_two_ranks_are_received_in_the_order_in_which_they_are_sent(
    pp: int, vpp: int, n_microbatches: int
) -> None:
    """They carry no names, so a stage would take one for another."""
    sent: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)  # by sender and receiver
    received: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)
    last = pp * vpp - 1
    for rank in range(pp):
        for found in one_forward_one_backward(pp, vpp, rank, n_microbatches):
            stage = found.chunk * pp + rank
            step = 1 if found.kind == "forward" else -1
            if 0 <= stage - step <= last:
                message = (found.kind, stage, found.microbatch)
                received[(stage - step) % pp, rank].append(message)
            if 0 <= stage + step <= last:
                message = (found.kind, stage + step, found.microbatch)
                sent[rank, (stage + step) % pp].append(message)
    assert sent == received
    assert (pp > 1) == bool(sent)


@pytest.mark.parametrize(("pp", "n_microbatches"), [(2, 8), (4, 8), (4, 2)])
def test_a_rank_keeps_no_more_than_the_stages_that_follow_it(pp: int, n_microbatches: int) -> None:
    for rank in range(pp):
        kept = most = 0
        for found in one_forward_one_backward(pp, 1, rank, n_microbatches):
            kept += 1 if found.kind == "forward" else -1
            most = max(most, kept)
        assert most == min(pp - rank, n_microbatches)
