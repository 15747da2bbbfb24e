"""Direct requests to a server: the proxies of the environment are not used.

Those are meant for the world outside.
"""

from __future__ import annotations

import urllib.request
from typing import Final

DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
