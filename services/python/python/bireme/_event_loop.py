"""Awaits calls of the native module in an asyncio event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar
from weakref import WeakKeyDictionary

from ._bireme import Call, Completions

T = TypeVar("T")

#: The finished calls of each event loop.
_completions: WeakKeyDictionary[asyncio.AbstractEventLoop, Completions] = WeakKeyDictionary()


async def answer(call: Call[T]) -> T:
    """Sends a call and returns its answer. If the caller is cancelled, so is the call, also on the server."""
    loop = asyncio.get_running_loop()
    completions = _completions.get(loop)
    if completions is None:
        completions = _completions[loop] = Completions()
        loop.add_reader(completions.fileno(), completions.take)
    future: asyncio.Future[T] = loop.create_future()
    call.complete(completions, future)
    try:
        return await future
    finally:
        call.cancel()
