"""Named secrets of people and projects, as environment variables of their jobs."""
