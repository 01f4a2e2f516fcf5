"""Models and data that are fetched while a Modal image is built, by the official SDK against the fake.

The commands of the layers are also run for real, against a fake hub and a web server on this machine.
"""

import asyncio
import hashlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpubloom.providers.cloud import Fault, Instance, Launch, Prefetch
from gpubloom.providers.modal.connection import TimeLimits
from gpubloom.providers.modal.image import fetch_commands
from gpubloom.providers.modal.provider import ModalProvider
from gpubloom.storage import Store
from gpubloom.storage.layout import JobLayout
from tests.errors import raises
from tests.hub.fake_hub import TOKEN as HUB_TOKEN
from tests.hub.fake_hub import running_hub
from tests.providers.services.modal_service import TOKEN_ID, TOKEN_SECRET, ModalService
from tests.storage.instances import Instance as RentedRun

ADDRESS = "https://bucket.example/start?signature=Hidden-Start-Signature"
TOKEN = "hf_Hidden_Hub_Token"
WANTED = Prefetch(
    models=("Qwen/Qwen2.5-1.5B",), datasets=(("glue", "sst2"),), addresses=("https://data.example/in.txt",)
)

pytestmark = pytest.mark.xdist_group("modal")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModalService]:
    with ModalService() as running:
        monkeypatch.setenv(*next(iter(running.environment.items())))
        yield running


def submit(number: int = 1, prefetch: Prefetch = WANTED, command: str = "true") -> Instance:
    launch = Launch(
        key=f"bloom-job{number}-a1",
        gpu="T4",
        gpus=1,
        command=command,
        start_address=ADDRESS,
        packages=("transformers",),
        prefetch=prefetch,
        secrets={"HF_TOKEN": TOKEN},
    )

    async def run() -> Instance:
        limits = TimeLimits(answer=20, image=20, machine=20, clean_up=5, look_again=(0.0, 0.2))
        opened = ModalProvider(TOKEN_ID, TOKEN_SECRET, limits=limits)
        try:
            return await opened.submit(launch)
        finally:
            await opened.close()

    return asyncio.run(run())


def test_each_download_is_a_layer_and_the_same_ones_are_not_built_again(service: ModalService) -> None:
    started = submit()
    image = service.sandboxes[started.id].definition.image_id
    built = service.built_for(image)
    runs = [command for command in built if "sys.argv" in command]
    assert len(runs) == 3
    for name in ("Qwen/Qwen2.5-1.5B", "glue sst2", "https://data.example/in.txt"):
        assert sum(name in command for command in runs) == 1
    for variable in ("HF_HOME", "BLOOM_FILES"):
        assert any(command.startswith(f"ENV {variable}=") for command in built), built
    layers = len(service.layers)
    again = submit(2)
    assert service.sandboxes[again.id].definition.image_id == image
    assert len(service.layers) == layers
    # Another model is one layer more, on top of those that are there.
    submit(3, replace(WANTED, models=(*WANTED.models, "gpt2")))
    assert len(service.layers) == layers + 1


def test_the_token_is_a_secret_of_the_layers_and_of_the_sandbox_and_in_no_command(
    service: ModalService,
) -> None:
    started = submit(command='test "$HF_TOKEN" && sleep 60')
    sandbox = service.sandboxes[started.id]
    fetching = [found for found in service.image_secrets.values() if found]
    # The job's address is a secret of the sandbox only.
    assert fetching == [[{"HF_TOKEN": TOKEN}]] * 3
    assert sandbox.machine is not None
    assert TOKEN not in str(sandbox.definition)
    assert not [command for commands in service.images.values() for command in commands if TOKEN in command]
    assert sandbox.running


def test_what_cannot_be_fetched_early_does_not_keep_the_job_from_starting(service: ModalService) -> None:
    started = submit(prefetch=Prefetch(models=("no-such-model",)))
    assert "The job downloads them itself." in started.detail
    image = service.sandboxes[started.id].definition.image_id
    assert not any("no-such-model" in command for command in service.built_for(image))
    assert any("transformers" in command for command in service.built_for(image))


def test_a_service_that_is_away_while_the_image_is_built_is_asked_again_with_everything(
    service: ModalService,
) -> None:
    service.fail_next("unavailable", times=4, calls="ImageGetOrCreate")
    with raises(Fault, code="unavailable"):
        submit()
    assert submit().detail == ""


def test_a_job_that_downloads_nothing_gets_no_further_layers(service: ModalService) -> None:
    started = submit(prefetch=Prefetch())
    built = service.built_for(service.sandboxes[started.id].definition.image_id)
    assert not any("sys.argv" in command or "HF_HOME" in command for command in built)


def _run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A layer's command as a shell runs it, with folders of this test."""
    words = [word.replace("/opt/gpubloom", str(folder)) for word in shlex.split(command)]
    words[0] = sys.executable
    home = {"HF_HOME": str(folder / "huggingface"), "PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        words, env={**home, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_model_is_fetched_into_the_cache_that_loaders_read(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"new", "pytorch_model.bin": b"old", "x.onnx": b"o"}
    (command,) = fetch_commands(Prefetch(models=("acme/tiny",)))
    with running_hub() as hub:
        repo = hub.add("acme/tiny", files, gated=True)
        reach = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        # The real hub's store is another host; the library tells the two apart.
        hub.url = hub.url.replace("127.0.0.1", "localhost")
        refused = _run(command, tmp_path, **reach)
        assert refused.returncode != 0
        done = _run(command, tmp_path, HF_TOKEN=HUB_TOKEN, **reach)
        assert done.returncode == 0, done.stderr
        there = tmp_path / f"huggingface/hub/models--acme--tiny/snapshots/{repo.revision()}"
        assert {path.name for path in there.iterdir()} == {"config.json", "model.safetensors"}


def test_a_file_from_the_image_is_not_downloaded_again_by_the_agent(store: Store, tmp_path: Path) -> None:
    data = "to be or not to be\n" * 100
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "input.txt").write_text(data)
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/input.txt"
        (command,) = fetch_commands(Prefetch(addresses=(address,)))
        done = _run(command, tmp_path)
        assert done.returncode == 0, done.stderr
    finally:
        server.shutdown()
        server.server_close()
    digest = hashlib.sha256(data.encode()).hexdigest()
    assert (tmp_path / "files" / digest).read_text() == data

    there = RentedRun(
        store,
        tmp_path,
        {"train.py": "print(len(open('data/input.txt').read()))", "data/input.txt": data},
    )
    sent = there.send()
    # Without the object in the bucket, only the image has the file.
    store.delete([JobLayout("job-1", 1).bundle_file(digest)])
    there.launch(sent, BLOOM_FILES=str(tmp_path / "files"))
    there.until("ended")
    assert there.code() == 0
    assert str(len(data)) in (there.run_dir / "logs" / "output.log").read_text()
