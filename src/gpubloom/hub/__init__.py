"""Model hubs: download and upload by hub id, a catalogue of models, a check before training. No torch."""
