"""Several runs side by side: what was asked of them differently, and what came of it."""
