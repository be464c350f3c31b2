"""The copies of write-ahead logs that writes start in a thread."""

import pytest

from lango.store.db.sqlite.log import WriteAheadLog


class Copies:
    """Knows the logs that are copied, and waits for their copies."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._logs = set[WriteAheadLog]()
        start = WriteAheadLog.copy_if_long

        async def copy_if_long(log: WriteAheadLog) -> None:
            self._logs.add(log)
            await start(log)

        patch.setattr(WriteAheadLog, "copy_if_long", copy_if_long)

    async def end(self) -> None:
        """Wait for those under way: a slow thread would skip the next ones."""
        for log in self._logs:
            await log.wait_for_copy()
