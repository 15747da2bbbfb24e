"""A set of numbers as ranges: what is done of a queue above the first that is not."""

from __future__ import annotations

from bisect import bisect_right


class Ranges:
    """Numbers at and above `start`, of which all below it are in.

    A message that is tried again for hours, while millions behind it are done, costs one range.

    >>> done = Ranges(3, [(5, 7)])
    >>> done.add(3), done.start, 4 in done, 6 in done
    (True, 4, False, True)
    >>> done.add(4), done.start, done.pairs(), done.add(4)
    (True, 7, [], False)
    """

    def __init__(self, start: int = 0, pairs: list[tuple[int, int]] | None = None) -> None:
        self.start = start
        self._begins = [begin for begin, _ in pairs or ()]
        self._ends = [end for _, end in pairs or ()]

    def __contains__(self, number: int) -> bool:
        if number < self.start:
            return True
        place = bisect_right(self._begins, number) - 1
        return place >= 0 and number < self._ends[place]

    def pairs(self) -> list[tuple[int, int]]:
        """Return the ranges above `start`, each from its first number to behind its last."""
        return list(zip(self._begins, self._ends, strict=True))

    def missing_below(self, end: int) -> int:
        """Return how many numbers below `end` are not in.

        >>> Ranges(3, [(5, 7)]).missing_below(9)
        4
        """
        return max(0, end - self.start - sum(self._ends) + sum(self._begins))

    def missing(self, least: int, end: int) -> int:
        """Return how many numbers from `least` to before `end` are not in.

        >>> Ranges(3, [(5, 7)]).missing(4, 9), Ranges(3, [(5, 7)]).missing(0, 4)
        (3, 1)
        """
        least = max(least, self.start)
        inside = sum(max(0, min(e, end) - max(b, least)) for b, e in self.pairs())
        return max(0, end - least) - inside

    def first_missing(self, least: int) -> int:
        """Return the first number from `least` on that is not in.

        >>> [Ranges(3, [(5, 7)]).first_missing(least) for least in (0, 4, 5)]
        [3, 4, 7]
        """
        least = max(least, self.start)
        place = bisect_right(self._begins, least) - 1
        return self._ends[place] if place >= 0 and least < self._ends[place] else least

    def add(self, number: int) -> bool:
        """Add a number; False when it was in."""
        if number in self:
            return False
        self.add_up_to(number, number + 1)
        return True

    def add_up_to(self, begin: int, end: int) -> None:
        """Add numbers of which none is in, from `begin` to before `end`."""
        place = bisect_right(self._begins, begin)
        if place and self._ends[place - 1] == begin:
            place -= 1
            self._ends[place] = end
        else:
            self._begins.insert(place, begin)
            self._ends.insert(place, end)
        if place + 1 < len(self._begins) and self._begins[place + 1] == self._ends[place]:
            self._ends[place] = self._ends.pop(place + 1)
            del self._begins[place + 1]
        if self._begins[0] == self.start:
            self.start = self._ends.pop(0)
            del self._begins[0]
