"""RocketMQ's official clients with a topic of several queues."""

from __future__ import annotations

from tests.clients.rocketmq.conftest import Start
from tests.clients.rocketmq.serving import Serving

TOPIC = "orders"
BODIES = [f"{number}" for number in range(24)]


async def test_consumers_get_what_is_in_every_queue(server: Serving, start: Start) -> None:
    await server.define("topic", TOPIC, queues=4)
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC])
    for body in BODIES:
        await program.do("send", name="producer", topic=TOPIC, body=body)
    assert len(await server.queues(TOPIC)) > 1

    await program.do("push", name="push", group="billing", topic=TOPIC)
    found = await program.until("consumed", "push", len(BODIES))
    assert sorted(one["body"] for one in found) == sorted(BODIES)

    await program.do("simple", name="simple", group="shipping", topic=TOPIC, wait_s=20)
    taken: list[str] = []
    while len(taken) < len(BODIES):
        messages = (await program.do("receive", name="simple"))["messages"]
        taken += [message["body"] for message in messages]
    assert sorted(taken) == sorted(BODIES)
    await program.do("stop", name="push")


async def test_messages_of_each_message_group_stay_in_order(server: Serving, start: Start) -> None:
    await server.define("topic", TOPIC, queues=4)
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC])
    groups = [f"order-{number}" for number in range(6)]
    for number in range(3):
        for group in groups:
            await program.do("send", name="producer", topic=TOPIC, body=f"{group}:{number}", group=group)

    await program.do("push", name="push", group="billing", topic=TOPIC, failures={"order-1:0": 1})
    found = await program.until("consumed", "push", len(groups) * 3 + 1)
    for group in groups:
        bodies = [one["body"] for one in found if one["group"] == group]
        first = [f"{group}:0"] * (2 if group == "order-1" else 1)
        assert bodies == [*first, f"{group}:1", f"{group}:2"]
