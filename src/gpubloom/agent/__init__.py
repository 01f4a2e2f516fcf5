"""The agent: runs one attempt of one job on any machine, and records how it ended (docs/agent.md).

Standard library and traincard only; together they become the zipapp `bloom-agent.pyz`. It knows a run
directory and a command line, and nothing of jobs in a database, of servers or of torch.
"""

from gpubloom.agent.files import AgentFiles, AgentRecord
from gpubloom.agent.spec import ExitRecord, JobSpec

__all__ = ["AgentFiles", "AgentRecord", "ExitRecord", "JobSpec"]
