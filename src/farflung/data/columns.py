"""Columns of numbers in Arrow and Parquet files that anyone may have written.

Both formats say, before each compressed piece, how large it is unpacked, and their library believes it. Therefore, this module
adds up these sizes first, within the budget of `farflung.config.reading`. It refuses what farflung and Minari never write: the
library takes memory for some of that before it looks at the numbers.
"""

import contextlib
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from farflung.config.checks import optional_package
from farflung.config.reading import budget, file_size, size_on_disk, spend

EXTRA = "'.[data]', in a clone of farflung"
"""The extra that installs the libraries of all formats but npz."""
_MOST_ENTRIES = 100_000
"""In a list of a Parquet file's footer, such as that of its row groups."""
_MAGIC = b"ARROW1\0\0"
_METADATA_VERSION = 4
"""Of Arrow, which calls it V5: older ones have the codecs of their buffers elsewhere."""
_BYTES_OF_PAGE_HEADER = 4096
_ENCODINGS = {0, 2, 3, 8}
"""Of Parquet: plain, run lengths, and two names of dictionaries."""
_OF_PAGE = {5: 2, 7: 2, 8: 4}
"""In the header of a Parquet page: the number of the struct about each kind of page, and in it that of the encoding."""

Columns = dict[str, np.ndarray]


def read_columns(
    path: Path, names: Sequence[str], data_format: str, *, is_optional: Callable[[str], object] = lambda _: False
) -> tuple[Columns, Mapping[bytes, bytes]]:
    """Columns of an Arrow or Parquet file, and the metadata of the file; a column of structs is one column for each entry.

    Args:
        is_optional: whether a further column of a Parquet file is read, too.
    """
    size = file_size(path)
    with budget(size_on_disk([path])):
        spend(size)
        if data_format == "parquet":
            table, metadata = _read_parquet(path, names, is_optional)
        else:
            table, metadata = _read_arrow(path, names)
        table.validate()
        return {name: _as_array(column) for name, column in _flat(table)}, metadata


def _flat(table: Any) -> Iterator[tuple[str, Any]]:
    """The columns of a table; a column of structs gives NAME.ENTRY for each of its entries."""
    types = optional_package("pyarrow.types", EXTRA)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not types.is_struct(column.type):
            yield name, column
            continue
        if column.null_count:
            raise ValueError("a value is missing")
        for number, entry in enumerate(column.type):
            yield f"{name}.{entry.name}", column.combine_chunks().field(number)


def _read_parquet(path: Path, names: Sequence[str], is_optional: Callable[[str], object]) -> tuple[Any, Mapping[bytes, bytes]]:
    parquet, types = optional_package("pyarrow.parquet", EXTRA), optional_package("pyarrow.types", EXTRA)
    with parquet.ParquetFile(path, thrift_container_size_limit=_MOST_ENTRIES) as file, _content(path) as content:
        footer = file.metadata
        names = [*names, *filter(is_optional, file.schema_arrow.names)]
        widths: dict[str, int] = {}
        for name in names:
            kind = file.schema_arrow.field(name).type
            entries = {f"{name}.{entry.name}": entry.type for entry in kind} if types.is_struct(kind) else {name: kind}
            widths |= {f"{entry}.list.element": getattr(each, "list_size", 1) for entry, each in entries.items()}
        _spend_on_rows(footer.num_rows, file.schema_arrow, names)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(footer.num_columns)):
                name = chunk.path_in_schema
                if name.partition(".")[0] not in names:
                    continue
                if chunk.num_values != group.num_rows * widths.get(name, 1):
                    raise ValueError(f"{name} has {chunk.num_values} values in {group.num_rows} rows")
                spend(chunk.total_compressed_size)  # parts that overlap would be read again and again
                for page in _pages(content, chunk):
                    spend(page)
        if sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups)) != footer.num_rows:
            raise ValueError("its parts have other numbers of rows than it says")
        return file.read(columns=list(names)), footer.metadata or {}


def _pages(content: Any, chunk: Any) -> Iterator[int]:
    """The unpacked size of each page of a column's part."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    end = start + chunk.total_compressed_size
    if not 0 <= start <= end <= len(content):
        raise ValueError("a part of it lies outside of the file")
    while start < end:
        header, size = _thrift(content[start : start + _BYTES_OF_PAGE_HEADER])
        unpacked, packed = header[2], header[3]
        if min(unpacked, packed) < 0:
            raise ValueError("a page has a negative size")
        yield unpacked
        for kind in _OF_PAGE.keys() & header.keys():
            if not 0 <= header[kind][1] <= chunk.num_values or header[kind][_OF_PAGE[kind]] not in _ENCODINGS:
                raise ValueError("a page has too many values, or an encoding that farflung and Minari don't use")
        start += size + packed


def _thrift(content: bytes) -> tuple[dict[int, Any], int]:
    """The fields of the first struct in a content, by number, and its size; in Thrift's compact protocol."""
    at = 0

    def skip(num_bytes: int) -> None:
        nonlocal at
        at += num_bytes
        if at > len(content):
            raise ValueError("a page has a header that is too long")

    def byte() -> int:
        skip(1)
        return content[at - 1]

    def number() -> int:
        value = shift = 0
        while (part := byte()) & 0x80:
            value, shift = value | (part & 0x7F) << shift, shift + 7
        return value | part << shift

    def signed() -> int:
        value = number()
        return value >> 1 ^ -(value & 1)

    def value(kind: int, *, is_listed: bool = False) -> Any:
        if kind in (1, 2):  # a single boolean is its own kind
            return byte() == 1 if is_listed else kind == 1
        if kind == 3:
            return byte()
        if kind in (4, 5, 6):
            return signed()
        if kind in (7, 8):
            return skip(8 if kind == 7 else number())
        if kind in (9, 10):
            head = byte()
            return [value(head & 15, is_listed=True) for _ in range(head >> 4 if head < 0xF0 else number())]
        if kind == 12:
            return fields()
        raise ValueError("a page has no header as it should be")

    def fields() -> dict[int, Any]:
        found, name = {}, 0
        while head := byte():
            name = name + (head >> 4) if head >> 4 else signed()
            found[name] = value(head & 15)
        return found

    return fields(), at


def _read_arrow(path: Path, names: Sequence[str]) -> tuple[Any, Mapping[bytes, bytes]]:
    pyarrow, ipc = optional_package("pyarrow", EXTRA), optional_package("pyarrow.ipc", EXTRA)
    with _content(path) as content:
        if content[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"{path.name} is not an Arrow file")
    with pyarrow.memory_map(str(path)) as file:
        stream = file.read_buffer()[len(_MAGIC) :]  # the footer could lead elsewhere
        messages = ipc.MessageReader.open_stream(stream)
        with contextlib.suppress(StopIteration):
            while True:
                _check_message(messages.read_next_message())
        with ipc.open_stream(stream) as reader:
            fields = [reader.schema.get_field_index(name) for name in names]
            if -1 in fields:
                raise KeyError(names[fields.index(-1)])
            _spend_on_rows(0, reader.schema, names)
        with ipc.open_stream(stream, options=ipc.IpcReadOptions(included_fields=fields)) as reader:
            table = reader.read_all()
            _spend_on_rows(table.num_rows, table.schema, names)
            return table, reader.schema.metadata or {}


def _check_message(message: Any) -> None:
    """Spends the unpacked size of the buffers in a message, which is a FlatBuffers table."""
    if message.metadata_version != _METADATA_VERSION:
        raise ValueError("it has an old version of Arrow's metadata, which farflung and Minari don't write")
    if message.type not in ("record batch", "dictionary"):
        return
    about, body = message.metadata.to_pybytes(), message.body

    def field(table: int, number: int) -> int:
        """The place that a field of a table refers to; 0 if the table lacks the field."""
        rows = table - struct.unpack_from("<i", about, table)[0]
        size = struct.unpack_from("<H", about, rows)[0]
        at = struct.unpack_from("<H", about, rows + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
        return table + at + struct.unpack_from("<I", about, table + at)[0] if at else 0

    batch = field(struct.unpack_from("<I", about)[0], 2)
    if message.type == "dictionary":
        batch = field(batch, 1)
    buffers, compression = field(batch, 2), field(batch, 3)
    if not (buffers and compression):
        return
    for number in range(struct.unpack_from("<I", about, buffers)[0]):
        offset, length = struct.unpack_from("<qq", about, buffers + 4 + 16 * number)
        if length:
            unpacked = struct.unpack("<q", body[offset : offset + 8].to_pybytes())[0]  # -1: it is not packed
            spend(max(unpacked, 0))


@contextlib.contextmanager
def _content(path: Path) -> Iterator[Any]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _spend_on_rows(num_rows: int, schema: Any, names: Sequence[str]) -> None:
    """Spends the memory of columns; raises ValueError if one of them does not hold numbers."""
    spend(num_rows * sum(_item_size(schema.field(name).type) for name in names))


def _item_size(kind: Any) -> int:
    """Bytes of one value in an Arrow column: a number, a boolean, or a vector."""
    types = optional_package("pyarrow.types", EXTRA)
    if types.is_fixed_size_list(kind):
        return kind.list_size * _item_size(kind.value_type)
    if types.is_struct(kind):
        return sum(_item_size(entry.type) for entry in kind)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise ValueError(f"a column has the type {kind}, which is no type of numbers")
    return max(1, kind.bit_width // 8)


def _as_array(column: Any) -> np.ndarray:
    """An Arrow column as an array."""
    if column.null_count:
        raise ValueError("a value is missing")
    size = getattr(column.type, "list_size", None)
    if size is None:
        return column.to_numpy()
    whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return whole.flatten().to_numpy().reshape(-1, size)
