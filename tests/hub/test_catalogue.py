"""The catalogue: real sizes, memory that grows with what is trained, no id twice."""

import pytest

from gpubloom.hub.catalogue import CatalogueModel, catalogue

# What the hub says about these models, in billions.
PUBLISHED = {
    "meta-llama/Llama-3.2-1B-Instruct": 1.236,
    "meta-llama/Llama-3.1-8B-Instruct": 8.03,
    "meta-llama/Llama-3.3-70B-Instruct": 70.55,
    "Qwen/Qwen2.5-0.5B-Instruct": 0.494,
    "Qwen/Qwen2.5-7B-Instruct": 7.616,
    "Qwen/Qwen3-4B": 4.022,
    "Qwen/Qwen3-30B-A3B": 30.53,
    "mistralai/Mistral-7B-Instruct-v0.3": 7.248,
    "google/gemma-2-9b-it": 9.242,
    "google/gemma-3-1b-it": 1.0,
    "microsoft/phi-4": 14.66,
    "microsoft/Phi-4-mini-instruct": 3.836,
    "tiiuae/Falcon3-7B-Instruct": 7.456,
    "meta-llama/Llama-2-7b-hf": 6.738,
    "meta-llama/Llama-2-13b-chat-hf": 13.016,
    "meta-llama/Llama-2-70b-hf": 68.977,
    # Without the copy of the embedding that its files hold as the head.
    "tiiuae/falcon-7b": 6.922,
    "tiiuae/falcon-40b": 41.303,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 0.1345,
    "HuggingFaceTB/SmolLM3-3B": 3.075,
}


def listed() -> dict[str, CatalogueModel]:
    return {model.id: model for family in catalogue() for model in family.models}


@pytest.mark.parametrize("repository", PUBLISHED)
def test_a_model_has_as_many_parameters_as_its_makers_say(repository: str) -> None:
    model = listed()[repository]
    assert model.parameters / 1e9 == pytest.approx(PUBLISHED[repository], rel=0.002)


def test_every_method_needs_less_memory_than_the_one_that_trains_more() -> None:
    for family in catalogue():
        for model in family.models:
            assert model.memory["qlora"] < model.memory["lora"] < model.memory["full"], model.id
            # Weights in two bytes, and in half a byte, are the least there can be.
            assert model.memory["lora"] > 2 * model.parameters, model.id
            assert model.memory["full"] > 12 * model.parameters, model.id


def test_no_model_is_listed_twice() -> None:
    models = [model for family in catalogue() for model in family.models]
    names = [name.casefold() for model in models for name in {model.id, model.unsloth_id or model.id}]
    assert len(set(names)) == len(names)


def test_older_models_have_the_facts_of_their_makers() -> None:
    facts = {
        "meta-llama/Llama-2-7b-chat-hf": ("llama2", 4_096, True, True),
        "meta-llama/Llama-2-70b-hf": ("llama2", 4_096, True, False),
        "tiiuae/falcon-7b": ("apache-2.0", 2_048, False, False),
        "tiiuae/falcon-40b-instruct": ("apache-2.0", 2_048, False, True),
    }
    for repository, said in facts.items():
        model = listed()[repository]
        assert (model.licence, model.context_length, model.gated, model.chat) == said


def test_the_usual_families_are_there() -> None:
    assert {"Llama", "Qwen2.5", "Qwen3", "Mistral", "Gemma", "Phi", "Falcon", "SmolLM"} <= {
        family.name for family in catalogue()
    }
