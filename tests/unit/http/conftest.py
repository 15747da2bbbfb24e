"""Property tests judge results, not the speed of a busy machine: no deadline for a single example."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("twophase-http", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("twophase-http")
