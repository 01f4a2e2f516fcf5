"""Several processes that train one model together: each computes its rows, all make the same update."""

from gpubloom.engine.parallel.group import ALONE, CompanionFailed, Group, GroupLost
from gpubloom.engine.parallel.meeting import PortInUse, join
from gpubloom.engine.parallel.seat import Seat

__all__ = ["ALONE", "CompanionFailed", "Group", "GroupLost", "PortInUse", "Seat", "join"]
