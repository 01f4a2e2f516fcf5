"""Mirrors a run directory to s3://, gs:// or az:// while it grows, and brings it back.

    with Mirror("runs/first", "s3://bucket/runs/first"):
        train()

What lies in the bucket is a run directory, so whatever reads one reads it there after `pull`. Needs obstore
(`pip install 'gpubloom[mirror]'`), which is imported only when a mirror is opened.
"""

from gpubloom.traincard.mirror.mirror import Mirror, start_mirror
from gpubloom.traincard.mirror.pull import pull
from gpubloom.traincard.mirror.store import MirrorError

__all__ = ["Mirror", "MirrorError", "pull", "start_mirror"]
