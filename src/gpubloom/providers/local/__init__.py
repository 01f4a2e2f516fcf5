"""This machine as a provider: devices, agent processes, the sandbox for people's own code."""
