"""The OpenAPI document of the HTTP port: `document` makes and publishes it, the others say what stands in it."""

from twophase.server.openapi.document import document, encoded, route
from twophase.server.openapi.operation import OPENAPI_PATH

__all__ = ["OPENAPI_PATH", "document", "encoded", "route"]
