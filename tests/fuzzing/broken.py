"""Ways to break files, and what their readers may do then."""

import io
import json
import os
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings

FIXTURES = Path(__file__).parent.parent / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.glob("v*"))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "room-det", "\x1b[31m", "[red]x", "$\\frac", "../..", 0, 1, -1, 2**31, 10**12, 1e308, [], {}])
)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4))
DTYPES = st.sampled_from(["f4", "f8", "f2", "i1", "i4", "i8", "u1", "u8", "?", "c8", "U3", "S3", ">f4", "M8[s]"])


def examples(share):
    """Settings with a share of the examples of the current profile, for readers that are slow."""
    return settings(max_examples=max(4, round(share * settings().max_examples / 3)))


@contextmanager
def one_line_errors_only():
    """Allows a result, or a ValueError of one line."""
    try:
        yield
    except ValueError as error:
        assert "\n" not in str(error), error  # noqa: PT017


@contextmanager
def temporary_copy(source):
    """A copy of a folder, to break it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for path in sorted(source.rglob("*")):
            place = copy / path.relative_to(source)
            if path.is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(path.read_bytes())
        forget_checksums(copy)
        yield copy


def forget_checksums(run):
    """Removes the checksums, as anyone can, so that readers validate each file."""
    for path in run.rglob("config.json"):
        header = json.loads(path.read_text())
        path.write_text(json.dumps({name: value for name, value in header.items() if name not in ("checksum", "sha256")}))


@st.composite
def damages(draw):
    """A function that breaks a file: changes its bytes, removes it, or makes it a folder, a pipe or a link."""
    kind = draw(st.sampled_from(["truncated", "flipped", "garbage", "missing", "folder", "pipe", "link", "longer"]))
    place, noise = draw(st.floats(0, 1)), draw(st.binary(max_size=200))
    places = draw(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), min_size=1, max_size=4))

    def damage(path):
        whole = path.read_bytes()
        path.unlink()
        if kind == "truncated":
            path.write_bytes(whole[: int(place * len(whole))])
        elif kind == "flipped":
            flipped = bytearray(whole)
            for share, bit in places if whole else ():
                flipped[min(int(share * len(whole)), len(whole) - 1)] ^= 1 << bit
            path.write_bytes(flipped)
        elif kind in ("garbage", "longer"):
            path.write_bytes(noise if kind == "garbage" else whole + noise)
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/etc/hostname")

    return damage


@st.composite
def changed(draw, value):
    """A JSON value with one of its parts replaced, removed or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        how = draw(st.integers(0, 9))
        if how == 0:
            return {name: item for name, item in value.items() if name != key}
        if how == 1:
            return value | {draw(st.text(max_size=8)): draw(JSON)}
        return value | {key: draw(changed(value[key]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(changed(value[place])), *value[place + 1 :]]
    return draw(JSON)


@st.composite
def changed_arrays(draw, arrays):
    """Arrays of which one has another value, shape or type, or is missing or new."""
    name = draw(st.sampled_from(sorted(arrays)))
    array, how = arrays[name], draw(st.integers(0, 5))
    if how == 0:
        return {key: value for key, value in arrays.items() if key != name}
    if how == 1:
        return arrays | {name: np.zeros(draw(st.lists(st.integers(0, 3), max_size=4)), draw(DTYPES))}
    if how == 2:
        return arrays | {draw(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=6)): array}
    if array.dtype.kind == "U":
        return arrays | {name: np.array(draw(st.text(max_size=30)))}
    if how == 3 and array.ndim:
        return arrays | {name: array[draw(st.integers(0, len(array))) :]}
    values = np.array(array)
    if values.size:
        limits = (
            np.iinfo(values.dtype)
            if values.dtype.kind in "iu"
            else np.finfo(values.dtype)
            if values.dtype.kind == "f"
            else None
        )
        extremes = [0, 1] if limits is None else [0, 1, limits.min, limits.max]
        extremes += [-1] if values.dtype.kind == "i" else [np.nan, -np.inf, 0.5] if values.dtype.kind == "f" else []
        values.flat[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from(extremes))
    return arrays | {name: values}


def pack(arrays):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def unpack(path):
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
