"""Between bytes and messages: what a request may say, and what an answer looks like."""
