"""Which blocks belong to whom: reserved at once, shared where tokens are the same, reused oldest first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.engine.decoding.kv_blocks import BLOCK, BlockAllocator, BlockList


def reserve(allocator: BlockAllocator, tokens: list[int], room: int = 0, variant: str = "base") -> BlockList:
    found = allocator.reserve(tokens, len(tokens) + room, variant)
    assert found is not None
    return found


def tokens(blocks: int, first: int = 0) -> list[int]:
    return list(range(first, first + blocks * BLOCK + 1))


def test_a_conversation_that_goes_on_finds_its_beginning() -> None:
    allocator = BlockAllocator(10)
    before = tokens(2)
    held = reserve(allocator, before)
    first = list(held.blocks)
    allocator.remember(held, before, "base")
    allocator.release(held)
    later = reserve(allocator, [*before, 7, 8], room=BLOCK)
    assert later.reused == 2 * BLOCK
    assert later.blocks[:2] == first[:2]
    # Another model's keys and values are others.
    assert reserve(allocator, before, variant="tuned").reused == 0


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    allocator = BlockAllocator(10)
    whole = list(range(BLOCK))
    held = reserve(allocator, whole)
    allocator.remember(held, whole, "base")
    assert reserve(allocator, whole).reused == 0
    assert reserve(allocator, [*whole, 1]).reused == BLOCK


def test_blocks_are_shared_by_sequences_that_run_at_the_same_time_and_freed_by_the_last() -> None:
    allocator = BlockAllocator(4)
    prompt = tokens(1)
    first = reserve(allocator, prompt)
    allocator.remember(first, prompt, "base")
    second = reserve(allocator, prompt)
    assert second.blocks[0] == first.blocks[0]
    assert allocator.reserve(tokens(1, 900), 2 * BLOCK, "base") is None
    allocator.release(first)
    # The shared one is still in use.
    assert allocator.available == 1
    allocator.release(second)
    assert allocator.available == 3


def test_what_was_remembered_longest_ago_is_forgotten_first() -> None:
    allocator = BlockAllocator(5)
    old, new = tokens(1), tokens(1, 500)
    for prompt in (old, new):
        held = reserve(allocator, prompt)
        allocator.remember(held, prompt, "base")
        allocator.release(held)
    allocator.release(reserve(allocator, tokens(2, 900)))
    assert reserve(allocator, new).reused == BLOCK
    assert reserve(allocator, old).reused == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 130), st.booleans()), max_size=40))
def test_no_block_ever_has_two_contents(steps: list[tuple[int, int, bool]]) -> None:
    """Every sequence finds in its blocks the tokens that it and nobody else would have written there."""
    allocator = BlockAllocator(12)
    content: dict[int, list[int]] = {}
    running: list[tuple[BlockList, list[int]]] = []
    for kind, length, keep in steps:
        prompt = [(kind if position < 64 else kind + length) for position in range(length)]
        held = allocator.reserve(prompt, length, "base")
        if held is None:
            if running:
                allocator.release(running.pop(0)[0])
            continue
        assert 0 not in held.blocks
        for index, block in enumerate(held.blocks):
            part = prompt[index * BLOCK : (index + 1) * BLOCK]
            if index * BLOCK < held.reused:
                assert content[block] == part
            else:
                assert all(block not in other.blocks for other, _ in running)
                content[block] = part
        allocator.remember(held, prompt, "base")
        running.append((held, prompt))
        if not keep:
            allocator.release(running.pop()[0])
    for held, _ in running:
        allocator.release(held)
    assert allocator.available == 11
