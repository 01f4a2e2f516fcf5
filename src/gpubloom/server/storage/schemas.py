"""The stores of rented jobs as people read them."""

from typing import Literal, Self, get_args

from gpubloom.server.schema import Schema

# volume: what Modal brings itself (`providers.registry.own_store`).
StoreName = Literal["bucket", "server", "volume", "ssh"]


class StoreOut(Schema):
    """What the files of a job on a rented machine go through."""

    name: StoreName
    title: str
    note: str

    @classmethod
    def named(cls, name: StoreName) -> Self:
        title, note = _STORES[name]
        return cls(name=name, title=title, note=note)

    @classmethod
    def stored(cls, name: object) -> Self | None:
        """As a job's row names it; None: a row of another version."""
        return next((cls.named(known) for known in get_args(StoreName) if known == name), None)


_STORES: dict[StoreName, tuple[str, str]] = {
    "bucket": ("Storage bucket", "Uploads continue for seven days while this server is off."),
    "volume": (
        "Modal Volume",
        "It is a volume of your Modal account. Uploads continue while this server is off.",
    ),
    "server": ("This server", "Machines exchange files with this server over HTTPS. Keep it running."),
    "ssh": (
        "SSH",
        "This server connects to the machine over SSH and fetches the results. Keep it running: while it is "
        "off, results wait on the machine.",
    ),
}
