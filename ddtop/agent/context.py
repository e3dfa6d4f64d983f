"""What every op is given: the loop, the agent's own zip, its rights, its state folder, and shared readings."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from typing import Any, Callable, Dict, Optional, TypeVar

from .errors import OpError
from .rights import Rights

T = TypeVar("T")


class Context:
    """One for the life of the agent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        rights: Rights,
        zip_path: str,
        zip_hash: str,
        state_dir: Optional[str],
        state_why: str = "",
    ) -> None:
        self.loop = loop
        self.rights = rights
        self.zip_path = zip_path
        self.zip_hash = zip_hash
        self.state_dir = state_dir
        self.state_why = state_why
        """Why there is no state folder, as a sentence; empty when there is one."""
        self.shared: Dict[str, Any] = {}
        """Readings and locks that several ops share, by name."""
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=32, thread_name_prefix="op")

    def need_state_dir(self) -> str:
        """The state folder. Raises OpError "not-permitted" where there is none."""
        if self.state_dir is None:
            raise OpError(
                "not-permitted",
                f"there is no state folder ({self.state_why}), so detached jobs are off",
                "name a folder on a disk of the host: --host-dir DIR",
            )
        return self.state_dir

    async def thread(self, function: Callable[..., T], *args: Any, timeout_s: Optional[float] = None) -> T:
        """A blocking call in a thread. A thread that hangs (a dead network file system) is left behind."""
        future = self.loop.run_in_executor(self._pool, functools.partial(function, *args))
        return await asyncio.wait_for(future, timeout_s)
