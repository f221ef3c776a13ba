"""The phrases that neither the documentation nor the code may use, with what to write instead.

Each phrase has no legitimate use in this repository: either it is a private metaphor for something
that has an established name (see docs/glossary.md), or it hides who does what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple


class Banned(NamedTuple):
    """A phrase as a regular expression without word boundaries, and its replacement."""

    pattern: str
    instead: str


class Hit(NamedTuple):
    """One use of a banned phrase."""

    line: int
    text: str
    instead: str


ACTOR = "the actor: the client, the caller, the worker, the server, the model"

BANNED = (
    # Pronouns in place of the actor.
    Banned(r"whoever", ACTOR),
    Banned(r"(?<!run-as\s)(?<![\"'])nobody", "`no client`, `no worker`, or what is absent"),
    Banned(r"somebody", ACTOR),
    Banned(r"anybody", "`any client` or another actor"),
    Banned(r"everybody", "`all clients` or another actor"),
    Banned(r"(?:for|to|by|of|from|with) who", ACTOR),
    Banned(r"who wants to", ACTOR),
    # Passive phrases that hide what happens.
    Banned(r"(?:is|are|was|were|be|been|being) told", "`receives`, `reports` or `returns`"),
    Banned(r"written down", "`stored`, `recorded` or `persisted`"),
    Banned(r"what is to be", "what the code does: `pending webhooks`, `the jobs to run`"),
    Banned(r"(?:is|are|was|were) looked(?! up)", "`the server reads`, `checks` or `searches`"),
    Banned(r"cannot be seen", "`failed to read`"),
    Banned(r"(?:can|could|cannot|not) be had", "`is available` or `failed to get`"),
    Banned(r"(?:what|how much) (?:came|comes|became|becomes) of", "`the result of`"),
    # Idioms that do not read as technical English.
    Banned(r"at last", "`after retries`, `finally`, or nothing"),
    Banned(r"for so long", "`for this long` or the name of the setting"),
    Banned(r"all is well", "`no problem was found`, `healthy`"),
    Banned(r"is it well", "`health`"),
    Banned(r"(?:has|have|had) (?:its|their|his) turns?", "`is next` or `is dequeued`"),
    Banned(r"signs? of life", "`heartbeat`"),
    Banned(r"in hand", "`in flight` or `claimed`"),
    Banned(r"on the way of", "`in the path of`"),
    Banned(r"a word in the log", "`a warning in the log`"),
    Banned(r"without mercy", "`with SIGKILL`"),
    # Metaphors that have an established name.
    Banned(r"desks?", "`job service`"),
    Banned(r"the house", "`the project` or `the workspace`"),
    Banned(r"(?:the|this|that|each|every|which|other) rooms?(?! (?:for|left))", "`crate` or `module`"),
    Banned(r"(?:the|a|this|that|each|every|which|other|all|per) faces?", "`API`"),
    Banned(r"in the lines?(?! \d)", "`in the queue`"),
    Banned(r"(?:waits?|waiting|stands?|place) in line", "`in the queue`"),
    Banned(r"parcels?", "`outgoing message` or `job offer`"),
    Banned(
        r"(?<!to\s)(?<!by\s)(?:the|a|old|settled|unsent|kept) letters?"
        r"(?! or\b)(?= (?:of|about|that|is|was|in|to)\b)",
        "`outbox message`",
    ),
    Banned(r"berths?", "`load limit`"),
    Banned(r"luggage", "`workdir`"),
    Banned(r"crews?", "`pool status` or `process stats`"),
    Banned(r"guests?", "`connection` or `loaded model`"),
    Banned(r"troubles?", "`error`"),
    Banned(r"strangers?", "`untrusted clients`"),
)

# Files in which another system's own words may appear: `path: the phrases that are allowed there`.
ALLOWED: dict[str, frozenset[str]] = {}

# What may stand between two words of a phrase: blanks, or the end of a line and the mark of a comment.
GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?://[/!]?|#+|>)?[ \t]*)"

ANY_BANNED = re.compile(
    "|".join(
        rf"(?P<b{number}>\b(?:{phrase.pattern.replace(' ', GAP)})\b)" for number, phrase in enumerate(BANNED)
    ),
    re.IGNORECASE,
)


def banned_phrases(text: str, path: PurePath) -> Iterator[Hit]:
    """Yield every use of a banned phrase in a file, whose path is relative to the repository."""
    allowed = ALLOWED.get(path.as_posix(), frozenset())
    for match in ANY_BANNED.finditer(text):
        phrase = re.sub(GAP, " ", match[0])
        if phrase.lower() not in allowed:
            line = text.count("\n", 0, match.start()) + 1
            yield Hit(line, phrase, BANNED[int((match.lastgroup or "b0")[1:])].instead)
