"""The way to a coordinator: requests and answers as bytes, over HTTP and gRPC, blocking and on asyncio."""
