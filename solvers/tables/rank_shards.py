"""Shards of ranks that train in step: each writes its own in the background, and tells rank 0 when it is done."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mgcaffe.comm import Communicator
from mgcaffe.solvers.tables.shard_holder import SaveOrder, ShardFile, ShardHolder, ShardSaving


class RankShards:
    """Writes this rank's shards.

    Args:
        communicator: the ranks, for this alone; used by the threads that write, one at a time.
        holder: has this rank's rows.
    """

    def __init__(self, communicator: Communicator, holder: ShardHolder) -> None:
        self._communicator = communicator
        self._holder = holder
        self._telling: threading.Thread | None = None
        self._saving: ShardSaving | None = None  # of rank 0, until it has heard of all

    def begin(self, order: SaveOrder) -> Callable[[], list[ShardFile]]:
        """Begin to write this rank's shard; what it returns waits for those of all ranks, for rank 0."""
        self._wait()
        saving = self._holder.save(order, self._communicator.rank)
        if not self._communicator.rank:
            self._saving = saving
        else:
            self._telling = threading.Thread(target=self._tell, args=(saving,), name="shard written", daemon=True)
            self._telling.start()
        return lambda: self._all(saving)

    def close(self) -> None:
        """Wait until rank 0 knows; it does not where an error is on its way, which others may not have survived."""
        if self._communicator.rank or sys.exc_info()[0] is None:
            self._wait()
        self._communicator.close()

    def _wait(self) -> None:
        """Return once rank 0 knows; of shards that it has not asked for it hears now, and removes them."""
        if self._saving is not None:
            for each in self._all(self._saving):
                if each.temporary:
                    Path(each.temporary).unlink(missing_ok=True)
        if self._telling is not None:
            self._telling.join()
            self._telling = None

    def _tell(self, saving: ShardSaving) -> None:
        self._communicator.send(np.frombuffer(pickle.dumps(saving.wait()), np.uint8).copy(), 0)

    def _all(self, saving: ShardSaving) -> list[ShardFile]:
        files = [saving.wait()]
        for rank in range(1, self._communicator.size):
            message = self._communicator.receive_any(rank)
            assert message is not None
            files.append(pickle.loads(message.content.tobytes()))
        self._saving = None
        return files
