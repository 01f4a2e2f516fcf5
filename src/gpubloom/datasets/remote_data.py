"""Training data by address: https://, hf://, s3:// and gs:// become files in a folder, once.

    https://host/path/file.jsonl
    hf://datasets/OWNER/NAME[@REVISION]/path     a file, or a folder with everything in it
    s3://bucket/key   gs://bucket/key            an object, or everything below a prefix

Credentials are the secrets of the job, as environment variables: HF_TOKEN; AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and, where needed, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL; for gs:// the JSON
key of a service account in GOOGLE_SERVICE_ACCOUNT_KEY. Without credentials the data must be public.

The Hub is read over plain HTTP, not by its library: a rented machine needs no package for it, and the rules
of the server for outgoing connections hold.
"""

import hashlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gpubloom.datasets.downloading import (
    FetchProblem,
    Remote,
    Tell,
    download,
    fetching_alone,
    must_have_room,
    on_disk,
    tell_on_stderr,
)
from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.buckets import check_bucket_name, check_google_key, check_region
from gpubloom.egress.downloads import opener
from gpubloom.traincard.sync.files import is_inside

SCHEMES = ("https", "hf", "s3", "gs")
_DONE = ".fetched.json"
_HUB = "https://huggingface.co"
_HUB_FILE = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([\w.%/-]+?))?(?:/(.*))?")
_SECONDS = 60.0
_LARGEST_LIST = 16 << 20
_MOST_FILES = 10_000
_MOST_PAGES = 1_000
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_SECRETS = {
    "https": "The address must work without signing in.",
    "hf": "Add the secret HF_TOKEN to the job, and accept the terms of the dataset on its page.",
    "s3": "Add the secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the job.",
    "gs": "Add the secret GOOGLE_SERVICE_ACCOUNT_KEY to the job.",
}


@dataclass
class _Source:
    """An address with what opens it. `trusted`: whoever wrote the address runs this process. `room`: how many
    bytes may still be fetched; None: as many as the disk holds. `is_wanted`: asked while bytes arrive. `tell`
    gets what is waited for."""

    address: str
    credentials: Mapping[str, str]
    trusted: bool
    room: int | None
    is_wanted: Callable[[], bool]
    tell: Tell

    @property
    def scheme(self) -> str:
        return urlsplit(self.address).scheme.lower()

    def need(self, size: int) -> None:
        """FetchProblem: there is no room for so many bytes more, or nobody wants them any more."""
        self.go_on()
        if self.room is not None and size > self.room:
            raise FetchProblem(
                "quota_exceeded",
                f"The data at {self.address} is larger than the {self.room / 1e9:,.3f} GB that your quota "
                "leaves. Delete a dataset, a model or a job, or ask the operator to raise "
                "BLOOM_USER_QUOTA_GB.",
            )

    def go_on(self) -> None:
        if not self.is_wanted():
            raise FetchProblem("fetch_stopped", f"Fetching {self.address} was stopped.")

    def take(self, size: int) -> None:
        self.need(size)
        if self.room is not None:
            self.room -= size

    def policy(self, *listed: str) -> Policy:
        return Policy.of_operator(*listed) if self.trusted else Policy.of_operator()

    def denied(self) -> FetchProblem:
        return FetchProblem(
            "data_access_denied", f"No access to the data at {self.address}. {_SECRETS[self.scheme]}"
        )

    def missing(self) -> FetchProblem:
        return FetchProblem("data_not_found", f"There is no data at {self.address}. Check the address.")

    def unreadable(self) -> FetchProblem:
        return FetchProblem("no_network", f"The list of the files at {self.address} cannot be read.")

    def too_many(self) -> FetchProblem:
        return FetchProblem(
            "too_many_files", f"{self.address} has more than {_MOST_FILES} files. Name a folder in it."
        )


def is_remote(path: str | None) -> bool:
    """Whether a data path is an address that `fetch_data` fetches."""
    return path is not None and "://" in path and urlsplit(path).scheme.lower() in SCHEMES


def name_of(address: str) -> str:
    """What a file or folder with the data of an address is called: by the last part of the address."""
    parts = urlsplit(address)
    path = unquote(parts.path).strip("/")
    if parts.scheme.lower() == "hf":
        path = re.sub(r"@[^/]*", "", path)
    return _plain(path.rpartition("/")[2] or parts.netloc) or "data"


def fetch_data(
    address: str,
    folder: Path,
    credentials: Mapping[str, str] = os.environ,
    *,
    trusted: bool = True,
    room: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    tell: Tell = tell_on_stderr,
) -> Path:
    """The file or the folder with what is at an address; fetched unless `folder` has it. FetchProblem."""
    source = _Source(address, credentials, trusted, room, is_wanted, tell)
    base = folder / hashlib.sha256(address.encode()).hexdigest()[:16]
    with fetching_alone(base), on_disk(base):
        done = base / _DONE
        if done.is_file():
            return base / str(json.loads(done.read_text())["path"])
        match source.scheme:
            case "https":
                path = _download(source, address, base / name_of(address))
            case "hf":
                path = _from_hub(source, base)
            case _:
                path = _from_bucket(source, base)
        done.write_text(json.dumps({"path": path.relative_to(base).as_posix()}))
        return path


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[-100:]


def _download(source: _Source, address: str, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        remote = Remote(address, token=_token(source), listed=source.trusted)
        _, size = download(remote, part, lambda done, total: source.need(total or done), source.tell)
        source.take(size)
    except FetchProblem as problem:
        if problem.code == "quota_exceeded":
            part.unlink(missing_ok=True)
        if problem.code == "refused":
            raise source.denied() from problem
        if problem.code == "not_found":
            raise source.missing() from problem
        raise
    part.replace(target)
    return target


def _token(source: _Source) -> str:
    return source.credentials.get("HF_TOKEN", "") if source.scheme == "hf" else ""


def _from_hub(source: _Source, base: Path) -> Path:
    match = _HUB_FILE.fullmatch(source.address)
    if match is None:
        raise FetchProblem(
            "invalid_address",
            f"{source.address} is not an address of a dataset at the Hub. Write hf://datasets/OWNER/NAME/PATH.",
        )
    repository, revision, path = match[1], unquote(match[2] or "main"), (match[3] or "").strip("/")
    hub = os.environ.get("HF_ENDPOINT", _HUB).rstrip("/")
    at = f"{hub}/datasets/{repository}/resolve/{quote(revision, safe='')}"
    if "." in path.rpartition("/")[2]:
        return _download(source, f"{at}/{quote(path)}", base / (_plain(path.rpartition("/")[2]) or "data"))
    listing = f"{hub}/api/datasets/{repository}/tree/{quote(revision, safe='')}/{quote(path)}".rstrip("/")
    names = [name for name in _hub_files(source, f"{listing}?recursive=true") if _is_data(name)]
    if not names:
        raise source.missing()
    for name in names:
        _download(source, f"{at}/{quote(name)}", base / "files" / name)
    return base / "files"


def _is_data(name: str) -> bool:
    """Not the files that describe a repository."""
    return is_inside(name) and name.rpartition("/")[2] not in {"README.md", ".gitattributes"}


def _hub_files(source: _Source, address: str) -> Iterator[str]:
    """The names of all files, from all pages. The token stays with the host of the first one."""
    found, host = 0, urlsplit(address).netloc
    for _ in range(_MOST_PAGES):
        source.go_on()
        request = urllib.request.Request(address, headers={"User-Agent": "gpubloom"})  # noqa: S310 - checked
        if token := _token(source):
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with opener(source.policy(address)).open(request, timeout=_SECONDS) as answer:
                content, link = answer.read(_LARGEST_LIST + 1), answer.headers.get("Link", "")
        except urllib.error.HTTPError as problem:
            with problem:
                raise (source.missing() if problem.code == 404 else source.denied()) from None
        except (EgressRefused, OSError) as problem:
            raise FetchProblem(
                "no_network", f"The files at {source.address} cannot be listed: {problem}."
            ) from None
        if len(content) > _LARGEST_LIST:
            raise source.too_many()
        for name in _names_in(source, content):
            found += 1
            if found > _MOST_FILES:
                raise source.too_many()
            yield name
        following = _NEXT.search(link)
        if following is None:
            return
        address = following[1]
        if urlsplit(address).netloc != host:
            raise source.unreadable()
    raise source.too_many()


def _names_in(source: _Source, content: bytes) -> list[str]:
    try:
        return [str(entry["path"]) for entry in json.loads(content) if entry.get("type") == "file"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise source.unreadable() from None


def _from_bucket(source: _Source, base: Path) -> Path:
    try:
        import obstore
        from obstore import exceptions
    except ModuleNotFoundError as absent:
        raise FetchProblem(
            "not_installed", f"{source.scheme}:// needs obstore: pip install 'gpubloom[storage]'."
        ) from absent
    key = unquote(urlsplit(source.address).path).strip("/")
    store = _open_bucket(source)
    try:
        sizes = _objects(obstore, store, key)
        if not sizes:
            raise source.missing()
        if len(sizes) > _MOST_FILES:
            raise source.too_many()
        source.take(sum(sizes.values()))
        must_have_room(base, sum(sizes.values()), source.address)
        for name in sizes:
            # An object with the very key is a file; below a prefix, names are those from there on.
            inside = _plain(name.rpartition("/")[2]) if name == key else name.removeprefix(key).strip("/")
            target = base / (inside if name == key else f"files/{inside}")
            if not is_inside(inside):
                raise FetchProblem("path_outside_folder", f"The bucket has an object with the name {name!r}.")
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            with part.open("wb") as file:
                for piece in obstore.get(store, name).stream():
                    file.write(piece)
                    source.go_on()
                    if file.tell() > sizes[name]:
                        raise FetchProblem("damaged", f"{name} is larger than its bucket says.")
            part.replace(target)
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as problem:
        raise source.denied() from problem
    except exceptions.BaseError as problem:
        # What the library says may quote a request; its kind tells enough.
        raise FetchProblem(
            "no_network",
            f"The data at {source.address} cannot be fetched ({type(problem).__name__}). Check the address, "
            "the credentials and the region, and try again.",
        ) from problem
    return base / (_plain(key.rpartition("/")[2]) if key in sizes else "files")


def _objects(obstore: Any, store: Any, key: str) -> dict[str, int]:
    if key:
        try:
            return {key: int(obstore.head(store, key)["size"])}
        except FileNotFoundError:
            pass
    prefix = f"{key}/" if key else None
    found = (entry for chunk in obstore.list(store, prefix=prefix) for entry in chunk)
    # One more than may be, so that the caller sees that there are too many.
    return {str(entry["path"]): int(entry["size"]) for entry in islice(found, _MOST_FILES + 1)}


def _open_bucket(source: _Source) -> Any:
    from obstore.store import GCSStore, S3Store

    # As `storage.store` opens them: the options are those of the library, by name.
    google: Any = GCSStore
    amazon: Any = S3Store
    given, bucket = source.credentials, urlsplit(source.address).netloc
    key = given.get("GOOGLE_SERVICE_ACCOUNT_KEY", "")
    endpoint = given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL") or ""
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or "us-east-1"
    try:
        check_bucket_name(bucket)
        if source.scheme == "gs":
            check_google_key(key)
        else:
            check_region(region)
            _check_endpoint(source, endpoint)
    except (EgressRefused, OSError) as problem:
        raise FetchProblem("egress_refused", f"{source.address} cannot be opened: {problem}") from None
    if source.scheme == "gs":
        config: dict[str, Any] = {"service_account_key": key} if key else {"skip_signature": True}
        return google(bucket, config=config)
    config = {
        "access_key_id": given.get("AWS_ACCESS_KEY_ID", ""),
        "secret_access_key": given.get("AWS_SECRET_ACCESS_KEY", ""),
        "session_token": given.get("AWS_SESSION_TOKEN", ""),
        "region": region,
        "endpoint": endpoint,
    }
    chosen = {name: value for name, value in config.items() if value}
    if "access_key_id" not in chosen:
        # Else the library would take credentials of this process, which are not those of the job.
        chosen["skip_signature"] = "true"
    return amazon(bucket, config=chosen, client_options={"allow_http": endpoint.startswith("http://")})


def _check_endpoint(source: _Source, endpoint: str) -> None:
    """The library resolves the name once more. A name that then leads into the operator's network gets no
    answer: only the right host has the certificate. So plain http is for what the operator allowed."""
    if not endpoint:
        return
    policy = source.policy(endpoint)
    host, port = policy.check_address(endpoint)
    policy.resolve(host, port)
    if not endpoint.startswith("https://") and not policy.is_private(host):
        raise EgressRefused("AWS_ENDPOINT_URL must start with https://.")
