"""The frames of a stream of server-sent events, for the server and for the pages over a folder."""

from dataclasses import dataclass

from fastapi.responses import StreamingResponse


class EventStream(StreamingResponse):
    """Frames that are encoded already: one encoding for all viewers."""

    media_type = "text/event-stream"


@dataclass(frozen=True)
class StreamEvent:
    """One event as every browser gets it."""

    position: int
    frame: bytes
    is_reset: bool = False


# The tick of a viewer: its server looks whether it may still listen.
TICK = StreamEvent(-1, b": ping\n\n")


def reset_event(position: int) -> StreamEvent:
    """Tells a viewer to load the job and its curves again."""
    return StreamEvent(position, f"id: {position}\nevent: reset\ndata: {{}}\n\n".encode(), is_reset=True)
