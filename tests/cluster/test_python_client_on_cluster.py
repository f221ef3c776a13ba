"""The tests of Replicate's Python client, against two API processes in turn and two directors."""

from test_python_client import *  # noqa: F403
