"""Removes files that jobs leave in the working directory."""

import os
import shutil


def clean(folder_list: "list[str] | None" = None) -> None:
    """Remove Runpod's default folders and those in `folder_list`."""
    for folder in ("input_objects", "output_objects", "job_files", *(folder_list or ())):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.exists("output.zip"):
        os.remove("output.zip")
