"""Jobs on bare machines of Lambda (a machine) and RunPod (a container), from the form to the results.

The machines have Python 3.9, no pip, no curl and no compiler, and reach a package mirror, the bucket and the
service; nothing of this machine is visible there. They have no GPU: a fake driver answers, and PyTorch is
the build for CPUs.
"""

import pytest

from tests.bare.jobs import lose_a_machine, train_the_template, tune_with_the_engine
from tests.bare.services import BareLambda, BareRunPod
from tests.worker.remote.shopper import Shopper

pytest.importorskip("obstore")
pytestmark = [pytest.mark.xdist_group("bare"), pytest.mark.long, pytest.mark.timeout(1500)]


def test_the_character_level_template_trains_on_a_bare_machine(
    shopper: Shopper, cloud: BareLambda | BareRunPod
) -> None:
    train_the_template(shopper, cloud)


def test_a_training_resumes_on_another_machine_when_the_first_is_lost(
    shopper: Shopper, cloud: BareLambda | BareRunPod
) -> None:
    lose_a_machine(shopper, cloud)


def test_the_engine_tunes_a_model_there(shopper: Shopper, cloud: BareLambda | BareRunPod) -> None:
    tune_with_the_engine(shopper, cloud)
