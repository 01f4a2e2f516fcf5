"""Runs the web server in this process and prints its address."""

import asyncio
import socket
from functools import partial
from typing import cast

import uvicorn
from fastapi import FastAPI

from gpubloom.cli.output import echo
from gpubloom.cli.parent import end_with_parent
from gpubloom.cli.server import listen, ready_settings, wanted_port
from gpubloom.server.accounts.registration import issue_setup_link
from gpubloom.server.app import create_app
from gpubloom.server.security.connections import Connections, GuardedProtocol
from gpubloom.server.settings import Settings


def run_server(*, port: int | None, host: str | None) -> None:
    """Serve until stopped; wrong input ends with one sentence and exit code 2."""
    settings = ready_settings(port=wanted_port(port), host=host)
    listening = listen(settings)
    settings = settings.model_copy(update={"port": listening.getsockname()[1]})
    end_with_parent()
    asyncio.run(_serve(settings, listening))


class _Server(uvicorn.Server):
    """Prints its address once it answers requests."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        address = self._app.state.settings.address
        async with self._app.state.database.write() as session:
            link = await issue_setup_link(session, address)
        echo(f"\n  GPU Bloom is at {address}\n")
        if link is not None:
            echo("  There is no account yet. Create the first account, an admin, with this one-time link:\n")
            echo(f"    {link}\n")
        echo("  Press Ctrl-C to stop.\n")


async def _serve(settings: Settings, listening: socket.socket) -> None:
    app = create_app(settings)
    protocol = partial(GuardedProtocol, guard=Connections(settings))
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),
        # The app has none, and such a connection would leave the protocol that guards it.
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Only a proxy in the settings may name the address of the client.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=10,
    )
    await _Server(config, app).serve(sockets=[listening])
