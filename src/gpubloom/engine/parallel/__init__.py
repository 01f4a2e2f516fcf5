"""Several processes that train one model together: each computes its rows, all make the same update."""

from gpubloom.engine.parallel.group import ALONE, Group, GroupLost, PeerFailed
from gpubloom.engine.parallel.rank_env import RankEnv
from gpubloom.engine.parallel.rendezvous import PortInUse, join

__all__ = ["ALONE", "Group", "GroupLost", "PeerFailed", "PortInUse", "RankEnv", "join"]
