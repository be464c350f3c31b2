"""ADK's own DatabaseSessionService as a contender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService

from bench.events import APPENDED_BYTES
from bench.pg import POOL_SIZE, connect
from bench.store.contenders import service_load, service_writer, template_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.store.contenders import Fill, ServiceWriter

SCHEMA: Final = "adk"

# Rows as the service itself wrote them, copied with new ids; messages a second apart.
_CREATE: Final = """
insert into sessions (app_name, user_id, id, state, create_time, update_time)
select app_name, user_id, gen_random_uuid()::text, state, create_time, create_time
from sessions, generate_series(1, $2) where id = $1
returning id
"""
_FILL: Final = """
insert into events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)
select i.id, e.app_name, e.user_id, s, 'e-' || gen_random_uuid(), i.at,
       e.event_data || jsonb_build_object('id', i.id, 'timestamp', extract(epoch from i.at))
from generate_series(1, $2::bigint) n
cross join unnest($1::text[]) s
cross join lateral (
    select gen_random_uuid()::text as id, timestamp '2025-01-01' + n * interval '1 second' as at
    where n > 0
) i
join events e on e.session_id = $3 and (e.event_data ->> 'author' = 'user') =
    case $4 when 'user' then true when 'model' then false else n % 2 = 1 end
order by n, s
"""


class Adk:
    """DatabaseSessionService with its defaults and the pool size that all share."""

    name = "ADK Database"
    message_table = f"{SCHEMA}.events"

    def __init__(self, url: str, recent: int | None = None) -> None:
        self._url = url
        self._config = GetSessionConfig(num_recent_events=recent) if recent else None
        self.service = DatabaseSessionService(
            url.replace("postgresql://", "postgresql+asyncpg://", 1),
            pool_size=POOL_SIZE,
            max_overflow=0,
            connect_args={"server_settings": {"search_path": SCHEMA}},
        )

    @staticmethod
    async def prepare(url: str) -> None:
        """Create the schema and let the service create its tables."""
        connection = await connect(url)
        await connection.execute(f"create schema {SCHEMA}")
        await connection.close()
        contender = Adk(url)
        await contender.service.prepare_tables()
        await contender.close()

    async def close(self) -> None:
        """Close the service's engine."""
        await self.service.close()

    async def sessions(self, count: int, fill: Fill | None = None) -> Sequence[str]:
        """New sessions, by id."""
        template = await template_session(self.service, fill.size if fill else APPENDED_BYTES)
        connection = await connect(self._url, SCHEMA)
        try:
            made = [row["id"] for row in await connection.fetch(_CREATE, template.id, count)]
            if fill:
                await connection.execute(_FILL, made, fill.messages, template.id, fill.kind)
        finally:
            await connection.close()
        return made

    async def writer(self, session: str) -> ServiceWriter:
        """A writer through ADK's interface."""
        return await service_writer(self.service, session)

    async def load(self, session: str) -> int:
        """The whole session, or its most recent events if so configured."""
        return await service_load(self.service, session, self._config)
