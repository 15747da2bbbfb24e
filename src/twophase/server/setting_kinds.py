"""The kinds of values that settings have, with their units and bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=100_000_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)]
Age = Annotated[int, Meta(ge=0, le=100 * 366 * 24 * 3600 * 1000)]
Lease = Annotated[int, Meta(ge=500, le=3600 * 1000)]
Bytes = Annotated[int, Meta(ge=1024, le=1 << 40)]
Size = Annotated[int, Meta(ge=0, le=1 << 50)]
