"""The tests of Replicate's npm client, against two API processes in turn and two directors."""

from test_npm_client import *  # noqa: F403
