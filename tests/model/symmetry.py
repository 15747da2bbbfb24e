"""Worlds that differ only in names are one case.

The names are the numbers of attempts and the order of nodes. Nothing in the model depends on the number of an attempt,
so what follows from a renamed world is what follows from the world, renamed; `test_symmetry` holds the model to that.
So of each family of such worlds one is explored: the typical.
"""

from __future__ import annotations

import functools
import itertools

from .barrier import Barrier
from .world import Moment, Node, Post, Producer, Stored, prepare_acknowledged, prepare_refused


class Renaming:
    """New numbers for the attempts, in every part of a world.

    It remembers the parts that it has seen. `order`: the old numbers, in the order of the new ones.
    """

    def __init__(self, order: tuple[int, ...], post: Post) -> None:
        self._order = order
        self._new = (0, *(order.index(old) + 1 for old in sorted(order)))
        self._letters = tuple(post.index(letter.event, self._new[letter.attempt]) for letter in post.letters)
        self._stored_again = functools.cache(self._stored)
        self._barrier_again = functools.cache(self._barrier)
        self._producers_again = functools.cache(self._producers)
        self._nodes_again = functools.cache(self._nodes)
        self._network_again = functools.cache(self._network)
        self._replies_again = functools.cache(self._replies)

    def of(self, world: Moment) -> Moment:
        """Return the same world by the new numbers."""
        stored, database, producers, nodes, network, replies, pauses = world
        return Moment(
            self._stored_again(stored),
            self._barrier_again(database),
            self._producers_again(producers),
            self._nodes_again(nodes),
            self._network_again(network),
            self._replies_again(replies),
            pauses,
        )

    def _stored(self, stored: Stored) -> Stored:
        return stored._replace(content=self._new[stored.content])

    def _barrier(self, database: Barrier) -> Barrier:
        transactions = tuple(database.transactions[old - 1] for old in self._order)
        return database._replace(owner=self._new[database.owner], transactions=transactions)

    def _producers(self, producers: tuple[Producer, ...]) -> tuple[Producer, ...]:
        return tuple(
            one._replace(content=self._new[one.content]) for one in (producers[old - 1] for old in self._order)
        )

    def _nodes(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            Node(
                node.known and self._stored_again(node.known),
                self._letters[node.pending] if node.pending >= 0 else -1,
            )
            for node in nodes
        )

    def _network(self, network: int) -> int:
        if network < 0:
            return network
        return sum(1 << new for old, new in enumerate(self._letters) if network >> old & 1)

    def _replies(self, replies: int) -> int:
        renamed = replies
        for reply in (prepare_acknowledged, prepare_refused):
            for old in self._order:
                renamed &= ~reply(old)
        for reply in (prepare_acknowledged, prepare_refused):
            for old in self._order:
                renamed |= reply(self._new[old]) if replies & reply(old) else 0
        return renamed


class Symmetry:
    """The choice of the typical one among the worlds that are alike."""

    def __init__(self, attempts: int, post: Post) -> None:
        numbers = range(1, attempts + 1)
        self._post = post
        self._numbers = numbers
        self._doing_of = functools.cache(self._doing)
        self._letters_of = functools.cache(self._letters)
        self._replies_of = functools.cache(self._replies)
        self._renaming_of = functools.cache(self._renaming)
        self._in_order = functools.cache(_in_order)
        self.renamings = {order: Renaming(order, post) for order in itertools.permutations(numbers)}
        self._even = self.renamings[tuple(numbers)]

    def typical(self, world: Moment) -> Moment:
        """Sort the attempts by their progress, then the nodes by what they know."""
        if len(self._numbers) > 1:
            world = self._by_progress(world)
        ordered = self._in_order(world.nodes)
        return world if ordered is world.nodes else world.with_nodes(ordered)

    def _by_progress(self, world: Moment) -> Moment:
        _, database, producers, _, network, replies, _ = world
        progress = (
            *self._doing_of(producers),
            *database.transactions,
            *self._letters_of(network),
            *self._replies_of(replies),
        )
        renaming = self._renaming_of(progress)
        if renaming is self._even:
            renaming = self._by_names(world, progress)
        return world if renaming is None else renaming.of(world)

    def _renaming(self, progress: tuple[int, ...]) -> Renaming | None:
        """Return the renaming that sorts the attempts.

        None when they are sorted, and `_even` when some have the same progress.
        """
        keys = [progress[number - 1 :: len(self._numbers)] for number in self._numbers]
        return self._even if len(set(keys)) < len(keys) else self._sorting(keys)

    def _by_names(self, world: Moment, progress: tuple[int, ...]) -> Renaming | None:
        return self._sorting(
            [(*progress[number - 1 :: len(self._numbers)], *self._named(world, number)) for number in self._numbers]
        )

    def _sorting(self, keys: list[tuple[int, ...]]) -> Renaming | None:
        order = tuple(sorted(self._numbers, key=lambda number: keys[number - 1]))
        return None if order == tuple(self._numbers) else self.renamings[order]

    def _named(self, world: Moment, number: int) -> tuple[int, ...]:
        """Return the parts of the world that name this attempt, as sortable values."""
        letters = self._post.letters
        return (
            world.producers[number - 1].content == number,
            world.barrier.owner == number,
            world.stored.content == number,
            *sorted(
                2 * (node.known is not None and node.known.content == number)
                + (node.pending >= 0 and letters[node.pending].attempt == number)
                for node in world.nodes
            ),
        )

    def _letters(self, network: int) -> tuple[int, ...]:
        """Return, for each attempt, the letters in the network that name it."""
        found = [0] * (len(self._numbers) + 1)
        for index, letter in enumerate(self._post.letters):
            found[letter.attempt] |= network & 1 << index and 1 << letter.event
        return tuple(found[1:])

    def _replies(self, replies: int) -> tuple[int, ...]:
        return tuple(
            bool(replies & prepare_acknowledged(number)) + 2 * bool(replies & prepare_refused(number))
            for number in self._numbers
        )

    def _doing(self, producers: tuple[Producer, ...]) -> tuple[int, ...]:
        return tuple(producer.doing for producer in producers)


def _in_order(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    ordered = tuple(sorted(nodes, key=_key))
    return nodes if ordered == nodes else ordered


def _key(node: Node) -> tuple[int, ...]:
    return (-1,) if node.known is None else (*node.known, node.pending)
