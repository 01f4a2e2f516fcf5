"""One layout in one store, for jobs on rented instances (docs/storage.md): a bucket, or this server itself.

    store = Store(StorageSettings(endpoint="https://…", bucket="runs", key="…", secret="…"))
    sent = send_bundle(store, bundle)             # sent.command starts the job on any machine
    receiver = Receiver(store, job_id, attempt, run_dir)
    news = receiver.once()                        # again and again, until news.state is ended or vanished

This is the side that has the key; the agent's side is `gpubloom.agent.remote`. Needs obstore
(`pip install 'gpubloom[storage]'`).
"""

from gpubloom.storage.bundle import Bundle, SentBundle, send_bundle
from gpubloom.storage.mailbox import Mailbox
from gpubloom.storage.receiver import Arrival, DamagedBatchError, Receiver
from gpubloom.storage.run_store import RunStore
from gpubloom.storage.server_store import ServerStore
from gpubloom.storage.ssh_store import MachineUnreachable, SshAccess, SshKeys, SshStore
from gpubloom.storage.store import StorageError, StorageSettings, Store, StoreRefused

__all__ = [
    "Arrival",
    "Bundle",
    "DamagedBatchError",
    "MachineUnreachable",
    "Mailbox",
    "Receiver",
    "RunStore",
    "SentBundle",
    "ServerStore",
    "SshAccess",
    "SshKeys",
    "SshStore",
    "StorageError",
    "StorageSettings",
    "Store",
    "StoreRefused",
    "send_bundle",
]
