"""Documents that are packed into one row: where each starts, and what its positions may see.

A document is a run of equal ids; which numbers they are does not matter.

Shape letters: B rows, T positions.
"""

import torch
from torch import Tensor


def document_starts(documents_BT: Tensor) -> Tensor:
    """Where each position's document starts in its row."""
    positions_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    first_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    first_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    return torch.where(first_BT, positions_T, 0).cummax(dim=1).values


def same_document(documents_BT: Tensor) -> Tensor:
    """True where two positions of a row are of one document, (B, 1, T, T)."""
    starts_BT = document_starts(documents_BT)
    return starts_BT[:, None, :, None] == starts_BT[:, None, None, :]
