"""Stands in for SkyPilot in its own Python: what our bridge calls of it, remembered in a folder.

Its clusters really run: a task's `run` in a folder of its own, with the secrets as environment. That the real
SkyPilot has these functions and takes these tasks is another test's business (test_skypilot_itself.py).
"""

import enum


class StatusRefreshMode(enum.Enum):
    NONE = "NONE"
    AUTO = "AUTO"


class Task:
    def __init__(self, config):
        self.config = config
        self.name = config["name"]
        self.num_nodes = config["num_nodes"]
        self.secrets = dict(config["secrets"])
        self.resources = [config["resources"]]

    @staticmethod
    def from_yaml_config(config):
        return Task(config)

    def update_secrets(self, secrets):
        self.secrets.update(secrets)
        return self
