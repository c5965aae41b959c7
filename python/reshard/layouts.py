"""Layouts as values, and their pictures."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from . import _core
from .arguments import Mesh, mesh_text, sizes

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

__all__ = ["Layout", "Picture", "show"]


class Page:
    """What a browser shows, alone or in a notebook."""

    def html(self) -> str:
        """A document to look at in a browser, in one file that needs no network."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        # In an iframe, so that the page's styles stay out of the notebook.
        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:640px;border:0"></iframe>'


class Layout:
    """Which device of a mesh holds which elements of a tensor. A value: it can be compared, hashed and pickled.

        layout = reshard.Layout("{dp:2,tp:4}", "[<dp,tp>4096, 1024]")
        layout.boxes(5)                          # [((2560, 0), (512, 1024))]: offset and size of what device 5 holds
        reshard.Layout.of(x)                     # of a DTensor
        reshard.Layout.from_placements(mesh, [Shard(0), Replicate()], (4096, 1024))

    Args:
        mesh: as text, "{dp:2,tp:4}", or as a dict, {"dp": 2, "tp": 4}.
        layout: as text, "[<dp,tp>4096, 1024]"; sizes are global.
        shape: global sizes; the layout may then be a rule without sizes, or in another notation.
        format: the notation of the layout: "reshard", "dtensor", "jax", "shardy" or "hlo".

    Raises:
        InputError: malformed text, with a caret under the column.
        UnsupportedError: another notation's text without an exact equivalent.
    """

    __slots__ = ("_core",)

    def __init__(self, mesh: Mesh, layout: str, *, shape: Sequence[int] | None = None, format: str = "reshard"):
        self._core = _core.layout(mesh_text(mesh), layout, format, sizes(shape))

    @classmethod
    def of(cls, dtensor: "DTensor") -> "Layout":
        """The layout of a DTensor, shard order included; devices are global ranks.

        Raises:
            NotImplementedError: a placement that no layout can express.
        """
        from .torch.problems import texts_of

        return cls(*texts_of(dtensor))

    @classmethod
    def from_placements(
        cls,
        mesh: "DeviceMesh",
        placements: "Sequence[Placement] | None",
        shape: Sequence[int],
        shard_order: Any = None,
    ) -> "Layout":
        """The layout of a DTensor with these placements; arguments and errors are those of `redistribute`. Devices are
        global ranks. Does not communicate."""
        from .torch.problems import texts_of_placements

        return cls(*texts_of_placements(mesh, placements, shape, shard_order))

    def to_placements(self, mesh: "DeviceMesh") -> "tuple[tuple[Placement, ...], Any]":
        """The placements of a DTensor with this layout, and its shard order in PyTorch's form (None with strided
        placements, which imply it).

        Args:
            mesh: of the same ranks and axes as the layout's (d0, d1, ... where its dimensions have no names).

        Raises:
            ValueError: another mesh.
            NotImplementedError: no placements express the layout.
        """
        from .torch.problems import placements_in

        return placements_in(mesh, self.mesh, str(self), self.shape)

    @property
    def mesh(self) -> str:
        """The mesh as text."""
        return self._core.mesh()

    @property
    def devices(self) -> list[int]:
        """The ids of the mesh's devices, in row-major order."""
        return self._core.devices()

    @property
    def shape(self) -> tuple[int, ...]:
        """Global sizes, in elements."""
        return tuple(self._core.shape())

    @property
    def partial(self) -> str | None:
        """How partial values combine: "sum", "avg", "min", "max" or "prod"; None where they are complete."""
        return self._core.partial()

    def local_shape(self, device: int) -> tuple[int, ...]:
        """What a device holds along each dimension of the layout, in elements; flattened dimensions count as one.

        Raises:
            InputError: the mesh has no such device.
        """
        return tuple(self._core.local_shape(device))

    def boxes(self, device: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """What a device holds as boxes of the tensor: offset and size of each, in elements, in the order in which the
        device holds them (the last dimension varies fastest).

        Raises:
            InputError: the mesh has no such device.
            LimitError: more than a million boxes.
        """
        return [(tuple(offset), tuple(size)) for offset, size in self._core.boxes(device)]

    def same_as(self, other: "Layout") -> bool:
        """Whether every device holds the same elements under both, however they are written. `==` asks whether they are
        written alike over the same mesh."""
        return self._core.same_as(other._core)

    def __eq__(self, other: object) -> bool:
        return self._core == other._core if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._core)

    def __reduce__(self) -> tuple:
        return Layout, (self.mesh, str(self))

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        return f"reshard.Layout({self.mesh!r}, {str(self)!r})"

    def _repr_html_(self) -> str:
        return Picture(self._core, None)._repr_html_()


class Picture(Page):
    """Who holds what. str() is for a terminal, svg() for a browser; a notebook draws it."""

    def __init__(self, core: _core.Layout, device: int | None):
        self._core = core
        self._device = device

    @property
    def layout(self) -> str:
        """The layout in the text form of docs/layouts.md, whatever notation it was given in."""
        return self._core.text()

    def html(self) -> str:
        """A page for a browser, in one file that needs no network."""
        return self._core.html(self._device)

    def svg(self) -> str:
        """A standalone SVG document."""
        return self._core.svg(self._device)

    def __str__(self) -> str:
        return self._core.draw(self._device).rstrip("\n")

    def __repr__(self) -> str:
        return f"<reshard.Picture of {self.layout}>"

    def _repr_svg_(self) -> str:
        return self.svg()


def show(
    mesh: Mesh | Layout,
    layout: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    format: str = "reshard",
    device: int | None = None,
) -> Picture:
    """Draws which device holds what.

    Args:
        mesh, layout: as those of `Layout`; or a `Layout`.
        shape: global sizes; the layout may then be a rule, or in another notation.
        format: the layout's notation.
        device: draws only what this device holds.

    Raises:
        InputError: malformed text, with a caret under the column.
    """
    if not isinstance(mesh, Layout):
        if layout is None:
            raise TypeError("show(mesh, layout): the layout is missing")
        mesh = Layout(mesh, layout, shape=shape, format=format)
    return Picture(mesh._core, device)
