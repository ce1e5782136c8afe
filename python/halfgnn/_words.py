"""Random integers that are the same on the CPU and GPUs: hashes of a key and a counter."""

from __future__ import annotations

import torch
from torch import Tensor

_MOST = 2**63 - 1


class Words:
    """Random integers from 0 to 2⁶³ - 1, one after the other: the hash of splitmix64 of a key and a counter.

    Args:
        key: any integer of 64 bits.
        device: where the integers are made; they are the same on all.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._key, self._device, self._next = key, device, 0

    def take(self, count: int) -> Tensor:
        """The next ``count`` integers."""
        counter = torch.arange(self._next + 1, self._next + count + 1, device=self._device)
        self._next += count
        x = counter * _signed(0x9E3779B97F4A7C15) + self._key
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ _shifted(x, shift)) * _signed(factor)
        words: Tensor = (x ^ _shifted(x, 31)) & _MOST
        return words

    def uniform(self, count: int) -> Tensor:
        """The next ``count`` numbers from 0 to 1, 1 excluded, in float64."""
        numbers: Tensor = (self.take(count) >> 10).double() / 2**53
        return numbers


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted to the right, zeros in front."""
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def distinct(words: Words, degrees: Tensor, count: int) -> Tensor:
    """Different integers below each degree, every set as likely as any other: Floyd's algorithm, Communications of the ACM 30 (1987).

    Args:
        words: source of random integers.
        degrees: integers, larger than ``count``.
        count: integers for each degree.

    Returns:
        degrees × ``count``.
    """
    random = words.take(count * len(degrees)).view(count, -1)
    chosen = torch.empty_like(random)
    for at in range(count):
        most = degrees - count + at
        pick = random[at] % (most + 1)
        chosen[at] = torch.where((chosen[:at] == pick).any(0), most, pick)
    return chosen.t()


def by_weight(weight: Tensor, words: Words) -> Tensor:
    """An order in which numbers are sampled one after the other by weight, without replacement; those of weight 0 come last.

    The exponential times of Efraimidis and Spirakis, Information Processing Letters 97 (2006).
    """
    return (-torch.log1p(-words.uniform(len(weight))) / weight).argsort(stable=True)


def new_words(generator: torch.Generator | None, device: torch.device) -> Words:
    """Random integers of a key that the generator gives, in the process of the loader; workers have torch's own."""
    generator = generator if torch.utils.data.get_worker_info() is None else None
    return Words(int(torch.randint(-(2**63), 2**63 - 1, (), generator=generator)), device)
