from tests.agent.helpers import state_dir

__all__ = ["state_dir"]
