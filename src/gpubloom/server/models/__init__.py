"""Models that people brought or named: from a hub, a folder or an upload, checked before they are trained."""
