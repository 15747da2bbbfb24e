"""The transport to a coordinator: requests and answers as bytes.

It works over HTTP and gRPC, blocking and on asyncio.
"""
