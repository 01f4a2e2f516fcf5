"""Several processes that train one model together: each computes its rows, all make the same update."""

from gpubloom.engine.parallel.companions import Companions
from gpubloom.engine.parallel.group import ALONE, Group, join

__all__ = ["ALONE", "Companions", "Group", "join"]
