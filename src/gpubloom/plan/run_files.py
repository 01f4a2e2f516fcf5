"""The files that make a run: what was asked, what is expected, and a script that trains it by hand.

Returns texts by name; whoever creates the run writes them. The script is the run: `bloom train` and an
agent start the same file that a person can start.
"""

from gpubloom.plan.config import TrainConfig
from gpubloom.plan.planner import Plan

# Of a run directory: the tokens that its examples became, and data that was fetched from an address.
EXAMPLES_FOLDER = ".examples"
DATA_FOLDER = ".data"
# What `run_files` makes of every run.
RUN_FILES = ("config.json", "plan.json", "train.py", "requirements.txt")
_CACHE = f'cache = session.run_dir / "{EXAMPLES_FOLDER}"'

_SCRIPT = '''\
"""Trains the run {name!r} in this folder with {trainer}; written by `bloom`.

    python train.py                 train
    python train.py --resume        continue from the newest checkpoint
    python train.py --into FOLDER   repeat the training in another folder, with the same result

The settings are in config.json. Install first: pip install -r requirements.txt
"""

from pathlib import Path

{imports}


def main() -> None:
    with training_session(home=Path(__file__).parent) as session:
        config = session.config
{body}
        if session.resuming:
            trainer.resume()
        trainer.train()


if __name__ == "__main__":
    main()
'''

_ENGINE_IMPORTS = "from gpubloom.engine import Dataset, Model, Trainer, training_session"
_ENGINE_BODY = f"""\
        {_CACHE}
        with session.leader_first():
            dataset = Dataset.open(config.data, config.context_length, cache, session.reporter.log)
        model = Model.open(config, vocab_size=dataset.vocab_size, end_of_text=dataset.tokenizer.end_of_text)
        trainer = Trainer(config, model, dataset, session.reporter, session.stop, session.group)"""

_TRL_IMPORTS = """\
from gpubloom.backends import open_trainer
from gpubloom.engine import Dataset, training_session"""
_TRL_BODY = f"""\
        # Tokens, loss masks, rows and row order come from the engine; TRL's SFTTrainer does the rest.
        {_CACHE}
        dataset = Dataset.open(config.data, config.context_length, cache, session.reporter.log)
        # Imports transformers, PEFT and TRL, which takes a while, and loads the model.
        trainer = open_trainer(config, dataset, session.reporter, stop=session.stop)"""
_UNSLOTH_BODY = f"""\
        # No packing: Unsloth's attention would cross from one packed example into the next.
        data = config.data.model_copy(update={{"packing": False}})
        {_CACHE}
        dataset = Dataset.open(data, config.context_length, cache, session.reporter.log)
        # Imports Unsloth before transformers, PEFT and TRL, which Unsloth patches, and loads the model.
        trainer = open_trainer(config, dataset, session.reporter, stop=session.stop)"""

_PARTS = {
    "engine": ("GPU Bloom's engine", _ENGINE_IMPORTS, _ENGINE_BODY),
    "trl": ("TRL", _TRL_IMPORTS, _TRL_BODY),
    "unsloth": ("TRL and Unsloth", _TRL_IMPORTS, _UNSLOTH_BODY),
}


def run_files(config: TrainConfig, plan: Plan, package_version: str) -> dict[str, str]:
    """File name to text."""
    trainer, imports, body = _PARTS[config.backend]
    texts = (
        config.to_json(),
        plan.model_dump_json(indent=2) + "\n",
        _SCRIPT.format(name=config.name, trainer=trainer, imports=imports, body=body),
        "\n".join(_requirements(config, package_version)) + "\n",
    )
    return dict(zip(RUN_FILES, texts, strict=True))


def _requirements(config: TrainConfig, package_version: str) -> list[str]:
    if config.backend == "engine":
        return [f"gpubloom[train]=={package_version}"]
    needed = [f"gpubloom[trl]=={package_version}"]
    if config.method == "qlora":
        needed.append("bitsandbytes")
    if config.backend == "unsloth":
        needed.append("unsloth")
    return needed
