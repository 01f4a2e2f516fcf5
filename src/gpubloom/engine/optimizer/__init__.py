"""How weights change: AdamW on the device and on the host, and the learning rate of a step."""
