"""The numbers of RocketMQ's interface: status codes, and values of its fields."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """A status code.

    A refusal travels in the answer; the gRPC call itself ends with OK.
    """

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    UNSUPPORTED = 50500


class MessageType(enum.IntEnum):
    """`Message.system_properties.message_type`."""

    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4


class ClientType(enum.IntEnum):
    """`Settings.client_type`, of the clients that are served."""

    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3


class Resolution(enum.IntEnum):
    """`EndTransactionRequest.resolution`."""

    UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class Source(enum.IntEnum):
    """`EndTransactionRequest.source`."""

    CLIENT = 1
    SERVER_CHECK = 2


class Filter(enum.IntEnum):
    """`FilterExpression.type`."""

    UNSPECIFIED = 0
    TAG = 1
    SQL = 2


class Encoding(enum.IntEnum):
    """`Message.system_properties.body_encoding`."""

    UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2


class DigestType(enum.IntEnum):
    """`Digest.type`."""

    UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3


class Scheme(enum.IntEnum):
    """`Endpoints.scheme`."""

    UNSPECIFIED = 0
    IPV4 = 1
    IPV6 = 2
    DOMAIN_NAME = 3


class Permission(enum.IntEnum):
    """`MessageQueue.permission`."""

    READ = 2
    WRITE = 3
    READ_WRITE = 4
