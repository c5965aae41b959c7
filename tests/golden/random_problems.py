"""Planning problems from a seed, as lines of `reshard plan --batch`: the same ones with every version of Python, because
random.Random(seed).random() is the one generator whose numbers Python promises to keep.

Most are small, since small ones hit every rule there is; some have the sizes of models, 512 or 65536 devices.
"""
import random

AXES = ("dp", "tp", "pp", "x")
SMALL = ((2,), (4,), (8,), (3,), (6,), (5,), (16,), (64,), (2, 2), (2, 4), (4, 2), (4, 4), (2, 3), (8, 4), (8, 8), (6, 6),
         (3, 5), (1, 4), (2, 2, 2), (2, 4, 2), (3, 4, 2), (2, 8, 4), (4, 4, 4), (2, 1, 3), (2, 2, 2, 2), (2, 3, 2, 2),
         (4, 2, 2, 2), (2, 4, 2, 4), (1,), ())
LARGE = ((64, 8), (512,), (8, 8, 8), (2, 4, 8, 8), (32, 16))
# On 65536 devices a random problem can take minutes, so these are made by hand: (mesh, from, to, mesh of the target).
HUGE = (("{dp:256,tp:256}", "[<dp>16384, <tp>4096]", "[<tp>16384, <dp>4096]"),
        ("{dp:4096,tp:16}", "[<dp>16384, 4096]", "[<dp>16384, <tp>4096]"),
        ("{dp:4096,tp:16}", "[<dp,tp>65536, 1024]", "[<tp>65536, 1024]"),
        ("{dp:64,tp:16,pp:64}", "[<pp>8192, <dp>4096]", "[<dp,tp>8192, 4096]"),
        ("{dp:64,tp:16,pp:64}", "[<dp>8192, <tp>4096, 8]", "[<dp>8192, 4096, <tp>8]"),
        ("{dp:4096,tp:16}", "[<dp>4096, <tp>4096]", "[<tp>4096, 4096]", "{tp:8}@65536"),
        ("{dp:8192,tp:8}", "[8192, <tp>4096]", "[<dp>8192, <tp>4096]"))
EVEN = (8, 16, 24, 48, 64, 96, 128)
UNEVEN = (0, 1, 2, 3, 5, 6, 7, 9, 10, 13, 17, 33, 100)
MODEL = (1024, 2048, 4096, 5120, 8192, 14336, 16384)
DTYPES = ("bf16", "f32", "i8", "c128")
REDUCTIONS = ("sum", "avg", "min", "max", "prod")


class Random:
    def __init__(self, seed):
        self.source = random.Random(seed)

    def below(self, n):
        return int(self.source.random() * n)

    def chance(self, percent):
        return self.below(100) < percent

    def one(self, items):
        return items[self.below(len(items))]

    def order(self, items):
        """A random order of them."""
        left, out = list(items), []
        while left:
            out.append(left.pop(self.below(len(left))))
        return out


def product(sizes):
    out = 1
    for size in sizes:
        out *= size
    return out


def mesh_text(sizes, ids=""):
    return "{" + ",".join(f"{name}:{size}" for name, size in zip(AXES, sizes)) + "}" + ids


def device_ids(draw, count):
    """Where a mesh of `count` devices lies: as the other one, beside it, over a part of it, with gaps, in another order."""
    kind = draw.below(5)
    if kind == 0:
        return ""
    if kind == 1:
        return f"@{count}"
    if kind == 2:
        return f"@{1 + draw.below(count)}"
    if count > 64:
        return f"@{4 * count}"
    ids = [3 * i + 1 for i in range(count)] if kind == 3 else draw.order(range(count))
    return f"@[{','.join(map(str, ids))}]"


def parts(draw, name, size):
    """The axis whole, or cut into sub-axes: (text, size, whole)."""
    splits = [s for s in range(2, size) if size % s == 0]
    if not splits or not draw.chance(30):
        return [(name, size, True)]
    out, before = [], 1
    while before < size:
        part = draw.one([s for s in range(2, size // before + 1) if (size // before) % s == 0])
        out.append((f"{name}:({before}){part}", part, False))
        before *= part
    return out


def parts_of(draw, sizes):
    return [part for name, size in zip(AXES, sizes) for part in parts(draw, name, size)]


def dimension(draw, size, placed, plain):
    """The text of one dimension cut by the axes `placed`; unless `plain` with digits, reflections and explicit sizes."""
    factors, chunks = [], 1
    for text, count, whole in placed:
        if not plain and draw.chance(25):
            digit = 2 + draw.below(3)
            factors.append(str(digit))
            chunks *= digit
        kind = draw.below(100) if not plain and whole and count <= 64 else 100
        if kind < 15 and size % chunks == 0:
            left, sizes = size // chunks, []
            for _ in range(count - 1):
                sizes.append(min(left, draw.below(2 * max(left // count, 1) + 1)))
                left -= sizes[-1]
            factors.append(f"{text}=[{','.join(map(str, sizes + [left]))}]")
            chunks = size + 1  # the intervals may differ from here on
        else:
            factors.append(("~" if kind < 35 and chunks > 1 else "") + text)
            chunks *= count
    return f"<{','.join(factors)}>{size}" if factors else str(size)


def layout(draw, shape, axes, plain, partial=()):
    """`partial`: the parts of axes that are partial. The others cut a dimension or replicate."""
    placed = [[] for _ in shape]
    for part in draw.order(axes):
        where = draw.below(len(shape) + 1)
        if part not in partial and where < len(shape):
            placed[where].append(part)
    return "[" + ", ".join(dimension(draw, size, on, plain) for size, on in zip(shape, placed)) + "]"


def shape_of(draw, devices):
    rank = 0 if draw.chance(3) else draw.one((1, 2, 2, 2, 3, 3, 4))
    kind = draw.below(100)
    if devices > 64 or kind < 25:
        return [draw.one(MODEL) for _ in range(min(rank, 2))] + [64] * (rank - 2)
    return [draw.one(UNEVEN if kind < 50 and draw.chance(60) else EVEN) for _ in range(rank)]


def problem(draw, meshes):
    """One that is well formed. Some are refused all the same: such a reduction cannot be done, for one."""
    sizes = draw.one(meshes)
    devices = product(sizes)
    shape = shape_of(draw, devices)
    plain = draw.chance(60)
    out = {"mesh": mesh_text(sizes, device_ids(draw, devices) if draw.chance(15) else "")}
    axes = parts_of(draw, sizes)
    source_axes = axes if draw.chance(70) else parts_of(draw, sizes)
    reduction = draw.one(REDUCTIONS)
    pends = [part for part in source_axes if draw.chance(30)] if draw.chance(30) else []

    def partial(of):
        return f" {reduction}<{','.join(text for text, _, _ in of)}>" if of else ""

    out["from"] = layout(draw, shape, source_axes, plain, pends) + partial(pends)
    if draw.chance(33):
        to_sizes = draw.one(meshes) if draw.chance(60) else sizes
        out["to_mesh"] = mesh_text(to_sizes, device_ids(draw, product(to_sizes)))
        out["to"] = layout(draw, shape, parts_of(draw, to_sizes), plain)
    else:
        stay = [part for part in pends if part in axes and draw.chance(25)]
        out["to"] = layout(draw, shape, axes, plain, stay) + partial(stay)
    dtype = draw.one(DTYPES)
    return out if dtype == "bf16" else dict(out, dtype=dtype)


def break_one(draw, good):
    """The problem with one thing wrong, mostly."""
    bad = dict(good)
    side = draw.one(("from", "to"))
    text = bad[side]
    kind = draw.below(8)
    if kind == 0:
        bad[side] = text.replace("dp", "pd")
    elif kind == 1:
        bad[side] = text.replace("[", "[3, ", 1)
    elif kind == 2:
        at = draw.below(len(text))
        bad[side] = text[:at] + text[at + 1:]
    elif kind == 3:
        at = draw.below(len(text))
        bad[side] = text[:at] + draw.one("<>[],:~=x7@ ") + text[at:]
    elif kind == 4:
        bad[side] = text + " sum<dp>"
    elif kind == 5:
        bad["mesh"] = draw.one(("{dp:0}", "{dp:2,dp:2}", "{dp:4}@[0,0,1,2]", "{dp:99999999999999999999}", "dp:4", "{dp:2}@-1"))
    elif kind == 6:
        bad[side] = text.replace("dp", "9223372036854775807", 1)
    else:
        bad["dtype"] = draw.one(("bf17", "", "F32"))
    return bad


def problems(seed):
    draw = Random(seed)
    out = [problem(draw, SMALL) for _ in range(470)]
    out += [problem(draw, LARGE) for _ in range(40)]
    out += [dict(zip(("mesh", "from", "to", "to_mesh"), texts)) for texts in HUGE]
    out += [break_one(draw, problem(draw, SMALL)) for _ in range(60)]
    return out
