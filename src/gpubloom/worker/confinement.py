"""Which sandbox a job of the server runs in, and which paths it sees there."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpubloom.agent.progress.imports import knows_traincard
from gpubloom.agent.spec import JobSpec
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.providers.local.devices import CPU, CPU_SIDE_SLOT
from gpubloom.providers.local.sandbox import (
    RUN_INSIDE,
    Sandbox,
    limits_of_a_script,
    limits_of_a_training,
    why_no_sandbox,
)
from gpubloom.sandbox.launch import COMMAND
from gpubloom.sandbox.options import Options
from gpubloom.scripts.task import WORK_FOLDER
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.compiler_caches import tenant_cache

# Hidden, so that a cache in it is not uploaded when the job moves to an instance.
_HOME_FOLDER = ".home"
# What a Reporter writes in a run directory; its adapters also save checkpoints.
REPORT_FOLDERS = ("traincard", "checkpoints")
_PATTERN = frozenset("*?[")
_CALLED = {"train": "training", "serve": "model server", "evaluate": "evaluation", "export": "export"}


@dataclass(frozen=True)
class Confinement:
    """How jobs are confined on this machine. `home` is BLOOM_HOME, which no job may see.

    `is_required`: a job that cannot be confined does not start. `sources`: the configs of the runs whose
    models a task uses, as the server stored them; what lies in their directories may be anybody's.
    """

    home: Path
    is_required: bool = False
    is_off: bool = False
    sources: Sequence[Mapping[str, Any]] = ()

    def of_a_script(
        self, spec: JobSpec, job: TrainingJob, reservation: Reservation, *, network: bool
    ) -> JobSpec:
        """ProviderError when there is no sandbox here: a stranger's script never runs without one."""
        if reason := why_no_sandbox():
            raise ProviderError("no_sandbox", f"The script cannot run on the server's machine: {reason}")
        sandbox = Sandbox(
            spec.run_dir,
            self.home,
            str(job.user_id),
            limits_of_a_script(spec.run_dir, hours=job.max_hours),
            network=network,
            gpus=_gpus(reservation),
        )
        work, home = spec.run_dir / WORK_FOLDER, spec.run_dir / _HOME_FOLDER
        environment, reports = dict(spec.environment), []
        if has_reporter := knows_traincard(spec):
            environment |= {
                "BLOOM_RUN_DIR": RUN_INSIDE,
                "BLOOM_ATTEMPT": str(spec.attempt),
                "BLOOM_JOB_ID": spec.job_id,
            }
            reports = [spec.run_dir / name for name in REPORT_FOLDERS]
        # The variables of the script are set inside the sandbox only: outside, they would affect its set-up.
        return _in_sandbox(
            replace(spec, environment={}, has_reporter=has_reporter),
            sandbox.of_a_script(work, home, environment, reports=reports),
        )

    def of_a_training(
        self, spec: JobSpec, job: TrainingJob, reservation: Reservation, *, network: bool
    ) -> JobSpec:
        """A training or a task with a model. Without a sandbox: as the operator decided."""
        if self.is_off:
            return spec
        if reason := why_no_sandbox():
            if self.is_required:
                raise ProviderError("no_sandbox", f"The job cannot run on the server's machine: {reason}")
            return replace(spec, note=f"The job runs without a sandbox. {reason} {spec.note}".rstrip())
        sandbox = Sandbox(
            spec.run_dir,
            self.home,
            str(job.user_id),
            limits_of_a_training(),
            network=network,
            gpus=_gpus(reservation),
        )
        inputs = [
            path if job.kind == "train" else self._with_run(path)
            for config in (job.config, *self.sources)
            for path in input_paths(config)
        ]
        options = sandbox.of_a_training(
            [path for path in inputs if path.exists()],
            tenant_cache(self.home, str(job.user_id)),
            noun=_CALLED.get(job.kind, "job"),
            python=spec.command[0] if job.kind == "train" else sys.executable,
        )
        return _in_sandbox(spec, options)

    def _with_run(self, path: Path) -> Path:
        """For a checkpoint its run, whose config names the base model of an adapter."""
        runs = self.home / "runs"
        if not path.is_relative_to(runs):
            return path
        parts = path.relative_to(runs).parts
        return runs / parts[0] if parts[1:2] == ("checkpoints",) else path


def input_paths(config: Mapping[str, Any]) -> list[Path]:
    """The files and folders that a config names; of a pattern, the folder in which it begins."""
    if "train" in config:
        return input_paths(config["train"])
    model, data = config.get("model"), config.get("data") or {}
    named = (
        [model.get("path")]
        if isinstance(model, Mapping)
        else [model, config.get("base"), config.get("other")]
    )
    tokenizer = data.get("tokenizer") or {}
    named += [data.get("train_path"), data.get("eval_path"), tokenizer.get("path"), config.get("data_path")]
    named += [each.get("path") for each in data.get("mix") or []]
    found = [Path(each).expanduser() for each in named if each]
    return [_fixed_part(path) for path in found if path.is_absolute()]


def _fixed_part(path: Path) -> Path:
    while not _PATTERN.isdisjoint(str(path)):
        path = path.parent
    return path


def _gpus(reservation: Reservation) -> tuple[str, ...]:
    return tuple(name for name in reservation.devices if name not in {CPU, CPU_SIDE_SLOT})


def _in_sandbox(spec: JobSpec, options: Options) -> JobSpec:
    return replace(spec, confinement=options.to_json(), launcher=COMMAND)
