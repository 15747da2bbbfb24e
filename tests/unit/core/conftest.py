"""Property tests judge results, not the speed of a busy machine: no deadline for a single example."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("twophase", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("twophase-few", settings.get_profile("twophase"), max_examples=10)
settings.load_profile(os.environ.get("TWOPHASE_TESTS_PROFILE", "twophase"))
