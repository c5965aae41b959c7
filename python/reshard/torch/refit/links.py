"""Which rank sends how much to which one, in a batch."""

import math
from collections import Counter
from typing import Any

from ...planning import Batch

Links = Counter[tuple[int, int]]  # by sender and receiver


def links_of(batch: Batch, facts: dict[str, Any], item_sizes: list[int]) -> Links:
    """Bytes of all tensors of a batch, whose elements have those sizes; `facts` are batch.to_dict(). Equal plans are
    looked at once.

    Raises:
        reshard.LimitError: a tensor goes in more than 10 million pieces.
    """
    elements: dict[tuple, Links] = {}
    links: Links = Counter()
    for place, tensor in enumerate(facts["tensors"]):
        key = (tensor["plan"], *tensor["first_holders"])
        if key not in elements:
            pieces = batch.plan(place).to_dict(pieces=True)["pieces"]
            of_plan: Links = Counter()
            for _, sender, receiver, _, sizes in pieces:
                of_plan[sender, receiver] += math.prod(sizes)
            elements[key] = of_plan
        for link, count in elements[key].items():
            links[link] += count * item_sizes[place]
    return links
