"""The chunk store: a data set as tars of about 64 MB in one stratified random order; see docs/reference/formats.md."""

from lipt.data.chunks.copies import thumbnails_are_of, thumbnails_folder
from lipt.data.chunks.images import Decode, decode_samples, fitted
from lipt.data.chunks.index import Index
from lipt.data.chunks.ingest import num_test_samples, stratified_order, write_dataset
from lipt.data.chunks.manifest import MANIFEST, ChunkInfo, Manifest, SplitInfo
from lipt.data.chunks.reading import ByteRange, Dataset, RangeRead, Sample, SampleRanges, read_samples

__all__ = [
    "MANIFEST", "ByteRange", "ChunkInfo", "Dataset", "Decode", "Index", "Manifest", "RangeRead", "Sample",
    "SampleRanges", "SplitInfo", "decode_samples", "fitted", "num_test_samples", "read_samples",
    "stratified_order", "thumbnails_are_of", "thumbnails_folder", "write_dataset",
]  # fmt: skip
