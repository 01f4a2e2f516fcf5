"""The files that make a run: what was asked, what is expected, and a script that trains it by hand.

Returns texts by name; whoever creates the run writes them. The script is the run: `bloom train` and an
agent start the same file that a person can start.
"""

from gpubloom.plan.config import TrainConfig
from gpubloom.plan.planner import Plan

_SCRIPT = '''\
"""Trains the run {name!r} that lies in this folder; written by `bloom train`.

    python train.py                 train it
    python train.py --resume        continue from the newest checkpoint
    python train.py --into FOLDER   train it again, elsewhere, with the same result

What was asked for is in config.json. Needs: pip install -r requirements.txt
"""

from pathlib import Path

from gpubloom.engine import Dataset, Model, Trainer, training_session


def main() -> None:
    with training_session(home=Path(__file__).parent) as session:
        config = session.config
        dataset = Dataset.open(config.data, config.context_length)
        model = Model.open(config, vocab_size=dataset.vocab_size, end_of_text=dataset.tokenizer.end_of_text)
        trainer = Trainer(config, model, dataset, session.reporter, stop=session.stop)
        if session.resuming:
            trainer.resume()
        trainer.train()


if __name__ == "__main__":
    main()
'''


def run_files(config: TrainConfig, plan: Plan, package_version: str) -> dict[str, str]:
    """File name to text."""
    return {
        "config.json": config.to_json(),
        "plan.json": plan.model_dump_json(indent=2) + "\n",
        "train.py": _SCRIPT.format(name=config.name),
        "requirements.txt": f"gpubloom[train]=={package_version}\n",
    }
