"""SkyPilot: any cloud that it knows, through its own Python."""
