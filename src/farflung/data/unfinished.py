"""The former names of `parts_folder` and `resumed_parts`."""

from farflung.data.collecting import parts_folder as unfinished
from farflung.data.collecting import resumed_parts as kept

__all__ = ["kept", "unfinished"]
