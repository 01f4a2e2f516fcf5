"""Files of examples that people brought: upload, statistics, preview."""
