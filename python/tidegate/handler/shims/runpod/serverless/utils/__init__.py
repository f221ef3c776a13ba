"""Utilities for handlers: downloads, uploads, and a cache on a volume."""

from .rp_download import download_files_from_urls
from .rp_upload import upload_file_to_bucket, upload_in_memory_object
from .rp_volume_cache import VolumeCache

__all__ = ["VolumeCache", "download_files_from_urls", "upload_file_to_bucket", "upload_in_memory_object"]
