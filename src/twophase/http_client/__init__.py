"""An HTTP/1.1 client for very many small calls.

`client` is pooled on asyncio; `blocking` is for threads.
"""
