"""tidegate: the Python side of the model server.

Importing this package is cheap and changes nothing; the child process starts in `tidegate.child`.
"""

__version__ = "0.1.0"
