"""Lines that real trainers print, and what is read from them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.agent.progress.follower import Lines, clean
from gpubloom.agent.progress.formats import ParsedLine, read_line
from gpubloom.agent.progress.recorder import Course

LOSS, EVAL, LR, SECONDS = "train/loss", "eval/loss", "train/learning_rate", "train/step_seconds"

# A line, and of what it says the parts that matter.
LINES: list[tuple[str, dict[str, Any]]] = [
    # nanoGPT
    ("iter 0: loss 4.1992, time 2039.24ms, mfu -100.00%",
     {"step": 0, "values": {LOSS: 4.1992, SECONDS: 2.03924}}),
    ("iter 1200: loss 1.0311, time 12.50ms, mfu 38.20%",
     {"step": 1200, "values": {LOSS: 1.0311, "train/mfu": 38.2, SECONDS: 0.0125}}),
    ("step 20: train loss 3.9146, val loss 3.9328", {"step": 20, "values": {EVAL: 3.9328}}),
    ("Overriding: max_iters = 40", {"total": 40, "values": {}}),
    ("tokens per iteration will be: 491,520", {"facts": {"tokens_per_step": 491520}}),
    ("number of parameters: 0.10M", {"facts": {"parameters": 100_000}}),
    # Hugging Face: strings (v5), floats (v4), evaluation, nan, and the summary
    ("{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.1'}",
     {"step": None, "epoch": 0.1, "values": {LOSS: 2.345, "train/grad_norm": 1.2, LR: 5e-05}}),
    ("{'loss': 0.6931, 'grad_norm': 3.5, 'learning_rate': 1.9e-05, 'epoch': 0.16}",
     {"epoch": 0.16, "values": {LOSS: 0.6931, "train/grad_norm": 3.5, LR: 1.9e-05}}),
    ("{'eval_loss': 1.25, 'eval_accuracy': 0.87, 'eval_runtime': 3.2, 'epoch': 1.0}",
     {"values": {EVAL: 1.25, "eval/accuracy": 0.87}}),
    ('{"step": 50, "loss": 1.5, "lr": 0.001, "max_steps": 500}',
     {"step": 50, "total": 500, "values": {LOSS: 1.5, LR: 0.001}}),
    # tqdm: alone, with a postfix, per iteration, with a label
    ("  5%|▌         | 25/500 [00:10<03:10,  2.50it/s]",
     {"step": 25, "total": 500, "bar": True, "values": {SECONDS: 0.4}}),
    (" 12%|█▏        | 120/1,000 [02:00<14:40, 1.50s/it, loss=0.25, lr=0.0001]",
     {"step": 120, "total": 1000, "values": {LOSS: 0.25, LR: 0.0001, SECONDS: 1.5}}),
    ("Training:  40%|████      | 40/100 [00:12<00:18,  4.00it/s, loss=nan]", {"step": 40, "total": 100}),
    # Lightning
    ("Epoch 3:  40%|████      | 40/100 [00:12<00:18,  4.00it/s, v_num=0, train_loss=0.512]",
     {"step": 40, "total": 100, "epoch": 3, "from_zero": True, "values": {LOSS: 0.512, SECONDS: 0.25}}),
    ("Epoch 3/9 ━━━━━━━╸━━━━━━━━ 40/100 0:00:12 • 0:00:18 3.33it/s v_num: 0.000 train_loss: 0.512",
     {"step": 40, "total": 100, "epoch": 3, "epochs": 10, "values": {LOSS: 0.512}}),
    # Keras 3 and 2
    ("10/100 ━━━━━━━━━━━━━━━━━━━━ 3s 30ms/step - accuracy: 0.9100 - loss: 0.2100",
     {"step": 10, "total": 100, "values": {"train/accuracy": 0.91, LOSS: 0.21, SECONDS: 0.03}}),
    ("100/100 ━━━━━━━━━━━━━━━━━━━━ 5s 50ms/step - loss: 0.2 - val_accuracy: 0.93 - val_loss: 0.18",
     {"values": {LOSS: 0.2, "eval/accuracy": 0.93, EVAL: 0.18, SECONDS: 0.05}}),
    ("1875/1875 [==============================] - 4s 2ms/step - loss: 0.2948 - accuracy: 0.9143",
     {"step": 1875, "total": 1875, "values": {LOSS: 0.2948, "train/accuracy": 0.9143, SECONDS: 0.002}}),
    ("Epoch 1/5", {"epoch": 1, "epochs": 5, "step": None}),
    # torchtune
    ("Step 1 | loss:2.085338592529297 lr:2e-05 tokens_per_second_per_gpu:57.82",
     {"step": 1, "values": {LOSS: 2.085338592529297, LR: 2e-05, "train/tokens_per_second": 57.82}}),
    ("1|1|Loss: 2.7997918128967285:   1%|          | 1/101 [00:20<34:51, 20.91s/it]",
     {"step": 1, "total": 101, "values": {LOSS: 2.7997918128967285, SECONDS: 20.91}}),
    # torchtitan
    ("[titan] 2025-03-12 11:10:11,808 - root - INFO - step: 10  loss: 7.1234  grad_norm: 2.5  tps: 1,234",
     {"step": 10, "values": {LOSS: 7.1234, "train/grad_norm": 2.5, "train/tokens_per_second": 1234}}),
    # fairseq
    ("| epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, lr=0.0005",
     {"step": 2000, "total": 8223, "epoch": 10,
      "values": {LOSS: 1.27, "train/tokens_per_second": 962, LR: 0.0005}}),
    ("epoch 002:    100 / 1000 loss=5.5, ppl=45.2, wps=1000",
     {"step": 100, "total": 1000, "epoch": 2}),
    ("  0%|          | 0/30 [00:00<?, ?it/s][transformers] a warning right after the bar",
     {"step": 0, "total": 30, "bar": True, "values": {}}),
    # what people write
    ("Epoch 3/10 loss: 0.5", {"epoch": 3, "epochs": 10, "step": None, "values": {LOSS: 0.5}}),
    ("Epoch [3/10], Step [100/600], Loss: 0.2345",
     {"epoch": 3, "epochs": 10, "step": 100, "total": 600, "bar": True, "values": {LOSS: 0.2345}}),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.291",
     {"epoch": 1, "step": 640, "total": 60000, "values": {LOSS: 2.291}}),
    ("epoch 4: train loss 0.31, val loss 0.45, val acc 91.2%",
     {"epoch": 4, "values": {LOSS: 0.31, EVAL: 0.45, "eval/accuracy": 91.2}}),
    ("step 100/1000 | loss=3.2e-1 | lr=1e-4", {"step": 100, "total": 1000, "values": {LOSS: 0.32, LR: 1e-4}}),
    ("[100/1000] loss=0.5", {"step": 100, "total": 1000, "values": {LOSS: 0.5}}),
    ("Iteration 12,500: loss = 1.25", {"step": 12500, "values": {LOSS: 1.25}}),
    ("2026-01-01 10:00:00 INFO train.py:33 global_step=70 train_loss=2.5 val_loss=2.75",
     {"step": 70, "values": {LOSS: 2.5, EVAL: 2.75}}),
]  # fmt: skip

NOTHING = [
    "Downloading shards: 100%|██████████| 2/2 [00:01<00:00,  1.95it/s]",
    "Map: 100%|██████████| 25000/25000 [00:10<00:00, 2400.00 examples/s]",
    "model.safetensors: 100%|██████████| 548M/548M [00:05<00:00, 100MB/s]",
    "  0%|          | 0/548 [00:00<?, ?B/s]",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 20.00it/s]",
    "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 20.00it/s]",
    "saving checkpoint to out",
    "loss function: cross entropy, version 2.0",
    "  File \"train.py\", line 12, in <module>",
    "warning: accuracy may drop",
    "listening on 127.0.0.1:8000",
    "",
]  # fmt: skip


@pytest.mark.parametrize(("line", "says"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_of_a_trainer_is_understood(line: str, says: dict[str, Any]) -> None:
    said = read_line(line.strip())
    assert said is not None
    found = {name: getattr(said, name) for name in says}
    if "values" in says:
        assert found.pop("values") == pytest.approx(says.pop("values"))
    assert found == says


@pytest.mark.parametrize("line", NOTHING)
def test_other_lines_say_nothing(line: str) -> None:
    assert read_line(line) is None


def test_the_summary_of_a_trainer_is_no_point_of_its_curve() -> None:
    line = "{'train_runtime': 12.5, 'train_samples_per_second': 80.0, 'train_loss': 1.5, 'epoch': 1.0}"
    assert read_line(line) is None


def test_a_step_of_a_trainer_that_counts_its_input_tokens_is_a_point_of_its_curve() -> None:
    line = (
        "{'loss': 1.5, 'num_input_tokens_seen': 512, 'train_runtime': 12.5, 'train_tokens_per_second': 80.0}"
    )
    said = read_line(line)
    assert said is not None
    assert said.values["train/loss"] == 1.5


def test_output_is_split_at_carriage_returns_in_pieces_of_any_size() -> None:
    data = b"a 1\rb 2\r\nc 3\n\x1b[32mgreen 4\x1b[0m\x1b[K\n\x1b[1;38;5;12mx\x1b[m 5\rlast"
    for size in (1, 2, 7, len(data)):
        lines = Lines()
        found = [line for at in range(0, len(data), size) for line in lines.add(data[at : at + size])]
        assert found == ["a 1", "b 2", "c 3", "green 4", "x 5"]
        assert lines.last() == ["last"]


def test_a_line_that_never_ends_takes_no_memory() -> None:
    lines = Lines()
    for _ in range(100):
        assert lines.add(b"x" * 100_000) == []
    assert len(lines.last()[0]) <= 2_000


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("[rank0]:iter 3: loss 2.0", "iter 3: loss 2.0"),
        ("[rank3]:iter 3: loss 2.0", None),
        ("[trainer0|0]:1|1|Loss: 2.79", "1|1|Loss: 2.79"),
        ("[1,0]<stdout>:step 3", "step 3"),
        ("[1,2]<stdout>:step 3", None),
        ("(RayTrainWorker pid=4711, ip=10.0.0.1) step 3", "step 3"),
        ("[rank0]:[titan] step: 3", "[titan] step: 3"),
        ("100: loss 0.3", "100: loss 0.3"),
    ],
)
def test_rank_prefixes_are_cut_and_other_ranks_left_out(line: str, cleaned: str | None) -> None:
    assert clean(line) == cleaned


def course_of(*lines: str) -> list[tuple[int, int | None, float | None]]:
    """Step, total and loss after each line that says something."""
    course, found = Course(), []
    for line in lines:
        said = read_line(line.strip())
        point = course.take(said) if said is not None else None
        if point is not None:
            found.append((point.step, point.total, point.values.get(LOSS)))
    return found


def test_nano_gpt_gets_its_total_from_what_was_overridden() -> None:
    found = course_of(
        "Overriding: max_iters = 40",
        "iter 0: loss 4.0, time 1.0ms, mfu -100.00%",
        "iter 40: loss 3.0, time 1.0ms, mfu -100.00%",
    )
    assert found == [(0, 40, 4.0), (40, 40, 3.0)]


def test_a_trainers_numbers_belong_to_the_step_of_its_bar_and_its_evaluation_to_nobodys() -> None:
    found = course_of(
        "  1%| | 1/100 [00:01<01:39, 1.00s/it]",
        " 10%|█| 10/100 [00:10<01:30, 1.00s/it]",
        # The bar is drawn too rarely to have shown step 12, and anew after the numbers of step 12.
        "{'loss': '2.0', 'learning_rate': '5e-05', 'epoch': '0.12'}",
        " 12%|█| 12/100 [00:10<01:30, 1.00s/it]",
        " 50%|█████| 5/10 [00:10<00:10, 1.00s/it]",
        "{'eval_loss': '1.5', 'eval_runtime': '3.0', 'epoch': '0.12'}",
        " 12%|█| 12/100 [00:10<01:30, 1.00s/it]",
        " 13%|█| 13/100 [00:20<01:29, 1.00s/it]",
    )
    assert found == [
        (1, 100, None), (10, 100, None), (12, 100, 2.0), (12, 100, None), (13, 100, None),
    ]  # fmt: skip


def test_numbers_after_the_last_bar_are_not_lost() -> None:
    course = Course()
    for line in ("10%|█| 10/100 [00:10<01:30, 1.00s/it]", "{'loss': '2.0', 'epoch': '0.1'}"):
        said = read_line(line)
        assert said is not None
        course.take(said)
    rest = course.rest()
    assert rest is not None
    assert (rest.step, rest.values) == (10, {LOSS: 2.0})
    assert course.rest() is None


def test_bars_of_epochs_become_one_course() -> None:
    bar = "{}%|█| {}/50 [00:10<01:30, 1.00it/s, loss={}]"
    lines = [bar.format(100 * step // 50, step, 0.5) for _ in range(2) for step in (1, 25, 50)]
    assert [step for step, _, _ in course_of(*lines)] == [1, 25, 50, 51, 75, 100]


def test_lightning_counts_epochs_from_zero() -> None:
    bar = "Epoch {}: 50%|█| {}/100 [00:10<01:30, 1.00it/s, v_num=0, train_loss=0.5]"
    found = course_of(bar.format(0, 10), bar.format(1, 10), bar.format(4, 100))
    assert [step for step, _, _ in found] == [10, 110, 500]


def test_keras_knows_its_total_from_the_headings() -> None:
    bar = "{}/100 ━━━━━━━━━━ 3s 30ms/step - loss: 0.5"
    found = course_of("Epoch 1/5", bar.format(10), bar.format(100), "Epoch 2/5", bar.format(10))
    assert found == [(10, 500, 0.5), (100, 500, 0.5), (110, 500, 0.5)]


def test_a_line_for_each_epoch_counts_epochs() -> None:
    found = course_of("Epoch 1/3 loss: 0.9", "Epoch 2/3 loss: 0.5", "Epoch 3/3 loss: 0.4")
    assert found == [(1, 3, 0.9), (2, 3, 0.5), (3, 3, 0.4)]


def test_epochs_and_steps_within_them_become_one_course() -> None:
    line = "Epoch [{}/2], Step [{}/600], Loss: 0.5"
    assert course_of(line.format(1, 100), line.format(2, 600)) == [(100, 1200, 0.5), (1200, 1200, 0.5)]


def test_numbers_without_any_step_are_counted() -> None:
    assert course_of("{'loss': 2.0, 'epoch': 0.1}", "{'loss': 1.0, 'epoch': 0.2}") == [
        (1, None, 2.0),
        (2, None, 1.0),
    ]


def test_a_bar_before_the_training_makes_way_for_one_with_a_loss() -> None:
    found = course_of(
        "100%|█| 3/3 [00:10<00:00, 1.00it/s]",
        "  1%| | 1/100 [00:10<01:30, 1.00it/s, loss=0.5]",
    )
    assert found[-1] == (1, 100, 0.5)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400) | st.text(alphabet="0123456789/%|[]:=,. loseptchEpoch-e{}'\"", max_size=400))
def test_no_line_breaks_the_reading(line: str) -> None:
    said = read_line(line)
    assert said is None or isinstance(said, ParsedLine)
    if said is not None:
        Course().take(said)


@pytest.mark.parametrize(
    "line",
    ["9" * 2000, "1,"*1000, "loss " * 400, "a=" * 1000, "epoch " * 300, "%|" * 1000, "'a': " * 400,
     "/" * 2000, "epoch 1" + " " * 1900, "{" + "'loss': 1, " * 180 + "}", "1/2 " + "━" * 1900,
     "loss=" + "1." * 900, "x" * 1990 + " loss", "[" * 2000, "train " * 330, "- " * 1000, "1e" * 1000],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_reading_a_nasty_line_costs_little(line: str) -> None:
    # Together a second or two; an expression that goes wrong would not end in time.
    for _ in range(200):
        read_line(line)
