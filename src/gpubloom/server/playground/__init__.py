"""Talking to models: serve jobs, and the way from a browser or an OpenAI client to their processes."""
