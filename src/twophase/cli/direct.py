"""A server is asked directly: the proxies of the environment, meant for the world outside, are not used."""

from __future__ import annotations

import urllib.request
from typing import Final

DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
