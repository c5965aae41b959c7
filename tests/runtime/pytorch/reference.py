"""Who holds what, from the text of meshes and layouts: a second reading of the definition, without the library.

    mesh = Mesh("{X:4,Y:2}@[7,6,5,4,3,2,1,0]")
    layout = Layout("[<2,~Y>12, <X:(1)2>7] sum<X:(2)2>", mesh)
    layout.indices(4)          # per dimension the global indices that device 4 holds, ascending
    layout.local_shape(4)
    layout.contribution(4)     # the coordinates of device 4 along the partial axes

The meaning of a dimension of n elements with factors f1..fk: start with the interval [0,n); every factor cuts every
interval; an axis keeps one chunk, a digit keeps all of them. Flattened dimensions are one, of which each device holds
the product of what it holds of them; factors in front cut that, in order, as if it were one interval.
"""

import itertools
import re

import numpy as np

TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*|\d+|.)")


class _Text:
    def __init__(self, text):
        self.tokens = TOKEN.findall(text.strip())
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self):
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token):
        found = self.next()
        if found != token:
            raise ValueError(f"{token!r} expected, not {found!r}, in {''.join(self.tokens)!r}")

    def accept(self, token):
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def number(self):
        return int(self.next())

    def at_number(self):
        return self.peek().isdigit()

    def numbers(self):
        """'[' INT (',' INT)* ']'"""
        self.expect("[")
        found = [self.number()]
        while self.accept(","):
            found.append(self.number())
        self.expect("]")
        return found


class Mesh:
    """axes: {name: size}, devices: ids in row-major order of the coordinates."""

    def __init__(self, text):
        t = _Text(text)
        self.text = text
        self.axes = {}
        t.expect("{")
        while not t.accept("}"):
            name = t.next()
            t.expect(":")
            self.axes[name] = t.number()
            t.accept(",")
        size = int(np.prod(list(self.axes.values()), dtype=np.int64))
        self.devices = list(range(size))
        if t.accept("@"):
            if t.at_number():
                first = t.number()
                self.devices = [first + i for i in range(size)]
            else:
                self.devices = t.numbers()
        assert t.peek() == "" and len(self.devices) == size == len(set(self.devices)), text

    def coordinate(self, device, axis):
        """Along the whole axis."""
        position = self.devices.index(device)
        return int(np.unravel_index(position, tuple(self.axes.values()))[list(self.axes).index(axis)])


class _Part:
    """An axis, or the middle digit of an axis split into (pre, size, rest)."""

    def __init__(self, mesh, text):
        self.axis = text.next()
        self.size = mesh.axes[self.axis]
        self.rest = 1
        if text.accept(":"):
            text.expect("(")
            pre = text.number()
            text.expect(")")
            size = text.number()
            assert self.size % (pre * size) == 0
            self.rest = self.size // (pre * size)
            self.size = size

    def coordinate(self, mesh, device):
        return mesh.coordinate(device, self.axis) // self.rest % self.size


class _Factor:
    """part: None for a digit, which every device keeps. sizes: explicit ones."""

    def __init__(self, mesh, text):
        self.part = None
        self.sizes = None
        self.reflected = text.accept("~")
        if text.at_number():
            self.size = text.number()
            return
        self.part = _Part(mesh, text)
        self.size = self.part.size
        if text.accept("="):
            self.sizes = text.numbers()
            assert len(self.sizes) == self.size

    def cut(self, begin, end):
        if self.sizes is not None:
            assert sum(self.sizes) == end - begin, "explicit sizes do not add up"
            ends = [begin + s for s in itertools.accumulate(self.sizes)]
            return list(zip([begin] + ends[:-1], ends))
        chunk = -(-(end - begin) // self.size)
        return [(min(end, begin + j * chunk), min(end, begin + (j + 1) * chunk)) for j in range(self.size)]

    def keep(self, intervals, coordinate):
        if self.part is None:
            return [piece for i in intervals for piece in self.cut(*i)]
        kept = []
        for number, interval in enumerate(intervals):
            j = self.size - 1 - coordinate if self.reflected and number % 2 else coordinate
            kept.append(self.cut(*interval)[j])
        return kept


class _Dim:
    """A dimension of the tensor, or several that are flattened into one: `inner`, whose own factors cut first."""

    def __init__(self, mesh, text):
        self.mesh = mesh
        self.factors = []
        self.inner = []
        self.stated = text.number() if text.at_number() else None
        cut = text.peek() in ("<", "{")
        if cut:
            close = {"<": ">", "{": "}"}[text.next()]
            while not text.accept(close):
                self.factors.append(_Factor(mesh, text))
                text.accept(",")
        if text.accept("("):
            while not text.accept(")"):
                self.inner.append(_Dim(mesh, text))
                text.accept(",")
            self.size = int(np.prod([d.size for d in self.inner]))
        elif cut:
            self.size = text.number()
        else:
            self.size, self.stated = self.stated, None

    def sizes(self):
        return [size for d in self.inner for size in d.sizes()] if self.inner else [self.size]

    def indices(self, device):
        """The indices that `device` holds, ascending."""
        held = np.arange(self.size)
        if self.inner:
            each = [d.indices(device) for d in self.inner]
            held = np.ravel_multi_index(np.meshgrid(*each, indexing="ij"), [max(1, d.size) for d in self.inner]).ravel()
        intervals = [(0, len(held))]
        for factor in self.factors:
            coordinate = factor.part.coordinate(self.mesh, device) if factor.part else None
            intervals = factor.keep(intervals, coordinate)
        return np.concatenate([held[b:e] for b, e in intervals]).astype(np.int64)

    def check(self):
        for d in self.inner:
            d.check()
        largest = max(len(self.indices(i)) for i in self.mesh.devices)
        assert self.stated in (None, largest), (self.stated, largest)


class Layout:
    """shape of the tensor, dims; partial_op and partial (parts of axes)."""

    def __init__(self, text, mesh):
        self.text = text
        self.mesh = mesh
        self.dims = []
        self.partial_op = None
        self.partial = []
        t = _Text(text)
        t.expect("[")
        while not t.accept("]"):
            self.dims.append(_Dim(mesh, t))
            t.accept(",")
        self.shape = [size for d in self.dims for size in d.sizes()]
        if t.peek():
            self.partial_op = t.next()
            assert self.partial_op in ("sum", "avg", "min", "max", "prod")
            t.expect("<")
            while not t.accept(">"):
                self.partial.append(_Part(mesh, t))
                t.accept(",")
        assert t.peek() == "", text
        for d in self.dims:
            d.check()

    def holds(self, device):
        return device in self.mesh.devices

    def indices(self, device):
        """Per dimension the global indices of `device`, ascending."""
        return [d.indices(device) for d in self.dims]

    def local_shape(self, device):
        return [len(i) for i in self.indices(device)]

    def contribution(self, device):
        return tuple(p.coordinate(self.mesh, device) for p in self.partial)

    def contributions(self):
        """All coordinates along the partial axes; [()] when nothing is partial."""
        return list(itertools.product(*(range(p.size) for p in self.partial)))

    def local(self, whole, device):
        """What `device` holds of `whole`, an array of the global shape; further dimensions ride along."""
        along = whole.shape[len(self.shape) :]
        return take(whole.reshape([d.size for d in self.dims] + list(along)), self.indices(device))

    def multiplicity(self, device):
        """For every element of `device`, how many devices hold it with the same contribution."""
        mine = self.indices(device)
        count = np.zeros([len(i) for i in mine], dtype=np.int64)
        for other in self.mesh.devices:
            if self.contribution(other) == self.contribution(device):
                theirs = self.indices(other)
                held = np.ones(count.shape, dtype=bool)
                for d, (m, t) in enumerate(zip(mine, theirs)):
                    held &= np.isin(m, t).reshape([-1 if i == d else 1 for i in range(len(mine))])
                count += held
        return count


def take(whole, indices):
    """The elements of the product of per-dimension index lists, in a fresh array. Further dimensions ride along."""
    for dim, index in enumerate(indices):
        whole = np.take(whole, index, axis=dim)
    return whole.copy()
