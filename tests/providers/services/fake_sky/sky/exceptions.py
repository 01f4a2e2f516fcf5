"""The real one's exceptions, by their names."""


class ResourcesUnavailableError(Exception):
    def __init__(self, message, failover_history=None):
        super().__init__(message)
        self.failover_history = failover_history or []


class NoCloudAccessError(Exception):
    pass


class ApiServerConnectionError(RuntimeError):
    pass


class ApiServerAuthenticationError(RuntimeError):
    pass


class ClusterDoesNotExist(ValueError):
    pass
