"""HoldfastSessionService: sessions of ADK in a Holdfast store."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from holdfast import App, InvalidValue
from holdfast.adapters.google_adk.storage import Name, SessionStorage


class HoldfastSessionService(BaseSessionService):
    """Keep sessions in a Holdfast store: `Runner(…, session_service=HoldfastSessionService(app))`.

    An event is durable, with all state that it changes, when `append_event` returns. `app:` state belongs to the app,
    `user:` state to a user in the app, and `temp:` state is not stored. A session object that another writer has
    overtaken is refused with StaleSessionError: read it again. Order comes from positions in the log, not from clocks.
    """

    def __init__(self, app: App) -> None:
        super().__init__()
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastSessionService(holdfast.open(…))")
        self._storage = SessionStorage(app)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session; AlreadyExistsError if the id is taken."""
        id = (session_id or "").strip() or str(uuid.uuid4())
        return await asyncio.to_thread(self._storage.create, Name(app_name, user_id, id), state or {})

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session, or None. `config` leaves out old events; the state is always that of all of them."""
        config = config or GetSessionConfig()
        name = Name(app_name, user_id, session_id.strip())
        recent, after = config.num_recent_events, config.after_timestamp
        return await asyncio.to_thread(self._storage.read, name, last=recent, after=after)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app, or of one of its users, without events; the oldest change first."""
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._storage.list, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, if it is there. Its tool calls stay recorded: what they did is not undone."""
        await asyncio.to_thread(self._storage.delete, Name(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return a user's state, without the prefix `user:`."""
        return await asyncio.to_thread(self._storage.user_state, Name(app_name, user_id, ""))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, and apply the state that it changes. An event that is there already is not added again."""
        if event.partial or any(one == event for one in session.events if one.id == event.id):
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await asyncio.to_thread(self._storage.append, session, event)
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)
