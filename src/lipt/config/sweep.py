"""A sweep: base settings, and a grid of other values for some of them."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lipt.config.config import Config
from lipt.config.error_messages import Places
from lipt.config.loading import (
    LENGTHS,
    as_settings,
    overlay,
    parse_config,
    put,
    read_settings,
    settings_in,
    with_overrides,
)
from lipt.errors import UsageError, did_you_mean

#: The most points of a grid. Each is a comparison over all seeds, so more of them are certainly a mistake.
MOST_POINTS = 500
#: Settings that are the same at all points, and why.
_FIXED = {
    "name": "it names the sweep",
    "workspace": "all points share one workspace",
    "seed": "base.compare.seeds lists the seeds",
    "compare": "base.compare lists seeds and rows",
}
#: The rows of a point, unless `compare.variants` lists others: what the subset must beat.
ROWS = ("stratified", "random-longer", "rs2", "lipt")


#: The settings that a value of an axis stands for: path -> value.
_Changes = dict[tuple[str, ...], Any]
#: Axis -> its values, each with the settings that it stands for.
_Axes = dict[str, list[tuple[Any, _Changes]]]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the grid: a configuration, which runs once per row and seed."""

    values: Mapping[str, Any]
    """Axis -> value; of an axis with named values, the name."""
    config: Config

    def __str__(self) -> str:
        return name_of(self.values)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The points of a grid over the settings `base`."""

    base: Config
    points: Sequence[Point]
    files: Sequence[str] = ()
    """The files that it was read from."""

    def only(self, wanted: Mapping[str, str]) -> "Sweep":
        """The points with these values, which are given as text.

        Raises:
            UsageError: no such axis, or no such value.
        """
        points = list(self.points)
        for axis, text in wanted.items():
            known = {str(point.values[axis]) for point in points if axis in point.values}
            axes = dict.fromkeys(name for point in self.points for name in point.values)
            if axis not in axes:
                raise UsageError(f"--only {axis}={text}: no such axis", did_you_mean(axis, axes))
            if not known:  # a list of grids
                what = f"--only {axis}={text}: the points that the other --only choose have no {axis}"
                raise UsageError(what, "name axes of one grid")
            if text not in known:
                raise UsageError(f"--only {axis}={text}: no such value", did_you_mean(text, sorted(known)))
            points = [point for point in points if str(point.values.get(axis)) == text]
        return replace(self, points=points)


def name_of(values: Mapping[str, Any]) -> str:
    """`select.fraction=0.1, part=merge`."""
    return ", ".join(f"{axis}={value}" for axis, value in values.items())


def load_sweep(path: str, overrides: Sequence[str] = ()) -> Sweep:
    """Read a sweep: `base` (settings, or the path of a configuration beside the file) and `grid`.

    A grid maps settings to lists of values: `select.fraction: [0.05, 0.1]`. An axis that changes several settings at
    once maps names to them: `method: {ours: {}, classic: {score.model: classic, score.runs: 10}}`. The points are all
    combinations; of a list of grids, the points of one after the other.

    Args:
        overrides: `a.b=value`, applied to `base`.

    Raises:
        UsageError: no such file, an unknown or invalid setting at any point, a point twice, too many points.
    """
    document, places = read_settings(path)
    for key in document:
        if key not in ("base", "grid"):
            raise UsageError(
                f"{places[key,]}: {key} is neither base nor grid",
                "a sweep has base, the path of a configuration or settings, and grid, lists of values",
            )
    base, files = document.get("base"), [path]
    if isinstance(base, str):
        files.append(str(Path(path).parent / base))
        settings, places_of_base = read_settings(files[-1])
    else:
        settings = as_settings(base, f"base of {path}")
        places_of_base = {keys[1:]: place for keys, place in places.items() if keys[0] == "base"}
    grid_places = {keys[1:]: place for keys, place in places.items() if keys[0] == "grid"}
    settings, places_of_base = with_overrides(settings, places_of_base, list(overrides))
    made = make_sweep(settings, document.get("grid"), origin=path, places=places_of_base, grid_places=grid_places)
    return replace(made, files=files)


def make_sweep(
    settings: dict[str, Any], grid: Any, *, origin: str, places: Places, grid_places: Places | None = None
) -> Sweep:
    """The points of a grid over these settings; arguments and errors as of `load_sweep`.

    Args:
        origin: source of both, for errors.
        places: sources of single settings; `grid_places`: of axes and of the settings below their values.
    """
    grids = [_axes(each, origin) for each in (grid or [None] if isinstance(grid, list) else [grid])]
    count = sum(math.prod(map(len, each.values())) for each in grids)
    if count > MOST_POINTS:
        sizes = " + ".join(" x ".join(str(len(values)) for values in each.values()) for each in grids)
        what = f"{origin}: the grid has {count:,} points ({sizes}); at most {MOST_POINTS} are allowed"
        raise UsageError(what, "leave out values, or write several files")
    _check_overrides(grids, places, origin)
    base = parse_config(settings, origin=origin, places=places)
    if not base.compare.variants:
        settings = overlay(settings, {"compare": {"variants": list(ROWS)}})
    points: list[Point] = []
    for axes in grids:
        same: dict[str, Point] = {}
        for chosen in itertools.product(*axes.values()):
            changed, found = settings, dict(places or {})
            for axis, (_, changes) in zip(axes, chosen, strict=True):
                for keys, value in changes.items():
                    changed = put(changed, keys, value)
                    found[keys] = (grid_places or {}).get((axis,), f"{origin}, grid")
            point = Point(
                values={axis: value for axis, (value, _) in zip(axes, chosen, strict=True)},
                config=parse_config(changed, origin=origin, places=found),
            )
            _check_effect(point, {axis: changes for axis, (_, changes) in zip(axes, chosen, strict=True)}, origin)
            _check_spelling(point, same.setdefault(point.config.model_dump_json(), point), axes, origin)
            if point.values in (other.values for other in points):
                raise UsageError(f"{origin}: two grids have the point {point}", "remove it from one of them")
            points.append(point)
    return Sweep(base=base, points=points)


def _check_effect(point: Point, changes: Mapping[str, _Changes], origin: str) -> None:
    """
    Args:
        changes: axis -> the settings that its value at this point stands for.

    Raises:
        UsageError: an axis has no effect at this point, so its value there would be a lie.
    """
    owners: dict[tuple[str, ...], str] = {}
    for axis, settings in changes.items():
        for keys in [leaf for setting, value in settings.items() for leaf in _leaves(setting, value)]:
            for other, owner in owners.items():
                if owner != axis and keys[: len(other)] == other[: len(keys)]:
                    raise UsageError(
                        f"{origin}: at {point}, grid.{owner} and grid.{axis} both set {'.'.join(keys)}",
                        "leave it to one of them, or write a list of grids",
                    )
            owners[keys] = axis
    lengths = {
        keys: f"grid.{axis}"
        for axis, settings in changes.items()
        for setting, value in settings.items()
        for keys, chosen in settings_in(setting, value)
        if keys in LENGTHS and chosen is not None
    }
    if len(lengths) > 1:
        both = " and ".join(sorted(set(lengths.values())))
        raise UsageError(
            f"{origin}: at {point}, train.epochs and train.steps both set the length of the training ({both})",
            "keep one of them, or write a list of grids",
        )


def _check_spelling(point: Point, same: Point, axes: _Axes, origin: str) -> None:
    """
    Args:
        same: the first point of the grid with these settings.

    Raises:
        UsageError: a list has one value in two spellings, such as 1 and 1.0, or .1 and the text ".10". Values with
            names may be equal: --set can make them so.
    """
    differing = [axis for axis in axes if str(same.values[axis]) != str(point.values[axis])]
    if differing and all(list(changes) == [_keys(axis)] for axis in differing for _, changes in axes[axis]):
        axis = differing[0]
        raise UsageError(
            f"{origin}: grid.{axis} has one value twice, as {same.values[axis]} and {point.values[axis]}",
            "remove one of them",
        )


def _leaves(keys: tuple[str, ...], value: Any) -> Iterator[tuple[str, ...]]:
    """The paths of the settings below this one that get a value; `options` counts as a whole."""
    if isinstance(value, dict) and value and keys[-1] != "options":
        for key, below in value.items():
            yield from _leaves((*keys, str(key)), below)
    else:
        yield keys


def _check_overrides(grids: Sequence[_Axes], places: Places, origin: str) -> None:
    """
    Raises:
        UsageError: --set names a setting that has a value of the grid at every point.
    """

    def replaces(changes: _Changes, keys: tuple[str, ...]) -> bool:
        if any(keys[: len(leaf)] == leaf for setting, value in changes.items() for leaf in _leaves(setting, value)):
            return True
        below = [pair for setting, value in changes.items() for pair in settings_in(setting, value)]
        return keys in LENGTHS and any(found in LENGTHS and value is not None for found, value in below)

    for keys, place in places.items():
        replaced = all(
            any(all(replaces(changes, keys) for _, changes in values) for values in axes.values()) for axes in grids
        )
        if place.startswith("--set ") and replaced:
            raise UsageError(
                f"{place} does not change {'.'.join(keys)}: the grid of {origin} replaces it at every point",
                "remove --set, or change the grid",
            )


def _axes(grid: Any, origin: str) -> _Axes:
    axes: _Axes = {}
    for axis, given in as_settings(grid, f"grid of {origin}").items():
        if isinstance(given, dict):
            values = [
                (
                    name,
                    {
                        _keys(key): value
                        for key, value in as_settings(changes, f"grid.{axis}.{name} of {origin}").items()
                    },
                )
                for name, changes in given.items()
            ]
        elif isinstance(given, list):
            values = [(value, {_keys(axis): value}) for value in given]
        else:
            values = []
        if not values:
            raise UsageError(f"{origin}: grid.{axis} has no list of values", f"write {axis}: [VALUE, VALUE]")
        texts = [str(value) for value, _ in values]
        if twice := [text for number, text in enumerate(texts) if text in texts[:number]]:
            raise UsageError(f"{origin}: grid.{axis} has the value {twice[0]} twice", "remove one of them")
        for setting in {setting for _, changes in values for setting in changes}:
            if why := _FIXED.get(setting[0]):
                name = ".".join(setting)
                where = "compare.seeds" if name == "seed" else name
                raise UsageError(f"{origin}: grid.{axis} changes {name}, but {why}", f"set it below base: {where}")
        axes[str(axis)] = values
    if not axes:
        raise UsageError(
            f"{origin}: grid is missing or empty", "write, for example, grid: {select.fraction: [0.05, 0.1]}"
        )
    return axes


def _keys(setting: Any) -> tuple[str, ...]:
    """The path of a setting that is written as `a.b`.

    Raises:
        UsageError: a part of the path is empty.
    """
    keys = tuple(str(setting).split("."))
    if not all(keys):
        raise UsageError(f"grid: {setting!r} is no setting", "write, for example, train.steps")
    return keys
