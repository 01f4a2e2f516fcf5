"""The HTTP route of a run's samples: its answers to the same prompts over steps.

For the people of the job's project only; a share link does not reach it, as prompts may be private.
"""

from pathlib import Path

import anyio.to_thread
from fastapi import APIRouter
from pydantic import Field

from gpubloom.server.accounts.principal import CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_RUN
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.stream_routes import OwnJobId
from gpubloom.server.jobs.summary import storable
from gpubloom.server.schema import Schema
from gpubloom.traincard.samples import load_samples

router = APIRouter(tags=["jobs"])


class SampleAnswer(Schema):
    """What the model answers at one step."""

    step: int = Field(description="0 is the model before training.")
    text: str


class PromptSamples(Schema):
    """One prompt and its answers, from the first step on."""

    prompt: str
    answers: list[SampleAnswer]


class JobSamples(Schema):
    """The samples of a job. Of many steps some are left out: the first and the last are kept."""

    items: list[PromptSamples]


@router.get("/jobs/{job_id}/samples", dependencies=[HOLDS_RUN])
async def read_samples(job_id: OwnJobId, settings: CurrentSettings) -> JobSamples:
    """Return what the model answers to the sample prompts of its run, step by step."""
    return await anyio.to_thread.run_sync(lambda: samples_of(run_directory(settings, job_id)))


def samples_of(run_dir: Path) -> JobSamples:
    """The samples in a run directory."""
    try:
        found = load_samples(run_dir)
    except (OSError, ValueError, RecursionError):
        # A file that no Reporter writes.
        return JobSamples(items=[])
    return JobSamples(
        items=[
            PromptSamples(
                prompt=storable(each["prompt"]),
                answers=[
                    SampleAnswer(step=answer["step"], text=storable(answer["text"]))
                    for answer in each["answers"]
                ],
            )
            for each in found
        ]
    )
