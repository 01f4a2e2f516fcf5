"""The card of a run: all there is to see of it, in one HTML file that needs no server and no network."""

from gpubloom.traincard.card.page import CardNotBuiltError, render_card, write_card

__all__ = ["CardNotBuiltError", "render_card", "write_card"]
