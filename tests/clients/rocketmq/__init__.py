"""RocketMQ's official clients, unmodified, against the port for them."""
