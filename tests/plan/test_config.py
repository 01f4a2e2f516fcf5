"""TrainConfig: what is accepted, what is refused, and in which words."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from gpubloom.plan import FieldProblem, InvalidConfig, TrainConfig, explain, problems


def refused(fields: dict[str, object]) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TrainConfig.model_validate(fields)
    return caught.value


def code(fields: dict[str, object]) -> str:
    """The code of the only problem."""
    [problem] = problems(refused(fields), TrainConfig)
    return problem.code


def test_the_sample_config_of_the_seed_is_accepted() -> None:
    config = TrainConfig.model_validate(
        {"learningRate": 0.0001, "batchSize": 1, "epochs": 3, "optimizer": "AdamW"}
    )
    assert (config.learning_rate, config.batch_size, config.epochs) == (0.0001, 1, 3)
    assert config.optimizer.name == "adamw"


def test_defaults_are_those_of_the_seed() -> None:
    config = TrainConfig()
    assert (config.epochs, config.batch_size, config.peak_learning_rate) == (10, 32, 1e-3)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": {"path": "/models/x"}}, (3, 8, 2e-5)),
        ({"model": {"path": "/models/x"}, "method": "lora"}, (3, 8, 2e-4)),
        ({"model": {"path": "/models/x"}, "method": "qlora"}, (3, 8, 2e-4)),
        ({"model": {"path": "/models/x", "random_weights": True}}, (10, 32, 1e-3)),
        (
            {"model": {"path": "/models/x"}, "epochs": 10, "batchSize": 32, "learningRate": 1e-3},
            (10, 32, 1e-3),
        ),
    ],
)
def test_learned_weights_have_defaults_of_their_own(
    fields: dict[str, object], expected: tuple[int, int, float]
) -> None:
    config = TrainConfig.model_validate(fields)
    assert (config.epochs, config.batch_size, config.peak_learning_rate) == expected
    assert TrainConfig.model_validate(json.loads(config.to_json())) == config
    said = set(TrainConfig.own_names(fields))
    assert set(config.model_dump(exclude_unset=True)) == said


def test_names_of_two_spellings_become_one_and_options_keep_theirs() -> None:
    given = {
        "learningRate": 1,
        "data": {"trainPath": "a", "columns": {"aB": "c"}},
        "model": {"options": {"aB": 1}},
    }
    assert TrainConfig.own_names(given) == {
        "learning_rate": 1,
        "data": {"train_path": "a", "columns": {"aB": "c"}},
        "model": {"options": {"aB": 1}},
    }
    twice = refused(TrainConfig.own_names({"learning_rate": 1e-3, "learningRate": 1e-2}))
    assert [(each.code, each.field) for each in problems(twice, TrainConfig)] == [
        ("extra_forbidden", "learningRate")
    ]


def test_snake_case_and_camel_case_mean_the_same_at_every_depth() -> None:
    camel = TrainConfig.model_validate(
        {"model": {"hiddenSize": 64}, "data": {"tokenizer": {"vocabSize": 300}}}
    )
    snake = TrainConfig.model_validate(
        {"model": {"hidden_size": 64}, "data": {"tokenizer": {"vocab_size": 300}}}
    )
    assert camel == snake


def test_json_of_a_config_gives_the_same_config() -> None:
    config = TrainConfig(epochs=3, optimizer={"weight_decay": 0.0})  # type: ignore[arg-type]
    assert TrainConfig.model_validate(json.loads(config.to_json())) == config


def test_the_schema_is_published_in_snake_case_and_closed() -> None:
    schema = TrainConfig.model_json_schema()
    assert "learning_rate" in schema["properties"]
    assert schema["additionalProperties"] is False


def test_memory_can_be_said_in_one_word_or_with_budgets() -> None:
    assert TrainConfig.model_validate({"memory": "stream"}).memory.mode == "stream"
    config = TrainConfig.model_validate({"memory": {"mode": "auto", "gpuBudgetGb": 24}})
    assert (config.memory.gpu_budget_gb, config.memory.host_budget_gb) == (24, None)
    assert TrainConfig.model_validate(json.loads(config.to_json())) == config


def test_a_model_folder_stands_instead_of_a_preset_and_may_have_shorter_rows() -> None:
    config = TrainConfig.model_validate({"model": {"path": "/models/x"}})
    assert config.context_length == 1_024
    config = TrainConfig.model_validate({"model": {"path": "/models/x", "contextLength": 256}})
    assert config.context_length == 256
    assert TrainConfig.model_validate(json.loads(config.to_json())) == config


@pytest.mark.parametrize(
    ("fields", "code", "field", "words"),
    [
        ({"lerningRate": 1}, "extra_forbidden", "lerningRate", "did you mean learning_rate?"),
        ({"optimizer": {"lr": 1}}, "extra_forbidden", "optimizer.lr", "known fields: name, state"),
        ({"model": {"hiddenSize": 10**7}}, "less_than_equal", "model.hiddenSize", "65,536 (MAX_HIDDEN_SIZE)"),
        ({"batch_size": 10**7}, "less_than_equal", "batch_size", "65,536 (MAX_BATCH_SIZE)"),
        ({"epochs": 10**9}, "less_than_equal", "epochs", "100,000 (MAX_EPOCHS)"),
        ({"batch_size": 60_000, "accumulation": 60_000}, "step_too_large", "", "(MAX_TOKENS_PER_STEP)"),
        (
            {"model": {"hidden_size": 65_536, "layers": 1_024, "ffn_size": 524_288}},
            "model_too_large",
            "",
            "(MAX_PARAMETERS)",
        ),
        ({"epochs": 0}, "greater_than_equal", "epochs", "epochs 0"),
        ({"epochs": "many"}, "int_parsing", "epochs", "'many'"),
        ({"learning_rate": float("nan")}, "finite_number", "learning_rate", "nan"),
        ({"optimizer": "sgd"}, "literal_error", "optimizer.name", "'adamw'"),
        ({"model": {"heads": 3}}, "hidden_size_not_divisible", "", "model.heads"),
        ({"model": {"preset": "huge"}}, "unknown_preset", "model.preset", "nano, tiny"),
        ({"version": 2}, "literal_error", "version", "2"),
        ({"name": "../up"}, "string_pattern_mismatch", "name", "'../up'"),
        ({"device": "tpu"}, "string_pattern_mismatch", "device", "'tpu'"),
        ({"memory": "huge"}, "literal_error", "memory.mode", "'auto', 'resident' or 'stream'"),
        ({"memory": {"gpu_budget_gb": 0}}, "greater_than", "memory.gpu_budget_gb", "0"),
        ({"lora": {"rank": 8}}, "lora_without_adapters", "", "lora or qlora"),
        ({"method": "lora", "lora": {"bias": "all"}}, "extra_forbidden", "lora.bias", "lora.bias"),
        (
            {"method": "lora", "lora": {"rank": 10_000}},
            "less_than_equal",
            "lora.rank",
            "4,096 (MAX_LORA_RANK)",
        ),
        ({"method": "lora", "lora": {"targets": []}}, "no_lora_targets", "lora.targets", "'all-linear'"),
        ({"model": {"path": "/m", "layers": 3}}, "path_brings_sizes", "model", "layers"),
        ({"model": {"random_weights": True}}, "random_weights_without_path", "model", "random_weights"),
    ],
)
def test_a_problem_has_a_code_a_field_and_a_sentence_with_name_and_limit(
    fields: dict[str, object], code: str, field: str, words: str
) -> None:
    [problem] = problems(refused(fields), TrainConfig)
    assert (problem.code, problem.field) == (code, field)
    assert words in problem.sentence
    assert "\n" not in problem.sentence


def test_several_problems_are_told_together_and_each_by_itself() -> None:
    error = refused({"epochs": 0, "lora": {"rank": 8}, "batch_sise": 1})
    found = InvalidConfig(error, TrainConfig)
    assert found.code == "invalid_config"
    assert [(each.code, each.field) for each in found.problems] == [
        ("greater_than_equal", "epochs"),
        ("extra_forbidden", "batch_sise"),
    ]
    assert str(found) == explain(error, TrainConfig)
    assert [line.partition(":")[0] for line in found.lines] == [
        "error[greater_than_equal]",
        "error[extra_forbidden]",
    ]


def test_every_entry_of_pydantics_list_has_the_code_as_its_type() -> None:
    for fields in ({"model": {"heads": 3}}, {"model": {"preset": "huge"}}, {"lora": {"rank": 8}}):
        error = refused(dict(fields))
        [problem] = problems(error, TrainConfig)
        assert isinstance(problem, FieldProblem)
        assert [item["type"] for item in error.errors()] == [problem.code]


def test_learned_weights_come_with_their_own_tokenizer_unless_another_is_named() -> None:
    config = TrainConfig.model_validate({"model": {"path": "/models/x"}, "data": {"train_path": "/texts"}})
    assert config.data.tokenizer.path == "/models/x/tokenizer.json"
    assert config.data.train_path == "/texts"
    assert TrainConfig.model_validate(json.loads(config.to_json())) == config
    # What was not said can still be said, as when a flag changes the folder of a config file.
    assert "tokenizer" not in config.model_dump(exclude_unset=True)["data"]

    said = TrainConfig.model_validate(
        {"model": {"path": "/models/x"}, "data": {"tokenizer": {"kind": "bytes"}}}
    )
    shape_only = TrainConfig.model_validate({"model": {"path": "/models/x", "random_weights": True}})
    assert said.data.tokenizer.kind == shape_only.data.tokenizer.kind == "bytes"
    assert TrainConfig().data.tokenizer.kind == "bytes"


def test_a_learning_rate_that_nobody_names_suits_the_method() -> None:
    folder = {"model": {"path": "/models/x"}}
    unlearned = {"model": {"path": "/models/x", "random_weights": True}}
    for fields, rate in (
        ({}, 1e-3),
        (unlearned, 1e-3),
        (folder, 2e-5),
        ({**folder, "method": "lora"}, 2e-4),
        ({**folder, "method": "qlora"}, 2e-4),
        ({**folder, "method": "lora", "learning_rate": 5e-4}, 5e-4),
    ):
        assert TrainConfig.model_validate(fields).peak_learning_rate == rate


def test_examples_take_the_tokenizer_of_the_model_folder_or_need_one() -> None:
    examples: dict[str, object] = {"data": {"kind": "examples", "trainPath": "chats.jsonl"}}
    config = TrainConfig.model_validate({**examples, "model": {"path": "/models/x"}})
    assert config.data.tokenizer.path == "/models/x/tokenizer.json"
    untrained = {"path": "/models/x", "random_weights": True}
    assert TrainConfig.model_validate({**examples, "model": untrained}).data.tokenizer.kind == "file"
    assert code(examples) == "examples_need_tokenizer"
    with_tokenizer = {
        "data": {"kind": "examples", "tokenizer": {"kind": "file", "path": "/t/tokenizer.json"}}
    }
    assert TrainConfig.model_validate(with_tokenizer).data.kind == "examples"


def test_settings_of_examples_are_refused_for_running_text() -> None:
    error = refused({"data": {"format": "alpaca", "packing": False}})
    [problem] = problems(error, TrainConfig)
    assert (problem.code, problem.field) == ("needs_kind_examples", "data")
    assert "format, packing" in problem.sentence
    everything = {
        "kind": "examples",
        "format": "prompt_completion",
        "columns": {"prompt": "question", "completion": "answer"},
        "trainOn": "everything",
        "tooLong": "skip",
        "packing": False,
    }
    config = TrainConfig.model_validate({"data": everything, "model": {"path": "/models/x"}})
    assert TrainConfig.model_validate(json.loads(config.to_json())) == config


def test_other_backends_need_a_model_that_has_learned_something_and_choose_their_kernels() -> None:
    assert code({"backend": "trl"}) == "backend_needs_model"
    config = TrainConfig.model_validate({"backend": "unsloth", "model": {"path": "/models/x"}})
    assert config.backend == "unsloth"
    fields = {"backend": "trl", "model": {"path": "/models/x"}, "deterministic": True}
    assert code(fields) == "backend_not_deterministic"


def test_dropout_belongs_to_adapters() -> None:
    assert code({"lora": {"dropout": 0.1}}) == "lora_without_adapters"
    assert code({"method": "lora", "lora": {"dropout": 0.95}}) == "less_than_equal"


@pytest.mark.parametrize(
    ("fields", "weight_decay", "beta2"),
    [
        ({}, 0.1, 0.95),
        ({"model": {"path": "/m"}}, 0.0, 0.999),
        ({"model": {"path": "/m"}, "method": "lora"}, 0.0, 0.999),
        ({"model": {"path": "/m", "random_weights": True}}, 0.1, 0.95),
        ({"model": {"path": "/m"}, "optimizer": {"weight_decay": 0.02, "beta2": 0.9}}, 0.02, 0.9),
        ({"model": {"path": "/m"}, "optimizer": "adafactor"}, 0.0, 0.95),
    ],
)
def test_decay_and_beta_2_suit_what_a_run_starts_from(
    fields: dict[str, Any], weight_decay: float, beta2: float
) -> None:
    config = TrainConfig.model_validate(fields)
    assert (config.optimizer.weight_decay, config.optimizer.beta2) == (weight_decay, beta2)
    # A written config says the same when it is read again.
    again = TrainConfig.model_validate_json(config.to_json())
    assert again.optimizer == config.optimizer
