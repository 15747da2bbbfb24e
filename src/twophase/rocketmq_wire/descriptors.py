"""The descriptors of RocketMQ's interface, in a pool of their own (ADR 0010).

The official Python client registers the same names in the common pool; a process may have both.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "apache.rocketmq.v2"
SERVICE: Final = f"{PACKAGE}.MessagingService"


class BrokenMessage(Exception):
    """An error: the bytes are no message of that type."""


@functools.cache
def pool() -> DescriptorPool:
    """Return the descriptors."""
    own = DescriptorPool()
    raw = files("twophase.rocketmq_wire").joinpath("rocketmq.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        own.AddSerializedFile(file.SerializeToString())
    return own


@functools.cache
def kind(name: str) -> Any:
    """Return the class of a message of the interface.

    A name with a dot is of protobuf's own messages.
    """
    return GetMessageClass(pool().FindMessageTypeByName(name if "." in name else f"{PACKAGE}.{name}"))


def parsed(name: str, raw: bytes) -> Any:
    """Return the message in `raw`.

    Raises:
        BrokenMessage: not a message of that type, or text in it that is not UTF-8.
    """
    try:
        return kind(name).FromString(raw)
    except (DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BrokenMessage(f"the request is not a protobuf message {PACKAGE}.{name}") from error
