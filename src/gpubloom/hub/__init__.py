"""Model hubs: models and datasets by id, a catalogue of families, a check before training. No torch."""
