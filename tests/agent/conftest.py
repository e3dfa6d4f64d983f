from tests.agent.helpers import state_dir, tiny_tmpfs

__all__ = ["state_dir", "tiny_tmpfs"]
